//! `stoker hosts copy`: files and folders to each host.

use super::told::{Counts, Told};
use super::{Conduct, Crew, typed};
use crate::show;
use fleet::bundle::Bundle;
use fleet::copy::Copy;
use serde_json::Map;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Files and folders of this machine; links in them stay links
    #[arg(required = true, value_name = "LOCAL")]
    from: Vec<PathBuf>,
    /// Folder of the hosts that they come into; made if it isn't there
    #[arg(value_name = "REMOTE_DIR")]
    to: OsString,
    // Last: what follows a group with a heading falls under it.
    #[command(flatten)]
    crew: Crew,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let bundle = Bundle::of(&args.from).map_err(typed)?;
    let (copy, conduct) = (Copy::new(&bundle, &args.to).map_err(typed)?, Conduct::new(&args.crew)?);
    let bar = show::bar("copy");
    bar.set_length(bundle.bytes * conduct.hosts.len() as u64);
    let told = Told::new(args.crew.json, bar, Counts::Bytes, &conduct.stop);
    let code = conduct.run(&told, |host| {
        copy.run(&conduct.ssh, host, &told, &conduct.stop)?;
        Ok(Map::from_iter([("files".to_owned(), bundle.files.into()), ("bytes".to_owned(), bundle.bytes.into())]))
    })?;
    if code == ExitCode::SUCCESS && !args.crew.json {
        let (files, bytes) = (show::count_of(bundle.files, "file"), show::bytes(bundle.bytes));
        say!("{files}, {bytes} copied to {} and compared", show::count_of(conduct.hosts.len() as u64, "host"))?;
    }
    Ok(code)
}
