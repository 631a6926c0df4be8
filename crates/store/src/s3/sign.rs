//! Signatures and the credentials that they are made with, kept until shortly before they run out.
//!
//! Invariant: a secret is held here and by the library that signs; it is in no error and no log.

use super::Settings;
use super::credentials::machine::{self, Role};
use super::credentials::{self, Credentials, Found};
use super::wire::discreet;
use crate::renewed::{Giver, Renewed};
use crate::retry::Chance;
use block::{Error, Result};
use futures_util::future::BoxFuture;
use http::request::Parts;
use reqsign_aws_v4::{Credential, RequestSigner};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, ErrorKind, SignRequest, SigningCredential};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// How long before they run out credentials are renewed. AWS hands out new ones from five minutes before.
const RENEW_BEFORE: Duration = Duration::from_secs(300);

/// How long credentials must still be good for to sign with: the way to the server, and clocks that differ.
const GOOD_FOR: Duration = Duration::from_secs(15);

/// What is refused without a word and was asked for in this time is refused for another reason than its age.
const YOUNG: Duration = Duration::from_secs(30);

/// The service in the scope of a signature.
const SERVICE: &str = "s3";

/// Signs requests. Without credentials (anonymous) it leaves them as they are.
pub struct Signer {
    context: Context,
    role: Role,
    /// The source that is meant, once it was looked for: nobody becomes somebody else on the way.
    found: Arc<Renewed<Search>>,
    /// What requests are signed with.
    keys: Renewed<Asking>,
}

/// Looks for the source that is meant.
struct Search {
    credentials: Credentials,
    region: String,
    context: Context,
}

/// Asks the source that was found.
struct Asking {
    found: Arc<Renewed<Search>>,
    context: Context,
    role: Role,
}

impl Signer {
    pub fn new(settings: &Settings, region: &str, chance: Arc<Chance>) -> Signer {
        let (context, role) = machine::context(&settings.variables, chance);
        Signer::on(context, role, &settings.credentials, region)
    }

    /// On a machine that may be made up.
    pub(super) fn on(context: Context, role: Role, credentials: &Credentials, region: &str) -> Signer {
        let (credentials, region) = (credentials.clone(), region.to_owned());
        let found = Arc::new(Renewed::of(Search { credentials, region, context: context.clone() }));
        let keys = Renewed::of(Asking { found: found.clone(), context: context.clone(), role: role.clone() });
        Signer { context, role, found, keys }
    }

    /// The principal that requests are signed for, in words that hold no secret and outlive short-lived keys where
    /// their role is known.
    pub async fn who(&self, on: &(dyn Display + Sync)) -> Result<String> {
        let Some(found) = self.found(on).await? else { return Ok("anonymous".into()) };
        match (self.keys.get(on).await, &found.who) {
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

    /// None for nobody, who is known without a look at any file.
    async fn found(&self, on: &(dyn Display + Sync)) -> Result<Option<Arc<Found>>> {
        match self.found.giver().credentials {
            Credentials::Anonymous => Ok(None),
            _ => self.found.get(on).await,
        }
    }

    /// What it signs with at the moment; none if nothing is signed.
    pub async fn lend(&self, on: &(dyn Display + Sync)) -> Result<Option<Arc<Credential>>> {
        match self.found.giver().credentials {
            Credentials::Anonymous => Ok(None),
            _ => self.keys.get(on).await.map(Some),
        }
    }

    /// Add a signature to a request, over all of its headers. What it was made with comes back.
    pub async fn sign(
        &self,
        parts: &mut Parts,
        region: &str,
        on: &(dyn Display + Sync),
    ) -> Result<Option<Arc<Credential>>> {
        let Some(credential) = self.lend(on).await? else { return Ok(None) };
        let signer = RequestSigner::new(SERVICE, region).with_standard_session_token();
        let signed = signer.sign_request(&self.context, parts, Some(&credential), None).await;
        signed.map_err(|error| Error::denied(format!("the request can't be signed: {error}"), on))?;
        Ok(Some(credential))
    }

    /// Have credentials that a server no longer takes asked for anew, unless that was done since. False if that leads
    /// nowhere. `is_told`: the server said that it is about them, rather than nothing.
    pub fn forget(&self, used: &Arc<Credential>, is_told: bool) -> bool {
        let is_it = |current: &Arc<Credential>| Arc::ptr_eq(current, used);
        let Some((_, age)) = self.keys.last().filter(|(current, _)| is_it(current)) else { return true };
        let found = self.found.last().and_then(|(found, _)| found);
        let may_be_others = found.is_some_and(|found| !found.is_fixed);
        // Who says nothing may mean the object alone, and keys that do not end are not given up for that.
        let is_lent = used.session_token.is_some();
        (is_told && (is_lent || may_be_others) || is_lent && age >= YOUNG) && self.keys.forget(is_it)
    }
}

impl Giver for Search {
    type Given = Option<Arc<Found>>;

    fn give<'a>(&'a self, on: &'a str) -> BoxFuture<'a, Result<Self::Given>> {
        Box::pin(async move {
            let found = credentials::find(&self.credentials, &self.region, &self.context).await;
            found.map(|found| found.map(Arc::new)).map_err(|error| {
                let what = discreet(&error);
                match error.kind() {
                    ErrorKind::Unexpected => Error::unavailable(what, on),
                    _ => Error::denied(what, on)
                        .hint("check the variables that begin with AWS_, --profile and the files of profiles"),
                }
            })
        })
    }

    fn is_good(&self, _: &Self::Given, _: Duration) -> bool {
        true
    }

    fn is_due(&self, _: &Self::Given) -> bool {
        false
    }
}

impl Giver for Asking {
    type Given = Arc<Credential>;

    fn give<'a>(&'a self, on: &'a str) -> BoxFuture<'a, Result<Self::Given>> {
        Box::pin(async move {
            let Some(from) = self.found.get(&on).await? else { return Err(nobody(on)) };
            match from.source.provide_credential_dyn(&self.context).await {
                Ok(Some(found)) => Ok(Arc::new(found)),
                Err(error) if !from.is_last_resort || self.role.get().is_some() => Err(failed(&from, &error, on)),
                Ok(None) if !from.is_last_resort => Err(Error::denied(format!("{} has no credentials", from.name), on)),
                _ => Err(nobody(on)),
            }
        })
    }

    fn is_good(&self, given: &Self::Given, _: Duration) -> bool {
        given.is_valid_at(Timestamp::now() + GOOD_FOR)
    }

    fn is_due(&self, given: &Self::Given) -> bool {
        !given.is_valid_at(Timestamp::now() + RENEW_BEFORE)
    }
}

fn nobody(on: &str) -> Error {
    Error::denied("there are no credentials in the environment, the profile or this machine's role", on)
        .hint("set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or pass --anonymous for a public bucket")
}

fn failed(from: &Found, error: &reqsign_core::Error, on: &str) -> Error {
    let what = format!("the credentials of {} can't be had: {}", from.name, discreet(error));
    match error.kind() {
        ErrorKind::RateLimited | ErrorKind::Unexpected => Error::unavailable(what, on),
        _ => Error::denied(what, on),
    }
}
