//! What each request means: the [`Namespace`] is asked, the kernel is answered. Answers that are there
//! are given on the session's thread; those that take time are given from the runtime.
//!
//! Layout:
//! - `folder`: names, attributes, listings.
//! - `file`: open, read, release.
//!
//! Invariant: every request that expects an answer gets exactly one.

mod file;
mod folder;

pub use file::refusal;

use crate::abi::reply::Attr;
use crate::abi::{KIND_FILE, KIND_FOLDER, Operation, Reply, Request};
use crate::ahead::Ahead;
use crate::content::Contents;
use crate::counter::Counters;
use crate::device::{Device, Gone};
use crate::errno::Complaints;
use crate::folder::Folders;
use crate::habit::Habits;
use crate::handle::{self, Handles};
use crate::inode::{Inodes, KEPT_MAX};
use crate::ledger::{Ledger, Retired};
use crate::turn::Turn;
use crate::unmapped::Unmapped;
use crate::used::Used;
use crate::wait::{Owed, Ticket, Waits};
use crate::{Namespace, Options};
use node::namespace::{Attributes, Use};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::runtime::Handle;

/// What a mount tells as the size of blocks: a buffered reader (Python, C, cp) reads in such steps. Well
/// above the 32 KiB from which reading past the page cache pays, yet small enough that a program which
/// jumps about in a large file does not fetch a mebibyte for each record.
pub const BLOCK_BYTES: u32 = 128 << 10;

/// What `df` shows of a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub bytes: u64,
    pub files: u64,
}

/// Whether complete files pass through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passthrough {
    On,
    /// The daemon serves them through the page cache; why, for `stoker status`.
    Off {
        reason: String,
    },
}

/// All that a session knows.
pub struct Service {
    namespace: Arc<dyn Namespace>,
    runtime: Handle,
    owner: u32,
    group: u32,
    immutable: bool,
    file_mode: u32,
    folder_mode: u32,
    block_bytes: u32,
    space_bytes: AtomicU64,
    space_files: AtomicU64,
    /// Why passthrough is off; empty while it is on.
    no_passthrough: OnceLock<String>,
    /// The kernel can map what is read past its page cache.
    direct_maps: AtomicBool,
    pub inodes: Inodes,
    /// With the names of which the kernel was notified of all that went stale.
    pub ledger: Arc<Ledger>,
    unmapped: Arc<Unmapped>,
    used: Arc<Used>,
    telling: Mutex<()>,
    folders: Folders,
    habits: Habits,
    ahead: Ahead,
    handles: Handles,
    contents: Contents,
    waits: Arc<Waits>,
    pub counters: Counters,
    complaints: Complaints,
}

/// Memory that a thread uses again for each request.
#[derive(Default)]
pub struct Scratch {
    listing: Vec<u8>,
    nodes: Vec<u64>,
}

impl Service {
    /// Going on with what is open by the ledger.
    pub fn new(
        options: &Options,
        namespace: Arc<dyn Namespace>,
        runtime: Handle,
        device: Arc<Device>,
        ledger: Arc<Ledger>,
    ) -> Service {
        let first_handle = handle::first(ledger.restarts());
        let waits: Arc<Waits> = Arc::default();
        let service = Service {
            namespace,
            runtime,
            owner: options.owner.unwrap_or_else(|| rustix::process::getuid().as_raw()),
            group: options.group.unwrap_or_else(|| rustix::process::getgid().as_raw()),
            file_mode: options.file_mode & PERMISSIONS,
            folder_mode: options.folder_mode & PERMISSIONS,
            immutable: options.immutable,
            block_bytes: options.block_bytes,
            space_bytes: AtomicU64::new(0),
            space_files: AtomicU64::new(0),
            no_passthrough: OnceLock::new(),
            direct_maps: AtomicBool::new(true),
            inodes: Inodes::over(ledger.clone(), KEPT_MAX),
            unmapped: Unmapped::new(device, waits.clone()),
            used: Arc::default(),
            telling: Mutex::default(),
            folders: Folders::new(ledger.first(), first_handle),
            habits: Habits::default(),
            ledger,
            ahead: Ahead::default(),
            handles: Handles::new(first_handle),
            contents: Contents::default(),
            waits,
            counters: Counters::default(),
            complaints: Complaints::at(&options.mount_point),
        };
        service.tell_space(options.space);
        service
    }

    /// Answer one request, or see to it that it will be. The turn is passed on before anything slow.
    pub fn answer(
        self: &Arc<Service>,
        device: &Arc<Device>,
        request: Request<'_>,
        scratch: &mut Scratch,
        turn: &mut Turn<'_>,
    ) {
        let Request { unique, node, thread, operation } = request;
        let asked = Asked { device, unique, node, thread };
        // A failed answer means that nobody waits for it any more; what it had counted is taken back below.
        let _: Result<(), Gone> = match operation {
            Operation::Open { .. } => self.open(asked, turn),
            Operation::Release { handle } => self.release(asked, handle),
            Operation::Read { handle, offset, size } => {
                turn.pass();
                self.read(asked, handle, file::Span { offset, length: size })
            }
            Operation::Lookup { name } => self.lookup(asked, name),
            Operation::Attributes => self.attributes(asked),
            Operation::OpenFolder => self.open_folder(asked),
            Operation::ReleaseFolder { handle } => {
                self.folders.release(handle);
                device.send(&mut Reply::new(unique, 0))
            }
            Operation::List { handle, offset, size, plus } => {
                turn.pass();
                self.list(asked, folder::Part { handle, offset, size, plus }, scratch)
            }
            Operation::Forget { lookups } => self.forget(device, node, lookups),
            Operation::BatchForget(mut forgets) => {
                forgets.try_for_each(|(node, lookups)| self.forget(device, node, lookups))
            }
            Operation::Interrupt { unique } => self.interrupt(unique),
            Operation::Space => {
                let (bytes, files) =
                    (self.space_bytes.load(Ordering::Relaxed), self.space_files.load(Ordering::Relaxed));
                device.send(&mut Reply::space(unique, bytes, files, self.block_bytes))
            }
            Operation::Modify => device.fail(unique, Errno::ROFS),
            Operation::Destroy => device.send(&mut Reply::new(unique, 0)),
            // A second handshake makes no sense on a mount that is up.
            Operation::Init(_) => device.fail(unique, Errno::PROTO),
            Operation::Unknown(code) => {
                tracing::trace!("request {code} is not offered");
                device.fail(unique, Errno::NOSYS)
            }
        };
    }

    pub fn tell_space(&self, space: Space) {
        self.space_bytes.store(space.bytes, Ordering::Relaxed);
        self.space_files.store(space.files, Ordering::Relaxed);
    }

    pub fn passthrough(&self) -> Passthrough {
        match self.no_passthrough.get() {
            None => Passthrough::On,
            Some(reason) => Passthrough::Off { reason: reason.clone() },
        }
    }

    /// For the rest of this mount; the first reason counts.
    pub fn stop_passthrough(&self, reason: impl Into<String>) {
        let reason = reason.into();
        if self.no_passthrough.set(reason.clone()).is_ok() {
            tracing::info!("complete files are served through the daemon: {reason}");
        }
    }

    pub fn maps_directly(&self) -> bool {
        self.direct_maps.load(Ordering::Relaxed)
    }

    /// The kernel can't map what is read past its page cache, so nothing is.
    pub fn stop_direct_maps(&self) {
        self.direct_maps.store(false, Ordering::Relaxed);
    }

    /// What was read of a node is gone, or was wrong: nothing that was got before serves an open to come, and no page
    /// of it a reader.
    pub fn forget_content(&self, device: &Device, node: u64) {
        self.close(device, self.inodes.revoke(node));
        self.contents.forget(node);
        self.unmapped.add(node, &self.runtime);
    }

    /// The mount is gone: stop all work for it.
    pub fn end(&self) {
        self.waits.abort();
        self.unmapped.end();
        self.tell_used();
    }

    /// Tell the namespace of what was used without asking it.
    fn tell_used(&self) {
        let _in_order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        self.used.hand_on(|uses| self.namespace.used(uses));
    }

    /// The same before an open that asks, if it is that little: more would keep the open waiting for longer than its order is worth.
    fn tell_used_first(&self) {
        const TOLD_FIRST_MAX: u64 = 1024;
        if (1..=TOLD_FIRST_MAX).contains(&self.used.waiting()) {
            self.tell_used();
        }
    }

    /// Go on telling the namespace of opens for as long as the mount lives.
    pub fn follow_used(self: &Arc<Service>) {
        let (used, service) = (self.used.clone(), Arc::downgrade(self));
        self.runtime.spawn(async move {
            loop {
                used.gathered().await;
                let Some(service) = service.upgrade() else { return };
                let done = service.runtime.spawn_blocking({
                    let service = service.clone();
                    move || service.tell_used()
                });
                if done.await.is_err() {
                    return;
                }
            }
        });
    }

    fn interrupt(&self, unique: u64) -> Result<(), Gone> {
        let Some(owed) = self.waits.interrupt(unique) else { return Ok(()) };
        self.counters.interrupts.add(1);
        owed.device.fail(unique, Errno::INTR)
    }

    fn forget(&self, device: &Device, node: u64, lookups: u64) -> Result<(), Gone> {
        self.close(device, self.inodes.forget(node, self.namespace.is_listed(node)));
        if self.immutable {
            self.contents.forget(node);
        }
        self.namespace.remember(node, i64::try_from(lookups).unwrap_or(i64::MAX).wrapping_neg());
        Ok(())
    }

    /// Let go of the backing files of nodes that are listed no more.
    pub fn release_unlisted(&self, device: &Device) {
        self.close(device, self.inodes.unlisted(|node| self.namespace.is_listed(node)));
    }

    /// Close backing files that nobody needs.
    pub fn close(&self, device: &Device, retired: impl IntoIterator<Item = Retired>) {
        for Retired { id, line } in retired {
            device.unregister(id);
            line.into_iter().for_each(|line| self.ledger.erase(line));
        }
    }

    /// Answer from the runtime; until then the reader may give the request up.
    fn later<F>(&self, asked: Asked<'_>, task: impl FnOnce(Ticket) -> F) -> Result<(), Gone>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let owed = Owed { device: asked.device.clone(), unique: asked.unique };
        self.waits.spawn(&self.runtime, asked.node, owed, task);
        Ok(())
    }

    fn refuse(&self, asked: Asked<'_>, error: &block::Error) -> Result<(), Gone> {
        self.counters.errors.add(1);
        asked.device.fail(asked.unique, self.complaints.errno(error))
    }

    fn attr(&self, attributes: &Attributes) -> Attr {
        let Attributes { node, folder, size, modified_ns, folders } = *attributes;
        let (mode, links) = match folder {
            true => (KIND_FOLDER | self.folder_mode, folders.saturating_add(2)),
            false if self.namespace.executable(node) => (KIND_FILE | runnable(self.file_mode), 1),
            false => (KIND_FILE | self.file_mode, 1),
        };
        Attr { node, size, modified_ns, mode, links, owner: self.owner, group: self.group, block: self.block_bytes }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.used.wake();
    }
}

/// The bits of a mode that are permissions; the mount is `nosuid` anyway.
const PERMISSIONS: u32 = 0o777;

/// Whoever may read may also execute.
fn runnable(mode: u32) -> u32 {
    mode | (mode & 0o444) >> 2
}

/// Who asked what.
#[derive(Clone, Copy)]
struct Asked<'a> {
    device: &'a Arc<Device>,
    unique: u64,
    node: u64,
    thread: u32,
}

impl Asked<'_> {
    fn as_use(&self, is_open: bool) -> Use {
        Use { node: self.node, thread: self.thread, is_open }
    }
}
