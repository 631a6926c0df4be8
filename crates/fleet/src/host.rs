//! One machine, as `ssh` and the other machines reach it.
//!
//! Invariant: each name in a `Host` consists of letters, digits and a few signs, and begins with no hyphen, so that it is
//! neither an option of `ssh` nor means anything to a shell.

use std::net::{IpAddr, Ipv6Addr};

/// Letters of a host name, as DNS has it.
const NAME_MAX: usize = 255;

/// Letters of a user name. Linux has 32; names of a domain are longer.
const USER_MAX: usize = 64;

/// The share of a member against others, at most: it is a small number by which a share is multiplied.
pub const WEIGHT_MAX: u32 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    user: Option<String>,
    port: Option<u16>,
    address: Option<String>,
    weight: u32,
}

impl Host {
    /// A host by what `ssh` is given: a name, an address, either behind `user@`. The error says what is wrong with it.
    pub fn named(text: &str) -> Result<Host, String> {
        let (user, name) = match text.split_once('@') {
            Some((user, name)) => (Some(a_user(user)?), name),
            None => (None, text),
        };
        Ok(Host { name: a_name(name)?, user, port: None, address: None, weight: 1 })
    }

    /// Understand an option of ours; `false` if it is none.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "user" => {
                let user = a_user(value)?;
                if self.user.as_ref().is_some_and(|known| *known != user) {
                    return Err(format!("two users are named, and one of them is `{user}`"));
                }
                self.user = Some(user);
            }
            "port" => {
                let port = value.parse().ok().filter(|port| *port > 0);
                self.port = Some(port.ok_or_else(|| format!("`{value}` is no port: write 1 to 65535"))?);
            }
            "address" => self.address = Some(a_name(value)?),
            "weight" => {
                let weight = value.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
                self.weight = weight.ok_or_else(|| format!("`{value}` is no weight: write 1 to {WEIGHT_MAX}"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What `ssh` is given.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The port of its `sshd`, if not what the configuration of `ssh` says.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Where other machines reach it.
    pub fn address(&self) -> &str {
        self.address.as_deref().unwrap_or(&self.name)
    }

    /// How much it takes upon itself, next to others.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How it is called in results, and the name of its folder: no two hosts of a roster have the same.
    pub fn label(&self) -> String {
        match self.port {
            Some(port) if self.name.contains(':') => format!("[{}]:{port}", self.name),
            Some(port) => format!("{}:{port}", self.name),
            None => self.name.clone(),
        }
    }
}

/// A name or an address; IPv6 may stand in brackets, and have a zone.
fn a_name(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let advice = "write a host name, an IPv4 address, or an IPv6 address such as fe80::1%eth0";
    if name.len() > NAME_MAX {
        return Err(format!("a name of {} letters is too long for a host: {advice}", name.len()));
    }
    let is_word = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_".contains(letter));
    let (address, zone) = name.split_once('%').map_or((name, None), |(address, zone)| (address, Some(zone)));
    let is_address = address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(|zone| !zone.is_empty() && is_word(zone));
    let is_name =
        is_word(name) && !name.starts_with(['-', '.']) && name.contains(|letter: char| letter.is_alphanumeric());
    if is_address || is_name && name == text {
        Ok(name.to_owned())
    } else {
        Err(format!("`{}` is no host: {advice}", shown(text)))
    }
}

fn a_user(text: &str) -> Result<String, String> {
    let is_sound = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
    if is_sound && !text.is_empty() && text.len() <= USER_MAX && !text.starts_with('-') {
        return Ok(text.to_owned());
    }
    Err(format!("`{}` is no user: write letters, digits, `.`, `_` and `-`", shown(text)))
}

/// A word that was refused, short and without what would steer a terminal.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// A host with a port, as members of a pool write it: IPv6 in brackets.
pub fn with_port(address: &str, port: u16) -> String {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => format!("{address}:{port}"),
        _ if address.contains(':') => format!("[{address}]:{port}"),
        _ => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_hosts_and_nothing_else_is() {
        for name in ["a", "node-01.cluster_2", "10.0.0.7", "::1", "fe80::1%eth0", "-".repeat(0).as_str(), "9"] {
            assert_eq!(Host::named(name).is_ok(), !name.is_empty(), "{name}");
        }
        assert_eq!(Host::named("[fe80::1%eth0]").expect("a host").name(), "fe80::1%eth0");
        assert_eq!(Host::named("me@a").map(|host| (host.user, host.name)), Ok((Some("me".into()), "a".into())));
        for name in [
            "-oProxyCommand=x",
            "-a",
            "a b",
            "a;b",
            "$(a)",
            "`a`",
            "a'",
            "a\"",
            "a/b",
            "a\\b",
            "..",
            ".",
            "_",
            "-x@a",
            "a@-x",
            "@a",
            "a@",
            "a@b@c",
            "a\n",
            "a%b",
            "a:b",
            "fe80::1%",
            "fe80::1%-;",
            "[a]",
            "[",
            "é",
        ] {
            assert!(Host::named(name).is_err(), "{name}");
        }
        assert!(Host::named(&"a".repeat(256)).is_err());
    }

    #[test]
    fn options_are_checked() {
        let mut host = Host::named("a").expect("a host");
        for (key, value) in [("user", "me"), ("port", "22"), ("address", "10.0.0.1"), ("weight", "3")] {
            assert_eq!(host.set(key, value), Ok(true));
        }
        assert_eq!((host.label().as_str(), host.address(), host.weight()), ("a:22", "10.0.0.1", 3));
        assert_eq!(host.set("slots", "3"), Ok(false));
        for (key, value) in [
            ("user", "-l"),
            ("user", "other"),
            ("port", "0"),
            ("port", "65536"),
            ("address", "-x"),
            ("address", "a b"),
            ("weight", "0"),
            ("weight", "x"),
        ] {
            assert!(host.set(key, value).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn a_port_stands_behind_an_address_that_can_be_told_from_it() {
        assert_eq!(with_port("10.0.0.1", 7), "10.0.0.1:7");
        assert_eq!(with_port("::1", 7), "[::1]:7");
        assert_eq!(with_port("a", 7), "a:7");
    }
}
