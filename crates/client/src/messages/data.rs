//! What is said on the data socket, by which programs read without a mount. The frames are drawn in docs/format.md.

use super::{HintRequest, Keys, Order, Problem, Variables};
use serde::{Deserialize, Serialize};

/// Of what is said; another is refused.
pub const DATA_VERSION: u32 = 1;

/// Names or ranges in one question.
pub const ITEMS_MAX: usize = 64;

/// The first message of a connection: which data set is meant. By a URL it is opened as a mount would, with these
/// credentials; a path is that of a mount of this node or below it, else a local folder.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    pub version: u32,
    pub url: Option<String>,
    pub path: Option<String>,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub profile: Option<String>,
    pub anonymous: bool,
    pub keys: Option<Keys>,
    pub variables: Variables,
}

/// The answer to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Welcome {
    pub version: u32,
    pub pid: u32,
    pub url: String,
    /// Where it is mounted, if it is: the folder whose names are meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounted: Option<String>,
    /// Files in the data set.
    pub objects: u64,
    pub bytes: u64,
}

/// What may be asked after that.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Answered by [`Items`].
    Read(Wanted),
    /// Answered by [`Items`] that lend nothing.
    Look { names: Vec<String> },
    /// Answered by several [`Names`].
    List(Listed),
    /// Fetch ahead. Answered by several [`super::Loaded`].
    Load(Select),
    /// Answered by [`super::Hinted`].
    Hint(HintRequest),
    /// List the data set again. Answered by [`Welcome`].
    Refresh {},
    /// What was lent is given back. Not answered.
    Done {},
}

/// What to read: so many names, and for each, if it is not all of the file, the first byte and how many.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    pub names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Vec<(u64, Option<u64>)>>,
    /// For each, 0, or the node by which the answer before gave the beginning of it: this version goes on, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<u64>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Listed {
    pub under: String,
    /// All files below it; else what is directly in it.
    pub deep: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Select {
    pub under: String,
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub list: Option<Vec<String>>,
    pub verify: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Items {
    pub items: Vec<Item>,
}

/// One file of an answer: whole as a descriptor, in part as an extent of memory, or why not.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Item {
    /// Of the file.
    pub size: u64,
    pub node: u64,
    /// Which of the descriptors of the frame has all of its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<u32>,
    /// Where the bytes begin in the memory whose descriptor is the last of the frame. There may be fewer than were asked
    /// for, also none: the rest is asked for again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// CRC-32 (that of zip) of the extent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crc: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub folder: bool,
    /// Seconds since 1970, in nanoseconds; only where it was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// Some names: of what is directly in a folder with a slash behind those of folders. More follow, or none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Names {
    pub names: Vec<(String, u64)>,
    pub more: bool,
}

/// A part of `stoker status --json`: what programs read without a mount.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lending {
    pub connections: u64,
    /// Files given as descriptors so far, and files of which bytes were copied.
    pub files_lent: u64,
    pub files_copied: u64,
    pub bytes_copied: u64,
    /// Lent at the moment: descriptors, the bytes of their files, and memory.
    pub lent_files: u64,
    pub lent_bytes: u64,
    pub lent_memory: u64,
}

/// A data set that programs read without a mount.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Opened {
    pub url: String,
    pub objects: u64,
    pub bytes: u64,
    /// When it was listed, seconds since 1970.
    pub listed_at: i64,
    pub connections: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Order>,
}
