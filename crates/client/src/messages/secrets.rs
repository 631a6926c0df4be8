//! What a caller hands to its node of its own environment.
//!
//! Invariant: `Debug` shows nothing of it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Static credentials. `Debug` shows nothing of them.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Keys(hidden)")
    }
}

/// Variables of an environment, some of which are secrets. `Debug` shows nothing of them.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Variables(pub BTreeMap<String, String>);

impl Variables {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Variables(hidden)")
    }
}
