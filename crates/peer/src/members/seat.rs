//! Which of the members this node is, and the door at which the others knock.
//!
//! Invariant: what is taken is bound, so no two nodes of a machine take one seat.

use super::{PORT, address};
use crate::Seat;
use block::{Error, Result};
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};

/// Names of other members that are looked up to see where they are: each may take seconds that has no answer.
const LOOKED_UP_MAX: usize = 4;

/// What was said of the seat of this node.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// A member's address, or its name; with an interface `:PORT` is enough.
    pub listen: Option<String>,
    /// The network that it is on.
    pub interface: Option<String>,
    /// What it is called, and its part of all stripes, where nobody else tells them.
    pub name: Option<String>,
    pub weight: Option<u32>,
}

/// A seat that was taken.
pub struct Taken {
    pub seat: Seat,
    pub socket: TcpListener,
    /// All that are told of.
    pub seats: Vec<Seat>,
}

impl Claim {
    /// Where it is reached, if that is said, with this port if none is.
    pub(super) fn address(&self, port: u16) -> Result<Option<String>> {
        let port = match (&self.listen, &self.interface) {
            (None, None) => return Ok(None),
            (None, Some(_)) => port,
            (Some(text), interface) => match text.strip_prefix(':').filter(|_| interface.is_some()) {
                Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong(text))?,
                None => return claimed(text).map(Some),
            },
        };
        let addresses = self.interface.as_deref().map(addresses_of).transpose()?.unwrap_or_default();
        Ok(addresses.first().map(|address| SocketAddr::new(*address, port).to_string()))
    }

    /// The door may be opened at any of these only.
    fn addresses(&self) -> Result<Option<Vec<IpAddr>>> {
        self.interface.as_deref().map(addresses_of).transpose()
    }
}

/// Take the one that is claimed, or the only one whose address this machine has.
pub(super) fn among(seats: Vec<Seat>, claim: &Claim) -> Result<Taken> {
    take(mine(&seats, claim)?, seats, claim)
}

fn mine(seats: &[Seat], claim: &Claim) -> Result<Seat> {
    let all = || seats.iter().map(|seat| &*seat.address).collect::<Vec<_>>().join(", ");
    let addresses = claim.addresses()?;
    let is_claimed: Box<dyn Fn(&Seat) -> bool> = match claim.listen.as_deref() {
        Some(text) if addresses.is_some() && text.starts_with(':') => {
            Box::new(move |seat| seat.address.ends_with(text) && is_at(seat, addresses.as_deref()))
        }
        Some(text) => {
            let address = claimed(text)?;
            Box::new(move |seat| seat.address == address || seat.name == text)
        }
        None => Box::new(move |seat| is_at(seat, addresses.as_deref())),
    };
    let mut mine: Vec<&Seat> = seats.iter().filter(|seat| is_claimed(seat)).collect();
    if mine.is_empty() && claim.interface.is_some() && claim.listen.is_none() {
        mine = seats.iter().filter(|seat| is_loopback_by_name(seat)).collect();
    }
    match mine[..] {
        [seat] => Ok(seat.clone()),
        [] => {
            let names = seats.iter().filter(|seat| seat.address.parse::<SocketAddr>().is_err()).take(LOOKED_UP_MAX);
            let lost: Vec<&str> =
                names.filter(|seat| seat.address.to_socket_addrs().is_err()).map(|seat| &*seat.address).collect();
            let lost = match lost[..] {
                [] => String::new(),
                _ => format!(", and these names have no address: {}", lost.join(", ")),
            };
            let error = Error::missing(format!("no member is this node{lost}"), format!("members {}", all()));
            Err(error.hint("give --listen HOST:PORT as one of them has it, or add a line for this machine"))
        }
        _ => {
            let error = Error::invalid("several members are on this machine", format!("members {}", all()));
            Err(error.hint("say which one this node is: --listen HOST:PORT, or --interface NAME"))
        }
    }
}

/// An address as a member has it.
fn claimed(text: &str) -> Result<String> {
    address(text).ok_or_else(|| wrong(text))
}

fn wrong(text: &str) -> Error {
    Error::invalid("this is no address", format!("`{text}`")).hint("write it as HOST:PORT, as a member has it")
}

/// Open the door of a seat.
pub(super) fn take(seat: Seat, seats: Vec<Seat>, claim: &Claim) -> Result<Taken> {
    let among = claim.addresses()?;
    let is_open = |address: &SocketAddr| among.as_ref().is_none_or(|among| among.contains(&address.ip()));
    let bound = seat.address.to_socket_addrs().and_then(|found| {
        let port = seat.address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(PORT);
        let mut found: Vec<_> = found.filter(is_open).collect();
        if found.is_empty() && is_loopback_by_name(&seat) {
            found.extend(among.iter().flatten().map(|address| SocketAddr::new(*address, port)));
        }
        found.sort_by_key(|address| address.ip().is_loopback());
        let listener = TcpListener::bind(&*found)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let socket = bound.map_err(|error| {
        let failed = Error::io("cannot listen for other members", &seat.address, &error);
        failed.hint("name an address of this machine, and a port that no other process has")
    })?;
    let bound = socket.local_addr().map(|address| address.ip());
    if let Ok(bound) = bound
        && bound.is_loopback()
        && are_elsewhere(seats.iter().filter(|other| other.id != seat.id))
    {
        let host = seat.address.rsplit_once(':').map_or(&*seat.address, |(host, _)| host);
        let what = format!("`{host}` is {bound} on this machine, where other members can't reach it");
        let error = Error::invalid(what, &seat.address);
        return Err(error.hint("give --interface NAME, or write the address of this machine into the list of members"));
    }
    Ok(Taken { seat, socket, seats })
}

/// A name that this machine has as loopback: Debian writes its own one so into /etc/hosts. Others know it by another address.
fn is_loopback_by_name(seat: &Seat) -> bool {
    let is_name = seat.address.parse::<SocketAddr>().is_err();
    let mut found = seat.address.to_socket_addrs().into_iter().flatten();
    is_name && found.any(|address| address.ip().is_loopback())
}

/// Whether one of these members is known to be on another machine. Of many names some are looked up.
fn are_elsewhere<'a>(seats: impl Iterator<Item = &'a Seat>) -> bool {
    let known = |seat: &Seat| Some(seat.address.parse::<SocketAddr>().ok()?.ip().is_loopback());
    let (addresses, names): (Vec<&Seat>, Vec<&Seat>) = seats.partition(|seat| known(seat).is_some());
    let leads_away = |seat: &&Seat| {
        let mut found = seat.address.to_socket_addrs().into_iter().flatten();
        found.any(|address| !address.ip().is_loopback())
    };
    addresses.iter().any(|seat| known(seat) == Some(false)) || names.iter().take(LOOKED_UP_MAX).any(leads_away)
}

/// Whether a member is at one of these addresses, or anywhere on this machine: only an address of it can be bound.
fn is_at(seat: &Seat, addresses: Option<&[IpAddr]>) -> bool {
    let mut found = seat.address.to_socket_addrs().into_iter().flatten();
    found.any(|address| match addresses {
        Some(addresses) => addresses.contains(&address.ip()),
        None => TcpListener::bind(SocketAddr::new(address.ip(), 0)).is_ok(),
    })
}

/// Addresses of an interface: first of IPv4, then of IPv6, none that only a neighbour understands.
fn addresses_of(interface: &str) -> Result<Vec<IpAddr>> {
    let failed = |error: std::io::Error| Error::io("cannot list the interfaces", "this machine", &error);
    let all = if_addrs::get_if_addrs().map_err(failed)?;
    let of = |name: &str| {
        let fit = all.iter().filter(|one| one.name == name && !one.is_link_local()).map(if_addrs::Interface::ip);
        let mut fit: Vec<IpAddr> = fit.collect();
        fit.sort_by_key(IpAddr::is_ipv6);
        fit
    };
    let found = of(interface);
    if !found.is_empty() {
        return Ok(found);
    }
    let links = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> = links.map(|link| link.file_name().to_string_lossy().into_owned()).collect();
    names.extend(all.iter().map(|one| one.name.clone()));
    names.sort();
    names.dedup();
    let what = match names.iter().any(|name| name == interface) {
        true => "this interface has no address",
        false => "there is no such interface",
    };
    let shown = names.iter().map(|name| match of(name)[..] {
        [] => format!("{name} (no address)"),
        [first, ..] => format!("{name} ({first})"),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    Err(Error::invalid(what, format!("--interface {interface}")).hint(format!("name one of these: {shown}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(addresses: &[&str]) -> Vec<Seat> {
        addresses.iter().map(|address| Seat::new(*address, *address, 1)).collect()
    }

    fn claim(listen: Option<&str>, interface: Option<&str>) -> Claim {
        Claim { listen: listen.map(Into::into), interface: interface.map(Into::into), ..Claim::default() }
    }

    fn refused(all: &[&str], listen: Option<&str>, interface: Option<&str>) -> Error {
        among(seats(all), &claim(listen, interface)).err().expect("nobody's seat")
    }

    /// A port that nobody has at the moment.
    fn free() -> u16 {
        TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
    }

    #[test]
    fn a_node_knows_its_line_by_its_address() {
        let port = free();
        let here = format!("127.0.0.1:{port}");
        assert_eq!(mine(&seats(&[&here, "192.0.2.1:1"]), &Claim::default()).expect("its own").address, here);
        assert!(refused(&["127.0.0.1:1", "127.0.0.2:1"], None, None).hint.contains("--listen"));
        assert!(refused(&[], None, None).what.contains("no member"));
        assert!(refused(&["127.0.0.1:1"], Some("127.0.0.3:1"), None).what.contains("no member"));
        assert!(refused(&["127.0.0.1:1"], Some(":1"), None).what.contains("no address"));
    }

    #[test]
    fn an_interface_says_which_line_and_which_address_a_node_has() {
        let port = free();
        let (here, other) = (format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}"));
        let taken = among(seats(&[&here, &other]), &claim(None, Some("lo"))).expect("its own");
        assert_eq!((taken.seat.address, taken.socket.local_addr().expect("bound").to_string()), (here.clone(), here));
        drop(taken.socket);
        let text = format!(":{port}");
        let taken = among(seats(&["127.0.0.1:1", &format!("127.0.0.1{text}")]), &claim(Some(&text), Some("lo")));
        assert_eq!(taken.expect("its own").seat.address, format!("127.0.0.1{text}"));
        assert!(refused(&[&other], None, Some("lo")).what.contains("no member"));
        assert_eq!(claim(None, Some("lo")).address(7).expect("an address").as_deref(), Some("127.0.0.1:7"));
        assert_eq!(claim(Some(":8"), Some("lo")).address(7).expect("an address").as_deref(), Some("127.0.0.1:8"));
    }

    #[test]
    fn who_would_listen_where_the_others_can_t_reach_it_is_refused() {
        let port = free();
        let name = format!("localhost:{port}");
        let error = refused(&[&name, "192.0.2.1:1"], None, None);
        assert!(
            error.what.contains("`localhost` is ")
                && error.what.contains("can't reach it")
                && error.hint.contains("--interface"),
            "{error}"
        );
        assert!(among(seats(&[&name, "127.0.0.2:1"]), &claim(Some(&name), None)).is_ok());
        // By its interface a node knows a name that is loopback here.
        assert_eq!(mine(&seats(&[&name, "192.0.2.1:1"]), &claim(None, Some("lo"))).expect("its own").address, name);
    }

    #[test]
    fn an_interface_that_there_is_not_is_refused_with_those_that_there_are() {
        let error = refused(&["127.0.0.1:1"], None, Some("ib77"));
        assert!(error.what.contains("no such interface") && error.hint.contains("lo (127.0.0.1)"), "{error}");
    }
}
