//! `stoker hosts gather`: files and folders of each host, into a folder of its name.

use super::told::{Counts, Told};
use super::{Conduct, Crew, typed};
use crate::show;
use emulate::parse::size;
use fleet::gather::Gather;
use indicatif::ProgressBar;
use serde_json::Map;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Bytes that one host may send at most
    #[arg(long, value_name = "SIZE", default_value = "100GB", value_parser = size, allow_hyphen_values = true)]
    most: u64,
    /// Files and folders of the hosts
    #[arg(required = true, value_name = "REMOTE")]
    from: Vec<OsString>,
    /// Folder of this machine; they come into folders of the hosts' names in it
    #[arg(value_name = "LOCAL_DIR")]
    to: PathBuf,
    // Last: what follows a group with a heading falls under it.
    #[command(flatten)]
    crew: Crew,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let gather = Gather::new(&args.from, &args.to, args.most).map_err(typed)?;
    let conduct = Conduct::new(&args.crew)?;
    let told = Told::new(args.crew.json, ProgressBar::new_spinner(), Counts::Bytes, &conduct.stop);
    let (files, bytes, left_out) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let code = conduct.run(&told, |host| {
        let found = gather.run(&conduct.ssh, host, &told, &conduct.stop)?;
        for (sum, figure) in [(&files, found.files), (&bytes, found.bytes), (&left_out, found.left_out)] {
            sum.fetch_add(figure, Ordering::Relaxed);
        }
        let figures = [("files", found.files), ("bytes", found.bytes), ("left_out", found.left_out)];
        Ok(Map::from_iter(figures.map(|(name, figure)| (name.to_owned(), figure.into()))))
    })?;
    let [files, bytes, left_out] = [files, bytes, left_out].map(AtomicU64::into_inner);
    if !args.crew.json {
        say!("{}, {} gathered into {}", show::count_of(files, "file"), show::bytes(bytes), args.to.display())?;
    }
    if left_out > 0 {
        note!("left out: {}, which files were gathered without", show::count_of(left_out, "link or device"));
    }
    Ok(code)
}
