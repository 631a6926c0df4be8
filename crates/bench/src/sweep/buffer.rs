//! Memory that begins where direct I/O wants it to.
//!
//! Invariant: the bytes begin at a multiple of [`ALIGNMENT`] and never move.

/// What every disk in use accepts: the size of a page, and a multiple of the sectors of a disk.
pub const ALIGNMENT: usize = 4096;

pub struct Buffer {
    memory: Box<[u8]>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    pub fn of(bytes: usize) -> Buffer {
        // Of ones, so that each page is there before anything is timed.
        let memory = vec![1; bytes + ALIGNMENT].into_boxed_slice();
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "bytes can be aligned to a page");
        Buffer { memory, start, bytes }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_any_size_is_aligned() {
        for bytes in [1, 4_095, 4_096, 100_000] {
            let mut buffer = Buffer::of(bytes);
            assert_eq!(buffer.bytes().len(), bytes);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
        }
    }
}
