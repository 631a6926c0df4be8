//! `stoker up --load`: the set is brought into the pool before the job begins.
//!
//! One node is asked; each stripe goes to its owner, and leaves the store once. Which hosts are asked is decided in
//! [`loaders`] alone.

use super::Rising;
use crate::{load, show};
use client::messages::Loaded;
use fleet::{Failure, Host};
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

/// What came of it: as `stoker load --json` says it.
pub struct Warmed {
    pub said: Value,
    /// As `stoker load` ends: 3 if not all of it found room, 4 if some failed.
    pub code: u8,
}

/// Who is asked to load, of all hosts.
fn loaders(hosts: &[Host]) -> &[Host] {
    &hosts[..1]
}

/// Load, with one progress. Files that don't fit or that fail end no pool.
pub fn load<'a>(rising: &'a Rising<'a>, begun: &[bool]) -> Result<Warmed, super::Failed<'a>> {
    let (pool, stop) = (&rising.pool, &rising.conduct.stop);
    let host = &loaders(pool.hosts)[0];
    let dir = pool.plan.dir.display().to_string();
    rising.tell("loading the whole set");
    let (bar, last) = (show::bar("load"), Mutex::new(Value::Null));
    let hear = |line: &[u8]| {
        let Ok(said) = serde_json::from_slice::<Value>(line) else { return };
        if let Ok(loaded) = serde_json::from_value::<Loaded>(said.clone()) {
            show::advance(&bar, &loaded);
            *last.lock().unwrap_or_else(PoisonError::into_inner) = said;
        }
    };
    let done = pool.follow(host, &["load", "--json", "--tell", "--", &dir], &hear, stop);
    bar.finish_and_clear();
    let said = last.into_inner().unwrap_or_else(PoisonError::into_inner);
    let code = match done {
        Ok(()) => 0,
        Err(Failure::Exit(code, _)) if [load::EXIT_UNKEPT, load::EXIT_FAILED].map(i32::from).contains(&code) => {
            code as u8
        }
        Err(failure) => {
            let step = "loading the whole set".to_owned();
            return Err(super::Failed { step, failures: vec![(host, failure)], begun: begun.to_vec() });
        }
    };
    Ok(Warmed { said, code })
}

impl Warmed {
    /// In a line for people.
    pub fn summary(&self) -> String {
        let loaded: Loaded = serde_json::from_value(self.said.clone()).unwrap_or_default();
        let figure = |name: &str| self.said[name].as_f64().unwrap_or(0.0);
        let mut out = format!(
            "loaded {}, {} in {:.1} s: {} fetched at {:.3} GB/s",
            show::count_of(loaded.files_done, "file"),
            show::bytes(loaded.bytes_done),
            figure("seconds"),
            show::bytes(figure("bytes_fetched") as u64),
            figure("gigabytes_per_second")
        );
        for (files, what) in [(loaded.files_unkept, "found no room"), (loaded.files_failed, "FAILED")] {
            if files > 0 {
                out += &format!("; {} {what}", show::count_of(files, "file"));
            }
        }
        out
    }
}
