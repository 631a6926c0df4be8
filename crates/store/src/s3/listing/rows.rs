//! A listing in rows that end where the next one begins: each page is full, and many are asked for at a time.
//!
//! It begins as one row through all keys. If that is more than a page, folders are looked for (what a delimiter folds together),
//! beside the second page; each is a place where a row may be split. A row is split where enough pages are to be expected behind the
//! place, for a split costs up to one page that is only part full. So a set of one page takes one request, one of a hundred pages a few more than a
//! hundred, and in one of a thousand all requests are busy to its end.
//!
//! A split counts only when the first page of the new row has come, begins behind the place, and no row has told its
//! keys: a server that passes over where a listing is to begin costs a round of requests, and no key.
//!
//! Invariant: each key exactly once, in whatever order the server has them. A row tells what comes after its beginning
//! until it meets the first key of another row. Our own order only says where a split may be worth it, and that a row
//! may have missed the next one, whose first key was deleted meanwhile: then the server is asked what is there now.

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
    /// What is now at the end of a row that went past it.
    End(usize),
    /// Folders below a prefix.
    Folders(String),
}

/// Keys behind a place, up to another.
#[derive(Debug, Default)]
struct Row {
    /// Behind what it began.
    from: String,
    /// The key that it begins with.
    first: String,
    /// Behind what the next row began, in our order; none if there is no next.
    until: Option<String>,
    /// The last key that it told.
    at: String,
    /// Where its next page begins; none before the first.
    next: Option<String>,
    /// A page that went past its end without meeting the next row.
    held: Option<Page>,
    is_asked: bool,
    is_over: bool,
}

impl Row {
    /// Whether a place lies before it yet.
    fn covers(&self, place: &str) -> bool {
        !self.is_over
            && self.held.is_none()
            && *self.at < *place
            && self.until.as_deref().is_none_or(|until| place < until)
    }

    /// Whether it may have told a key.
    fn has_told(&self, key: &str) -> bool {
        *self.from < *key && *key <= *self.at
    }
}

/// The plan.
pub struct Rows {
    prefix: String,
    rows: Vec<Row>,
    /// The first keys of rows, where others end.
    begun: HashSet<String>,
    /// The server has keys in another order than ours.
    is_disordered: bool,
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
            begun: HashSet::new(),
            is_disordered: false,
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
            Step::End(row) => {
                self.rows[*row].is_asked = true;
                after.clone_from(&self.rows[*row].until);
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
        if self.is_disordered || self.broken >= BROKEN_MAX || self.places.is_empty() {
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
        // Of no use as places otherwise.
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
        self.is_disordered |= !is_ascending(&page, &row.at);
        let is_past = |key: &str| !self.is_disordered && row.until.as_deref().is_some_and(|until| until < key);
        let is_met = |key: &String| self.begun.contains(key) && *key != row.first;
        let end = page.listed.iter().position(|listed| is_met(&listed.key) || is_past(&listed.key));
        if end.is_some_and(|end| !is_met(&page.listed[end].key)) {
            row.held = Some(page);
            return Vec::new();
        }
        page.listed.truncate(end.unwrap_or(page.listed.len()));
        if let Some(last) = page.listed.iter().map(|listed| &listed.key).max().filter(|last| **last > row.at) {
            row.at.clone_from(last);
        }
        row.is_over = end.is_some() || page.next.is_none();
        row.next = page.next;
        let (is_over, at) = (row.is_over, row.at.clone());
        self.pages += 1;
        self.keys += page.listed.len() as u64;
        if !is_over && !at.is_empty() {
            self.look_around(&at);
        }
        page.listed
    }

    /// A row that went past its end was right if the server passes over the key where it did: then keys come in
    /// another order than ours. Otherwise the first keys of the next row are gone, and it has told the rest.
    fn take_end(&mut self, number: usize, mut page: Page) -> Vec<Listed> {
        let row = &mut self.rows[number];
        let (held, until) = (row.held.take().expect("it waits for this"), row.until.clone().expect("it went past it"));
        let past = held.listed.iter().map(|listed| &listed.key).find(|key| **key > until).expect("it went past it");
        page.listed.retain(|listed| listed.key != until);
        let is_known = page.listed.iter().any(|listed| listed.key == *past);
        let begins = page.listed.first().map(|first| &first.key).filter(|first| !is_known && *first < past);
        self.is_disordered |= begins.is_some();
        self.begun.insert(begins.unwrap_or(past).clone());
        self.take_page(number, held)
    }

    /// The first page of a new row, which counts if it begins where it was to and nobody has told its keys.
    fn take_split(&mut self, place: &str, page: Result<Page>) -> Result<Vec<Listed>> {
        self.splitting.retain(|other| other != place);
        let before = self.rows.iter().position(|row| row.covers(place)).filter(|_| !self.is_disordered);
        let Some(before) = before else { return Ok(Vec::new()) };
        let mut page = match page {
            Err(error) if matches!(error.kind, Kind::Denied | Kind::Invalid) => {
                self.broken += 1;
                return Ok(Vec::new());
            }
            page => page?,
        };
        // Some tell the place itself again.
        page.listed.retain(|listed| listed.key != place);
        let first = page.listed.first().map(|first| first.key.clone());
        let is_new = |first: &String| !self.rows.iter().any(|row| row.has_told(first));
        let Some(first) = first.filter(|first| is_ascending(&page, place) && is_new(first)) else {
            self.broken += 1;
            return Ok(Vec::new());
        };
        let until = self.rows[before].until.replace(place.to_owned());
        let (from, at) = (place.to_owned(), place.to_owned());
        self.begun.insert(first.clone());
        self.rows.push(Row { from, first, until, at, is_asked: true, ..Row::default() });
        Ok(self.take_page(self.rows.len() - 1, page))
    }
}

impl Plan for Rows {
    fn next(&mut self, _requests: usize) -> Option<Task> {
        let row = self.rows.iter().position(|row| !row.is_over && !row.is_asked);
        let row = row.map(|row| if self.rows[row].held.is_some() { Step::End(row) } else { Step::Row(row) });
        let step = row.or_else(|| self.split().map(Step::Split)).or_else(|| self.probe().map(Step::Folders))?;
        Some(self.task(step))
    }

    fn learn(&mut self, number: usize, page: Result<Page>) -> Result<Vec<Listed>> {
        match self.asked.remove(&number).expect("each request is answered once") {
            Step::Row(row) => Ok(self.take_page(row, page?)),
            Step::End(row) => Ok(self.take_end(row, page?)),
            Step::Split(place) => self.take_split(&place, page),
            Step::Folders(folder) => self.take_folders(folder, page).map(|()| Vec::new()),
        }
    }
}

/// Whether keys come in our order, behind those that were told.
fn is_ascending(page: &Page, told: &str) -> bool {
    page.listed.is_sorted_by(|one, next| one.key <= next.key)
        && page.listed.first().is_none_or(|first| *first.key >= *told)
}
