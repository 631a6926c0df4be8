//! Where the members of a cluster are told: a file of hosts, read again when it changes.
//!
//! Deliberately decides nothing about who is alive: a member that doesn't answer is passed over by whoever asks it.
//! Invariant: what can't be read changes nothing, and is said.

use crate::{Roster, Seat};
use block::{Error, Result};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Port of a member whose line names none.
pub const PORT: u16 = 7865;

/// Members of a cluster at most; with more, finding owners would take longer than asking them.
const MEMBERS_MAX: usize = 4096;

/// Bytes of a file of members.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The largest weight: with 4,096 members, no sum overflows.
const WEIGHT_MAX: u32 = 1_000_000;

/// Between two looks at the file. Network file systems tell nobody of changes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Who tells of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// A file with a line for each: `HOST[:PORT] [name=NAME] [weight=NUMBER]`.
    File(PathBuf),
}

impl FromStr for Members {
    type Err = Error;

    fn from_str(text: &str) -> Result<Members> {
        let hint = "name a file with a line for each member: HOST[:PORT] [name=NAME] [weight=NUMBER]";
        match text.split_once("://") {
            None if !text.is_empty() => Ok(Members::File(text.into())),
            Some(("file", path)) if path.starts_with('/') => Ok(Members::File(path.into())),
            _ => Err(Error::invalid("this names no members", format!("`{text}`")).hint(hint)),
        }
    }
}

impl Members {
    /// The members as they are told now.
    pub fn read(&self) -> Result<Vec<Seat>> {
        let Members::File(path) = self;
        let failed = |error: std::io::Error| {
            Error::io("cannot read the members", path.display(), &error).hint("name a file that this user may read")
        };
        let status = std::fs::metadata(path).map_err(failed)?;
        if !status.is_file() || status.len() > FILE_BYTES_MAX {
            let error = Error::invalid("this is no file of members", path.display());
            return Err(error.hint("name a file with a line for each member"));
        }
        parse(&std::fs::read_to_string(path).map_err(failed)?, path)
    }

    /// Tell of the members for as long as anybody listens, from what was read before.
    pub fn watch(self, me: u128, seats: Vec<Seat>, runtime: &tokio::runtime::Handle) -> watch::Receiver<Arc<Roster>> {
        let (sender, receiver) = watch::channel(Arc::new(Roster::of(me, seats)));
        runtime.spawn(async move {
            let mut stamp = self.stamp();
            loop {
                tokio::select! {
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = sender.closed() => return,
                }
                let (members, before) = (self.clone(), stamp);
                let look = move || {
                    let now = members.stamp();
                    (now != before).then(|| (now, members.read()))
                };
                let Ok(Some((now, read))) = tokio::task::spawn_blocking(look).await else { continue };
                stamp = now;
                match read {
                    Ok(seats) => {
                        let roster = Arc::new(Roster::of(me, seats));
                        let is_new = sender.send_if_modified(|known| {
                            let is_new = **known != *roster;
                            *known = roster.clone();
                            is_new
                        });
                        if is_new {
                            tracing::info!("the cluster has {} members now", roster.seats().len());
                        }
                    }
                    Err(error) => tracing::warn!("the members stay as they were: {error}"),
                }
            }
        });
        receiver
    }

    /// Something that changes with the file.
    fn stamp(&self) -> Option<(SystemTime, u64)> {
        let Members::File(path) = self;
        let status = std::fs::metadata(path).ok()?;
        Some((status.modified().ok()?, status.len()))
    }
}

/// The lines of a file.
fn parse(text: &str, path: &Path) -> Result<Vec<Seat>> {
    let mut seats: Vec<Seat> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: String| {
            let hint = "write HOST[:PORT] [name=NAME] [weight=NUMBER], one member a line";
            Error::invalid(what, format!("{}:{}", path.display(), number + 1)).hint(hint)
        };
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(host) = words.next() else { continue };
        let address = address(host).ok_or_else(|| wrong(format!("`{host}` is no address of a member")))?;
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
        seats.push(Seat::new(name, address, weight));
    }
    match seats.len() {
        0 => Err(Error::invalid("no member is named", path.display()).hint("write a line for each member")),
        1..=MEMBERS_MAX => Ok(seats),
        many => {
            let what = format!("{many} members are more than a cluster takes");
            Err(Error::invalid(what, path.display()).hint(format!("name at most {MEMBERS_MAX}")))
        }
    }
}

/// With its port; `[::1]:7865` of IPv6.
fn address(host: &str) -> Option<String> {
    if let Ok(address) = host.parse::<std::net::IpAddr>() {
        return Some(SocketAddr::new(address, PORT).to_string());
    }
    if let Ok(address) = host.parse::<SocketAddr>() {
        return Some(address.to_string());
    }
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, port.parse().ok()?),
        None => (host, PORT),
    };
    (is_name(name) && !name.starts_with('-') && port > 0).then(|| format!("{name}:{port}"))
}

fn is_name(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-:[]".contains(letter);
    (1..=255).contains(&text.len()) && text.chars().all(is_plain)
}

/// Which of them this node is, and its open door: the one of this address, or the only one whose address this machine has.
pub fn take_seat(seats: &[Seat], listen: Option<&str>) -> Result<(Seat, TcpListener)> {
    let all = || seats.iter().map(|seat| &*seat.address).collect::<Vec<_>>().join(", ");
    let mine: Vec<&Seat> = match listen {
        Some(text) => {
            let address = address(text).ok_or_else(|| {
                Error::invalid("this is no address", format!("`{text}`"))
                    .hint("write it as HOST:PORT, as a member has it")
            })?;
            seats.iter().filter(|seat| seat.address == address || seat.name == text).collect()
        }
        None => seats.iter().filter(|seat| is_of_this_machine(&seat.address)).collect(),
    };
    let seat = match mine[..] {
        [seat] => seat,
        [] => {
            let error = Error::invalid("no member is this node", format!("members {}", all()));
            return Err(error.hint("give --listen HOST:PORT as one of them has it, or add a line for this machine"));
        }
        _ => {
            let error = Error::invalid("several members are on this machine", format!("members {}", all()));
            return Err(error.hint("say which one this node is: --listen HOST:PORT"));
        }
    };
    let listener = TcpListener::bind(&*seat.address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let listener = listener.map_err(|error| {
        let failed = Error::io("cannot listen for other members", &seat.address, &error);
        failed.hint("another process may have this port: name another one in the list of members")
    })?;
    Ok((seat.clone(), listener))
}

/// Only an address of this machine can be bound.
fn is_of_this_machine(address: &str) -> bool {
    let found = address.to_socket_addrs().into_iter().flatten();
    found.into_iter().any(|address| TcpListener::bind(SocketAddr::new(address.ip(), 0)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Seat>> {
        parse(text, Path::new("hosts"))
    }

    #[test]
    fn a_file_of_members_is_read_line_by_line() {
        let text = "# the cluster\n10.0.0.1\nn2:9000 weight=3 # larger\n\n[fd00::1]:80 name=three weight=0\nfd00::2\n";
        let told: Vec<_> =
            read(text).expect("members").into_iter().map(|seat| (seat.name, seat.address, seat.weight)).collect();
        let expected = [
            ("10.0.0.1:7865", "10.0.0.1:7865", 1),
            ("n2:9000", "n2:9000", 3),
            ("three", "[fd00::1]:80", 0),
            ("[fd00::2]:7865", "[fd00::2]:7865", 1),
        ];
        assert_eq!(told, expected.map(|(name, address, weight)| (name.into(), address.into(), weight)));
    }

    #[test]
    fn a_wrong_line_is_named_with_what_to_write() {
        for (text, word) in [
            ("", "no member"),
            ("a\n-oProxyCommand=x", "hosts:2"),
            ("a;b", "no address"),
            ("a:0", "no address"),
            ("a weight=x", "no weight"),
            ("a weight=1000001", "no weight"),
            ("a name=b\nc name=b", "two members"),
            ("a size=1", "`size=1`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.to_string().contains(word) && !error.hint.is_empty(), "{text}: {error}");
        }
    }

    #[test]
    fn a_node_knows_its_line_by_its_address() {
        let seats = read("127.0.0.1\n192.0.2.1\n").expect("two");
        assert!(is_of_this_machine(&seats[0].address) && !is_of_this_machine("192.0.2.1:1"));
        let two = read("127.0.0.1:1\n127.0.0.2:1").expect("two");
        assert!(take_seat(&two, None).expect_err("which one").hint.contains("--listen"));
        assert!(take_seat(&two[..0], None).expect_err("none").what.contains("no member"));
        assert!(take_seat(&two, Some("127.0.0.3:1")).expect_err("none of them").what.contains("no member"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_seen_and_a_damaged_one_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hosts");
        std::fs::write(&path, "a\nb\n").expect("written");
        let members: Members = path.to_str().expect("a name").parse().expect("a file");
        let seats = members.read().expect("two");
        let mut told = members.watch(seats[0].id, seats.clone(), &tokio::runtime::Handle::current());
        assert_eq!(told.borrow_and_update().seats().len(), 2);
        std::fs::write(&path, "a b c\n").expect("written");
        tokio::time::sleep(3 * LOOK_EVERY).await;
        assert_eq!(told.borrow_and_update().seats().len(), 2);
        std::fs::write(&path, "a\nb\nc\n").expect("written");
        told.changed().await.expect("told");
        assert_eq!(told.borrow_and_update().seats().len(), 3);
    }
}
