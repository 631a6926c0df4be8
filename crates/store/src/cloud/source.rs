//! Where tokens and keys come from, whichever service they are for.
//!
//! Invariant: a source that was named and fails is an error that names it; one that is only tried because nothing else
//! was named is nobody's failure until it has given something.

use crate::s3::wire::{causes, finds};
use block::{Error, Result};
use object_store::client::HttpError;
use object_store::{CredentialProvider, RetryConfig};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whoever hands out tokens is asked once: patience is laid over the request that needs one.
pub fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// The source that is meant.
pub struct Source<C> {
    provider: Arc<dyn CredentialProvider<Credential = C>>,
    /// As an error names it: `GOOGLE_APPLICATION_CREDENTIALS`.
    pub name: String,
    /// The machine's own identity, which it may not have: what to say and to try then.
    nobody: Option<(&'static str, &'static str)>,
    was_had: AtomicBool,
}

impl<C> Source<C> {
    pub fn new(name: impl Into<String>, provider: Arc<dyn CredentialProvider<Credential = C>>) -> Source<C> {
        Source { provider, name: name.into(), nobody: None, was_had: AtomicBool::new(false) }
    }

    /// Tried because nothing else was named.
    pub fn last_resort(self, what: &'static str, hint: &'static str) -> Source<C> {
        Source { nobody: Some((what, hint)), ..self }
    }

    /// What requests are asked with now; renewed in time by the library.
    pub async fn get(&self, on: &(dyn Display + Sync)) -> Result<Arc<C>> {
        let error = match self.provider.get_credential().await {
            Ok(credential) => {
                self.was_had.store(true, Relaxed);
                return Ok(credential);
            }
            Err(error) => error,
        };
        if let Some((what, hint)) = self.nobody.filter(|_| !self.was_had.load(Relaxed)) {
            tracing::debug!(%error, "there are no credentials");
            return Err(Error::denied(what, on).hint(hint));
        }
        let what = format!("the credentials of {} can't be had: {}", self.name, causes(&error));
        match finds(&error, |_: &HttpError| true) {
            true => Err(Error::unavailable(what, on)),
            false => Err(Error::denied(what, on).hint("renew them, or name others")),
        }
    }
}
