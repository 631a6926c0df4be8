//! Open, read, release: which way a file is served, and its bytes where the daemon serves it.
//!
//! Invariant: what [`crate::inode::Inodes`] counts as open is open in the kernel, or its release is under way.

use super::{Asked, Service};
use crate::abi::{Reply, open};
use crate::device::{BackingId, Gone};
use crate::handle::NONE;
use crate::inode::{self, Backing, Settled, Start, Way};
use crate::ledger::Sending;
use crate::turn::Turn;
use block::{Result as Found, SMALL};
use bytes::Bytes;
use node::namespace::{Content, Opening, Pieces, Reading};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Service {
    pub(super) fn open(self: &Arc<Service>, asked: Asked<'_>, turn: &mut Turn<'_>) -> Result<(), Gone> {
        if self.immutable {
            // From now on the kernel opens by itself.
            return asked.device.fail(asked.unique, Errno::NOSYS);
        }
        let known = match self.inodes.start(asked.node, asked.unique) {
            (Start::Through(backing), opening) => {
                // Before it is answered: whoever opened it may open the next one then.
                self.used.note(asked.as_use(true));
                return self.opened_through(asked, backing, opening);
            }
            (Start::Ask(known), _) => known,
        };
        turn.pass();
        self.tell_used_first();
        match self.namespace.open_by(asked.node, asked.thread) {
            Opening::Ready(content) => self.opened(asked, known, content),
            Opening::Waiting(content) => {
                let (service, Asked { node, thread, .. }) = (self.clone(), asked);
                self.later(asked, |ticket| async move {
                    let content = content.await;
                    if let Some(owed) = ticket.claim() {
                        let asked = Asked { device: &owed.device, unique: owed.unique, node, thread };
                        let _: Result<(), Gone> = service.opened(asked, known, content);
                    }
                })
            }
        }
    }

    pub(super) fn release(&self, asked: Asked<'_>, handle: u64) -> Result<(), Gone> {
        // Counted once it is answered: what is asked again after a restart was not counted.
        let closing = self.ledger.closing(asked.unique, asked.node);
        let sent = asked.device.send(&mut Reply::new(asked.unique, 0));
        if handle == NONE {
            self.close(asked.device, self.inodes.release_through(asked.node, closing));
            return sent;
        }
        let file = self.handles.remove(handle);
        if file.is_some() || self.handles.is_of_another(handle) {
            self.inodes.release_served(asked.node, file.is_some_and(|file| file.small_reads()), closing);
        }
        sent
    }

    pub(super) fn read(self: &Arc<Service>, asked: Asked<'_>, handle: u64, span: Span) -> Result<(), Gone> {
        self.counters.reads.add(1);
        if self.immutable {
            return self.read_unopened(asked, span);
        }
        if let Some(file) = self.handles.get(handle) {
            file.count(span.length);
            return self.read_from(asked, &*file.content, span.within(file.size));
        }
        match self.handles.is_of_another(handle) {
            true => self.open_to_read(asked, span, move |service, content, size| {
                service.handles.put(handle, content, size);
            }),
            false => asked.device.fail(asked.unique, Errno::BADF),
        }
    }

    fn opened(&self, asked: Asked<'_>, known: inode::Asked, content: Found<Arc<dyn Content>>) -> Result<(), Gone> {
        let content = match content {
            Ok(content) => content,
            Err(error) => return self.refuse(asked, &error),
        };
        let offer = if known.served { None } else { self.offer(asked, &*content) };
        let (Settled { way, close }, opening) = self.inodes.settle(asked.node, asked.unique, known, offer);
        self.close(asked.device, close);
        if !content.lasts() {
            self.close(asked.device, self.inodes.revoke(asked.node));
        }
        match way {
            Way::Through(backing) => self.opened_through(asked, backing, Some(opening)),
            Way::Served { small_reads } => self.opened_served(asked, content, small_reads, opening),
        }
    }

    fn opened_through(&self, asked: Asked<'_>, backing: BackingId, opening: Option<Sending<'_>>) -> Result<(), Gone> {
        self.counters.opens_through.add(1);
        self.ahead.opened();
        self.counters.bytes_through.add(self.namespace.attributes(asked.node).map_or(0, |found| found.size));
        let flags = open::PASSTHROUGH | open::NOFLUSH;
        let sent = asked.device.send(&mut Reply::open(asked.unique, NONE, flags, backing.0));
        drop(opening);
        if sent.is_err() {
            let nobody = self.ledger.closing(asked.unique, asked.node);
            self.close(asked.device, self.inodes.release_through(asked.node, nobody));
        }
        sent
    }

    fn opened_served(
        &self,
        asked: Asked<'_>,
        content: Arc<dyn Content>,
        small_reads: bool,
        opening: Sending<'_>,
    ) -> Result<(), Gone> {
        let Some(found) = self.namespace.attributes(asked.node) else {
            self.inodes.release_served(asked.node, false, opening);
            return asked.device.fail(asked.unique, Errno::STALE);
        };
        self.counters.opens_served.add(1);
        let size = found.size;
        // Small files live best in the page cache also without a local file: they are read whole, and their pages cost
        // less than asking again.
        let cached = content.cacheable() && (small_reads || size <= SMALL || content.backing().is_some());
        let mappable = self.direct_maps.load(Ordering::Relaxed) || !content.cacheable();
        // A node never changes, so pages once read stay right over all opens. The kernel would forget those of maps at each
        // open, and wait for every one on its way, out of reach of any signal.
        let mode = match (cached || !mappable, content.cacheable()) {
            (true, _) => open::KEEP_CACHE,
            (false, true) => open::DIRECT_IO | open::KEEP_CACHE,
            (false, false) => open::DIRECT_IO,
        };
        let handle = self.handles.insert(content, size);
        let sent = asked.device.send(&mut Reply::open(asked.unique, handle, mode | open::NOFLUSH, 0));
        if sent.is_err() {
            self.handles.remove(handle);
            self.inodes.release_served(asked.node, false, opening);
        }
        sent
    }

    /// The backing file of complete content, registered with the kernel.
    fn offer(&self, asked: Asked<'_>, content: &dyn Content) -> Option<Backing> {
        if self.no_passthrough.get().is_some() {
            return None;
        }
        let file = content.backing()?;
        let size = self.namespace.attributes(asked.node).map_or(u64::MAX, |found| found.size);
        // What is asked for anew at each open would be prepared in vain.
        let ahead = if content.lasts() { self.ahead.opening(file, size) } else { None };
        match asked.device.register(file) {
            Ok(id) => {
                self.ledger.registered(id);
                Some(Backing { id, ahead })
            }
            Err(errno) => {
                match refusal(errno) {
                    Some(reason) => self.stop_passthrough(reason),
                    None => tracing::debug!("registering a backing file: {errno}"),
                }
                None
            }
        }
    }

    /// On a mount without opens: by node, from content kept open for it.
    fn read_unopened(self: &Arc<Service>, asked: Asked<'_>, span: Span) -> Result<(), Gone> {
        if let Some(content) = self.contents.get(asked.node)
            && let Some(found) = self.namespace.attributes(asked.node)
        {
            self.used.note(asked.as_use(span.offset == 0));
            return self.read_from(asked, &*content, span.within(found.size));
        }
        let node = asked.node;
        self.open_to_read(asked, span, move |service, content, _| service.contents.keep(node, content))
    }

    /// Read content that is not open in this process; `keep` it open.
    fn open_to_read(
        self: &Arc<Service>,
        asked: Asked<'_>,
        span: Span,
        keep: impl FnOnce(&Service, Arc<dyn Content>, u64) + Send + 'static,
    ) -> Result<(), Gone> {
        let Some(found) = self.namespace.attributes(asked.node) else {
            return asked.device.fail(asked.unique, Errno::STALE);
        };
        let span = span.within(found.size);
        self.tell_used_first();
        match self.namespace.open_by(asked.node, asked.thread) {
            Opening::Ready(Ok(content)) => {
                keep(self, content.clone(), found.size);
                self.read_from(asked, &*content, span)
            }
            Opening::Ready(Err(error)) => self.refuse(asked, &error),
            Opening::Waiting(content) => {
                let service = self.clone();
                self.finish(asked, span, async move {
                    let content = content.await?;
                    keep(&service, content.clone(), found.size);
                    match content.read(span.offset, span.length) {
                        Reading::Ready(pieces) => pieces,
                        Reading::Waiting(pieces) => pieces.await,
                    }
                })
            }
        }
    }

    fn read_from(self: &Arc<Service>, asked: Asked<'_>, content: &dyn Content, span: Span) -> Result<(), Gone> {
        if span.length == 0 {
            return asked.device.send_pieces(asked.unique, &[]);
        }
        match content.read_by(span.offset, span.length, asked.thread) {
            Reading::Ready(pieces) => self.deliver(asked, span, pieces),
            Reading::Waiting(pieces) => self.finish(asked, span, pieces),
        }
    }

    /// Deliver pieces when they are there.
    fn finish<F>(self: &Arc<Service>, asked: Asked<'_>, span: Span, pieces: F) -> Result<(), Gone>
    where
        F: Future<Output = Found<Pieces>> + Send + 'static,
    {
        let (service, Asked { node, thread, .. }) = (self.clone(), asked);
        self.later(asked, |ticket| async move {
            let pieces = pieces.await;
            if let Some(owed) = ticket.claim() {
                let asked = Asked { device: &owed.device, unique: owed.unique, node, thread };
                let _: Result<(), Gone> = service.deliver(asked, span, pieces);
            }
        })
    }

    fn deliver(&self, asked: Asked<'_>, span: Span, pieces: Found<Pieces>) -> Result<(), Gone> {
        let pieces = match pieces {
            Ok(pieces) => pieces,
            // To whoever has it open, a version that is gone is no name that isn't there.
            Err(mut error) if error.kind == block::Kind::Missing => {
                error.kind = block::Kind::Changed;
                return self.refuse(asked, &error);
            }
            Err(error) => return self.refuse(asked, &error),
        };
        let length: usize = pieces.iter().map(Bytes::len).sum();
        if length != span.length as usize {
            // The kernel would fill what is missing with zeros, and nobody would ever know.
            let what = format!("a read of {} bytes at {} gave {length}", span.length, span.offset);
            return self.refuse(asked, &block::Error::corrupt(what, format!("node {}", asked.node)));
        }
        self.counters.bytes_served.add(length as u64);
        asked.device.send_pieces(asked.unique, &pieces)
    }
}

/// A part of a file.
#[derive(Clone, Copy)]
pub struct Span {
    pub offset: u64,
    pub length: u32,
}

impl Span {
    /// What lies in a file of this size.
    fn within(self, size: u64) -> Span {
        let left = size.saturating_sub(self.offset);
        Span { length: self.length.min(u32::try_from(left).unwrap_or(u32::MAX)), ..self }
    }
}

/// Why no file at all will pass through, if the kernel's answer means that.
pub fn refusal(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            Some("the kernel lets only root of the host (CAP_SYS_ADMIN in the first user namespace) pass reads through")
        }
        Errno::LOOP => Some(
            "the cache lies on a stacked file system (overlayfs): put it on a plain one, or allow a stack depth of 2",
        ),
        Errno::NOTTY | Errno::NOSYS | Errno::OPNOTSUPP => {
            Some("this kernel has no FUSE passthrough (Linux 6.9 or later has)")
        }
        _ => None,
    }
}
