//! Single flight: however many ask for a block at once, this node's readers or its peers, it is fetched once.
//!
//! Each fetch runs on a task of its own, to its end: who reads slowly stalls nobody, and who gives up stops nobody.
//! A run that comes from the memory tier brings shares of the budget for its blocks; for any other one they are taken
//! here before anything is asked for, out of a budget that readers don't wait for: a peer that reads slowly holds what
//! it was given. Of that, what is on its way from one store leaves some to the others, in lanes as in the memory of readers.
//!
//! Doesn't keep: a block is known here from the moment it is asked for until the tier below had the time to keep it. What nobody
//! keeps and several read at once is known for longer, while nobody else needs that memory: [`Flight::lingering`].
//! Invariant: nobody waits for a block whose fetch has ended, however it ended.

use crate::budget::{Budget, Holder, Share};
use crate::memory::APART_BELOW;
use crate::memory::lanes::{self, Lanes};
use block::{
    Address, Block, Blocks, Checksum, Course, Door, Error, Kind, Object, ObjectId, Result, Run, Source, Waiting,
};
use futures_util::StreamExt;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
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
    lanes: Lanes,
    runtime: tokio::runtime::Handle,
}

type Key = (ObjectId, u32);

/// Room for a block: a share, and a place among those on their way from its store until it has come.
type Room = (Share, lanes::Place);

/// Blocks that came, before those that have left are swept out of their queue.
const CAME_SWEEP: usize = 1024;

#[derive(Default)]
struct Known {
    coming: HashMap<Key, Coming>,
    /// Those that have come and linger, the first one first, each with its fetch. Some have left since.
    came: VecDeque<(Key, u64)>,
}

impl Known {
    /// A block that has come stays.
    fn linger(&mut self, key: Key, fetch: u64) {
        if self.came.len() >= CAME_SWEEP.max(2 * self.coming.len()) {
            let coming = &self.coming;
            self.came.retain(|(key, fetch)| coming.get(key).is_some_and(|coming| coming.fetch == *fetch));
        }
        self.came.push_back((key, fetch));
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
    /// It has come, and stays for those who come for it.
    lingers: bool,
    course: Course,
    /// For the last block of a fetch: what it found when all had come.
    end: Option<Promise<()>>,
}

impl Flight {
    pub fn over(below: Arc<dyn Source>, budget: Budget, runtime: tokio::runtime::Handle) -> Flight {
        let (known, begun) = Default::default();
        // Who asks is patient as long as it likes.
        let lanes = Lanes::over(budget.clone(), Duration::MAX);
        let parts = Arc::new(Parts { below, known, begun, budget, lanes, runtime });
        let holder: Weak<Parts> = Arc::downgrade(&parts);
        parts.budget.add(holder);
        Flight { parts, lingers: false }
    }

    /// The same, but what is fetched here may be joined while nobody needs its memory: who is behind others by less than
    /// that costs the store nothing.
    pub fn lingering(&self) -> Flight {
        Flight { lingers: true, ..self.clone() }
    }

    /// What of a run is on its way, or lingers, and may be joined. Held, it stays so while room is made for the rest.
    fn joined(&self, run: &Run) -> Vec<Option<Coming>> {
        let (id, known) = (run.object.id(), self.parts.known());
        run.blocks.clone().map(|index| self.join(&known, &(id, index)).cloned()).collect()
    }

    /// What lingers lies on no disk: who wants it there doesn't join it.
    fn join<'a>(&self, known: &'a Known, key: &Key) -> Option<&'a Coming> {
        known.coming.get(key).filter(|coming| self.lingers || !coming.lingers)
    }

    /// Room for the first block of a run, if that is to be waited for. Whoever waits holds nothing that others wait for.
    async fn first(&self, run: &Run) -> Option<Room> {
        let address = run.addresses().next().expect("a run has a block");
        let has_share =
            self.join(&self.parts.known(), &(run.object.id(), address.index)).is_some_and(|one| one.has_share);
        if has_share || run.has_room {
            return None;
        }
        let way = self.parts.lanes.room(&lane(run), &[self.on_way(&address, true)], lanes::now()).await?.0.pop()?;
        Some((self.parts.budget.share(address.len()).await, way))
    }

    /// The same for another block, if there is some to spare.
    fn spare(&self, run: &Run, address: &Address) -> Option<Room> {
        let share = self.parts.budget.spare(address.len())?;
        Some((share, self.parts.lanes.spare(&lane(run), self.on_way(address, false))?))
    }

    /// Bytes of a block that come from a store.
    fn on_way(&self, address: &Address, may_wait: bool) -> u64 {
        if self.parts.below.holds(address, may_wait) { 0 } else { address.len() as u64 }
    }

    /// Room for the blocks of a run that have none yet, as far as there is some to spare beside the first. An asker that holds room
    /// needs none; what gets a share here may linger.
    fn room(&self, run: &Run, first: Option<Room>, joined: &[Option<Coming>]) -> VecDeque<Option<Room>> {
        let (mut first, mut room) = (first, VecDeque::with_capacity(joined.len()));
        for (address, joined) in run.addresses().zip(joined) {
            let has_share = joined.as_ref().is_some_and(|coming| coming.has_share);
            let is_wanted = !has_share && (self.lingers || !run.has_room);
            let taken = first.take().or_else(|| is_wanted.then(|| self.spare(run, &address))?);
            if taken.is_none() && !has_share && !run.has_room {
                break;
            }
            room.push_back(taken);
        }
        room
    }

    /// Join what is on its way of a run, and fetch the rest, as far as there is room.
    fn ask(
        &self,
        run: &Run,
        joined: Vec<Option<Coming>>,
        room: VecDeque<Option<Room>>,
    ) -> VecDeque<(Coming, Option<Share>)> {
        let id = run.object.id();
        let mut asked = VecDeque::new();
        let mut departures: Vec<(u32, Departure)> = Vec::new();
        let end = run.blocks.start + room.len() as u32;
        let mut known = self.parts.known();
        // Others may have asked for some meanwhile.
        let ours = (run.blocks.start..end).zip(joined);
        let coming: Vec<_> =
            ours.map(|(index, joined)| joined.or_else(|| self.join(&known, &(id, index)).cloned())).collect();
        let mut is_first = true;
        for (at, (index, mine)) in (run.blocks.start..end).zip(room).enumerate() {
            if let Some(coming) = &coming[at] {
                match run.course.due() {
                    _ if run.course.is_urgent() => coming.course.urge(),
                    Some(due) => coming.course.hasten(due),
                    None => {}
                }
                // That one has a place in its lane.
                asked.push_back((coming.clone(), mine.filter(|_| !coming.has_share).map(|(share, _)| share)));
                is_first = true;
                continue;
            }
            if is_first {
                departures.push((index, Departure::of(self.parts.begun.fetch_add(1, Relaxed))));
            }
            let is_last = coming.get(at + 1).is_none_or(Option::is_some);
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
    blocks: Vec<(Teller<Block>, Option<Room>)>,
    end: Teller<()>,
}

impl Departure {
    fn of(fetch: u64) -> Departure {
        Departure { fetch, blocks: Vec::new(), end: watch::channel(None).0 }
    }

    fn announce(&mut self, run: &Run, room: Option<Room>, is_last: bool) -> Coming {
        let (teller, block) = watch::channel(None);
        let has_share = room.is_some();
        self.blocks.push((teller, room));
        Coming {
            block,
            fetch: self.fetch,
            via: run.via,
            has_share,
            lingers: false,
            course: run.course.clone(),
            end: is_last.then(|| self.end.subscribe()),
        }
    }

    /// Fetch to the end, telling of each block as it comes.
    async fn fly(self, mut landing: Landing, run: Run) {
        let mut blocks = landing.flight.parts.below.fetch(run.clone());
        let mut failed: Option<Error> = None;
        let is_short = landing.flight.lingers && run.blocks.len() < APART_BELOW;
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
                // As in the memory of readers: what stays is not to keep alive what came with it.
                Some((share, _)) if is_short && !block.is_kept() => block.apart().holding(Arc::new(share)),
                Some((share, _)) => block.holding(Arc::new(share)),
                None => block,
            })));
        }
        // The store's checksum of the whole is compared before the last block is given: those before it are in doubt.
        if failed.as_ref().is_some_and(|error| error.kind == Kind::Corrupt) {
            landing.flight.forget(&run.object);
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
            let stays = came && self.flight.lingers && !parts.budget.is_short();
            match known.coming.get_mut(&key).filter(|coming| coming.fetch == self.fetch && coming.has_share) {
                Some(coming) if stays => {
                    coming.lingers = true;
                    known.linger(key, self.fetch);
                }
                _ => drop(known.remove(&key, self.fetch)),
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
        let first = self.flight.first(&rest).await;
        let joined = self.flight.joined(&rest);
        let room = self.flight.room(&rest, first, &joined);
        self.ahead = self.flight.ask(&rest, joined, room);
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
        let mut known = self.parts.known();
        known.coming.retain(|(of, _), _| *of != id);
        known.came.retain(|((of, _), _)| *of != id);
    }
}

/// Whose lane the blocks of a run come in.
fn lane(run: &Run) -> lanes::Key {
    (run.object.store.clone(), run.via)
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
