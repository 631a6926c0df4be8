//! What is said on the control socket. Names and units are the documented interface of `stoker status --json`.

mod cluster;
mod data;
mod dead;
mod hint;
mod keeper;
mod kept;
mod log;
mod place;
mod secrets;

pub use cluster::{Cluster, Member, Serving};
pub use data::{
    Ask, DATA_VERSION, Hello, ITEMS_MAX, Item, Items, Lending, Listed, Names, Opened, Select, Wanted, Welcome,
};
pub use dead::{Dead, DeadMount};
pub use hint::{Expected, HintRequest, Hinted, Numbered, Order, Sampler};
pub use keeper::{Coming, HoldRequest, Keeper, Lease, Restart};
pub use kept::{Evicted, Kept, KeptEntry, Verified};
pub use log::{Level, Log, Record};
pub use place::MountPath;
pub use secrets::{Keys, Variables};

use serde::{Deserialize, Serialize};

/// `GET /v1/status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    pub cache: String,
    /// `on`, or `lost: ` and why nothing that lies in the cache folder can be had.
    #[serde(default)]
    pub disk: String,
    /// Since the node started.
    #[serde(default)]
    pub uptime_seconds: f64,
    #[serde(default)]
    pub log: Log,
    /// The last warnings and errors, oldest first.
    #[serde(default)]
    pub errors: Vec<Record>,
    pub mounts: Vec<Mount>,
    /// Mounts of a process that is gone, with which it does not go on yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coming: Vec<Coming>,
    /// Data sets that it has for other members of its cluster, without a mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serving: Vec<Serving>,
    /// Data sets that programs read without a mount, and what they are lent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<Opened>,
    #[serde(default)]
    pub lending: Lending,
    /// Data sets that are being listed for the first time, to be mounted.
    #[serde(default)]
    pub listing: Vec<Listing>,
    pub tiers: Tiers,
    #[serde(default)]
    pub rates: Rates,
    pub store: Store,
    /// Which stores answer.
    #[serde(default)]
    pub stores: Vec<StoreState>,
    #[serde(default)]
    pub waits: Waits,
    pub limits: Limits,
    /// The cluster that this node is a member of, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// Of a node that `stoker up` started: it ends by itself unless that is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Of the path that was asked about, by `stoker status DIR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// It was asked to end, or ends because nothing is mounted any more.
    #[serde(default)]
    pub ending: bool,
    /// Whether its mounts outlive its process.
    #[serde(default)]
    pub keeper: Keeper,
}

/// A data set and where it is mounted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Mount {
    /// Names this mount among all that nodes of its cache folder ever have, also where another is mounted at its path later.
    #[serde(default)]
    pub id: u64,
    pub url: String,
    pub path: String,
    /// `on`, or why not.
    pub passthrough: String,
    /// Processes that served it before this one.
    #[serde(default)]
    pub restarts: u32,
    /// Files in the data set.
    pub objects: u64,
    pub bytes: u64,
    /// Names whose keys can't be paths, and are shown under others.
    pub odd_names: u64,
    /// When the data set was listed, seconds since 1970.
    pub listed_at: i64,
    /// The manifest that its names are from, if they were not listed by this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The snapshot of its names in the cache folder.
    #[serde(default)]
    pub snapshot: String,
    pub immutable: bool,
    /// Files read where they lie instead of being kept.
    pub local: bool,
    pub opens_passed_through: u64,
    pub opens_served: u64,
    pub bytes_served: u64,
    pub interrupted: u64,
    /// Whether the background fill began, and what it fetched.
    pub filling: bool,
    pub filled_files: u64,
    pub filled_bytes: u64,
    /// Files of it that are in the cache to their last byte, and bytes also of others. None of a local folder, and while
    /// they are counted for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_files: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
    /// Orders in which jobs said that they will read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Order>,
    /// Taken out of sight, and served until the last of its files is closed.
    #[serde(default)]
    pub detached: bool,
    /// It was unmounted here, and a part of it is bound elsewhere, or another mount namespace still has a copy of it.
    #[serde(default)]
    pub held_elsewhere: bool,
    /// The last refresh that failed, if the last one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_failed: Option<String>,
    /// Why nothing is asked of its store, if so: it would be asked by somebody else than the mount was made by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A data set that is being listed for a mount that is not there yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Listing {
    pub url: String,
    pub path: String,
    /// Seconds since 1970.
    pub since: f64,
    /// Names that came so far.
    pub names: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tiers {
    pub memory: Tier,
    pub disk: Tier,
    pub origin: Tier,
}

/// What a tier answered. On the disk an open that the kernel reads through counts once, with the file's bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tier {
    pub hits: u64,
    pub bytes: u64,
}

/// What happened in each of the last seconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Over how many seconds they are taken.
    pub seconds: f64,
    pub store_bytes_per_second: f64,
    pub store_requests_per_second: f64,
    /// What the daemon served; what the kernel reads by itself is not seen.
    pub served_bytes_per_second: f64,
    pub opens_per_second: f64,
}

/// Whether a store answers. Times are seconds since 1970.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoreState {
    pub store: String,
    /// It answered what it was asked last, or is not asked.
    pub answering: bool,
    /// Since when it was asked without an answer that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<f64>,
    /// When a request failed last, repeated or not, and with what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// What the stores of the node were asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Store {
    pub requests: u64,
    pub gets: u64,
    pub heads: u64,
    pub lists: u64,
    /// Bytes received, of use or not.
    pub bytes: u64,
    /// Distinct bytes that came since the node began.
    pub unique_bytes: u64,
    /// Bytes that were served and could not be kept.
    pub unkept_bytes: u64,
    /// Answers that asked us to slow down.
    pub throttled: u64,
    pub retries: u64,
    pub errors: u64,
    /// Names that a listing left out because they can't be served (not UTF-8, links out of a folder).
    pub skipped_names: u64,
    /// Objects that the store lists without an ETag: their version is their time of change and their size.
    pub weak_versions: u64,
    pub in_flight: u64,
    /// Seconds that requests waited for leave to be sent, and backed off, summed.
    pub seconds_waiting: f64,
    pub seconds_backing_off: f64,
    /// Requests that were sent a second time because the first answer was late, bytes that they asked for, and how
    /// many were answered first.
    #[serde(default)]
    pub hedged: u64,
    #[serde(default)]
    pub hedged_bytes: u64,
    #[serde(default)]
    pub hedges_won: u64,
    /// Requests that may be in flight at the moment, summed over the stores.
    #[serde(default)]
    pub requests_limit: u64,
    /// Mean seconds from a request to the first byte of its answer.
    pub first_byte_seconds_mean: f64,
}

/// What readers waited for, in seconds summed over all of them. What is fetched ahead of readers doesn't count.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Waits {
    /// For the bytes of bodies.
    pub bandwidth_seconds: f64,
    /// For the first byte of an answer, or for leave to send a request.
    pub requests_seconds: f64,
    /// Because the store asked to slow down.
    pub throttling_seconds: f64,
    /// For the next try after a failure.
    pub errors_seconds: f64,
    /// For other members of the cluster.
    #[serde(default)]
    pub peer_seconds: f64,
    /// For files of the cache that the daemon reads or writes.
    pub disk_seconds: f64,
    /// For checksums.
    pub cpu_seconds: f64,
    pub unknown_seconds: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Anonymous memory that the daemon may use, and uses.
    pub memory_bytes: u64,
    pub memory_used: u64,
    /// Of it: blocks in flight or at hand, and their budget.
    pub blocks_bytes: u64,
    pub blocks_used: u64,
    /// What the index of the cache takes, which grows with its objects and leaves less to blocks.
    pub index_bytes: u64,
    /// Mapped snapshots of names, which the kernel takes back where memory runs short: no part of `memory_used`.
    #[serde(default)]
    pub names_bytes: u64,
    pub disk_bytes: u64,
    pub disk_used: u64,
    /// Of it: what is written.
    #[serde(default)]
    pub disk_written: u64,
    pub disk_files: u64,
    pub disk_files_used: u64,
    /// Bytes that stay free on the file system of the cache.
    pub disk_free_min: u64,
}

/// `POST /v1/mounts`. Settings of the node itself must agree with those of the node that runs. The answer is lines of
/// [`Mounting`]. A caller that hangs up before `mounted` gives the mount up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MountRequest {
    pub url: String,
    pub path: String,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub profile: Option<String>,
    pub anonymous: bool,
    pub immutable: bool,
    /// When to fetch the rest of the set in the background: `auto`, `off` or `all`; `auto` if none.
    pub fill: Option<String>,
    /// Seconds between listings; never if none.
    pub refresh_seconds: Option<u64>,
    /// The file of a manifest that names are taken from, absolute: the store is never listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The mount ends when the caller hangs up, and the answer goes on until then.
    #[serde(default)]
    pub hold: bool,
    /// What happens meanwhile is sent too, if it is at least this grave; nothing if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tell: Option<String>,
    /// What the caller wants of the node: refused if the node has other settings.
    pub cache_bytes: Option<u64>,
    pub memory_bytes: Option<u64>,
    #[serde(default)]
    pub patience_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// `text` or `json`.
    pub log_format: Option<String>,
    #[serde(default)]
    pub group_cache: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<String>,
    /// Owner and permissions of everything in the mount, where they are not to be the usual ones.
    #[serde(default)]
    pub owner: Option<u32>,
    #[serde(default)]
    pub group: Option<u32>,
    #[serde(default)]
    pub file_mode: Option<u32>,
    #[serde(default)]
    pub folder_mode: Option<u32>,
    /// Credentials of the caller's environment, so that the node need not have them. Never logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Keys>,
    /// Its variables by which Google's and Azure's tools find credentials. Never logged.
    #[serde(default, skip_serializing_if = "Variables::is_empty")]
    pub variables: Variables,
}

/// A line of the answer to a [`MountRequest`]: one of these is set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Mounting {
    /// Names that were listed so far, now and then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<u64>,
    /// It is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounted: Option<Mount>,
    /// Something happened in the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// The mount has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// It could not be mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// `POST /v1/load`. The answer is a line of [`Loaded`] now and then, the last with `over`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The mount point or a folder below it.
    pub path: String,
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub list: Option<Vec<String>>,
    pub verify: bool,
}

/// How far a load has come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Loaded {
    pub files: u64,
    pub bytes: u64,
    pub files_done: u64,
    pub bytes_done: u64,
    /// Of those done: there before, or asked for by others already.
    pub files_present: u64,
    pub bytes_present: u64,
    /// Files that were not kept: they did not fit, or had just been written when they were listed.
    pub files_unkept: u64,
    pub files_failed: u64,
    pub failures: Vec<String>,
    /// Requests to the store since the load began.
    pub requests: u64,
    pub over: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// What `POST /v1/refresh` did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Refreshed {
    pub objects: u64,
    pub bytes: u64,
    /// Names whose meaning changed.
    pub changed: u64,
}

/// A failure with its three parts, as every refusal is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `missing`, `changed`, `denied`, `unavailable`, `corrupt`, `full` or `invalid`.
    #[serde(default)]
    pub kind: String,
    pub what: String,
    pub on: String,
    pub hint: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Names of fields at any depth that are no groups of fields.
    fn names(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                if !value.is_object() {
                    found.insert(name.clone());
                }
                names(value, found);
            }),
            Value::Array(all) => all.iter().for_each(|value| names(value, found)),
            _ => {}
        }
    }

    /// Names between backticks, without what they are fields of.
    fn quoted(text: &str) -> BTreeSet<String> {
        let spans = text.split('`').skip(1).step_by(2);
        let last = spans.filter_map(|span| span.split('.').next_back()).map(|name| name.trim_end_matches("[]"));
        last.map(str::to_owned).collect()
    }

    #[test]
    fn every_field_is_documented_and_none_that_is_not_there() {
        let text = || Some(String::new());
        let counted =
            Mount { kept_files: Some(0), kept_bytes: Some(0), orders: vec![Order::default()], ..Mount::default() };
        let mount = Mount { refresh_failed: text(), manifest: text(), ..counted };
        let member = Member { reason: text(), ..Member::default() };
        let store = StoreState {
            silent_since: Some(0.0),
            answered_at: Some(0.0),
            failed_at: Some(0.0),
            failure: text(),
            ..StoreState::default()
        };
        let status = Status {
            errors: vec![Record::default()],
            mounts: vec![mount],
            serving: vec![Serving::default()],
            opened: vec![Opened { orders: vec![Order::default()], ..Opened::default() }],
            listing: vec![Listing::default()],
            stores: vec![store],
            cluster: Some(Cluster { members: vec![member], members_trouble: text(), ..Cluster::default() }),
            lease: Some(Lease { credentials_end_at: Some(0.0), ..Lease::default() }),
            kept: Some(Kept { entries: vec![KeptEntry::default()], ..Kept::default() }),
            ..Status::default()
        };
        let mut real = BTreeSet::new();
        names(&serde_json::to_value(status).unwrap(), &mut real);
        names(&serde_json::to_value(Loaded::default()).unwrap(), &mut real);
        names(&serde_json::to_value(Dead { dead: vec![DeadMount::default()] }).unwrap(), &mut real);
        real.extend(["seconds", "bytes_fetched", "gigabytes_per_second"].map(str::to_owned));

        let page = include_str!("../../../docs/status.md");
        let documented = quoted(page);
        let missing: Vec<_> = real.difference(&documented).collect();
        assert!(missing.is_empty(), "not in docs/status.md: {missing:?}");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
        let listed: BTreeSet<_> = rows.flat_map(quoted).collect();
        let unknown: Vec<_> = listed.difference(&real).collect();
        assert!(unknown.is_empty(), "documented and not there: {unknown:?}");
    }
}
