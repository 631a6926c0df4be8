//! Which data set a connection means, and whether it may read it.
//!
//! Invariant: by a URL nobody but the node's own user (or root) opens anything, each with the credentials that came with
//! the question; others read what is mounted, as far as owner and mode of the mount let them.

use crate::data::Desk;
use crate::host::{Host, Visit};
use crate::mounted::{Mounted, follow_unmounted, order};
use block::{Error, Result};
use client::messages::{self, DATA_VERSION, Hello, MountPath, MountRequest, Welcome};
use mount::Places;
use node::View;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::Location;
use tokio::net::unix::UCred;

/// How long a data set stays open without a reader: short processes follow each other, and each would list a local
/// folder, or start a node.
const LINGERS: Duration = Duration::from_secs(5);

/// Whether somebody may ask for whatever this process can: its own user, or root, who sees the same file systems. In a container that was
/// given this socket, root is nobody special: its paths are others, and what it may not reach is not to be reached by way of us.
pub fn is_ours(peer: &UCred) -> bool {
    (peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw()) && peer.pid().is_some_and(sees_what_we_see)
}

fn sees_what_we_see(process: i32) -> bool {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    matches!((of(&process.to_string()), of("self")), (Ok(theirs), Ok(ours)) if theirs == ours)
}

/// Whom the names of a mount belong to, and who may read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub owner: u32,
    pub group: u32,
    pub file_mode: u32,
    pub folder_mode: u32,
    /// Whether the kernel lets others in at all.
    pub to_others: bool,
}

impl Shown {
    /// Of a mount that was asked for.
    pub fn of(options: &mount::Options) -> Shown {
        Shown {
            owner: options.owner.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            group: options.group.unwrap_or_else(|| rustix::process::getegid().as_raw()),
            file_mode: options.file_mode,
            folder_mode: options.folder_mode,
            to_others: options.allow_other,
        }
    }

    /// Whether somebody may read files and enter folders. Which further groups they are in isn't known: where those would
    /// have less than others have, so have they.
    pub fn lets(&self, user: u32, group: u32) -> bool {
        let class = |shift: u32| self.file_mode >> shift & 0o4 != 0 && self.folder_mode >> shift & 0o5 == 0o5;
        self.to_others
            && match () {
                () if user == self.owner => class(6),
                () if group == self.group => class(3),
                () => class(0) && class(3),
            }
    }
}

/// A data set that is open without a mount.
pub struct Opened {
    pub view: Arc<View>,
    pub connections: AtomicU64,
    /// Keeps the node alive.
    _visit: Visit,
}

impl Opened {
    pub fn status(&self) -> messages::Opened {
        let totals = self.view.totals();
        messages::Opened {
            url: self.view.url().into(),
            objects: totals.files,
            bytes: totals.bytes,
            listed_at: self.view.manifest().listed_ns() / 1_000_000_000,
            connections: self.connections.load(Relaxed),
            orders: self.view.prefetch().progress().into_iter().map(order).collect(),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.view.close();
    }
}

/// What a connection reads.
pub enum Set {
    Mounted(Arc<Mounted>),
    Opened(Arc<Opened>),
}

/// A connection to a data set, counted for as long as it lives.
pub struct Reader {
    pub set: Set,
    /// The folder in it whose names are meant, without slashes at its ends.
    pub under: String,
    host: Arc<Host>,
}

impl Set {
    pub fn view(&self) -> &Arc<View> {
        match self {
            Set::Mounted(mounted) => &mounted.view,
            Set::Opened(opened) => &opened.view,
        }
    }

    /// Ends when there is no more to read.
    pub async fn ended(&self) {
        match self {
            Set::Mounted(mounted) => mounted.ended().await,
            Set::Opened(_) => std::future::pending().await,
        }
    }

    /// List it again.
    pub async fn refresh(&self) -> Result<()> {
        match self {
            Set::Mounted(mounted) => mounted.refresh().await.map(drop),
            Set::Opened(opened) => opened.view.refresh(|_| ()).await.map(drop),
        }
    }

    pub fn welcome(&self, under: &str) -> Welcome {
        let (view, totals) = (self.view(), self.view().totals());
        let mounted = match self {
            Set::Mounted(mounted) => {
                let (places, path) = (Places::now(), |path: &str| path.trim_end_matches('/').into());
                mounted.path_in(&places).join(under).to_str().map(path)
            }
            Set::Opened(_) => None,
        };
        Welcome {
            version: DATA_VERSION,
            pid: std::process::id(),
            url: view.url().into(),
            mounted,
            objects: totals.files,
            bytes: totals.bytes,
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Set::Opened(opened) = &self.set else { return };
        opened.connections.fetch_sub(1, Relaxed);
        let (host, opened) = (self.host.clone(), opened.clone());
        let lingering = async move {
            tokio::select! {
                () = tokio::time::sleep(LINGERS) => {}
                () = host.closes() => {}
            }
            drop(opened);
        };
        // There is no runtime any more where the process ends.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(lingering);
        }
    }
}

/// The data set that is meant, and the folder in it.
pub async fn find(host: &Arc<Host>, hello: Hello, (peer, is_ours): (&UCred, bool)) -> Result<Reader> {
    let reader = |set, under| Reader { set, under, host: host.clone() };
    if hello.version != DATA_VERSION {
        let what = format!("this node speaks version {DATA_VERSION} of the data socket, and not {}", hello.version);
        let error = Error::invalid(what, "the data socket");
        return Err(error.hint("use a client and a node of the same version of Stoker"));
    }
    if let Some(path) = &hello.path {
        let place = MountPath { path: path.clone(), ..MountPath::default() };
        match host.find(&place).await {
            Ok((mounted, rest)) if is_ours || mounted.shown.lets(peer.uid(), peer.gid()) => {
                return Ok(reader(Set::Mounted(mounted), rest.to_string_lossy().into_owned()));
            }
            Ok(_) => {}
            Err(_) if is_ours => {}
            Err(error) => return Err(error),
        }
    }
    let url = hello.url.clone().or_else(|| hello.path.clone()).unwrap_or_default();
    if !is_ours {
        let mounts = host.mounts().clone();
        let open = |mounted: &&Arc<Mounted>| {
            mounted.view.url() == url && !mounted.is_detached() && mounted.shown.lets(peer.uid(), peer.gid())
        };
        let found = mounts.iter().find(open).cloned().ok_or_else(|| {
            let error = Error::denied(format!("nothing of this is mounted for user {} to read", peer.uid()), &url);
            error.hint("have it mounted by the node's user, with a mode that lets you read it")
        });
        return Ok(reader(Set::Mounted(found?), String::new()));
    }
    // The files of profiles may lie on a file system that hangs.
    let looked_up = tokio::task::spawn_blocking(|| request(hello, url)).await;
    let request = looked_up.map_err(|_| Error::unavailable("the node is stopping", "the data socket"))??;
    Ok(reader(Set::Opened(open(host, request).await?), String::new()))
}

/// What a mount would be asked for by, without a place. What the command looks up before it asks for one, where AWS's tools
/// were told that S3 is, is looked up here by the variables that came along.
fn request(hello: Hello, url: String) -> Result<MountRequest> {
    let mut request = MountRequest {
        url,
        endpoint: hello.endpoint,
        region: hello.region,
        profile: hello.profile,
        anonymous: hello.anonymous,
        keys: hello.keys,
        variables: hello.variables,
        ..MountRequest::default()
    };
    if matches!(request.url.parse(), Ok(Location::S3 { .. })) && !request.variables.is_empty() {
        let keys = request.keys.as_ref().map(|keys| keys.access_key.clone());
        let variable = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" if keys.is_some() => keys.clone(),
            _ => request.variables.0.get(name).cloned(),
        };
        let needs = (request.endpoint.is_none(), request.region.is_none());
        let told = store::configured(&variable, request.profile.as_deref(), needs)?;
        let profile = store::named_profile(&variable, request.profile.as_deref());
        request.endpoint = request.endpoint.or(told.endpoint.map(|told| told.value));
        request.region = request.region.or(told.region.map(|told| told.value));
        request.profile = profile;
    }
    Ok(request)
}

/// Open a data set without a mount, or the one that somebody has open by the same words and credentials.
async fn open(host: &Arc<Host>, request: MountRequest) -> Result<Arc<Opened>> {
    let words = serde_json::to_vec(&request).expect("messages are plain values");
    let desk: &Desk = &host.desk;
    let place = {
        let mut sets = desk.sets();
        sets.retain(|_, place| Arc::strong_count(place) > 1 || place.try_lock().is_ok_and(|at| at.strong_count() > 0));
        sets.entry(words).or_default().clone()
    };
    let mut place = place.lock().await;
    let opened = match place.upgrade() {
        Some(opened) => opened,
        None => {
            let visit = host.enter()?;
            let view = host.open(&request, |_| ()).await?;
            tokio::spawn(follow_unmounted(Arc::downgrade(&view)));
            let opened = Arc::new(Opened { view, connections: AtomicU64::new(0), _visit: visit });
            *place = Arc::downgrade(&opened);
            opened
        }
    };
    opened.connections.fetch_add(1, Relaxed);
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_read_goes_by_owner_group_and_mode_and_by_the_least_where_groups_are_not_known() {
        let usual = Shown { owner: 1, group: 2, file_mode: 0o444, folder_mode: 0o555, to_others: true };
        assert!(usual.lets(1, 9) && usual.lets(9, 2) && usual.lets(9, 9));
        assert!(!Shown { to_others: false, ..usual }.lets(1, 2));
        let group = Shown { file_mode: 0o440, folder_mode: 0o550, ..usual };
        assert!(group.lets(1, 9) && group.lets(9, 2) && !group.lets(9, 9));
        let not_group = Shown { file_mode: 0o404, folder_mode: 0o505, ..usual };
        assert!(!not_group.lets(9, 2) && !not_group.lets(9, 9), "who knows what further groups they are in");
        assert!(!Shown { folder_mode: 0o444, ..usual }.lets(9, 9), "folders are to be entered");
    }
}
