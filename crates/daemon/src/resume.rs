//! A mount goes on in the next process: what is held of it, and how that process takes it up.
//!
//! Held under the number of the mount: each descriptor of the device (`7.device.0`), what is open (`7.ledger`), each
//! snapshot of names that the kernel may know nodes of (`7.names.3`) and, last, the terms (`7.terms`): what was asked
//! for, with the credentials that came with it, in memory that is no file's.
//!
//! Invariant: a mount goes on with the names and the store of whom it was mounted for, or not at all.

use crate::control;
use crate::host::{Host, fill};
use crate::keeper::{Held, Keeper, Named};
use crate::mounted::Mounted;
use block::{Error, Kind, Result};
use client::messages::MountRequest;
use mount::{Left, Number, Session};
use node::manifest::{self, Manifest};
use node::{DataSet, Identity, View};
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Of the terms; another is refused.
const VERSION: u32 = 1;

/// Before a store that was not there is looked for again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What goes by longer terms was not written by us: a request is as long as the environment that it came from.
const TERMS_BYTES_MAX: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Terms {
    version: u32,
    request: MountRequest,
    store: String,
    /// Hexadecimal.
    set: String,
    path: PathBuf,
    /// Major and minor.
    number: Option<(u32, u32)>,
    direct_maps: bool,
    no_passthrough: Option<String>,
}

/// Have all held that a mount takes to go on.
pub fn hold(keeper: &Arc<Keeper>, id: u64, terms: OwnedFd, view: &View, session: &Session) -> Result<Vec<Held>> {
    let (of_names, newest) = (keeper.clone(), session.newest());
    view.hold_names(move |names: &Manifest| -> manifest::Held {
        let held = of_names.hold(format!("{id}.names.{}", names.generation()), names.file().as_fd());
        // Where they are not held, nobody goes on without them.
        newest.are(names.generation());
        match held {
            Ok(held) => Box::new(held),
            Err(error) => {
                tracing::warn!("the mount will not outlive this process: {error}");
                Box::new(())
            }
        }
    });
    let named = session.devices().enumerate().map(|(number, device)| (format!("{id}.device.{number}"), device));
    let named = named.chain([(format!("{id}.ledger"), session.ledger()), (format!("{id}.terms"), terms.as_fd())]);
    named.map(|(name, descriptor)| keeper.hold(name, descriptor)).collect()
}

/// What was asked for and settled, for whoever goes on.
pub fn terms(request: &MountRequest, view: &View, session: &Session) -> Result<OwnedFd> {
    let (Identity { store, set }, settled) = (view.identity(), session.terms());
    let terms = Terms {
        version: VERSION,
        request: request.clone(),
        store: store.to_string(),
        set: format!("{set:032x}"),
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

fn read(file: &File) -> Result<Terms> {
    let odd = |what: String| Error::corrupt(what, "a mount that is to go on");
    let length = file.metadata().map_or(0, |found| found.len());
    let mut text = vec![0; length.min(TERMS_BYTES_MAX) as usize];
    file.read_exact_at(&mut text, 0).map_err(|error| odd(format!("its terms can't be read: {error}")))?;
    // What does not parse may be a secret, so nothing of it is shown.
    let terms: Terms = serde_json::from_slice(&text).map_err(|_| odd("its terms are not understood".into()))?;
    match terms.version {
        VERSION => Ok(terms),
        other => Err(odd(format!("its terms are of version {other}"))),
    }
}

impl Host {
    /// Go on with the mounts of a process that is gone, all at once. What can't go on: by which names it is held, and why.
    pub async fn resume(self: &Arc<Host>, mut named: Named) -> Vec<(Vec<String>, Error)> {
        let ids: BTreeSet<u64> = named.keys().filter_map(|name| number(name)).collect();
        let each = ids.into_iter().map(|id| {
            let of_it: Named = named.extract_if(.., |name, _| number(name) == Some(id)).collect();
            let names: Vec<String> = of_it.keys().cloned().collect();
            async move {
                let mounted = self.resume_one(id, of_it).await.map_err(|error| (names, error))?;
                tracing::info!("going on with {} at {}", mounted.view.url(), mounted.path.display());
                Ok(())
            }
        });
        let done = futures_util::future::join_all(each.collect::<Vec<_>>()).await;
        done.into_iter().filter_map(Result::err).collect()
    }

    /// The store of a mount that goes on: a file system of the network may be away for as long as reads would wait for it.
    async fn source_again(&self, request: &MountRequest) -> Result<DataSet> {
        let late = tokio::time::sleep(self.node().settings().patience);
        tokio::pin!(late);
        loop {
            match self.source(request).await {
                Err(error @ Error { kind: Kind::Unavailable { .. }, .. }) if !late.is_elapsed() => {
                    tracing::warn!("a mount waits for its store: {error}");
                    tokio::select! {
                        () = &mut late => {}
                        () = tokio::time::sleep(AGAIN_AFTER) => {}
                    }
                }
                source => return source,
            }
        }
    }

    async fn resume_one(self: &Arc<Host>, id: u64, mut named: Named) -> Result<Arc<Mounted>> {
        let mut take = |name: &str| {
            let lost = || Error::corrupt(format!("its {name} is lost"), format!("mount {id}"));
            named.remove(&format!("{id}.{name}")).ok_or_else(lost)
        };
        let (noted, ledger) = (File::from(take("terms")?), take("ledger")?);
        let terms = read(&noted)?;
        let devices: Vec<OwnedFd> = (0..).map_while(|number| take(&format!("device.{number}")).ok()).collect();
        let mut names = Vec::new();
        for (name, file) in named.iter().filter(|(name, _)| name.starts_with(&format!("{id}.names."))) {
            let file = file.try_clone().map_err(|error| Error::io("duplicating a descriptor", name, &error))?;
            names.push(Manifest::of(&file.into(), Path::new(name))?);
        }
        names.sort_by_key(Manifest::generation);
        let visit = self.enter()?;
        let source = self.source_again(&terms.request).await?;
        let set =
            u128::from_str_radix(&terms.set, 16).map_err(|_| Error::corrupt("its set has no name", &*source.url))?;
        let identity = Identity { store: terms.store.as_str().into(), set };
        let view = View::resume(self.node().clone(), source, fill(&terms.request)?, identity, names)?;
        let settled = mount::Terms {
            path: terms.path,
            number: terms.number.map(|(major, minor)| Number { major, minor }),
            direct_maps: terms.direct_maps,
            no_passthrough: terms.no_passthrough,
        };
        let (options, namespace, runtime) =
            (crate::host::options(&terms.request, &view), view.clone(), tokio::runtime::Handle::current());
        let left = Left { devices, ledger };
        let resuming = move || mount::resume(&options, settled, left, namespace, runtime);
        let session = tokio::task::spawn_blocking(resuming).await;
        let session =
            session.map_err(|error| Error::unavailable(format!("it was given up: {error}"), view.url()))??;
        let (told, is_for_one) = (session.told(), terms.request.hold);
        let mounted = self.take_in(id, terms.request, view, session, visit, Some(noted.into()))?;
        mounted.tell_stale_since(told).await?;
        if is_for_one {
            tokio::spawn(control::end_unless_held(mounted.clone()));
        }
        Ok(mounted)
    }
}

/// The number of the mount that a name is of.
fn number(name: &str) -> Option<u64> {
    name.split_once('.').and_then(|(id, _)| id.parse().ok())
}
