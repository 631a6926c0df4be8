//! Who we are: one source of credentials, found in the order that AWS's own tools use, and whom it stands for.
//!
//! The sources are `reqsign`'s, but for `process` and `sso`; which of them is meant is settled here, and roles of a profile (`role_arn` with
//! `source_profile` or `credential_source`), which it lacks, are added.
//!
//! Layout: `profiles` (the two files) and `sections` (their text), `process` (a program), `sso` (who logged in), `machine` (what the sources may use of this machine).
//!
//! Invariants: what is typed as a secret is never printed. A source that was named and fails is an error that names
//! it; nobody becomes somebody else because of it.

pub mod machine;
mod process;
pub(crate) mod profiles;
mod sections;
mod sso;

use super::wire::causes;
use crate::retry::Chance;
use process::Process;
use profiles::{FileKeys, Profile, Profiles};
use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, AssumeRoleWithWebIdentityCredentialProvider, Credential, ECSCredentialProvider,
    EnvCredentialProvider, IMDSv2CredentialProvider, RequestSigner, StaticCredentialProvider,
};
use reqsign_core::{Context, Error, ProvideCredential, ProvideCredentialDyn, Result, Signer, StaticEnv};
use sso::Sso;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Who we are.
#[derive(Clone, Hash)]
pub enum Credentials {
    /// As AWS's tools find them: environment, profile, web identity, process, container, machine. A profile
    /// that is named here goes before the environment.
    Found { profile: Option<String> },
    /// Nobody: for public buckets.
    Anonymous,
    /// These keys.
    Keys { id: String, secret: String, token: Option<String> },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::Found { profile } => out.debug_struct("Found").field("profile", profile).finish(),
            Credentials::Anonymous => out.write_str("Anonymous"),
            Credentials::Keys { id, .. } => out.debug_struct("Keys").field("id", id).finish_non_exhaustive(),
        }
    }
}

/// How deep profiles may take their credentials from other profiles. AWS's tools know no limit but a circle.
const PROFILES_DEEP: usize = 4;

/// Name of a session of an assumed role, as the audit log of the account shows it.
const SESSION: &str = "stoker";

pub type Provider = Box<dyn ProvideCredentialDyn<Credential = Credential>>;

/// The source that is meant.
pub struct Found {
    /// As an error names it: `profile train`.
    pub name: String,
    /// The principal, where it is known before any credentials are had. Keys stand for themselves.
    pub who: Option<String>,
    pub source: Provider,
    /// Tried because nothing else was named: having nothing there is no failure of anybody.
    pub is_last_resort: bool,
    /// Whether it hands out the same keys whenever it is asked.
    pub is_fixed: bool,
}

impl Found {
    fn new(
        name: impl Into<String>,
        who: Option<String>,
        source: impl ProvideCredential<Credential = Credential>,
    ) -> Found {
        Found { name: name.into(), who, source: Box::new(source), is_last_resort: false, is_fixed: false }
    }

    /// Keys that are as they are.
    fn fixed(name: &str, source: impl ProvideCredential<Credential = Credential>) -> Found {
        Found { is_fixed: true, ..Found::new(name, None, source) }
    }
}

/// Variables by which AWS's tools find credentials.
pub type Variables = BTreeMap<String, String>;

/// The environment of whoever asks; without any, that of this process.
pub fn environment_of(variables: &Variables) -> Context {
    if variables.is_empty() {
        let set = std::env::vars_os();
        let envs =
            set.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
        return Context::new().with_env(StaticEnv { home_dir: std::env::home_dir(), envs });
    }
    let envs: HashMap<String, String> = variables.clone().into_iter().collect();
    let home_dir = envs.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    Context::new().with_env(StaticEnv { home_dir, envs })
}

/// Refuse a profile that is in no file, and half a key.
pub async fn check(credentials: &Credentials, variables: &Variables) -> block::Result<()> {
    let Credentials::Found { profile } = credentials else { return Ok(()) };
    let Some(name) = profile else {
        return key(&environment_of(variables)).map(|_| ()).map_err(|error| {
            let error = block::Error::invalid(causes(&error), "the environment");
            error.hint("set both, or neither of them")
        });
    };
    let wrong = |error: Error| {
        let error = block::Error::invalid(causes(&error), format!("profile {name}"));
        error.hint("check --profile, AWS_PROFILE and the files of profiles")
    };
    let (context, _) = machine::context(variables, Arc::new(Chance::new(0)));
    let files = Profiles::read(&context).await.map_err(wrong)?;
    if files.profile(name).is_some() { Ok(()) } else { Err(wrong(files.unknown(name))) }
}

/// The source that these credentials name; none for nobody.
pub async fn find(credentials: &Credentials, region: &str, context: &Context) -> Result<Option<Found>> {
    match credentials {
        Credentials::Anonymous => Ok(None),
        Credentials::Keys { id, secret, token } => {
            let fixed = StaticCredentialProvider::new(id, secret);
            let fixed = match token {
                Some(token) => fixed.with_session_token(token),
                None => fixed,
            };
            Ok(Some(Found::fixed("these keys", fixed)))
        }
        // What is there goes before all files, which need not even be readable.
        Credentials::Found { profile: None } if key(context)? => {
            Ok(Some(Found::fixed("the environment", EnvCredentialProvider::new())))
        }
        Credentials::Found { profile } => {
            let files = Profiles::read(context).await?;
            let search = Search { files, region, context };
            search.find(profile.as_deref()).map(Some)
        }
    }
}

/// Whether the environment has a key.
fn key(context: &Context) -> Result<bool> {
    let set = |name| context.env_var(name).is_some_and(|value| !value.is_empty());
    match ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(set) {
        [false, false] => Ok(false),
        [true, true] => Ok(true),
        [id, _] => {
            let absent = if id { "AWS_SECRET_ACCESS_KEY" } else { "AWS_ACCESS_KEY_ID" };
            Err(Error::config_invalid(format!("the environment has half a key: {absent} is not set")))
        }
    }
}

struct Search<'a> {
    files: Profiles,
    region: &'a str,
    context: &'a Context,
}

impl Search<'_> {
    fn find(&self, asked: Option<&str>) -> Result<Found> {
        let variable = || self.variable("AWS_PROFILE").or_else(|| self.variable("AWS_DEFAULT_PROFILE"));
        let named = asked.map(str::to_owned).or_else(variable);
        let name = named.as_deref().unwrap_or("default");
        let profile = match self.files.profile(name) {
            Some(profile) => Some(profile),
            None if named.is_some() => return Err(self.files.unknown(name)),
            None => None,
        };
        if let Some(profile) = &profile
            && let Some(role) = self.role(profile, PROFILES_DEEP)?
        {
            return Ok(role);
        }
        if asked.is_none()
            && let Some(token) = self.web_identity()?
        {
            return Ok(token);
        }
        if let Some(profile) = &profile
            && let Some(own) = self.own(profile)?
        {
            return Ok(own);
        }
        Ok(self.container().unwrap_or_else(|| Found {
            is_last_resort: true,
            ..Found::new("this machine's role", None, IMDSv2CredentialProvider::default())
        }))
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.context.env_var(name).filter(|value| !value.is_empty())
    }

    fn web_identity(&self) -> Result<Option<Found>> {
        const VARIABLE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
        let Some(_) = self.variable(VARIABLE) else { return Ok(None) };
        let Some(role) = self.variable("AWS_ROLE_ARN") else {
            return Err(Error::config_invalid(format!("{VARIABLE} is set and AWS_ROLE_ARN is not")));
        };
        let source = AssumeRoleWithWebIdentityCredentialProvider::new();
        Ok(Some(Found::new(VARIABLE, Some(format!("role {role}")), source)))
    }

    fn container(&self) -> Option<Found> {
        let variables = ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
        let variable = variables.into_iter().find(|name| self.variable(name).is_some())?;
        Some(Found::new(variable, None, ECSCredentialProvider::default()))
    }

    /// The source that assumes the role of a profile, if it has one.
    fn role(&self, profile: &Profile<'_>, deep: usize) -> Result<Option<Found>> {
        let Some(role) = profile.get("role_arn") else { return Ok(None) };
        let name = format!("profile {}", profile.name);
        if deep == 0 {
            return Err(Error::config_invalid(format!("{name}: source_profile goes round in a circle")));
        }
        let who = Some(format!("role {role}"));
        if let Some(file) = profile.get("web_identity_token_file") {
            let source = AssumeRoleWithWebIdentityCredentialProvider::with_config(role.into(), file.into());
            return Ok(Some(Found::new(name, who, source)));
        }
        let region = profile.get("region").unwrap_or(self.region).to_owned();
        let above = match (profile.get("source_profile"), profile.get("credential_source")) {
            (Some(above), _) => self.above(profile, above, deep - 1)?,
            (None, Some("Environment")) => Box::new(EnvCredentialProvider::new()),
            (None, Some("EcsContainer")) => Box::new(ECSCredentialProvider::default()),
            (None, Some("Ec2InstanceMetadata")) => Box::new(IMDSv2CredentialProvider::default()),
            _ => return Err(Error::config_invalid(format!("{name} names a role but no source for it"))),
        };
        let signer = Signer::new(self.context.clone(), Boxed(above), RequestSigner::new("sts", &region));
        let mut source = AssumeRoleCredentialProvider::new(role.into(), signer).with_region(region);
        source = source.with_regional_sts_endpoint();
        source = source.with_role_session_name(profile.get("role_session_name").unwrap_or(SESSION).into());
        if let Some(id) = profile.get("external_id") {
            source = source.with_external_id(id.into());
        }
        Ok(Some(Found::new(name, who, source)))
    }

    /// The source of the profile by whose credentials another's role is assumed.
    fn above(&self, profile: &Profile<'_>, above: &str, deep: usize) -> Result<Provider> {
        let above = self.files.profile(above).ok_or_else(|| self.files.unknown(above))?;
        let role = if above.name == profile.name { None } else { self.role(&above, deep)? };
        let found = match role {
            Some(role) => Some(role),
            None => self.own(&above)?,
        };
        let nothing = || Error::config_invalid(format!("profile {} has no credentials", above.name));
        found.map(|found| found.source).ok_or_else(nothing)
    }

    /// The source that a profile is by itself, if it is one.
    fn own(&self, profile: &Profile<'_>) -> Result<Option<Found>> {
        let name = format!("profile {}", profile.name);
        if profile.get("sso_start_url").or(profile.get("sso_session")).is_some() {
            let sso = Sso::of(profile, &self.files)?;
            return Ok(Some(Found::new(name, Some(sso.who()), sso)));
        }
        if profile.has_keys()? {
            return Ok(Some(Found::new(name, None, FileKeys(profile.name.into()))));
        }
        let Some(command) = profile.get("credential_process") else { return Ok(None) };
        let process = Process::of(command, self.context)?;
        Ok(Some(Found::new(name, Some(process.who()), process)))
    }
}

/// A source as a value, for those who take one by type.
#[derive(Debug)]
struct Boxed(Provider);

impl ProvideCredential for Boxed {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        self.0.provide_credential_dyn(context).await
    }
}

#[cfg(test)]
mod tests;
