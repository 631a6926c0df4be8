//! The names of a data set, however it was named: a manifest, a mount point, a URL or a folder.
//!
//! Invariant: names come in the order of their keys, each once.

use crate::args::Reach;
use crate::mount::{from_here, node_of};
use crate::{place, show};
use block::{Error, PRINCIPAL, Result};
use client::messages::Mount;
use daemon::reach;
use node::DataSet;
use node::manifest::{Keys, Manifest, TEXT_MARK, Text};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Advice, Chance, Listed, Settings, Sink, advise};

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Objects that are asked for at once.
pub const AT_ONCE: usize = 64;

/// How long an object is asked for again before the command fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names that were pinned, and where they are from.
pub struct Pinned {
    pub names: Arc<Manifest>,
    /// As the user wrote it.
    pub url: String,
}

impl Pinned {
    /// The identity of the store that was listed, as stores call themselves.
    pub fn store(&self) -> &str {
        self.names.store().split(PRINCIPAL).next().unwrap_or_default()
    }
}

/// A data set by its URL, and how its store is opened.
pub async fn source(url: &str, asked: &Reach) -> Result<(DataSet, Settings)> {
    let Reach { endpoint, region, profile, anonymous } = place::reach(asked, url)?;
    let settings = reach::settings(endpoint, region, profile, anonymous, place::keys(), place::variables(url));
    store::check(&url.parse()?, &settings).await?;
    Ok((reach::source_in_time(&from_here(url)?, &settings).await?, settings))
}

/// The names of a URL or a folder as they are now.
pub async fn listed(url: &str, asked: &Reach) -> Result<Pinned> {
    let (source, _) = source(url, asked).await?;
    let bar = show::spinner(&format!("listing {url}"));
    let told = |names| bar.set_message(format!("listing {url}: {}", show::count_of(names, "name")));
    let names = source.names(&std::env::temp_dir(), told).await?;
    bar.finish_and_clear();
    Ok(Pinned { names: Arc::new(names), url: source.url })
}

/// What lies under a key now.
pub async fn find(sink: &dyn Sink, key: &str, chance: &Chance) -> Result<Listed> {
    let began = Instant::now();
    for tries in 1.. {
        let error = match sink.find(key).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        match advise(&error, tries, began.elapsed(), PATIENCE, chance.next()) {
            Advice::GiveUp => return Err(error),
            Advice::Wait(wait) => tokio::time::sleep(wait).await,
        }
    }
    unreachable!("the number of tries is bounded by the patience")
}

/// The names that a mount goes by, if one is at this path.
pub fn mounted(path: &str) -> anyhow::Result<Option<Pinned>> {
    let Ok((_, status, path)) = node_of(Path::new(path)) else { return Ok(None) };
    let is_above = |mount: &Mount| path.starts_with(&mount.path);
    let mounts = status.mounts.into_iter().filter(is_above);
    let Some(Mount { url, snapshot, path: at, .. }) = mounts.max_by_key(|mount| mount.path.len()) else {
        return Ok(None);
    };
    if Path::new(&at) != path {
        // Taken for a folder, its files would be named by where they happen to be mounted.
        let below = path.strip_prefix(&at).unwrap_or(&path);
        let error = Error::invalid(format!("this lies in a mount of {url}"), path.display());
        let whole = format!("{}/{}", url.trim_end_matches('/'), below.display());
        let (whole, at) = (block::quoted(Path::new(&whole)), block::quoted(Path::new(&at)));
        return Err(error.hint(format!("name its own URL, {whole}, or the mount point, {at}")).into());
    }
    opened(Path::new(&snapshot), url).map(Some).map_err(Into::into)
}

/// The names in a snapshot, each byte of which is compared with its checksums first.
pub fn opened(snapshot: &Path, url: String) -> Result<Pinned> {
    let names = Manifest::open(snapshot)?;
    names.verify()?;
    Ok(Pinned { names: Arc::new(names), url })
}

/// Names that come one by one.
pub enum Names {
    Text(Box<Text<BufReader<File>>>),
    Pinned { keys: Keys, names: Arc<Manifest>, store: String },
}

impl Names {
    /// By a manifest, a mount point, a URL or a folder.
    pub fn of(what: &str, asked: &Reach, runtime: &tokio::runtime::Runtime) -> anyhow::Result<Names> {
        if !what.contains("://") {
            if let Some(text) = text(Path::new(what))? {
                return Ok(Names::Text(Box::new(text)));
            }
            if let Some(pinned) = mounted(what)? {
                return Ok(Names::from(pinned));
            }
        }
        Ok(Names::from(runtime.block_on(listed(what, asked))?))
    }

    pub fn store(&self) -> &str {
        match self {
            Names::Text(text) => &text.head().store,
            Names::Pinned { store, .. } => store,
        }
    }

    pub fn prefix(&self) -> &str {
        match self {
            Names::Text(text) => &text.head().prefix,
            Names::Pinned { names, .. } => names.prefix(),
        }
    }

    /// The next object; what only makes a folder in a bucket is none.
    pub fn advance(&mut self) -> Result<Option<Listed>> {
        loop {
            let next = match self {
                Names::Text(text) => text.advance()?,
                Names::Pinned { keys, .. } => keys.advance(),
            };
            if !next.as_ref().is_some_and(|listed| listed.size == 0 && listed.key.ends_with('/')) {
                return Ok(next);
            }
        }
    }
}

impl From<Pinned> for Names {
    fn from(pinned: Pinned) -> Names {
        let store = pinned.store().to_owned();
        Names::Pinned { keys: Keys::of(pinned.names.clone()), names: pinned.names, store }
    }
}

/// A manifest in a file; `None` if that is a folder. A file of another kind is an error.
pub fn text(path: &Path) -> Result<Option<Text<BufReader<File>>>> {
    if path.is_dir() {
        return Ok(None);
    }
    let file = File::open(path).map_err(|error| Error::io("the manifest can't be read", path.display(), &error))?;
    Text::open(BufReader::with_capacity(READ_BYTES, file), &path.to_string_lossy()).map(Some)
}

/// Whether a file begins like a manifest.
pub fn is_text(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(TEXT_MARK.len() as u64).read_to_end(&mut head));
    read.is_ok() && head == TEXT_MARK.as_bytes()
}
