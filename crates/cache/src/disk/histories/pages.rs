//! What a simulated file holds: pages as the kernel shows them, and beside them what lies on the disk.
//!
//! Invariant: only [`Pages::write_back`], [`Pages::sync`] and [`Pages::lose`] change what lies on the disk, but for rot.

use super::chance::Chance;
use std::sync::Arc;

pub const PAGE: u64 = 4 << 10;

/// What a disk writes in one piece.
const SECTOR: usize = 512;

/// One page that is lost in so many is torn: some of its sectors are new and the others old.
const TORN_ONE_IN: u64 = 4;

/// The bytes of a page; none is a hole.
type Sheet = Option<Arc<[u8]>>;

#[derive(Clone, Default)]
struct Page {
    now: Sheet,
    kept: Sheet,
    is_dirty: bool,
}

#[derive(Default)]
pub struct Pages {
    size: u64,
    kept_size: u64,
    pages: Vec<Page>,
    /// Counts what happened to the bytes, so that who compared them knows whether to do so again.
    changes: u64,
    /// Bytes that were flipped behind everybody's back and not written since.
    rotten: Vec<u64>,
    /// Whether the program has read one of those: from then on it can know.
    is_rot_seen: bool,
}

impl Pages {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Pages that take space.
    pub fn count(&self) -> u64 {
        self.pages.iter().filter(|page| page.now.is_some()).count() as u64
    }

    /// Bytes in them: no more than the file is long.
    pub fn written(&self) -> u64 {
        self.size.min(self.count() * PAGE)
    }

    /// Whether bytes changed on the disk in a way that nobody could have noticed so far.
    pub fn is_rotten_unseen(&self) -> bool {
        !self.rotten.is_empty() && !self.is_rot_seen
    }

    pub fn is_rot_seen(&self) -> bool {
        !self.rotten.is_empty() && self.is_rot_seen
    }

    /// The program ended, and with it what it knew.
    pub fn forget_seen(&mut self) {
        self.is_rot_seen = false;
    }

    /// The program reads: what it sees of rot it knows from then on. At most what the buffer has room for.
    pub fn read(&mut self, into: &mut Vec<u8>, at: u64, length: u64) -> u64 {
        let read = self.peek(into, at, length);
        self.is_rot_seen |= self.rotten.iter().any(|byte| (at..at + read).contains(byte));
        read
    }

    /// Somebody else reads: the kernel by passthrough, or who judges.
    pub fn peek(&self, into: &mut Vec<u8>, at: u64, length: u64) -> u64 {
        const HOLE: [u8; PAGE as usize] = [0; PAGE as usize];
        let end = self.size.min(at + length);
        let mut next = at;
        while next < end {
            let (page, from) = ((next / PAGE) as usize, (next % PAGE) as usize);
            let until = (PAGE as usize).min(from + (end - next) as usize);
            let sheet = self.pages.get(page).and_then(|page| page.now.as_deref()).unwrap_or(&HOLE);
            into.extend_from_slice(&sheet[from..until]);
            next += (until - from) as u64;
        }
        next - at
    }

    pub fn write(&mut self, bytes: &[u8], at: u64) {
        self.changes += 1;
        let (mut next, mut rest) = (at, bytes);
        self.pages.resize(self.pages.len().max((at + bytes.len() as u64).div_ceil(PAGE) as usize), Page::default());
        while !rest.is_empty() {
            let (page, from) = (&mut self.pages[(next / PAGE) as usize], (next % PAGE) as usize);
            let (now, later) = rest.split_at(rest.len().min(PAGE as usize - from));
            if now.len() == PAGE as usize {
                page.now = Some(now.into());
            } else {
                page.own()[from..from + now.len()].copy_from_slice(now);
            }
            page.is_dirty = true;
            (next, rest) = (next + now.len() as u64, later);
        }
        self.size = self.size.max(next);
        self.rotten.retain(|byte| !(at..next).contains(byte));
    }

    pub fn set_len(&mut self, bytes: u64) {
        self.changes += 1;
        if bytes < self.size {
            self.cut(bytes);
        }
        self.size = bytes;
        self.rotten.retain(|byte| *byte < bytes);
    }

    /// Take away what lies behind an end.
    fn cut(&mut self, end: u64) {
        let (page, from) = ((end / PAGE) as usize, (end % PAGE) as usize);
        for (index, page) in self.pages.iter_mut().enumerate().skip(page) {
            page.is_dirty |= page.now.is_some();
            if index as u64 == end / PAGE && from > 0 && page.now.is_some() {
                page.own()[from..].fill(0);
            } else {
                page.now = None;
            }
        }
    }

    /// A bit of the disk flips.
    pub fn rot(&mut self, at: u64) {
        let page = (at / PAGE) as usize;
        if at >= self.size || self.pages.get(page).is_none_or(|page| page.now.is_none()) {
            return;
        }
        self.changes += 1;
        let page = &mut self.pages[page];
        page.own()[(at % PAGE) as usize] ^= 1;
        if !page.is_dirty {
            page.kept = page.now.clone();
        }
        match self.rotten.iter().position(|byte| *byte == at) {
            Some(index) => drop(self.rotten.swap_remove(index)),
            None => self.rotten.push(at),
        }
        self.is_rot_seen = false;
    }

    /// The kernel writes some of what is dirty to the disk: one page in so many.
    pub fn write_back(&mut self, chance: &mut Chance, one_in: u64) {
        for page in self.pages.iter_mut().filter(|page| page.is_dirty) {
            if chance.one_in(one_in) {
                (page.kept, page.is_dirty) = (page.now.clone(), false);
            }
        }
        if chance.one_in(one_in) {
            self.kept_size = self.size;
        }
    }

    /// All of it reaches the disk.
    pub fn sync(&mut self) {
        for page in &mut self.pages {
            (page.kept, page.is_dirty) = (page.now.clone(), false);
        }
        self.kept_size = self.size;
    }

    /// The power goes: of what did not reach the disk one part in so many did after all. There is no excuse for rot
    /// from then on, because nothing of this file may be believed any more.
    pub fn lose(&mut self, chance: &mut Chance, one_in: u64) {
        self.changes += 1;
        for page in self.pages.iter_mut().filter(|page| page.is_dirty) {
            if chance.one_in(one_in) {
                page.kept = page.now.clone();
            } else if chance.one_in(TORN_ONE_IN) {
                page.tear(chance);
            }
            (page.now, page.is_dirty) = (page.kept.clone(), false);
        }
        let (low, high) = (self.size.min(self.kept_size), self.size.max(self.kept_size));
        self.size = match chance.below(4) {
            0 => low + chance.below(high - low + 1),
            1 => self.kept_size,
            _ => self.size,
        };
        self.cut(self.size);
        self.sync();
        self.rotten.clear();
    }
}

impl Page {
    /// The bytes as they are shown, no longer shared with the disk.
    fn own(&mut self) -> &mut [u8] {
        let sheet = self.now.get_or_insert_with(|| Arc::from([0; PAGE as usize]));
        if Arc::get_mut(sheet).is_none() {
            *sheet = Arc::from(&sheet[..]);
        }
        Arc::get_mut(sheet).expect("it was copied where it was shared")
    }

    /// Only some sectors reach the disk.
    fn tear(&mut self, chance: &mut Chance) {
        let hole: Arc<[u8]> = Arc::from([0; PAGE as usize]);
        let new = self.now.clone().unwrap_or_else(|| hole.clone());
        let mut torn = self.kept.as_deref().unwrap_or(&hole).to_vec();
        for (index, sector) in torn.chunks_mut(SECTOR).enumerate() {
            if chance.one_in(2) {
                sector.copy_from_slice(&new[index * SECTOR..][..SECTOR]);
            }
        }
        self.kept = Some(torn.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pages: &Pages) -> Vec<u8> {
        let mut bytes = Vec::new();
        pages.peek(&mut bytes, 0, u64::MAX >> 1);
        bytes
    }

    #[test]
    fn pages_hold_what_a_file_of_bytes_would() {
        let (mut chance, mut pages, mut plain) = (Chance::of(1), Pages::default(), Vec::new());
        for _ in 0..500 {
            let (at, length) = (chance.below(20_000) as usize, chance.below(9_000) as usize);
            if chance.one_in(4) {
                pages.set_len(at as u64);
                plain.resize(at, 0);
            } else if length > 0 {
                let bytes = vec![chance.number() as u8; length];
                pages.write(&bytes, at as u64);
                plain.resize(plain.len().max(at + length), 0);
                plain[at..at + length].copy_from_slice(&bytes);
            }
            assert_eq!(all(&pages), plain);
        }
    }

    #[test]
    fn what_was_written_back_outlives_the_power_and_nothing_else_must() {
        let (mut chance, mut pages) = (Chance::of(2), Pages::default());
        pages.write(&[1; 20_000], 0);
        pages.write_back(&mut chance, 1);
        pages.lose(&mut chance, u64::MAX);
        assert_eq!(all(&pages), [1; 20_000]);
        pages.write(&[2; 8_192], 4_096);
        pages.lose(&mut chance, 1);
        assert_eq!(all(&pages), [&[1; 4_096][..], &[2; 8_192], &[1; 7_712]].concat());
        let mut was_lost = false;
        for _ in 0..20 {
            pages.write(&[3; 4_096], 0);
            pages.lose(&mut chance, 2);
            was_lost |= all(&pages)[0] == 1;
        }
        assert!(was_lost);
    }

    #[test]
    fn rot_is_known_once_it_was_read_and_gone_once_it_was_written_over() {
        let mut pages = Pages::default();
        pages.write(&[7; 10_000], 0);
        pages.rot(5_000);
        pages.read(&mut Vec::new(), 0, 5_000);
        assert!(pages.is_rotten_unseen());
        pages.read(&mut Vec::new(), 5_000, 1);
        assert!(pages.is_rot_seen());
        pages.write(&[7; 2], 4_999);
        assert!(!pages.is_rot_seen() && !pages.is_rotten_unseen());
        assert_eq!(all(&pages), [7; 10_000]);
    }
}
