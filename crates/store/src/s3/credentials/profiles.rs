//! The two files in which AWS's tools keep profiles, as one.
//!
//! Deliberately nothing of what the entries mean. Invariant: a file that is not there has no profiles; one that is
//! there and can't be read or understood is an error.

use super::super::wire::finds;
use crate::files::is_absent;
use ini::{Ini, ParseOption};
use reqsign_aws_v4::Credential;
use reqsign_core::{Context, Error, ProvideCredential, Result};

/// The two files of profiles.
pub struct Profiles {
    config: Ini,
    credentials: Ini,
    /// Where they lie, for people.
    places: [String; 2],
}

/// One profile.
pub struct Profile<'a> {
    pub name: &'a str,
    /// In the order in which they count.
    sections: [Option<&'a ini::Properties>; 2],
}

impl Profiles {
    pub async fn read(context: &Context) -> Result<Profiles> {
        let (config, first) = read(context, "AWS_CONFIG_FILE", "~/.aws/config").await?;
        let (credentials, second) = read(context, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials").await?;
        // For who has no home at hand, as a unit of systemd, a tilde says nothing.
        let places = [first, second].map(|place| context.expand_home_dir(&place).unwrap_or(place));
        Ok(Profiles { config, credentials, places })
    }

    /// The same of texts.
    #[cfg(any(test, feature = "hostile"))]
    pub fn of(config: &str, credentials: &str) -> Result<Profiles> {
        let places = ["config".to_owned(), "credentials".to_owned()];
        Ok(Profiles { config: parse(config, &places[0])?, credentials: parse(credentials, &places[1])?, places })
    }

    /// A profile by name, if either file knows it.
    pub fn profile<'a>(&'a self, name: &'a str) -> Option<Profile<'a>> {
        let section = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        let sections = [self.credentials.section(Some(name)), self.config.section(Some(section))];
        sections.iter().any(Option::is_some).then_some(Profile { name, sections })
    }

    /// A section of `aws configure sso` by name.
    pub fn session(&self, name: &str) -> Option<&ini::Properties> {
        self.config.section(Some(format!("sso-session {name}")))
    }

    /// That there is no such profile.
    pub fn unknown(&self, name: &str) -> Error {
        Error::config_invalid(format!("there is no profile {name} in {}", self.places.join(" or ")))
    }
}

impl Profile<'_> {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.sections.iter().flatten().find_map(|section| section.get(name)).filter(|value| !value.is_empty())
    }

    /// Whether it holds keys. Half a key is an error: somebody meant it to be one.
    pub fn has_keys(&self) -> Result<bool> {
        for section in self.sections.into_iter().flatten() {
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
        let keys = |section: &ini::Properties| {
            let part = |name| section.get(name).map(str::to_owned);
            Some(Credential {
                access_key_id: part("aws_access_key_id")?,
                secret_access_key: part("aws_secret_access_key")?,
                session_token: part("aws_session_token").filter(|token| !token.is_empty()),
                expires_in: None,
            })
        };
        Ok(profile.sections.into_iter().flatten().find_map(keys))
    }
}

/// A file of profiles, and where it is looked for.
async fn read(context: &Context, variable: &str, usual: &str) -> Result<(Ini, String)> {
    let place = context.env_var(variable).unwrap_or_else(|| usual.into());
    let Some(path) = context.expand_home_dir(&place) else { return Ok((Ini::new(), place)) };
    match context.file_read_as_string(&path).await {
        Ok(text) => Ok((parse(&text, &place)?, place)),
        Err(error) if finds(&error, is_absent) => Ok((Ini::new(), place)),
        Err(error) => Err(error),
    }
}

fn parse(text: &str, place: &str) -> Result<Ini> {
    let wrong = |error| Error::config_invalid(format!("{place} is not understood: {error}"));
    // As AWS's tools do: quotes are part of a value, and so is a backslash.
    let as_it_stands = ParseOption { enabled_quote: false, enabled_escape: false, ..ParseOption::default() };
    Ini::load_from_str_opt(text, as_it_stands).map_err(wrong)
}
