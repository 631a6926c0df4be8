//! HDFS as a store, by the library `hdfs-native`: one name node or several, and the data nodes that hold the bytes.
//!
//! Keys are paths below the root. Rules, because a file system has more than a store:
//! - A version is the time of change, in the name node's milliseconds, and the size: the library tells no number of the
//!   file itself. It is compared with what the name node says after it has told where the bytes lie and before any of
//!   them leaves here, and once more after the last one has come. Blocks are never written again, so those that were
//!   told of belong to the file that was there.
//! - A file that is being written has the length that the name node tells: its blocks that are full. It is another
//!   version once it is closed.
//! - What is coded (erasure coding) is read, what lies in an encryption zone is refused by name.
//!
//! Each 512 bytes, or as many as the file was written with, come with a checksum (CRC-32C) that the library compares; a
//! data node that gives others, or none, or falls silent, is passed over for another that has the block.
//!
//! Layout: `conf` (Hadoop's own files), `who` (principals), `names` (the name nodes), `refusal` (what a no means), `walk`
//! (listings), `arriving` (a body), `write`.
//!
//! Invariant: no byte leaves here before the file that was there at the time is known to be of the version that was
//! asked for.

mod arriving;
mod conf;
mod names;
mod refusal;
mod walk;
mod who;
mod write;

use crate::counters::InFlight;
use crate::retry::Chance;
use crate::{Body, Counters, Listed, Pages, Store};
use arriving::Arriving;
use block::{Checksum, Error, Object, Result, Waiting};
use conf::Configuration;
use hdfs_native::client::FileStatus;
use names::Names;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use who::Who;

/// How to reach and use a cluster.
#[derive(Clone)]
pub struct Settings {
    /// What Hadoop's tools find a configuration and credentials by: the variables of whoever asks.
    pub variables: BTreeMap<String, String>,
    /// Something was typed that means nothing here: `--endpoint`.
    pub refused: Option<&'static str>,
    /// How long a name node may take for an answer. Its longest pauses are those of its garbage collector.
    pub answers_within: Duration,
    /// Folders that are listed at a time.
    pub list_requests: usize,
    /// How long a folder is asked for again before the listing fails.
    pub list_budget: Duration,
    /// Where chance begins: jitter of retries.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            variables: BTreeMap::new(),
            refused: None,
            answers_within: Duration::from_secs(8),
            list_requests: 16,
            list_budget: Duration::from_secs(60),
            seed: 0,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.variables.keys().collect();
        out.debug_struct("Settings").field("variables", &names).finish_non_exhaustive()
    }
}

impl Settings {
    /// A variable that is set to something.
    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// A cluster of HDFS.
#[derive(Clone)]
pub struct Hdfs(Arc<Cluster>);

struct Cluster {
    identity: Arc<str>,
    reach: u64,
    who: Who,
    names: Names,
    counters: Arc<Counters>,
    chance: Chance,
    settings: Settings,
}

impl Hdfs {
    /// Whether the configuration of whoever asks names this authority itself.
    pub fn is_configured(authority: &str, settings: &Settings) -> bool {
        Configuration::read(settings).is_ok_and(|conf| conf.names(authority))
    }

    /// The cluster of a URL's authority: a name service, `host:port`, or nothing for `fs.defaultFS`. Nothing is sent until
    /// something is asked.
    pub fn open(authority: &str, settings: &Settings) -> Result<Hdfs> {
        if let Some(refused) = settings.refused {
            let error = Error::invalid(format!("{refused} means nothing to HDFS"), format!("hdfs://{authority}"));
            return Err(
                error.hint(format!("leave out {refused}; the name node stands in the URL or in HADOOP_CONF_DIR"))
            );
        }
        let conf = Configuration::read(settings)?;
        let (identity, servers) = conf.servers(authority)?;
        let who = Who::of(settings, &conf, &identity)?;
        let names = Names::new(servers, conf, who.clone(), settings.answers_within);
        let (reach, counters, chance) = (reach(settings), Arc::default(), Chance::new(settings.seed));
        let (identity, settings) = (identity.into(), settings.clone());
        Ok(Hdfs(Arc::new(Cluster { identity, reach, who, names, counters, chance, settings })))
    }
}

impl Store for Hdfs {
    fn identity(&self) -> &Arc<str> {
        &self.0.identity
    }

    fn reach(&self) -> u64 {
        self.0.reach
    }

    fn who(&self) -> Waiting<String> {
        Box::pin(std::future::ready(Ok(self.0.who.to_string())))
    }

    fn list(&self, prefix: &str) -> Pages {
        walk::pages(self.0.clone(), prefix)
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        let (cluster, object) = (self.0.clone(), object.clone());
        Box::pin(async move { cluster.get(&object, range).await })
    }

    /// HDFS can be asked for one of all blocks, which the library can't.
    fn checksum(&self, _object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.0.counters
    }
}

impl Cluster {
    async fn get(self: Arc<Self>, object: &Arc<Object>, range: Range<u64>) -> Result<Body> {
        let began = Instant::now();
        let path = path_of(&object.key).ok_or_else(|| Error::missing("there is no such file", object))?;
        Counters::add(&self.counters.gets, 1);
        let asked = InFlight::begin(&self.counters);
        // Where its blocks lie.
        let file = self.names.ask(object, |client| {
            let path = path.clone();
            Box::pin(async move { client.read(&path).await })
        });
        let file = file.await?;
        if file.file_length() as u64 != object.size {
            // It may be one that is gone.
            return Err(self.check(&path, object).await.err().unwrap_or_else(|| changed(object)));
        }
        let (start, length) = (range.start.min(object.size), range.end.min(object.size).saturating_sub(range.start));
        let bytes = file.read_range_stream(start as usize, length as usize);
        let mut arriving = Arriving::new(self.clone(), object.clone(), path, length, bytes, asked);
        arriving.begin().await?;
        self.counters.answered_after(began.elapsed());
        Ok(Body { checksum: None, bytes: arriving.into_stream() })
    }

    /// Whether the file at this path is of the version that is asked for.
    async fn check(&self, path: &str, object: &Object) -> Result<()> {
        let found = self.find(path, object).await?;
        match !found.isdir && found.length as u64 == object.size && version(&found) == object.version {
            true => Ok(()),
            false => Err(changed(object)),
        }
    }

    /// What the name node says of a path.
    async fn find(&self, path: &str, on: &(dyn fmt::Display + Sync)) -> Result<FileStatus> {
        Counters::add(&self.counters.heads, 1);
        let found = self.names.ask(on, |client| {
            let path = path.to_owned();
            Box::pin(async move { client.get_file_info(&path).await })
        });
        found.await
    }

    fn name_of(&self, key: &str) -> String {
        format!("{}/{key}", self.identity)
    }
}

fn changed(object: &Object) -> Error {
    Error::changed("the file has changed since it was listed", object)
}

/// A file as a listing tells of it.
fn listed(key: String, found: &FileStatus) -> Listed {
    let modified_ns = i64::try_from(found.modification_time).ok().and_then(|ms| ms.checked_mul(1_000_000));
    Listed { key, version: version(found), size: found.length as u64, modified_ns: modified_ns.unwrap_or(i64::MAX) }
}

/// Time of change and size. A name node's clock tells milliseconds, and no file is made, written and closed within one.
fn version(found: &FileStatus) -> String {
    format!("{:x}-{:x}", found.modification_time, found.length)
}

/// The key as a path, if it can name a file here. Hadoop's own names below the root lead elsewhere.
fn path_of(key: &str) -> Option<String> {
    let is_plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['\0', ':']);
    let is_reserved = key == ".reserved" || key.starts_with(".reserved/");
    (key.split('/').all(is_plain) && !is_reserved).then(|| format!("/{key}"))
}

/// A hash of what decides how a cluster is asked.
fn reach(settings: &Settings) -> u64 {
    let mut hash = std::hash::DefaultHasher::new();
    settings.variables.hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests;
