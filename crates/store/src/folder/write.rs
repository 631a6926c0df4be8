//! Writing into a folder: a draft beside the file, renamed to its name when it is whole.
//!
//! It makes the folders on the way, and never leaves the folder. Drafts begin with a dot and end in `.draft`; a killed
//! process may leave one. Invariant: nobody sees a file under its name before it is whole.

use super::{Folder, Root, blocking, failed, path_of, size, times_ns, version_at};
use crate::sink::{Part, Sink, Upload};
use crate::{Counters, Listed};
use block::{Error, Result, Waiting};
use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Sets drafts of one process apart.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

impl Sink for Folder {
    fn put(&self, key: &str, content: Bytes) -> Waiting<()> {
        let (root, key) = (self.0.clone(), key.to_owned());
        Box::pin(blocking(move || {
            let draft = Draft::begin(root, &key)?;
            draft.write(0, &content)?;
            draft.name()
        }))
    }

    fn begin(&self, key: &str) -> Waiting<Arc<dyn Upload>> {
        let (root, key) = (self.0.clone(), key.to_owned());
        Box::pin(blocking(move || {
            let draft = Mutex::new(Some(Arc::new(Draft::begin(root, &key)?)));
            Ok(Arc::new(Drafted { key, draft }) as Arc<dyn Upload>)
        }))
    }

    fn delete(&self, key: &str) -> Waiting<()> {
        let (root, key) = (self.0.clone(), key.to_owned());
        Box::pin(blocking(move || {
            Counters::add(&root.counters.writes, 1);
            let Some((parent, name)) = root.parent(&key, false)? else { return Ok(()) };
            match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(failed("the file can't be removed", &key, errno)),
            }
        }))
    }

    fn find(&self, key: &str) -> Waiting<Listed> {
        let (root, key) = (self.0.clone(), key.to_owned());
        Box::pin(blocking(move || {
            Counters::add(&root.counters.heads, 1);
            let path = path_of(&key).ok_or_else(|| Error::missing("there is no such file", &key))?;
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let file = root.open_below(path, flags).map_err(|errno| failed("the file can't be found", &key, errno))?;
            let stat = rustix::fs::fstat(file).map_err(|errno| failed("the file can't be asked", &key, errno))?;
            let modified_ns = i64::try_from(times_ns(&stat).0).unwrap_or(i64::MAX);
            let version = version_at(&stat, (root.settings.now)());
            Ok(Listed { version, size: size(&stat), modified_ns, key })
        }))
    }
}

/// A file that waits for its parts.
struct Drafted {
    key: String,
    draft: Mutex<Option<Arc<Draft>>>,
}

impl Drafted {
    fn take(&self) -> Option<Arc<Draft>> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Upload for Drafted {
    fn part(&self, place: Part, content: Bytes) -> Waiting<()> {
        let draft = self.draft.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let over = Error::missing("this upload is over", &self.key);
        Box::pin(blocking(move || draft.ok_or(over)?.write(place.offset, &content)))
    }

    fn complete(&self) -> Waiting<()> {
        let draft = self.take().ok_or_else(|| Error::missing("this upload is over", &self.key));
        Box::pin(blocking(move || draft?.name()))
    }

    fn abort(&self) -> Waiting<()> {
        drop(self.take());
        Box::pin(std::future::ready(Ok(())))
    }
}

struct Draft {
    root: Arc<Root>,
    key: String,
    file: File,
    parent: OwnedFd,
    aside: String,
}

impl Draft {
    fn begin(root: Arc<Root>, key: &str) -> Result<Draft> {
        Counters::add(&root.counters.writes, 1);
        let (parent, _) = root.parent(key, true)?.ok_or_else(|| Error::missing("there is no such folder", key))?;
        let number = DRAFTS.fetch_add(1, Relaxed);
        let aside = format!(".stoker-{}-{number}.draft", std::process::id());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &aside, flags, Mode::from_raw_mode(0o666));
        let file = file.map_err(|errno| failed("the file can't be made", key, errno))?.into();
        Ok(Draft { root, key: key.to_owned(), file, parent, aside })
    }

    fn write(&self, offset: u64, content: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(content, offset);
        written.map_err(|error| Error::io("the file can't be written", &self.key, &error))?;
        Counters::add(&self.root.counters.writes, 1);
        Counters::add(&self.root.counters.bytes_written, content.len() as u64);
        Ok(())
    }

    fn name(&self) -> Result<()> {
        let name = self.key.rsplit('/').next().unwrap_or(&self.key);
        let named = rustix::fs::renameat(&self.parent, &self.aside, &self.parent, name);
        named.map_err(|errno| failed("the file can't be named", &self.key, errno))
    }
}

impl Drop for Draft {
    /// What was renamed is no longer there, and what still is there is half a file.
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.parent, &self.aside, AtFlags::empty());
    }
}

impl Root {
    /// The folder that a key lies in and its name there; the folders on the way are made if asked for.
    fn parent<'a>(&self, key: &'a str, make: bool) -> Result<Option<(OwnedFd, &'a str)>> {
        let Some(path) = path_of(key) else {
            return Err(Error::invalid("no file can have this name", key).hint("leave out `.`, `..` and empty parts"));
        };
        let (folders, name) = path.rsplit_once('/').map_or(("", path), |(folders, name)| (folders, name));
        let wrong = |errno| failed("a folder on the way can't be opened", key, errno);
        let mut at = self.open_below(".", OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC).map_err(wrong)?;
        let mut reached = String::new();
        for folder in folders.split('/').filter(|folder| !folder.is_empty()) {
            reached = if reached.is_empty() { folder.to_owned() } else { format!("{reached}/{folder}") };
            if make {
                match rustix::fs::mkdirat(&at, folder, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed("a folder can't be made", key, errno)),
                }
            }
            at = match self.open_below(&reached, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC) {
                Ok(next) => next,
                Err(Errno::NOENT) if !make => return Ok(None),
                Err(errno) => return Err(wrong(errno)),
            };
        }
        Ok(Some((at, name)))
    }
}
