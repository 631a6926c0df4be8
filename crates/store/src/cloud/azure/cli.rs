//! The account that somebody logged in with by Azure's command-line tool, which hands out its tokens.
//!
//! Invariant: the tool runs once at a time, and no longer than its limit. A token is kept until four minutes before it
//! runs out.

use super::super::messenger::Failed;
use super::keys::claims;
use crate::command::Program;
use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::azure::AzureCredential;
use object_store::client::{HttpError, HttpErrorKind};
use reqsign_core::time::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The tool.
pub const CLI: &str = "az";

/// How long it may take. It needs a second or two.
const CLI_MAX: Duration = Duration::from_secs(30);

/// What it is asked for.
const ASKED: [&str; 6] =
    ["account", "get-access-token", "--output", "json", "--scope", "https://storage.azure.com/.default"];

/// How long before it runs out a token is not used any more.
const SPARE: Duration = Duration::from_secs(240);

/// How long a token is used at most, whatever it says. It says an hour or so.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Asks the tool.
pub struct Cli {
    program: String,
    /// Those of whoever asks.
    variables: BTreeMap<String, String>,
    limit: Duration,
    kept: Mutex<Option<(Arc<AzureCredential>, Instant)>>,
}

impl Cli {
    pub fn new(variables: &BTreeMap<String, String>) -> Cli {
        Cli { program: CLI.into(), variables: variables.clone(), limit: CLI_MAX, kept: Mutex::default() }
    }
}

impl fmt::Debug for Cli {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Cli")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    access_token: String,
}

#[async_trait]
impl CredentialProvider for Cli {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        let mut kept = self.kept.lock().await;
        if let Some((token, until)) = &*kept
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        let Cli { program: name, variables, limit, .. } = self;
        let program = Program { name, arguments: &ASKED.map(String::from), variables, limit: *limit };
        let said = program.said().await.map_err(|failed| match failed.passes() {
            true => wrong(HttpError::new(HttpErrorKind::Timeout, failed)),
            false => wrong(failed),
        })?;
        let token: Token = serde_json::from_slice(&said).map_err(|_| wrong(Failed("there is no token".into())))?;
        let ends = claims(&token.access_token).and_then(|claims| claims["exp"].as_i64()).unwrap_or_default();
        let left = u64::try_from(ends.saturating_sub(Timestamp::now().as_second())).unwrap_or_default();
        let until = Instant::now() + Duration::from_secs(left).min(LONGEST).saturating_sub(SPARE);
        let token = Arc::new(AzureCredential::BearerToken(token.access_token));
        *kept = Some((token.clone(), until));
        Ok(token)
    }
}

fn wrong(error: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: CLI, source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A tool that notes each run.
    fn tool(script: &str, limit: Duration) -> (tempfile::TempDir, Cli) {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("az");
        let script = format!("#!/bin/sh\necho $1 $$ >> {}/runs\n{script}", folder.path().display());
        std::fs::write(&program, script).expect("a file");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it can be run");
        let program = program.to_str().expect("a path").to_owned();
        (folder, Cli { program, limit, ..Cli::new(&BTreeMap::new()) })
    }

    fn runs(folder: &tempfile::TempDir) -> usize {
        std::fs::read_to_string(folder.path().join("runs")).unwrap_or_default().matches("account").count()
    }

    #[tokio::test]
    async fn the_tool_is_run_once_for_a_token_that_is_good_and_each_time_for_one_that_says_nothing() {
        // {"exp":4070908800}
        for (token, expected) in [("e30.eyJleHAiOjQwNzA5MDg4MDB9.x", 1), ("e30.e30.x", 2)] {
            let script = format!("echo '{{\"accessToken\": \"{token}\", \"tokenType\": \"Bearer\"}}'");
            let (folder, cli) = tool(&script, CLI_MAX);
            let both = tokio::join!(cli.get_credential(), cli.get_credential());
            for found in [both.0.expect("a token"), both.1.expect("a token")] {
                assert!(matches!(&*found, AzureCredential::BearerToken(found) if found == token));
            }
            assert_eq!(runs(&folder), expected);
        }
    }

    #[tokio::test]
    async fn a_tool_that_hangs_is_ended_before_it_is_run_again_and_one_that_fails_is_heard() {
        let (folder, cli) = tool("exec sleep 300", Duration::from_millis(300));
        for run in 1..3 {
            let error = cli.get_credential().await.expect_err("it hangs");
            assert!(crate::s3::wire::finds(&error, |_: &HttpError| true), "it may pass: {error}");
            assert_eq!(runs(&folder), run);
        }
        let (_folder, cli) = tool("echo Please run az login >&2; exit 1", CLI_MAX);
        let error = cli.get_credential().await.expect_err("nobody logged in");
        let said = crate::s3::wire::causes(&error);
        assert!(said.contains("exit status: 1") && !said.contains("Please"), "{said}");
    }
}
