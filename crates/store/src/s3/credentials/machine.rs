//! What the sources of credentials may use of this machine: environment, files and HTTP.
//!
//! Invariant: no wait without an end, and no answer without a limit.

use super::super::wire::{Timeouts, Wire, causes};
use super::Variables;
use crate::Counters;
use crate::files::Files;
use crate::retry::Chance;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use reqsign_core::{Context, Error, FileRead, HttpSend, Result};
use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Times for those who hand out credentials: they are near, or not there at all, as on a machine without a role.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(1), first_byte: Duration::from_secs(5), idle: Duration::from_secs(5) };

/// Bytes of one read of a connection: answers are small.
const READ_BUFFER: usize = 16 << 10;

/// Bytes of an answer with credentials: a token takes a few thousand.
const ANSWER_MAX: usize = 1 << 20;

/// Where a machine of AWS tells the names of its roles.
const MACHINE_ROLES: &str = "/latest/meta-data/iam/security-credentials/";

/// The role whose credentials a container or a machine handed out last, as far as the answer names it. The library
/// that reads the answers keeps the keys alone.
#[derive(Clone, Default)]
pub struct Role(Arc<Mutex<Option<String>>>);

impl Role {
    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, path: &str, answer: &[u8]) {
        let by_path = path.strip_prefix(MACHINE_ROLES).filter(|role| !role.is_empty());
        if let Some(role) = by_path.or_else(|| role_in(answer)) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(role.to_owned());
        }
    }
}

/// The role that a container's answer names: `"RoleArn": "arn:..."`.
fn role_in(answer: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(answer).ok()?;
    let value = text.split_once("\"RoleArn\"")?.1.trim_start().strip_prefix(':')?.trim_start();
    value.strip_prefix('"')?.split_once('"').map(|(role, _)| role).filter(|role| !role.is_empty())
}

/// What the sources may use of this machine, by these variables, and the role that they come upon.
pub fn context(variables: &Variables, chance: Arc<Chance>) -> (Context, Role) {
    let role = Role::default();
    let (wire, counters) = Default::default();
    let messenger = Messenger { wire, counters, chance, role: role.clone(), variables: variables.clone() };
    let context = super::environment_of(variables).with_file_read(Files::default());
    (context.with_http_send(messenger), role)
}

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>> {
        self.read(path).await.map_err(|error| {
            let what = format!("can't read {path}: {error}");
            let failed =
                if error.kind() == ErrorKind::TimedOut { Error::unexpected(what) } else { Error::config_invalid(what) };
            failed.with_source(error)
        })
    }
}

/// Asks those who hand out credentials, over a client of its own that is made at the first use.
struct Messenger {
    wire: OnceLock<Wire>,
    counters: Arc<Counters>,
    chance: Arc<Chance>,
    role: Role,
    /// By which it is known whose certificates are trusted.
    variables: Variables,
}

impl fmt::Debug for Messenger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Messenger")
    }
}

impl HttpSend for Messenger {
    async fn http_send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>> {
        let wire = match self.wire.get() {
            Some(wire) => wire,
            None => {
                let wire = Wire::open(true, TIMEOUTS, READ_BUFFER, self.chance.clone(), &self.variables)
                    .map_err(|error| Error::unexpected(error.what))?;
                self.wire.get_or_init(|| wire)
            }
        };
        let (host, path) = (request.uri().host().unwrap_or_default().to_owned(), request.uri().path().to_owned());
        let answer = wire.send(request.map(Full::new), &self.counters, &host, &host).await;
        let (head, body) = answer.map_err(|error| Error::unexpected(error.what))?.into_parts();
        let body = tokio::time::timeout(TIMEOUTS.idle, Limited::new(body, ANSWER_MAX).collect()).await;
        let body = body.map_err(|_| Error::unexpected(format!("{host} paused in its answer")))?;
        let body = body.map_err(|error| Error::unexpected(format!("{host} broke off: {}", causes(&*error))))?;
        let body = body.to_bytes();
        if head.status.is_success() {
            self.role.note(&path, &body);
        }
        Ok(http::Response::from_parts(head, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_of_a_container_or_a_machine_is_read_off_the_answer() {
        let role = Role::default();
        role.note(MACHINE_ROLES, b"trainer");
        assert_eq!(role.get(), None, "the list of roles names none that was handed out");
        role.note(&format!("{MACHINE_ROLES}trainer"), b"{}");
        assert_eq!(role.get().as_deref(), Some("trainer"));
        role.note("/v2/credentials/1", b"{\"RoleArn\" : \"arn:aws:iam::1:role/r\", \"AccessKeyId\": \"A\"}");
        assert_eq!(role.get().as_deref(), Some("arn:aws:iam::1:role/r"));
        role.note("/v1/credentials", b"{\"AccessKeyId\": \"A\"}");
        assert_eq!(role.get().as_deref(), Some("arn:aws:iam::1:role/r"));
    }
}
