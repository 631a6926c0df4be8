//! The two files in which AWS's tools keep profiles, as one.
//!
//! Deliberately nothing of what the entries mean. Invariant: a file that is not there has no profiles; one that is
//! there and can't be read or understood is an error.

use super::super::wire::finds;
use super::sections::{Section, Sections};
use crate::files::{Files, is_absent};
use reqsign_aws_v4::Credential;
use reqsign_core::{Context, Error, ProvideCredential, Result};
use std::sync::OnceLock;

/// The variables that name them, and where they are without.
const CONFIG: (&str, &str) = ("AWS_CONFIG_FILE", "~/.aws/config");
const CREDENTIALS: (&str, &str) = ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials");

/// The two files of profiles.
pub struct Profiles {
    config: Text,
    credentials: Text,
}

struct Text {
    /// Where it lies, for people.
    place: String,
    sections: Sections,
}

/// One profile.
pub struct Profile<'a> {
    pub name: &'a str,
    /// In the order in which they count, each with the place and the name of its section.
    sections: Vec<(String, Section<'a>)>,
}

impl Profiles {
    pub async fn read(context: &Context) -> Result<Profiles> {
        Ok(Profiles {
            config: Text::read(context, CONFIG).await?,
            credentials: Text::read(context, CREDENTIALS).await?,
        })
    }

    /// The same for a command, from any thread of it.
    pub fn read_at_once(context: &Context) -> Result<Profiles> {
        let failed = |error: std::io::Error| Error::unexpected(format!("files can't be read: {error}"));
        // Of all that ask, one waits on a thread of its own for what hangs.
        static FILES: OnceLock<Files> = OnceLock::new();
        let context = context.clone().with_file_read(FILES.get_or_init(Files::default).clone());
        let read = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
            let found = runtime.block_on(Profiles::read(&context));
            // A file that hangs is waited for no longer.
            runtime.shutdown_background();
            found
        };
        std::thread::spawn(read).join().unwrap_or_else(|_| Err(Error::unexpected("files can't be read")))
    }

    /// The same of texts.
    #[cfg(any(test, feature = "hostile"))]
    pub fn of(config: &str, credentials: &str) -> Result<Profiles> {
        let text = |text: &str, place: &str| Text::of(text.as_bytes().to_vec(), place.into());
        Ok(Profiles { config: text(config, "config")?, credentials: text(credentials, "credentials")? })
    }

    /// A profile by name, if either file knows it.
    pub fn profile<'a>(&'a self, name: &'a str) -> Option<Profile<'a>> {
        let in_config = [Some(format!("profile {name}")), (name == "default").then(|| name.to_owned())];
        let in_config = in_config.into_iter().flatten().map(|section| (&self.config, section));
        let all = [(&self.credentials, name.to_owned())].into_iter().chain(in_config);
        let sections: Vec<_> = all.filter_map(|(text, section)| text.section(&section)).collect();
        (!sections.is_empty()).then_some(Profile { name, sections })
    }

    /// A section of `aws configure sso` by name.
    pub fn session(&self, name: &str) -> Option<Section<'_>> {
        self.config.sections.section(&format!("sso-session {name}"))
    }

    /// A section of services by name, and where it stands.
    pub fn services(&self, name: &str) -> Option<(String, Section<'_>)> {
        self.config.section(&format!("services {name}"))
    }

    /// That there is no such profile.
    pub fn unknown(&self, name: &str) -> Error {
        let (config, credentials) = (&self.config.place, &self.credentials.place);
        Error::config_invalid(format!("there is no profile {name} in {config} or {credentials}"))
    }
}

impl<'a> Profile<'a> {
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.told(name).map(|(value, _)| value)
    }

    /// A value, and where it stands.
    pub fn told(&self, name: &str) -> Option<(&'a str, &str)> {
        self.sections.iter().find_map(|(by, section)| Some((section.get(name)?, &**by)))
    }

    /// Whether it holds keys. Half a key is an error: somebody meant it to be one.
    pub fn has_keys(&self) -> Result<bool> {
        for (_, section) in &self.sections {
            match ["aws_access_key_id", "aws_secret_access_key"].map(|name| section.get(name)) {
                [None, None] => {}
                [Some(_), Some(_)] => return Ok(true),
                _ => return Err(Error::config_invalid(format!("profile {} has half a key", self.name))),
            }
        }
        Ok(false)
    }
}

/// The keys of the profile of this name, as they are by then.
#[derive(Debug)]
pub struct FileKeys(pub String);

impl ProvideCredential for FileKeys {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let files = Profiles::read(context).await?;
        let Some(profile) = files.profile(&self.0) else { return Err(files.unknown(&self.0)) };
        let keys = |section: &Section<'_>| {
            let part = |name| section.get(name).map(str::to_owned);
            Some(Credential {
                access_key_id: part("aws_access_key_id")?,
                secret_access_key: part("aws_secret_access_key")?,
                session_token: part("aws_session_token"),
                expires_in: None,
            })
        };
        Ok(profile.sections.iter().find_map(|(_, section)| keys(section)))
    }
}

impl Text {
    async fn read(context: &Context, (variable, usual): (&str, &str)) -> Result<Text> {
        let place = context.env_var(variable).filter(|place| !place.is_empty()).unwrap_or_else(|| usual.into());
        // For who has no home at hand, as a unit of systemd, a tilde says nothing.
        let Some(place) = context.expand_home_dir(&place) else { return Text::of(Vec::new(), place) };
        match context.file_read(&place).await {
            Ok(bytes) => Text::of(bytes, place),
            Err(error) if finds(&error, is_absent) => Text::of(Vec::new(), place),
            Err(error) => Err(error),
        }
    }

    fn of(bytes: Vec<u8>, place: String) -> Result<Text> {
        let wrong = |what: String| Error::config_invalid(format!("{place} is not understood: {what}"));
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".into()))?;
        let sections = Sections::parse(&text).map_err(|line| wrong(format!("line {line} is no value of a section")))?;
        Ok(Text { place, sections })
    }

    /// A section, and where it stands.
    fn section(&self, name: &str) -> Option<(String, Section<'_>)> {
        let section = self.sections.section(name)?;
        Some((format!("{}, [{name}]", self.place), section))
    }
}
