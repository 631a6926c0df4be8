//! A mount goes on in the next process: what is held of it, and how that process takes it up.
//!
//! Held under the number of the mount: each descriptor of the device (`7.device.0`), what is open (`7.ledger`), each
//! snapshot of names that the kernel may know nodes of (`7.names.3`) and, last, the terms (`7.terms`): what was asked
//! for, with the credentials that came with it, in memory that is no file's. Of one that a command holds in the foreground, its
//! process too (`7.holder`).
//!
//! Invariant: a mount goes on with the names and the store of whom it was mounted for, or not at all.

use crate::holder::{Holder, end_unless_held};
use crate::host::{Comes, Host, Visit, fill};
use crate::keeper::{Held, Keeper, Named};
use crate::reach;
use block::{Error, Kind, Result};
use client::messages::MountRequest;
use mount::{Left, Number, Places, Session};
use node::manifest::{self, Manifest};
use node::{Identity, View};
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinSet;

/// Of the terms; another is refused.
const VERSION: u32 = 1;

/// Before a store that was not there is looked for again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What goes by longer terms was not written by us: a request is as long as the environment that it came from.
const TERMS_BYTES_MAX: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
pub struct Terms {
    version: u32,
    request: MountRequest,
    store: String,
    /// Hexadecimal.
    set: String,
    /// The principal that the store was asked by; not known of a mount of an earlier version.
    #[serde(default)]
    who: Option<String>,
    path: PathBuf,
    /// Major and minor.
    number: Option<(u32, u32)>,
    direct_maps: bool,
    no_passthrough: Option<String>,
}

/// All that is held of a mount.
#[derive(Default)]
pub struct Holding {
    _held: Vec<Held>,
    holder: Option<Held>,
    lacking: Lacking,
}

impl Holding {
    /// Whether the kernel may know nodes of names that nobody holds: nobody goes on without them.
    pub fn lacks_names(&self) -> bool {
        self.lacking.0.load(Relaxed) > 0
    }

    /// The process that holds the mount in the foreground, whose end is that of the mount.
    pub fn note_holder(&mut self, keeper: &Arc<Keeper>, id: u64, process: BorrowedFd<'_>) {
        // What has the same name is let go of first.
        self.holder = None;
        match keeper.hold(format!("{id}.holder"), process) {
            Ok(held) => self.holder = Some(held),
            Err(error) => tracing::warn!("the next process will not know who holds the mount: {error}"),
        }
    }
}

/// Counts names that are not held for as long as they are in use.
#[derive(Clone, Default)]
struct Lacking(Arc<AtomicUsize>);

struct Lacks(Lacking);

impl Drop for Lacks {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

impl Lacking {
    /// Have names held, or count them.
    fn hold(&self, keeper: &Arc<Keeper>, name: String, names: BorrowedFd<'_>) -> manifest::Held {
        match keeper.hold(name, names) {
            Ok(held) => Box::new(held),
            Err(error) => {
                tracing::warn!("the mount will not outlive this process: {error}");
                self.0.fetch_add(1, Relaxed);
                Box::new(Lacks(self.clone()))
            }
        }
    }
}

/// Have all held that a mount takes to go on.
pub fn hold(keeper: &Arc<Keeper>, id: u64, terms: OwnedFd, view: &View, session: &Session) -> Result<Holding> {
    let (of_names, newest, lacking) = (keeper.clone(), session.newest(), Lacking::default());
    let counted = lacking.clone();
    view.hold_names(move |names: &Manifest| -> manifest::Held {
        let held = counted.hold(&of_names, format!("{id}.names.{}", names.generation()), names.file().as_fd());
        newest.are(names.generation());
        held
    });
    let named = session.devices().enumerate().map(|(number, device)| (format!("{id}.device.{number}"), device));
    let named = named.chain([(format!("{id}.ledger"), session.ledger()), (format!("{id}.terms"), terms.as_fd())]);
    let held = named.map(|(name, descriptor)| keeper.hold(name, descriptor)).collect::<Result<_>>()?;
    Ok(Holding { _held: held, holder: None, lacking })
}

/// What was asked for and settled, for whoever goes on.
pub fn terms(request: &MountRequest, view: &View, session: &Session) -> Result<OwnedFd> {
    let (Identity { store, set, who }, settled) = (view.identity(), session.terms());
    let terms = Terms {
        version: VERSION,
        request: request.clone(),
        store: store.to_string(),
        set: format!("{set:032x}"),
        who: who.map(|who| who.to_string()),
        path: settled.path,
        number: settled.number.map(|number| (number.major, number.minor)),
        direct_maps: settled.direct_maps,
        no_passthrough: settled.no_passthrough,
    };
    let text = serde_json::to_vec(&terms).expect("terms are plain values");
    let write = || -> std::io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("stoker-terms", flags)?);
        file.write_all_at(&text, 0)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file.into())
    };
    write().map_err(|error| Error::io("noting what was asked for", "memory", &error))
}

/// What errors are about.
const GOES_ON: &str = "a mount that is to go on";

fn read(file: &File) -> Result<Terms> {
    let length = file.metadata().map_or(0, |found| found.len());
    let mut text = vec![0; length.min(TERMS_BYTES_MAX) as usize];
    let failed = |error| Error::corrupt(format!("its terms can't be read: {error}"), GOES_ON);
    file.read_exact_at(&mut text, 0).map_err(failed)?;
    parse(&text)
}

/// Terms out of their text.
pub fn parse(text: &[u8]) -> Result<Terms> {
    // What does not parse may be a secret, so nothing of it is shown.
    let terms: Terms =
        serde_json::from_slice(text).map_err(|_| Error::corrupt("its terms are not understood", GOES_ON))?;
    match terms.version {
        VERSION => Ok(terms),
        other => Err(Error::corrupt(format!("its terms are of version {other}"), GOES_ON)),
    }
}

/// What was settled of the mounts that a process left.
pub fn settled(named: &Named) -> Vec<mount::Terms> {
    let terms = named.iter().filter(|(name, _)| name.ends_with(".terms"));
    let files = terms.filter_map(|(_, terms)| Some(File::from(terms.try_clone().ok()?)));
    files.filter_map(|file| Some(read(&file).ok()?.settled())).collect()
}

impl Terms {
    pub fn settled(&self) -> mount::Terms {
        mount::Terms {
            path: self.path.clone(),
            number: self.number.map(|(major, minor)| Number { major, minor }),
            direct_maps: self.direct_maps,
            no_passthrough: self.no_passthrough.clone(),
        }
    }
}

/// What was held of a mount, as far as it can be told before anything is asked.
struct Waiting {
    id: u64,
    named: Named,
    terms: Terms,
    visit: Visit,
    comes: Comes,
}

impl Host {
    /// Go on with the mounts of a process that is gone, all at once; commands that name one may be heard as soon as this returns. What
    /// can't go on in the end: by which names it is held, and why, which is [`mount::ENDED`] where there is nothing to go on with.
    pub fn resume(self: &Arc<Host>, mut named: Named) -> impl Future<Output = Vec<(Vec<String>, Error)>> + use<> {
        let ids: BTreeSet<u64> = named.keys().filter_map(|name| number(name)).collect();
        // One that hangs has a task of its own, and keeps no other waiting.
        let (mut each, mut failed) = (JoinSet::new(), Vec::new());
        for id in ids {
            let of_it: Named = named.extract_if(.., |name, _| number(name) == Some(id)).collect();
            let names: Vec<String> = of_it.keys().cloned().collect();
            match self.awaited(id, of_it) {
                Ok(waiting) => {
                    let host = self.clone();
                    each.spawn(async move { host.resume_one(waiting).await.map_err(|error| (names, error)) });
                }
                Err(error) => failed.push((names, error)),
            }
        }
        async move {
            failed.extend(each.join_all().await.into_iter().filter_map(Result::err));
            failed
        }
    }

    /// A mount that commands wait for from now on.
    fn awaited(self: &Arc<Host>, id: u64, named: Named) -> Result<Waiting> {
        let noted = named.get(&format!("{id}.terms")).ok_or_else(|| over(id))?.try_clone();
        let noted = noted.map_err(|error| Error::io("duplicating a descriptor", format!("mount {id}"), &error))?;
        let terms = read(&noted.into())?;
        let comes = self.comes(id, &terms.request.url, terms.settled().path_in(&Places::now()));
        Ok(Waiting { id, named, terms, visit: self.enter()?, comes })
    }

    async fn resume_one(self: &Arc<Host>, waiting: Waiting) -> Result<()> {
        let Waiting { id, mut named, terms, visit, comes } = waiting;
        let mut take = |name: &str| named.remove(&format!("{id}.{name}")).ok_or_else(|| over(id));
        let (noted, ledger) = (take("terms")?, take("ledger")?);
        let holder = take("holder").ok().map(Holder::left);
        let first = take("device.0")?;
        let further = (1..).map_while(|number| take(&format!("device.{number}")).ok());
        let devices: Vec<OwnedFd> = std::iter::once(first).chain(further).collect();
        let mut names = Vec::new();
        for (name, file) in named.extract_if(.., |name, _| name.starts_with(&format!("{id}.names."))) {
            names.push(Manifest::of(&file.into(), Path::new(&name))?);
        }
        names.sort_by_key(Manifest::generation);
        let look = || self.source(&terms.request);
        let found = tokio::select! {
            found = once_there(self.node().settings().patience, look, |error| comes.waits_for(error)) => found,
            () = self.closes() => return Err(end(id, terms.settled()).await),
        };
        let source = found.map(|source| (source, None)).or_else(|error| {
            let source = reach::without_store(&terms.request, &terms.store, &error).ok_or_else(|| error.clone())?;
            tracing::error!("a mount goes on with what is kept of it alone: {error}");
            Ok((source, Some(error)))
        })?;
        let no_name = |_| Error::corrupt("its set has no name", &terms.request.url);
        let set = u128::from_str_radix(&terms.set, 16).map_err(no_name)?;
        let who = terms.who.as_deref().map(Into::into);
        let identity = Identity { store: terms.store.as_str().into(), set, who };
        let view = View::resume(self.node().clone(), source, fill(&terms.request)?, identity, names)?;
        let settled = terms.settled();
        let (options, namespace, runtime) =
            (crate::host::options(&terms.request, &view), view.clone(), tokio::runtime::Handle::current());
        let left = Left { devices, ledger };
        let resuming = move || mount::resume(&options, settled, left, namespace, runtime);
        let session = tokio::task::spawn_blocking(resuming).await;
        let session =
            session.map_err(|error| Error::unavailable(format!("it was given up: {error}"), view.url()))??;
        let (told, is_for_one) = (session.told(), terms.request.hold);
        let mounted = self.take_in(id, terms.request, view, session, visit, Some(noted))?;
        mounted.tell_stale_since(told).await?;
        mounted.settle();
        if is_for_one {
            mounted.note_holder(self.keeper(), holder.as_ref());
            tokio::spawn(end_unless_held(self.clone(), mounted.clone(), holder));
        }
        tracing::info!("going on with {} at {}", mounted.view.url(), mounted.path.display());
        Ok(())
    }
}

/// End a mount that is not gone on with, as the node ends.
async fn end(id: u64, settled: mount::Terms) -> Error {
    match tokio::task::spawn_blocking(move || settled.unmount()).await {
        Ok(Err(error)) => error,
        _ => over(id),
    }
}

/// A mount that was being made, or has ended, may have left a part of what it takes.
fn over(id: u64) -> Error {
    Error::unavailable(mount::ENDED, format!("mount {id}"))
}

/// What is looked for, once it is there: a file system of the network may be away for as long as reads would wait for it.
async fn once_there<T, F: Future<Output = Result<T>>>(
    patience: Duration,
    look: impl Fn() -> F,
    told: impl Fn(&Error),
) -> Result<T> {
    let late = tokio::time::sleep(patience);
    tokio::pin!(late);
    loop {
        match look().await {
            Err(error @ Error { kind: Kind::Unavailable { .. }, .. }) if !late.is_elapsed() => {
                tracing::warn!("a mount waits for its store: {error}");
                told(&error);
                tokio::select! {
                    () = &mut late => {}
                    () = tokio::time::sleep(AGAIN_AFTER) => {}
                }
            }
            found => return found,
        }
    }
}

/// The number of the mount that a name is of.
fn number(name: &str) -> Option<u64> {
    name.split_once('.').and_then(|(id, _)| id.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::cell::Cell;
    use std::future::ready;

    /// Made by version 1: all that can be asked for, and next to nothing.
    const OF_VERSION_1: [&str; 2] = [include_str!("resume/1.json"), include_str!("resume/1-bare.json")];

    /// What of this is not in that, or otherwise.
    fn lost(this: &Value, that: &Value, at: &str, out: &mut Vec<String>) {
        match (this, that) {
            (Value::Object(this), Value::Object(that)) => {
                let of = |name: &String| that.get(name).unwrap_or(&Value::Null).clone();
                this.iter().for_each(|(name, value)| lost(value, &of(name), &format!("{at}.{name}"), out));
            }
            _ if this == that => {}
            _ => out.push(format!("{at}: {this} is {that}")),
        }
    }

    #[test]
    fn terms_of_version_1_are_read_and_written_the_same() {
        for text in OF_VERSION_1 {
            let file = tempfile::tempfile().expect("a file");
            file.write_all_at(text.as_bytes(), 0).expect("it is written");
            let terms = read(&file).expect("a field that is added needs a default (docs/format.md)");
            let (mut out, written) = (Vec::new(), serde_json::to_value(&terms).expect("plain values"));
            lost(&text.parse().expect("JSON"), &written, "terms", &mut out);
            assert!(out.is_empty(), "another layout takes another VERSION (docs/format.md): {out:?}");
        }
        let terms: Terms = serde_json::from_str(OF_VERSION_1[0]).expect("as above");
        let keys = terms.request.keys.expect("keys");
        assert_eq!((keys.access_key, keys.secret_key), ("AKIDTEST".into(), "a secret of nobody".into()));
        assert_eq!((terms.number, terms.direct_maps, terms.request.hold), (Some((0, 57)), true, true));
        assert_eq!((terms.request.owner, terms.request.group), (Some(1000), Some(100)));
    }

    #[test]
    fn a_mount_of_whose_names_some_are_not_held_does_not_outlive_its_process_until_they_are_gone() {
        let (keeper, file) = (Arc::new(Keeper::default()), tempfile::tempfile().expect("a file"));
        let holding = Holding::default();
        // As many as can be, by descriptors or by what is held of one node at most.
        let full: Vec<Held> = (0..).map_while(|number| keeper.hold(number.to_string(), file.as_fd()).ok()).collect();
        let lacks = holding.lacking.hold(&keeper, "7.names.2".into(), file.as_fd());
        assert!(holding.lacks_names());
        drop(full);
        let held = holding.lacking.hold(&keeper, "7.names.3".into(), file.as_fd());
        assert!(holding.lacks_names(), "the kernel may know nodes of those before");
        drop(lacks);
        assert!(!holding.lacks_names());
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_is_looked_for_until_patience_ends_and_one_that_refuses_is_not() {
        let looks = Cell::new(0);
        let looking = |error: Error, times: u32| {
            let looks = &looks;
            move || {
                looks.set(looks.get() + 1);
                ready(if looks.get() <= times { Err(error.clone()) } else { Ok(()) })
            }
        };
        let (patience, away) = (Duration::from_millis(10_500), Error::unavailable("it is away", "a store"));
        once_there(patience, looking(away.clone(), 2), |_| ()).await.expect("it came back");
        assert_eq!(looks.take(), 3);
        assert!(once_there(patience, looking(away, 1000), |_| ()).await.is_err());
        assert_eq!(looks.take(), 12, "one a second, and a last one");
        assert!(once_there(patience, looking(Error::denied("not to you", "a store"), 1), |_| ()).await.is_err());
        assert_eq!(looks.take(), 1);
    }
}
