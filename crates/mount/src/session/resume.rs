//! A mount goes on in another process than the one that made it: what it leaves, and how that is taken up.
//!
//! Invariant: what the kernel asked and nobody answered is answered once, by whoever goes on.

use super::Session;
use crate::abi::{Reply, Request, UNIQUE_RESENT};
use crate::attach::{MountPoint, Number, Places};
use crate::device::{Buffer, DEVICE, Device};
use crate::ledger::Ledger;
use crate::service::{Passthrough, Service};
use crate::{Namespace, Options};
use block::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::runtime::Handle;

/// Requests that wait at most: one for each thread that reads, and the readahead that INIT allowed.
const WAITING_MAX: usize = 1 << 20;

/// What was settled when the mount was made, and holds for as long as it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Without links.
    pub path: PathBuf,
    pub number: Option<Number>,
    /// The kernel can map what is read past its page cache.
    pub direct_maps: bool,
    /// Why nothing passes through; `None` if it does.
    pub no_passthrough: Option<String>,
}

impl Terms {
    /// The mount point as it is called by now.
    pub fn path_in<'a>(&'a self, places: &'a Places) -> &'a Path {
        places.of(self.number, &self.path)
    }

    /// Unmount it from everywhere if it is where it was mounted: it may have ended, and its number be another's.
    pub fn unmount_there(&self) -> Result<()> {
        let place = MountPoint::of(self.path.clone(), self.number);
        if place.is_there() { place.leave().map(drop) } else { Ok(()) }
    }

    /// Unmount it, even while files are open: from everywhere, if it is where it was mounted, or else its number may be another's.
    pub fn unmount(&self) -> Result<()> {
        let place = MountPoint::of(self.path.clone(), self.number);
        if place.is_there() { place.leave().map(drop) } else { place.unmount(true) }
    }
}

/// What a process leaves whose mount is to go on: duplicates of its descriptors.
pub struct Left {
    /// In the order of [`Session::devices`].
    pub devices: Vec<OwnedFd>,
    pub ledger: OwnedFd,
}

/// Which names a mount got to at last, for whoever goes on with it.
pub struct Newest(Arc<Ledger>);

impl Newest {
    /// The kernel may know nodes of these names from now on.
    pub fn are(&self, generation: u32) {
        self.0.expect(generation);
    }
}

impl Session {
    /// Its descriptors of the device. The mount lives for as long as somebody holds the first of them, and what was read from
    /// one is owed for as long as somebody holds that one.
    pub fn devices(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.devices.iter().map(|device| device.as_fd())
    }

    /// What is open.
    pub fn ledger(&self) -> BorrowedFd<'_> {
        self.service.ledger.file()
    }

    /// Whether it can go on in another process: only if the kernel asks again what this one did not answer.
    pub fn can_go_on(&self) -> bool {
        self.resends
    }

    /// From now on it ends with this session, wherever it came from.
    pub fn settle(&self) {
        self.stays.store(false, Relaxed);
    }

    /// Processes that served it before this one.
    pub fn restarts(&self) -> u32 {
        self.service.ledger.restarts()
    }

    /// To be told of names before the kernel gets to know any of them.
    pub fn newest(&self) -> Newest {
        Newest(self.service.ledger.clone())
    }

    /// What the kernel keeps of the listing of a folder, it is to forget.
    pub fn forget_listing(&self, folder: u64) {
        self.notify(Reply::invalidate_node(folder).seal());
    }

    /// The names of which the kernel was told all that went stale.
    pub fn told(&self) -> u32 {
        self.service.ledger.told()
    }

    pub fn terms(&self) -> Terms {
        let no_passthrough = match self.service.passthrough() {
            Passthrough::On => None,
            Passthrough::Off { reason } => Some(reason),
        };
        let direct_maps = self.service.maps_directly();
        Terms { path: self.place.path().to_owned(), number: self.place.number(), direct_maps, no_passthrough }
    }
}

/// What is said of a mount that is to go on and has ended meanwhile.
pub const ENDED: &str = "the mount has ended meanwhile";

/// Go on with a mount of a process that is gone. If it can't, the mount is as it was, also if the session is dropped before it is
/// [settled](Session::settle).
pub fn resume(
    options: &Options,
    terms: Terms,
    left: Left,
    namespace: Arc<dyn Namespace>,
    runtime: Handle,
) -> Result<Session> {
    let ledger = Arc::new(Ledger::of(left.ledger)?);
    let devices: Vec<_> = left.devices.into_iter().map(|device| Arc::new(Device::from(device))).collect();
    let device = devices.first().cloned().ok_or_else(|| Error::corrupt("there is no device", terms.path.display()))?;
    let asked = asked_again(&device).map_err(|errno| match errno {
        Errno::NODEV | Errno::CONNABORTED => Error::unavailable(ENDED, terms.path.display()),
        errno => Error::io("going on with a mount", DEVICE, &errno.into()),
    })?;
    let again = |request: &Vec<u8>| Request::decode(request).ok().map(|request| request.unique);
    let again: HashSet<u64> = asked.iter().filter_map(again).filter(|unique| unique & UNIQUE_RESENT != 0).collect();
    if ledger.newest() > namespace.names().map_or(u32::MAX, |names| names.generation()) {
        let what = "the latest names of it are lost, and numbers of nodes would be given twice";
        return Err(Error::corrupt(what, terms.path.display()));
    }
    let unneeded = ledger.take_over(|unique| again.contains(&(unique | UNIQUE_RESENT)));
    let service = Arc::new(Service::new(options, namespace, runtime, device.clone(), ledger));
    service.close(&device, unneeded);
    if !terms.direct_maps {
        service.stop_direct_maps();
    }
    if let Some(reason) = terms.no_passthrough {
        service.stop_passthrough(reason);
    }
    let place = MountPoint::of(terms.path, terms.number);
    let session = Session { service, device, devices, resends: true, place, alive: Arc::default(), stays: true.into() };
    *session.alive.threads() = 1;
    session.start(options, asked)?;
    session.service.follow_used();
    Ok(session)
}

/// Have the kernel ask again what was not answered, and read all that is asked by now: nobody is answered meanwhile, so
/// there is an end to it.
fn asked_again(device: &Device) -> std::result::Result<Vec<Vec<u8>>, Errno> {
    device.write(Reply::resend().seal())?;
    let (mut buffer, mut asked) = (Buffer::new(), Vec::new());
    while asked.len() < WAITING_MAX
        && let Some(request) = device.read_now(&mut buffer)?
    {
        asked.push(request.to_vec());
    }
    Ok(asked)
}
