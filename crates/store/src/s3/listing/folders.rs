//! A listing by folders, for stores where one can't begin after a key: each folder is listed by itself.
//!
//! The keys below a prefix are found by its *folders* (what a delimiter folds together). Where there are few folders, theirs are
//! looked for, too. Where the folders turn out to be small, asking for each would cost more than it gains: the rest is then listed
//! in one row, once all names directly under the prefix are told.
//!
//! Invariant: each key exactly once, whatever way was taken and in whatever order the server has them.

use super::{Page, Plan, Task};
use crate::Listed;
use block::{Kind, Result};
use std::collections::{HashSet, VecDeque};

/// Folders that are listed before it is known whether folders are large.
const SAMPLE: u64 = 16;

/// A folder that has fewer keys is small: a page holds a thousand, so a request of its own brings a fifth.
const SMALL: u64 = 200;

/// How deep folders are looked for within folders where there are too few to keep all requests busy.
const DEEP: u8 = 4;

/// Levels of folders that are kept apart; further ones are listed without looking for folders.
const LEVELS_MAX: usize = 64;

#[derive(Clone, Debug)]
enum Shape {
    /// Keys and folders directly under the prefix.
    Folders,
    /// All keys under the prefix.
    All,
    /// All keys in the folders of the level that were not begun.
    Rest,
}

/// The folders under one prefix, and how large they turn out to be.
#[derive(Debug, Default)]
struct Level {
    prefix: String,
    deep: u8,
    /// Folders found so far.
    width: usize,
    /// Folders not begun yet, one page of them, and where the next page begins.
    folders: VecDeque<String>,
    next: Option<String>,
    /// A page of folders is under way.
    is_asked: bool,
    /// Folders that were begun.
    begun: HashSet<String>,
    /// The others are to be listed in one row.
    is_row: bool,
    /// Folders that were listed to their end, and the keys that they had.
    listed: u64,
    keys: u64,
}

/// What a request is for.
#[derive(Clone, Debug)]
struct Step {
    prefix: String,
    /// The level that it tells about.
    level: usize,
    shape: Shape,
    /// Where the page begins.
    next: Option<String>,
    /// Keys that earlier pages of this row had.
    found: u64,
}

/// What to ask next. Pure: it never sends.
pub struct Folders {
    waiting: VecDeque<Step>,
    levels: Vec<Level>,
    /// Those that were asked for, by the number of their request.
    asked: Vec<Option<Step>>,
}

impl Folders {
    pub fn of(prefix: String) -> Folders {
        let levels = vec![Level::of(prefix.clone(), 0)];
        let waiting = VecDeque::from([Step { prefix, level: 0, shape: Shape::Folders, next: None, found: 0 }]);
        Folders { waiting, levels, asked: Vec::new() }
    }

    fn step(&mut self, requests: usize) -> Option<Step> {
        let found = self.waiting.pop_front();
        found.or_else(|| (0..self.levels.len()).find_map(|level| self.begin(level, requests)))
    }

    /// The next folder of a level, or the rest of it in one row.
    fn begin(&mut self, level: usize, requests: usize) -> Option<Step> {
        let is_full = self.levels.len() >= LEVELS_MAX;
        let at = &mut self.levels[level];
        let task = |prefix, shape| Some(Step { prefix, level, shape, next: None, found: 0 });
        at.is_row |= at.is_better_in_a_row();
        if at.is_row {
            at.folders.clear();
        }
        let is_narrow = at.next.is_none() && at.width < requests && at.deep < DEEP && !is_full;
        let Some(folder) = at.folders.pop_front() else {
            let next = at.next.take();
            if next.is_some() {
                at.is_asked = true;
                return Some(Step { prefix: at.prefix.clone(), level, shape: Shape::Folders, next, found: 0 });
            }
            let is_due = !at.is_asked && std::mem::take(&mut at.is_row);
            return if is_due { task(at.prefix.clone(), Shape::Rest) } else { None };
        };
        at.begun.insert(folder.clone());
        if !is_narrow {
            return task(folder, Shape::All);
        }
        let deep = at.deep + 1;
        self.levels.push(Level::of(folder.clone(), deep));
        let level = self.levels.len() - 1;
        Some(Step { prefix: folder, level, shape: Shape::Folders, next: None, found: 0 })
    }

    /// Take what a page tells: its keys, and what to ask next.
    fn take(&mut self, mut task: Step, page: Page) -> Vec<Listed> {
        let mut listed = page.listed;
        match &task.shape {
            Shape::Folders => {
                self.levels[task.level].learn(page.prefixes, page.next);
                return listed;
            }
            Shape::All => {}
            Shape::Rest => listed.retain(|listed| self.levels[task.level].is_left(&listed.key)),
        }
        task.found += listed.len() as u64;
        match page.next {
            Some(next) => self.waiting.push_back(Step { next: Some(next), ..task }),
            None => {
                let level = &mut self.levels[task.level];
                level.listed += 1;
                level.keys += task.found;
            }
        }
        listed
    }
}

impl Plan for Folders {
    fn next(&mut self, requests: usize) -> Option<Task> {
        let step = self.step(requests)?;
        let is_folded = matches!(step.shape, Shape::Folders);
        let is_first = step.level == 0 && is_folded && step.next.is_none();
        let (prefix, next, number) = (step.prefix.clone(), step.next.clone(), self.asked.len());
        self.asked.push(Some(step));
        Some(Task { number, prefix, is_folded, after: None, next, is_first })
    }

    fn learn(&mut self, number: usize, page: Result<Page>) -> Result<Vec<Listed>> {
        let step = self.asked.get_mut(number).and_then(Option::take).expect("each request is answered once");
        let is_refused = page.as_ref().is_err_and(|error| matches!(error.kind, Kind::Denied | Kind::Invalid));
        // A server that refuses delimiters is asked without.
        if is_refused && matches!(step.shape, Shape::Folders) && step.next.is_none() {
            self.waiting.push_back(Step { shape: Shape::All, ..step });
            return Ok(Vec::new());
        }
        Ok(self.take(step, page?))
    }
}

impl Level {
    /// A level whose first page is about to be asked for.
    fn of(prefix: String, deep: u8) -> Level {
        Level { prefix, deep, is_asked: true, ..Level::default() }
    }

    fn learn(&mut self, folders: Vec<String>, next: Option<String>) {
        self.is_asked = false;
        self.width += folders.len();
        self.folders.extend(folders);
        self.next = next;
    }

    /// Whether folders are so small, and so many are left, that one row through them asks less.
    fn is_better_in_a_row(&self) -> bool {
        let is_long = self.folders.len() as u64 > SAMPLE || self.next.is_some();
        is_long && self.listed >= SAMPLE && self.keys < self.listed * SMALL
    }

    /// Whether a key lies in a folder that was not begun. Names directly under the prefix came with the folders.
    fn is_left(&self, key: &str) -> bool {
        let folder = key.get(self.prefix.len()..).and_then(|below| below.find('/'));
        folder.is_some_and(|end| !self.begun.contains(&key[..=self.prefix.len() + end]))
    }
}
