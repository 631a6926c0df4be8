//! Credentials as another machine is to use them in our stead, and where they would be had from.
//!
//! Invariant: who asks for them means to hand them on; `Debug` shows nothing of them.

use super::sign::Signer;
use super::{Credentials, Settings};
use crate::retry::Chance;
use block::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Where roles are assumed if no region is named.
const REGION: &str = "us-east-1";

/// A key, and when it ends.
#[derive(Clone)]
pub struct Lent {
    pub id: String,
    pub secret: String,
    pub token: Option<String>,
    /// Seconds since 1970; none where it doesn't end, or nobody says when.
    pub ends: Option<i64>,
}

impl fmt::Debug for Lent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Lent(hidden)")
    }
}

/// The credentials that a store would be asked by just now.
pub async fn lend(settings: &Settings) -> Result<Lent> {
    let (signer, on) = signer(settings);
    let nobody =
        || Error::invalid("there are none to hand on", &on).hint("leave out --anonymous, or --send-credentials");
    let found = signer.lend(&on).await?.ok_or_else(nobody)?;
    Ok(Lent {
        id: found.access_key_id.clone(),
        secret: found.secret_access_key.clone(),
        token: found.session_token.clone().filter(|token| !token.is_empty()),
        ends: found.expires_in.map(|end| end.as_second()),
    })
}

/// Where they would be had from, by name, such as `profile train`; none where nothing is signed. Nobody is asked for any.
pub async fn lender(settings: &Settings) -> Result<Option<String>> {
    let (signer, on) = signer(settings);
    signer.source(&on).await
}

/// Who signs by these settings, and in whose name it fails.
fn signer(settings: &Settings) -> (Signer, String) {
    let on = match &settings.credentials {
        Credentials::Found { profile: Some(profile) } => format!("profile {profile}"),
        _ => "the credentials of this machine".into(),
    };
    let region = settings.region.as_deref().unwrap_or(REGION);
    (Signer::new(settings, region, Arc::new(Chance::new(settings.seed))), on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_lent_is_what_requests_are_signed_with_and_nobody_lends_nothing() {
        let keys = Credentials::Keys { id: "id".into(), secret: "secret".into(), token: Some("token".into()) };
        let lent = lend(&Settings { credentials: keys, ..Settings::default() }).await.expect("keys");
        assert_eq!((&*lent.id, &*lent.secret, lent.token.as_deref(), lent.ends), ("id", "secret", Some("token"), None));
        assert!(!format!("{lent:?}").contains("secret"));
        let nobody = Settings { credentials: Credentials::Anonymous, ..Settings::default() };
        assert!(lend(&nobody).await.is_err());
        assert_eq!(lender(&nobody).await.expect("it is known"), None);
    }
}
