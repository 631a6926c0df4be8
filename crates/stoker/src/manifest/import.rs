//! `stoker manifest import`: a manifest of what others listed, without a listing.
//!
//! In its folder: `list` (keys, one a line), `inventory` (of Amazon S3: which files), `csv` and `columns` (what is in them).
//! Invariant: what a list lacks is asked of the store and never made up; what is wrong with it is told with its place.

mod columns;
mod csv;
mod inventory;
mod list;

use super::set::{self, Pinned};
use super::{Import, export};
use crate::{runtime, show};
use block::{Error, Result};
use futures_util::{StreamExt, stream};
use indicatif::ProgressBar;
use node::DataSet;
use node::manifest::{Builder, Manifest};
use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use store::{Chance, Listed, Sink, UNSETTLED, unmarked};

/// Names that are brought together before they are shown.
const TOLD_EVERY: u64 = 10_000;

/// One object of a list, as far as that knows it.
pub struct Row {
    pub key: String,
    pub size: Option<u64>,
    pub version: Option<String>,
    pub modified_ns: Option<i64>,
}

/// Rows, and what is wrong with the first that can't be read.
pub type Rows = Box<dyn Iterator<Item = Result<Row>>>;

pub fn run(args: &Import) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let (source, settings) = set::source(&args.url, &args.reach).await?;
        let (_, sink) = store::open_to_write(&args.url.parse()?, &settings)?;
        let rows = rows(&args.file, &args.url)?;
        let bar = show::spinner(&format!("reading {}", args.file.display()));
        let done = imported(rows, &source, sink, &bar).await;
        bar.finish_and_clear();
        let (names, counts) = done?;
        counts.told(args, names.totals().files + names.totals().markers)?;
        anyhow::Ok(Pinned { names: Arc::new(names), url: source.url })
    });
    runtime.shutdown_background();
    export::written(&done?, args.out.as_deref())
}

/// What was done with the rows of a list.
struct Counts {
    rows: u64,
    elsewhere: u64,
    asked: u64,
}

impl Counts {
    fn told(&self, args: &Import, kept: u64) -> Result<()> {
        let taken = self.rows - self.elsewhere;
        if taken == 0 {
            let what = format!("none of its {} is under this URL", show::count_of(self.rows, "key"));
            let hint = "give keys from the top of the bucket on, and the URL that they are under";
            return Err(Error::missing(what, &args.url).hint(hint));
        }
        if self.elsewhere > 0 {
            note!("left out: {} that are not under {}", show::count_of(self.elsewhere, "key"), args.url);
        }
        if self.asked > 0 {
            note!(
                "asked the store for {}, of which the list has no size or no version",
                show::count_of(self.asked, "object")
            );
        }
        if taken > kept {
            let what = format!("{} of its keys come again", show::count(taken - kept));
            let hint = "remove what is double (`sort -u`); of an inventory with all versions the current ones are taken, which it tells by IsLatest";
            return Err(Error::invalid(what, args.file.display()).hint(hint));
        }
        Ok(())
    }
}

/// The rows of a file of any kind.
fn rows(path: &Path, url: &str) -> Result<Rows> {
    if set::is_text(path) {
        let Some(mut text) = set::text(path)? else { return Ok(Box::new(std::iter::empty())) };
        let all = std::iter::from_fn(move || text.advance().transpose());
        return Ok(Box::new(all.map(|listed| {
            let Listed { key, version, size, modified_ns } = listed?;
            Ok(Row { key, size: Some(size), version: Some(version), modified_ns: Some(modified_ns) })
        })));
    }
    let mut head = [0; 1];
    let file =
        || std::fs::File::open(path).map_err(|error| Error::io("the list can't be read", path.display(), &error));
    let is_json = file()?.read(&mut head).is_ok_and(|read| read == 1) && head == *b"{";
    if is_json { inventory::rows(path, url) } else { list::rows(file()?, path) }
}

/// A snapshot of rows, each completed by what the store says where the list lacks something.
async fn imported(rows: Rows, source: &DataSet, sink: Arc<dyn Sink>, bar: &ProgressBar) -> Result<(Manifest, Counts)> {
    let (all, elsewhere) = (Cell::new(0), Cell::new(0));
    let mut builder = Builder::new(source.store.identity().clone(), &source.prefix)?.spill_to(&std::env::temp_dir());
    let chance = Chance::new(0);
    let (prefix, chance) = (&source.prefix, &chance);
    let completed = stream::iter(rows.filter_map(|row| {
        all.set(all.get() + 1);
        let is_elsewhere = row.as_ref().is_ok_and(|row| !row.key.starts_with(prefix.as_str()));
        elsewhere.set(elsewhere.get() + u64::from(is_elsewhere));
        (!is_elsewhere).then_some(row)
    }))
    .map(|row| {
        let sink = sink.clone();
        async move { completed(row?, &*sink, chance).await }
    });
    let mut completed = std::pin::pin!(completed.buffered(set::AT_ONCE));
    let mut asked = 0;
    while let Some(done) = completed.next().await {
        let (listed, is_asked) = done?;
        builder.add(&[listed])?;
        asked += u64::from(is_asked);
        if builder.keys() % TOLD_EVERY == 0 {
            bar.set_message(format!("{}, {} asked for", show::count_of(builder.keys(), "name"), show::count(asked)));
        }
    }
    let counts = Counts { rows: all.get(), elsewhere: elsewhere.get(), asked };
    let folder = std::env::temp_dir();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let built = tokio::task::spawn_blocking(move || builder.build_nameless(&folder, now_ns)).await;
    let names = built.map_err(|error| Error::corrupt(format!("the import was given up: {error}"), &source.url))??;
    Ok((names, counts))
}

/// An object as the list and the store know it, and whether the store was asked.
async fn completed(row: Row, sink: &dyn Sink, chance: &Chance) -> Result<(Listed, bool)> {
    let is_marker = row.size == Some(0) && row.key.ends_with('/');
    let version = row.version.filter(|version| !version.is_empty()).or_else(|| is_marker.then(String::new));
    if let (Some(size), Some(version)) = (row.size, version.as_ref().filter(|version| !version.starts_with(UNSETTLED)))
    {
        let modified_ns = row.modified_ns.unwrap_or_default();
        return Ok((Listed { key: row.key, version: version.clone(), size, modified_ns }, false));
    }
    let found = set::find(sink, &row.key, chance).await?;
    let what = match (row.size, &version) {
        (Some(size), _) if size != found.size => {
            format!("the object has {} bytes where the list says {size}", found.size)
        }
        (_, Some(version)) if unmarked(version) != unmarked(&found.version) => {
            format!("the object has version {} where the list says {version}", found.version)
        }
        _ => return Ok((found, true)),
    };
    Err(Error::changed(what, &row.key).hint("make the list anew"))
}
