//! What was opened in this epoch, in order, to tell whether the next one begins the same.
//!
//! An epoch ends when files are opened that were opened in it. Invariant: four bytes and a bit a file, and no more files
//! than an order may have.

use crate::declared::FILES_MAX;
use crate::manifest::{node_at, place_of};

/// Opens of files of this epoch, with hardly any other in between, that are another epoch.
const AGAIN: usize = 16;
const OTHERS_MAX: u32 = 8;

/// How many of them are to be among the first of the epoch before, and how many those are at most: readers are not equally
/// fast.
const SAME: usize = 14;
const FIRST_MAX: usize = 256;

/// Files of an epoch that says something.
const FILES_MIN: usize = 64;

/// A file that was opened that recently is opened twice, and not again.
const TWICE_WITHIN: usize = 16;

#[derive(Default)]
pub struct Record {
    /// The generation of names that all are of.
    generation: u32,
    opens: Vec<u32>,
    /// A bit a file: whether it is among them.
    known: Vec<u64>,
    again: Vec<u32>,
    others: u32,
}

/// Another epoch has begun.
pub struct Turn {
    /// That before, if this one begins as it did.
    pub repeats: Option<Epoch>,
}

/// All files of an epoch, in order.
pub struct Epoch {
    generation: u32,
    opens: Vec<u32>,
}

impl Epoch {
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = u64> {
        self.opens.iter().map(|place| node_at(self.generation, *place))
    }
}

impl Record {
    /// A file was opened.
    pub fn opened(&mut self, node: u64) -> Option<Turn> {
        let (generation, place) = place_of(node)?;
        if self.opens.is_empty() {
            self.generation = generation;
        }
        if generation != self.generation {
            return None;
        }
        if self.add(place) {
            self.others += 1;
            if self.others > OTHERS_MAX {
                self.again.clear();
            }
            return None;
        }
        let recent = &self.opens[self.opens.len().saturating_sub(TWICE_WITHIN)..];
        if recent.contains(&place) || self.again.contains(&place) {
            return None;
        }
        self.again.push(place);
        self.others = 0;
        if self.again.len() < AGAIN {
            return None;
        }
        let first = &self.opens[..FIRST_MAX.min(self.opens.len() / 4)];
        let same = self.again.iter().filter(|place| first.contains(place)).count();
        let is_same = same >= SAME && self.opens.len() >= FILES_MIN;
        let before = std::mem::take(self);
        before.again.iter().for_each(|place| _ = self.add(*place));
        self.generation = generation;
        Some(Turn { repeats: is_same.then_some(Epoch { generation, opens: before.opens }) })
    }

    /// What was opened last, in order: as much as readers may be apart.
    pub fn recent(&self) -> Vec<u64> {
        const RECENT: usize = 1 << 14;
        let recent = &self.opens[self.opens.len().saturating_sub(RECENT)..];
        recent.iter().map(|place| node_at(self.generation, *place)).collect()
    }

    /// Whether it was not known.
    fn add(&mut self, place: u32) -> bool {
        let (word, bit) = ((place / 64) as usize, 1 << (place % 64));
        if self.known.get(word).is_some_and(|known| known & bit != 0) {
            return false;
        }
        if self.opens.len() < FILES_MAX {
            if word >= self.known.len() {
                self.known.resize(word + 1, 0);
            }
            self.known[word] |= bit;
            self.opens.push(place);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use order::Mersenne;

    fn play(record: &mut Record, places: impl IntoIterator<Item = u32>) -> Vec<Option<usize>> {
        let turns = places.into_iter().filter_map(|place| record.opened(node_at(1, place)));
        turns.map(|turn| turn.repeats.map(|epoch| epoch.nodes().len())).collect()
    }

    #[test]
    fn an_epoch_that_begins_as_the_one_before_repeats_it_and_any_other_doesn_t() {
        for files in [64, 1_000, 20_000] {
            let (one, other) = (Mersenne::of(1).permutation(files), Mersenne::of(2).permutation(files));
            let mut record = Record::default();
            assert_eq!(play(&mut record, one.clone()), []);
            // Workers are not equally fast.
            let mut next = one.clone();
            next.chunks_mut(3).for_each(|few| few.reverse());
            assert_eq!(play(&mut record, next), [Some(files as usize)]);
            assert_eq!(play(&mut record, other), [None], "of {files}");
        }
    }

    #[test]
    fn a_thousand_epochs_by_chance_repeat_none() {
        let mut record = Record::default();
        let turns: Vec<_> =
            (0..1_000).flat_map(|seed| play(&mut record, Mersenne::of(seed).permutation(200))).collect();
        assert!(turns.len() > 900 && turns.iter().all(Option::is_none), "{} turns", turns.len());
    }

    #[test]
    fn files_that_are_opened_twice_are_no_epoch_and_few_are_none() {
        let mut record = Record::default();
        assert_eq!(play(&mut record, (0..500).flat_map(|place| [place, place])), []);
        // Readers of the same few files.
        let mut record = Record::default();
        assert_eq!(play(&mut record, (0..40).chain(0..40)), [None]);
    }

    #[test]
    fn it_remembers_no_more_than_an_order_may_have_and_names_of_one_listing() {
        let mut record = Record::default();
        play(&mut record, [7, 8]);
        assert!(record.opened(node_at(2, 9)).is_none());
        assert_eq!(record.recent(), [node_at(1, 7), node_at(1, 8)]);
    }
}
