//! `stoker manifest export`: names as text, out of a mount, a cache folder or a listing.
//!
//! Invariant: a file has its name only when it is whole.

use super::Export;
use super::set::{self, Pinned};
use crate::{place, print, runtime, show};
use block::{Error, Result};
use node::manifest::{self, Keys, Manifest};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// How long after a change a listing tells a version that no further change can share: two seconds by the clock of the
/// store, which may count whole ones.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);

pub fn run(args: &Export) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let is_url = args.what.contains("://");
    let pinned = match (args.kept, is_url) {
        (true, false) => {
            let error = Error::invalid("a mount point has its names already", &args.what);
            return Err(error.hint("leave out --kept, or give the URL").into());
        }
        (true, true) => runtime.block_on(kept(args))?,
        (false, false) => match set::mounted(&args.what)? {
            Some(pinned) => pinned,
            None => runtime.block_on(listed(args))?,
        },
        (false, true) => runtime.block_on(listed(args))?,
    };
    runtime.shutdown_background();
    written(&pinned, args.out.as_deref())
}

/// The names of a URL or a folder as they are now. Versions that were taken too soon after a change are taken once
/// more, for a mount by them keeps nothing. Of servers that tell no time all are such: hence not again and again.
async fn listed(args: &Export) -> Result<Pinned> {
    let pinned = set::listed(&args.what, &args.reach).await?;
    if Keys::unsettled(&pinned.names) == 0 {
        return Ok(pinned);
    }
    tokio::time::sleep(SETTLED_WITHIN).await;
    set::listed(&args.what, &args.reach).await
}

/// The names that the last mount of a URL kept.
async fn kept(args: &Export) -> Result<Pinned> {
    let cache = place::absolute(&place::cache_named(args.cache.as_deref())?)?;
    let (source, _) = set::source(&args.what, &args.reach).await?;
    let snapshot = source.kept_names(&cache).await?.ok_or_else(|| {
        let error = Error::missing(format!("no names of {} are kept there", args.what), cache.display());
        error.hint("name the --cache of its mount, or leave out --kept: then it is listed")
    })?;
    set::opened(&snapshot, source.url)
}

/// Write names to a file or to standard output, and say how many.
pub fn written(pinned: &Pinned, out: Option<&Path>) -> anyhow::Result<()> {
    let unsettled = Keys::unsettled(&pinned.names);
    if unsettled > 0 {
        note!(
            "{} changed just before it was listed: a mount by this manifest reads that and never keeps it; \
             `stoker refresh` a mount point, or list anew, and export again",
            show::count_of(unsettled, "object")
        );
    }
    let Some(path) = out else {
        let mut out = BufWriter::with_capacity(WRITE_BYTES, Out(std::io::stdout().lock()));
        return manifest::write(&pinned.names, &pinned.url, pinned.store(), &mut out).map_err(|error| {
            match CLOSED.with(std::cell::Cell::get) {
                true => print::Closed.into(),
                false => error.into(),
            }
        });
    };
    place::can_be_written(&[(Some(path), manifest::TEXT_MARK)], [])?;
    to_file(&pinned.names, &pinned.url, pinned.store(), path)?;
    let totals = pinned.names.totals();
    let objects = show::count_of(totals.files, "object");
    note!("{objects} with {} in {}", show::bytes(totals.bytes), path.display());
    Ok(())
}

fn to_file(names: &Arc<Manifest>, url: &str, store: &str, path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("cannot write the manifest", path.display(), &error);
    report::whole::filled(path, |file: &mut File| {
        let mut out = BufWriter::with_capacity(WRITE_BYTES, file);
        manifest::write(names, url, store, &mut out)?;
        out.flush().map_err(failed)
    })
}

thread_local! {
    /// Whether nobody reads standard output any more.
    static CLOSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Standard output, which notes when nobody reads it.
struct Out<W>(W);

impl<W: Write> Write for Out<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.0.write(bytes);
        CLOSED.with(|closed| {
            closed.set(written.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe))
        });
        written
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
