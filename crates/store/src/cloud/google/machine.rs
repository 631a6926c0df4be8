//! The account of a machine or a pod at Google, whose metadata server hands out tokens.
//!
//! Invariant: a token is kept until four minutes before it runs out, no longer; that server has the next one by then.

use super::super::messenger::{Failed, Messenger};
use async_trait::async_trait;
use bytes::Bytes;
use object_store::CredentialProvider;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::gcp::GcpCredential;
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Where that server is, on every machine.
const HOST: &str = "169.254.169.254";

/// What it tells of the account.
const ACCOUNT: &str = "computeMetadata/v1/instance/service-accounts/default";

/// By which it is told from other servers at this address, and told who asks.
const FLAVOR: (&str, &str) = ("metadata-flavor", "Google");

/// How long before it runs out a token is not used any more.
const SPARE: Duration = Duration::from_secs(240);

/// How long a token is used at most, whatever that server says. It says an hour.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Asks the server of this machine.
pub struct Machine {
    messenger: Messenger,
    host: String,
    kept: Mutex<Option<(Arc<GcpCredential>, Instant)>>,
}

#[derive(Deserialize)]
struct Token {
    access_token: String,
    expires_in: u64,
}

impl Machine {
    /// `host`: another than the usual one, as tools of Google's are told by GCE_METADATA_HOST.
    pub fn new(messenger: &Messenger, host: Option<&str>) -> Machine {
        Machine { messenger: messenger.clone(), host: host.unwrap_or(HOST).into(), kept: Mutex::default() }
    }

    /// Whose tokens these are.
    pub async fn account(&self) -> object_store::Result<String> {
        let text = self.ask("email").await?;
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    async fn ask(&self, what: &str) -> object_store::Result<Bytes> {
        let (name, google) = FLAVOR;
        let request = http::Request::get(format!("http://{}/{ACCOUNT}/{what}", self.host)).header(name, google);
        let request = request.body(Bytes::new()).map_err(wrong)?;
        // That nobody answers may pass.
        let away = |failed: Failed| wrong(HttpError::new(HttpErrorKind::Interrupted, failed));
        let answer = self.messenger.ask(request).await.map_err(away)?;
        let is_google = answer.headers().get(name).is_some_and(|flavor| flavor == google);
        match answer.status() {
            status if status.is_success() && is_google => Ok(answer.into_body()),
            status if is_google => Err(wrong(Failed(format!("{} answered {status}", self.host)))),
            _ => Err(wrong(Failed(format!("{} is no server of Google's", self.host)))),
        }
    }
}

fn wrong(error: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: "the metadata server", source: Box::new(error) }
}

#[async_trait]
impl CredentialProvider for Machine {
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        let mut kept = self.kept.lock().await;
        if let Some((token, until)) = &*kept
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        let answer = self.ask("token").await?;
        let token: Token = serde_json::from_slice(&answer).map_err(|_| wrong(Failed("there is no token".into())))?;
        let until = Instant::now() + Duration::from_secs(token.expires_in).min(LONGEST).saturating_sub(SPARE);
        let token = Arc::new(GcpCredential { bearer: token.access_token });
        *kept = Some((token.clone(), until));
        Ok(token)
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Machine")
    }
}
