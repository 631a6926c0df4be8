//! The name nodes of a cluster, one of which is active. Each is asked by a client of the library's that knows no other.
//!
//! The library fails over by itself, but waits for minutes, has no limit on the time of an answer and ends its task
//! where a server's answer is not what it expects. So each question has a limit here, goes round all name nodes once,
//! and a panic below is a failure of this question; patience is laid over it as over any store.
//!
//! Invariant: no question takes longer than its limit times the name nodes there are.

use super::conf::{Configuration, Server};
use super::refusal;
use super::who::Who;
use block::{Error, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hdfs_native::{Client, ClientBuilder, HdfsError};
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Nothing of Hadoop lies there, so that the library reads no configuration but what it is given.
const NOWHERE: &str = "/dev/null";

/// The name nodes.
pub struct Names {
    servers: Vec<Server>,
    clients: Vec<Mutex<Option<Client>>>,
    /// Which of them answered last.
    active: AtomicUsize,
    conf: Configuration,
    who: Who,
    answers_within: Duration,
}

/// Why one of them gave no answer.
enum Failure {
    Said(HdfsError),
    Silent,
    Panicked,
}

impl Names {
    pub fn new(servers: Vec<Server>, conf: Configuration, who: Who, answers_within: Duration) -> Names {
        let clients = servers.iter().map(|_| Mutex::default()).collect();
        Names { servers, clients, active: AtomicUsize::new(0), conf, who, answers_within }
    }

    /// Ask whichever is active; the others where it is not there, or on standby.
    pub async fn ask<'a, T: Send>(
        &'a self,
        on: &(dyn Display + Sync),
        question: impl Fn(Client) -> BoxFuture<'a, hdfs_native::Result<T>> + Send + Sync,
    ) -> Result<T> {
        let first = self.active.load(Relaxed);
        let mut failed: Option<Error> = None;
        for turn in 0..self.servers.len() {
            let number = (first + turn) % self.servers.len();
            let client = self.client(number).map_err(|error| self.said(&error, number, on))?;
            let failure = match self.guarded(question(client)).await {
                Ok(answer) => {
                    self.active.store(number, Relaxed);
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            let address = &self.servers[number].address;
            let error = match failure {
                Failure::Said(error) if refusal::is_of_one_server(&error) => self.said(&error, number, on),
                Failure::Said(error) => return Err(self.said(&error, number, on)),
                Failure::Silent => {
                    self.forget(number);
                    let seconds = self.answers_within.as_secs_f64();
                    let what = format!("the name node {address} did not answer within {seconds:.1} s");
                    refusal::silent(what, address, on)
                }
                Failure::Panicked => {
                    self.forget(number);
                    let what = format!("the name node {address} gave an answer that can't be understood");
                    refusal::silent(what, address, on)
                }
            };
            // One that stands by says less than one that fails.
            let is_telling =
                |before: &Error| !before.what.ends_with("is on standby") || error.what.ends_with("is on standby");
            failed = Some(failed.filter(is_telling).unwrap_or(error));
        }
        Err(failed.unwrap_or_else(|| Error::invalid("there is no name node to ask", on)))
    }

    /// What the library does, within the limit.
    async fn guarded<T>(&self, asked: BoxFuture<'_, hdfs_native::Result<T>>) -> Result<T, Failure> {
        let asked = AssertUnwindSafe(asked).catch_unwind();
        match tokio::time::timeout(self.answers_within, asked).await {
            Ok(Ok(answer)) => answer.map_err(Failure::Said),
            Ok(Err(_panic)) => Err(Failure::Panicked),
            Err(_) => Err(Failure::Silent),
        }
    }

    fn said(&self, error: &HdfsError, number: usize, on: &(dyn Display + Sync)) -> Error {
        refusal::error(error, &self.servers[number].address, on)
    }

    /// The client of one name node, with its connection.
    fn client(&self, number: usize) -> hdfs_native::Result<Client> {
        let mut client = self.clients[number].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let server = &self.servers[number];
        let mut builder =
            ClientBuilder::new().with_url(&server.url).with_config_dir(NOWHERE).with_config(self.conf.of(server));
        match &self.who {
            Who::User(name) => builder = builder.with_user(name),
            Who::Principal { name, keytab, cache, proxied } => {
                builder = builder.with_kerberos_principal(name);
                if let Some(keytab) = keytab {
                    builder = builder.with_kerberos_keytab(keytab);
                }
                if let Some(cache) = cache {
                    builder = builder.with_kerberos_cache(cache);
                }
                if let Some(proxied) = proxied {
                    builder = builder.with_user(proxied);
                }
            }
        }
        Ok(client.insert(builder.build()?).clone())
    }

    /// Let go of a connection that nothing comes from: the next question opens another.
    fn forget(&self, number: usize) {
        *self.clients[number].lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
