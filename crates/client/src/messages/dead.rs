//! Mounts that nobody serves any more.

use serde::{Deserialize, Serialize};

/// Mounts of nodes that were killed: a line of its own in `stoker status --json`, if there are any.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Dead {
    pub dead: Vec<DeadMount>,
}

/// A mount whose node was killed: all that is asked of it fails, until `stoker umount` takes it away.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeadMount {
    pub path: String,
    pub url: String,
}
