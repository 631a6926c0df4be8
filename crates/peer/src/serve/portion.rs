//! How much memory each asker may take of what this node has for others, so that one who takes his time leaves some to
//! the rest; and how much of that for what comes of one store, so that one that hangs leaves some to the others. What the kernel
//! sends from a file by itself takes none.
//!
//! Invariant: nobody waits here but for what is on the wire already or comes of the same store; who asks for what lies on the disk
//! alone, for the first only. So no members wait for each other, of whom each fetches what it asks the other for.

use block::SMALL;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Each asker may have one part in so many.
const PARTS: u64 = 2;

/// Unit: a semaphore counts in 32 bits.
const UNIT: u64 = 4 << 10;

/// Times as much as is free, that what comes of one store may take of a part, as in the memory of readers: alone three quarters of
/// it; and a block in any case.
const OF_STORE: usize = 3;
const OF_STORE_MIN: usize = (SMALL / UNIT) as usize;

/// Answers from the disk alone that are under way, and those for one asker: nobody's budget covers their blocks.
const HELD_AT_ONCE: usize = 16;
const HELD_OF_ONE: usize = HELD_AT_ONCE / 2;

/// Pieces of names on their way to one asker: nobody's budget covers them either, and who takes a snapshot asks for one after the other.
const PIECES_OF_ONE: usize = 2;

/// Memory of all askers.
pub struct Portions {
    part: usize,
    lent: Arc<Semaphore>,
    held: Arc<Semaphore>,
    of: Mutex<HashMap<u128, Weak<Portion>>>,
}

/// What of it one asker may take, over all of its connections.
pub struct Portion {
    given: Arc<Given>,
    lent: [Arc<Semaphore>; 2],
    held: [Arc<Semaphore>; 2],
    pieces: Arc<Semaphore>,
}

/// Bytes that are on their way to an asker.
#[derive(Default)]
pub struct Taken {
    _turns: Vec<OwnedSemaphorePermit>,
    _given: Option<Place>,
}

impl Taken {
    fn of(turns: Vec<OwnedSemaphorePermit>) -> Taken {
        Taken { _turns: turns, _given: None }
    }
}

/// What blocks come of: a store, or none where only the disk is asked.
pub type Origin = Option<Arc<str>>;

/// The part of one asker for what is fetched for it.
struct Given {
    units: usize,
    ways: Mutex<Ways>,
    /// Notified when some of it was given back.
    left: Notify,
}

#[derive(Default)]
struct Ways {
    taken: usize,
    of: HashMap<Origin, Way>,
}

/// What comes of one origin.
#[derive(Default)]
struct Way {
    taken: usize,
    /// Requests wait in the order in which they came.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Room for a block of a store, given back when it is dropped.
struct Place {
    given: Arc<Given>,
    origin: Origin,
    units: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut ways = self.given.ways();
        ways.taken -= self.units;
        ways.way(&self.origin).taken -= self.units;
        drop(ways);
        self.given.left.notify_waiters();
    }
}

impl Ways {
    /// A way; those that nothing comes on, and nobody waits for, are forgotten.
    fn way(&mut self, origin: &Origin) -> &mut Way {
        if !self.of.contains_key(origin) {
            self.of.retain(|_, way| way.taken > 0 || Arc::strong_count(&way.turn) > 1);
        }
        self.of.entry(origin.clone()).or_default()
    }
}

impl Given {
    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Given>, origin: &Origin, length: usize) -> Option<Taken> {
        let (units, mut ways) = (units(length) as usize, self.ways());
        let free = self.units.checked_sub(ways.taken + units)?;
        let way = ways.way(origin);
        if way.taken + units > OF_STORE_MIN.max(OF_STORE * free) {
            return None;
        }
        way.taken += units;
        ways.taken += units;
        Some(Taken { _turns: Vec::new(), _given: Some(Place { given: self.clone(), origin: origin.clone(), units }) })
    }
}

impl Portions {
    /// `bytes` may be on their way to others that were fetched for them, and as many that are lent from readers' memory.
    pub fn of(bytes: u64) -> Portions {
        let units = |bytes: u64| (bytes.max(SMALL) / UNIT) as usize;
        let semaphore = |places| Arc::new(Semaphore::new(places));
        Portions {
            part: units(bytes / PARTS),
            lent: semaphore(units(bytes)),
            held: semaphore(HELD_AT_ONCE),
            of: Mutex::default(),
        }
    }

    /// That of an asker.
    pub fn portion(&self, asker: u128) -> Arc<Portion> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = of.get(&asker).and_then(Weak::upgrade) {
            return known;
        }
        of.retain(|_, portion| portion.strong_count() > 0);
        let given = Arc::new(Given { units: self.part, ways: Mutex::default(), left: Notify::new() });
        let lent = [Arc::new(Semaphore::new(self.part)), self.lent.clone()];
        let held = [Arc::new(Semaphore::new(HELD_OF_ONE)), self.held.clone()];
        let pieces = Arc::new(Semaphore::new(PIECES_OF_ONE));
        let portion = Arc::new(Portion { given, lent, held, pieces });
        of.insert(asker, Arc::downgrade(&portion));
        portion
    }
}

impl Portion {
    /// Room for the first of some blocks of an origin, and for as many after it as there is some left.
    pub async fn given(&self, origin: &Origin, mut lengths: impl Iterator<Item = usize>) -> Vec<Taken> {
        let first = lengths.next().expect("a run has a block");
        let turn = self.given.ways().way(origin).turn.clone();
        let _turn = turn.lock().await;
        let first = loop {
            let left = self.given.left.notified();
            if let Some(taken) = self.given.take(origin, first) {
                break taken;
            }
            left.await;
        };
        let more = lengths.map_while(|length| self.given.take(origin, length));
        std::iter::once(first).chain(more).collect()
    }

    /// Room for a block of readers' memory, if there is some.
    pub fn try_lend(&self, length: usize) -> Option<Taken> {
        let turns = self.lent.iter().map(|all| all.clone().try_acquire_many_owned(units(length)).ok());
        Some(Taken::of(turns.collect::<Option<_>>()?))
    }

    /// The same, as soon as there is some.
    pub async fn lend(&self, length: usize) -> Taken {
        let mut taken = Vec::with_capacity(2);
        for all in &self.lent {
            taken.push(all.clone().acquire_many_owned(units(length)).await.expect("it is never closed"));
        }
        Taken::of(taken)
    }

    /// A turn for a piece of names.
    pub async fn piece(&self) -> Taken {
        Taken::of(vec![self.pieces.clone().acquire_owned().await.expect("it is never closed")])
    }

    /// A turn for an answer from the disk alone.
    pub async fn held(&self) -> Taken {
        let mut taken = Vec::with_capacity(2);
        for all in &self.held {
            taken.push(all.clone().acquire_owned().await.expect("it is never closed"));
        }
        Taken::of(taken)
    }
}

fn units(length: usize) -> u32 {
    (length as u64).div_ceil(UNIT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn what_waits_for_a_store_leaves_room_to_what_lies_on_the_disk() {
        let portion = Portions::of(16 * SMALL).portion(1);
        let (store, block): (Origin, _) = (Some("s3://b".into()), || std::iter::once(SMALL as usize));
        let mut fetched = Vec::new();
        while let Some(taken) = portion.given(&store, block()).now_or_never() {
            fetched.extend(taken);
        }
        assert_eq!(fetched.len(), 6, "three quarters of its part");
        assert!(portion.given(&None, block()).now_or_never().is_some());
    }
}
