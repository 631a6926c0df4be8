//! What a measurement reads or writes, from what was typed: a folder, or everything under a prefix of a store.
//!
//! Invariant: what was typed as a URL of a store is never taken for a folder.

use crate::args::Reach;
use crate::place;
use block::{Error, Result};
use daemon::reach;
use store::{Counts, Location, open_to_write};
use targets::{Folder, Store, Target};
use tokio::runtime::Handle;

pub enum End {
    Folder(Folder),
    Store(Store),
}

impl End {
    /// Requests to a store run on this runtime; the seed decides how long to wait before one is repeated.
    pub fn open(url: &str, reach: &Reach, runtime: &Handle, seed: u64) -> Result<End> {
        let location: Location = url.parse()?;
        if let Location::Folder(path) = &location {
            return Ok(End::Folder(Folder::at(path)?));
        }
        let Reach { endpoint, region, profile, anonymous } = place::reach(reach, url)?;
        let settings = reach::settings(endpoint, region, profile, anonymous, place::keys(), place::variables(url));
        let prefix = match location.prefix() {
            "" => String::new(),
            prefix => format!("{}/", prefix.trim_end_matches('/')),
        };
        let both = open_to_write(&location, &settings)?;
        Ok(End::Store(Store::over(url, &prefix, both, runtime.clone(), seed)))
    }

    pub fn target(&self) -> &dyn Target {
        match self {
            End::Folder(folder) => folder,
            End::Store(store) => store,
        }
    }

    /// The same as a target that something may be laid over.
    pub fn boxed(&self) -> Box<dyn Target> {
        match self {
            End::Folder(folder) => Box::new(folder.clone()),
            End::Store(store) => Box::new(store.clone()),
        }
    }

    /// What was asked of the store so far.
    pub fn counts(&self) -> Option<Counts> {
        match self {
            End::Folder(_) => None,
            End::Store(store) => Some(store.counters().snapshot()),
        }
    }

    /// What was written is on the disk when this returns.
    pub fn settle(&self) -> Result<()> {
        let End::Folder(folder) = self else { return Ok(()) };
        let synced = std::fs::File::open(folder.url()).and_then(|file| Ok(rustix::fs::syncfs(file)?));
        synced.map_err(|error| Error::io("cannot write the files through to the disk", folder.url(), &error))
    }
}
