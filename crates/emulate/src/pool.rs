//! Buffers that are used again. A fresh quarter mebibyte costs 64 page faults, more than reading it.
//!
//! Invariant: a buffer is in the pool or in one piece of bytes, never in two.

use bytes::Bytes;
use std::sync::{Arc, Mutex};

/// Bytes of a buffer, and of one read from a file: fits the second-level cache, and amortises a system call.
pub const BUFFER: usize = 256 << 10;

/// Buffers kept while idle: 16 MiB.
const IDLE_MAX: usize = 64;

/// Idle buffers, all of [`BUFFER`] bytes.
#[derive(Default)]
pub struct Pool {
    idle: Mutex<Vec<Box<[u8]>>>,
}

/// A buffer on loan.
pub struct Loan {
    buffer: Box<[u8]>,
    length: usize,
    pool: Arc<Pool>,
}

impl Pool {
    pub fn lend(self: &Arc<Pool>) -> Loan {
        let idle = self.idle.lock().expect("no panic while held").pop();
        Loan { buffer: idle.unwrap_or_else(|| vec![0; BUFFER].into()), length: 0, pool: self.clone() }
    }
}

impl Loan {
    /// The whole buffer, with bytes of somebody else in it.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// The first `length` bytes; the buffer goes back to the pool with the last reference.
    pub fn filled(mut self, length: usize) -> Bytes {
        self.length = length;
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut idle = self.pool.idle.lock().expect("no panic while held");
        if idle.len() < IDLE_MAX {
            idle.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_bytes_are_gone() {
        let pool = Arc::new(Pool::default());
        let mut loan = pool.lend();
        loan.space()[..3].copy_from_slice(b"abc");
        let bytes = loan.filled(3);
        let part = bytes.slice(1..);
        drop(bytes);
        assert_eq!((&part[..], pool.idle.lock().unwrap().len()), (&b"bc"[..], 0));
        drop(part);
        assert_eq!(pool.idle.lock().unwrap().len(), 1);
        assert_eq!(pool.lend().space().len(), BUFFER);
    }
}
