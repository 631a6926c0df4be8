//! Single flight: however many ask for a block at once, this node's readers or its peers, it is fetched once.
//!
//! Each fetch runs on a task of its own, to its end: who reads slowly stalls nobody, and who gives up stops nobody.
//! A run that comes from the memory tier brings shares of the budget for its blocks; for any other one they are taken
//! here before anything is asked for, out of a budget that readers have no part in: a peer that reads slowly holds what
//! it was given.
//!
//! Doesn't keep: a block is known here from the moment it is asked for until the tier below had the time to keep it. What nobody
//! keeps and several read at once is known for longer, while nobody else needs that memory: [`Flight::lingering`].
//! Invariant: nobody waits for a block whose fetch has ended, however it ended.

use crate::budget::{Budget, Holder, Share};
use block::{Address, Block, Blocks, Checksum, Course, Door, Error, Object, ObjectId, Result, Run, Source, Waiting};
use futures_util::StreamExt;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// One fetch for a block, over whoever fetches.
#[derive(Clone)]
pub struct Flight {
    parts: Arc<Parts>,
    lingers: bool,
}

struct Parts {
    below: Arc<dyn Source>,
    known: Mutex<Known>,
    /// Fetches that were begun.
    begun: AtomicU64,
    /// Of those who bring no shares of their own.
    budget: Budget,
    runtime: tokio::runtime::Handle,
}

type Key = (ObjectId, u32);

#[derive(Default)]
struct Known {
    coming: HashMap<Key, Coming>,
    /// Those that have come and linger, the first one first, each with its fetch. Some have left since.
    came: VecDeque<(Key, u64)>,
}

impl Known {
    /// Whether a block is on its way or here, so that who joins it needs no room.
    fn has_room(&self, key: &Key) -> bool {
        self.coming.get(key).is_some_and(|coming| coming.has_share)
    }

    /// Nobody can join this any more, if it is still of that fetch.
    fn remove(&mut self, key: &Key, fetch: u64) -> Option<Coming> {
        let is_same = self.coming.get(key).is_some_and(|coming| coming.fetch == fetch);
        if is_same { self.coming.remove(key) } else { None }
    }
}

impl Holder for Parts {
    fn let_go(&self, _spent_only: bool) -> bool {
        let mut known = self.known();
        while let Some((key, fetch)) = known.came.pop_front() {
            if let Some(came) = known.remove(&key, fetch) {
                // Its share is given back once nobody is shut out.
                drop(known);
                drop(came);
                return true;
            }
        }
        false
    }
}

impl Parts {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waiters get: a block, or the end of its fetch.
type Promise<T> = watch::Receiver<Option<Result<T>>>;
type Teller<T> = watch::Sender<Option<Result<T>>>;

/// A block that is being fetched.
#[derive(Clone)]
struct Coming {
    block: Promise<Block>,
    /// By which fetch.
    fetch: u64,
    /// By whose credentials it is fetched.
    via: Door,
    /// The block will hold a share of the budget here.
    has_share: bool,
    course: Course,
    /// For the last block of a fetch: what it found when all had come.
    end: Option<Promise<()>>,
}

impl Flight {
    pub fn over(below: Arc<dyn Source>, budget: Budget, runtime: tokio::runtime::Handle) -> Flight {
        let (known, begun) = Default::default();
        let parts = Arc::new(Parts { below, known, begun, budget, runtime });
        let holder: Weak<Parts> = Arc::downgrade(&parts);
        parts.budget.add(holder);
        Flight { parts, lingers: false }
    }

    /// The same, but what is fetched here may be joined while nobody needs its memory: who is behind others by less than
    /// that costs the store nothing.
    pub fn lingering(&self) -> Flight {
        Flight { lingers: true, ..self.clone() }
    }

    /// Room for those blocks of a run that nobody has room for: for the first of all, and for as many after it as there is
    /// some to spare.
    async fn room(&self, run: &Run) -> VecDeque<Option<Share>> {
        let id = run.object.id();
        let has_room: Vec<_> = {
            let known = self.parts.known();
            run.blocks.clone().map(|index| known.has_room(&(id, index))).collect()
        };
        let mut room = VecDeque::with_capacity(has_room.len());
        for (address, has_room) in run.addresses().zip(has_room) {
            let share = match has_room {
                true => None,
                false if room.is_empty() => Some(self.parts.budget.share(address.len()).await),
                false => match self.parts.budget.spare(address.len()) {
                    Some(share) => Some(share),
                    None => break,
                },
            };
            room.push_back(share);
        }
        room
    }

    /// Join what is on its way of a run, and fetch the rest. Without room the asker holds it for all blocks, with room
    /// that many are asked for; none if those that had room have left meanwhile.
    fn ask(&self, run: &Run, room: Option<VecDeque<Option<Share>>>) -> VecDeque<(Coming, Option<Share>)> {
        let id = run.object.id();
        let mut asked = VecDeque::new();
        let mut departures: Vec<(u32, Departure)> = Vec::new();
        let mut known = self.parts.known();
        let end = room.as_ref().map_or(run.blocks.end, |room| {
            let has_room = |(index, share): &(u32, &Option<Share>)| share.is_some() || known.has_room(&(id, *index));
            run.blocks.start + (run.blocks.start..).zip(room).take_while(has_room).count() as u32
        });
        let mut room = room.into_iter().flatten();
        let mut is_first = true;
        for index in run.blocks.start..end {
            let mine = room.next().flatten();
            if let Some(coming) = known.coming.get(&(id, index)) {
                match run.course.due() {
                    _ if run.course.is_urgent() => coming.course.urge(),
                    Some(due) => coming.course.hasten(due),
                    None => {}
                }
                asked.push_back((coming.clone(), mine.filter(|_| !coming.has_share)));
                is_first = true;
                continue;
            }
            if is_first {
                departures.push((index, Departure::of(self.parts.begun.fetch_add(1, Relaxed))));
            }
            let is_last = index + 1 == end || known.coming.contains_key(&(id, index + 1));
            let (_, departure) = departures.last_mut().expect("one was begun");
            let coming = departure.announce(run, mine, is_last);
            known.coming.insert((id, index), coming.clone());
            asked.push_back((coming, None));
            is_first = false;
        }
        drop(known);
        for (start, departure) in departures {
            let run = run.part(start..start + departure.blocks.len() as u32);
            let landing = Landing { flight: self.clone(), id, fetch: departure.fetch, left: run.blocks.clone() };
            self.parts.runtime.spawn(departure.fly(landing, run));
        }
        asked
    }
}

/// A fetch that begins.
struct Departure {
    fetch: u64,
    blocks: Vec<(Teller<Block>, Option<Share>)>,
    end: Teller<()>,
}

impl Departure {
    fn of(fetch: u64) -> Departure {
        Departure { fetch, blocks: Vec::new(), end: watch::channel(None).0 }
    }

    fn announce(&mut self, run: &Run, room: Option<Share>, is_last: bool) -> Coming {
        let (teller, block) = watch::channel(None);
        let has_share = room.is_some();
        self.blocks.push((teller, room));
        Coming {
            block,
            fetch: self.fetch,
            via: run.via,
            has_share,
            course: run.course.clone(),
            end: is_last.then(|| self.end.subscribe()),
        }
    }

    /// Fetch to the end, telling of each block as it comes.
    async fn fly(self, mut landing: Landing, run: Run) {
        let mut blocks = landing.flight.parts.below.fetch(run.clone());
        let mut failed: Option<Error> = None;
        for (index, (teller, room)) in run.blocks.clone().zip(self.blocks) {
            let got = match &failed {
                Some(error) => Err(error.clone()),
                None => blocks.next().await.unwrap_or_else(|| Err(ended_early(&run))),
            };
            // Asked for this one, the tier below has kept the one before. After a failure none of the others comes: who
            // wants one asks anew, and may hear of the failure at once.
            landing.until(index, true);
            landing.until(if got.is_err() { run.blocks.end } else { index }, false);
            failed = failed.or_else(|| got.as_ref().err().cloned());
            teller.send_replace(Some(got.map(|block| match room {
                Some(room) => block.holding(Arc::new(room)),
                None => block,
            })));
        }
        // To its end, so that the tiers below finish what they keep. They may find the whole wrong.
        let mut end = Ok(());
        while failed.is_none()
            && let Some(got) = blocks.next().await
        {
            end = end.and(got.map(drop));
        }
        landing.until(run.blocks.end, true);
        if end.is_err() {
            landing.flight.forget(&run.object);
        }
        self.end.send_replace(Some(end));
    }
}

/// Blocks of a fetch that are known to be on their way; dropped, none of them is any more.
struct Landing {
    flight: Flight,
    id: ObjectId,
    fetch: u64,
    left: Range<u32>,
}

impl Landing {
    /// The blocks before this one are not on their way any more. What lingers may still be joined.
    fn until(&mut self, index: u32, came: bool) {
        let landed = self.left.start..index.min(self.left.end);
        self.left.start = landed.end;
        let parts = &self.flight.parts;
        let mut known = parts.known();
        for key in landed.map(|index| (self.id, index)) {
            if came && self.flight.lingers && known.has_room(&key) && !parts.budget.is_short() {
                known.came.push_back((key, self.fetch));
            } else {
                known.remove(&key, self.fetch);
            }
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.until(self.left.end, false);
    }
}

/// A run that somebody reads.
struct Reading {
    flight: Flight,
    run: Run,
    next: u32,
    /// Asked for, not yet read.
    ahead: VecDeque<(Coming, Option<Share>)>,
    /// Of the fetches whose last blocks are read.
    ends: Vec<Promise<()>>,
    is_over: bool,
}

impl Reading {
    async fn step(mut self) -> Option<(Result<Block>, Reading)> {
        if self.is_over {
            return None;
        }
        if self.next == self.run.blocks.end {
            let error = self.end().await?;
            return Some((Err(error), Reading { is_over: true, ..self }));
        }
        let (got, room) = loop {
            while self.ahead.is_empty() {
                self.ask().await;
            }
            let got = self.came().await;
            let (coming, room) = self.ahead.pop_front().expect("at least one block was asked for");
            let got = got.unwrap_or_else(|| Err(given_up(&self.run)));
            // What a store says to others by their credentials is no answer to this one.
            let is_mine = coming.via == self.run.via;
            if is_mine || !got.as_ref().is_err_and(Error::is_of_asker) {
                break (got, room);
            }
            self.ahead.clear();
            self.ends.clear();
        };
        self.next += 1;
        self.is_over = got.is_err();
        let got = got.map(|block| match room {
            Some(room) => block.holding(Arc::new(room)),
            None => block,
        });
        Some((got, self))
    }

    /// The next block that was asked for. Who asked for it first hears when this one's reader comes to wait.
    async fn came(&mut self) -> Option<Result<Block>> {
        let (first, course) = (self.ahead.front().expect("at least one block was asked for"), &self.run.course);
        let mut block = first.0.block.clone();
        let mut came = pin!(block.wait_for(Option::is_some));
        if !course.is_urgent() {
            tokio::select! {
                biased;
                got = &mut came => return got.ok()?.clone(),
                () = course.urged() => {}
            }
            self.ahead.iter().for_each(|(coming, _)| coming.course.urge());
        }
        came.await.ok()?.clone()
    }

    /// Ask for the rest, as far as there is room.
    async fn ask(&mut self) {
        let rest = self.run.part(self.next..self.run.blocks.end);
        // What lingers outlives the room that its asker has.
        let room = if rest.has_room && !self.flight.lingers { None } else { Some(self.flight.room(&rest).await) };
        self.ahead = self.flight.ask(&rest, room);
        self.ends.extend(self.ahead.iter().filter_map(|(coming, _)| coming.end.clone()));
    }

    /// What the fetches found when all of their blocks had come.
    async fn end(&mut self) -> Option<Error> {
        for mut end in std::mem::take(&mut self.ends) {
            if let Ok(end) = end.wait_for(Option::is_some).await
                && let Some(Err(error)) = &*end
            {
                return Some(error.clone());
            }
        }
        None
    }
}

impl Source for Flight {
    fn fetch(&self, run: Run) -> Blocks {
        let (next, ahead, ends) = (run.blocks.start, VecDeque::new(), Vec::new());
        let reading = Reading { flight: self.clone(), run, next, ahead, ends, is_over: false };
        futures_util::stream::unfold(reading, Reading::step).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.parts.below.checksum(object, via)
    }

    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        self.parts.below.holds(address, may_wait)
    }

    fn forget(&self, object: &Object) {
        let id = object.id();
        self.parts.known().coming.retain(|(known, _), _| *known != id);
    }
}

fn ended_early(run: &Run) -> Error {
    Error::corrupt("a source ended before the last block", &*run.object)
}

/// Its task ended without a word: it panicked, or the runtime ends.
fn given_up(run: &Run) -> Error {
    Error::unavailable("a fetch was given up", &*run.object)
}

#[cfg(test)]
mod tests;
