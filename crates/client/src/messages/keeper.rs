//! How long a node goes on, and what outlives its process.

use serde::{Deserialize, Serialize};

/// Whether mounts outlive the process that serves them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Keeper {
    /// `on`, or why not.
    pub state: String,
    /// The process that holds them meanwhile; none if that is systemd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// `POST /v1/holds`: end the mount when the caller hangs up, as [`super::MountRequest::hold`] does, in the process that goes on
/// with it. Answered as [`super::MountRequest`] is, from `mounted` on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HoldRequest {
    pub path: String,
    pub id: u64,
    /// Of a caller of an earlier version none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What happens meanwhile is sent too, if it is at least this grave; nothing if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tell: Option<String>,
}

/// A mount of a process that is gone, with which this one does not go on yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coming {
    pub id: u64,
    pub url: String,
    pub path: String,
    /// Seconds since 1970.
    pub since: f64,
    /// What it waits for, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// `POST /v1/restart`: another process goes on with all mounts. This one may end before it has answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Restart {
    /// By this program, an absolute path, instead of the one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// Until when a node may go on. Times are seconds since 1970.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lease {
    pub ends_at: f64,
    /// When the credentials end that it was handed over, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_end_at: Option<f64>,
}
