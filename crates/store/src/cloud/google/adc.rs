//! Who asks Google: found in the order of its own tools (application default credentials): the file that
//! GOOGLE_APPLICATION_CREDENTIALS names, the one that `gcloud auth application-default login` writes, the identity of
//! this machine.
//!
//! Invariant: nobody becomes somebody else on the way: the source is looked for once.

use super::super::Settings;
use super::super::messenger::Messenger;
use super::super::source::{Source, once};
use crate::retry::Chance;
use block::{Error, Result};
use http::{HeaderMap, HeaderValue, header};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// What names a file of credentials.
const NAMED: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// Where gcloud writes credentials, below its folder.
const WRITTEN: &str = "application_default_credentials.json";

/// Where a machine of Google's tells its account, below GCE_METADATA_HOST.
const ACCOUNT: &str = "computeMetadata/v1/instance/service-accounts/default/email";

/// Who asks.
pub struct Identity {
    settings: Settings,
    messenger: Messenger,
    found: OnceCell<Option<Found>>,
}

/// The source that is meant.
pub struct Found {
    source: Source<GcpCredential>,
    /// The principal, if the source tells it without being asked.
    who: Option<String>,
}

impl Identity {
    pub fn new(settings: &Settings, chance: Arc<Chance>) -> Identity {
        Identity { settings: settings.clone(), messenger: Messenger::new(chance), found: OnceCell::new() }
    }

    /// The principal, in words that hold no secret.
    pub async fn who(&self, on: &(dyn Display + Sync)) -> Result<String> {
        let Some(found) = self.source(on).await? else { return Ok("anonymous".into()) };
        match (found.source.get(on).await, &found.who) {
            (Ok(_), Some(who)) => Ok(who.clone()),
            (Ok(_), None) => self.account(on).await,
            // Who hands out tokens may be away; what is kept can be read meanwhile.
            (Err(error), Some(who)) if error.passes() => {
                tracing::warn!("{error}");
                Ok(who.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Add to a request what it is let in by.
    pub async fn authorize(&self, headers: &mut HeaderMap, on: &(dyn Display + Sync)) -> Result<()> {
        let Some(found) = self.source(on).await? else { return Ok(()) };
        let credential = found.source.get(on).await?;
        let value = HeaderValue::from_str(&format!("Bearer {}", credential.bearer));
        let mut value = value.map_err(|_| Error::denied("the token makes no header", on))?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
        Ok(())
    }

    /// Where tokens come from; none for nobody.
    pub async fn source(&self, on: &(dyn Display + Sync)) -> Result<Option<&Found>> {
        if self.settings.is_anonymous {
            return Ok(None);
        }
        let found = self.found.get_or_try_init(async || self.find(on).await.map(Some)).await?;
        Ok(found.as_ref())
    }

    async fn find(&self, on: &(dyn Display + Sync)) -> Result<Found> {
        // The library asks for a bucket, which is of no account here.
        let builder = GoogleCloudStorageBuilder::new().with_bucket_name("any").with_retry(once());
        let builder = builder.with_http_connector(self.messenger.clone());
        let Some((name, path)) = self.file() else {
            let what = "there are no credentials of Google Cloud: no file of them, and this machine has no account";
            let hint = "run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to a file, or \
                        pass --anonymous for a public bucket";
            let built = builder.build().map_err(|error| Error::invalid(error.to_string(), on))?;
            let source = Source::new("this machine", built.credentials().clone()).last_resort(what, hint);
            return Ok(Found { source, who: None });
        };
        let file = File::read(&name, path).await?;
        let builder = match file.kind.as_str() {
            "service_account" => builder.with_service_account_key(&file.text),
            "authorized_user" => builder.with_application_credentials(file.path.to_string_lossy()),
            _ => return Err(file.wrong(&format!("is of type \"{}\", which can't be used yet", file.kind))),
        };
        // What the library says of a file that it can't read may repeat some of it.
        let built = builder.build().map_err(|_| file.wrong("is not complete, or its key can't be read"))?;
        Ok(Found { source: Source::new(name, built.credentials().clone()), who: Some(file.who()) })
    }

    /// The file of credentials that is meant, and as what an error names it.
    fn file(&self) -> Option<(String, PathBuf)> {
        if let Some(path) = self.settings.variable(NAMED) {
            return Some((NAMED.into(), path.into()));
        }
        let folder = self.settings.variable("CLOUDSDK_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| Some(Path::new(self.settings.variable("HOME")?).join(".config/gcloud")))?;
        let path = folder.join(WRITTEN);
        path.exists().then(|| ("gcloud".into(), path))
    }

    /// The account of this machine.
    async fn account(&self, on: &(dyn Display + Sync)) -> Result<String> {
        let host = self.settings.variable("GCE_METADATA_HOST").unwrap_or("metadata.google.internal");
        let request = http::Request::get(format!("http://{host}/{ACCOUNT}")).header("Metadata-Flavor", "Google");
        let request = request.body(bytes::Bytes::new()).map_err(|error| Error::invalid(error.to_string(), on))?;
        let account = self.messenger.text(request).await.map(|account| account.trim().to_owned());
        let account = account.filter(|account| !account.is_empty());
        account
            .map(|account| format!("account {account}"))
            .ok_or_else(|| Error::unavailable("this machine does not tell whose account it has", on))
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
    async fn read(name: &str, path: PathBuf) -> Result<File> {
        let wrong = |what: &str| refused(name, &path, what);
        let read = tokio::task::spawn_blocking({
            let path = path.clone();
            move || std::fs::read_to_string(path)
        });
        let text = read
            .await
            .map_err(|_| wrong("was not read"))?
            .map_err(|error| wrong(&format!("can't be read: {error}")))?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|_| wrong("is no JSON"))?;
        let kind = json["type"].as_str().unwrap_or_default().to_owned();
        Ok(File { name: name.into(), path, text, kind, json })
    }

    fn wrong(&self, what: &str) -> Error {
        refused(&self.name, &self.path, what)
    }

    /// Whom it stands for. All who use gcloud have one client in common, so that only the token tells them apart.
    fn who(&self) -> String {
        let field = |name: &str| self.json[name].as_str().unwrap_or_default();
        match self.kind.as_str() {
            "service_account" => format!("account {}", field("client_email")),
            _ => format!("user {} {:016x}", field("client_id"), block::crc64::of(field("refresh_token").as_bytes())),
        }
    }
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
        assert_eq!(identity(&[("HOME", &home)]).file(), None);
        let gcloud = folder.path().join(".config/gcloud");
        std::fs::create_dir_all(&gcloud).expect("folders");
        let user = r#"{"type": "authorized_user", "client_id": "c", "client_secret": "hidden", "refresh_token": "r"}"#;
        std::fs::write(gcloud.join(WRITTEN), user).expect("a file");
        let found = identity(&[("HOME", &home)]);
        let who = found.source(&"b").await.expect("a user").expect("somebody").who.clone().expect("a name");
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
            let error = named.source(&"b").await.err().expect(word);
            assert!(error.kind == Kind::Denied && error.what.contains(word), "{error}");
            assert!(!error.to_string().contains("hidden") && error.hint.contains(NAMED), "{error}");
        }
        let absent = identity(&[(NAMED, "/absent")]).source(&"b").await.err().expect("no file");
        assert!(absent.on == "/absent" && absent.what.contains("can't be read"), "{absent}");
    }
}
