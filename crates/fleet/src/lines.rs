//! Lines out of a stream of bytes, of any encoding and any length.
//!
//! Invariant: no more than one line of the longest kind is held.

/// A longer line is handed on in pieces.
const LINE_BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
pub struct Lines {
    open: Vec<u8>,
}

impl Lines {
    /// Hand on each line that these bytes complete, without its end.
    pub fn push(&mut self, mut bytes: &[u8], line: &mut dyn FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.add(&bytes[..end], line);
            line(&self.open);
            self.open.clear();
            bytes = &bytes[end + 1..];
        }
        self.add(bytes, line);
    }

    /// The last line, which has no end.
    pub fn rest(self) -> Vec<u8> {
        self.open
    }

    fn add(&mut self, mut bytes: &[u8], line: &mut dyn FnMut(&[u8])) {
        while self.open.len() + bytes.len() > LINE_BYTES_MAX {
            let (now, later) = bytes.split_at(LINE_BYTES_MAX - self.open.len());
            self.open.extend(now);
            line(&self.open);
            self.open.clear();
            bytes = later;
        }
        self.open.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        pieces.iter().for_each(|piece| lines.push(piece, &mut |line| found.push(line.to_vec())));
        (found, lines.rest())
    }

    #[test]
    fn a_line_too_long_comes_in_pieces() {
        let long = vec![b'a'; 2 * LINE_BYTES_MAX + 1];
        let (found, rest) = cut(&[&long, b"\nb"]);
        assert_eq!(
            (found.iter().map(Vec::len).collect::<Vec<_>>(), rest),
            (vec![LINE_BYTES_MAX, LINE_BYTES_MAX, 1], b"b".to_vec())
        );
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_come(bytes in proptest::collection::vec(0_u8..12, 0..60), at in 0_usize..60) {
            let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte.max(9)).collect();
            let (one, other) = bytes.split_at(at.min(bytes.len()));
            let (mut found, rest) = cut(&[one, other]);
            found.push(rest);
            prop_assert_eq!(found.join(&b'\n'), bytes);
        }
    }
}
