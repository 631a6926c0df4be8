//! What a node says of the cluster that it is a member of.

use serde::{Deserialize, Serialize};

/// Nodes that are one cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cluster {
    /// Where the members are told.
    pub members_from: String,
    /// Why the members are as they were: what tells of them is out of reach, or can't be meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_trouble: Option<String>,
    /// Members prove who they are, and nobody else hears what they say.
    #[serde(default)]
    pub encrypted: bool,
    pub members: Vec<Member>,
    /// Bytes had from other members, and given to them.
    pub had_bytes: u64,
    pub served_bytes: u64,
    /// Stripes that others keep because this node, which owns them, has no room.
    #[serde(default)]
    pub placed: u64,
    /// Runs of blocks that others own, for which this node asked the store all the same.
    pub around: u64,
    /// Requests that members refused, since they don't read that store by the same credentials.
    pub not_mine: u64,
    /// Requests to members that broke off, fell silent, or found nobody.
    pub broken: u64,
    /// Blocks that arrived damaged, and were asked for elsewhere.
    pub damaged: u64,
}

/// One of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Member {
    pub name: String,
    pub address: String,
    pub weight: u32,
    /// It is this node.
    pub me: bool,
    /// It answered what it was asked last, or was not asked.
    pub answering: bool,
    /// Why it doesn't, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A data set that a node has for other members alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Serving {
    pub url: String,
    /// Files in the data set, and their bytes.
    pub objects: u64,
    pub bytes: u64,
    /// When the data set was listed, seconds since 1970.
    pub listed_at: i64,
    /// Whether the background fill began, and what it fetched.
    pub filling: bool,
    pub filled_files: u64,
    pub filled_bytes: u64,
}
