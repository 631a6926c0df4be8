//! Who we are: the sources of credentials in the order that AWS's own tools use.
//!
//! The sources are `reqsign`'s; here they are joined, given HTTP, files and commands, and completed by roles
//! of a profile (`role_arn` with `source_profile` or `credential_source`), which it lacks.
//!
//! Invariant: what is typed as a secret is never printed.

use super::wire::{Timeouts, Wire, causes};
use crate::Counters;
use crate::retry::Chance;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use ini::Ini;
use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, AssumeRoleWithWebIdentityCredentialProvider, Credential, DefaultCredentialProvider,
    ECSCredentialProvider, EnvCredentialProvider, IMDSv2CredentialProvider, ProfileCredentialProvider, RequestSigner,
    StaticCredentialProvider,
};
use reqsign_core::{
    CommandExecute, CommandOutput, Context, Error, FileRead, HttpSend, OsEnv, ProvideCredential, ProvideCredentialDyn,
    Result, Signer,
};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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

/// Times for those who hand out credentials: they are near, or not there at all, as on a machine without a role.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(1), first_byte: Duration::from_secs(5), idle: Duration::from_secs(5) };

/// Bytes of an answer with credentials: a token takes a few thousand.
const ANSWER_MAX: usize = 1 << 20;

/// How deep profiles may take their credentials from other profiles. AWS's tools know no limit but a circle.
const PROFILES_DEEP: usize = 4;

/// Name of a session of an assumed role, as the audit log of the account shows it.
const SESSION: &str = "stoker";

/// The source that these credentials name; none for nobody.
pub fn source(
    credentials: &Credentials,
    region: &str,
    context: &Context,
) -> Option<Box<dyn ProvideCredentialDyn<Credential = Credential>>> {
    match credentials {
        Credentials::Anonymous => None,
        Credentials::Keys { id, secret, token } => {
            let fixed = StaticCredentialProvider::new(id, secret);
            Some(Box::new(match token {
                Some(token) => fixed.with_session_token(token),
                None => fixed,
            }))
        }
        Credentials::Found { profile } => {
            let chain = DefaultCredentialProvider::builder();
            let chain = match profile {
                Some(profile) => chain.no_env().with_profile(profile),
                None => chain.no_env(),
            };
            let roles = Roles { profile: profile.clone(), region: region.into(), context: context.clone() };
            let chain = chain.build().push_front(roles);
            Some(match profile {
                Some(_) => Box::new(chain),
                None => Box::new(chain.push_front(EnvCredentialProvider::new())),
            })
        }
    }
}

/// What the sources may use of this machine.
pub fn context(chance: Arc<Chance>) -> Context {
    Context::new().with_env(OsEnv).with_file_read(Files).with_command_execute(Commands).with_http_send(Messenger {
        wire: OnceLock::new(),
        counters: Arc::default(),
        chance,
    })
}

/// Roles that a profile asks to assume.
#[derive(Debug)]
struct Roles {
    profile: Option<String>,
    region: String,
    context: Context,
}

impl ProvideCredential for Roles {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let profile =
            self.profile.clone().or_else(|| context.env_var("AWS_PROFILE")).unwrap_or_else(|| "default".into());
        let files = Profiles::read(context).await;
        match self.role(&files, &profile, PROFILES_DEEP)? {
            Some(source) => source.provide_credential_dyn(context).await,
            None => Ok(None),
        }
    }
}

type Source = Box<dyn ProvideCredentialDyn<Credential = Credential>>;

impl Roles {
    /// The source that assumes the role of a profile, if it has one.
    fn role(&self, files: &Profiles, profile: &str, deep: usize) -> Result<Option<Source>> {
        let Some(role) = files.get(profile, "role_arn") else { return Ok(None) };
        if deep == 0 {
            return Err(Error::config_invalid(format!("profile {profile}: source_profile goes round in a circle")));
        }
        if let Some(file) = files.get(profile, "web_identity_token_file") {
            let source = AssumeRoleWithWebIdentityCredentialProvider::with_config(role.into(), file.into());
            return Ok(Some(Box::new(source)));
        }
        let region = files.get(profile, "region").unwrap_or(&self.region).to_owned();
        let sign = RequestSigner::new("sts", &region);
        let signer = match (files.get(profile, "source_profile"), files.get(profile, "credential_source")) {
            (Some(source), _) => {
                let above = if source == profile { None } else { self.role(files, source, deep - 1)? };
                match above {
                    Some(above) => Signer::new(self.context.clone(), Boxed(above), sign),
                    None => {
                        let keys = ProfileCredentialProvider::new().with_profile(source);
                        Signer::new(self.context.clone(), keys, sign)
                    }
                }
            }
            (None, Some("Environment")) => Signer::new(self.context.clone(), EnvCredentialProvider::new(), sign),
            (None, Some("EcsContainer")) => Signer::new(self.context.clone(), ECSCredentialProvider::default(), sign),
            (None, Some("Ec2InstanceMetadata")) => {
                Signer::new(self.context.clone(), IMDSv2CredentialProvider::default(), sign)
            }
            _ => return Err(Error::config_invalid(format!("profile {profile} names a role but no source for it"))),
        };
        let mut source = AssumeRoleCredentialProvider::new(role.into(), signer).with_region(region);
        source = source.with_regional_sts_endpoint();
        source = source.with_role_session_name(files.get(profile, "role_session_name").unwrap_or(SESSION).into());
        if let Some(id) = files.get(profile, "external_id") {
            source = source.with_external_id(id.into());
        }
        Ok(Some(Box::new(source)))
    }
}

/// A source as a value, for those who take one by type.
#[derive(Debug)]
struct Boxed(Source);

impl ProvideCredential for Boxed {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        self.0.provide_credential_dyn(context).await
    }
}

/// The two files of profiles.
struct Profiles {
    config: Ini,
    credentials: Ini,
}

impl Profiles {
    async fn read(context: &Context) -> Profiles {
        let config = read(context, "AWS_CONFIG_FILE", "~/.aws/config").await;
        let credentials = read(context, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials").await;
        Profiles { config, credentials }
    }

    fn get(&self, profile: &str, name: &str) -> Option<&str> {
        let section = if profile == "default" { profile.to_owned() } else { format!("profile {profile}") };
        let configured = self.config.section(Some(section)).and_then(|found| found.get(name));
        configured.or_else(|| self.credentials.section(Some(profile)).and_then(|found| found.get(name)))
    }
}

/// A file of profiles; an absent or unreadable one has none, as with AWS's tools.
async fn read(context: &Context, variable: &str, usual: &str) -> Ini {
    let path = context.env_var(variable).unwrap_or_else(|| usual.into());
    let Some(path) = context.expand_home_dir(&path) else { return Ini::new() };
    let text = context.file_read_as_string(&path).await.unwrap_or_default();
    Ini::load_from_str(&text).unwrap_or_else(|_| Ini::new())
}

/// Reads small files off the threads that serve requests.
#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>> {
        let owned = path.to_owned();
        let read = tokio::task::spawn_blocking(move || std::fs::read(owned)).await;
        let read = read.map_err(|error| Error::unexpected("reading a file was given up").with_source(error))?;
        read.map_err(|error| Error::config_invalid(format!("can't read {path}: {error}")))
    }
}

/// Runs the commands that a profile names (`credential_process`).
#[derive(Debug)]
struct Commands;

impl CommandExecute for Commands {
    async fn command_execute<'a>(&'a self, program: &'a str, arguments: &'a [&'a str]) -> Result<CommandOutput> {
        let mut command = std::process::Command::new(program);
        command.args(arguments).stdin(std::process::Stdio::null());
        let done = tokio::task::spawn_blocking(move || command.output()).await;
        let done = done.map_err(|error| Error::unexpected("a command was given up").with_source(error))?;
        let done = done.map_err(|error| Error::config_invalid(format!("can't run {program}: {error}")))?;
        Ok(CommandOutput { status: done.status.code().unwrap_or(-1), stdout: done.stdout, stderr: done.stderr })
    }
}

/// Asks those who hand out credentials, over a client of its own that is made at the first use.
struct Messenger {
    wire: OnceLock<Wire>,
    counters: Arc<Counters>,
    chance: Arc<Chance>,
}

impl fmt::Debug for Messenger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Messenger")
    }
}

impl HttpSend for Messenger {
    async fn http_send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>> {
        let wire = match self.wire.get() {
            Some(wire) => wire,
            None => {
                let wire =
                    Wire::open(true, TIMEOUTS, self.chance.clone()).map_err(|error| Error::unexpected(error.what))?;
                self.wire.get_or_init(|| wire)
            }
        };
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answer = wire.send(request.map(Full::new), &self.counters, &host, &host).await;
        let (head, body) = answer.map_err(|error| Error::unexpected(error.what))?.into_parts();
        let body = tokio::time::timeout(TIMEOUTS.idle, Limited::new(body, ANSWER_MAX).collect()).await;
        let body = body.map_err(|_| Error::unexpected(format!("{host} paused in its answer")))?;
        let body = body.map_err(|error| Error::unexpected(format!("{host} broke off: {}", causes(&*error))))?;
        Ok(http::Response::from_parts(head, body.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqsign_core::StaticEnv;

    /// A machine with this configuration, and nobody to ask over the network.
    fn machine(config: &str, variables: &[(&str, &str)]) -> (tempfile::TempDir, Context) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
        std::fs::write(path("config"), config).expect("a file");
        let files = [("AWS_CONFIG_FILE", path("config")), ("AWS_SHARED_CREDENTIALS_FILE", path("absent"))];
        let given = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let envs = files.map(|(name, value)| (name.to_string(), value)).into_iter().chain(given).collect();
        let context = Context::new().with_env(StaticEnv { home_dir: None, envs });
        (directory, context.with_file_read(Files).with_command_execute(Commands))
    }

    async fn found(config: &str, profile: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<String>> {
        let (_directory, context) = machine(config, variables);
        let credentials = Credentials::Found { profile: profile.map(Into::into) };
        let source = source(&credentials, "us-east-1", &context).expect("somebody");
        Ok(source.provide_credential_dyn(&context).await?.map(|found| found.access_key_id))
    }

    const CONFIG: &str = "[profile one]\naws_access_key_id = one\naws_secret_access_key = s\n\
        [profile command]\ncredential_process = printf {\"Version\":1,\"AccessKeyId\":\"made\",\"SecretAccessKey\":\"s\"}\n\
        [profile round]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = trip\n\
        [profile trip]\nrole_arn = arn:aws:iam::123456789012:role/t\nsource_profile = round\n\
        [profile alone]\nrole_arn = arn:aws:iam::123456789012:role/r\n";

    #[tokio::test]
    async fn a_named_profile_goes_before_the_environment_and_the_environment_before_the_rest() {
        let env = [("AWS_ACCESS_KEY_ID", "env"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_PROFILE", "one")];
        assert_eq!(found(CONFIG, None, &env).await.expect("keys").as_deref(), Some("env"));
        assert_eq!(found(CONFIG, Some("one"), &env).await.expect("keys").as_deref(), Some("one"));
        assert_eq!(found(CONFIG, None, &env[2..]).await.expect("keys").as_deref(), Some("one"));
    }

    #[tokio::test]
    async fn roles_that_lead_nowhere_are_errors() {
        for (profile, reason) in [("round", "circle"), ("alone", "no source")] {
            let (_directory, context) = machine(CONFIG, &[]);
            let roles = Roles { profile: Some(profile.into()), region: "us-east-1".into(), context: context.clone() };
            let error = roles.provide_credential(&context).await.expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let keys = Credentials::Keys { id: "id".into(), secret: "hush".into(), token: Some("hush".into()) };
        let shown = format!("{keys:?}");
        assert!(shown.contains("id") && !shown.contains("hush"), "{shown}");
    }
}
