//! etcd: each node writes itself below a prefix, by a lease that it keeps alive, and all that stand there are the members.
//!
//! A key is `/PREFIX/NAME`, its value `{"name", "address", "weight"}`. A change rings, and then all are read again, so that
//! nothing depends on how far back etcd remembers. Whoever ends takes its lease back; of whoever was killed etcd does, within
//! [`LEASE`].
//!
//! Invariant: while etcd is out of reach the members stay as they were, and after that until all had time to write
//! themselves again. What stands there and is no member is passed over.

use super::gateway::{Access, Bell, Gateway};
use super::seat::{self, Claim, Taken};
use super::{MEMBERS_MAX, PORT, Teller, WEIGHT_MAX, address, address_at, is_name, listed};
use crate::Seat;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use block::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Port of a server that is named without one.
const ETCD_PORT: u16 = 2379;

/// How long a node is a member that says no more.
const LEASE: Duration = Duration::from_secs(10);

/// Between two times that it says so.
const KEEP_EVERY: Duration = Duration::from_secs(3);

/// Between two tries to reach an etcd that is out of reach.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// How long all are given to write themselves again after that: an etcd may have come back with nothing.
const SETTLES: Duration = Duration::from_secs(5);

/// Many members that come at once are read once.
const RINGS_WITHIN: Duration = Duration::from_millis(50);

/// What listens is renewed, since a connection can be dead without anybody having said so.
const LISTENS: Duration = Duration::from_secs(60);

/// Within which a node of the same name takes a connection, if it lives.
const IS_THERE_WITHIN: Duration = Duration::from_millis(500);

/// Bytes of what a member writes.
const VALUE_BYTES_MAX: usize = 2048;

/// Servers of an etcd, and bytes of a prefix.
const SERVERS_MAX: usize = 16;
const PREFIX_BYTES_MAX: usize = 512;

/// Members below a prefix in etcd.
pub struct Etcd {
    gateway: Gateway,
    /// Of their keys, with a slash at both ends.
    prefix: String,
    /// By which this node stands there.
    lease: Mutex<Option<String>>,
}

/// What a member writes.
#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    address: String,
    weight: u32,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Grant {
    #[serde(rename = "ID")]
    id: String,
}

#[derive(Deserialize)]
struct Kept {
    result: Option<Life>,
}

#[derive(Deserialize)]
struct Life {
    /// Seconds, as text; left out of a lease that is gone.
    #[serde(rename = "TTL", default)]
    seconds: String,
}

/// What is of no account in an answer.
#[derive(Deserialize)]
struct Done {}

impl Etcd {
    /// `//HOST[:PORT][,HOST[:PORT]...]/PREFIX`.
    pub(super) fn parse(text: &str, is_secure: bool, environment: &dyn Fn(&str) -> Option<String>) -> Result<Etcd> {
        let wrong = |what: &str| {
            // Not what was typed: it may hold a password.
            Error::invalid(what, "etcd://")
                .hint("write etcd://HOST[:PORT][,HOST[:PORT]...]/PREFIX, or etcds:// for TLS")
        };
        if text.contains('@') {
            let error = wrong("names and passwords don't belong in an address, which all may read");
            return Err(error.hint("set ETCDCTL_USER and ETCDCTL_PASSWORD"));
        }
        let rest = text.strip_prefix("//").unwrap_or_default();
        let (servers, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let servers: Option<Vec<_>> = servers.split(',').map(|server| address_at(server, ETCD_PORT)).collect();
        let servers =
            servers.filter(|servers| servers.len() <= SERVERS_MAX).ok_or_else(|| wrong("this names no etcd"))?;
        let prefix = prefix.trim_matches('/');
        if prefix.is_empty() {
            let error = wrong("there is no PREFIX behind the servers");
            return Err(Error::invalid(error.what, format!("`etcd:{text}`")).hint(error.hint));
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/:".contains(letter);
        if !(1..=PREFIX_BYTES_MAX).contains(&prefix.len()) || !prefix.chars().all(is_plain) {
            return Err(wrong("this names no prefix for the keys of a cluster"));
        }
        let gateway = Gateway::new(&servers, is_secure, Access::of(environment)?)?;
        Ok(Etcd { gateway, prefix: format!("/{prefix}/"), lease: Mutex::default() })
    }

    pub(super) async fn read(&self) -> Result<Vec<Seat>> {
        listed(self.list().await?.0, &self.prefix)
    }

    /// The seat that was said; nobody else knows it.
    pub(super) async fn take_seat(&self, claim: &Claim) -> Result<Taken> {
        let Some(address) = claim.address(PORT)? else {
            let error = Error::invalid("nobody said where this node listens", "--members etcd://");
            return Err(error.hint("give --listen HOST:PORT as the others reach it, or --interface NAME"));
        };
        if address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified()) {
            let error = Error::invalid("nobody reaches a node at this address", format!("--listen {address}"));
            return Err(error.hint("name the address by which the others reach it, or --interface NAME"));
        }
        let name = claim.name.clone().unwrap_or_else(|| address.clone());
        let weight = claim.weight.unwrap_or(1);
        if !is_name(&name) || weight > WEIGHT_MAX {
            let error = Error::invalid("this is no member", format!("--name {name} --weight {weight}"));
            return Err(
                error.hint(format!("letters, digits and ._-:[] make a name; a weight is from 0 to {WEIGHT_MAX}"))
            );
        }
        let me = Seat::new(name, address, weight);
        let mut seats = self.list().await?.0;
        if let Some(other) = seats.iter().find(|seat| seat.name == me.name && seat.address != me.address)
            && is_there(&other.address).await
        {
            return Err(is_called(&me.name, &other.address));
        }
        seats.retain(|seat| seat.name != me.name);
        seats.push(me.clone());
        seat::take(me, seats, claim)
    }

    pub(super) async fn follow(&self, me: &Seat, teller: &Teller) {
        let (mut was_lost, mut passed_over) = (false, Vec::new());
        loop {
            match self.listen(me, teller, was_lost, &mut passed_over).await {
                Ok(()) => was_lost = false,
                Err(error) => {
                    teller.fail(&error);
                    was_lost = true;
                    tokio::time::sleep(TRY_EVERY).await;
                }
            }
        }
    }

    /// Tell of changes for a while.
    async fn listen(&self, me: &Seat, teller: &Teller, was_lost: bool, passed_over: &mut Vec<String>) -> Result<()> {
        self.keep(me).await?;
        if was_lost {
            tokio::time::sleep(SETTLES).await;
        }
        let mut bell = self.bell().await?;
        let mut keeping = tokio::time::interval(KEEP_EVERY);
        let renewal = tokio::time::sleep(LISTENS);
        tokio::pin!(renewal);
        loop {
            tokio::select! {
                // That listening has begun rings too, so that nothing is missed between two times of it.
                rung = bell.rung() => {
                    rung?;
                    tokio::time::sleep(RINGS_WITHIN).await;
                    self.look(me, teller, passed_over).await?;
                }
                _ = keeping.tick() => self.keep(me).await?,
                () = &mut renewal => return Ok(()),
            }
        }
    }

    /// Tell of all that stand there.
    async fn look(&self, me: &Seat, teller: &Teller, passed_over: &mut Vec<String>) -> Result<()> {
        let (seats, odd) = self.list().await?;
        if odd != *passed_over {
            if !odd.is_empty() {
                tracing::warn!("no member can be made of what stands in etcd at {}", odd.join(", "));
            }
            *passed_over = odd;
        }
        match seats.iter().find(|seat| seat.id == me.id) {
            Some(seat) if seat.address == me.address => teller.tell(listed(seats, &self.prefix)?),
            Some(seat) => {
                teller.fail(&is_called(&me.name, &seat.address));
            }
            // Somebody took it away. That it is back will ring.
            None => {
                self.held().take();
                self.keep(me).await?;
            }
        }
        Ok(())
    }

    /// See that this node stands there.
    pub(super) async fn keep(&self, me: &Seat) -> Result<()> {
        let held = self.held().clone();
        if let Some(id) = held {
            let kept: Kept = self.gateway.ask("lease/keepalive", &json!({ "ID": id })).await?;
            if kept.result.is_some_and(|life| life.seconds.parse().is_ok_and(|seconds: u64| seconds > 0)) {
                return Ok(());
            }
            tracing::warn!("etcd gave up on this node, {}, which writes itself anew", me.name);
            self.held().take();
        }
        let Grant { id } = self.gateway.ask("lease/grant", &json!({ "TTL": LEASE.as_secs().to_string() })).await?;
        let entry = Entry { name: me.name.clone(), address: me.address.clone(), weight: me.weight };
        let value = serde_json::to_vec(&entry).unwrap_or_default();
        let key = format!("{}{}", self.prefix, me.name);
        let words = json!({ "key": BASE64.encode(key), "value": BASE64.encode(value), "lease": id });
        let _: Done = self.gateway.ask("kv/put", &words).await?;
        *self.held() = Some(id);
        Ok(())
    }

    /// Leave at once. Where that fails, the lease ends by itself.
    pub(super) async fn leave(&self) {
        let held = self.held().take();
        if let Some(id) = held {
            let done: Result<Done> = self.gateway.ask("lease/revoke", &json!({ "ID": id })).await;
            match done {
                Err(error) if error.kind != Kind::Missing => {
                    tracing::warn!("this node left without having said so: {error}")
                }
                _ => {}
            }
        }
    }

    /// Who stands there, and the keys of which no member can be made.
    async fn list(&self) -> Result<(Vec<Seat>, Vec<String>)> {
        let mut words = self.range();
        words["limit"] = json!((MEMBERS_MAX + 1).to_string());
        let range: Range = self.gateway.ask("kv/range", &words).await?;
        let (mut seats, mut odd) = (Vec::new(), Vec::new());
        for pair in &range.kvs {
            match self.seat(pair) {
                Some(seat) => seats.push(seat),
                None => odd.push(pair.key.chars().filter(char::is_ascii_graphic).take(100).collect()),
            }
        }
        Ok((seats, odd))
    }

    /// The member of a pair, if it is one.
    fn seat(&self, pair: &Pair) -> Option<Seat> {
        let key = String::from_utf8(BASE64.decode(&pair.key).ok()?).ok()?;
        let value = BASE64.decode(&pair.value).ok().filter(|value| value.len() <= VALUE_BYTES_MAX)?;
        let entry: Entry = serde_json::from_slice(&value).ok()?;
        let is_of_it = key.strip_prefix(&self.prefix) == Some(&entry.name) && is_name(&entry.name);
        let address = address(&entry.address).filter(|address| *address == entry.address)?;
        (is_of_it && entry.weight <= WEIGHT_MAX).then(|| Seat::new(entry.name, address, entry.weight))
    }

    /// All keys that begin with the prefix: up to the next after its last letter, which is a slash.
    fn range(&self) -> serde_json::Value {
        let end = format!("{}0", &self.prefix[..self.prefix.len() - 1]);
        json!({ "key": BASE64.encode(&self.prefix), "range_end": BASE64.encode(end) })
    }

    async fn bell(&self) -> Result<Bell> {
        self.gateway.listen("watch", &json!({ "create_request": self.range() })).await
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_called(name: &str, address: &str) -> Error {
    let error = Error::invalid("another node calls itself by the name of this one", address);
    error.hint(format!("give each node a --name of its own; this one is {name}"))
}

/// Whether somebody listens at an address: one that was killed stands in etcd for a while yet.
async fn is_there(address: &str) -> bool {
    let connected = tokio::time::timeout(IS_THERE_WITHIN, tokio::net::TcpStream::connect(address)).await;
    connected.is_ok_and(|connected| connected.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Etcd> {
        Etcd::parse(text, false, &|_| None)
    }

    #[test]
    fn an_etcd_is_written_as_its_servers_and_a_prefix() {
        for (text, prefix) in [("//a/p", "/p/"), ("//a:1,[::1]:2,10.0.0.1/stoker/train/", "/stoker/train/")] {
            assert_eq!(parsed(text).expect(text).prefix, prefix);
        }
        for text in ["", "//", "//a", "//a/", "///p", "//a:0/p", "//a,/p", "//a/p?x", "//-a/p"] {
            let error = parsed(text).err().expect(text);
            assert!(error.hint.contains("etcd://HOST"), "{text}: {error}");
        }
        assert!(parsed("//a:1").err().expect("no prefix").what.contains("no PREFIX"));
        let error = parsed("//root:secret@a/p").err().expect("no passwords");
        assert!(!error.to_string().contains("secret") && error.hint.contains("ETCDCTL_PASSWORD"), "{error}");
    }

    #[test]
    fn what_stands_in_etcd_is_a_member_only_if_all_of_it_can_be() {
        let etcd = parsed("//a/p").expect("an etcd");
        let seat = |key: &str, value: &str| etcd.seat(&Pair { key: BASE64.encode(key), value: BASE64.encode(value) });
        let of = |name: &str, address: &str, weight: &str| {
            format!("{{\"name\":\"{name}\",\"address\":\"{address}\",\"weight\":{weight}}}")
        };
        let fine = seat("/p/n1", &of("n1", "10.0.0.1:7865", "3")).expect("a member");
        assert_eq!(fine, Seat::new("n1", "10.0.0.1:7865", 3));
        for (key, value) in [
            ("/p/n2", of("n1", "a:1", "1")),
            ("/q/n1", of("n1", "a:1", "1")),
            ("/p/n/1", of("n/1", "a:1", "1")),
            ("/p/n1", of("n1", "a", "1")),
            ("/p/n1", of("n1", "-a:1", "1")),
            ("/p/n1", of("n1", "a:0", "1")),
            ("/p/n1", of("n1", "10.0.0.1:0", "1")),
            ("/p/n1", of("n1", "a:1", "1000001")),
            ("/p/n1", of("n1", "a:1", "-1")),
            ("/p/n1", "x".into()),
            ("/p/n1", String::new()),
            ("/p/n1", format!("{}{}", of("n1", "a:1", "1"), " ".repeat(VALUE_BYTES_MAX))),
        ] {
            assert_eq!(seat(key, &value), None, "{key}: {value}");
        }
        let raw = |key: &str, value: &str| etcd.seat(&Pair { key: key.into(), value: value.into() });
        assert_eq!(raw("!", "!"), None);
        assert_eq!(raw(&BASE64.encode([0xff, 0xfe]), ""), None);
    }

    #[test]
    fn what_etcd_is_reached_by_is_what_its_own_tools_are_told() {
        let of = |all: &'static [(&str, &str)]| {
            let environment =
                move |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            Etcd::parse("//a/p", true, &environment)
        };
        for (all, said) in [
            (&[("ETCDCTL_CACERT", "ca.pem")][..], "/"),
            (&[("ETCDCTL_CACERT", "/nowhere/ca.pem")], "PEM"),
            (&[("ETCDCTL_CERT", "/c.pem")], "both"),
            (&[("ETCDCTL_USER", "root")], "ETCDCTL_PASSWORD"),
        ] {
            let error = of(all).err().expect("refused");
            assert!(error.hint.contains(said), "{all:?}: {error}");
        }
        assert!(of(&[("ETCDCTL_USER", "root:secret")]).is_ok());
    }
}
