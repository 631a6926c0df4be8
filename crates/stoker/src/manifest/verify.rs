//! `stoker manifest verify`: whether a store still has what a manifest names.
//!
//! A listing costs a request for a thousand names of the prefix, and how many names that has by now only a listing tells. So it is
//! listed until that has cost as many requests as asking for each object of the manifest would have; then each is asked for. Never
//! more than twice the requests of the better way are sent.

use super::Verify;
use super::diff::compare;
use super::set::{self, Names, Pinned};
use super::told::{Difference, Told};
use crate::{runtime, show};
use block::{Door, Kind, Object, Source};
use futures_util::{StreamExt, stream};
use node::DataSet;
use serde_json::json;
use std::sync::Arc;
use store::{Listed, Origin};
use tokio::sync::Notify;

/// Objects that are asked for at once.
const AT_ONCE: usize = 64;

/// Requests of the shortest listing: one finds out that there is no more.
const LISTING_MIN: u64 = 2;

pub fn run(args: &Verify) -> anyhow::Result<bool> {
    let text = open(args)?;
    let url = args.url.clone().unwrap_or_else(|| text.head().url.clone());
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let (source, _) = set::source(&url, &args.reach).await?;
        let mut told = Told::new(args.json);
        let listed = match text.head().objects < LISTING_MIN {
            true => None,
            false => listed(&source, text.head().objects).await?,
        };
        match listed {
            Some(names) => {
                compare(Names::Text(Box::new(text)), Names::from(names), &mut told, &mut |difference, told| {
                    if let Difference::Added(_) = difference {
                        told.added += 1;
                        return Ok(());
                    }
                    told.say(&difference)
                })?
            }
            None => one_by_one(Names::Text(Box::new(text)), &source, &mut told).await?,
        }
        let counts = source.store.counters().snapshot();
        if !args.json {
            note!(
                "asked the store with {} and {}",
                show::count_of(counts.lists, "LIST"),
                show::count_of(counts.heads, "HEAD")
            );
        }
        told.end(false, &json!({ "lists": counts.lists, "heads": counts.heads }))
    });
    runtime.shutdown_background();
    done
}

fn open(args: &Verify) -> anyhow::Result<node::manifest::Text<std::io::BufReader<std::fs::File>>> {
    set::text(&args.file)?.ok_or_else(|| {
        let error = block::Error::invalid("this is a folder and not a manifest", args.file.display());
        error.hint("name a file that `stoker manifest export` wrote").into()
    })
}

/// The names that the store has now; none if finding out takes more than so many requests.
async fn listed(source: &DataSet, requests_max: u64) -> anyhow::Result<Option<Pinned>> {
    let stop = Notify::new();
    let bar = show::spinner(&format!("listing {}", source.url));
    let told = |names| {
        bar.set_message(format!("listing {}: {}", source.url, show::count_of(names, "name")));
        if source.store.counters().snapshot().lists > requests_max {
            stop.notify_one();
        }
    };
    let folder = std::env::temp_dir();
    let names = tokio::select! {
        names = source.names(&folder, told) => Some(names),
        () = stop.notified() => None,
    };
    bar.finish_and_clear();
    match names.transpose() {
        Ok(names) => Ok(names.map(|names| Pinned { names: Arc::new(names), url: source.url.clone() })),
        // Nothing is left of the set: so says each object.
        Err(error) if error.kind == Kind::Missing => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Ask for each object of the manifest.
async fn one_by_one(mut names: Names, source: &DataSet, told: &mut Told) -> anyhow::Result<()> {
    let (from, prefix) = (names.prefix().len(), source.prefix.clone());
    let origin = Arc::new(Origin::new(source.store.clone(), Default::default()));
    let objects = stream::iter(std::iter::from_fn(|| names.advance().transpose()));
    let asked = objects.map(|listed| {
        let (origin, prefix) = (origin.clone(), prefix.clone());
        async move {
            let listed: Listed = listed?;
            let key = format!("{prefix}{}", listed.key.get(from..).unwrap_or_default());
            let (store, version, size) = (origin.store().identity().clone(), listed.version.clone(), listed.size);
            let object = Arc::new(Object { store, key, version, size });
            match origin.checksum(&object, Door::NONE).await {
                Ok(_) => Ok(None),
                Err(error) if error.kind == Kind::Changed => Ok(Some(Difference::Replaced(listed))),
                Err(error) if error.kind == Kind::Missing => Ok(Some(Difference::Removed(listed))),
                Err(error) => Err(anyhow::Error::from(error)),
            }
        }
    });
    let mut answers = asked.buffered(AT_ONCE);
    while let Some(answer) = answers.next().await {
        match answer? {
            Some(difference) => told.say(&difference)?,
            None => told.same += 1,
        }
    }
    Ok(())
}
