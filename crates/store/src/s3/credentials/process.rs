//! A program that a profile names to hand out keys (`credential_process`).
//!
//! Invariant: what it says is understood or not; no word of it is repeated.

use crate::command::Program;
use crate::fingerprint;
use reqsign_aws_v4::Credential;
use reqsign_core::{Context, Error, ProvideCredential, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How long it may take: some have somebody asked.
const LIMIT: Duration = Duration::from_secs(60);

/// The only form of the answer that there is.
const VERSION: u32 = 1;

/// A program and its arguments.
pub struct Process {
    words: Vec<String>,
    /// Those of whoever asks.
    variables: BTreeMap<String, String>,
}

/// What it is to say.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Said {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl Process {
    /// A command as a profile has it, split as a shell splits it.
    pub fn of(command: &str, context: &Context) -> Result<Process> {
        let wrong = |what: &str| Error::config_invalid(format!("credential_process {what}"));
        let words = shlex::split(command).ok_or_else(|| wrong("has a quote that does not end"))?;
        if words.is_empty() {
            return Err(wrong("names no program"));
        }
        Ok(Process { words, variables: context.env_vars().into_iter().collect() })
    }

    /// Whom it hands out keys for: by its words, and by what it finds in the environment. The keys are others each time.
    pub fn who(&self) -> String {
        let variables = self.variables.iter().filter(|(name, _)| *name == "HOME" || name.starts_with("AWS_"));
        let all: Vec<_> =
            self.words.iter().cloned().chain(variables.map(|(name, value)| format!("{name}={value}"))).collect();
        format!("command {}", fingerprint::of("command", all.join("\0")))
    }
}

impl ProvideCredential for Process {
    type Credential = Credential;

    async fn provide_credential(&self, _: &Context) -> Result<Option<Credential>> {
        let (name, arguments) = self.words.split_first().expect("checked when it was made");
        let program = Program { name, arguments, variables: &self.variables, limit: LIMIT };
        let said = program.said().await.map_err(|failed| match failed.passes() {
            true => Error::unexpected(failed.to_string()),
            false => Error::credential_invalid(failed.to_string()),
        })?;
        let understood = serde_json::from_slice(&said).ok().filter(|said: &Said| said.version == VERSION);
        let said = understood.ok_or_else(|| {
            let what =
                format!("what {name} says is not understood: {} bytes, no JSON with Version 1 and keys", said.len());
            Error::credential_invalid(what)
        })?;
        Ok(Some(Credential {
            access_key_id: said.access_key_id,
            secret_access_key: said.secret_access_key,
            session_token: said.session_token.filter(|token| !token.is_empty()),
            // Of keys that end at a time that is not understood, the store says when they have.
            expires_in: said.expiration.and_then(|end| end.parse().ok()),
        }))
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Process")
    }
}
