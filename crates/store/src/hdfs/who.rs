//! Who is asking: a user by name, or a principal of Kerberos by its ticket or its keytab.
//!
//! The principal is read out of these files here, since the library only asks the node's own environment.
//! Invariant: nothing of a key or a ticket is read, and no length that a file tells is believed beyond its end.

use super::Settings;
use super::conf::Configuration;
use block::{Error, Result};
use std::fmt;
use std::path::Path;

/// First byte of both kinds of files.
const FORMAT: u8 = 5;

/// Bytes of a file that are read: a principal stands at the beginning.
const HEAD_MAX: usize = 64 << 10;

/// Steps of a principal. Those of people have one, those of services two.
const STEPS_MAX: u32 = 8;

/// Who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Somebody who says so.
    User(String),
    /// Somebody who proves it, in the name of another if one is named.
    Principal { name: String, keytab: Option<String>, cache: Option<String>, proxied: Option<String> },
}

impl fmt::Display for Who {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::User(name) => write!(out, "user {name}"),
            Who::Principal { name, proxied: None, .. } => write!(out, "{name}"),
            Who::Principal { name, proxied: Some(other), .. } => write!(out, "{other} by {name}"),
        }
    }
}

impl Who {
    /// Whom the variables name; without Kerberos the user of this process, unless HADOOP_USER_NAME is another.
    pub fn of(settings: &Settings, conf: &Configuration, on: &str) -> Result<Who> {
        if settings.variable("HADOOP_TOKEN_FILE_LOCATION").is_some() {
            let error = Error::invalid("delegation tokens are not handed to a node yet", on);
            return Err(error.hint("unset HADOOP_TOKEN_FILE_LOCATION, and use a ticket (kinit) or KRB5_CLIENT_KTNAME"));
        }
        if !conf.is_secure() {
            let named = settings.variable("HADOOP_USER_NAME").map(str::to_owned);
            let user = named.or_else(|| whoami::username().ok()).filter(|name| !name.is_empty());
            return user.map(Who::User).ok_or_else(|| {
                Error::invalid("this machine knows no name for the user who asks", on).hint("set HADOOP_USER_NAME")
            });
        }
        let proxied = settings.variable("HADOOP_PROXY_USER").map(str::to_owned);
        if let Some(named) = settings.variable("KRB5_CLIENT_KTNAME") {
            let path = named.strip_prefix("FILE:").unwrap_or(named);
            let name = of_keytab(&head(path, "the keytab")?).ok_or_else(|| unreadable("keytab", path))?;
            return Ok(Who::Principal { name, keytab: Some(named.into()), cache: None, proxied });
        }
        let usual = format!("FILE:/tmp/krb5cc_{}", rustix::process::getuid().as_raw());
        let named = settings.variable("KRB5CCNAME").unwrap_or(&usual);
        let path = named.strip_prefix("FILE:").unwrap_or(named);
        if path.contains(':') && !path.starts_with('/') {
            let error = Error::invalid("tickets that lie in no file are not found yet", named);
            return Err(
                error.hint("kinit -c FILE:/path with KRB5CCNAME=FILE:/path, or name a keytab by KRB5_CLIENT_KTNAME")
            );
        }
        let name = of_cache(&head(path, "the ticket")?).ok_or_else(|| unreadable("file of tickets", path))?;
        Ok(Who::Principal { name, keytab: None, cache: Some(format!("FILE:{path}")), proxied })
    }
}

/// The beginning of a file of credentials.
fn head(path: &str, what: &str) -> Result<Vec<u8>> {
    use std::io::Read;
    let read = || {
        let mut head = Vec::new();
        std::fs::File::open(Path::new(path))?.take(HEAD_MAX as u64).read_to_end(&mut head)?;
        Ok::<_, std::io::Error>(head)
    };
    read().map_err(|error| {
        let error = Error::denied(format!("{what} of Kerberos can't be read: {error}"), path);
        error.hint("get a ticket by kinit, or name a keytab by KRB5_CLIENT_KTNAME")
    })
}

fn unreadable(what: &str, path: &str) -> Error {
    let error = Error::denied(format!("this is no {what} of Kerberos that is understood"), path);
    error.hint("see whether klist shows it")
}

/// Bytes of a file, from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        (!text.is_empty() && !text.contains(|letter: char| letter.is_control())).then(|| text.to_owned())
    }
}

/// Whose tickets these are: MIT's format 4 of 2005, which all tools write.
fn of_cache(head: &[u8]) -> Option<String> {
    let mut bytes = Bytes(head);
    if bytes.take(2)? != [FORMAT, 4] {
        return None;
    }
    let length = usize::from(bytes.u16()?);
    bytes.take(length)?;
    let (_kind, steps) = (bytes.u32()?, bytes.u32()?);
    let length = bytes.u32()? as usize;
    let realm = bytes.text(length)?;
    principal(steps, &realm, || {
        let length = bytes.u32()? as usize;
        bytes.text(length)
    })
}

/// Whose key is the first of a keytab: format 2, which all tools write.
fn of_keytab(head: &[u8]) -> Option<String> {
    let mut bytes = Bytes(head);
    if bytes.take(2)? != [FORMAT, 2] {
        return None;
    }
    loop {
        let length = bytes.u32()?.cast_signed();
        if length > 0 {
            break;
        }
        // The room of a key that was removed.
        bytes.take(usize::try_from(length.unsigned_abs()).ok().filter(|length| *length > 0)?)?;
    }
    let steps = u32::from(bytes.u16()?);
    let length = usize::from(bytes.u16()?);
    let realm = bytes.text(length)?;
    principal(steps, &realm, || {
        let length = usize::from(bytes.u16()?);
        bytes.text(length)
    })
}

fn principal(steps: u32, realm: &str, mut step: impl FnMut() -> Option<String>) -> Option<String> {
    if !(1..=STEPS_MAX).contains(&steps) {
        return None;
    }
    let steps: Option<Vec<String>> = (0..steps).map(|_| step()).collect();
    Some(format!("{}@{realm}", steps?.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CACHE: &[u8] =
        b"\x05\x04\x00\x0c\x00\x01\x00\x08\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\
        \x00\x00\x00\x07EXAMPLE\x00\x00\x00\x04nana\x00\x00\x00\x04hostrest";
    const KEYTAB: &[u8] = b"\x05\x02\xff\xff\xff\xfego\x00\x00\x00\x20\x00\x01\x00\x07EXAMPLE\x00\x04nanarest";

    #[test]
    fn a_principal_is_read_out_of_tickets_and_keytabs() {
        assert_eq!(of_cache(CACHE).as_deref(), Some("nana/host@EXAMPLE"));
        assert_eq!(of_keytab(KEYTAB).as_deref(), Some("nana@EXAMPLE"));
        for cut in 0..CACHE.len() - 4 {
            assert_eq!(of_cache(&CACHE[..cut]), None, "{cut}");
        }
        for cut in 0..KEYTAB.len() - 4 {
            assert_eq!(of_keytab(&KEYTAB[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn whoever_asks_hdfs_is_a_user_or_a_principal() {
        let of = |pairs: &[(&str, &str)]| {
            let variables = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Who::of(&Settings { variables, ..Settings::default() }, &Configuration::default(), "hdfs://nn")
        };
        assert_eq!(of(&[("HADOOP_USER_NAME", "nana")]).expect("somebody").to_string(), "user nana");
        assert_ne!(of(&[]).expect("somebody").to_string(), "user ");
        let error = of(&[("HADOOP_TOKEN_FILE_LOCATION", "/secret")]).expect_err("a token");
        assert!(error.to_string().contains("unset") && !error.to_string().contains("/secret"), "{error}");
    }

    proptest! {
        #[test]
        fn no_file_of_credentials_is_read_beyond_its_end(bytes: Vec<u8>, kind in 0..2usize) {
            match kind {
                0 => of_cache(&[&[FORMAT, 4], &bytes[..]].concat()),
                _ => of_keytab(&[&[FORMAT, 2], &bytes[..]].concat()),
            };
        }
    }
}
