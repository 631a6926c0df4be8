//! One epoch, event by event: readers of each accelerator fetch batches ahead, steps take them in order, a barrier
//! waits for all.
//!
//! It draws no conclusions. Invariants: time never goes back; each batch of the epoch is read once and taken once; no
//! accelerator has more batches ahead than its window.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::answer::Done;
use super::latency::Draws;
use super::order::Visit;
use super::server::Server;
use super::totals::{Cause, Totals};
use super::{Placement, Question};

/// A batch moves as so many flows at most, one after another; samples that are together in one are summed. More are
/// exacter and slower: from 8 to 64, utilisation of resnet50 at the knee changes by less than half a point.
const FLOWS_PER_BATCH: u64 = 8;

/// Servers of the store, before those of the nodes.
const STORE: usize = 0;
const REQUESTS: usize = 1;
const SHARED: usize = 2;
/// Servers of a node: its network in and out, its disk.
const IN: usize = 0;
const OUT: usize = 1;
const DISK: usize = 2;
const OF_NODE: usize = 3;

#[derive(Clone, Copy)]
enum Event {
    /// A server may have a flow that is done.
    Server(u32),
    /// The first byte has come to a reader.
    Arrived(u32),
    /// A straggler's reader is done with a flow.
    Held(u32),
    /// An accelerator has computed a step that no barrier follows.
    Stepped(u32),
    /// All accelerators are past a barrier.
    Barrier,
}

/// Of what a reader fetches now.
#[derive(Clone, Copy, Default)]
struct Reader {
    batch: u64,
    flow: u64,
    is_busy: bool,
    began: f64,
    arrived: f64,
    /// Servers that have not passed its bytes yet.
    pending: u8,
    cause: u8,
    missed: f64,
    cached: f64,
    requests: f64,
    owner: u32,
}

#[derive(Clone, Copy, Default)]
struct Rank {
    taken: u64,
    waits_since: Option<f64>,
    ended: f64,
}

/// The loop of one epoch.
pub struct Epoch<'a> {
    question: &'a Question,
    visit: &'a mut Visit,
    draws: &'a mut Draws,
    readers: Vec<Reader>,
    ranks: Vec<Rank>,
    /// Of each rank, its window: what held up the batch that is ready there.
    ready: Vec<Option<Cause>>,
    servers: Vec<Option<Server>>,
    /// Earliest event that is under way for each server.
    due: Vec<f64>,
    events: BinaryHeap<Reverse<(u64, u32, u32)>>,
    at_barrier: u64,
    last_end: f64,
    stragglers: u64,
    flows: u64,
    finished: u64,
    stepped: f64,
    /// Steps that count.
    counted: Range<u64>,
    totals: Totals,
    done: Done<'a>,
}

const CAUSES: [Cause; 5] = [Cause::Latency, Cause::Store, Cause::Requests, Cause::Network, Cause::Disk];

impl<'a> Epoch<'a> {
    pub fn new(question: &'a Question, visit: &'a mut Visit, draws: &'a mut Draws, done: Done<'a>) -> Epoch<'a> {
        let (ranks, read) = (question.accelerators as usize, &question.workload.read);
        let servers = servers(question);
        let (share, due) = (question.nodes.stragglers, vec![f64::INFINITY; servers.len()]);
        let stragglers = if share > 0.0 { ((share * ranks as f64).round() as u64).max(1) } else { 0 };
        Epoch {
            question,
            visit,
            draws,
            readers: vec![Reader::default(); ranks * read.threads as usize],
            ranks: vec![Rank::default(); ranks],
            ready: vec![None; ranks * read.prefetch_batches as usize],
            servers,
            due,
            events: BinaryHeap::new(),
            at_barrier: 0,
            last_end: 0.0,
            stragglers,
            flows: read.batch.min(FLOWS_PER_BATCH),
            finished: 0,
            stepped: 0.0,
            counted: question.counted(),
            totals: Totals { first_step_ends: vec![0.0; ranks], ..Totals::default() },
            done,
        }
    }

    /// Run it to its end.
    pub fn run(mut self) -> Totals {
        let (threads, ranks) = (self.question.workload.read.threads, self.question.accelerators);
        for reader in 0..(ranks * threads) as u32 {
            self.readers[reader as usize].batch = u64::from(reader) % threads;
        }
        // Reader by reader, as if all programs began at once: none gets the whole store first.
        for thread in 0..threads {
            for rank in 0..ranks {
                self.fetch((rank * threads + thread) as u32, 0.0);
            }
        }
        for rank in 0..ranks as u32 {
            self.want(rank, 0.0);
        }
        while self.finished < ranks {
            let Reverse((bits, kind, index)) = self.events.pop().expect("a rank that has not finished waits for some");
            self.happen(f64::from_bits(bits), kind, index);
        }
        self.totals
    }

    fn plan(&mut self, at: f64, event: Event) {
        let (kind, index) = match event {
            Event::Server(index) => (0, index),
            Event::Arrived(index) => (1, index),
            Event::Held(index) => (2, index),
            Event::Stepped(index) => (3, index),
            Event::Barrier => (4, 0),
        };
        self.events.push(Reverse((at.to_bits(), kind, index)));
    }

    fn happen(&mut self, now: f64, kind: u32, index: u32) {
        match kind {
            0 => self.serve(index, now),
            1 => self.transfer(index, now),
            2 => self.advance(index, now, Cause::Straggler),
            3 => self.want(index, now),
            _ => self.pass_barrier(now),
        }
    }

    /// Have a reader begin its next batch, if the window has room for it.
    fn fetch(&mut self, reader: u32, now: f64) {
        let read = &self.question.workload.read;
        let rank = u64::from(reader) / read.threads;
        let room = self.ranks[rank as usize].taken + read.prefetch_batches;
        let state = &mut self.readers[reader as usize];
        if !state.is_busy && state.batch < self.question.steps.min(room) {
            (state.is_busy, state.flow) = (true, 0);
            self.ask(reader, now);
        }
    }

    /// Ask for the next flow of a batch.
    fn ask(&mut self, reader: u32, now: f64) {
        let (question, state) = (self.question, self.readers[reader as usize]);
        let rank = u64::from(reader) / question.workload.read.threads;
        let batch = question.workload.read.batch;
        let (from, to) = (state.flow * batch / self.flows, (state.flow + 1) * batch / self.flows);
        let numbers = state.batch * batch + from..state.batch * batch + to;
        let hits = self.visit.hits(rank, numbers, self.draws);
        let misses = to - from - hits;
        let requests = misses as f64 * question.requests_per_sample();
        let requests = if requests.fract() == 0.0 { requests } else { (requests + self.draws.even()).floor() } as u64;
        let (missed, cached) = (self.size(misses), self.size(hits));
        let latency = question.store.latency.draw(requests, self.draws) + question.cache.latency.draw(hits, self.draws);
        let nodes = question.node_count();
        let owner =
            if hits > 0 && question.cache.place == Placement::Peers { self.draws.below(nodes) as u32 } else { 0 };
        self.totals.samples += to - from;
        self.totals.hits += hits;
        self.totals.bytes += missed + cached;
        self.totals.bytes_cached += cached;
        let state = &mut self.readers[reader as usize];
        (state.began, state.owner, state.requests) = (now, owner, requests as f64);
        (state.missed, state.cached) = (missed, cached);
        if latency > 0.0 {
            self.plan(now + latency, Event::Arrived(reader));
        } else {
            self.transfer(reader, now);
        }
    }

    /// Bytes of so many samples: normal without sign, as the sets are made.
    fn size(&mut self, samples: u64) -> f64 {
        let (mean, stdev) =
            (self.question.workload.bytes_per_sample(), self.question.workload.files.sample_bytes_stdev);
        let count = samples as f64;
        if samples == 0 || stdev == 0.0 {
            return count * mean;
        }
        (count * mean + count.sqrt() * stdev * self.draws.normal()).abs()
    }

    /// The bytes of a flow pass every server on their way at the same time; the slowest one ends it.
    fn transfer(&mut self, reader: u32, now: f64) {
        let question = self.question;
        let state = &mut self.readers[reader as usize];
        (state.arrived, state.pending, state.cause) = (now, 0, 0);
        let state = *state;
        let rank = u64::from(reader) / question.workload.read.threads;
        let node = (rank / question.nodes.accelerators) as usize;
        let of_node = |node: usize, what: usize| SHARED + node * OF_NODE + what;
        let holder = if question.cache.place == Placement::Peers { state.owner as usize } else { node };
        let is_remote =
            question.cache.place != Placement::Local && (question.cache.place == Placement::Apart || holder != node);
        let remote = if is_remote { state.cached } else { 0.0 };
        self.totals.bytes_network += state.missed + remote;
        let out = if question.cache.place == Placement::Peers { remote } else { 0.0 };
        let ways = [
            (STORE, state.missed),
            (REQUESTS, state.requests),
            (of_node(node, IN), state.missed + remote),
            (of_node(holder, OUT), out),
            (of_node(holder, DISK), state.cached),
        ];
        for (server, size) in ways {
            if size > 0.0 && self.servers[server].is_some() {
                self.readers[reader as usize].pending += 1;
                self.enter(server, reader, size, now);
            }
        }
        if self.readers[reader as usize].pending == 0 {
            self.finish(reader, now);
        }
    }

    fn enter(&mut self, index: usize, reader: u32, size: f64, now: f64) {
        let server = self.servers[index].as_mut().expect("the caller saw that there is one");
        server.enter(now, reader, size);
        self.watch(index);
    }

    /// See to it that an event comes no later than the next end of a flow.
    fn watch(&mut self, index: usize) {
        let next = self.servers[index].as_ref().and_then(Server::next);
        if let Some(next) = next.filter(|next| *next < self.due[index]) {
            self.due[index] = next;
            self.plan(next, Event::Server(index as u32));
        }
    }

    fn serve(&mut self, index: u32, now: f64) {
        let at = index as usize;
        // An event that an earlier one has overtaken does no harm: it looks, and finds nothing done.
        if now >= self.due[at] {
            self.due[at] = f64::INFINITY;
        }
        let cause = match at {
            STORE => 1,
            REQUESTS => 2,
            node if (node - SHARED) % OF_NODE == DISK => 4,
            _ => 3,
        };
        while let Some(reader) = self.servers[at].as_mut().and_then(|server| server.leave(now)) {
            let state = &mut self.readers[reader as usize];
            state.pending -= 1;
            state.cause = cause;
            if state.pending == 0 {
                self.finish(reader, now);
            }
        }
        self.watch(at);
    }

    /// All bytes of a flow are there; a straggler has it some time later.
    fn finish(&mut self, reader: u32, now: f64) {
        let state = self.readers[reader as usize];
        let rank = u64::from(reader) / self.question.workload.read.threads;
        if rank < self.stragglers && self.question.nodes.straggling > 1.0 {
            let until = state.began + (now - state.began) * self.question.nodes.straggling;
            return self.plan(until, Event::Held(reader));
        }
        let is_late = state.arrived - state.began > now - state.arrived;
        self.advance(reader, now, CAUSES[if is_late { 0 } else { usize::from(state.cause) }]);
    }

    /// On to the next flow of the batch, or to the next batch.
    fn advance(&mut self, reader: u32, now: f64, cause: Cause) {
        let read = &self.question.workload.read;
        let (threads, window) = (read.threads, read.prefetch_batches);
        let state = &mut self.readers[reader as usize];
        state.flow += 1;
        if state.flow < self.flows {
            return self.ask(reader, now);
        }
        let batch = state.batch;
        (state.is_busy, state.batch) = (false, batch + threads);
        let rank = u64::from(reader) / threads;
        self.ready[(rank * window + batch % window) as usize] = Some(cause);
        self.fetch(reader, now);
        if self.ranks[rank as usize].taken == batch && self.ranks[rank as usize].waits_since.is_some() {
            self.take(rank as u32, now);
        }
    }

    /// An accelerator wants its next batch.
    fn want(&mut self, rank: u32, now: f64) {
        let window = self.question.workload.read.prefetch_batches;
        let taken = self.ranks[rank as usize].taken;
        for (end, step) in [self.counted.start, self.counted.end].into_iter().enumerate() {
            if taken == step {
                let own = (u64::from(rank) * window) as usize;
                let ready = self.ready[own..own + window as usize].iter().flatten().count();
                self.totals.counted_seconds[end] += now;
                self.totals.ready[end] += ready as u64;
            }
        }
        if rank == 0 && taken > 0 {
            self.totals.steps.push(now - self.stepped);
            self.stepped = now;
            (self.done)(self.question.accelerators);
        }
        if taken == self.question.steps {
            self.finished += 1;
            self.totals.seconds = now;
            return;
        }
        self.ranks[rank as usize].waits_since = Some(now);
        if self.ready[(u64::from(rank) * window + taken % window) as usize].is_some() {
            self.take(rank, now);
        }
    }

    /// An accelerator takes a batch that is ready, and computes.
    fn take(&mut self, rank: u32, now: f64) {
        let question = self.question;
        let (window, threads) = (question.workload.read.prefetch_batches, question.workload.read.threads);
        let state = &mut self.ranks[rank as usize];
        let slot = (u64::from(rank) * window + state.taken % window) as usize;
        let cause = self.ready[slot].take().expect("the caller saw that it is ready");
        let waited = now - state.waits_since.take().unwrap_or(now);
        self.totals.wait(cause, waited);
        state.taken += 1;
        state.ended = now + question.step_seconds;
        let (taken, end) = (state.taken, state.ended);
        if taken == 1 {
            self.totals.first_step_ends[rank as usize] = end;
        }
        let freed = (taken - 1 + window) % threads;
        self.fetch((u64::from(rank) * threads + freed) as u32, now);
        if !taken.is_multiple_of(question.overhead.every) && taken < question.steps {
            return self.plan(end, Event::Stepped(rank));
        }
        self.at_barrier += 1;
        self.last_end = self.last_end.max(end);
        if self.at_barrier == question.accelerators {
            let waited = self.ranks.iter().map(|rank| self.last_end - rank.ended).sum();
            self.totals.wait(Cause::Barrier, waited);
            self.at_barrier = 0;
            self.plan(self.last_end + question.overhead.seconds, Event::Barrier);
        }
    }

    fn pass_barrier(&mut self, now: f64) {
        for rank in 0..self.question.accelerators as u32 {
            self.want(rank, now);
        }
    }
}

/// The servers that have a limit.
fn servers(question: &Question) -> Vec<Option<Server>> {
    let some = |capacity: Option<f64>, stream: Option<f64>| {
        let (capacity, stream) = (capacity.unwrap_or(f64::INFINITY), stream.unwrap_or(f64::INFINITY));
        (capacity.min(stream).is_finite()).then(|| Server::new(capacity, stream))
    };
    let store = &question.store;
    let mut servers =
        vec![some(store.bytes_per_second, store.stream_bytes_per_second), some(store.requests_per_second, None)];
    for _ in 0..question.node_count() {
        let network = question.nodes.bytes_per_second;
        servers.extend([some(network, None), some(network, None), some(question.cache.bytes_per_second, None)]);
    }
    servers
}
