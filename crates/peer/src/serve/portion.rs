//! How much memory each asker may take of what this node has for others, so that one who takes his time leaves some to
//! the rest. What the kernel sends from a file by itself takes none.
//!
//! Invariant: nobody waits here but for what is on the wire already, so that no members wait for each other.

use block::SMALL;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Each asker may have one part in so many.
const PARTS: u64 = 2;

/// Unit: a semaphore counts in 32 bits.
const UNIT: u64 = 4 << 10;

/// Answers from the disk alone that are under way, and those for one asker: nobody's budget covers their blocks.
const HELD_AT_ONCE: usize = 16;
const HELD_OF_ONE: usize = HELD_AT_ONCE / 2;

/// Memory of all askers.
pub struct Portions {
    part: usize,
    lent: Arc<Semaphore>,
    held: Arc<Semaphore>,
    of: Mutex<HashMap<u128, Weak<Portion>>>,
}

/// What of it one asker may take, over all of its connections.
pub struct Portion {
    given: Arc<Semaphore>,
    lent: [Arc<Semaphore>; 2],
    held: [Arc<Semaphore>; 2],
}

/// Bytes that are on their way to an asker.
pub type Taken = Vec<OwnedSemaphorePermit>;

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
        let own = || Arc::new(Semaphore::new(self.part));
        let held = [Arc::new(Semaphore::new(HELD_OF_ONE)), self.held.clone()];
        let portion = Arc::new(Portion { given: own(), lent: [own(), self.lent.clone()], held });
        of.insert(asker, Arc::downgrade(&portion));
        portion
    }
}

impl Portion {
    /// Room for the first of some blocks, and for as many after it as there is some left.
    pub async fn given(&self, mut lengths: impl Iterator<Item = usize>) -> Vec<Taken> {
        let first = units(lengths.next().expect("a run has a block"));
        let first = self.given.clone().acquire_many_owned(first).await.expect("it is never closed");
        let more = lengths.map_while(|length| self.given.clone().try_acquire_many_owned(units(length)).ok());
        std::iter::once(first).chain(more).map(|taken| vec![taken]).collect()
    }

    /// Room for a block of readers' memory, if there is some.
    pub fn try_lend(&self, length: usize) -> Option<Taken> {
        self.lent.iter().map(|all| all.clone().try_acquire_many_owned(units(length)).ok()).collect()
    }

    /// The same, as soon as there is some.
    pub async fn lend(&self, length: usize) -> Taken {
        let mut taken = Vec::with_capacity(2);
        for all in &self.lent {
            taken.push(all.clone().acquire_many_owned(units(length)).await.expect("it is never closed"));
        }
        taken
    }

    /// A turn for an answer from the disk alone.
    pub async fn held(&self) -> Taken {
        let mut taken = Vec::with_capacity(2);
        for all in &self.held {
            taken.push(all.clone().acquire_owned().await.expect("it is never closed"));
        }
        taken
    }
}

fn units(length: usize) -> u32 {
    (length as u64).div_ceil(UNIT) as u32
}
