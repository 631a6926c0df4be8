//! Which mount is meant.

use serde::{Deserialize, Serialize};

/// A mount: `DELETE /v1/mounts`, which answers whether it is [`super::Mount::held_elsewhere`] or nothing; `POST /v1/refresh`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MountPath {
    /// The mount point, absolute, or a path below it.
    pub path: String,
    /// This mount at this path and no other, whatever is there by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The same, if its data set is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// End it also while it is in use: out of sight at once, and for good when the last file is closed.
    #[serde(default)]
    pub lazy: bool,
    /// Not at this path alone, but wherever it is, and what is bound of its folders.
    #[serde(default)]
    pub everywhere: bool,
}
