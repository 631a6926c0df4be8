//! Takes down what is asked of the view: each event is pushed to one of a few lists, which a thread empties and adds up.
//!
//! It judges nothing; that is `trace`. Invariants: who is being served waits for a push and nothing else; a list
//! that is full drops events and counts them; events are added up in the order in which they began.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trace::{Event, Trace, Tracer, What};

/// Several times the threads that push at once.
const LISTS: usize = 16;

/// Events of one list between two sweeps, 72 bytes each: 330,000 a second in each, where a mount answers 150,000 in all.
const EVENTS_MAX: usize = 1 << 14;

/// Time between two sweeps.
const SWEEP: Duration = Duration::from_millis(50);

/// Threads whose process is known by heart; with more, all are looked up again.
const THREADS_MAX: usize = 1 << 16;

/// What is shared between those who are observed and the thread that adds up.
pub struct Recorder {
    began: Instant,
    lists: [Mutex<Vec<Event>>; LISTS],
    lost: AtomicU64,
    opens: AtomicU64,
    processes: RwLock<HashMap<u32, u32>>,
    over: AtomicBool,
}

/// An answer that is on its way.
#[derive(Clone, Copy)]
pub struct Begun {
    at_ns: u64,
    pub thread: u32,
    pub process: u32,
}

impl Recorder {
    /// A recorder, and the thread that adds up until [`Recorder::end`].
    pub fn start() -> (Arc<Recorder>, JoinHandle<Trace>) {
        let recorder = Arc::new(Recorder {
            began: Instant::now(),
            lists: Default::default(),
            lost: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            processes: RwLock::default(),
            over: AtomicBool::new(false),
        });
        let sweeper = recorder.clone();
        (recorder, std::thread::spawn(move || sweeper.sweep()))
    }

    /// What comes from now on is no longer added up.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// A number for an open.
    pub fn open(&self) -> u64 {
        self.opens.fetch_add(1, Ordering::Relaxed)
    }

    /// Something is being asked. `known`: a thread whose process is known already.
    pub fn begin(&self, thread: u32, known: Option<(u32, u32)>) -> Begun {
        let at_ns = self.now_ns();
        let process = match known {
            Some((known, process)) if known == thread => process,
            _ => self.process(thread),
        };
        Begun { at_ns, thread, process }
    }

    /// It was answered.
    pub fn answered(&self, begun: Begun, file: u64, open: u64, what: What) {
        let Begun { at_ns: begin_ns, thread, process } = begun;
        let mut list = lock(&self.lists[list_of_this_thread()]);
        if list.len() >= EVENTS_MAX {
            drop(list);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Under the lock, so that a sweep that began later finds what ended earlier.
        let end_ns = self.now_ns();
        list.push(Event { begin_ns, end_ns, process, thread, file, open, what });
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// The process of a thread, which exists, because it waits for us. One that can't be looked up stands for itself.
    fn process(&self, thread: u32) -> u32 {
        if let Some(&process) = self.processes.read().unwrap_or_else(PoisonError::into_inner).get(&thread) {
            return process;
        }
        let process = process_of(thread).unwrap_or(thread);
        let mut processes = self.processes.write().unwrap_or_else(PoisonError::into_inner);
        if processes.len() >= THREADS_MAX {
            processes.clear();
        }
        processes.insert(thread, process);
        process
    }

    fn sweep(&self) -> Trace {
        let (mut tracer, mut waiting) = (Tracer::new(), Vec::new());
        loop {
            let last = self.over.load(Ordering::Acquire);
            let until_ns = if last { u64::MAX } else { self.now_ns() };
            for list in &self.lists {
                waiting.append(&mut lock(list));
            }
            // One that ended later may have begun before another that is not in a list yet.
            waiting.sort_by_key(|event: &Event| event.begin_ns);
            let (ready, rest): (Vec<Event>, Vec<Event>) =
                waiting.into_iter().partition(|event| event.end_ns < until_ns);
            ready.iter().for_each(|event| tracer.add(event));
            waiting = rest;
            if last {
                return tracer.finish(self.lost.load(Ordering::Relaxed));
            }
            std::thread::sleep(SWEEP);
        }
    }
}

fn lock(list: &Mutex<Vec<Event>>) -> MutexGuard<'_, Vec<Event>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that push take the lists in turn, so that they seldom meet.
fn list_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LIST: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LISTS;
    }
    LIST.with(|list| *list)
}

fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}
