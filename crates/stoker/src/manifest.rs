//! `stoker manifest`: the names of a data set as a file that one can keep, compare, and mount by.
//!
//! In its folder: `set` (a data set that was named by a URL, a mount point or a file), `export`, `import`, `diff`, `verify`, `told`
//! (differences, as they are said). The format is `node::manifest`'s; docs/format.md draws it.
//! Invariant: exit codes are those of diff(1): 0 the same, 1 different, 2 trouble, for `diff` and `verify`.

mod diff;
mod export;
mod import;
mod set;
mod told;
mod verify;

use crate::args::Reach;
use crate::show;
use std::path::PathBuf;
use std::process::ExitCode;

const EXPORT_EXAMPLES: &str = "\
Examples:
  stoker manifest export /data/train -o train.jsonl          the names that a mount goes by
  stoker manifest export s3://imagenet/train -o train.jsonl  as the store lists them now
  stoker manifest export s3://imagenet/train --kept          as the last mount kept them
  stoker mount s3://imagenet/train /data/train --manifest train.jsonl

JSON Lines: the first describes the set, each further one an object, ascending by key.";
const IMPORT_EXAMPLES: &str = "\
Examples:
  stoker manifest import inventory/manifest.json s3://imagenet/train -o train.jsonl
  stoker manifest import keys.txt s3://imagenet/train -o train.jsonl

A list has a key a line, which may go on with a tab and the size, a tab and the version. An inventory
is that of Amazon S3, in CSV or Parquet, with its data files beside manifest.json or in ../data.
What a list lacks is asked for, one request an object.";
const DIFF_EXAMPLES: &str = "\
Examples:
  stoker manifest diff monday.jsonl tuesday.jsonl
  stoker manifest diff train.jsonl s3://imagenet/train --json
  stoker manifest diff train.jsonl /data/train

Exit codes: 0 the same, 1 different, 2 trouble.";
const VERIFY_EXAMPLES: &str = "\
Examples:
  stoker manifest verify train.jsonl
  stoker manifest verify train.jsonl s3://mirror/train --endpoint http://minio:9000

Exit codes: 0 each object is there as it was, 1 some are gone or have changed, 2 trouble.";

#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Write the names of a data set, with sizes, versions and times, as text
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(Export),
    /// Make a manifest of an S3 Inventory, a list of keys or another manifest, without a listing
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Import),
    /// Compare the names of two data sets: manifests, mount points or URLs
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(Diff),
    /// Compare a manifest with what the store has now
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Verify),
}

#[derive(clap::Args, Clone, Debug)]
pub struct Export {
    /// A mount point, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a folder
    what: String,
    /// Write to this file, which gets its name when it is whole; by default to standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Names of a URL as its last mount kept them in the cache folder; the store is not asked
    #[arg(long)]
    kept: bool,
    /// The cache folder, for --kept
    #[arg(long, value_name = "DIR", env = "STOKER_CACHE")]
    cache: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Args, Clone, Debug)]
pub struct Import {
    /// manifest.json of an S3 Inventory, a list of keys (which may be gzipped), or a manifest of Stoker
    file: PathBuf,
    /// Where the objects are: what is not under this URL is left out
    url: String,
    /// Write to this file, which gets its name when it is whole; by default to standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Args, Clone, Debug)]
pub struct Diff {
    /// A manifest, a mount point, a URL or a folder
    before: String,
    /// Another one
    after: String,
    /// Print a line of JSON for each difference, and one of totals
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Args, Clone, Debug)]
pub struct Verify {
    /// A manifest
    file: PathBuf,
    /// Where the objects are; by default where the manifest says that they were
    url: Option<String>,
    /// Print a line of JSON for each difference, and one of totals
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Export(args) => export::run(args).map(|()| ExitCode::SUCCESS),
        Command::Import(args) => import::run(args).map(|()| ExitCode::SUCCESS),
        Command::Diff(args) => show::judged(diff::run(args)),
        Command::Verify(args) => show::judged(verify::run(args)),
    }
}
