//! Open folders: each goes on with the names that it began with, whatever a refresh brings meanwhile.
//!
//! A position in a listing says which names it is of, so that the kernel, which keeps listings, never goes on in
//! one list where it stopped in another.
//!
//! Invariant: names of at most [`MOMENTS_MAX`] moments are held. Beyond it the oldest are let go, and listings
//! that began with them fail where they would have to go on.

use node::namespace::Names;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Each may hold a snapshot of about 80 MB for a million names on the disk. A listing that outlives so many
/// refreshes has most likely been forgotten.
const MOMENTS_MAX: usize = 16;

/// Positions within one list: more than names that a snapshot can number.
const POSITION_BITS: u32 = 34;

/// Folders of which is known what the kernel keeps of their listings. Beyond it all are forgotten, whose pages are then taken to be of
/// names that are held, as most are.
const LISTED_MAX: usize = 65_536;

/// What is left of a positive offset.
const MOMENT_MASK: u32 = (1 << (63 - POSITION_BITS)) - 1;

/// The folders that are open.
pub struct Folders {
    next: AtomicU64,
    /// Moments are counted from here, which keeps offsets small until the first refresh.
    first: u32,
    open: Mutex<Open>,
}

/// A listing, by its handle.
struct Begun {
    folder: u64,
    generation: u32,
    /// `None`, where they were let go.
    names: Option<Arc<dyn Names>>,
    /// Whether the kernel may keep it, and show it what it kept of another one.
    is_kept: bool,
}

#[derive(Default)]
struct Open {
    begun: HashMap<u64, Begun>,
    /// Handles of those that the kernel may keep, by folder.
    kept: HashMap<u64, Vec<u64>>,
    latest: u32,
    /// Of which names a folder was listed at last from its beginning, as the kernel may keep it.
    listed: HashMap<u64, u32>,
}

impl Folders {
    /// `first`: the names that the mount begins with. `next`: the first handle, later ones are higher.
    pub fn new(first: u32, next: u64) -> Folders {
        let open = Mutex::new(Open { latest: first, ..Open::default() });
        Folders { next: AtomicU64::new(next), first, open }
    }

    /// A folder is opened: the handle of its listing, and whether the kernel may keep it. While it shows a reader what it keeps, it may not
    /// keep other names: it would look for the reader's position among those, and may take not finding it for the end. `now`: the
    /// names of now, with which a listing begins that is asked for.
    pub fn open(&self, folder: u64, names: Option<Arc<dyn Names>>, now: u32, may_be_kept: bool) -> (u64, bool) {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(names) = names else { return (handle, may_be_kept) };
        let mut open = self.lock();
        let is_kept = may_be_kept && open.all_kept_are_of(folder, now);
        open.begin(handle, Begun { folder, generation: names.generation(), names: Some(names), is_kept });
        (handle, is_kept)
    }

    /// A listing begins, perhaps anew.
    pub fn begin(&self, handle: u64, folder: u64, names: Arc<dyn Names>) {
        let mut open = self.lock();
        let is_kept = open.is_kept(handle);
        open.begin(handle, Begun { folder, generation: names.generation(), names: Some(names), is_kept });
    }

    /// A folder is listed from its beginning.
    pub fn list(&self, handle: u64, folder: u64, generation: u32) {
        let mut open = self.lock();
        if !open.is_kept(handle) {
            return;
        }
        if open.listed.len() >= LISTED_MAX && !open.listed.contains_key(&folder) {
            open.listed.clear();
        }
        open.listed.insert(folder, generation);
    }

    /// Of which names the listing of a folder is that the kernel may keep, if this process made it.
    pub fn listed(&self, folder: u64) -> Option<u32> {
        self.lock().listed.get(&folder).copied()
    }

    /// The names that an offset is of, as far as a listing goes on with them: mostly this one, but the kernel may have shown it the
    /// beginning of another one's, which came between the names of its open and those of now.
    pub fn names(&self, handle: u64, offset: u64) -> Option<Arc<dyn Names>> {
        let is_of = |begun: &&Begun| begun.names.is_some() && self.position(begun.generation, offset).is_some();
        let open = self.lock();
        let found = open.begun.get(&handle).filter(is_of).or_else(|| open.begun.values().find(is_of));
        found.and_then(|begun| begun.names.clone())
    }

    pub fn release(&self, handle: u64) {
        let released = self.lock().end(handle);
        // Letting go of a snapshot may take time: not under the lock.
        drop(released);
    }

    /// A position as the kernel gets it.
    pub fn offset(&self, generation: u32, position: u64) -> u64 {
        u64::from(self.moment(generation)) << POSITION_BITS | position
    }

    /// The position that an offset stands for in these names. `None` if it is of others.
    pub fn position(&self, generation: u32, offset: u64) -> Option<u64> {
        let (moment, position) = (offset >> POSITION_BITS, offset & ((1 << POSITION_BITS) - 1));
        (offset == 0 || moment == u64::from(self.moment(generation))).then_some(position)
    }

    /// The names that an offset is of.
    pub fn generation(&self, offset: u64) -> u32 {
        self.first.wrapping_add((offset >> POSITION_BITS) as u32)
    }

    fn moment(&self, generation: u32) -> u32 {
        generation.wrapping_sub(self.first) & MOMENT_MASK
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn begin(&mut self, handle: u64, begun: Begun) {
        let generation = begun.generation;
        if begun.is_kept {
            let kept = self.kept.entry(begun.folder).or_default();
            if !kept.contains(&handle) {
                kept.push(handle);
            }
        }
        self.begun.insert(handle, begun);
        if generation > self.latest {
            self.latest = generation;
            self.let_go();
        }
    }

    fn end(&mut self, handle: u64) -> Option<Begun> {
        let begun = self.begun.remove(&handle)?;
        if let Some(kept) = self.kept.get_mut(&begun.folder) {
            kept.retain(|other| *other != handle);
            if kept.is_empty() {
                self.kept.remove(&begun.folder);
            }
        }
        Some(begun)
    }

    fn all_kept_are_of(&self, folder: u64, generation: u32) -> bool {
        let kept = self.kept.get(&folder).into_iter().flatten();
        kept.filter_map(|handle| self.begun.get(handle)).all(|begun| begun.generation == generation)
    }

    /// Of one that another process opened, it is not known.
    fn is_kept(&self, handle: u64) -> bool {
        self.begun.get(&handle).is_none_or(|begun| begun.is_kept)
    }

    fn let_go(&mut self) {
        let held = self.begun.values().filter(|begun| begun.names.is_some());
        let mut moments: Vec<u32> = held.map(|begun| begun.generation).collect();
        moments.sort_unstable();
        moments.dedup();
        if let Some(beyond) = moments.len().checked_sub(MOMENTS_MAX) {
            let oldest = moments[beyond];
            let older = self.begun.values_mut().filter(|begun| begun.generation < oldest);
            older.for_each(|begun| begun.names = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::namespace::Attributes;

    struct Moment(u32);

    impl Names for Moment {
        fn generation(&self) -> u32 {
            self.0
        }

        fn list(&self, _: u64, _: u64, _: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
            false
        }
    }

    #[test]
    fn a_position_is_of_one_list() {
        let folders = Folders::new(7, 1);
        assert_eq!(folders.offset(7, 12), 12);
        let later = folders.offset(9, 12);
        assert_eq!((folders.position(9, later), folders.position(7, later)), (Some(12), None));
        assert_eq!(folders.position(9, 12), None, "it is of the first");
        assert_eq!(folders.position(9, 0), Some(0), "every list has a beginning");
        assert!(i64::try_from(folders.offset(6, 1 << 33)).is_ok(), "the kernel takes no negative one");
    }

    #[test]
    fn a_listing_whose_beginning_was_another_ones_goes_on_with_the_names_of_that_one() {
        let folders = Folders::new(7, 1);
        let [early, late] = [7, 8].map(|moment| folders.open(5, Some(Arc::new(Moment(moment))), moment, true).0);
        let found = |handle, offset| folders.names(handle, offset).map(|names| names.generation());
        let [of_early, of_late, of_none] = [7, 8, 9].map(|moment| folders.offset(moment, 5));
        assert_eq!((found(early, of_early), found(late, of_late)), (Some(7), Some(8)));
        assert_eq!((found(early, of_late), found(late, of_early), found(late, of_none)), (Some(8), Some(7), None));
        folders.release(late);
        assert_eq!(found(early, of_late), None);
        folders.list(early, 5, 8);
        assert_eq!((folders.listed(5), folders.listed(6)), (Some(8), None));
        (0..LISTED_MAX as u64).for_each(|other| folders.list(early, 100 + other, 9));
        assert_eq!(folders.listed(5), None, "so many at most");
    }

    #[test]
    fn while_a_listing_is_kept_none_of_other_names_of_its_folder_is() {
        let folders = Folders::new(7, 1);
        let open_of = |folder, moment, now, may_be| folders.open(folder, Some(Arc::new(Moment(moment))), now, may_be);
        let open = |folder, moment, may_be| open_of(folder, moment, moment, may_be);
        let (first, is_kept) = open(5, 7, true);
        assert!(is_kept && open(5, 7, true).1 && open(6, 8, true).1, "of the same names, and of another folder");
        assert!(!open_of(5, 7, 8, true).1, "it shows those of 7, and begins with those of 8 where it is asked");
        let (other, is_kept) = open(5, 8, true);
        folders.list(other, 5, 8);
        assert_eq!((is_kept, folders.listed(5)), (false, None));
        folders.list(first, 5, 7);
        assert_eq!(folders.listed(5), Some(7));
        folders.begin(first, 5, Arc::new(Moment(9)));
        let others: Vec<u64> = folders.lock().begun.keys().copied().filter(|of| ![first, other].contains(of)).collect();
        others.into_iter().for_each(|handle| folders.release(handle));
        assert_eq!((open(5, 9, true).1, open(5, 9, false).1), (true, false), "one that is not kept is in nobody's way");
    }

    #[test]
    fn the_names_of_so_many_moments_are_held_and_the_oldest_let_go() {
        let folders = Folders::new(0, 1);
        let handles: Vec<u64> =
            (1..=20).map(|moment| folders.open(5, Some(Arc::new(Moment(moment))), moment, moment == 1).0).collect();
        let held = |handle: &u64| {
            let open = folders.lock();
            open.begun.get(handle).filter(|begun| begun.names.is_some()).map(|begun| begun.generation)
        };
        let expected: Vec<Option<u32>> = (1..=20).map(|moment| (moment > 4).then_some(moment)).collect();
        assert_eq!(handles.iter().map(held).collect::<Vec<_>>(), expected);
        folders.release(handles[19]);
        assert_eq!(held(&handles[19]), None);
        assert!(!folders.open(5, Some(Arc::new(Moment(20))), 20, true).1, "its reader may still be shown what is kept");
        folders.release(handles[0]);
        assert!(folders.open(5, Some(Arc::new(Moment(20))), 20, true).1 && folders.lock().kept.len() == 1);
    }
}
