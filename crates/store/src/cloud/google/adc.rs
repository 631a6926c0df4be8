//! Who asks Google: found in the order of its own tools (application default credentials): the file that
//! GOOGLE_APPLICATION_CREDENTIALS names, the one that `gcloud auth application-default login` writes, the identity of
//! this machine.
//!
//! Invariant: nobody becomes somebody else on the way: the source is looked for once.

use super::super::messenger::Messenger;
use super::super::source::{Provider, Source, once};
use super::super::{Asker, Settings};
use super::machine::Machine;
use crate::files::{self, Files};
use crate::fingerprint;
use crate::retry::Chance;
use block::{Error, Result};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, header};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// What names a file of credentials.
const NAMED: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// Where gcloud writes credentials, below its folder.
const WRITTEN: &str = "application_default_credentials.json";

/// Who asks.
pub struct Identity {
    settings: Settings,
    messenger: Messenger,
    files: Files,
    found: OnceCell<Option<Found>>,
}

/// The source that is meant.
pub struct Found {
    pub source: Source<GcpCredential>,
    who: Who,
}

/// Whom tokens stand for.
enum Who {
    /// As the file of credentials has it.
    Named(String),
    /// As the server of this machine tells.
    Account(Machine),
}

impl Identity {
    pub fn new(settings: &Settings, chance: Arc<Chance>) -> Identity {
        let messenger = Messenger::new(chance, &settings.variables);
        Identity { settings: settings.clone(), messenger, files: Files::default(), found: OnceCell::new() }
    }

    /// The principal, in words that hold no secret.
    pub async fn who(&self, on: &(dyn Display + Sync)) -> Result<String> {
        let Some(found) = self.source().await? else { return Ok("anonymous".into()) };
        match (found.source.get(on).await, &found.who) {
            (Ok(_), Who::Named(who)) => Ok(who.clone()),
            (Ok(_), Who::Account(machine)) => {
                let account = machine.account().await.ok().filter(|account| !account.is_empty());
                let what = "this machine does not tell whose account it has";
                account.map(|account| format!("account {account}")).ok_or_else(|| Error::unavailable(what, on))
            }
            // Who hands out tokens may be away; what is kept can be read meanwhile.
            (Err(error), Who::Named(who)) if error.passes() => {
                tracing::warn!("{error}");
                Ok(who.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    async fn authorized(&self, mut request: Request<Bytes>, on: &(dyn Display + Sync)) -> Result<Request<Bytes>> {
        let Some(found) = self.source().await? else { return Ok(request) };
        let credential = found.source.get(on).await?;
        let value = HeaderValue::from_str(&format!("Bearer {}", credential.bearer));
        let mut value = value.map_err(|_| Error::denied("the token makes no header", on))?;
        value.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, value);
        Ok(request)
    }

    /// Where tokens come from; none for nobody.
    pub async fn source(&self) -> Result<Option<&Found>> {
        if self.settings.is_anonymous {
            return Ok(None);
        }
        let found = self.found.get_or_try_init(async || self.find().await.map(Some)).await?;
        Ok(found.as_ref())
    }

    async fn find(&self) -> Result<Found> {
        let messenger = self.messenger.clone();
        let Some((name, path)) = self.file().await? else {
            let what = "there are no credentials of Google Cloud: no file of them, and this machine has no account";
            let hint = "run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to a file, or \
                        pass --anonymous for a public bucket";
            let host = self.settings.variable("GCE_METADATA_HOST").map(str::to_owned);
            let machine = move || Machine::new(&messenger, host.as_deref());
            let who = Who::Account(machine());
            let first: Provider<_> = Arc::new(machine());
            let again = move || Some(Arc::new(machine()) as Provider<_>);
            return Ok(Found { source: Source::or_nobody("this machine", first, again, Some((what, hint))), who });
        };
        let file = self.read(&name, path).await?;
        if !matches!(file.kind.as_str(), "service_account" | "authorized_user") {
            return Err(file.wrong(&format!("is of type \"{}\", which can't be used yet", file.kind)));
        }
        // What the library says of a file that it can't read may repeat some of it.
        let first = file.provider(&messenger).ok_or_else(|| file.wrong("is not complete, or its key can't be read"))?;
        let who = file.who();
        let again = {
            let who = who.clone();
            // There may be a new key in it by then, but of nobody else.
            move || File::load(&file.name, &file.path).ok().filter(|now| now.who() == who)?.provider(&messenger)
        };
        Ok(Found { source: Source::new(name, first, again), who: Who::Named(who) })
    }

    /// The file of credentials that is meant, and as what an error names it.
    async fn file(&self) -> Result<Option<(String, PathBuf)>> {
        if let Some(path) = self.settings.variable(NAMED) {
            return Ok(Some((NAMED.into(), path.into())));
        }
        let folder = self.settings.variable("CLOUDSDK_CONFIG").map(PathBuf::from);
        let home = || self.settings.variable("HOME").map(|home| Path::new(home).join(".config/gcloud"));
        let Some(folder) = folder.or_else(home) else { return Ok(None) };
        let path = folder.join(WRITTEN);
        let looked_for = path.clone();
        let is_there = self.files.look(move || files::exists(&looked_for)).await;
        let is_there = is_there.map_err(|error| unread("gcloud", &path, &error))?;
        Ok(is_there.then(|| ("gcloud".into(), path)))
    }

    async fn read(&self, name: &str, path: PathBuf) -> Result<File> {
        let text = self.files.read(path.clone()).await.map_err(|error| unread(name, &path, &error))?;
        File::of(name, &path, String::from_utf8_lossy(&text).into_owned())
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

    fn renew<'a>(&'a self, since: Instant, _on: &'a (dyn Display + Sync)) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            match self.source().await {
                Ok(Some(found)) => found.source.renew(since).await,
                _ => false,
            }
        })
    }
}

/// A file of credentials.
struct File {
    name: String,
    path: PathBuf,
    text: String,
    kind: String,
    json: serde_json::Value,
}

impl File {
    fn load(name: &str, path: &Path) -> Result<File> {
        let text = files::read(path).map_err(|error| unread(name, path, &error))?;
        File::of(name, path, String::from_utf8_lossy(&text).into_owned())
    }

    fn of(name: &str, path: &Path, text: String) -> Result<File> {
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|_| refused(name, path, "is no JSON"))?;
        let kind = json["type"].as_str().unwrap_or_default().to_owned();
        Ok(File { name: name.into(), path: path.into(), text, kind, json })
    }

    /// Who hands out tokens for it, if it is complete.
    fn provider(&self, messenger: &Messenger) -> Option<Provider<GcpCredential>> {
        // The library asks for a bucket, which is of no account here.
        let builder = GoogleCloudStorageBuilder::new().with_bucket_name("any").with_retry(once());
        let builder = builder.with_http_connector(messenger.clone());
        let builder = match self.kind.as_str() {
            "service_account" => builder.with_service_account_key(&self.text),
            _ => builder.with_application_credentials(self.path.to_string_lossy()),
        };
        Some(builder.build().ok()?.credentials().clone())
    }

    fn wrong(&self, what: &str) -> Error {
        refused(&self.name, &self.path, what)
    }

    /// Whom it stands for. All who use gcloud have one client in common, so that only the token tells them apart.
    fn who(&self) -> String {
        let field = |name: &str| self.json[name].as_str().unwrap_or_default();
        match self.kind.as_str() {
            "service_account" => format!("account {}", field("client_email")),
            _ => format!("user {} {}", field("client_id"), fingerprint::of("refresh", field("refresh_token"))),
        }
    }
}

/// Whom a file of this text stands for, and whether a key of a service account can be made of it.
#[cfg(any(test, feature = "hostile"))]
pub fn key_file(text: String) -> Option<(String, bool)> {
    let file = File::of("name", Path::new("path"), text).ok()?;
    let is_key = file.kind == "service_account"
        && file.provider(&Messenger::new(Arc::new(Chance::new(0)), &Default::default())).is_some();
    Some((file.who(), is_key))
}

fn unread(name: &str, path: &Path, error: &std::io::Error) -> Error {
    refused(name, path, &format!("can't be read: {error}"))
}

fn refused(name: &str, path: &Path, what: &str) -> Error {
    Error::denied(format!("the file of credentials {what}"), path.display()).hint(format!(
        "{name} names it; give a key of a service account, or run `gcloud auth application-default login`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Kind;

    fn identity(variables: &[(&str, &str)]) -> Identity {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Identity::new(&Settings { variables, ..Settings::default() }, Arc::new(Chance::new(0)))
    }

    #[tokio::test]
    async fn files_are_found_where_the_tools_of_google_look_and_what_is_wrong_with_one_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().to_str().expect("a path").to_owned();
        assert_eq!(identity(&[("HOME", &home)]).file().await.expect("it is known"), None);
        let gcloud = folder.path().join(".config/gcloud");
        std::fs::create_dir_all(&gcloud).expect("folders");
        let user = r#"{"type": "authorized_user", "client_id": "c", "client_secret": "hidden", "refresh_token": "r"}"#;
        std::fs::write(gcloud.join(WRITTEN), user).expect("a file");
        let found = identity(&[("HOME", &home)]);
        let Who::Named(who) = &found.source().await.expect("a user").expect("somebody").who else { panic!("named") };
        assert!(who.starts_with("user c ") && !who.contains("hidden"), "{who}");
        let named = folder.path().join("named");
        for (text, word) in [
            ("{}", "of type \"\""),
            ("no", "no JSON"),
            (r#"{"type": "external_account"}"#, "external_account"),
            (r#"{"type": "service_account", "private_key": "hidden"}"#, "not complete"),
        ] {
            std::fs::write(&named, text).expect("a file");
            let named = identity(&[("HOME", &home), (NAMED, named.to_str().expect("a path"))]);
            let error = named.source().await.err().expect(word);
            assert!(error.kind == Kind::Denied && error.what.contains(word), "{error}");
            assert!(!error.to_string().contains("hidden") && error.hint.contains(NAMED), "{error}");
        }
        let absent = identity(&[(NAMED, "/absent")]).source().await.err().expect("no file");
        assert!(absent.on == "/absent" && absent.what.contains("can't be read"), "{absent}");
    }
}
