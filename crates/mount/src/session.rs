//! A mount being served: the handshake, the threads that answer the kernel, and the way to its end.
//!
//! Invariant: the threads end when the mount ends, however that comes about, and a session that is
//! dropped leaves no mount behind.

mod resume;

pub use resume::{ENDED, Left, Newest, Terms, resume};

use crate::abi::{self, Init, Operation, Reply, Request};
use crate::attach::{self as mounting, MountPoint, Places, Wanted};
use crate::device::{Buffer, DEVICE, Device};
use crate::ledger::Ledger;
use crate::service::{Passthrough, Scratch, Service, Space};
use crate::turn::{Turn, Turns};
use crate::{Counts, Namespace, Options};
use block::{Error, Result};
use node::namespace::Stale;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;

/// A mount that is being served.
pub struct Session {
    service: Arc<Service>,
    device: Arc<Device>,
    /// All of its descriptors, `device` first.
    devices: Vec<Arc<Device>>,
    /// Whether the kernel asks again what a process that is gone did not answer.
    resends: bool,
    place: MountPoint,
    alive: Arc<Alive>,
    /// Whether it outlives this: one that another process made, until this one has shown that it goes on.
    stays: AtomicBool,
}

/// Mount, and serve from now on. Futures of the namespace run on `runtime`.
pub fn attach(options: &Options, namespace: Arc<dyn Namespace>, runtime: Handle) -> Result<Session> {
    let Options { mount_point, url, allow_other, .. } = options;
    let (device, place) = mounting::attach(&Wanted { mount_point, url, allow_other: *allow_other })?;
    let session = Session::over(device, place, options, namespace, runtime)?;
    if let Err(error) = session.place.raise_read_ahead() {
        tracing::info!("readahead of {} stays at the kernel's 128 KiB: {error}", session.mount_point().display());
    }
    Ok(session)
}

impl Session {
    /// Serve what is mounted at a place.
    fn over(
        device: Device,
        place: MountPoint,
        options: &Options,
        namespace: Arc<dyn Namespace>,
        runtime: Handle,
    ) -> Result<Session> {
        let device = Arc::new(device);
        let ledger = Arc::new(Ledger::new(namespace.names().map_or(0, |names| names.generation()))?);
        let service = Arc::new(Service::new(options, namespace, runtime, device.clone(), ledger));
        let devices = vec![device.clone()];
        let mut session =
            Session { service, device, devices, resends: false, place, alive: Arc::default(), stays: false.into() };
        *session.alive.threads() = 1;
        let shaken = session.handshake(options).and_then(|()| {
            session.multiply(options);
            session.start(options, Vec::new())
        });
        if let Err(error) = shaken {
            *session.alive.threads() = 0;
            let _ = session.place.unmount(true);
            return Err(error);
        }
        session.service.follow_used();
        Ok(session)
    }

    /// Until the mount ends.
    pub fn wait(&self) {
        self.alive.wait();
    }

    /// Whether the mount has ended, by whomever.
    pub fn has_ended(&self) -> bool {
        *self.alive.threads() == 0
    }

    /// Unmount; `lazy`: even while files are open, which are then served to their end. Only ever this mount, whatever
    /// lies at its mount point by now; nothing is left to do if it was detached already.
    pub fn unmount(&self, lazy: bool) -> Result<()> {
        if self.has_ended() { Ok(()) } else { self.place.unmount(lazy) }
    }

    /// The same at one place, at which it is to be.
    pub fn unmount_from(&self, at: &Path, lazy: bool) -> Result<()> {
        if self.has_ended() { Ok(()) } else { self.place.unmount_from(at, lazy) }
    }

    /// Take it away from everywhere here, and what is bound of its folders, even while files are open: whether there were any.
    pub fn leave(&self) -> Result<bool> {
        if self.has_ended() { Ok(false) } else { self.place.leave() }
    }

    /// Whether it can be seen at its mount point: a mount that was detached lives on until its last file is closed.
    pub fn is_attached(&self) -> bool {
        !self.has_ended() && self.place.is_attached()
    }

    /// Whether the kernel shows all of it somewhere here: where it was bound, once it was unmounted where it was.
    pub fn is_shown(&self) -> bool {
        !self.has_ended() && self.place.is_shown()
    }

    /// Whether some mount namespace has it, as far as this user may look.
    pub fn is_anywhere(&self) -> bool {
        self.place.is_anywhere()
    }

    /// Make the kernel forget names, and the listings of the folders they are in. Blocks while a request
    /// in one of these folders waits, so it must not be called by what such a request waits for.
    pub fn invalidate(&self, stale: &Stale) {
        let generation = self.service.generation();
        self.service.release_unlisted(&self.device);
        for (parent, name) in stale {
            self.notify(&Reply::invalidate_name(*parent, name));
        }
        let mut folders: Vec<u64> = stale.iter().map(|(parent, _)| *parent).collect();
        folders.sort_unstable();
        folders.dedup();
        for folder in folders {
            self.notify(Reply::invalidate_node(folder).seal());
        }
        self.service.ledger.tell(generation);
    }

    /// What the bytes of a node were read from is about to be deleted, or they were wrong. Opens that are alive go on
    /// with what they have, the next one after them gets what there is then, and the kernel soon forgets the pages.
    pub fn forget_content(&self, node: u64) {
        self.service.forget_content(&self.device, node);
    }

    /// The disk gives nothing any more: opens to come are served from elsewhere, once those of the same file that are alive are closed.
    pub fn forget_backings(&self) {
        self.service.close(&self.device, self.service.inodes.revoke_all());
    }

    pub fn passthrough(&self) -> Passthrough {
        self.service.passthrough()
    }

    pub fn counts(&self) -> Counts {
        self.service.counters.counts()
    }

    /// What `df` shows from now on.
    pub fn tell_space(&self, space: Space) {
        self.service.tell_space(space);
    }

    /// The mount point, without links, as it was when it was mounted.
    pub fn mount_point(&self) -> &Path {
        self.place.path()
    }

    /// The same as it is called by now.
    pub fn mount_point_in<'a>(&'a self, places: &'a Places) -> &'a Path {
        self.place.path_in(places)
    }

    fn notify(&self, message: &[u8]) {
        match self.device.write(message) {
            // NOENT: the kernel does not know the name, so there is nothing to forget.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => tracing::debug!("telling the kernel of a stale name: {error}"),
        }
    }

    /// Answer the first request, which settles how both sides speak.
    fn handshake(&mut self, options: &Options) -> Result<()> {
        let mut buffer = Buffer::new();
        let broken = |errno: Errno| Error::io("greeting the kernel", DEVICE, &errno.into());
        loop {
            let Some(bytes) = self.device.read(&mut buffer).map_err(broken)? else { continue };
            let Ok(Request { unique, operation: Operation::Init(offer), .. }) = Request::decode(bytes) else {
                return Err(broken(Errno::PROTO));
            };
            if offer.major > abi::MAJOR {
                // It will come down to our level and ask again.
                let _ = self.device.send(&mut Reply::init(unique, &answer(&offer, options)));
                continue;
            }
            if offer.major < abi::MAJOR || offer.minor < abi::MINOR_MIN {
                let _ = self.device.fail(unique, Errno::PROTO);
                let level = format!("FUSE {}.{}", offer.major, offer.minor);
                return Err(Error::invalid("this kernel is too old", level).hint("use Linux 5.6 or later"));
            }
            let agreed = answer(&offer, options);
            if agreed.flags & abi::init::DIRECT_IO_ALLOW_MMAP == 0 {
                self.service.stop_direct_maps();
            }
            self.resends = agreed.flags & abi::init::HAS_RESEND != 0;
            self.device.send(&mut Reply::init(unique, &agreed)).map_err(|_| broken(Errno::PROTO))?;
            self.try_passthrough(&offer, options);
            return Ok(());
        }
    }

    /// Find out at once whether files can pass through, so that `stoker status` can say so.
    fn try_passthrough(&self, offer: &Init, options: &Options) {
        let stop = |reason: &str| self.service.stop_passthrough(reason);
        if options.immutable {
            return stop("an immutable mount opens no files, so none can pass through");
        }
        if !options.passthrough {
            return stop("it was switched off");
        }
        if offer.flags & abi::init::PASSTHROUGH == 0 {
            return stop("this kernel has no FUSE passthrough (Linux 6.9 or later has)");
        }
        let Ok(sample) = rustix::fs::memfd_create("stoker", MemfdFlags::CLOEXEC) else { return };
        match self.device.register(rustix::fd::AsFd::as_fd(&sample)) {
            Ok(backing) => self.device.unregister(backing),
            Err(errno) => match crate::service::refusal(errno) {
                Some(reason) => stop(reason),
                None => tracing::debug!("trying passthrough: {errno}"),
            },
        }
    }

    /// A descriptor for each thread, as far as there is the right to open the device.
    fn multiply(&mut self, options: &Options) {
        let further = (1..threads(options)).map_while(|_| self.device.again().ok().map(Arc::new));
        let further: Vec<_> = further.collect();
        self.devices.extend(further);
    }

    /// Serve, beginning with requests that were read already.
    fn start(&self, options: &Options, mut first: Vec<Vec<u8>>) -> Result<()> {
        let count = threads(options);
        let turns = Arc::new(Turns::new(listeners(count)));
        for index in 0..count {
            // All were read from the first device, and are answered there.
            let (device, read) = (self.devices[index % self.devices.len()].clone(), std::mem::take(&mut first));
            let (service, alive, turns) = (self.service.clone(), self.alive.clone(), turns.clone());
            *alive.threads() += 1;
            let thread = std::thread::Builder::new().name(format!("stoker-fuse-{index}"));
            let started = thread.spawn(move || {
                serve(&service, &device, &turns, read);
                alive.leave(|| service.end());
            });
            if let Err(error) = started {
                self.alive.leave(|| ());
                return Err(Error::io("starting a thread", self.mount_point().display(), &error));
            }
        }
        // The one that `attach` stood for.
        self.alive.leave(|| ());
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.stays.load(Relaxed) {
            return;
        }
        if let Err(error) = self.unmount(true) {
            tracing::debug!("unmounting: {error}");
        }
    }
}

/// Threads that still serve the mount.
#[derive(Default)]
struct Alive {
    threads: Mutex<usize>,
    ended: Condvar,
}

impl Alive {
    fn threads(&self) -> MutexGuard<'_, usize> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let ended = self.ended.wait_while(self.threads(), |threads| *threads > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// One thread less. The last one runs `last` before anyone hears of the end, without the lock: that may wait for
    /// somebody who asks whether this is over.
    fn leave(&self, last: impl FnOnce()) {
        let mut threads = self.threads();
        if *threads == 1 {
            drop(threads);
            last();
            threads = self.threads();
        }
        *threads = threads.saturating_sub(1);
        if *threads == 0 {
            self.ended.notify_all();
        }
    }
}

/// One thread: requests until the mount ends, beginning with those that were read already.
fn serve(service: &Arc<Service>, device: &Arc<Device>, turns: &Turns, read: Vec<Vec<u8>>) {
    let (mut buffer, mut scratch, mut turn) = (Buffer::new(), Scratch::default(), turns.join());
    for request in read {
        turn.take();
        answer_one(service, device, &request, &mut scratch, &mut turn);
    }
    loop {
        turn.take();
        match device.read(&mut buffer) {
            Ok(Some(bytes)) => answer_one(service, device, bytes, &mut scratch, &mut turn),
            Ok(None) => {}
            Err(Errno::NODEV | Errno::CONNABORTED) => return,
            Err(error) => return tracing::error!("reading requests: {error}"),
        }
    }
}

fn answer_one(service: &Arc<Service>, device: &Arc<Device>, bytes: &[u8], scratch: &mut Scratch, turn: &mut Turn<'_>) {
    match Request::decode(bytes) {
        Ok(request) => {
            let unique = request.unique;
            // A bug in the namespace must not leave a reader hanging, nor take this thread away.
            let answer = AssertUnwindSafe(|| service.answer(device, request, scratch, turn));
            if catch_unwind(answer).is_err() {
                tracing::error!("answering request {unique} panicked");
                let _ = device.fail(unique, Errno::IO);
            }
        }
        Err(malformed) => {
            tracing::error!("the kernel sent a request that can't be read");
            if let Some(unique) = malformed.unique {
                let _ = device.fail(unique, Errno::INVAL);
            }
        }
    }
}

/// More only adds switches between threads; see [`threads_by_default`].
const THREADS_MAX: usize = 64;

/// Twice the processors, as some answers copy from the disk, but few: they never wait for a store.
fn threads_by_default() -> usize {
    std::thread::available_parallelism().map_or(2, |count| count.get() * 2).clamp(2, 8)
}

fn threads(options: &Options) -> usize {
    options.threads.unwrap_or_else(threads_by_default).clamp(1, THREADS_MAX)
}

/// Of so many threads, those that listen even while all requests are quick. One answers 150,000 warm
/// opens and closes a second, which is more than the programs on this share of the threads ask for.
fn listeners(threads: usize) -> usize {
    threads.div_ceil(THREADS_PER_LISTENER)
}

const THREADS_PER_LISTENER: usize = 4;

/// The kernel's FILESYSTEM_MAX_STACK_DEPTH; beyond it there is no passthrough at all.
const STACK_DEPTH_MAX: u32 = 2;

/// Our side of the handshake.
fn answer(offer: &Init, options: &Options) -> abi::reply::Accepted {
    use abi::init::*;
    let wanted = ASYNC_READ | ASYNC_DIO | PARALLEL_DIROPS | MAX_PAGES | NO_EXPORT_SUPPORT
        // Which listings have attributes is decided here: `habit` knows why.
        | DO_READDIRPLUS | DIRECT_IO_ALLOW_MMAP | HAS_RESEND | EXT;
    let no_open = if options.immutable { NO_OPEN_SUPPORT } else { 0 };
    let through = if options.passthrough && !options.immutable { PASSTHROUGH } else { 0 };
    let flags = offer.flags & (wanted | no_open | through);
    let stack_depth = if flags & PASSTHROUGH == 0 { 0 } else { options.stack_depth.clamp(1, STACK_DEPTH_MAX) };
    abi::reply::Accepted { minor: abi::MINOR.min(offer.minor), max_readahead: offer.max_readahead, flags, stack_depth }
}

#[cfg(test)]
mod tests;
