//! A program that uses the simulated disk, and its open files.

use super::{Entry, Forgetful, Inode, State, parent};
use crate::disk::histories::weather::Call;
use crate::disk::medium::{Handle, How, Made, Medium, Space, Status};
use rustix::io::Errno;
use std::io::{IoSlice, Result};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};

/// Descriptors that a process may have.
const HANDLES_MAX: usize = 4_096;

fn text(path: &Path) -> &str {
    path.to_str().expect("the tier's paths are text")
}

/// A program, as far as the disk sees it.
pub struct Process {
    me: std::sync::Weak<Process>,
    disk: Arc<Forgetful>,
    is_alive: AtomicBool,
    handles: AtomicUsize,
}

impl Process {
    /// A program is started.
    pub fn new(disk: &Arc<Forgetful>) -> Arc<Process> {
        let (disk, handles) = (disk.clone(), AtomicUsize::new(0));
        Arc::new_cyclic(|me| Process { me: me.clone(), disk, is_alive: AtomicBool::new(true), handles })
    }

    /// The program dies: what it had open is closed, and nothing that it does has an effect any more.
    pub fn kill(&self) {
        self.is_alive.store(false, Relaxed);
    }

    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Relaxed)
    }

    pub fn handles(&self) -> usize {
        self.handles.load(Relaxed)
    }

    /// The disk, if it lets this call pass.
    fn call(&self, call: Call) -> Result<MutexGuard<'_, State>> {
        let mut state = self.disk.state();
        if state.weather.is_last_call() {
            self.kill();
        }
        if !self.is_alive() {
            return Err(Errno::IO.into());
        }
        match state.weather.strikes(call) {
            Some(errno) => Err(errno.into()),
            None => Ok(state),
        }
    }

    fn opened(&self, inode: Arc<Inode>, may_write: bool) -> Result<Arc<dyn Handle>> {
        if self.handles.load(Relaxed) >= HANDLES_MAX {
            return Err(Errno::MFILE.into());
        }
        inode.opens.fetch_add(1, Relaxed);
        self.handles.fetch_add(1, Relaxed);
        let process = self.me.upgrade().expect("whoever calls holds it");
        Ok(Arc::new(Open { process, inode, may_write }))
    }
}

impl Medium for Process {
    fn open(&self, path: &Path, how: How) -> Result<Arc<dyn Handle>> {
        let path = text(path);
        let may_create = matches!(how, How::OpenOrCreate | How::Create { .. });
        let mut state = self.call(if may_create { Call::Create } else { Call::Open })?;
        let inode = match (how, state.file(path)) {
            (How::Create { .. }, Ok(_)) => return Err(Errno::EXIST.into()),
            (_, Ok(inode)) => inode,
            (_, Err(error)) if may_create && error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                state.create(path)?
            }
            (_, Err(error)) => return Err(error),
        };
        self.opened(inode, how != How::Read)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let path = text(path);
        let mut state = self.call(Call::Change)?;
        if !state.names.contains_key(path) {
            return Err(state.absence(path).into());
        }
        state.take_away(path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (text(from), text(to));
        let mut state = self.call(Call::Change)?;
        let inode = state.file(from)?;
        state.change(vec![(to.to_owned(), Some(Entry::File(inode))), (from.to_owned(), None)]);
        Ok(())
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        self.call(Call::Create)?.make_folder(text(path))
    }

    fn folder(&self, path: &Path) -> Result<Made> {
        let state = self.call(Call::Look)?;
        match state.names.get(text(path)) {
            Some(Entry::Folder) => Ok((0, 0, None)),
            Some(Entry::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(state.absence(text(path)).into()),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let path = text(path);
        let state = self.call(Call::Open)?;
        match state.names.get(path) {
            Some(Entry::Folder) => {}
            Some(Entry::File(_)) => return Err(Errno::NOTDIR.into()),
            None => return Err(state.absence(path).into()),
        }
        let inside = state.names.keys().filter(|name| parent(name) == path && *name != "/");
        Ok(inside.map(|name| name[name.rfind('/').map_or(0, |slash| slash + 1)..].to_owned()).collect())
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let state = self.call(Call::Look)?;
        if !state.names.contains_key(text(path)) {
            return Err(state.absence(text(path)).into());
        }
        let free_files = Some(state.files_max.saturating_sub(state.names.len() as u64));
        Ok(Space { free_bytes: state.free_bytes(), free_files })
    }

    fn mounted(&self, path: &Path) -> Result<u128> {
        let state = self.call(Call::Look)?;
        if !state.names.contains_key(text(path)) {
            return Err(state.absence(text(path)).into());
        }
        Ok(u128::from(state.mount))
    }

    fn is_instant(&self) -> bool {
        true
    }
}

/// An open file of a process.
pub struct Open {
    process: Arc<Process>,
    pub inode: Arc<Inode>,
    may_write: bool,
}

impl Open {
    fn writing(&self, call: Call) -> Result<MutexGuard<'_, State>> {
        match self.may_write {
            true => self.process.call(call),
            false => Err(Errno::BADF.into()),
        }
    }
}

impl Handle for Open {
    fn read(&self, into: &mut Vec<u8>, at: u64) -> Result<usize> {
        let mut state = self.process.call(Call::Read)?;
        let room = into.capacity() - into.len();
        let length = state.weather.short(room);
        let read = self.inode.pages().read(into, at, length as u64);
        state.tell(|| format!("< file {}: {read} of {length} bytes at {at}", self.inode.number));
        Ok(read as usize)
    }

    fn write(&self, pieces: &[IoSlice<'_>], at: u64) -> Result<usize> {
        let mut state = self.writing(Call::Write)?;
        let total = pieces.iter().map(|piece| piece.len()).sum();
        let length = state.weather.short(total);
        let mut wrote = 0;
        for piece in pieces {
            let piece = &piece[..piece.len().min(length - wrote)];
            match state.write(&self.inode, piece, at + wrote as u64) {
                Ok(now) => {
                    wrote += now;
                    if now < piece.len() {
                        break;
                    }
                }
                Err(error) if wrote == 0 => {
                    state.tell(|| format!("? file {}: {total} bytes at {at}: {error}", self.inode.number));
                    return Err(error);
                }
                Err(_) => break,
            }
        }
        state.tell(|| format!("> file {}: {wrote} of {total} bytes at {at}", self.inode.number));
        Ok(wrote)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let mut state = self.writing(Call::Write)?;
        if self.inode.is_given_out.load(Relaxed) {
            state.crime = Some(format!("file {} was cut after it was called complete", self.inode.number));
        }
        let mut pages = self.inode.pages();
        let before = pages.count();
        pages.set_len(bytes);
        state.used_pages -= before.saturating_sub(pages.count());
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let _state = self.writing(Call::Write)?;
        self.inode.pages().sync();
        Ok(())
    }

    fn status(&self) -> Result<Status> {
        let _state = self.process.call(Call::Look)?;
        let (is_linked, number) = (self.inode.links.load(Relaxed) > 0, (self.inode.number, 0));
        Ok(Status { bytes: self.inode.pages().size(), is_linked, number })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.process.disk.state();
        self.process.handles.fetch_sub(1, Relaxed);
        self.inode.opens.fetch_sub(1, Relaxed);
        state.release(&self.inode);
    }
}
