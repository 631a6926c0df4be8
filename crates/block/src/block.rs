//! Verified bytes. A block is made only by checking it, so whoever holds one need not check again.
//!
//! The bytes stay in the pieces in which the network delivered them: they are written to the disk and to
//! the reader with vectored calls, never copied together.

use crate::{Address, Error, Result};
use bytes::Bytes;
use std::any::Any;
use std::sync::Arc;

/// Something that is given back when the last holder of a block lets go: its share of the memory budget.
pub type Permit = Arc<dyn Any + Send + Sync>;

/// By what the bytes of a block were verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// What the store says: length, place and version, and its checksum where it gives one of what was asked.
    Store,
    /// Checksums that this node took of the bytes when it wrote them.
    Local,
    /// Checksums that came along from another member. That finds damage, and no member that lies.
    Peer,
}

/// The bytes of one address.
#[derive(Clone)]
pub struct Block {
    pub address: Address,
    proof: Proof,
    pieces: Arc<[Bytes]>,
    permit: Option<Permit>,
    kept: bool,
}

impl Block {
    /// A block of bytes that the caller has verified by this; the length is checked here.
    pub fn verified(address: Address, pieces: Vec<Bytes>, proof: Proof) -> Result<Block> {
        let got: usize = pieces.iter().map(Bytes::len).sum();
        if got != address.len() {
            let what = format!("received {got} bytes of block {} where {} were due", address.index, address.len());
            return Err(Error::corrupt(what, &*address.object));
        }
        Ok(Block { address, proof, pieces: pieces.into(), permit: None, kept: false })
    }

    /// The same block, holding on to a share of the memory budget for as long as it lives.
    pub fn holding(mut self, permit: Permit) -> Block {
        self.permit = Some(permit);
        self
    }

    /// The same block, known to lie on a local disk from which it can be had again.
    pub fn kept(mut self) -> Block {
        self.kept = true;
        self
    }

    /// The same block in memory of its own. Pieces keep the whole buffers alive in which they were received, which can
    /// be twice as much; so whoever holds a block for long holds this.
    pub fn apart(&self) -> Block {
        Block { pieces: [Bytes::from(self.pieces.concat())].into(), ..self.clone() }
    }

    /// Whether a lower tier holds the block, so that memory need not.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// By what its bytes were verified.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// The bytes, in order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The part of the block from `start` (within the block), at most `length` bytes, without copying.
    pub fn cut(&self, start: usize, length: usize) -> Vec<Bytes> {
        let mut out = Vec::with_capacity(2);
        let (mut skip, mut left) = (start, length);
        for piece in self.pieces.iter() {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let take = left.min(piece.len() - skip);
            if take == 0 {
                break;
            }
            out.push(piece.slice(skip..skip + take));
            (skip, left) = (0, left - take);
        }
        out
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// Never: a block has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;

    fn address(size: u64) -> Address {
        let object = Object { store: "m".into(), key: "k".into(), version: "1".into(), size };
        Address { object: Arc::new(object), index: 0 }
    }

    #[test]
    fn a_short_body_never_becomes_a_block() {
        let short = Block::verified(address(10), vec![Bytes::from_static(b"123456789")], Proof::Store);
        assert!(short.is_err_and(|error| error.kind == crate::Kind::Corrupt));
    }

    #[test]
    fn a_block_apart_leaves_the_buffers_that_it_came_in() {
        let buffer = Bytes::from(b"head 0123456789 tail".to_vec());
        let pieces = vec![buffer.slice(5..8), buffer.slice(8..15)];
        let block = Block::verified(address(10), pieces, Proof::Local).expect("ten bytes");
        let apart = block.apart();
        assert_eq!(apart.proof(), Proof::Local, "nobody verified it again");
        drop(block);
        assert!(buffer.is_unique(), "nobody else holds it");
        assert_eq!(apart.pieces().concat(), b"0123456789");
    }

    #[test]
    fn a_cut_crosses_pieces_and_ends_at_the_end() {
        let pieces = vec![Bytes::from_static(b"0123"), Bytes::from_static(b"456"), Bytes::from_static(b"789")];
        let block = Block::verified(address(10), pieces, Proof::Store).expect("ten bytes");
        let text = |start, length| block.cut(start, length).concat();
        assert_eq!(text(0, 10), b"0123456789");
        assert_eq!(text(3, 3), b"345");
        assert_eq!(text(7, 99), b"789");
        assert_eq!(text(10, 1), b"");
    }
}
