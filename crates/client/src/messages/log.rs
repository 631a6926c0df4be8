//! What a node tells of what happened in it.

use serde::{Deserialize, Serialize};

/// Where a node writes what happened, and how much of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    /// Empty if it writes to no file.
    pub path: String,
    /// `error`, `warn`, `info` or `debug`.
    pub level: String,
    /// `text` or `json`.
    pub format: String,
}

/// One thing that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Seconds since 1970.
    pub at: f64,
    /// `error`, `warn`, `info` or `debug`.
    pub level: String,
    pub text: String,
}

/// `PUT /v1/log`: write from now on what is at least this grave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Level {
    pub level: String,
}
