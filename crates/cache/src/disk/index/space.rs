//! Room on the disk: what is free, who gives way, and what was lost while nobody looked.
//!
//! Invariant: what was promised to segments and is not written yet counts as used, whatever the file system says.

use super::elsewhere::Elsewhere;
use super::fillings::Fillings;
use super::recent::Recent;
use super::{Index, Residency, Slot, State};
use crate::disk::Hold;
use crate::disk::filling::Filling;
use crate::disk::log::Log;
use crate::disk::record::Record;
use crate::disk::room;
use crate::disk::segment::Segment;
use crate::disk::table::Class;
use crate::disk::whole::Whole;
use block::{Clock, Error, Kind, Object, ObjectId, Result};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Admissions, granted or refused, after which the file system is asked again.
const ADMISSIONS_PER_LOOK: u32 = 64;

/// Bytes admitted after which the file system is asked again. Fewer than that cannot fill it unnoticed: a write that
/// fails is served around.
const BYTES_PER_LOOK: u64 = 64 << 20;

/// Segments that give way at once to lower limits: until they are unlinked, each takes some hundred bytes.
const SHRINK_MAX: usize = 1 << 16;

/// Time after which the file system is asked again: others make room, and fill it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Between two counts of what is probably not read any more: each looks at many segments.
const STALE_EVERY: Duration = Duration::from_secs(5);

/// When the file system was asked how much is free, and what happened since.
pub struct Look {
    clock: Clock,
    at: Option<Instant>,
    admissions: u32,
    bytes: u64,
    /// A write failed for want of room since.
    pub(super) full: bool,
    /// When it was asked whether the folder is still this node's.
    held_at: Option<Instant>,
    /// When it was counted what is probably not read any more, and the bytes of that.
    stale: Option<(Instant, u64)>,
    /// It was told that others have left no room.
    is_useless: bool,
}

impl Look {
    pub fn new(clock: Clock) -> Look {
        Look { clock, at: None, admissions: 0, bytes: 0, full: false, held_at: None, stale: None, is_useless: false }
    }

    pub(super) fn now(&self) -> Instant {
        (self.clock)()
    }

    fn is_due(&self) -> bool {
        let is_old = self.at.is_none_or(|at| (self.clock)().saturating_duration_since(at) >= LOOK_EVERY);
        is_old || self.admissions >= ADMISSIONS_PER_LOOK || self.bytes >= BYTES_PER_LOOK
    }
}

impl Index {
    /// Give a segment a place, or say that there is none. Others may give way to one that is no copy.
    pub fn admit(&mut self, segment: &Segment, bytes: u64, class: Class) -> Option<Residency> {
        let id = segment.id();
        // Looking for room may bring back an index that could not be read before.
        if self.table.get(id).is_some() || !self.find_room(id, bytes, 1, class) || self.table.get(id).is_some() {
            return None;
        }
        let residency = Residency { id, number: self.next };
        // There are four billion, over a hundred a second for a year. Without one nothing more is kept.
        self.next = self.next.checked_add(1)?;
        self.table.insert(id, 0, bytes, State::Filling);
        self.table.change(id, |slot| (slot.residency, slot.class) = (residency.number, class));
        self.take(bytes, 1);
        self.coming += bytes;
        Some(residency)
    }

    /// Whether room was taken for these blocks. The first that are wanted tell of which stripe it is.
    pub fn has_room_for(&mut self, filling: &Arc<Filling>, blocks: &std::ops::Range<u32>) -> bool {
        let has_room = filling.has_room_for(blocks);
        if self.is_filling(filling) {
            self.table.resize(filling.residency.id, filling.reserves());
        }
        has_room
    }

    /// Take room for the whole of a segment of which one stripe has some. False if there is none.
    pub fn grow(&mut self, filling: &Arc<Filling>) -> bool {
        let Some(slot) = self.current(filling.residency).filter(|_| self.is_filling(filling)) else { return false };
        let more = filling.segment.bytes() - filling.reserves();
        if !self.find_room(filling.residency.id, more, 0, slot.class) {
            return false;
        }
        self.take(more, 0);
        self.table.resize(filling.residency.id, filling.segment.bytes());
        filling.grown();
        true
    }

    /// Whether there is room for bytes and files of a newcomer. Others may give way for it: that makes room once they are
    /// unlinked, so whoever asked gives the index back and asks again. Nobody gives way for a copy.
    pub fn find_room(&mut self, newcomer: ObjectId, bytes: u64, files: u64, class: Class) -> bool {
        self.look();
        if self.look.full || self.is_lost() {
            return false;
        }
        let used = self.table.used;
        if room::shortage(&self.limits, &used, bytes, files) == (0, 0) {
            return true;
        }
        if class == Class::Copy {
            return false;
        }
        // Nobody gives way for what is on its way out already.
        let short = room::shortage(&self.limits, &used.without(self.leaving), bytes, files);
        self.gave_way |= short == (0, 0) || self.make_room(newcomer, short);
        false
    }

    /// Whether there is room that nobody uses, or that a segment which is here has already.
    pub fn has_free_room(&mut self, id: ObjectId, bytes: u64) -> bool {
        self.look();
        let here = self.table.get(id).map(|slot| slot.bytes);
        let more = bytes.saturating_sub(here.unwrap_or(0));
        let short = room::shortage(&self.limits, &self.table.used, more, u64::from(here.is_none()));
        !self.is_lost() && (more == 0 || !self.look.full && short == (0, 0))
    }

    /// Whether there is room without evidence: free, or taken by copies and by what its data set does not list any more, that
    /// nobody holds. A segment that is here has what room was taken for it, which may be less than all.
    pub fn has_room(&mut self, id: ObjectId, bytes: u64) -> bool {
        self.has_room_for_all(&[(id, bytes)])
    }

    /// The same for several that are to be here together.
    pub fn has_room_for_all(&mut self, newcomers: &[(ObjectId, u64)]) -> bool {
        self.look();
        let here: HashMap<_, _> =
            newcomers.iter().filter_map(|(id, _)| Some((*id, self.table.get(*id)?.bytes))).collect();
        let taken = |id: &ObjectId| here.get(id).copied().unwrap_or(0);
        let more = newcomers.iter().map(|(id, bytes)| bytes.saturating_sub(taken(id))).sum();
        if self.is_lost() || more > 0 && self.look.full {
            return false;
        }
        let files = (newcomers.len() - here.len()) as u64;
        let short = room::shortage(&self.limits, &self.table.used, more, files);
        if more == 0 || short == (0, 0) {
            return true;
        }
        let held = held(&self.open, &self.filling, (&self.elsewhere, &self.recent), self.look.now());
        self.table.yields(short.0, short.1, |id, slot| here.contains_key(&id) || held(id, slot))
    }

    /// Whether a newcomer would find room, or others would give way to it on evidence.
    pub fn may_admit(&mut self, id: ObjectId, bytes: u64) -> bool {
        if self.has_room(id, bytes) {
            return true;
        }
        if self.is_lost() || self.look.full || self.table.get(id).is_some() {
            return false;
        }
        let short = room::shortage(&self.limits, &self.table.used.without(self.leaving), bytes, 1);
        let now = self.look.now();
        self.table.may_give_way(
            id,
            short.0,
            short.1,
            held(&self.open, &self.filling, (&self.elsewhere, &self.recent), now),
        )
    }

    /// Whether an object that is not here was used often enough for others to give way to it.
    pub fn is_wanted(&self, id: ObjectId) -> bool {
        self.table.is_wanted(id)
    }

    /// The owner says that readers want a segment that it has no room for.
    pub fn vouch(&mut self, id: ObjectId) {
        self.table.vouch(id);
    }

    /// Bytes of what is probably not read any more, as it was some seconds ago.
    pub fn stale_bytes(&mut self) -> u64 {
        let now = self.look.now();
        if self.look.stale.is_none_or(|(at, _)| now.saturating_duration_since(at) >= STALE_EVERY) {
            self.look.stale = Some((now, self.table.stale_bytes()));
        }
        self.look.stale.map_or(0, |(_, bytes)| bytes)
    }

    /// Bytes that are free, or that copies and what nobody lists take, as far as nobody holds them: about so many.
    pub fn spare_bytes(&mut self) -> u64 {
        self.look();
        if self.look.full || self.is_lost() {
            return 0;
        }
        let (used, limits) = (self.table.used, &self.limits);
        let within = limits.bytes.saturating_sub(used.bytes);
        let free = within.min(used.free_bytes.saturating_sub(limits.free_bytes_min));
        let held = held(&self.open, &self.filling, (&self.elsewhere, &self.recent), self.look.now());
        free + self.table.yielding_bytes(held)
    }

    /// Count room as taken.
    pub fn take(&mut self, bytes: u64, files: u64) {
        let used = &mut self.table.used;
        used.free_bytes = used.free_bytes.saturating_sub(bytes);
        used.free_files = used.free_files.map(|free| free.saturating_sub(files));
        self.look.bytes += bytes;
    }

    /// A segment or a block could not be kept. For want of room, nothing is admitted until somebody looks again.
    pub fn refused(&mut self, error: &Error) {
        tracing::warn!("serving without keeping: {error}");
        // Perhaps the folder was removed: whoever takes the index next asks, and whoever wants room looks.
        (self.look.held_at, self.look.at) = (None, None);
        if error.kind != Kind::Full {
            return;
        }
        (self.look.full, self.look.admissions, self.look.bytes) = (true, 0, 0);
        self.look.at = Some((self.look.clock)());
    }

    /// Ask now and then whether the folder is still this node's, and the log where it was. Whoever takes the index does.
    pub fn ask_hold(&mut self) {
        let now = (self.look.clock)();
        if self.look.held_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOK_EVERY) {
            self.look.held_at = Some(now);
            if self.is_held() {
                self.look_for_folder();
            }
        }
    }

    /// Somebody may have removed the folder of the files alone, or put another in its place: it is made again.
    fn look_for_folder(&mut self) {
        let found = self.medium.folder(&self.folder);
        match &found {
            Ok(found) if self.made.as_ref().is_none_or(|made| made == found) => return self.made = Some(*found),
            // What it holds is for the next sweep.
            Ok(_) => self.has_strays = true,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            // Where nobody can look, it is as it was.
            Err(_) => return,
        }
        if self.made.is_some() {
            tracing::warn!(
                "the files in {} were removed: they are fetched again when they are read",
                self.folder.display()
            );
        }
        self.evict_all();
        let made = self.medium.make_folder(&self.folder).and_then(|()| self.medium.folder(&self.folder));
        self.made = made.ok();
        self.look_again();
    }

    /// Whether the folder is this node's, and nobody else had it since it was asked before.
    pub fn is_held(&mut self) -> bool {
        match (self.hold)() {
            // What it has is known, for when it is back.
            Ok(Hold::Unknown | Hold::Same) if !self.log.is_readable() => {
                if !self.pool.is_lost.swap(true, Relaxed) {
                    tracing::warn!("the disk of {} gives errors alone: serving without it", self.folder.display());
                }
            }
            Ok(Hold::Unknown) => return !self.is_lost(),
            Ok(Hold::Same) if !self.is_lost() && self.log.is_linked() => return true,
            // Somebody took the lock away, and nobody wrote a word since.
            Ok(_) if self.log.is_as_it_was() => {
                self.find_again();
                return true;
            }
            Ok(hold) => {
                // Others may have written where it was lost.
                let hold = if self.is_lost() { Hold::Anew } else { hold };
                self.pool.is_lost.store(false, Relaxed);
                self.begin_anew(hold);
            }
            Err(error) => {
                if !self.is_lost() {
                    tracing::warn!("serving without keeping: {error}");
                }
                self.pool.is_lost.store(true, Relaxed);
            }
        }
        false
    }

    /// Ask the file system how much is free, now and then.
    fn look(&mut self) {
        self.look.admissions = self.look.admissions.saturating_add(1);
        if !self.look.is_due() {
            return;
        }
        (self.look.admissions, self.look.bytes, self.look.full) = (0, 0, false);
        self.look.at = Some((self.look.clock)());
        if !self.log.is_read()
            && let Err(error) = self.replay()
        {
            tracing::warn!("serving without keeping: {error}");
            self.look.full = true;
            return;
        }
        if self.made.is_none() {
            self.look.full = true;
            return;
        }
        self.shrink();
        let found = match self.medium.space(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if self.is_held() {
                    self.look_for_folder();
                }
                self.medium.space(&self.folder)
            }
            found => found,
        };
        match found {
            Ok(found) => {
                self.table.used.free_bytes = found.free_bytes.saturating_sub(self.unwritten());
                self.table.used.free_files = found.free_files;
                self.tell_of_room();
            }
            // Where nobody knows what is free, nothing is kept until the next look.
            Err(error) => {
                tracing::warn!(
                    "serving without keeping: {}",
                    Error::io("cannot look at the cache", self.folder.display(), &error)
                );
                self.look.full = true;
            }
        }
    }

    /// Say once that others have left no room for anything, and once that there is some again.
    fn tell_of_room(&mut self) {
        let (was, on) = (self.look.is_useless, self.folder.display());
        let is = room::is_useless(&self.limits, &self.table.used, was);
        match (was, is) {
            (false, true) => tracing::warn!("the disk of {on} is full: nothing more is kept until it has room"),
            (true, false) => tracing::warn!("the disk of {on} has room again"),
            _ => {}
        }
        self.look.is_useless = is;
    }

    /// Ask the file system before anything else is admitted.
    pub fn look_again(&mut self) {
        self.look.at = None;
    }

    /// Let segments give way to a newcomer, if those may who have to.
    fn make_room(&mut self, newcomer: ObjectId, (bytes, files): (u64, u64)) -> bool {
        let held = held(&self.open, &self.filling, (&self.elsewhere, &self.recent), self.look.now());
        let Some(leaving) = self.table.give_way(newcomer, bytes, files, held) else { return false };
        for id in leaving {
            self.evict(id);
        }
        true
    }

    /// Drop a segment of which only the id is known.
    fn evict(&mut self, id: ObjectId) {
        let Some(slot) = self.table.get(id) else { return };
        let object: Option<Arc<Object>> = match slot.state {
            State::Filling => self.filling.get(id).map(|filling| filling.segment.object.clone()),
            State::Unchecked | State::Complete => match self.log.read(slot.at) {
                Ok(Record::Complete { segment, .. }) => Some(segment.object),
                _ => None,
            },
        };
        match object {
            Some(object) => self.drop_segment(Residency { id, number: slot.residency }, &object),
            // On its way, and noticed when it comes; or the log is damaged, and its file a stray from now on.
            None => {
                self.has_strays = true;
                self.table.remove(id);
                self.open.remove(&id);
                self.recent.drop(Residency { id, number: slot.residency });
                self.live_bytes = self.live_bytes.saturating_sub(u64::from(slot.length));
                if slot.state == State::Filling {
                    self.coming -= slot.bytes;
                }
            }
        }
    }

    /// Come down to the limits, which may be lower than those under which the cache was filled: as far as one look goes.
    pub fn shrink(&mut self) {
        let is_over = |used: &room::Used, limits: &room::Limits| used.bytes > limits.bytes || used.files > limits.files;
        if !is_over(&self.table.used, &self.limits) {
            return;
        }
        for id in self.all().into_iter().take(SHRINK_MAX) {
            self.evict(id);
            if !is_over(&self.table.used, &self.limits) {
                return;
            }
        }
    }

    pub fn all(&self) -> Vec<ObjectId> {
        let states = [State::Filling, State::Unchecked, State::Complete].map(|state| self.table.in_state(state));
        states.into_iter().flatten().map(|(id, _)| id).collect()
    }

    /// The folder is this node's again. What was given up meanwhile, or found wrong, could not be dropped: nobody completes
    /// the one any more, and the other is compared before it is trusted.
    fn find_again(&mut self) {
        if self.pool.is_lost.swap(false, Relaxed) {
            let filling = self.table.in_state(State::Filling);
            filling.into_iter().for_each(|(id, _)| self.evict(id));
            self.table.slots_mut().for_each(|slot| slot.state = State::Unchecked);
        }
    }

    /// Somebody removed the cache folder, or the log in it: what the index knows of is lost, and the cache begins anew.
    fn begin_anew(&mut self, hold: Hold) {
        tracing::warn!("the cache in {} was removed; it begins anew", self.folder.display());
        self.evict_all();
        if hold == Hold::Anew {
            self.discard();
        }
        match self.open_anew() {
            Ok(log) => (self.log, self.live_bytes) = (log, 0),
            Err(error) => {
                tracing::warn!("serving without keeping: {error}");
                self.look.full = true;
            }
        }
    }

    /// Take away what another node left. That may be much, so it is only put aside here.
    fn discard(&mut self) {
        let aside = self.folder.with_extension(self.next.to_string());
        let _ = self.medium.remove(self.log.path());
        if self.medium.rename(&self.folder, &aside).is_ok() {
            let medium = self.medium.clone();
            // What is left of it, the next sweep takes.
            let _ = std::thread::Builder::new().spawn(move || medium.remove(&aside));
        }
    }

    fn evict_all(&mut self) {
        for id in self.all() {
            self.evict(id);
        }
    }

    fn open_anew(&mut self) -> Result<Log> {
        let failed = |error: std::io::Error| Error::io("cannot make the cache folder", self.folder.display(), &error);
        for folder in [self.folder.parent().expect("a folder in that of the tier"), &self.folder] {
            self.medium.make_folder(folder).map_err(failed)?;
        }
        self.made = self.medium.folder(&self.folder).ok();
        let (mut log, _) = Log::open(self.medium.clone(), self.log.path())?;
        log.append(&Record::Boot(self.boot))?;
        Ok(log)
    }
}

/// Whether a segment is in use, here or on another member, and doesn't give way.
fn held<'a>(
    open: &'a HashMap<ObjectId, Weak<Whole>>,
    filling: &'a Fillings,
    (elsewhere, recent): (&'a Elsewhere, &'a Recent),
    now: Instant,
) -> impl Fn(ObjectId, &Slot) -> bool + use<'a> {
    move |id, slot| {
        let is_here = match slot.state {
            // One that has no file yet is a small object on its way.
            State::Filling => filling.get(id).is_none_or(|filling| Arc::strong_count(filling) > 1),
            _ => {
                let kept_open = usize::from(recent.has(Residency { id, number: slot.residency }));
                open.get(&id).is_some_and(|whole| whole.strong_count() > kept_open)
            }
        };
        is_here || elsewhere.has(id, now)
    }
}
