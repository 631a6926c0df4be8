//! What members say to each other, as bytes (docs/format.md draws them). Reads hostile bytes; does no input or output.
//!
//! A connection begins with a greeting of each side. Then the asker sends requests, each with a number of its own, and
//! answers come back in any order, a block a frame: who asked has room for all that it asked for.
//!
//! Invariant: bytes that were not written here do not decode, and never panic.

use crate::unkept::{Lender, Loan};
use block::{Block, Checksum, Error, Kind, Object, ObjectId, RUN_BLOCKS_MAX, Run, SMALL, SUM, Stripe, crc64};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// First bytes of a greeting: the protocol and its version.
const MAGIC: [u8; 8] = *b"stoker\x00\x03";

/// Bytes of a greeting.
pub const GREETING: usize = 40;

/// Bytes of a frame before its payload.
pub const HEADER: usize = 16;

/// The longest request: keys have at most some KiB.
pub const REQUEST_BYTES_MAX: u32 = 32 << 10;

/// Requests for blocks that an asker may have under way on a connection. What needs no work is asked beside them, so that a
/// store that hangs keeps nobody from hearing that its member lives.
pub const REQUESTS_MAX: usize = 512;

/// The longest answer: a block and its checksums.
pub const ANSWER_BYTES_MAX: u32 = (SMALL + SMALL / SUM * 8) as u32;

/// Bytes of a text that goes to a log of somebody else.
const TEXT_MAX: usize = 1 << 10;

/// Who speaks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub from: u128,
    pub to: u128,
}

impl Greeting {
    pub fn encode(self) -> [u8; GREETING] {
        let mut out = [0; GREETING];
        out[..8].copy_from_slice(&MAGIC);
        out[8..24].copy_from_slice(&self.from.to_le_bytes());
        out[24..].copy_from_slice(&self.to.to_le_bytes());
        out
    }

    /// `None` of another protocol.
    pub fn decode(bytes: &[u8; GREETING]) -> Option<Greeting> {
        let number = |at: usize| u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"));
        (bytes[..8] == MAGIC).then(|| Greeting { from: number(8), to: number(24) })
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Blocks of an object, from wherever the asked member has them: its payload is a [`Wish`].
    Fetch = 1,
    /// The same, from its disk alone.
    Held = 2,
    /// The asker doesn't want the answer any more.
    Cancel = 3,
    /// The checksum of an object whose first block the payload names, as a [`Wish`].
    Sum = 4,
    /// How the asked member is.
    State = 5,
    /// What the asked member has of the names of a data set, which the payload names.
    Names = 6,
    /// A piece of its snapshot of them: set, hash of the snapshot, offset.
    Piece = 7,
    /// The asker has newer names of this set.
    News = 8,
    /// Bring the stripe of a run's first block to the disk, for nobody in particular: the payload is a [`Wish`].
    Bring = 9,
    /// The asker keeps these stripes in the asked member's stead; or owns them, and the asked member need not keep them.
    Kept = 10,
    /// A reader waits for the blocks of a request by now.
    Urge = 11,
    /// What readers of the asker use of what the asked member owns, or keeps in the asker's stead.
    Used = 12,
    /// A block with its checksums.
    Block = 16,
    /// All blocks of a request were sent.
    Done = 17,
    /// A request failed: its payload is a [`Failure`].
    Failed = 18,
    /// The asked member doesn't read that store by those credentials.
    NotMine = 19,
    /// The asked member lives, and works on it.
    Beat = 20,
    /// The asked member has no room for it; the payload names another one that keeps it.
    Elsewhere = 21,
    /// Nobody has room for it: the asker is to fetch it for itself, or have it of who asked just before. The payload is a
    /// [`Loan`].
    Yours = 22,
    /// It doesn't lie there, and won't be kept there.
    NotHeld = 23,
    /// What was asked for, in words of its own.
    Told = 24,
}

const WORDS: [Word; 21] = [
    Word::Fetch,
    Word::Held,
    Word::Cancel,
    Word::Sum,
    Word::State,
    Word::Names,
    Word::Piece,
    Word::News,
    Word::Bring,
    Word::Kept,
    Word::Urge,
    Word::Used,
    Word::Block,
    Word::Done,
    Word::Failed,
    Word::NotMine,
    Word::Beat,
    Word::Elsewhere,
    Word::Yours,
    Word::NotHeld,
    Word::Told,
];

/// What every frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub word: Word,
    /// Bytes that follow.
    pub length: u32,
    pub request: u32,
    /// Of a block: its index.
    pub block: u32,
}

impl Header {
    pub fn encode(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let fields = [self.word as u32, self.length, self.request, self.block];
        for (place, field) in out.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        out
    }

    /// `None` of a word that is unknown, or of more bytes than a word of this side may have.
    pub fn decode(bytes: &[u8; HEADER], length_max: u32) -> Option<Header> {
        let field = |at: usize| u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().expect("four bytes"));
        let word = WORDS.into_iter().find(|word| *word as u32 == field(0))?;
        let header = Header { word, length: field(1), request: field(2), block: field(3) };
        (header.length <= length_max).then_some(header)
    }
}

/// A run that somebody asks for.
#[derive(Clone, Debug)]
pub struct Wish {
    pub run: Run,
    pub manner: Manner,
}

/// In what way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// A reader waits for it.
    pub is_urgent: bool,
    /// The owner has no room for it, and sent the asker here.
    pub for_owner: bool,
    /// This one was named instead, and doesn't have it and won't keep it, or is away.
    pub refused: Option<u128>,
    /// What lies there already is to be compared again.
    pub verify: bool,
    /// Nobody keeps it: it is asked for from memory alone, of who asked for it as this one of all.
    pub lent: Option<u64>,
    /// In how many milliseconds a reader will wait for it; none if nobody knows.
    pub due_ms: Option<u32>,
    /// A reader opened it, and the owner was not told yet: of a set of so many bytes.
    pub opened: Option<u64>,
    /// The object as members keep it differs from the store's checksum: what lies there of it is to be dropped.
    pub is_wrong: bool,
}

/// Nobody knows when.
const NEVER: u32 = u32::MAX;

impl Manner {
    fn encode(self) -> Vec<u8> {
        let Manner { is_urgent, for_owner, refused, verify, lent, due_ms, opened, is_wrong } = self;
        let bits = [is_urgent, for_owner, refused.is_some(), verify, lent.is_some(), opened.is_some(), is_wrong];
        let bits = bits.into_iter().rev().fold(0, |all, bit| all << 1 | u8::from(bit));
        let due = due_ms.map_or(NEVER, |due| due.min(NEVER - 1));
        let (refused, lent, opened) = (refused.unwrap_or(0), lent.unwrap_or(0), opened.unwrap_or(0));
        let numbers = [lent.to_le_bytes(), opened.to_le_bytes()].concat();
        [&[bits][..], &due.to_le_bytes(), &refused.to_le_bytes(), &numbers].concat()
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Manner> {
        let (bits, due, refused) = (reader.take(1)?[0], reader.u32()?, reader.u128()?);
        let (lent, opened) = (reader.u64()?, reader.u64()?);
        let has = |bit: u8| bits & 1 << bit != 0;
        let due_ms = Some(due).filter(|due| *due != NEVER);
        let [is_urgent, for_owner, is_back, verify, is_lent, is_opened, is_wrong] = [0, 1, 2, 3, 4, 5, 6].map(has);
        let (refused, lent) = (is_back.then_some(refused), is_lent.then_some(lent));
        let opened = is_opened.then_some(opened);
        (bits < 128).then_some(Manner { is_urgent, for_owner, refused, verify, lent, due_ms, opened, is_wrong })
    }
}

/// A checksum, or that there is none.
pub fn encode_sum(sum: Option<Checksum>) -> Vec<u8> {
    let kind = match sum {
        None => return Vec::new(),
        Some(Checksum::Crc64Nvme(_)) => 1,
        Some(Checksum::Crc32C(_)) => 2,
        Some(Checksum::Crc32(_)) => 3,
    };
    let value = sum.map_or(0, Checksum::value);
    [&[kind][..], &value.to_le_bytes()].concat()
}

pub fn decode_sum(bytes: &[u8]) -> Option<Option<Checksum>> {
    let Some((kind, value)) = bytes.split_first() else { return Some(None) };
    let value = u64::from_le_bytes(value.try_into().ok()?);
    let narrow = u32::try_from(value);
    match kind {
        1 => Some(Some(Checksum::Crc64Nvme(value))),
        2 => Some(Some(Checksum::Crc32C(narrow.ok()?))),
        3 => Some(Some(Checksum::Crc32(narrow.ok()?))),
        _ => None,
    }
}

/// What became of a stripe that was to be brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// It lies there; so many bytes of it did before, or others had asked for them. The CRC-64/NVME of it as it is kept, if
    /// that is known.
    There { found: u64, sum: Option<u64> },
    /// Nobody has room for it.
    Unkept,
}

impl Brought {
    pub fn encode(self) -> Vec<u8> {
        match self {
            Brought::There { found, sum } => {
                let sum = sum.map(u64::to_le_bytes);
                [&[1][..], &found.to_le_bytes(), sum.as_ref().map_or(&[], |sum| &sum[..])].concat()
            }
            Brought::Unkept => vec![0],
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Brought> {
        match bytes.split_first()? {
            (0, []) => Some(Brought::Unkept),
            (1, words) => {
                let mut reader = Reader(words);
                let found = reader.u64()?;
                let sum = if reader.0.is_empty() { None } else { Some(reader.u64()?) };
                reader.0.is_empty().then_some(Brought::There { found, sum })
            }
            _ => None,
        }
    }
}

/// How a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Bytes that it would keep if it were asked to.
    pub free_bytes: u64,
    /// Bytes that it keeps.
    pub kept_bytes: u64,
    /// Since it became a member.
    pub age_ms: u64,
    /// Bytes that it would give up for what owners have no room for and readers want.
    pub stale_bytes: u64,
}

impl State {
    pub fn encode(self) -> Vec<u8> {
        let State { free_bytes, kept_bytes, age_ms, stale_bytes } = self;
        [free_bytes, kept_bytes, age_ms, stale_bytes].map(u64::to_le_bytes).concat()
    }

    /// Later versions may say more.
    pub fn decode(bytes: &[u8]) -> Option<State> {
        let mut reader = Reader(bytes);
        let (free_bytes, kept_bytes, age_ms) = (reader.u64()?, reader.u64()?, reader.u64()?);
        Some(State { free_bytes, kept_bytes, age_ms, stale_bytes: reader.u64()? })
    }
}

/// A set, and what of a piece of its snapshot is wanted.
pub fn decode_piece(bytes: &[u8]) -> Option<(u128, u128, u64)> {
    let (set, rest) = bytes.split_first_chunk()?;
    let (id, rest) = rest.split_first_chunk()?;
    let offset = u64::from_le_bytes(rest.try_into().ok()?);
    Some((u128::from_le_bytes(*set), u128::from_le_bytes(*id), offset))
}

/// Stripes of one request: they fit.
pub const STRIPES_MAX: usize = 1600;

pub fn encode_stripes(stripes: &[Stripe]) -> Vec<u8> {
    stripes
        .iter()
        .flat_map(|stripe| [&stripe.object.0.to_le_bytes()[..], &stripe.index.to_le_bytes()].concat())
        .collect()
}

pub fn decode_stripes(bytes: &[u8]) -> Option<Vec<Stripe>> {
    let (stripes, rest) = bytes.as_chunks::<20>();
    let stripe = |bytes: &[u8; 20]| {
        let mut reader = Reader(bytes);
        Some(Stripe { object: ObjectId(reader.u128()?), index: reader.u32()? })
    };
    rest.is_empty().then(|| stripes.iter().filter_map(stripe).collect())
}

/// The member that an owner names.
pub fn decode_member(bytes: &[u8]) -> Option<u128> {
    Some(u128::from_le_bytes(bytes.try_into().ok()?))
}

/// As which asker an owner counts one who asks for what nobody keeps, and who asked before.
pub fn encode_loan(loan: Loan) -> Vec<u8> {
    let mut out = loan.ticket.to_le_bytes().to_vec();
    out.extend(loan.until.to_le_bytes());
    if let Some(Lender { member, ticket }) = loan.lender {
        out.extend(member.to_le_bytes());
        out.extend(ticket.to_le_bytes());
    }
    out
}

pub fn decode_loan(bytes: &[u8]) -> Option<Loan> {
    let mut reader = Reader(bytes);
    let (ticket, until) = (reader.u64()?, reader.u32()?);
    if reader.0.is_empty() {
        return Some(Loan { ticket, until, lender: None });
    }
    let lender = Lender { member: reader.u128()?, ticket: reader.u64()? };
    reader.0.is_empty().then_some(Loan { ticket, until, lender: Some(lender) })
}

impl Wish {
    /// `None` of an object whose names no member takes.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let Run { object, blocks, .. } = &self.run;
        let texts = [&*object.store, &*object.key, &*object.version];
        let mut out = self.manner.encode();
        out.extend(blocks.start.to_le_bytes());
        out.extend(blocks.end.to_le_bytes());
        out.extend(object.size.to_le_bytes());
        for text in texts {
            out.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
            out.extend(text.as_bytes());
        }
        (out.len() <= REQUEST_BYTES_MAX as usize).then_some(out)
    }

    pub fn decode(bytes: &[u8]) -> Option<Wish> {
        let mut reader = Reader(bytes);
        let manner = Manner::decode(&mut reader)?;
        let (start, end, size) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let (store, key, version) = (reader.text()?.into(), reader.text()?, reader.text()?);
        let object = Object { store, key, version, size };
        let is_within = start < end && end <= object.blocks_checked()? && end - start <= RUN_BLOCKS_MAX;
        (is_within && reader.0.is_empty()).then(|| Wish { run: Run::new(Arc::new(object), start..end), manner })
    }
}

/// What became of a request that failed. The object is known to who asked.
pub struct Failure;

const IS_THROTTLED: u8 = 1;

impl Failure {
    pub fn encode(error: &Error) -> Vec<u8> {
        let retry_after = match error.kind {
            Kind::Unavailable { retry_after: Some(time) } => u32::try_from(time.as_millis()).unwrap_or(u32::MAX),
            _ => u32::MAX,
        };
        let mut out = vec![if error.is_throttling() { IS_THROTTLED } else { 0 }];
        out.extend(retry_after.to_le_bytes());
        for text in [error.kind.name(), &error.what, &error.hint] {
            let end = text.floor_char_boundary(TEXT_MAX);
            out.extend((end as u16).to_le_bytes());
            out.extend(&text.as_bytes()[..end]);
        }
        out
    }

    pub fn decode(bytes: &[u8], on: &str) -> Option<Error> {
        let mut reader = Reader(bytes);
        let (flags, retry_after) = (reader.take(1)?[0], reader.u32()?);
        let mut kind = Kind::named(&reader.text()?);
        if let Kind::Unavailable { retry_after: when } = &mut kind {
            *when = (retry_after != u32::MAX).then(|| Duration::from_millis(retry_after.into()));
        }
        // It goes to logs and terminals.
        let mut plain = || Some(reader.text()?.chars().filter(|letter| !letter.is_control()).collect::<String>());
        let (what, hint) = (plain()?, plain()?);
        let error = Error::new(kind, what, on).hint(hint);
        Some(if flags & IS_THROTTLED != 0 { error.throttled() } else { error })
    }
}

/// The frame of a block: header, checksums, and the bytes where they lie.
pub fn block_frame(request: u32, block: &Block) -> Vec<Bytes> {
    let sums = block::sums(block.pieces());
    let length = (8 * sums.len() + block.len()) as u32;
    let header = Header { word: Word::Block, length, request, block: block.address.index };
    let mut head = Vec::with_capacity(HEADER + 8 * sums.len());
    head.extend(header.encode());
    sums.iter().for_each(|sum| head.extend(sum.to_le_bytes()));
    let mut frame = Vec::with_capacity(1 + block.pieces().len());
    frame.push(Bytes::from(head));
    frame.extend(block.pieces().iter().cloned());
    frame
}

/// The frame after the last block of a request.
pub fn end(request: u32) -> [u8; HEADER] {
    Header { word: Word::Done, length: 0, request, block: 0 }.encode()
}

/// Bytes of checksums that come before a block of this length.
pub fn sums_bytes(block_bytes: usize) -> usize {
    block_bytes.div_ceil(SUM as usize) * 8
}

/// Whether the bytes of a block are those that its owner wrote.
pub fn are_right(sums: &[u8], bytes: &[u8]) -> bool {
    let told = sums.chunks_exact(8).map(|sum| u64::from_le_bytes(sum.try_into().expect("eight bytes")));
    bytes.chunks(SUM as usize).map(crc64::of).eq(told)
}

/// Any other frame.
pub fn frame(word: Word, request: u32, payload: Vec<u8>) -> Vec<Bytes> {
    let header = Header { word, length: payload.len() as u32, request, block: 0 };
    let mut out = Vec::with_capacity(HEADER + payload.len());
    out.extend(header.encode());
    out.extend(payload);
    vec![out.into()]
}

/// Takes fields off the front.
pub(crate) struct Reader<'b>(pub &'b [u8]);

impl<'b> Reader<'b> {
    pub fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let (field, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(field)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub fn u128(&mut self) -> Option<u128> {
        Some(u128::from_le_bytes(self.take(16)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        String::from_utf8(self.take(length.into())?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests;
