//! Listing a folder with several threads, for on a network each question waits for its own answer.
//!
//! Folders that wait are a stack, so that a tree is walked in depth and few wait at a time; pages go
//! through a channel of few, so that a slow reader slows the walk.
//!
//! A file system that hangs keeps its threads until it answers: a listing that waits for one is given up, and no other
//! of the same folder begins before that, unless another file system is mounted there by then.
//!
//! Invariant: each file that can be served once for each way to it; a folder that can't be read is an
//! error, not a gap.

use super::{ANSWERS_WITHIN, Root, failed, path_of, silent, size, times_ns, version_at};
use crate::{Counters, Listed, Pages};
use block::{Error, Result};
use futures_util::stream::{self, StreamExt};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Files of a page.
const PAGE: usize = 1000;

/// Pages that wait for the reader.
const PAGES_WAITING: usize = 16;

/// Links to folders on the way to one file. More are a maze rather than a dataset.
const LINKS_DEEP: usize = 4;

/// The pages of a listing.
pub fn pages(root: Arc<Root>, prefix: &str) -> Pages {
    if hung().get(&root.place()).is_some_and(|(_, from)| *from <= Instant::now()) {
        return stream::iter([Err(silent(&root.identity))]).boxed();
    }
    let (sender, pages) = mpsc::channel(PAGES_WAITING);
    let mut listing = Listing { pages, folder: root.place(), walk: Weak::new(), entries: Arc::default() };
    let start = prefix.rsplit_once('/').map_or("", |(start, _)| start);
    if start.is_empty() && !prefix.starts_with('/') || path_of(start).is_some() {
        let first = Pending { path: start.to_owned(), above: None, links: 0 };
        let stack = Mutex::new(Stack { pending: vec![first], busy: 0, is_over: false });
        let (prefix, changed, entries) = (prefix.to_owned(), Condvar::new(), listing.entries.clone());
        let walk = Arc::new(Walk { root, prefix, stack, changed, sender, entries });
        listing.walk = Arc::downgrade(&walk);
        begin(walk);
    }
    stream::unfold(listing, Listing::next).boxed()
}

/// The pages of a walk, for whoever reads them. It must not keep the walk alive, which ends them.
struct Listing {
    pages: mpsc::Receiver<Result<Vec<Listed>>>,
    folder: Place,
    walk: Weak<Walk>,
    /// Names that the walk has seen.
    entries: Arc<AtomicU64>,
}

impl Drop for Listing {
    /// Threads that wait for a folder to list end with the listing. One that is still there after a while hangs.
    fn drop(&mut self) {
        if let Some(walk) = self.walk.upgrade() {
            walk.stop();
            hung().entry(self.folder.clone()).or_insert((self.walk.clone(), Instant::now() + ANSWERS_WITHIN));
        }
    }
}

impl Listing {
    /// The next page, or that the folder has not answered for so long.
    async fn next(mut self) -> Option<(Result<Vec<Listed>>, Listing)> {
        loop {
            let before = self.entries.load(Relaxed);
            if let Ok(page) = tokio::time::timeout(ANSWERS_WITHIN, self.pages.recv()).await {
                return Some((page?, self));
            }
            // A walk that is over has sent all of its pages.
            let Some(walk) = self.walk.upgrade().filter(|_| self.entries.load(Relaxed) == before) else { continue };
            walk.stop();
            hung().insert(self.folder.clone(), (self.walk.clone(), Instant::now()));
            self.pages.close();
            return Some((Err(silent(&self.folder.0)), self));
        }
    }
}

/// A folder and the file system that it lies on.
type Place = (Arc<str>, u64);

/// Walks that were given up and still wait for their file system, and from when on they are said to hang.
type Walks = BTreeMap<Place, (Weak<Walk>, Instant)>;

fn hung() -> MutexGuard<'static, Walks> {
    static HUNG: Mutex<Walks> = Mutex::new(BTreeMap::new());
    let mut hung = HUNG.lock().unwrap_or_else(PoisonError::into_inner);
    hung.retain(|_, (walk, _)| walk.strong_count() > 0);
    hung
}

impl Root {
    fn place(&self) -> Place {
        (self.identity.clone(), self.device)
    }
}

fn begin(walk: Arc<Walk>) {
    for number in 0..walk.root.settings.list_threads.max(1) {
        let one = walk.clone();
        let named = std::thread::Builder::new().name(format!("list-{number}"));
        if let Err(error) = named.spawn(move || one.run()) {
            // The threads that did start list everything; without any, the listing would hang.
            if number == 0 {
                let error = Error::io("no thread can be started", &*walk.root.identity, &error);
                let _ = walk.sender.try_send(Err(error));
            }
            return;
        }
    }
}

/// What the file system answered.
type Asked<T> = rustix::io::Result<T>;

/// What is there, if anything is: names go at any time. A failure of another kind may hide a file that is there.
fn present<T>(asked: Asked<T>) -> Asked<Option<T>> {
    match asked {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        asked => asked.map(Some),
    }
}

struct Walk {
    root: Arc<Root>,
    prefix: String,
    stack: Mutex<Stack>,
    changed: Condvar,
    sender: mpsc::Sender<Result<Vec<Listed>>>,
    entries: Arc<AtomicU64>,
}

struct Stack {
    pending: Vec<Pending>,
    /// Threads that may still find folders.
    busy: usize,
    is_over: bool,
}

/// A folder to be listed.
struct Pending {
    path: String,
    /// The folders above it, to notice circles of links.
    above: Option<Arc<Above>>,
    links: usize,
}

struct Above {
    device: u64,
    inode: u64,
    above: Option<Arc<Above>>,
}

impl Above {
    fn of(stat: &Stat, above: Option<Arc<Above>>) -> Arc<Above> {
        Arc::new(Above { device: stat.st_dev, inode: stat.st_ino, above })
    }

    fn holds(&self, stat: &Stat) -> bool {
        let mut next = Some(self);
        while let Some(at) = next {
            if (at.device, at.inode) == (stat.st_dev, stat.st_ino) {
                return true;
            }
            next = at.above.as_deref();
        }
        false
    }
}

impl Walk {
    fn run(&self) {
        let mut page = Vec::new();
        while let Some(folder) = self.next(&mut page) {
            let listed = self.folder(&folder, &mut page);
            self.stack().busy -= 1;
            self.changed.notify_all();
            if let Err(error) = listed {
                self.stop();
                let _ = self.sender.blocking_send(Err(error));
                return;
            }
        }
    }

    /// The next folder; none when all are done. A page is not held back while waiting.
    fn next(&self, page: &mut Vec<Listed>) -> Option<Pending> {
        loop {
            let mut stack = self.stack();
            if stack.is_over {
                return None;
            }
            if let Some(folder) = stack.pending.pop() {
                stack.busy += 1;
                return Some(folder);
            }
            if !page.is_empty() {
                drop(stack);
                self.send(std::mem::take(page));
                continue;
            }
            if stack.busy == 0 {
                return None;
            }
            drop(self.changed.wait(stack));
        }
    }

    fn folder(&self, folder: &Pending, page: &mut Vec<Listed>) -> Result<()> {
        let on = format!("{}/{}", self.root.identity, folder.path);
        let path = if folder.path.is_empty() { "." } else { &folder.path };
        let open = self.root.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC);
        let directory = match open {
            Ok(directory) => directory,
            // It went away in between, or a prefix names a folder that never was.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(failed("the folder can't be opened", on, errno)),
        };
        let ask = |errno| failed("the folder can't be read", &on, errno);
        let above = Above::of(&rustix::fs::fstat(&directory).map_err(ask)?, folder.above.clone());
        let now = (self.root.settings.now)();
        for entry in Dir::read_from(&directory).map_err(ask)? {
            let entry = entry.map_err(ask)?;
            self.entries.fetch_add(1, Relaxed);
            let Ok(name) = entry.file_name().to_str() else {
                self.skip(&format!("{on}/{}", entry.file_name().to_string_lossy()), "its name is not UTF-8");
                continue;
            };
            if matches!(name, "." | "..") {
                continue;
            }
            let key = if folder.path.is_empty() { name.to_owned() } else { format!("{}/{name}", folder.path) };
            let found = self.entry(&directory, &key, name, entry.file_type(), (folder, &above));
            let wrong = |errno| failed("the file can't be looked at", format!("{}/{key}", self.root.identity), errno);
            let Some(found) = found.map_err(wrong)? else { continue };
            let (modified, _) = times_ns(&found);
            let modified_ns = i64::try_from(modified).unwrap_or(i64::MAX);
            page.push(Listed { key, version: version_at(&found, now), size: size(&found), modified_ns });
            if page.len() >= PAGE {
                self.send(std::mem::take(page));
                if self.sender.is_closed() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The file that an entry is or leads to; folders are put on the stack.
    fn entry(
        &self,
        at: &OwnedFd,
        key: &str,
        name: &str,
        kind: FileType,
        from: (&Pending, &Arc<Above>),
    ) -> Asked<Option<Stat>> {
        let (folder, above) = from;
        let push = |links| self.push(Pending { path: key.to_owned(), above: Some(above.clone()), links });
        if kind == FileType::Directory {
            push(folder.links);
            return Ok(None);
        }
        if kind != FileType::Symlink && !key.starts_with(&self.prefix) {
            return Ok(None);
        }
        let Some(stat) = present(rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW))? else { return Ok(None) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return Ok(key.starts_with(&self.prefix).then_some(stat)),
            FileType::Directory => push(folder.links),
            FileType::Symlink => {
                let Some(stat) = self.target(key)? else { return Ok(None) };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => return Ok(key.starts_with(&self.prefix).then_some(stat)),
                    FileType::Directory if above.holds(&stat) => self.skip(key, "it closes a circle"),
                    FileType::Directory if folder.links >= LINKS_DEEP => self.skip(key, "too many links lead to it"),
                    FileType::Directory => push(folder.links + 1),
                    _ => self.skip(key, "it is no file"),
                }
            }
            _ => self.skip(key, "it is no file"),
        }
        Ok(None)
    }

    /// What a link leads to, if that lies below the folder.
    fn target(&self, key: &str) -> Asked<Option<Stat>> {
        let opened = self.root.open_below(key, OFlags::PATH | OFlags::CLOEXEC);
        let why = match present(opened.and_then(|target| rustix::fs::fstat(&target))) {
            Ok(Some(stat)) => return Ok(Some(stat)),
            Ok(None) => "it is a link to nowhere",
            Err(Errno::XDEV) => "it is a link out of the folder; mount the folder above, or copy the files",
            Err(errno) => return Err(errno),
        };
        self.skip(key, why);
        Ok(None)
    }

    /// Put a folder on the stack if the prefix leads into it or through it.
    fn push(&self, folder: Pending) {
        let path = format!("{}/", folder.path);
        if path.starts_with(&self.prefix) || self.prefix.starts_with(&path) {
            self.stack().pending.push(folder);
            self.changed.notify_one();
        }
    }

    fn skip(&self, key: &str, why: &str) {
        Counters::add(&self.root.counters.skipped, 1);
        tracing::warn!(key, why, "left out of the listing");
    }

    fn send(&self, page: Vec<Listed>) {
        Counters::add(&self.root.counters.lists, 1);
        if self.sender.blocking_send(Ok(page)).is_err() {
            self.stop();
        }
    }

    fn stop(&self) {
        self.stack().is_over = true;
        self.changed.notify_all();
    }

    fn stack(&self) -> MutexGuard<'_, Stack> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_is_passed_over() {
        for errno in [Errno::NOENT, Errno::NOTDIR, Errno::LOOP] {
            assert_eq!(present::<()>(Err(errno)), Ok(None));
        }
        for errno in [Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::ACCESS, Errno::NOTCONN] {
            assert_eq!(present::<()>(Err(errno)), Err(errno));
        }
        assert_eq!(present(Ok(1)), Ok(Some(1)));
    }
}
