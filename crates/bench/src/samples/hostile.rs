//! Footers of Parquet files as bytes that mean harm. For `make fuzz`; what it found is read again by the test below.
//!
//! Invariant: no bytes panic, and a range that is given lies in the file.

use super::footer::{Wanted, groups};
use block::Result;
use targets::{Listed, Opened};

struct Held<'a>(&'a [u8]);

impl Opened for Held<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// A footer, put at the end of a file as its length and the magic want it.
pub fn parquet(bytes: &[u8]) {
    let length = (bytes.len() as u32).to_le_bytes();
    let file = [b"PAR1", &[7; 400][..], bytes, &length, b"PAR1"].concat();
    let listed = Listed { name: "a".into(), bytes: file.len() as u64 };
    for wanted in [Wanted::Share(0.4), Wanted::Named(vec!["a".into()])] {
        let Ok(groups) = groups(&listed, &mut Held(&file), &wanted) else { continue };
        let all = groups.iter().flat_map(|group| &group.ranges);
        all.for_each(|range| assert!(range.start <= range.end && range.end <= listed.bytes, "{range:?}"));
        let _ = groups.iter().map(super::footer::Group::bytes).max();
    }
}

#[cfg(test)]
#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::corpus::each_is_borne;

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        each_is_borne("parquet", super::parquet);
    }
}
