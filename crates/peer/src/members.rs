//! Where the members of a cluster are told, by whatever tells of hosts already: a file, DNS or etcd.
//!
//! Deliberately decides nothing about who is alive: a member that doesn't answer is passed over by whoever asks it.
//! Invariant: what can't be read, or names nobody, changes nothing, and is said.

mod dns;
mod etcd;
mod gateway;
pub(crate) mod hosts;
mod seat;
mod told;

pub use seat::{Claim, Taken};
pub use told::{Leave, Told};

use crate::Seat;
use block::{Error, Kind, Result};
use dns::Dns;
use etcd::Etcd;
use hosts::Hosts;
use std::net::SocketAddr;
use tokio::sync::oneshot;
use told::Teller;

/// Port of a member that is named without one.
pub const PORT: u16 = 7865;

/// Members of a cluster at most; with more, finding owners would take longer than asking them.
const MEMBERS_MAX: usize = 4096;

/// The largest weight: with 4,096 members, no sum overflows.
const WEIGHT_MAX: u32 = 1_000_000;

/// Who tells of the members.
pub enum Members {
    File(Hosts),
    Dns(Dns),
    Etcd(Box<Etcd>),
}

impl Members {
    /// What was typed: a path, `dns:NAME[:PORT]`, `etcd://HOST[:PORT][,...]/PREFIX`. `environment`: variables by their names.
    pub fn parse(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Members> {
        let members = match text.split_once(':') {
            Some((scheme @ ("etcd" | "etcds"), rest)) if rest.starts_with("//") => {
                return Ok(Members::Etcd(Etcd::parse(rest, scheme == "etcds", environment)?.into()));
            }
            Some(("file", path)) if path.starts_with("///") => Some(Members::File(Hosts(path[2..].into()))),
            Some(("dns", name)) => Dns::parse(name).map(Members::Dns),
            _ if text.is_empty() || text.contains("://") => None,
            _ => Some(Members::File(Hosts(text.into()))),
        };
        let hint = "name a file with a line for each member, HOST[:PORT] [name=NAME] [weight=NUMBER]; dns:NAME[:PORT]; or \
                    etcd://HOST[:PORT]/PREFIX";
        members.ok_or_else(|| Error::invalid("this names no members", format!("`{text}`")).hint(hint))
    }

    /// Whether it was typed as the path of a file, which only has its meaning from the folder where it was typed.
    pub fn is_path(text: &str) -> bool {
        !(text.contains("://") || text.starts_with("dns:"))
    }

    /// The members as they are told now, by name.
    pub async fn read(&self) -> Result<Vec<Seat>> {
        match self {
            Members::File(hosts) => hosts.read().await,
            Members::Dns(dns) => Ok(dns.read().await?.0),
            Members::Etcd(etcd) => etcd.read().await,
        }
    }

    /// The seat of this node, with its open door, and all that are told.
    pub async fn take_seat(&self, claim: &Claim) -> Result<Taken> {
        if !matches!(self, Members::Etcd(_)) && (claim.name.is_some() || claim.weight.is_some()) {
            let error = Error::invalid("--name and --weight are for members that etcd tells of", "--name, --weight");
            return Err(error.hint("write name=NAME and weight=NUMBER behind the member in its file"));
        }
        match self {
            // A file that doesn't name this node is typed wrong, where DNS may name it later.
            Members::File(hosts) => seat::among(hosts.read().await?, claim).map_err(|error| match error.kind {
                Kind::Missing => Error::invalid(error.what, error.on).hint(error.hint),
                _ => error,
            }),
            Members::Dns(dns) => dns.take_seat(claim).await,
            Members::Etcd(etcd) => etcd.take_seat(claim).await,
        }
    }

    /// Be a member, and be told of all for as long as anybody listens and this node stays. `seats`: what is known of them.
    /// Within a runtime.
    pub async fn join(self, me: &Seat, seats: Vec<Seat>) -> Result<Told> {
        if let Members::Etcd(etcd) = &self {
            etcd.keep(me).await?;
        }
        let (teller, me) = (Teller::of(me.id, seats), me.clone());
        let roster = teller.listener();
        let (end, asked_to_end) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let following = async {
                match &self {
                    Members::File(hosts) => hosts.follow(&teller).await,
                    Members::Dns(dns) => dns.follow(&teller).await,
                    Members::Etcd(etcd) => etcd.follow(&me, &teller).await,
                }
            };
            tokio::select! {
                () = following => {}
                () = teller.closed() => {}
                _ = asked_to_end => {}
            }
            if let Members::Etcd(etcd) = &self {
                etcd.leave().await;
            }
        });
        Ok(Told { roster, leave: Leave { end, ended } })
    }
}

/// Members as anybody may tell of them: by name, some and not too many. `on`: who told.
fn listed(mut seats: Vec<Seat>, on: &str) -> Result<Vec<Seat>> {
    seats.sort_by(|left, right| left.name.cmp(&right.name));
    seats.dedup_by(|left, right| left.name == right.name);
    match seats.len() {
        0 => Err(Error::invalid("no member is named", on).hint("name this node and all others there")),
        1..=MEMBERS_MAX => Ok(seats),
        many => {
            let what = format!("{many} members are more than a cluster takes");
            Err(Error::invalid(what, on).hint(format!("name at most {MEMBERS_MAX}")))
        }
    }
}

/// With its port; `[::1]:7865` of IPv6.
fn address(host: &str) -> Option<String> {
    address_at(host, PORT)
}

fn address_at(host: &str, port: u16) -> Option<String> {
    if let Ok(address) = host.parse::<std::net::IpAddr>() {
        return Some(SocketAddr::new(address, port).to_string());
    }
    if let Ok(address) = host.parse::<SocketAddr>() {
        return (address.port() > 0).then(|| address.to_string());
    }
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, port.parse().ok()?),
        None => (host, port),
    };
    // What brackets hold is an address, and one that is right was found above.
    (is_name(name) && !name.starts_with('-') && !name.contains(['[', ']']) && port > 0)
        .then(|| format!("{name}:{port}"))
}

fn is_name(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-:[]".contains(letter);
    (1..=255).contains(&text.len()) && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests;
