//! A listing in rows that end where the next one begins: each page is full, and many are asked for at a time.
//!
//! It begins as one row through all keys. If that is more than a page, folders are looked for (what a delimiter folds together),
//! beside the second page; each is a place where a row may be split. A row is split where enough pages are to be expected behind the
//! place, for a split costs up to one page that is only part full. So a set of one page takes one request, one of a hundred pages a few more than a
//! hundred, and in one of a thousand all requests are busy to its end.
//!
//! A split counts only when the first page of the new row has come, begins behind the place, and the row before has not
//! passed it: a server that passes over where a listing is to begin costs a round of requests, and no key.
//!
//! Invariant: each key exactly once. A row tells what is greater than its beginning, in the order of the server, until the first key
//! that lies behind its end.

use super::{Page, Plan, Task};
use crate::Listed;
use block::{Kind, Result};
use std::collections::{HashMap, HashSet};

/// Keys of a page, as all stores have it that are listed in rows.
const PAGE: u64 = 1000;

/// Pages that a stretch is expected to have, so that it is split: each half then is worth the page that the split may cost.
const SPLIT_PAGES_MIN: u64 = 8;

/// The same once many pages have come: a split is little beside them, and the last rows are not to be waited for.
const LATE_SPLIT_PAGES_MIN: u64 = 3;
const LATE_PAGES: u64 = 200;

/// Keys that a folder has on average, so that more folders are looked for. A page of a thousand folders then shows four pages of keys.
const FOLDER_KEYS_MIN: u64 = 4;

/// Folders that are looked into, from the top on, when the first page has come.
const DEEP: usize = 4;

/// Requests for folders, in all: so many, and one for each so many pages.
const PROBES_MIN: u64 = 4;
const PAGES_A_PROBE: u64 = 16;

/// Splits that a server didn't keep to, after which none is tried any more.
const BROKEN_MAX: u64 = 2;

/// What a request is for.
#[derive(Clone, Debug)]
enum Step {
    /// The next page of a row.
    Row(usize),
    /// The first page of a row that begins here.
    Split(String),
    /// Folders below a prefix.
    Folders(String),
}

/// Keys behind a place, up to another.
#[derive(Debug, Default)]
struct Row {
    /// The last key that belongs to it; all behind it if none.
    until: Option<String>,
    /// The last key that it told.
    at: String,
    /// Where its next page begins; none before the first.
    next: Option<String>,
    is_asked: bool,
    is_over: bool,
}

impl Row {
    /// Whether a place lies before it yet.
    fn covers(&self, place: &str) -> bool {
        !self.is_over && *self.at < *place && self.until.as_deref().is_none_or(|until| place < until)
    }
}

/// The plan.
pub struct Rows {
    prefix: String,
    rows: Vec<Row>,
    /// Known folders, ascending.
    places: Vec<String>,
    /// Where rows are about to begin.
    splitting: Vec<String>,
    /// Folders to look into, and where the page begins.
    probes: Vec<(String, Option<String>)>,
    probed: HashSet<String>,
    asked: HashMap<usize, Step>,
    requests: usize,
    keys: u64,
    pages: u64,
    probes_asked: u64,
    broken: u64,
    has_folders: bool,
}

impl Rows {
    pub fn of(prefix: String) -> Rows {
        Rows {
            prefix,
            rows: vec![Row::default()],
            places: Vec::new(),
            splitting: Vec::new(),
            probes: Vec::new(),
            probed: HashSet::new(),
            asked: HashMap::new(),
            requests: 0,
            keys: 0,
            pages: 0,
            probes_asked: 0,
            broken: 0,
            has_folders: true,
        }
    }

    fn task(&mut self, step: Step) -> Task {
        let (number, mut prefix) = (self.requests, self.prefix.clone());
        let (mut after, mut next, mut is_folded) = (None, None, false);
        match &step {
            Step::Row(row) => {
                self.rows[*row].is_asked = true;
                next.clone_from(&self.rows[*row].next);
            }
            Step::Split(place) => {
                self.splitting.push(place.clone());
                after = Some(place.clone());
            }
            Step::Folders(folder) => {
                self.probes_asked += 1;
                prefix.clone_from(folder);
                is_folded = true;
                next = self
                    .probes
                    .iter()
                    .position(|(probe, _)| probe == folder)
                    .and_then(|at| self.probes.swap_remove(at).1);
            }
        }
        self.requests += 1;
        self.asked.insert(number, step);
        Task { number, prefix, is_folded, after, next, is_first: number == 0 }
    }

    /// A folder to look into, if looking is worth a request.
    fn probe(&self) -> Option<String> {
        let is_enough = self.probes_asked >= PROBES_MIN + self.pages / PAGES_A_PROBE;
        let is_worth = |next: &Option<String>| next.is_none() || self.density() >= FOLDER_KEYS_MIN;
        let probe = self.probes.iter().find(|(_, next)| is_worth(next)).filter(|_| !is_enough && self.has_folders);
        probe.map(|(folder, _)| folder.clone())
    }

    /// Keys of a folder on average, as far as rows have come.
    fn density(&self) -> u64 {
        let ahead: usize = self
            .rows
            .iter()
            .filter(|row| !row.is_over)
            .map(|row| self.stretch(&row.at, row.until.as_deref()).len())
            .sum();
        self.keys / (self.places.len().saturating_sub(ahead)).max(1) as u64
    }

    /// Known places between two keys.
    fn stretch(&self, from: &str, until: Option<&str>) -> &[String] {
        let first = self.places.partition_point(|place| **place <= *from);
        let last = until.map_or(self.places.len(), |until| self.places.partition_point(|place| **place < *until));
        self.places.get(first..last).unwrap_or_default()
    }

    /// The middle of the longest stretch, if that is long enough.
    fn split(&self) -> Option<String> {
        if self.broken >= BROKEN_MAX || self.places.is_empty() {
            return None;
        }
        let mut longest: &[String] = &[];
        for row in self.rows.iter().filter(|row| !row.is_over) {
            let mut from: &str = &row.at;
            let mut within: Vec<&str> =
                self.splitting.iter().map(String::as_str).filter(|place| row.covers(place)).collect();
            within.sort_unstable();
            for until in within.into_iter().map(Some).chain([row.until.as_deref()]) {
                let stretch = self.stretch(from, until);
                longest = if stretch.len() > longest.len() { stretch } else { longest };
                from = until.unwrap_or_default();
            }
        }
        let pages = (longest.len() as u64).saturating_mul(self.density()) / PAGE;
        let pages_min = if self.pages < LATE_PAGES { SPLIT_PAGES_MIN } else { LATE_SPLIT_PAGES_MIN };
        longest.get(longest.len() / 2).filter(|_| pages >= pages_min).cloned()
    }

    /// Look for folders around a key that a page ended with.
    fn look_around(&mut self, key: &str) {
        let below = key.get(self.prefix.len()..).unwrap_or_default();
        let slashes = below.match_indices('/').map(|(at, _)| self.prefix.len() + at + 1);
        let mut above: Vec<String> = std::iter::once(self.prefix.len())
            .chain(slashes)
            .filter_map(|end| key.get(..end).map(str::to_owned))
            .collect();
        // What the key itself lies in is being listed as it is.
        above.pop();
        for folder in above.into_iter().take(DEEP) {
            if self.probed.insert(folder.clone()) {
                self.probes.push((folder, None));
            }
        }
    }

    fn take_folders(&mut self, folder: String, page: Result<Page>) -> Result<()> {
        let page = match page {
            // Some servers and some rights know no delimiters; keys come without.
            Err(error) if matches!(error.kind, Kind::Denied | Kind::Invalid) => {
                self.has_folders = false;
                return Ok(());
            }
            page => page?,
        };
        // A server that sorts in another way can't be split by our order.
        if page.prefixes.is_sorted() {
            self.places.extend(page.prefixes);
            self.places.sort_unstable();
            self.places.dedup();
            self.probes.extend(page.next.map(|next| (folder, Some(next))));
        }
        Ok(())
    }

    /// Take a page of a row: what belongs to it, up to its end.
    fn take_page(&mut self, number: usize, mut page: Page) -> Vec<Listed> {
        let row = &mut self.rows[number];
        row.is_asked = false;
        let end = row.until.as_ref().and_then(|until| page.listed.iter().position(|listed| listed.key > *until));
        let is_cut = end.is_some();
        page.listed.truncate(end.unwrap_or(page.listed.len()));
        if let Some(last) = page.listed.iter().map(|listed| &listed.key).max().filter(|last| **last > row.at) {
            row.at.clone_from(last);
        }
        row.is_over = is_cut || page.next.is_none();
        row.next = page.next;
        let (is_over, at) = (row.is_over, row.at.clone());
        self.pages += 1;
        self.keys += page.listed.len() as u64;
        if !is_over && !at.is_empty() {
            self.look_around(&at);
        }
        page.listed
    }

    /// The first page of a new row, which counts if it begins where it was to and nobody has told its keys.
    fn take_split(&mut self, place: &str, page: Result<Page>) -> Result<Vec<Listed>> {
        self.splitting.retain(|other| other != place);
        let Some(before) = self.rows.iter().position(|row| row.covers(place)) else { return Ok(Vec::new()) };
        let mut page = match page {
            Err(error) if matches!(error.kind, Kind::Denied | Kind::Invalid) => {
                self.broken += 1;
                return Ok(Vec::new());
            }
            page => page?,
        };
        // Some tell the place itself again.
        page.listed.retain(|listed| listed.key != place);
        if page.listed.first().is_none_or(|first| *first.key < *place) {
            self.broken += 1;
            return Ok(Vec::new());
        }
        let until = self.rows[before].until.replace(place.to_owned());
        self.rows.push(Row { until, at: place.to_owned(), is_asked: true, ..Row::default() });
        Ok(self.take_page(self.rows.len() - 1, page))
    }
}

impl Plan for Rows {
    fn next(&mut self, _requests: usize) -> Option<Task> {
        let row = self.rows.iter().position(|row| !row.is_over && !row.is_asked);
        let step =
            row.map(Step::Row).or_else(|| self.split().map(Step::Split)).or_else(|| self.probe().map(Step::Folders))?;
        Some(self.task(step))
    }

    fn learn(&mut self, number: usize, page: Result<Page>) -> Result<Vec<Listed>> {
        match self.asked.remove(&number).expect("each request is answered once") {
            Step::Row(row) => Ok(self.take_page(row, page?)),
            Step::Split(place) => self.take_split(&place, page),
            Step::Folders(folder) => self.take_folders(folder, page).map(|()| Vec::new()),
        }
    }
}
