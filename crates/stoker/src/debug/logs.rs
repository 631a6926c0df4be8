//! Logs of nodes: of those that live, and those that nodes left that were killed.
//!
//! Invariant: as root, what the node of another user names as its log is taken only if it is that user's file.

use super::regular;
use crate::place;
use client::Client;
use client::messages::Status;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Of the end of each log.
const LOG_BYTES: u64 = 2 << 20;

/// Logs that are taken at most.
const LOGS: usize = 16;

/// A log, and whose it has to be.
pub struct Log {
    /// In the bundle.
    pub name: String,
    path: PathBuf,
    user: u32,
}

/// Those of nodes that answered, then what lies beside the control sockets, the latest first.
pub fn all(nodes: &[(Client, Status)]) -> Vec<Log> {
    let named = nodes.iter().filter(|(_, status)| !status.log.path.is_empty());
    let of = |(client, status): &(Client, Status)| Log {
        name: format!("node-{}.log", status.pid),
        path: status.log.path.clone().into(),
        user: client.user(),
    };
    let mut all: Vec<Log> = named.map(of).collect();
    let left = beside_sockets().into_iter().filter(|path| all.iter().all(|log| log.path != *path)).map(|path| Log {
        name: format!("left-{}", path.file_name().unwrap_or_default().to_string_lossy()),
        path,
        user: rustix::process::geteuid().as_raw(),
    });
    all.extend(left.collect::<Vec<_>>());
    all.truncate(LOGS);
    all
}

/// Logs of this user, also those that were begun anew since.
fn beside_sockets() -> Vec<PathBuf> {
    let Ok(folder) = place::runtime() else { return Vec::new() };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_log =
        |path: &PathBuf| path.to_string_lossy().ends_with(".log") || path.to_string_lossy().ends_with(".log.1");
    let changed = |path: &Path| std::fs::symlink_metadata(path).map_or(i64::MIN, |found| found.mtime());
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).filter(is_log).collect();
    paths.sort_by_key(|path| std::cmp::Reverse(changed(path)));
    paths
}

impl Log {
    /// The end of it, or why it can't be had.
    pub fn end(&self) -> String {
        let said = owned(&self.path, self.user).and_then(end);
        said.unwrap_or_else(|error| format!("{} can't be read: {error}\n", self.path.display()))
    }
}

/// A file, if it is this user's.
fn owned(path: &Path, user: u32) -> std::io::Result<File> {
    let file = regular(path)?;
    match file.metadata()?.uid() {
        owner if owner == user => Ok(file),
        owner => Err(std::io::Error::other(format!("it belongs to user {owner}, and the node is that of user {user}"))),
    }
}

/// The end of a log, from the beginning of a line on.
fn end(mut file: File) -> std::io::Result<String> {
    let from = file.metadata()?.len().saturating_sub(LOG_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // Half a line may hold half a secret, which nobody would know again.
    let whole = if from == 0 { 0 } else { text.find('\n').map_or(text.len(), |at| at + 1) };
    Ok(text[whole..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_end_is_taken_by_whole_lines() {
        let scratch = tempfile::tempdir().expect("a folder");
        let path = scratch.path().join("log");
        let lines: String =
            (0..100_000).map(|number| format!("{number:05} of a line of the log of a node\n")).collect();
        std::fs::write(&path, &lines).expect("written");
        let user = rustix::process::geteuid().as_raw();
        let said = Log { name: "log".into(), path: path.clone(), user }.end();
        assert!(said.len() as u64 <= LOG_BYTES && said.ends_with("99999 of a line of the log of a node\n"));
        assert!(said.lines().all(|line| line.len() == 36), "{}", said.lines().next().unwrap_or_default());
        assert!(owned(scratch.path(), user).is_err(), "a folder is no log");
        let of_another = Log { name: "log".into(), path, user: user + 1 }.end();
        assert!(of_another.contains("belongs to user") && !of_another.contains("99999 of"), "{of_another}");
    }
}
