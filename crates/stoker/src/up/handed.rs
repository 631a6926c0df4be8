//! What each host of a pool is handed over: keys by which members know each other, until when it may go on, and, where that
//! is wished, credentials of the store.
//!
//! The authority is made anew each time and lives in the memory of this process alone: once it has ended, nobody can make
//! a member of anybody.
//! Invariant: no part of it is printed, or given to anything but the standard input of `ssh`.

use crate::authority::Authority;
use block::{Error, Result};
use fleet::Host;
use fleet::pool::{self, AUTHORITY, CREDENTIALS, PROFILE, Plan, Secret};
use peer::Seat;
use std::time::Duration;
use store::Lent;
use time::OffsetDateTime;

pub struct Handed {
    authority: Authority,
    lasts: Duration,
    /// Seconds since 1970.
    pub ends: u64,
    pub credentials: Option<Lent>,
}

impl Handed {
    /// For so long from now on.
    pub fn new(lasts: Duration, credentials: Option<Lent>) -> anyhow::Result<Handed> {
        let now = OffsetDateTime::now_utc();
        let ends = u64::try_from(now.unix_timestamp())?.saturating_add(lasts.as_secs());
        Ok(Handed { authority: Authority::new(now)?.0, lasts, ends, credentials })
    }

    /// The certificate of the authority, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority.certificate
    }

    pub fn trust(&self) -> Secret {
        (AUTHORITY, self.authority().into())
    }

    /// The key and the certificate of a host.
    pub fn keys(&self, plan: &Plan, host: &Host) -> anyhow::Result<[Secret; 2]> {
        let address = fleet::host::with_port(host.address(), plan.port);
        let seat = Seat::new(pool::name(host), address, host.weight());
        let identity = self.authority.certify(&seat, self.lasts.try_into()?)?;
        Ok([("node.key", identity.key.into()), ("node.pem", identity.certificate.into())])
    }

    /// As `daemon::Lease` reads it.
    pub fn lease(&self) -> Secret {
        ("lease", format!("ends {}\n", self.ends).into())
    }

    /// A file of credentials, and one that says when they end, as `daemon::Lease` reads it.
    pub fn credentials(&self) -> Result<Vec<Secret>> {
        let Some(Lent { id, secret, token, ends }) = &self.credentials else { return Ok(Vec::new()) };
        let lines = [
            ("aws_access_key_id", Some(id)),
            ("aws_secret_access_key", Some(secret)),
            ("aws_session_token", token.as_ref()),
        ];
        let lines: Vec<_> = lines.iter().filter_map(|(name, value)| Some((name, (*value)?))).collect();
        if lines.iter().any(|(_, value)| value.contains(|letter: char| letter.is_control() || letter.is_whitespace())) {
            let error = Error::invalid("a key of these credentials holds what no key does", "--send-credentials");
            return Err(error.hint("see whether there is a line break or a blank in AWS_ACCESS_KEY_ID or its like"));
        }
        let lines: String = lines.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        let end = ends.map(|end| format!("ends {end}\n")).unwrap_or_default();
        Ok(vec![(CREDENTIALS, format!("[{PROFILE}]\n{lines}").into()), ("credentials.end", end.into())])
    }
}
