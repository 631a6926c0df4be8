//! A list of keys, one a line: alone, or with a tab and the size behind it, and a tab and the version.
//!
//! Invariant: a line costs no more memory than the longest key.

use super::{Row, Rows};
use block::{Error, Result};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of a line: keys of S3 have at most 1,024, and others are not much longer.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;

/// The first bytes of a file that was compressed by gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What some programs write before the first line of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A file that may be compressed, unpacked as it is read.
pub fn unpacked(mut file: File, path: &Path) -> Result<Box<dyn BufRead>> {
    let mut head = [0; 2];
    let wrong = |error: std::io::Error| Error::io("the list can't be read", path.display(), &error);
    let read = file.read(&mut head).map_err(wrong)?;
    file.seek(SeekFrom::Start(0)).map_err(wrong)?;
    let file = BufReader::with_capacity(READ_BYTES, file);
    Ok(match read == GZIP.len() && head == GZIP {
        true => Box::new(BufReader::with_capacity(READ_BYTES, MultiGzDecoder::new(file))),
        false => Box::new(file),
    })
}

/// Lines of a text, each with its number.
pub struct Lines {
    from: Box<dyn BufRead>,
    on: String,
    number: u64,
}

impl Lines {
    pub fn of(from: Box<dyn BufRead>, path: &Path) -> Lines {
        Lines { from, on: path.display().to_string(), number: 0 }
    }

    pub fn wrong(&self, what: &str, hint: &str) -> Error {
        Error::invalid(what, format!("{}, line {}", self.on, self.number)).hint(hint)
    }

    /// The next line without its end; `None` behind the last.
    pub fn advance(&mut self) -> Result<Option<String>> {
        self.number += 1;
        let mut line = Vec::new();
        let read = (&mut self.from).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line);
        if let Err(error) = read {
            let is_cut = error.kind() == std::io::ErrorKind::UnexpectedEof;
            let what = if is_cut {
                "the compressed file ends too early".into()
            } else {
                format!("the list can't be read: {error}")
            };
            return Err(self.wrong(&what, "fetch the file again; `gzip -t` says whether it is whole"));
        }
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() > LINE_BYTES_MAX {
            return Err(self.wrong(&format!("a line has more than {LINE_BYTES_MAX} bytes"), "give one key a line"));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let line =
            String::from_utf8(line).map_err(|_| self.wrong("a line is not UTF-8", "give keys in UTF-8, one a line"))?;
        Ok(Some(match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if self.number == 1 => rest.to_owned(),
            _ => line,
        }))
    }
}

/// The rows of a list.
pub fn rows(file: File, path: &Path) -> Result<Rows> {
    let mut lines = Lines::of(unpacked(file, path)?, path);
    Ok(Box::new(std::iter::from_fn(move || {
        loop {
            match lines.advance() {
                Ok(None) => return None,
                Ok(Some(line)) if line.is_empty() => {}
                Ok(Some(line)) => return Some(row(&line, &lines)),
                Err(error) => return Some(Err(error)),
            }
        }
    })))
}

fn row(line: &str, lines: &Lines) -> Result<Row> {
    const WRITTEN: &str = "write a key, or a key, a tab and its bytes, or these, a tab and its version (ETag)";
    let mut words = line.split('\t');
    let key = words.next().unwrap_or_default().to_owned();
    if key.is_empty() {
        return Err(lines.wrong("a line has no key", WRITTEN));
    }
    let size = words
        .next()
        .map(|size| size.parse().map_err(|_| lines.wrong(&format!("{size:?} is no number of bytes"), WRITTEN)));
    let version = words.next().map(|version| version.trim_matches('"').to_owned());
    if words.next().is_some() {
        return Err(lines.wrong("a line has more than three columns", WRITTEN));
    }
    Ok(Row { key, size: size.transpose()?, version, modified_ns: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_key_and_of_another_it_is() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "\u{feff}a\t1\n\u{feff}b\n").expect("a list");
        let rows = rows(file.reopen().expect("a file"), file.path()).expect("a list");
        let keys: Vec<String> = rows.map(|row| row.expect("a row").key).collect();
        assert_eq!(keys, ["a", "\u{feff}b"]);
    }
}
