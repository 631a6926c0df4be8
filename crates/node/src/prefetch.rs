//! Asks in time for what a job said that it will read: the file that is due first comes first, over all orders and epochs,
//! as far ahead as memory has room.
//!
//! Deliberately waits for no block and holds none: what is asked for comes through the tiers that readers use, and gives way
//! to what they need. A wrong order costs what was asked for in vain, never content.

pub use crate::declared::Source;
use crate::declared::{FILES_MAX, Next, Order, Orders};
use crate::load::{self, Reach};
use crate::process::{self, Process};
use crate::select::Wanted;
use block::{Error, Object, Result};
pub use order::Sampler;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Part of the memory for blocks that may be asked for and not be read yet.
const AHEAD_PART: u64 = 2;

/// Between two looks whether there is room, if nothing is opened meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Orders of one data set: a process each.
const ORDERS_MAX: usize = 256;

/// Between two looks whose process has ended.
const LEFT_EVERY: Duration = Duration::from_millis(500);

/// Files after which others get their turn.
const YIELD_EVERY: u32 = 256;

/// What a job says that it will read.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Its files: of what is wanted in the order of their names, or those of a list as it has them.
    pub wanted: Wanted,
    pub deal: Deal,
    pub source: Source,
    /// Whose it is, if it is to be forgotten when that has ended.
    pub process: Option<Process>,
    /// What its numbers rely on.
    pub expected: Option<Expected>,
    /// Files that were opened already, in this order.
    pub read: Vec<u64>,
}

/// How whoever says an order numbers the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Files in all.
    pub files: u64,
    /// Some of them, by number, as paths below the folder.
    pub names: Vec<(u32, Vec<u8>)>,
}

/// Which of the files, and in which order.
#[derive(Clone, Debug)]
pub enum Deal {
    /// All, as they are.
    All,
    /// Those of these numbers.
    Numbers(Vec<u32>),
    /// Those that PyTorch's sampler deals to a rank, from this epoch on until before that one.
    Sampler { sampler: Sampler, epoch: u64, until: u64 },
    /// These nodes, in each epoch.
    Again(Arc<[u64]>),
}

/// What was said of a data set, and the work that follows.
#[derive(Default)]
pub struct Prefetch {
    orders: Mutex<Orders>,
    /// Of orders that go on, what is to be dealt next.
    dealt: Mutex<HashMap<u64, Declaration>>,
    /// An order began, or a file was opened.
    news: Notify,
    runs: AtomicBool,
    over: AtomicBool,
}

/// An order, for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub name: String,
    pub source: Source,
    pub misses: u64,
    pub left: u64,
    pub opened: u64,
    pub skipped: u64,
    pub ahead_files: u64,
    pub asked_bytes: u64,
    pub rests: bool,
}

impl Prefetch {
    /// A job says what it will read. How many files that are, of its first epoch, and whether it said something else before by
    /// this name.
    pub fn declare(&self, name: &str, declaration: Declaration, reach: &Reach) -> Result<(u64, bool)> {
        let (source, process, read) = (declaration.source, declaration.process, declaration.read.clone());
        let declaration = Declaration { read: Vec::new(), ..declaration };
        let (files, rest) = dealt(reach, declaration)?;
        let (count, now) = (files.len() as u64, Instant::now());
        let mut orders = self.orders();
        forget_left(&mut orders, now);
        let replaced = orders.forget(name);
        let is_full = |orders: &Orders| orders.all().len() >= ORDERS_MAX || orders.files() + files.len() > FILES_MAX;
        while is_full(&orders) && orders.give_way(now) {}
        if orders.all().len() >= ORDERS_MAX {
            let what = format!("{ORDERS_MAX} orders are said already");
            return Err(Error::invalid(what, name).hint("`stoker hint --forget --name NAME` forgets one"));
        }
        if orders.files() + files.len() > FILES_MAX {
            let what = format!("orders of more than {FILES_MAX} files together are more than is remembered");
            return Err(Error::invalid(what, name).hint("`stoker hint --forget --name NAME` forgets one"));
        }
        let id = orders.begin(name, source, files, rest.is_some(), now);
        process.into_iter().for_each(|process| orders.belongs(id, process));
        orders.read(id, &read, now);
        drop(orders);
        self.deal_for_those_that_are_left();
        self.dealt().extend(rest.map(|rest| (id, rest)));
        self.news.notify_one();
        Ok((count, replaced))
    }

    /// Whether a job had said something by this name.
    pub fn forget(&self, name: &str) -> bool {
        let was_there = self.orders().forget(name);
        self.deal_for_those_that_are_left();
        self.news.notify_one();
        was_there
    }

    /// Forget orders that were found out and that nobody follows.
    pub fn forget_unfollowed(&self) {
        self.orders().forget_unfollowed();
        self.deal_for_those_that_are_left();
    }

    /// A thread opened a file, whichever way it is read then; 0 where it is not known. Whether an order names it.
    pub fn opened(&self, node: u64, thread: u32) -> bool {
        if !self.runs.load(Relaxed) {
            return false;
        }
        let is_named = self.orders().opened(node, thread, Instant::now());
        self.news.notify_one();
        is_named
    }

    /// Whether anybody said anything.
    pub fn is_on(&self) -> bool {
        self.runs.load(Relaxed)
    }

    /// The mount has ended.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
        self.news.notify_one();
    }

    pub fn progress(&self) -> Vec<Progress> {
        let progress = |order: &Order| Progress {
            name: order.name.clone(),
            source: order.source,
            misses: order.misses,
            left: order.left(),
            opened: order.opened,
            skipped: order.skipped,
            ahead_files: order.ahead(),
            asked_bytes: order.asked_bytes,
            rests: order.rests(),
        };
        self.orders().all().iter().map(progress).collect()
    }

    /// Whether whoever begins an order is to see to it that [`Prefetch::run`] runs.
    pub fn begins(&self) -> bool {
        !self.runs.swap(true, Relaxed)
    }

    /// Ask ahead until the mount has ended.
    pub async fn run(self: Arc<Self>, reach: impl Fn() -> Option<Reach>) {
        let (mut looked, mut left) = (0, Instant::now());
        while !self.over.load(Relaxed) {
            let Some(reach) = reach() else { return };
            if left.elapsed() >= LEFT_EVERY {
                left = Instant::now();
                if forget_left(&mut self.orders(), left) {
                    self.deal_for_those_that_are_left();
                }
            }
            let (runs_out, let_go) = {
                let mut orders = self.orders();
                (orders.runs_out(), orders.take_let_go())
            };
            for object in let_go.iter().filter_map(|node| reach.manifest.object(*node)) {
                reach.stack.abandon(&object, 0..object.blocks());
            }
            if let Some(id) = runs_out {
                self.go_on(id, &reach).await;
            }
            let asked_max = reach.stack.budget().usage().1 / AHEAD_PART;
            let next = self.orders().next(asked_max, Instant::now());
            let Some(next) = next else {
                self.wait().await;
                continue;
            };
            self.ask(&reach, next).await;
            looked += 1;
            if looked % YIELD_EVERY == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Deal the next epoch of an order.
    async fn go_on(&self, id: u64, reach: &Reach) {
        let Some(rest) = self.dealt().remove(&id) else {
            self.orders().go_on(id, Vec::new(), false);
            return;
        };
        let reach = reach.clone();
        let dealing = tokio::task::spawn_blocking(move || dealt(&reach, rest)).await;
        let (files, rest) = match dealing {
            Ok(Ok(dealt)) => dealt,
            Ok(Err(error)) => {
                tracing::warn!("an order ends: {error}");
                (Vec::new(), None)
            }
            Err(_) => return,
        };
        let is_there = self.orders().go_on(id, files, rest.is_some());
        self.dealt().extend(rest.filter(|_| is_there).map(|rest| (id, rest)));
    }

    /// Ask for a file as memory comes free, as long as it is the next.
    async fn ask(&self, reach: &Reach, next: Next) {
        let object = reach.manifest.object(next.node).filter(|object| object.size > 0);
        let asked = match &object {
            Some(object) if !reach.stack.is_complete(object) => {
                if !self.ask_all(reach, object, &next).await {
                    return;
                }
                object.size
            }
            _ => 0,
        };
        self.orders().asked(&next, object.map_or(0, |object| object.size), asked);
    }

    async fn ask_all(&self, reach: &Reach, object: &Arc<Object>, next: &Next) -> bool {
        let mut from = 0;
        loop {
            from = reach.stack.ahead(object, from..object.blocks(), reach.via, next.due.into_std());
            if from == object.blocks() {
                return true;
            }
            self.wait().await;
            // Its reader may be there by now, or have gone on.
            let is_next = self.orders().next(u64::MAX, Instant::now()).is_some_and(|now| now.node == next.node);
            if !is_next || self.over.load(Relaxed) {
                return false;
            }
        }
    }

    /// Of orders that are forgotten nothing more is dealt.
    fn deal_for_those_that_are_left(&self) {
        self.dealt().retain(|known, _| self.orders().has(*known));
    }

    async fn wait(&self) {
        let _ = tokio::time::timeout(LOOK_EVERY, self.news.notified()).await;
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dealt(&self) -> MutexGuard<'_, HashMap<u64, Declaration>> {
        self.dealt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget_left(orders: &mut Orders, now: Instant) -> bool {
    orders.forget_left(now, Process::is_there, process::is_thread)
}

/// The files of the next epoch, as nodes, and what is to be dealt after it.
fn dealt(reach: &Reach, declaration: Declaration) -> Result<(Vec<u64>, Option<Declaration>)> {
    let under = if declaration.wanted.under.is_empty() { "the data set" } else { &declaration.wanted.under };
    if let Deal::Again(nodes) = &declaration.deal {
        return bounded(nodes.to_vec(), under).map(|dealt| (dealt, Some(declaration.clone())));
    }
    let files = files(reach, &declaration.wanted)?;
    if let Some(expected) = &declaration.expected {
        check(reach, &declaration.wanted.under, &files, expected)?;
    }
    let file = |number: &u32| {
        let wrong = || {
            let what = format!("there is no file of number {number}: there are {}, counted from 0", files.len());
            Error::invalid(what, under).hint("numbers are of the files that are chosen, in the order of their names")
        };
        files.get(*number as usize).copied().ok_or_else(wrong)
    };
    let (dealt, rest) = match &declaration.deal {
        Deal::Again(_) => unreachable!("it names its files itself"),
        Deal::All => return bounded(files, under).map(|files| (files, None)),
        Deal::Numbers(numbers) => (numbers.iter().map(file).collect::<Result<Vec<u64>>>()?, None),
        Deal::Sampler { sampler, epoch, until } => {
            let numbers = sampler.deal(*epoch, files.len() as u64);
            let dealt = numbers.iter().map(file).collect::<Result<Vec<u64>>>()?;
            let next = epoch.checked_add(1).filter(|next| next < until);
            (dealt, next.map(|epoch| Deal::Sampler { sampler: *sampler, epoch, until: *until }))
        }
    };
    let rest = rest.map(|deal| Declaration { deal, ..declaration.clone() });
    bounded(dealt, under).map(|dealt| (dealt, rest))
}

/// Whether files are numbered as whoever says an order expects.
fn check(reach: &Reach, under: &str, files: &[u64], expected: &Expected) -> Result<()> {
    let above = if under.is_empty() { Vec::new() } else { format!("{under}/").into_bytes() };
    let is_right = |(number, name): &(u32, Vec<u8>)| {
        let path = files.get(*number as usize).and_then(|node| reach.manifest.path(*node));
        path.is_some_and(|path| path.strip_prefix(&above[..]) == Some(name))
    };
    if expected.files == files.len() as u64 && expected.names.iter().all(is_right) {
        return Ok(());
    }
    let what = format!("the {} files here are not those that are numbered", files.len());
    Err(Error::invalid(what, under).hint("name the files of the order one by one"))
}

fn bounded(files: Vec<u64>, under: &str) -> Result<Vec<u64>> {
    match files.len() {
        0 => Err(Error::missing("the order names no file", under).hint("see which files `stoker load` would take")),
        1..=FILES_MAX => Ok(files),
        many => {
            let what = format!("an order of {many} files is more than is remembered");
            Err(Error::invalid(what, under).hint(format!("say up to {FILES_MAX} at a time")))
        }
    }
}

/// Files that are meant, as nodes.
fn files(reach: &Reach, wanted: &Wanted) -> Result<Vec<u64>> {
    let Some(list) = &wanted.list else {
        return Ok(load::chosen(&reach.manifest, wanted)?.into_iter().map(|(node, _)| node).collect());
    };
    let under = if wanted.under.is_empty() { String::new() } else { format!("{}/", wanted.under) };
    let file = |name: &String| {
        let path = format!("{under}{}", name.trim_end_matches('\r').trim_start_matches("./").trim_matches('/'));
        let node = reach.manifest.find(path.as_bytes()).filter(|node| reach.manifest.object(*node).is_some());
        let unknown = || Error::missing("the order names what is no file of the data set", name);
        node.ok_or_else(|| unknown().hint("give paths of files as they appear below the folder that is named"))
    };
    list.iter().map(file).collect()
}
