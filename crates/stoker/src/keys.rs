//! `stoker keys`: an authority for a cluster, and a key and a certificate for each of its members.
//!
//! Invariant: the key of the authority leaves this machine only if its user carries it; no key is printed.

use crate::authority::{Authority, Identity};
use crate::{place, show};
use anyhow::Context;
use block::{Error, Result, quoted};
use peer::Members;
use rcgen::KeyPair;
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use time::{Duration, OffsetDateTime};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Who tells of all nodes of the cluster, as `stoker mount --members` takes it: a file; or DNS or etcd, those that are there
    #[arg(long, value_name = "MEMBERS")]
    pub members: String,
    /// Where to: the key of the authority, and a folder for each member. Members that have keys there keep them
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How long certificates are good
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
    /// Make the keys of all members anew, by the same authority
    #[arg(long)]
    pub renew: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let seats = crate::runtime()?.block_on(Members::parse(&args.members, &place::variable)?.read())?;
    let out = place::absolute(&args.out)?;
    let is_empty = std::fs::read_dir(&out).map_or(true, |mut names| names.next().is_none());
    if !is_empty && !out.join("ca.key").exists() {
        let error = Error::invalid("there are files in this folder, and no ca.key among them", out.display());
        return Err(error.hint("name a new folder, or the one that `stoker keys` made").into());
    }
    private_folder(&out)?;
    let authority = authority_in(&out, OffsetDateTime::now_utc())?;
    let mut made = 0;
    for seat in &seats {
        let folder = out.join(folder_of(&seat.name));
        if folder.join("node.key").exists() && !args.renew {
            continue;
        }
        let Identity { certificate, key } = authority.certify(seat, Duration::days(args.days.into()))?;
        private_folder(&folder)?;
        write(&folder.join("ca.pem"), &authority.certificate)?;
        write(&folder.join("node.pem"), &certificate)?;
        write(&folder.join("node.key"), &key)?;
        made += 1;
    }
    let (of, days) = (show::count_of(seats.len() as u64, "member"), args.days);
    if made == 0 {
        say!("all {of} have keys already in {} (--renew makes new ones)", out.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("keys of {made} of {of} in {}, good for {days} days", out.display())?;
    note!("bring each member its own folder, then mount with --identity FOLDER; keep ca.key to yourself");
    Ok(ExitCode::SUCCESS)
}

/// The one whose key lies in a folder, or a new one that is put there.
fn authority_in(folder: &Path, now: OffsetDateTime) -> anyhow::Result<Authority> {
    let (pem, key) = (folder.join("ca.pem"), folder.join("ca.key"));
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    if key.exists() {
        let pair = KeyPair::from_pem(&read(&key)?)
            .map_err(|_| Error::invalid("this file holds no key", key.display()).hint("remove it to begin anew"))?;
        return Ok(Authority::known(read(&pem)?, pair, now));
    }
    let (authority, secret) = Authority::new(now)?;
    write(&key, &secret)?;
    write(&pem, &authority.certificate)?;
    Ok(authority)
}

/// A member's name as that of a folder: it has no slash, but may be `..`.
fn folder_of(name: &str) -> String {
    if name.starts_with('.') { format!("_{name}") } else { name.to_owned() }
}

fn private_folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Error::io("cannot make a folder for keys", path.display(), &error))
}

/// Written under another name first, so that a member that reads it meanwhile reads one of both.
fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::io("cannot write", path.display(), &error).hint(format!("see whether {} can be written", quoted(path)))
    };
    let draft = path.with_added_extension("new");
    let _ = std::fs::remove_file(&draft);
    let made = File::options().write(true).create_new(true).mode(0o600).open(&draft);
    made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    std::fs::rename(&draft, path).map_err(failed)
}
