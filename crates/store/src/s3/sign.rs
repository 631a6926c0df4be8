//! Signatures and the credentials that they are made with, kept until shortly before they run out.
//!
//! Invariant: a secret is held here and by the library that signs; it is in no error and no log.

use super::Settings;
use super::credentials::machine::{self, Role};
use super::credentials::{self, Credentials, Found};
use super::wire::causes;
use crate::retry::Chance;
use block::{Error, Result};
use http::request::Parts;
use reqsign_aws_v4::{Credential, RequestSigner};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, ErrorKind, SignRequest, SigningCredential};
use std::fmt::Display;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// How long before they run out credentials are renewed. AWS hands out new ones from five minutes before.
const RENEW_BEFORE: Duration = Duration::from_secs(300);

/// How long credentials must still be good for to sign with: the way to the server, and clocks that differ.
const GOOD_FOR: Duration = Duration::from_secs(15);

/// What is refused without a word and was asked for in this time is refused for another reason than its age.
const YOUNG: Duration = Duration::from_secs(30);

/// The service in the scope of a signature.
const SERVICE: &str = "s3";

/// How long whoever hands out credentials is left alone after it failed, while there are some that are good.
const PAUSE: Duration = Duration::from_secs(5);

/// Signs requests. Without credentials (anonymous) it leaves them as they are.
pub struct Signer(Arc<Desk>);

/// Where the credentials of a signer lie.
pub struct Desk {
    credentials: Credentials,
    region: String,
    context: Context,
    role: Role,
    /// The source that is meant, once it was looked for: nobody becomes somebody else on the way.
    found: OnceCell<Option<Found>>,
    /// What requests are signed with, and since when.
    current: RwLock<Option<(Arc<Credential>, Instant)>>,
    /// Held while credentials are fetched, so that one fetches for all; when that failed last.
    renewing: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

impl Signer {
    pub fn new(settings: &Settings, region: &str, chance: Arc<Chance>) -> Signer {
        let (context, role) = machine::context(&settings.variables, chance);
        Signer::on(context, role, &settings.credentials, region)
    }

    /// On a machine that may be made up.
    pub(super) fn on(context: Context, role: Role, credentials: &Credentials, region: &str) -> Signer {
        let (credentials, region) = (credentials.clone(), region.to_owned());
        let (found, current, renewing) = Default::default();
        Signer(Arc::new(Desk { credentials, region, context, role, found, current, renewing }))
    }

    /// The principal that requests are signed for, in words that hold no secret and outlive short-lived keys where
    /// their role is known.
    pub async fn who(&self, on: &(dyn Display + Sync)) -> Result<String> {
        let Some(found) = self.found(on).await? else { return Ok("anonymous".into()) };
        match (self.credential(found, on).await, &found.who) {
            (Ok(_), Some(who)) => Ok(who.clone()),
            (Ok(credential), None) => Ok(match self.role.get() {
                Some(role) => format!("role {role}"),
                None => format!("key {}", credential.access_key_id),
            }),
            // Who hands out credentials may be away; what is kept can be read meanwhile.
            (Err(error), Some(who)) if error.passes() => {
                tracing::warn!("{error}");
                Ok(who.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Where credentials would be had from, by name; none where nothing is signed. Nobody is asked for any.
    pub async fn source(&self, on: &(dyn Display + Sync)) -> Result<Option<String>> {
        Ok(self.found(on).await?.map(|found| found.name.clone()))
    }

    async fn found(&self, on: &(dyn Display + Sync)) -> Result<Option<&Found>> {
        let find = || credentials::find(&self.credentials, &self.region, &self.context);
        let found = self.found.get_or_try_init(find).await.map_err(|error| {
            Error::denied(causes(&error), on)
                .hint("check the variables that begin with AWS_, --profile and the files of profiles")
        })?;
        Ok(found.as_ref())
    }

    /// What it signs with at the moment; none if nothing is signed.
    pub async fn lend(&self, on: &(dyn Display + Sync)) -> Result<Option<Arc<Credential>>> {
        let Some(found) = self.found(on).await? else { return Ok(None) };
        self.credential(found, on).await.map(Some)
    }

    /// Add a signature to a request, over all of its headers. What it was made with comes back.
    pub async fn sign(
        &self,
        parts: &mut Parts,
        region: &str,
        on: &(dyn Display + Sync),
    ) -> Result<Option<Arc<Credential>>> {
        let Some(found) = self.found(on).await? else { return Ok(None) };
        let credential = self.credential(found, on).await?;
        let signer = RequestSigner::new(SERVICE, region).with_standard_session_token();
        let signed = signer.sign_request(&self.context, parts, Some(&credential), None).await;
        signed.map_err(|error| Error::denied(format!("the request can't be signed: {error}"), on))?;
        Ok(Some(credential))
    }

    /// Have credentials that a server no longer takes asked for anew, unless that was done since. False if that leads
    /// nowhere. `is_told`: the server said that they ran out, rather than nothing.
    pub fn forget(&self, used: &Arc<Credential>, is_told: bool) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let Some((_, since)) = current.as_ref().filter(|(current, _)| Arc::ptr_eq(current, used)) else { return true };
        let has_token = used.session_token.is_some();
        let may_have_ended = has_token && since.elapsed() >= YOUNG;
        if !(is_told || may_have_ended) {
            return false;
        }
        *current = None;
        has_token || used.expires_in.is_some()
    }

    async fn credential(&self, source: &Found, on: &(dyn Display + Sync)) -> Result<Arc<Credential>> {
        let now = Timestamp::now();
        if let Some(current) = self.current() {
            if current.is_valid_at(now + RENEW_BEFORE) {
                return Ok(current);
            }
            if current.is_valid_at(now + GOOD_FOR) {
                self.renew_meanwhile(on.to_string());
                return Ok(current);
            }
        }
        let mut renewing = self.renewing.lock().await;
        if let Some(renewed) = self.current().filter(|current| current.is_valid_at(Timestamp::now() + GOOD_FOR)) {
            return Ok(renewed);
        }
        *renewing = None;
        self.renew(source, on).await
    }
}

impl Deref for Signer {
    type Target = Arc<Desk>;

    fn deref(&self) -> &Arc<Desk> {
        &self.0
    }
}

impl Desk {
    /// Renew what is still good, while requests go on with it: who hands out credentials may take longer than any of them waits.
    fn renew_meanwhile(self: &Arc<Desk>, on: String) {
        let Ok(mut failed) = self.renewing.clone().try_lock_owned() else { return };
        if failed.is_some_and(|when| when.elapsed() < PAUSE) {
            return;
        }
        let desk = self.clone();
        tokio::spawn(async move {
            let Some(Some(source)) = desk.found.get() else { return };
            *failed = desk.renew(source, &on).await.err().map(|error| {
                tracing::warn!(%error, "credentials can't be renewed yet");
                Instant::now()
            });
        });
    }

    async fn renew(&self, from: &Found, on: &(dyn Display + Sync)) -> Result<Arc<Credential>> {
        let found = match from.source.provide_credential_dyn(&self.context).await {
            Ok(Some(found)) => Arc::new(found),
            Err(error) if !from.is_last_resort || self.role.get().is_some() => return Err(failed(from, &error, on)),
            Ok(None) if !from.is_last_resort => {
                return Err(Error::denied(format!("{} has no credentials", from.name), on));
            }
            _ => return Err(nobody(on)),
        };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some((found.clone(), Instant::now()));
        Ok(found)
    }

    fn current(&self) -> Option<Arc<Credential>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(current, _)| current.clone())
    }
}

fn nobody(on: &(dyn Display + Sync)) -> Error {
    Error::denied("there are no credentials in the environment, the profile or this machine's role", on)
        .hint("set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or pass --anonymous for a public bucket")
}

fn failed(from: &Found, error: &reqsign_core::Error, on: &(dyn Display + Sync)) -> Error {
    let what = format!("the credentials of {} can't be had: {}", from.name, causes(error));
    match error.kind() {
        ErrorKind::RateLimited | ErrorKind::Unexpected => Error::unavailable(what, on),
        _ => Error::denied(what, on),
    }
}
