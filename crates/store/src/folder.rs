//! A folder as a store: a local disk, or a file system over a network (NFS, Lustre).
//!
//! Keys are paths below the folder. Rules, because a file system has more than a store:
//! - A version is (mtime, ctime, size, inode), compared before and after each read. One that was taken less
//!   than two seconds after a change is unsettled: a further change in the same tick of the file system's
//!   clock would leave no trace, so such bytes are served and not kept.
//! - Symbolic links are followed as far as they stay below the folder: to files, and to folders unless that
//!   closes a circle. A link that leads out, or nowhere, is left out of the listing.
//! - Names that are not UTF-8, sockets, pipes and devices are left out as well. What is left out is counted
//!   (`skipped`) and logged.
//!
//! Layout: `walk` (listing), `write` (files that are made here), `system` (which file systems are local).
//!
//! Invariant: nothing outside the folder is ever opened, whatever links or names say.

mod system;
mod turns;
mod walk;
mod write;

pub use system::FileSystem;

use crate::counters::InFlight;
use crate::{Body, Counters, Pages, Store, UNSETTLED, unmarked};
use block::{Checksum, Error, Object, Result, Waiting};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use turns::Turn;

/// Bytes of one read: a small object, so that it is one system call.
const PIECE: u64 = block::SMALL;

/// A file that was touched less long ago is unsettled. The coarsest clock of a file system still in use
/// (FAT, old ext3 over NFS) ticks every two seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Times that opening is tried while somebody renames folders on the way, which the kernel reports.
const OPEN_TRIES: u32 = 8;

/// How long a folder may take to be found, or to name the next file of a listing: one of a network never does while its
/// server doesn't answer.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How to use a folder.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Threads that list. On a network each waits for its own round trip.
    pub list_threads: usize,
    /// Tells the time that changes are compared with.
    pub now: fn() -> SystemTime,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { list_threads: 8, now: SystemTime::now }
    }
}

/// A folder.
#[derive(Clone)]
pub struct Folder(Arc<Root>);

struct Root {
    identity: Arc<str>,
    /// The number of its file system, which is no other's while the descriptor is open.
    device: u64,
    path: PathBuf,
    descriptor: OwnedFd,
    system: FileSystem,
    counters: Arc<Counters>,
    settings: Settings,
}

impl Folder {
    /// The folder at this path, which has to be there.
    pub fn at(path: &Path, settings: Settings) -> Result<Folder> {
        let on = path.display();
        let lost = |error: std::io::Error| {
            let is_absent = error.kind() == std::io::ErrorKind::NotFound;
            let error = Error::io("the folder can't be found", &on, &error);
            if is_absent { error.hint("check the name; a bucket is s3://bucket/prefix") } else { error }
        };
        let path = path.canonicalize().map_err(lost)?;
        if path.is_file() {
            return Err(Error::invalid("this is a file and not a folder", &on).hint("name the folder that it lies in"));
        }
        let descriptor = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let descriptor = descriptor.map_err(|errno| failed("the folder can't be opened", &on, errno))?;
        let ask = |errno| failed("the file system can't be asked", &on, errno);
        let system = FileSystem::of(rustix::fs::fstatfs(&descriptor).map_err(ask)?.f_type);
        let device = rustix::fs::fstat(&descriptor).map_err(ask)?.st_dev;
        let Some(text) = path.to_str() else {
            return Err(Error::invalid("the path of the folder is not UTF-8", &on)
                .hint("rename it, or bind it to another path"));
        };
        let identity = format!("file://{text}").into();
        let counters = Arc::default();
        Ok(Folder(Arc::new(Root { identity, device, path, descriptor, system, counters, settings })))
    }

    /// Where the folder lies: local files are read through, those of a network are worth keeping.
    pub fn system(&self) -> FileSystem {
        self.0.system
    }

    /// The canonical path of the folder.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The next turn to read from its file system, for whoever does so on a thread.
    pub async fn turn(&self) -> Turn {
        Turn::of(self.0.device).await
    }

    /// A read-only descriptor of the whole file, which is of this very version. Who reads from it has to
    /// compare again: a file system does not keep versions.
    pub fn open(&self, object: &Object) -> Result<OwnedFd> {
        self.0.open(object)
    }
}

impl Store for Folder {
    fn identity(&self) -> &Arc<str> {
        &self.0.identity
    }

    fn list(&self, prefix: &str) -> Pages {
        walk::pages(self.0.clone(), prefix)
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        let reading = Reading { root: self.0.clone(), object: object.clone(), range };
        Box::pin(reading.begin())
    }

    /// A file system says nothing about the bytes of a file.
    fn checksum(&self, _object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.0.counters
    }
}

impl Root {
    fn open(&self, object: &Object) -> Result<OwnedFd> {
        let path = path_of(&object.key).ok_or_else(|| Error::missing("there is no such file", object))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.open_below(path, flags);
        let file = opened.map_err(|errno| match errno {
            Errno::XDEV | Errno::LOOP => Error::denied("the file is a link out of the folder", object),
            errno => failed("the file can't be opened", object, errno),
        })?;
        check(&file, object)?;
        Ok(file)
    }

    /// Do a read when its turn comes. Whoever gives it up leaves a thread behind, which counts until the file system answers.
    async fn read<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let turn = Turn::of(self.device).await;
        let counted = move || {
            let _turn = turn;
            work()
        };
        blocking(counted).await
    }

    /// Open what the path names without leaving the folder.
    fn open_below(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || rustix::fs::openat2(&self.descriptor, path, flags, Mode::empty(), resolve);
        let mut opened = open();
        for _ in 1..OPEN_TRIES {
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
            opened = open();
        }
        opened
    }
}

/// One body in the making.
struct Reading {
    root: Arc<Root>,
    object: Arc<Object>,
    range: Range<u64>,
}

impl Reading {
    /// Open the file and read the first piece, in one go: most files have one.
    async fn begin(self) -> Result<Body> {
        Counters::add(&self.root.counters.gets, 1);
        let began = tokio::time::Instant::now();
        let (root, object, range) = (self.root.clone(), self.object.clone(), self.range.clone());
        let in_flight = InFlight::begin(&self.root.counters);
        let first = self.root.read(move || {
            let file = Arc::new(root.open(&object)?);
            let piece = read(&file, &object, &range)?;
            Ok((file, piece))
        });
        let (file, piece) = first.await?;
        drop(in_flight);
        self.root.counters.answered_after(began.elapsed());
        let rest = stream::try_unfold((self, file, Some(piece)), |(mut reading, file, ready)| async move {
            if reading.range.is_empty() {
                return Ok(None);
            }
            let piece = match ready {
                Some(piece) => piece,
                None => {
                    let (file, object, range) = (file.clone(), reading.object.clone(), reading.range.clone());
                    reading.root.read(move || read(&file, &object, &range)).await?
                }
            };
            reading.range.start += piece.len() as u64;
            Counters::add(&reading.root.counters.bytes, piece.len() as u64);
            Ok(Some((piece, (reading, file, None))))
        });
        Ok(Body { checksum: None, bytes: rest.boxed() })
    }
}

/// The next piece of a range. The version is compared after the read, so that no piece is a mix.
fn read(file: &OwnedFd, object: &Object, range: &Range<u64>) -> Result<Bytes> {
    let length = usize::try_from((range.end - range.start).min(PIECE)).expect("a piece fits in memory");
    let mut piece: Vec<u8> = Vec::with_capacity(length);
    while piece.len() < length {
        let at = range.start + piece.len() as u64;
        let spare = &mut piece.spare_capacity_mut()[..];
        match rustix::io::pread(file, spare, at) {
            Ok(([], _)) => break,
            Ok((filled, _)) => {
                let read = filled.len();
                // SAFETY: the kernel has filled `read` bytes of the spare capacity.
                unsafe { piece.set_len(piece.len() + read) };
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("the file can't be read", object, errno)),
        }
    }
    check(file, object)?;
    piece.truncate(length);
    if piece.len() < length {
        return Err(Error::corrupt("the file ended before its size", object));
    }
    Ok(piece.into())
}

/// Check that an open file is of the version that was asked for.
fn check(file: impl AsFd, object: &Object) -> Result<()> {
    let stat =
        rustix::fs::fstat(file).map_err(|errno| failed("the file can't be asked for its times", object, errno))?;
    if version(&stat) == unmarked(&object.version) && size(&stat) == object.size {
        return Ok(());
    }
    Err(Error::changed("the file has changed since it was listed", object))
}

fn version(stat: &Stat) -> String {
    let (modified, changed) = times_ns(stat);
    format!("{modified:x}-{changed:x}-{:x}-{:x}", size(stat), stat.st_ino)
}

/// The version as a listing tells it: marked if it was taken too soon after a change.
fn version_at(stat: &Stat, now: SystemTime) -> String {
    let (modified, changed) = times_ns(stat);
    let now_ns = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let now_ns = i128::try_from(now_ns).unwrap_or(i128::MAX);
    let is_settled = now_ns - modified.max(changed) >= SETTLED_AFTER.as_nanos().cast_signed();
    let version = version(stat);
    if is_settled { version } else { format!("{UNSETTLED}{version}") }
}

/// Times of change of the content and of the inode, in nanoseconds since 1970.
fn times_ns(stat: &Stat) -> (i128, i128) {
    let ns = |seconds: i64, ns: u64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    (ns(stat.st_mtime, stat.st_mtime_nsec), ns(stat.st_ctime, stat.st_ctime_nsec))
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// The key as a path, if it can name a file here: the kernel would read `a//b` and `./a` as other names.
fn path_of(key: &str) -> Option<&str> {
    let is_plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    key.split('/').all(is_plain).then_some(key)
}

fn failed(what: &str, on: impl std::fmt::Display, errno: Errno) -> Error {
    if errno == Errno::NOSYS {
        return Error::invalid("this kernel has no openat2(2)", on).hint("Stoker needs Linux 5.6 or newer");
    }
    if matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::STALE) {
        return Error::missing("there is no such file", on);
    }
    Error::io(what, on, &errno.into())
}

/// That a folder did not answer in time.
pub fn silent(folder: &str) -> Error {
    let what = format!("the folder did not answer within {ANSWERS_WITHIN:?}");
    Error::unavailable(what, folder).hint("see whether `ls` of it answers, and try again when its file system does")
}

/// Do what blocks off the threads that serve requests.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::unavailable(format!("reading was given up: {error}"), "this machine")),
    }
}

#[cfg(test)]
#[path = "folder/tests.rs"]
mod tests;
