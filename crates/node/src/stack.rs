//! The tiers of a node, laid over each other in one expression, and everything that is asked of them.
//!
//! Readers ask the outer source, other nodes the inner one, so that both share each fetch. What a data set wants to
//! know of the disk (where an object stands, whether there is room) is asked here too, and nowhere behind it.

use crate::cluster::{self, Membership};
use crate::load::RUN_BLOCKS;
use block::{
    Address, Block, Blocks, Cause, Checksum, Course, Door, Error, Object, Result, Run, Source, Stripe, Waiting,
};
use bytes::Bytes;
use cache::disk::{self, Limits, Lying, Standing, Used, Whole};
use cache::memory::Memory;
use cache::readahead::Readahead;
use cache::tally::Tally;
use cache::waits::{Wait, Waits};
use cache::{Budget, Disk, Flight};
use futures_util::StreamExt;
use peer::{Brought, Count, Elders, For, Lines, Own, Owners, Peers, Reading, Room};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// What is brought for nobody in particular leaves the rest of the blocks to readers, and to blocks on their way to the
/// disk. Less than what may be asked for ahead from one store, so that it never waits as readers do.
const BROUGHT_PARTS: (u64, u64) = (5, 8);

/// When it is due, for whoever sorts by that: after all that anybody said he will read.
const BROUGHT_DUE: Duration = Duration::from_secs(3600);

/// Unit of that room: a semaphore counts in 32 bits.
const UNIT: u64 = 4 << 10;

/// In a cluster others are given blocks out of one part in so many of the memory for blocks, in a budget of its own: two
/// nodes whose readers have all of theirs, and wait for each other, must not stop.
const GIVEN_PART: u64 = 4;

/// The tiers over the stores.
#[derive(Clone)]
pub struct Stack {
    disk: Disk,
    inner: Flight,
    outer: Memory,
    /// Other members, in a cluster.
    lines: Option<Lines>,
    owners: Option<Owners>,
    /// Units of memory that may be on their way for nobody in particular, and how many there are in all.
    brought: Arc<Semaphore>,
    brought_units: u32,
    budget: Budget,
    given_bytes: u64,
}

/// Blocks of a run that were asked for and not seen yet: given up, nobody will come for them.
struct Left<'a> {
    memory: &'a Memory,
    object: Arc<Object>,
    blocks: Range<u32>,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        if !self.blocks.is_empty() {
            self.memory.abandon(&self.object, self.blocks.clone());
        }
    }
}

impl Stack {
    pub fn over(
        origins: Arc<dyn Source>,
        on_disk: disk::Settings,
        blocks_bytes: u64,
        patience: Duration,
        (runtime, cluster): (&tokio::runtime::Handle, Option<&Membership>),
    ) -> Result<Stack> {
        let lines = cluster.map(|Membership { roster, transport, .. }| {
            Lines::new(roster.clone(), transport.clone(), patience, runtime.clone())
        });
        let below: Arc<dyn Source> = match &lines {
            Some(lines) => Arc::new(Elders::over(origins, lines.clone())),
            None => origins,
        };
        let disk = Disk::over(below, on_disk, runtime.clone())?;
        if cluster.is_some() {
            disk.join();
        }
        let given_bytes = if cluster.is_some() { blocks_bytes / GIVEN_PART } else { 0 };
        let budget = Budget::of(blocks_bytes - given_bytes);
        let given = if cluster.is_some() { Budget::of(given_bytes) } else { budget.clone() };
        let inner = Flight::over(Arc::new(disk.clone()), given, runtime.clone());
        let own: Arc<dyn Source> = Arc::new(inner.clone());
        let here = disk.clone();
        let ours = |lines: Lines| {
            let room = Arc::new(move |address: &Address, asker| cluster::room(&here, address, asker));
            Owners::over(Own { inner: own.clone(), shared: Arc::new(inner.lingering()), room }, lines)
        };
        let owners = lines.clone().map(ours);
        let below: Arc<dyn Source> = match owners.clone() {
            Some(owners) => Arc::new(Peers::over(Arc::new(disk.of_copies(Arc::new(owners.clone()))), owners)),
            None => own,
        };
        let outer = Memory::over(below, budget.clone(), patience, runtime.clone());
        let (part, parts) = BROUGHT_PARTS;
        let brought_units = u32::try_from(budget.usage().1 / UNIT * part / parts).unwrap_or(u32::MAX >> 1);
        let brought = Arc::new(Semaphore::new(brought_units as usize));
        Ok(Stack { disk, inner, outer, lines, owners, budget, brought, brought_units, given_bytes })
    }

    /// What this node has or fetches, for other nodes: without what its readers have in memory.
    pub fn inner(&self) -> Arc<dyn Source> {
        Arc::new(self.inner.clone())
    }

    /// The same, of what nobody keeps and several read at once: it stays in memory while others need none of it.
    pub fn shared(&self) -> Arc<dyn Source> {
        Arc::new(self.inner.lingering())
    }

    /// The file that has all blocks of a run, if it is open.
    pub fn open_file(&self, run: &Run) -> Option<Lying> {
        self.disk.open_file(run)
    }

    /// Memory for what is on its way to other nodes.
    pub fn given_bytes(&self) -> u64 {
        self.given_bytes
    }

    /// The blocks of a run that lie on this node's disk.
    pub fn held(&self, run: Run) -> Blocks {
        self.disk.alone().fetch(run)
    }

    /// The blocks of a run that this node's readers have in memory, or soon will.
    pub fn lend(&self, run: Run, ticket: u64) -> Blocks {
        self.outer.lend(run, ticket)
    }

    /// Other members, in a cluster.
    pub fn lines(&self) -> Option<&Lines> {
        self.lines.as_ref()
    }

    /// Whether this node owns a block: alone, it owns all.
    pub fn owns(&self, address: &Address) -> bool {
        let owner = self.lines.as_ref().map(|lines| (lines.roster(), Stripe::of(address)));
        owner.is_none_or(|(roster, stripe)| roster.owner(&stripe).is_none_or(|owner| owner == roster.me()))
    }

    /// Whether who owns an object is this node, or answers.
    pub fn owner_answers(&self, object: &Arc<Object>) -> bool {
        let stripe = Stripe::of(&Address { object: object.clone(), index: 0 });
        let Some(lines) = &self.lines else { return true };
        let roster = lines.roster();
        roster.owner(&stripe).is_none_or(|owner| owner == roster.me() || lines.answers(owner))
    }

    /// Whether this node's disk has a block, or room for it.
    pub fn room(&self, address: &Address, asker: For) -> Room {
        cluster::room(&self.disk, address, asker)
    }

    /// Bytes of what is probably not read any more.
    pub fn stale_bytes(&self) -> u64 {
        self.disk.stale_bytes()
    }

    /// Another member owns a block from now on: what is here of it is a copy.
    pub fn gives_up(&self, address: &Address) {
        self.disk.gives_up(address);
    }

    /// Whether each stripe of an object has a file of its own here.
    pub fn is_cut(&self, object: &Arc<Object>) -> bool {
        self.disk.cuts(object)
    }

    /// Whether a block, or others of its file, are here.
    pub fn has_any(&self, address: &Address) -> bool {
        self.disk.has_any(address)
    }

    /// Bytes that would be kept if other members owned them.
    pub fn spare_bytes(&self) -> u64 {
        self.disk.spare_bytes()
    }

    /// What the truth says of an object, without asking a store about what lies here complete.
    pub fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        match self.disk.sum(object) {
            Some(sum) => Box::pin(std::future::ready(Ok(Some(sum)))),
            None => self.inner.checksum(object, via),
        }
    }

    /// The memory of this node's readers.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Bytes of an object if all of them are in memory now.
    pub fn at_hand(&self, object: &Arc<Object>, offset: u64, length: u64) -> Option<Vec<Bytes>> {
        self.outer.at_hand(object, offset, length)
    }

    /// Bytes of an object, wherever they are.
    pub async fn read(&self, object: &Arc<Object>, offset: u64, length: u64, via: Door) -> Result<Vec<Bytes>> {
        self.outer.read(object, offset, length, via).await
    }

    /// The block of a small object.
    pub async fn small(&self, object: &Arc<Object>, via: Door) -> Result<Block> {
        self.outer.block(&Address { object: object.clone(), index: 0 }, 0, via).await
    }

    /// Note a read of an open file, and ask for what will follow.
    pub fn follow(&self, object: &Arc<Object>, past: &Mutex<Readahead>, offset: u64, length: u64, via: Door) {
        self.outer.follow(object, past, offset, length, via);
    }

    /// Bring a run to the disk for nobody in particular. Waits until there is memory for all of it beside what else is
    /// brought: asked for as memory comes free, it would cost a request for each block.
    pub async fn bring(&self, run: Run) -> Result<()> {
        let due = cache::waits::clock() + BROUGHT_DUE;
        let run = Run { course: Course::until_due(cache::waits::clock, due), ..run };
        let _room = self.room_for(&run).await;
        let first = Address { object: run.object.clone(), index: run.blocks.start };
        // While it waited for memory, others took the room on the disk.
        if run.is_own && self.room(&first, For::Nobody) == Room::Full {
            return Err(Error::full("there is no room for it in the cache", &*run.object));
        }
        let mut left = Left { memory: &self.outer, object: run.object.clone(), blocks: run.blocks.clone() };
        let mut blocks = self.outer.fetch(run);
        while let Some(block) = blocks.next().await {
            block?;
            left.blocks.start += 1;
        }
        Ok(())
    }

    /// Memory for a run that is brought for nobody in particular.
    async fn room_for(&self, run: &Run) -> SemaphorePermit<'_> {
        let units = u32::try_from(run.bytes().div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.brought_units);
        self.brought.acquire_many(units).await.expect("it is never closed")
    }

    /// Have the stripe of a block brought to the disk of whoever keeps it. `None` if that is this node. `is_full`: this node tried,
    /// and has no room.
    pub async fn bring_elsewhere(&self, address: &Address, verify: bool, is_full: bool) -> Option<Result<Brought>> {
        let is_full = is_full || self.room(address, For::Nobody) == Room::Full;
        self.owners.as_ref()?.bring(address, verify, is_full).await
    }

    /// Ask for blocks that a reader will wait for from a moment on, as far as there is room. The first one that was not asked
    /// for comes back.
    pub fn ahead(&self, object: &Arc<Object>, blocks: Range<u32>, via: Door, due: std::time::Instant) -> u32 {
        self.outer.ahead_until(object, blocks, via, due)
    }

    /// Blocks that were asked for ahead of a reader who has left.
    pub fn abandon(&self, object: &Arc<Object>, blocks: Range<u32>) {
        self.outer.abandon(object, blocks);
    }

    /// Let go of the blocks of an object in memory, because one of them is wrong.
    pub fn forget(&self, object: &Object) {
        self.outer.forget(object);
    }

    /// Somebody opened an object of a set of so many bytes, whichever way it is read then.
    pub fn opened(&self, object: &Object, set_bytes: u64) {
        match &self.lines {
            None => self.disk.opened(object, set_bytes),
            Some(lines) => self.used(vec![lines.opened(object.id(), object.size, set_bytes)]),
        }
    }

    /// A reader reads an object through the tiers, until what comes back is dropped: others are to know in a cluster.
    pub fn reads(&self, object: &Object) -> Option<Reading> {
        self.lines.as_ref()?.reads(object.id(), object.size)
    }

    /// Readers of any member have use of this.
    pub fn used(&self, uses: Vec<Count>) {
        let uses: Vec<disk::Use> = uses.into_iter().map(cluster::use_of).collect();
        self.disk.used(&uses);
    }

    /// Where an object stands; a complete one is opened.
    pub fn find(&self, object: &Arc<Object>) -> Standing {
        self.disk.find(object)
    }

    /// Read a complete file of an earlier boot once, and trust it from then on. Damaged, it is dropped.
    pub async fn check(&self, object: &Arc<Object>) -> Result<Option<Arc<Whole>>> {
        self.disk.check(object).await
    }

    /// Read a complete file again and compare it with what the store says.
    pub async fn verify(&self, object: &Arc<Object>, via: Door) -> Result<bool> {
        let is_right = self.disk.verify(object, via).await?;
        if !is_right {
            // Memory may have blocks of what is wrong.
            self.forget(object);
        }
        Ok(is_right)
    }

    /// Read again what lies here of some blocks of an object, and drop what is damaged. False if some was.
    pub async fn compare(&self, object: &Arc<Object>, blocks: &Range<u32>) -> Result<bool> {
        let is_right = self.disk.compare_kept(object, blocks).await?;
        if !is_right {
            self.forget(object);
        }
        Ok(is_right)
    }

    /// The checksum of some blocks of an object as they are kept here; none if not all of them are.
    pub fn sum_of(&self, object: &Arc<Object>, blocks: &Range<u32>) -> Option<u64> {
        self.disk.sum_of(object, blocks)
    }

    /// Drop what is here of some blocks of an object, because it is wrong, and what lies in the same files.
    pub fn drop_wrong(&self, object: &Arc<Object>, blocks: &Range<u32>) {
        self.disk.drop_wrong(object, blocks);
        self.forget(object);
    }

    /// Let go of what is here of an object, whole or in part: for room, and no word on whether it is right. Who has it open reads
    /// on.
    pub fn evict(&self, object: &Arc<Object>) {
        self.drop_wrong(object, &(0..object.blocks()));
    }

    /// Drop an object here and on all other members, because it is wrong as a whole.
    pub async fn drop_everywhere(&self, object: &Arc<Object>) {
        if let Some(owners) = &self.owners {
            owners.drop_wrong(object).await;
        }
        self.drop_wrong(object, &(0..object.blocks()));
    }

    /// What the store says of an object, whatever lies here.
    pub async fn described(&self, object: &Arc<Object>, via: Door) -> Result<Option<Checksum>> {
        self.inner.checksum(object, via).await
    }

    /// Read an object from whoever keeps it, and past the copies that lie here, and see whether it has this checksum.
    pub async fn agrees(&self, object: &Arc<Object>, described: Checksum, via: Door) -> Result<bool> {
        let Some(owners) = &self.owners else { return Ok(true) };
        let kept = Peers::over(Arc::new(owners.clone()), owners.clone());
        let mut digest = described.digest();
        for start in (0..object.blocks()).step_by(RUN_BLOCKS as usize) {
            let run = Run::new(object.clone(), start..object.blocks().min(start + RUN_BLOCKS)).via(via);
            let run =
                Run { course: Course::until_due(cache::waits::clock, cache::waits::clock() + BROUGHT_DUE), ..run };
            let _room = self.room_for(&run).await;
            let mut blocks = kept.fetch(run);
            while let Some(block) = blocks.next().await {
                block?.pieces().iter().for_each(|piece| digest.update(piece));
            }
        }
        Ok(digest.matches(described))
    }

    /// Whether all of some blocks of an object lie here, as far as can be told without reading them.
    pub fn has_all(&self, object: &Arc<Object>, blocks: &Range<u32>) -> bool {
        self.disk.has_all(object, blocks)
    }

    /// The stripe of a block lies here by now. If this node owns it, whoever keeps it in its stead need not any more.
    pub fn is_here(&self, address: &Address) {
        let stripe = Stripe::of(address);
        if let Some(lines) = &self.lines
            && lines.roster().owner(&stripe) == Some(lines.roster().me())
        {
            lines.has_itself(&[stripe]);
        }
    }

    /// Whether all of some blocks of an object lie here, and were written or compared under this boot.
    pub fn owns_surely(&self, object: &Arc<Object>, blocks: &Range<u32>) -> bool {
        self.disk.owns_surely(object, blocks)
    }

    /// Wait until an object whose blocks were all handed on is complete, or will not be for now.
    pub async fn settled(&self, object: &Arc<Object>, via: Door) -> Standing {
        self.disk.settled(object, via).await
    }

    /// Whether all blocks of a run, which were handed on, lie on the disk.
    pub async fn keeps_all(&self, run: &Run) -> bool {
        self.disk.keeps_all(run).await
    }

    /// Whether all of an object is here, trusted or to be checked.
    pub fn is_complete(&self, object: &Arc<Object>) -> bool {
        self.disk.is_complete(object)
    }

    /// Bytes of an object that lie on the disk.
    pub fn held_bytes(&self, object: &Arc<Object>) -> u64 {
        self.disk.held_bytes(object)
    }

    /// Whether a block lies on the disk.
    pub fn holds(&self, address: &Address) -> bool {
        self.disk.holds(address)
    }

    /// Whether an object is here, or would be kept if it were fetched now.
    pub fn has_room(&self, object: &Arc<Object>) -> bool {
        self.disk.has_room(object)
    }

    /// Whether nothing that lies on the disk can be had now.
    pub fn is_disk_lost(&self) -> bool {
        self.disk.is_lost()
    }

    /// Take the cache folder again if somebody removed it. False if that can't be.
    pub fn hold(&self) -> bool {
        self.disk.hold()
    }

    /// Objects that their data set does not list any more: they give way first.
    pub fn release(&self, objects: &[Arc<Object>]) {
        self.disk.release(objects.iter());
    }

    /// A reader begins to wait for the disk; it ends when what comes back is dropped.
    pub fn wait_for_disk(&self) -> Wait<'_> {
        self.outer.waits().begin_for(Cause::Disk)
    }

    /// Bytes of a complete file were read for a reader, past the tiers.
    pub fn read_from_disk(&self, bytes: usize) {
        self.disk.tally().here.add(1, bytes as u64);
    }

    /// What the tiers served, memory first.
    pub fn tallies(&self) -> (&Tally, &Tally) {
        (self.outer.tally(), self.disk.tally())
    }

    pub fn waits(&self) -> &Waits {
        self.outer.waits()
    }

    /// Use of the disk, and its limits.
    pub fn disk_usage(&self) -> (Used, Limits) {
        self.disk.usage()
    }

    /// Anonymous memory that grows with the number of objects, whatever is read.
    pub fn index_bytes(&self) -> u64 {
        self.disk.memory_bytes()
    }

    /// Bytes that can be kept without anything giving way.
    pub fn free_bytes(&self) -> u64 {
        let (used, limits) = self.disk.usage();
        let within = limits.bytes.saturating_sub(used.bytes);
        within.min(used.free_bytes.saturating_sub(limits.free_bytes_min))
    }

    /// Tell somebody of each object that leaves the disk, or of which wrong bytes may have been handed out. What is called
    /// must not call back into the tiers.
    pub fn tell_dropped(&self, dropped: impl Fn(&Object) + Clone + Send + Sync + 'static) {
        self.outer.tell_wrong(dropped.clone());
        self.disk.tell_dropped(dropped);
    }

    /// Leave the cache folder as the next node wants to find it.
    pub fn close(&self) {
        self.disk.close();
    }
}
