//! A file of hosts that tells of the members, read again when it changes.

use super::{Teller, WEIGHT_MAX, address, is_name, listed};
use crate::Seat;
use block::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes of a file of members.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Between two looks at the file. Network file systems tell nobody of changes.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A file with a line for each member: `HOST[:PORT] [name=NAME] [weight=NUMBER]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(pub PathBuf);

impl Hosts {
    pub(super) async fn read(&self) -> Result<Vec<Seat>> {
        let path = self.0.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        read.map_err(|error| Error::unavailable(format!("reading was given up: {error}"), self.0.display()))?
    }

    pub(super) async fn follow(&self, teller: &Teller) {
        let mut before = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let path = self.0.clone();
            let now = tokio::task::spawn_blocking(move || stamp(&path)).await.unwrap_or_default();
            if now.is_none() || now != before {
                match self.read().await {
                    Ok(seats) => teller.tell(seats),
                    Err(error) => teller.fail(&error),
                }
                before = now;
            }
        }
    }
}

/// Something that changes with the file.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let status = std::fs::metadata(path).ok()?;
    Some((status.modified().ok()?, status.len()))
}

fn read(path: &Path) -> Result<Vec<Seat>> {
    let failed = |error: std::io::Error| {
        let what = format!("cannot read the members: {error}");
        Error::invalid(what, path.display()).hint("name a file that this user may read")
    };
    let status = std::fs::metadata(path).map_err(failed)?;
    if !status.is_file() || status.len() > FILE_BYTES_MAX {
        let error = Error::invalid("this is no file of members", path.display());
        return Err(error.hint("name a file with a line for each member"));
    }
    parse(&std::fs::read_to_string(path).map_err(failed)?, path)
}

/// The lines of a file.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Seat>> {
    let mut seats: Vec<Seat> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: String| {
            let hint = "write HOST[:PORT] [name=NAME] [weight=NUMBER], one member a line";
            Error::invalid(what, format!("{}:{}", path.display(), number + 1)).hint(hint)
        };
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(host) = words.next() else { continue };
        let address = address(host).ok_or_else(|| match host.contains(['[', ',']) {
            true => wrong(format!("`{host}` is a list, and a line names one member")),
            false => wrong(format!("`{host}` is no address of a member")),
        })?;
        let (mut name, mut weight) = (address.clone(), 1);
        for word in words {
            match word.split_once('=') {
                Some(("name", text)) if is_name(text) => name = text.into(),
                Some(("weight", text)) => {
                    let number = text.parse().ok().filter(|number| *number <= WEIGHT_MAX);
                    weight = number.ok_or_else(|| wrong(format!("`{text}` is no weight from 0 to {WEIGHT_MAX}")))?;
                }
                _ => return Err(wrong(format!("`{word}` is not known here"))),
            }
        }
        if let Some(same) = seats.iter().find(|seat| seat.name == name) {
            return Err(wrong(format!("two members are called {}", same.name)));
        }
        if let Some(same) = seats.iter().find(|seat| seat.address == address) {
            return Err(wrong(format!("{} and {name} are at one address, {address}", same.name)));
        }
        seats.push(Seat::new(name, address, weight));
    }
    listed(seats, &path.display().to_string())
}
