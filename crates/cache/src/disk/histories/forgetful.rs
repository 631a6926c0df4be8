//! A disk that forgets: a file system in memory that keeps apart what the kernel shows and what lies on the disk, and
//! drops any part of the difference when the power goes.
//!
//! [`Forgetful`] outlives the programs that use it. Each of them has a [`Process`], the medium that it was started with:
//! once it was killed, nothing that it still does reaches the disk. Names go back to any state in between: what happened
//! to one name is undone from its end, and a rename wholly or not at all.

mod process;

pub use process::{Open, Process};

use super::chance::Chance;
use super::pages::{PAGE, Pages};
use super::weather::Weather;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::Result;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the log and the ends of pages may take of what has to stay free.
const LOG_BYTES: u64 = 128 << 10;

/// A file, whether it has a name or is only open.
pub struct Inode {
    pub number: u64,
    is_object: bool,
    pages: Mutex<Pages>,
    opens: AtomicUsize,
    links: AtomicUsize,
    /// Whether the kernel was given it to read from: nobody may write it any more.
    pub is_given_out: AtomicBool,
}

impl Inode {
    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_alive(&self) -> bool {
        self.links.load(Relaxed) + self.opens.load(Relaxed) > 0
    }
}

#[derive(Clone)]
enum Entry {
    Folder,
    File(Arc<Inode>),
}

type Names = BTreeMap<String, Entry>;

/// What some names mean from then on; nothing if they are gone.
type Change = Vec<(String, Option<Entry>)>;

#[derive(Default)]
pub struct Forgetful(Mutex<State>);

#[derive(Default)]
pub struct State {
    names: Names,
    kept: Names,
    /// What happened to names and has not reached the disk, the oldest first.
    changes: Vec<Change>,
    inodes: u64,
    used_pages: u64,
    /// What the file system holds at most, and what others put there.
    pub bytes_max: u64,
    pub others_bytes: u64,
    pub files_max: u64,
    /// What files of objects may not take, as long as nobody else takes anything.
    pub free_bytes_min: u64,
    mount: u64,
    pub weather: Weather,
    /// What was done that must never be.
    pub crime: Option<String>,
    /// What was done to files and names, if somebody wants to read it.
    pub story: Option<Vec<String>>,
    /// Files that lost their name since somebody took these.
    pub unlinked: Vec<(String, Arc<Inode>)>,
}

impl Forgetful {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Files below a folder, by their paths.
    pub fn files(&self, folder: &str) -> Vec<(String, Arc<Inode>)> {
        let below = self.names.iter().filter(|(path, _)| path.starts_with(folder));
        below.filter_map(|(path, entry)| Some((path.clone(), entry.file()?))).collect()
    }

    pub fn free_bytes(&self) -> u64 {
        self.bytes_max.saturating_sub(self.others_bytes + self.used_pages * PAGE)
    }

    /// The kernel writes back some of what is dirty.
    pub fn write_back(&mut self, chance: &mut Chance, one_in: u64) {
        for (_, inode) in self.files("") {
            inode.pages().write_back(chance, one_in);
        }
        let done = if chance.one_in(one_in) { self.changes.len() } else { 0 };
        for (path, entry) in self.changes.drain(..done).flatten() {
            set(&mut self.kept, path, entry);
        }
    }

    /// The power goes, or the file system goes away: what did not reach the disk is lost, but for one part in so many.
    pub fn lose(&mut self, chance: &mut Chance, one_in: u64) {
        let mut undone: Vec<String> = Vec::new();
        for change in std::mem::take(&mut self.changes) {
            let follows = change.iter().any(|(path, _)| undone.iter().any(|gone| path.starts_with(gone)));
            if follows || !chance.one_in(one_in) {
                undone.extend(change.into_iter().map(|(path, _)| path));
            } else {
                for (path, entry) in change {
                    set(&mut self.kept, path, entry);
                }
            }
        }
        // A folder comes before what lies in it.
        let mut folders: Vec<String> = Vec::new();
        self.kept.retain(|path, entry| {
            let has_parent = path == "/" || folders.iter().any(|folder| folder == parent(path));
            if has_parent && entry.file().is_none() {
                folders.push(path.clone());
            }
            has_parent
        });
        self.files("").iter().for_each(|(_, inode)| inode.links.store(0, Relaxed));
        self.names = self.kept.clone();
        self.used_pages = 0;
        for (_, inode) in self.files("") {
            if inode.links.fetch_add(1, Relaxed) == 0 {
                inode.pages().lose(chance, one_in);
                self.used_pages += inode.pages().count();
            }
        }
        self.mount += 1;
    }

    /// Somebody else takes a file or a folder away.
    pub fn take_away(&mut self, path: &str) {
        let below = format!("{path}/");
        let gone: Vec<String> =
            self.names.keys().filter(|name| *name == path || name.starts_with(&below)).cloned().collect();
        for name in gone.into_iter().rev() {
            self.change(vec![(name, None)]);
        }
    }

    /// Somebody else puts a file somewhere.
    pub fn put(&mut self, path: &str, bytes: &[u8]) {
        if matches!(self.names.get(parent(path)), Some(Entry::Folder)) && !self.names.contains_key(path) {
            let inode = self.inode(path);
            inode.pages().write(bytes, 0);
            self.used_pages += inode.pages().count();
            self.change(vec![(path.to_owned(), Some(Entry::File(inode)))]);
        }
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    fn inode(&mut self, path: &str) -> Arc<Inode> {
        self.inodes += 1;
        let (pages, opens, links, is_given_out) = Default::default();
        Arc::new(Inode {
            number: self.inodes,
            is_object: path.contains("/objects/"),
            pages,
            opens,
            links,
            is_given_out,
        })
    }

    fn change(&mut self, change: Change) {
        if let Some(story) = &mut self.story {
            let line =
                |(path, entry): &(String, Option<Entry>)| format!("{} {path}", if entry.is_some() { '+' } else { '-' });
            story.extend(change.iter().map(line));
        }
        for (path, entry) in &change {
            if let Some(Entry::File(inode)) = entry {
                inode.links.fetch_add(1, Relaxed);
            }
            if let Some(Entry::File(inode)) = set(&mut self.names, path.clone(), entry.clone()) {
                inode.links.fetch_sub(1, Relaxed);
                if inode.links.load(Relaxed) == 0 {
                    self.release(&inode);
                    self.unlinked.push((path.clone(), inode));
                }
            }
        }
        self.changes.push(change);
    }

    /// A file lost a name or a descriptor: its space is free once it has neither.
    fn release(&mut self, inode: &Inode) {
        if !inode.is_alive() {
            self.used_pages = self.used_pages.saturating_sub(inode.pages().count());
        }
    }

    fn file(&self, path: &str) -> Result<Arc<Inode>> {
        match self.names.get(path) {
            Some(Entry::File(inode)) => Ok(inode.clone()),
            Some(Entry::Folder) => Err(Errno::ISDIR.into()),
            None => Err(self.absence(path).into()),
        }
    }

    /// Why there is nothing at a path.
    fn absence(&self, path: &str) -> Errno {
        match self.names.get(parent(path)) {
            Some(Entry::File(_)) => Errno::NOTDIR,
            None if path != "/" && self.absence(parent(path)) == Errno::NOTDIR => Errno::NOTDIR,
            _ => Errno::NOENT,
        }
    }

    fn create(&mut self, path: &str) -> Result<Arc<Inode>> {
        if !matches!(self.names.get(parent(path)), Some(Entry::Folder)) {
            return Err(self.absence(path).into());
        }
        if self.names.len() as u64 >= self.files_max {
            return Err(Errno::NOSPC.into());
        }
        let inode = self.inode(path);
        self.change(vec![(path.to_owned(), Some(Entry::File(inode.clone())))]);
        Ok(inode)
    }

    fn make_folder(&mut self, path: &str) -> Result<()> {
        match self.names.get(path) {
            Some(Entry::Folder) => return Ok(()),
            Some(Entry::File(_)) => return Err(Errno::EXIST.into()),
            None if path == "/" => {}
            None if parent(path) == "/" => self.make_folder("/")?,
            None if !self.names.contains_key(parent(path)) => return Err(Errno::NOENT.into()),
            None => {}
        }
        self.change(vec![(path.to_owned(), Some(Entry::Folder))]);
        Ok(())
    }

    /// Write as much as there is space for; nothing at all is an error.
    fn write(&mut self, inode: &Inode, bytes: &[u8], at: u64) -> Result<usize> {
        if inode.is_given_out.load(Relaxed) {
            self.crime = Some(format!("file {} was written after it was called complete", inode.number));
        }
        let room = self.free_bytes() + (PAGE - at % PAGE) % PAGE;
        let length = (bytes.len() as u64).min(room) as usize;
        if length == 0 && !bytes.is_empty() {
            return Err(Errno::NOSPC.into());
        }
        let mut pages = inode.pages();
        let before = pages.count();
        pages.write(&bytes[..length], at);
        let more = pages.count() - before;
        self.used_pages += more;
        if more > 0 && inode.is_object && self.free_bytes() + LOG_BYTES < self.free_bytes_min {
            self.crime = Some(format!("a file was written although only {} bytes were free", self.free_bytes()));
        }
        Ok(length)
    }
}

impl Entry {
    fn file(&self) -> Option<Arc<Inode>> {
        match self {
            Entry::File(inode) => Some(inode.clone()),
            Entry::Folder => None,
        }
    }
}

fn set(names: &mut Names, path: String, entry: Option<Entry>) -> Option<Entry> {
    match entry {
        Some(entry) => names.insert(path, entry),
        None => names.remove(&path),
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(parent, _)| if parent.is_empty() { "/" } else { parent })
}
