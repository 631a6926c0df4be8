//! A read-through view of a folder: each name is looked up and each file is read where it lies, and taken down.
//!
//! Deliberately without a cache of its own, and without pages in the kernel: a read that is not seen is not recorded.
//! Unlike a data set of a node, names are asked of the folder while a thread of the mount waits; there are more threads
//! for that. Links are followed. Invariant: an open file is the version of its last lookup.

use crate::Recorder;
use block::{Error, Result};
use node::namespace::{Attributes, Content, Opening, Pieces, ROOT, Reading};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::IoSliceMut;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::runtime::Handle;
use trace::What;

/// Listings kept while a program goes through them: as many folders as it may list at the same moment.
const LISTINGS_MAX: usize = 16;

/// The folder, seen from above.
pub struct Mirror {
    folder: Arc<Folder>,
    /// What the kernel knows, by node.
    nodes: RwLock<HashMap<u64, Node>>,
    listings: Mutex<VecDeque<(u64, Arc<Listing>)>>,
    recorder: Arc<Recorder>,
    runtime: Handle,
}

/// Names of a folder in the order in which the file system gave them.
type Listing = Vec<Vec<u8>>;

/// The folder itself, opened before anything was laid over it.
struct Folder(OwnedFd);

struct Node {
    /// Relative to the folder, without a slash at either end.
    path: Arc<[u8]>,
    attributes: Attributes,
    lookups: i64,
    executable: bool,
    /// Place in the last listing of its folder, from 1.
    listed: u32,
}

impl Mirror {
    pub fn new(folder: OwnedFd, recorder: Arc<Recorder>, runtime: Handle) -> Mirror {
        let folder = Arc::new(Folder(folder));
        Mirror { folder, nodes: RwLock::default(), listings: Mutex::default(), recorder, runtime }
    }

    fn path(&self, node: u64) -> Option<Arc<[u8]>> {
        if node == ROOT {
            return Some(Arc::default());
        }
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(&node).map(|node| node.path.clone())
    }

    /// What lies at a path, entered among the nodes with these lookups more; `None` if it is nothing to read.
    fn enter(&self, path: Vec<u8>, lookups: i64, listed: Option<u32>) -> Option<Attributes> {
        let stat = self.folder.stat(&path)?;
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let mut number = number_of(&path);
        while number <= ROOT || nodes.get(&number).is_some_and(|node| *node.path != *path) {
            number = number.wrapping_add(1);
        }
        let attributes = attributes(number, &stat)?;
        let node = nodes.entry(number).or_insert_with(|| Node {
            path: path.into(),
            attributes,
            lookups: 0,
            executable: false,
            listed: 0,
        });
        node.attributes = attributes;
        node.executable = stat.st_mode & 0o111 != 0;
        node.lookups += lookups;
        node.listed = listed.unwrap_or(node.listed);
        Some(attributes)
    }

    /// The listing of a folder: a new one for who begins, else the one that was begun.
    fn listing(&self, folder: u64, path: &[u8], from: u64) -> Option<Arc<Listing>> {
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let known = listings.iter().position(|(known, _)| *known == folder);
        if let (Some(place), true) = (known, from > 0) {
            return Some(listings[place].1.clone());
        }
        if let Some(place) = known {
            listings.remove(place);
        }
        drop(listings);
        let listing = Arc::new(self.folder.names(path)?);
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if listings.len() >= LISTINGS_MAX {
            listings.pop_front();
        }
        listings.push_back((folder, listing.clone()));
        Some(listing)
    }
}

impl node::namespace::Namespace for Mirror {
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<Attributes> {
        self.enter(joined(&self.path(parent)?, name), 1, None)
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        if node == ROOT {
            return attributes(ROOT, &self.folder.stat(b"")?);
        }
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(&node).map(|node| node.attributes)
    }

    fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        let Some(path) = self.path(folder) else { return false };
        let Some(listing) = self.listing(folder, &path, from) else { return false };
        for (place, name) in listing.iter().enumerate().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            let next = place as u64 + 1;
            let place = u32::try_from(next).unwrap_or(u32::MAX);
            let child = self.enter(joined(&path, name), 0, Some(place));
            if child.is_some_and(|child| !each(next, name, child)) {
                break;
            }
        }
        true
    }

    fn executable(&self, node: u64) -> bool {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(&node).is_some_and(|node| node.executable)
    }

    fn remember(&self, node: u64, lookups: i64) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = nodes.get_mut(&node) else { return };
        entry.lookups = entry.lookups.saturating_add(lookups);
        if entry.lookups <= 0 && lookups < 0 {
            nodes.remove(&node);
        }
    }

    fn open(&self, node: u64) -> Opening {
        self.open_by(node, 0)
    }

    fn open_by(&self, node: u64, thread: u32) -> Opening {
        let begun = self.recorder.begin(thread, None);
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = nodes.get(&node) else {
            return Opening::Ready(Err(Error::changed("the file is no longer known", node)));
        };
        let (path, listed, known) = (entry.path.clone(), entry.listed, entry.attributes);
        drop(nodes);
        let (folder, recorder, runtime) = (self.folder.clone(), self.recorder.clone(), self.runtime.clone());
        let finish = move |file: OwnedFd, path: Arc<[u8]>| -> Result<Arc<dyn Content>> {
            let file = checked(file, &path, &known)?;
            let open = recorder.open();
            recorder.answered(begun, node, open, What::Open { path, size: known.size, listed });
            let opener = (begun.thread, begun.process);
            Ok(Arc::new(Observed { file: Arc::new(file), node, open, opener, recorder, runtime }))
        };
        match folder.open(&path, ResolveFlags::CACHED) {
            Ok(file) => Opening::Ready(finish(file, path)),
            // Whatever it is, it is tried again where it may wait.
            Err(_) => {
                let runtime = self.runtime.clone();
                let work = move || {
                    let file = folder.open(&path, ResolveFlags::empty());
                    let on = String::from_utf8_lossy(&path).into_owned();
                    finish(file.map_err(|errno| Error::io("opening a file", on, &errno.into()))?, path)
                };
                Opening::Waiting(Box::pin(async move { runtime.spawn_blocking(work).await.map_err(stopped)? }))
            }
        }
    }
}

impl Folder {
    fn stat(&self, path: &[u8]) -> Option<Stat> {
        rustix::fs::statat(&self.0, or_itself(path), AtFlags::empty()).ok()
    }

    fn open(&self, path: &[u8], how: ResolveFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.0, or_itself(path), flags, Mode::empty(), how) {
            // Linux before 5.12 doesn't know the flag, and before 5.6 not the call.
            Err(Errno::NOSYS) if how.is_empty() => rustix::fs::openat(&self.0, or_itself(path), flags, Mode::empty()),
            done => done,
        }
    }

    fn names(&self, path: &[u8]) -> Option<Listing> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.0, or_itself(path), flags, Mode::empty()).ok()?;
        let names = Dir::new(folder).ok()?.filter_map(|entry| Some(entry.ok()?.file_name().to_bytes().to_vec()));
        Some(names.filter(|name| name != b"." && name != b"..").collect())
    }
}

/// An open file.
struct Observed {
    file: Arc<File>,
    node: u64,
    open: u64,
    /// The thread that opened it, and its process.
    opener: (u32, u32),
    recorder: Arc<Recorder>,
    runtime: Handle,
}

impl Content for Observed {
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn cacheable(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, length: u32) -> Reading {
        self.read_by(offset, length, 0)
    }

    fn read_by(&self, offset: u64, length: u32, thread: u32) -> Reading {
        let begun = self.recorder.begin(thread, Some(self.opener));
        let (recorder, node, open) = (self.recorder.clone(), self.node, self.open);
        let answered = move || recorder.answered(begun, node, open, What::Read { offset, length });
        let mut bytes = vec![0; length as usize];
        let at_once =
            rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(&mut bytes)], offset, ReadWriteFlags::NOWAIT);
        if at_once == Ok(bytes.len()) {
            answered();
            return Reading::Ready(Ok(vec![bytes.into()]));
        }
        let (file, runtime) = (self.file.clone(), self.runtime.clone());
        let work = move || -> Result<Pieces> {
            let read = file.read_exact_at(&mut bytes, offset);
            read.map_err(|error| Error::io("reading a file", format!("{length} bytes at {offset}"), &error))?;
            answered();
            Ok(vec![bytes.into()])
        };
        Reading::Waiting(Box::pin(async move { runtime.spawn_blocking(work).await.map_err(stopped)? }))
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let begun = self.recorder.begin(self.opener.0, Some(self.opener));
        self.recorder.answered(begun, self.node, self.open, What::Close);
    }
}

fn stopped(_: tokio::task::JoinError) -> Error {
    Error::unavailable("the observation is ending", "a read")
}

/// The opened file, if it is still what the kernel knows.
fn checked(file: OwnedFd, path: &[u8], known: &Attributes) -> Result<File> {
    let now = rustix::fs::fstat(&file).ok().and_then(|stat| attributes(known.node, &stat));
    if now.is_some_and(|now| (now.size, now.modified_ns) == (known.size, known.modified_ns)) {
        return Ok(file.into());
    }
    // The kernel then looks the name up again, and opens what is there now.
    Err(Error::changed("the file changed since its name was looked up", String::from_utf8_lossy(path)))
}

/// A number that is the same each time the path is seen: nodes that were forgotten are the same file again.
fn number_of(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(path);
    hasher.finish()
}

fn attributes(node: u64, stat: &Stat) -> Option<Attributes> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let folder = match kind {
        FileType::Directory => true,
        FileType::RegularFile => false,
        _ => return None,
    };
    let modified_ns = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64);
    let size = if folder { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) };
    let folders = if folder { u32::try_from(stat.st_nlink).unwrap_or(u32::MAX).saturating_sub(2) } else { 0 };
    Some(Attributes { node, folder, size, modified_ns, folders })
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

fn or_itself(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}
