//! A name in DNS whose records are the members: the addresses (A, or AAAA where there are none), or the services (SRV) if it
//! is the name of some, `_service._proto.name`. Looked up again as often as the records allow.
//!
//! A member of addresses is called by address and port. A member of services is called by the name and the port of its
//! record, which stay while addresses come and go; whoever connects looks the name up. Priorities and weights of services are
//! for other uses: members are of equal weight here.
//!
//! Invariant: an answer that fails, or that names nobody, is an error, so that nobody leaves a cluster by it.

use super::seat::{self, Claim, Taken};
use super::{PORT, Teller, is_name, listed};
use crate::Seat;
use block::{Error, Kind, Result};
use domain::base::iana::{Class, Rcode};
use domain::base::{Name, Rtype};
use domain::rdata::AllRecordData;
use domain::resolv::StubResolver;
use domain::resolv::stub::conf::{ResolvConf, ServerConf, Transport};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Between two looks, whatever the records allow; and after one that failed.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_secs(2);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(30);

/// A look takes no longer, over all names that are tried.
const LOOK_MAX: Duration = Duration::from_secs(15);

/// How long a node that starts waits until its own record is there: who starts hosts tells DNS of them at the same time.
const APPEARS_WITHIN: Duration = Duration::from_secs(10);

/// Where this system says whom to ask, and what of it counts here.
const SYSTEM: &str = "/etc/resolv.conf";
const SYSTEM_WORDS: [&str; 4] = ["nameserver", "search", "domain", "options"];

/// Names that are tried for one that is typed short.
const NAMES_MAX: usize = 16;

/// A name whose records are the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    name: String,
    /// Of members that are addresses; services bring theirs.
    port: u16,
    /// Who is asked instead of those that the system asks.
    server: Option<SocketAddr>,
}

/// What a record says.
enum Found {
    Address(IpAddr),
    Service(String, u16),
}

impl Dns {
    /// `NAME[:PORT]`, `//NAME[:PORT]` or `//[SERVER[:PORT]]/NAME[:PORT]`.
    pub(super) fn parse(text: &str) -> Option<Dns> {
        let (server, name) = match text.strip_prefix("//") {
            Some(rest) => rest.split_once('/').unwrap_or(("", rest)),
            None => ("", text),
        };
        let with_port = || server.parse().ok().or_else(|| Some(SocketAddr::new(server.parse().ok()?, 53)));
        let server = if server.is_empty() { None } else { Some(with_port()?) };
        let (name, port) = match name.split_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok().filter(|port| *port > 0)?)),
            None => (name, None),
        };
        let dns = Dns { name: name.to_ascii_lowercase(), port: port.unwrap_or(PORT), server };
        let is_fit = is_name(name) && name.parse::<IpAddr>().is_err() && dns.name.parse::<Name<Vec<u8>>>().is_ok();
        // A port beside services would be meant for something, and change nothing.
        (is_fit && !(dns.has_services() && port.is_some())).then_some(dns)
    }

    fn has_services(&self) -> bool {
        self.name.starts_with('_')
    }

    pub(super) async fn follow(&self, teller: &Teller) {
        let mut pause = LOOK_AT_MOST_EVERY;
        loop {
            tokio::time::sleep(pause).await;
            pause = match self.read().await {
                Ok((seats, good_for)) => {
                    teller.tell(seats);
                    good_for.clamp(LOOK_AT_MOST_EVERY, LOOK_AT_LEAST_EVERY)
                }
                Err(error) => {
                    teller.fail(&error);
                    LOOK_AT_MOST_EVERY
                }
            };
        }
    }

    /// The member that this node is, by its record, for which a node waits a little; or by what was said of it alone.
    pub(super) async fn take_seat(&self, claim: &Claim) -> Result<Taken> {
        let mut looks_left = APPEARS_WITHIN.as_secs() / LOOK_AT_MOST_EVERY.as_secs();
        loop {
            let (mut seats, unnamed) = match self.read().await {
                Err(error) if error.kind == Kind::Missing => (Vec::new(), Some(error)),
                read => (read?.0, None),
            };
            let error = match seat::among(seats.clone(), claim) {
                Err(error) if error.kind == Kind::Missing => unnamed.unwrap_or(error),
                taken => return taken,
            };
            if let Some(me) = self.said(claim)? {
                tracing::info!("{} does not name this node yet, which is {}", self.name, me.name);
                seats.push(me.clone());
                return seat::take(me, seats, claim);
            }
            if looks_left == 0 {
                return Err(error.hint(
                    "let DNS name nodes before they are ready (publishNotReadyAddresses), or give --listen HOST:PORT",
                ));
            }
            looks_left -= 1;
            tokio::time::sleep(LOOK_AT_MOST_EVERY).await;
        }
    }

    /// The seat of this node, where what was said is enough to know what its record will be.
    fn said(&self, claim: &Claim) -> Result<Option<Seat>> {
        let Some(address) = claim.address(self.port)? else { return Ok(None) };
        if address.parse::<SocketAddr>().is_ok() != self.has_services() {
            return Ok(Some(Seat::new(address.clone(), address, 1)));
        }
        if claim.listen.is_none() {
            return Ok(None);
        }
        let error = Error::invalid("no member can be called that", format!("--listen {address}"));
        Err(error.hint(match self.has_services() {
            true => "name the target and the port of this node's SRV record",
            false => "name an IP address and the port, as the records of this node have it",
        }))
    }

    /// The members, and how long that holds.
    pub(super) async fn read(&self) -> Result<(Vec<Seat>, Duration)> {
        let looked = tokio::time::timeout(LOOK_MAX, self.look()).await;
        looked.unwrap_or_else(|_| Err(self.failed("nobody answered".into())))
    }

    async fn look(&self) -> Result<(Vec<Seat>, Duration)> {
        let conf = self.conf();
        let names = names(&self.name, &conf);
        let resolver = StubResolver::from_conf(conf);
        let kinds: &[Rtype] = if self.has_services() { &[Rtype::SRV] } else { &[Rtype::A, Rtype::AAAA] };
        for name in &names {
            for kind in kinds {
                let (found, good_for) = self.ask(&resolver, name, *kind).await?;
                if !found.is_empty() {
                    let seats = found.into_iter().map(|found| self.seat(found)).collect::<Result<_>>()?;
                    return Ok((listed(seats, name)?, good_for));
                }
            }
        }
        let error = Error::missing("DNS names no members", names.join(", "));
        Err(error.hint("name what has the addresses (A, AAAA) or the services (SRV) of all nodes as its records"))
    }

    /// Records of a kind that a name has, and how long they hold.
    async fn ask(&self, resolver: &StubResolver, name: &str, kind: Rtype) -> Result<(Vec<Found>, Duration)> {
        let failed = |error: &dyn std::fmt::Display| self.failed(format!("{kind} records of {name}: {error}"));
        let asked: Name<Vec<u8>> = name.parse().map_err(|error| failed(&error))?;
        let answer = resolver.query((asked, kind, Class::IN)).await.map_err(|error| failed(&error))?;
        match answer.header().rcode() {
            Rcode::NOERROR if answer.is_final() => {}
            Rcode::NXDOMAIN => return Ok((Vec::new(), Duration::ZERO)),
            code => return Err(failed(&code)),
        }
        let (mut found, mut good_for) = (Vec::new(), LOOK_AT_LEAST_EVERY);
        for record in answer.answer().map_err(|error| failed(&error))?.into_records::<AllRecordData<_, _>>() {
            let record = record.map_err(|error| failed(&error))?;
            good_for = good_for.min(record.ttl().into_duration());
            match record.data() {
                AllRecordData::A(data) if kind == Rtype::A => found.push(Found::Address(data.addr().into())),
                AllRecordData::Aaaa(data) if kind == Rtype::AAAA => found.push(Found::Address(data.addr().into())),
                // One that is nowhere says that there is no service.
                AllRecordData::Srv(data) if kind == Rtype::SRV && !data.target().is_root() => {
                    found.push(Found::Service(data.target().to_string().to_ascii_lowercase(), data.port()));
                }
                _ => {}
            }
        }
        Ok((found, good_for))
    }

    fn seat(&self, found: Found) -> Result<Seat> {
        let name = match found {
            Found::Address(address) => SocketAddr::new(address, self.port).to_string(),
            Found::Service(target, port) if port > 0 && is_name(&target) && !target.starts_with('-') => {
                format!("{target}:{port}")
            }
            Found::Service(target, port) => {
                return Err(self.failed(format!("a record names {target:?} and port {port}, which nobody can have")));
            }
        };
        Ok(Seat::new(name.clone(), name, 1))
    }

    /// Whom to ask, and how. What the system's file says besides is nothing to us.
    fn conf(&self) -> ResolvConf {
        let mut conf = ResolvConf::new();
        match self.server {
            Some(server) => conf.servers.push(ServerConf::new(server, Transport::UdpTcp)),
            None => {
                let text = std::fs::read_to_string(SYSTEM).unwrap_or_default();
                let is_known =
                    |line: &&str| line.split_whitespace().next().is_some_and(|word| SYSTEM_WORDS.contains(&word));
                for line in text.lines().filter(is_known) {
                    if conf.parse(&mut line.as_bytes()).is_err() {
                        tracing::debug!("{SYSTEM} has a line that is not understood: {line}");
                    }
                }
            }
        }
        conf.finalize();
        conf
    }

    fn failed(&self, what: String) -> Error {
        let on = self.server.map_or_else(|| self.name.clone(), |server| format!("{} at {server}", self.name));
        Error::unavailable(format!("looking up the members failed: {what}"), on)
            .hint("see whether DNS answers: dig NAME")
    }
}

/// What a name that was typed may stand for, most likely first: with a final dot, or asked of a certain server, for itself.
fn names(typed: &str, conf: &ResolvConf) -> Vec<String> {
    let bare = typed.trim_end_matches('.').to_owned();
    if typed.ends_with('.') {
        return vec![bare];
    }
    let is_likely_whole = bare.matches('.').count() >= conf.options.ndots;
    let below = conf.options.search.as_slice().iter().map(|suffix| suffix.to_string());
    let longer = below.filter(|suffix| !suffix.trim_matches('.').is_empty()).map(|suffix| format!("{bare}.{suffix}"));
    let mut all: Vec<String> = longer.filter(|name| name.parse::<Name<Vec<u8>>>().is_ok()).take(NAMES_MAX).collect();
    all.insert(if is_likely_whole { 0 } else { all.len() }, bare);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_with_its_port_and_whom_to_ask() {
        let of = |name: &str, port, server: Option<&str>| {
            Some(Dns { name: name.into(), port, server: server.map(|server| server.parse().expect("an address")) })
        };
        for (text, expected) in [
            ("stoker.default.svc", of("stoker.default.svc", PORT, None)),
            ("//stoker:9000", of("stoker", 9000, None)),
            ("_stoker._tcp.Pool.example.", of("_stoker._tcp.pool.example.", PORT, None)),
            ("///stoker", of("stoker", PORT, None)),
            ("//127.0.0.1/stoker:9", of("stoker", 9, Some("127.0.0.1:53"))),
            ("//[::1]:5353/stoker", of("stoker", PORT, Some("[::1]:5353"))),
            ("//server/stoker", None),
            ("_stoker._tcp.pool:9000", None),
            ("stoker:0", None),
            ("stoker:x", None),
            ("a b", None),
            ("a..b", None),
            ("10.0.0.1", None),
            ("", None),
            ("//", None),
        ] {
            assert_eq!(Dns::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_short_name_is_looked_for_where_the_system_says() {
        let mut conf = ResolvConf::new();
        conf.parse(&mut "search a.test b.test\noptions ndots:2\n".as_bytes()).expect("known words");
        conf.finalize();
        assert_eq!(names("x", &conf), ["x.a.test", "x.b.test", "x"]);
        assert_eq!(names("x.y.z", &conf), ["x.y.z", "x.y.z.a.test", "x.y.z.b.test"]);
        assert_eq!(names("x.", &conf), ["x"]);
        let mut none = ResolvConf::new();
        none.finalize();
        assert_eq!(names("x", &none), ["x"]);
    }
}
