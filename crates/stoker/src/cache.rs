//! `stoker cache`: what lies in a cache folder of this machine, whether it is sound, and how it is emptied.
//!
//! All are of this node alone: other members of its cluster keep what they have. Invariant: nothing is removed but what a
//! node puts into a folder of its own, and nothing while a node has it.

use crate::mount::ask_of;
use crate::{place, show, status};
use block::{Error, Kind, Result};
use client::messages::{MountPath, Verified};
use hyper::Method;
use node::Home;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
Examples:
  stoker cache show                  the default folder
  stoker cache verify /data/train    of a mount: what is damaged is dropped, and fetched again
  stoker cache clean /nvme/cache     empty a folder that no node has; it fills again

All of them mean the cache of this machine: other members of a cluster keep what they have.
`stoker load --verify` compares with the store, on all members. `verify` exits with 1 if it found
damage, and with 2 if it could not look at all of it.";

/// What a node keeps in its folder: its lock, the bytes of files, and the names of data sets.
const LOCK: &str = "lock";
const BYTES: &str = "blocks";
const NAMES: &str = "manifests";

#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Show what lies in a cache folder of this machine, and which node has it
    #[command(after_help = EXAMPLES)]
    Show(Args),
    /// Read again what the node of a mount keeps, compare it with the checksums it was kept with, and drop what is damaged
    #[command(after_help = EXAMPLES)]
    Verify(Verify),
    /// Empty a cache folder of this machine that no node has
    #[command(after_help = EXAMPLES)]
    Clean(Clean),
}

#[derive(clap::Args, Clone, Debug)]
pub struct Verify {
    /// A mount point, or a folder or a file below it
    path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The cache folder; by default that of `stoker mount`
    #[arg(value_name = "DIR", env = "STOKER_CACHE")]
    folder: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Clone, Debug)]
pub struct Clean {
    #[command(flatten)]
    args: Args,
    /// A group of yours may write into the folder, as --group-cache of `stoker mount` had it
    #[arg(long)]
    group_cache: bool,
}

pub fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let (args, cleaned) = match command {
        Command::Verify(args) => return show::judged(verify(args)),
        Command::Show(args) => (args, None),
        Command::Clean(clean) => (&clean.args, Some(clean.group_cache)),
    };
    let named = place::absolute(&place::cache_named(args.folder.as_deref())?)?;
    let folder = std::fs::canonicalize(&named).map_err(|error| {
        Error::io("there is no cache", named.display(), &error)
            .hint("name its folder, as --cache of `stoker mount` had it")
    })?;
    if cleaned.is_none() && ![LOCK, BYTES, NAMES].iter().any(|name| folder.join(name).exists()) {
        let error = Error::invalid("this is no cache folder", folder.display());
        return Err(error.hint("name one, as --cache of `stoker mount` had it").into());
    }
    match cleaned {
        Some(group) => clean(&folder, group, args.json),
        None => show(&folder, args.json),
    }
}

/// Files and the bytes that they take on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    files: u64,
    bytes: u64,
}

/// What lies below a folder; nothing where there is none.
fn held(folder: &Path) -> Held {
    use std::os::unix::fs::MetadataExt;
    let mut sum = Held::default();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        let of = match found.is_dir() {
            true => held(&entry.path()),
            false => Held { files: 1, bytes: found.blocks() * 512 },
        };
        (sum.files, sum.bytes) = (sum.files + of.files, sum.bytes + of.bytes);
    }
    sum
}

fn show(folder: &Path, is_json: bool) -> anyhow::Result<ExitCode> {
    let nodes = status::nodes(None)?;
    let node = nodes.found.iter().map(|(_, status)| status).find(|status| Path::new(&status.cache) == folder);
    let (objects, all, names) =
        (held(&folder.join(BYTES).join("objects")), held(&folder.join(BYTES)), held(&folder.join(NAMES)));
    let kind = ::mount::above(folder).map_or_else(String::new, |above| above.kind);
    let room = rustix::fs::statvfs(folder).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    let holds = match node {
        Some(status) => status.limits.disk_bytes,
        None => place::limits(folder, None)?.bytes,
    };
    if is_json {
        let mounts = node.map(|status| {
            status.mounts.iter().map(|mount| json!({ "url": mount.url, "path": mount.path })).collect::<Vec<_>>()
        });
        say!(
            "{}",
            json!({
                "folder": folder, "file_system": kind, "free_bytes": room, "cache_bytes": holds, "objects": objects.files,
                "bytes": all.bytes, "data_sets": names.files, "names_bytes": names.bytes,
                "node": node.map(|status| status.pid), "mounts": mounts,
            })
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("{} on {kind}, with {} free", show::line(&folder.to_string_lossy()), show::bytes(room))?;
    let files = show::count_of(objects.files, "file");
    say!("  holds   {files} with {} on the disk, of at most {}", show::bytes(all.bytes), show::bytes(holds))?;
    let sets = show::count_of(names.files, "data set");
    say!("  names   of {sets}, {}", show::bytes(names.bytes))?;
    match node {
        None => say!("  node    none has it")?,
        Some(status) => {
            say!("  node    {}, with {}", status.pid, show::count_of(status.mounts.len() as u64, "mount"))?;
            let mut lines = status.mounts.iter().map(|mount| format!("{}  {}", mount.path, mount.url));
            lines.try_for_each(|line| say!("          {}", show::line(&line)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether all is as it was kept: not so where something was damaged, although it is no more.
fn verify(args: &Verify) -> anyhow::Result<bool> {
    let bar = show::spinner("reading what is kept");
    let done = ask_of(&args.path, |client, path| {
        let place = MountPath { path: path.to_string_lossy().into_owned(), ..MountPath::default() };
        client.ask::<Verified>(Method::POST, "/v1/verify", &place)
    });
    bar.finish_and_clear();
    let done = done?;
    if args.json {
        say!("{}", serde_json::to_string(&done)?)?;
    } else {
        let all = format!("{} with {} read", show::count_of(done.files, "file"), show::bytes(done.bytes));
        let damaged = show::count_of(done.damaged, "file");
        match done.damaged {
            0 => say!("{all}: all are as they were kept")?,
            _ => say!("{all}: {damaged} damaged and dropped; they are fetched again when somebody reads them")?,
        }
        done.names.iter().try_for_each(|name| say!("  {}", show::line(name)))?;
    }
    Ok(done.damaged == 0)
}

fn clean(folder: &Path, group: bool, is_json: bool) -> anyhow::Result<ExitCode> {
    let _home = Home::take(folder, group).map_err(|error| match error.kind {
        Kind::Unavailable { .. } => error.hint("unmount what is mounted from it: `stoker cache show` names it"),
        _ => error.hint("name a cache folder of this user"),
    })?;
    let parts = [folder.join(BYTES), folder.join(NAMES)];
    let before = parts.iter().map(|part| held(part).bytes).sum::<u64>();
    parts.iter().try_for_each(|part| remove(part))?;
    match is_json {
        true => say!("{}", json!({ "folder": folder, "freed_bytes": before }))?,
        false => say!("{}: {} freed", show::line(&folder.to_string_lossy()), show::bytes(before))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(part: &Path) -> Result<()> {
    match std::fs::remove_dir_all(part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("the cache can't be emptied", part.display(), &error))
        }
        _ => Ok(()),
    }
}
