//! Who asks Azure: a key, a signature, a token, or whoever hands out tokens, found by the variables that Azure's own
//! tools read.
//!
//! Invariant: nobody becomes somebody else on the way: the source is looked for once.

use super::super::messenger::Messenger;
use super::super::source::{Provider, Source, once};
use super::super::{Asker, Settings};
use super::account::Account;
use super::cli::{CLI, Cli};
use crate::files::{self, Files};
use crate::fingerprint;
use crate::retry::Chance;
use block::{Error, Result};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request;
use object_store::azure::{AzureAuthorizer, AzureConfigKey, AzureCredential, MicrosoftAzureBuilder};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Variables of Azure's command-line tool and of its identities, by the library's names for what they say.
const ALIASES: [(&str, AzureConfigKey); 3] = [
    ("AZURE_STORAGE_KEY", AzureConfigKey::AccessKey),
    ("IDENTITY_ENDPOINT", AzureConfigKey::MsiEndpoint),
    ("AZURE_STORAGE_AUTH_TOKEN", AzureConfigKey::Token),
];

/// What the library would take from the environment, and is settled elsewhere.
const SETTLED: [AzureConfigKey; 5] = [
    AzureConfigKey::AccountName,
    AzureConfigKey::Endpoint,
    AzureConfigKey::ContainerName,
    AzureConfigKey::UseEmulator,
    AzureConfigKey::SkipSignature,
];

/// What another signature for the same has anew: the signature, and the times of it and of the key that it was made with.
const RENEWED: [&str; 5] = ["sig", "st", "se", "skt", "ske"];

/// What `az login` leaves behind, below its folder.
const LOGGED_IN: &str = "azureProfile.json";

/// Who asks.
pub struct Identity {
    account: Account,
    settings: Settings,
    messenger: Messenger,
    files: Files,
    found: OnceCell<Option<Source<AzureCredential>>>,
}

impl Identity {
    pub fn new(account: Account, settings: &Settings, chance: Arc<Chance>) -> Identity {
        let (messenger, settings) = (Messenger::new(chance, &settings.variables), settings.clone());
        Identity { account, settings, messenger, files: Files::default(), found: OnceCell::new() }
    }

    /// The principal, in words that hold no secret.
    pub async fn who(&self, on: &(dyn Display + Sync)) -> Result<String> {
        let Some(source) = self.source(on).await? else { return Ok("anonymous".into()) };
        Ok(match &*source.get(on).await? {
            // Any text of the right form is a key until a store refuses it.
            AzureCredential::AccessKey(_) => {
                let key = self.told().remove(AzureConfigKey::AccessKey.as_ref()).unwrap_or_default();
                format!("key {} of {}", fingerprint::of("key", key), self.account.name)
            }
            AzureCredential::SASToken(pairs) => {
                format!("signature {} of {}", fingerprint::of("signature", granted(pairs)), self.account.name)
            }
            AzureCredential::BearerToken(token) => match principal(token) {
                Some(id) => format!("principal {id}"),
                None => format!("token {}", fingerprint::of("token", token)),
            },
        })
    }

    async fn authorized(&self, request: Request<Bytes>, on: &(dyn Display + Sync)) -> Result<Request<Bytes>> {
        let Some(source) = self.source(on).await? else { return Ok(request) };
        let credential = source.get(on).await?;
        let (head, content) = request.into_parts();
        let mut unsigned = Request::from_parts(head, content.clone().into());
        let authorizer = AzureAuthorizer::new(&credential, &self.account.name);
        let signed = authorizer.try_authorize(&mut unsigned);
        signed.map_err(|error| Error::denied(format!("the request can't be signed: {error}"), on))?;
        Ok(unsigned.map(|_| content))
    }

    /// Where credentials come from; none for nobody.
    pub async fn source(&self, on: &(dyn Display + Sync)) -> Result<Option<&Source<AzureCredential>>> {
        if self.settings.is_anonymous {
            return Ok(None);
        }
        let found = self.found.get_or_try_init(async || self.find(on).await.map(Some)).await?;
        Ok(found.as_ref())
    }

    async fn find(&self, on: &(dyn Display + Sync)) -> Result<Source<AzureCredential>> {
        let told = self.told();
        let looking = (told.clone(), self.settings.clone());
        let name = self.files.look(move || name(&looking.0, &looking.1)).await.map_err(|error| {
            let what = format!("it can't be known whether somebody has logged in by az: {error}");
            let failed = match error.kind() {
                ErrorKind::TimedOut => Error::unavailable(what, on),
                _ => Error::denied(what, on),
            };
            failed.hint("set AZURE_CONFIG_DIR to a folder that can be read, or name an identity")
        })?;
        let make = {
            let (account, messenger) = (self.account.name.clone(), self.messenger.clone());
            let variables = self.settings.variables.clone();
            move || match name {
                CLI => Ok(Arc::new(Cli::new(&variables)) as Provider<_>),
                _ => provider(&account, &told, messenger.clone()),
            }
        };
        let first = make().map_err(|error| {
            Error::denied(format!("{name} can't be used: {error}"), on)
                .hint("check the variables that begin with AZURE_")
        })?;
        let nobody = (
            "there are no credentials of Azure: none are named, and this machine has no identity",
            "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, run `az login`, or pass \
             --anonymous for a public container",
        );
        Ok(Source::or_nobody(name, first, move || make().ok(), (name == MACHINE).then_some(nobody)))
    }

    /// What the variables and the connection string say, by the library's names.
    fn told(&self) -> BTreeMap<String, String> {
        let mut told = BTreeMap::new();
        let mut tell = |key: AzureConfigKey, value: &str| {
            // The library writes a slash behind this one, which Kubernetes has already.
            let value = if key == AzureConfigKey::AuthorityHost { value.trim_end_matches('/') } else { value };
            if !value.is_empty() && !SETTLED.contains(&key) {
                told.insert(key.as_ref().to_owned(), value.to_owned());
            }
        };
        for (key, value) in
            [(AzureConfigKey::AccessKey, &self.account.key), (AzureConfigKey::SasKey, &self.account.signature)]
        {
            tell(key, value.as_deref().unwrap_or_default());
        }
        for (name, value) in &self.settings.variables {
            let alias = ALIASES.iter().find(|(alias, _)| alias == name).map(|(_, key)| *key);
            let own = || name.to_ascii_lowercase().parse::<AzureConfigKey>().ok();
            let key = alias.or_else(|| if name.starts_with("AZURE_") { own() } else { None });
            if let Some(key) = key.filter(|key| !matches!(key, AzureConfigKey::Client(_))) {
                tell(key, value);
            }
        }
        told
    }
}

impl Asker for Identity {
    fn authorize<'a>(
        &'a self,
        request: Request<Bytes>,
        on: &'a (dyn Display + Sync),
    ) -> BoxFuture<'a, Result<Request<Bytes>>> {
        Box::pin(self.authorized(request, on))
    }

    fn renew<'a>(&'a self, since: Instant, on: &'a (dyn Display + Sync)) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            match self.source(on).await {
                Ok(Some(source)) => source.renew(since).await,
                _ => false,
            }
        })
    }
}

/// Who hands out what the variables name; it has no token yet.
fn provider(
    account: &str,
    told: &BTreeMap<String, String>,
    messenger: Messenger,
) -> object_store::Result<Provider<AzureCredential>> {
    // The library asks for a container, which is of no account here.
    let builder = MicrosoftAzureBuilder::new().with_account(account).with_container_name("any");
    let builder = builder.with_retry(once()).with_http_connector(messenger);
    let builder = told.iter().fold(builder, |builder, (name, value)| match name.parse() {
        Ok(key) => builder.with_config(key, value),
        Err(_) => builder,
    });
    Ok(builder.build()?.credentials().clone())
}

const MACHINE: &str = "this machine";

/// As what an error names the source that the library will take, in its own order.
fn name(told: &BTreeMap<String, String>, settings: &Settings) -> std::io::Result<&'static str> {
    let has = |keys: &[AzureConfigKey]| keys.iter().all(|key| told.contains_key(key.as_ref()));
    use AzureConfigKey::{
        AccessKey, AuthorityId, ClientId, ClientSecret, CredentialType, FederatedTokenFile, MsiEndpoint, SasKey, Token,
        UseAzureCli,
    };
    if let Some(kind) = told.get(CredentialType.as_ref()) {
        return Ok(if kind.eq_ignore_ascii_case("azure_cli") { CLI } else { "AZURE_CREDENTIAL_TYPE" });
    }
    let named = [
        (&[Token][..], "the token of the environment"),
        (&[AccessKey], "the key of the account"),
        (&[ClientId, AuthorityId, FederatedTokenFile], "AZURE_FEDERATED_TOKEN_FILE"),
        (&[ClientId, AuthorityId, ClientSecret], "AZURE_CLIENT_SECRET"),
        (&[SasKey], "the shared access signature"),
        (&[UseAzureCli], CLI),
    ];
    let found = named.into_iter().find(|(keys, _)| has(keys)).map(|(_, name)| name);
    Ok(match found {
        Some(name) => name,
        None if has(&[ClientId]) || has(&[MsiEndpoint]) || !is_logged_in(settings)? => MACHINE,
        None => CLI,
    })
}

/// Whether somebody has logged in by Azure's command-line tool.
fn is_logged_in(settings: &Settings) -> std::io::Result<bool> {
    let folder = settings.variable("AZURE_CONFIG_DIR").map(Into::into);
    let folder = folder.or_else(|| settings.variable("HOME").map(|home| Path::new(home).join(".azure")));
    folder.map_or(Ok(false), |folder: std::path::PathBuf| files::exists(&folder.join(LOGGED_IN)))
}

/// What a shared access signature grants: neither who signed it when, nor until when it is good. What it is for is told
/// by nothing but the signature itself, unless that is the account or the container.
fn granted(pairs: &[(String, String)]) -> String {
    let is_of_all = pairs.iter().any(|(name, value)| name == "srt" || (name == "sr" && value == "c"));
    let tells = |name: &str| !RENEWED.contains(&name) || (name == "sig" && !is_of_all);
    let granted = pairs.iter().filter(|(name, _)| tells(name));
    granted.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Whom a token is of, as far as it says so.
fn principal(token: &str) -> Option<String> {
    let claims = claims(token)?;
    ["oid", "sub"].into_iter().find_map(|name| claims[name].as_str().map(str::to_owned))
}

/// What a token says of itself: the second of its three parts is JSON in base64.
pub fn claims(token: &str) -> Option<serde_json::Value> {
    let claims = token.split('.').nth(1)?;
    let mut bytes = Vec::with_capacity(claims.len());
    let (mut bits, mut held) = (0u32, 0u32);
    for digit in claims.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        (bits, held) = ((bits << 6 | u32::from(value)) & 0xffff, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn identity(variables: &[(&str, &str)]) -> Identity {
        let variables = variables.iter().chain(&[("AZURE_STORAGE_ACCOUNT", "acc")]);
        let variables = variables.map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let settings = Settings { variables, ..Settings::default() };
        Identity::new(Account::of(None, &settings).expect("an account"), &settings, Arc::new(Chance::new(0)))
    }

    #[tokio::test]
    async fn each_way_to_be_somebody_is_found_by_its_variables() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(LOGGED_IN), "{}").expect("a file");
        let folder = folder.path().to_str().expect("a path");
        let client = [("AZURE_CLIENT_ID", "i"), ("AZURE_TENANT_ID", "t")];
        for (variables, expected) in [
            (vec![("AZURE_STORAGE_KEY", "a2V5")], "the key of the account"),
            (vec![("AZURE_STORAGE_CONNECTION_STRING", "AccountName=acc;AccountKey=a2V5")], "the key of the account"),
            (vec![("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=x")], "the shared access signature"),
            (vec![client[0], client[1], ("AZURE_CLIENT_SECRET", "s")], "AZURE_CLIENT_SECRET"),
            (vec![client[0], client[1], ("AZURE_FEDERATED_TOKEN_FILE", "/f")], "AZURE_FEDERATED_TOKEN_FILE"),
            (vec![("AZURE_CONFIG_DIR", folder)], CLI),
            (vec![("AZURE_CREDENTIAL_TYPE", "azure_cli")], CLI),
            (vec![("AZURE_CONFIG_DIR", folder), ("IDENTITY_ENDPOINT", "http://127.0.0.1:1")], MACHINE),
            (vec![], MACHINE),
        ] {
            let found = identity(&variables);
            let source = found.source(&"c").await.unwrap_or_else(|error| panic!("{expected}: {error}"));
            assert_eq!(source.expect("somebody").name, expected);
        }
        let wrong = identity(&[("AZURE_STORAGE_KEY", "no base64!")]).source(&"c").await.err().expect("no key");
        assert!(wrong.hint.contains("AZURE_") && !wrong.to_string().contains("no base64"), "{wrong}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_is_not_waited_for_where_its_folder_hangs() {
        let found = identity(&[("AZURE_CONFIG_DIR", "/absent")]);
        let (hang, hung) = std::sync::mpsc::sync_channel::<()>(0);
        assert!(found.files.look(move || Ok(hung.recv().is_ok())).now_or_never().is_none(), "another look hangs");
        let (source, ()) = tokio::join!(found.source(&"c"), tokio::time::advance(std::time::Duration::from_secs(5)));
        let error = source.err().expect("it hangs, too");
        assert!(error.passes() && error.what.contains("did not answer within 5s"), "{error}");
        drop(hang);
        assert_eq!(found.source(&"c").await.expect("it answers again").expect("somebody").name, MACHINE);
    }

    #[tokio::test]
    async fn whoever_asks_is_named_without_a_secret() {
        let who = async |variables: &[(&str, &str)]| identity(variables).who(&"c").await.expect("somebody");
        let keyed = who(&[("AZURE_STORAGE_KEY", "a2V5")]).await;
        assert!(keyed.ends_with(" of acc") && !keyed.contains("a2V5"), "{keyed}");
        assert_eq!(keyed, who(&[("AZURE_STORAGE_CONNECTION_STRING", "AccountName=acc;AccountKey=a2V5")]).await);
        assert_ne!(keyed, who(&[("AZURE_STORAGE_KEY", "bm9uZQ==")]).await, "what is no key shares nothing");
        // {"oid":"me"}
        assert_eq!(who(&[("AZURE_STORAGE_TOKEN", "e30.eyJvaWQiOiJtZSJ9.x")]).await, "principal me");
    }

    #[tokio::test]
    async fn signatures_are_of_one_principal_only_if_they_are_known_to_be_for_the_same() {
        let who = async |text: &str| identity(&[("AZURE_STORAGE_SAS_TOKEN", text)]).who(&"c").await.expect("somebody");
        for (of, is_one) in [("sr=c", true), ("ss=b&srt=co", true), ("sr=d&sdd=1", false), ("sr=b", false)] {
            let first = who(&format!("sv=1&{of}&sp=r&se=2026-01-01&sig=one")).await;
            assert_eq!(first == who(&format!("sv=1&{of}&sp=r&se=2027-01-01&sig=two")).await, is_one, "{of}");
            assert_eq!(first, who(&format!("sv=1&{of}&sp=r&se=2026-01-01&sig=one")).await);
            assert_ne!(first, who(&format!("sv=1&{of}&sp=rl&se=2026-01-01&sig=one")).await, "{of}");
        }
    }
}
