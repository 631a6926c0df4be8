//! Taking files away: those of segments that have left, and those that the index never knew.
//!
//! A segment that leaves is unlinked without the index, since that takes its time: no residency is given twice while a
//! program runs, so nobody makes a file of that name meanwhile. A stray bears any name, perhaps that of a residency which
//! is about to be given: so it is unlinked by whoever has the index.

use super::{Index, Left, Residency};
use crate::disk::Disk;
use crate::disk::medium::Medium;
use std::io::ErrorKind;
use std::path::Path;

/// Files that are unlinked at once by whoever gives the index back. More are left to a thread that may wait.
const AT_ONCE: usize = 64;

impl Disk {
    /// Unlink what has left, and tell who hears of it.
    pub(super) fn unlink(&self, left: Vec<Left>) {
        let (disk, is_long) = (self.clone(), is_long(&left, &*self.0.medium));
        let work = move || {
            let mut is_gone = true;
            for Left { path, .. } in &left {
                match disk.0.medium.remove(path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        let error = block::Error::io("cannot unlink a cache file", path.display(), &error);
                        tracing::warn!("{error}");
                        is_gone = false;
                    }
                    _ => {}
                }
            }
            disk.index().unlinked(&left, is_gone);
            left.iter().for_each(|left| disk.tell_left(&left.object));
        };
        match is_long {
            true => drop(self.0.runtime.spawn_blocking(work)),
            false => work(),
        }
    }

    /// Unlink files that the index does not know: a killed daemon began them and never wrote it into the log. True if none is
    /// left.
    pub(in crate::disk) fn sweep(&self, folder: &Path) -> bool {
        let medium = &self.0.medium;
        // Put aside by somebody who was killed before it was gone.
        let begins = folder.file_name().map(|name| format!("{}.", name.display())).unwrap_or_default();
        let aside =
            medium.list(&self.0.folder).unwrap_or_default().into_iter().filter(|name| name.starts_with(&begins));
        aside.for_each(|name| drop(medium.remove(&self.0.folder.join(name))));
        let Ok(nears) = medium.list(folder) else { return false };
        let mut is_swept = true;
        for near in nears.into_iter().map(|near| folder.join(near)) {
            // Not through a link, which may lead to what is somebody else's.
            let names = match medium.folder(&near).and_then(|_| medium.list(&near)) {
                Err(error) if error.kind() == ErrorKind::NotADirectory => {
                    is_swept &= medium.remove(&near).is_ok();
                    continue;
                }
                names => names,
            };
            is_swept &= names.is_ok();
            for name in names.unwrap_or_default() {
                let index = self.index();
                if index.is_lost() {
                    return false;
                }
                let is_stray = Residency::of_name(&name).is_none_or(|residency| !index.knows(residency));
                is_swept &= !is_stray || medium.remove(&near.join(name)).is_ok();
            }
        }
        is_swept
    }
}

impl Index {
    /// What left since this was asked.
    pub(super) fn take_left(&mut self) -> Vec<Left> {
        let left = std::mem::take(&mut self.left);
        if is_long(&left, &*self.medium) {
            self.leaving = (self.leaving.0 + bytes(&left), self.leaving.1 + left.len() as u64);
        }
        left
    }

    /// These were unlinked; `is_gone` unless one of them is still there.
    fn unlinked(&mut self, left: &[Left], is_gone: bool) {
        self.linked -= left.len() as u64;
        if is_long(left, &*self.medium) {
            self.leaving = (self.leaving.0 - bytes(left), self.leaving.1 - left.len() as u64);
        }
        self.has_strays |= !is_gone;
        // There is more room now, or not as much as was thought. Where a write failed, what it began is no room.
        if !self.look.full {
            self.look_again();
        }
    }
}

/// Whether it takes long to unlink these.
fn is_long(left: &[Left], medium: &dyn Medium) -> bool {
    left.len() > AT_ONCE && !medium.is_instant()
}

fn bytes(left: &[Left]) -> u64 {
    left.iter().map(|left| left.bytes).sum()
}
