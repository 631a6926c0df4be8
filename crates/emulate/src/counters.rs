//! What was asked and answered, by operation. Counting takes no lock.
//!
//! Invariant: a request is counted once, when it arrives; its bytes as they are handed to the connection.

use crate::faults::{FAULTS, Fault};
use hyper::{Method, Uri};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Kinds of requests, as their prices tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    List,
    Head,
    Get,
    Put,
    Copy,
    Delete,
    /// Starting, ending, giving up and listing uploads; their parts count as `Put`.
    Upload,
    /// Buckets, and what is not understood.
    Other,
}

/// All operations, in the order of their counters.
pub const OPERATIONS: [Operation; 8] = [
    Operation::List,
    Operation::Head,
    Operation::Get,
    Operation::Put,
    Operation::Copy,
    Operation::Delete,
    Operation::Upload,
    Operation::Other,
];

const NAMES: [&str; 8] = ["list", "head", "get", "put", "copy", "delete", "upload", "other"];

/// Statuses counted one by one; the rest together under the last.
const STATUSES: [u16; 15] = [200, 204, 206, 304, 400, 403, 404, 405, 409, 412, 416, 500, 501, 503, 0];

/// Queries of a bucket that ask for something else than its objects.
const ABOUT_BUCKETS: [&str; 6] = ["location", "versioning", "uploads", "acl", "policy", "tagging"];

impl Operation {
    /// What a request asks for; path-style addresses only.
    pub fn of(method: &Method, uri: &Uri, copies: bool) -> Operation {
        let object = uri.path().trim_start_matches('/').split_once('/').is_some_and(|(_, key)| !key.is_empty());
        let query = uri.query().unwrap_or("");
        let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        match *method {
            Method::GET if object && has("uploadId") => Operation::Upload,
            Method::GET if object => Operation::Get,
            Method::HEAD if object => Operation::Head,
            Method::PUT if object && copies => Operation::Copy,
            Method::PUT if object => Operation::Put,
            Method::DELETE if object && has("uploadId") => Operation::Upload,
            Method::DELETE if object => Operation::Delete,
            Method::POST if object => Operation::Upload,
            Method::POST if has("delete") => Operation::Delete,
            Method::GET if uri.path().len() > 1 && !ABOUT_BUCKETS.into_iter().any(has) => Operation::List,
            _ => Operation::Other,
        }
    }

    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Counts of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub requests: u64,
    /// Bytes of bodies received.
    pub bytes_in: u64,
    /// Bytes of bodies sent.
    pub bytes_out: u64,
    /// Requests that were delayed or refused because they came too fast.
    pub throttled: u64,
    /// Answers by status; 0 stands for statuses that are not counted one by one.
    pub statuses: Vec<(u16, u64)>,
}

/// All counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    counts: Vec<Count>,
    faults: Vec<u64>,
}

impl Counters {
    pub fn of(&self, operation: Operation) -> &Count {
        &self.counts[operation as usize]
    }

    /// Requests that this fault has spoiled.
    pub fn faults(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    pub fn requests(&self) -> u64 {
        self.counts.iter().map(|count| count.requests).sum()
    }

    pub fn bytes_out(&self) -> u64 {
        self.counts.iter().map(|count| count.bytes_out).sum()
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        let mut text = String::from("{");
        for operation in OPERATIONS {
            let Count { requests, bytes_in, bytes_out, throttled, statuses } = self.of(operation);
            let statuses: Vec<String> =
                statuses.iter().map(|(status, count)| format!("\"{status}\":{count}")).collect();
            let _ = write!(
                text,
                "\"{}\":{{\"requests\":{requests},\"bytes_in\":{bytes_in},\"bytes_out\":{bytes_out},\"throttled\":{throttled},\"statuses\":{{{}}}}},",
                operation.name(),
                statuses.join(",")
            );
        }
        let faults: Vec<String> =
            Fault::all().map(|fault| format!("\"{}\":{}", fault.name(), self.faults(fault))).collect();
        let _ = write!(text, "\"faults\":{{{}}}}}", faults.join(","));
        text
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{:<8} {:>10} {:>14} {:>14} {:>10}  statuses",
            "", "requests", "bytes in", "bytes out", "throttled"
        )?;
        for operation in OPERATIONS.into_iter().filter(|operation| self.of(*operation).requests > 0) {
            let Count { requests, bytes_in, bytes_out, throttled, statuses } = self.of(operation);
            let statuses: Vec<String> = statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
            writeln!(
                out,
                "{:<8} {requests:>10} {bytes_in:>14} {bytes_out:>14} {throttled:>10}  {}",
                operation.name(),
                statuses.join(", ")
            )?;
        }
        for fault in Fault::all().filter(|fault| self.faults(*fault) > 0) {
            writeln!(out, "fault {}: {}", fault.name(), self.faults(fault))?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Row {
    requests: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    throttled: AtomicU64,
    statuses: [AtomicU64; STATUSES.len()],
}

/// Where counting happens.
#[derive(Default)]
pub struct LiveCounters {
    rows: [Row; OPERATIONS.len()],
    faults: [AtomicU64; FAULTS],
}

impl LiveCounters {
    pub fn request(&self, operation: Operation) {
        self.rows[operation as usize].requests.fetch_add(1, Relaxed);
    }

    pub fn throttled(&self, operation: Operation) {
        self.rows[operation as usize].throttled.fetch_add(1, Relaxed);
    }

    pub fn received(&self, operation: Operation, bytes: usize) {
        self.rows[operation as usize].bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    pub fn sent(&self, operation: Operation, bytes: usize) {
        self.rows[operation as usize].bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    pub fn answered(&self, operation: Operation, status: u16) {
        let index = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        self.rows[operation as usize].statuses[index].fetch_add(1, Relaxed);
    }

    pub fn fault(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, Relaxed);
    }

    pub fn counters(&self) -> Counters {
        let counts = self.rows.iter().map(|row| Count {
            requests: row.requests.load(Relaxed),
            bytes_in: row.bytes_in.load(Relaxed),
            bytes_out: row.bytes_out.load(Relaxed),
            throttled: row.throttled.load(Relaxed),
            statuses: STATUSES
                .into_iter()
                .zip(row.statuses.iter().map(|count| count.load(Relaxed)))
                .filter(|(_, count)| *count > 0)
                .collect(),
        });
        Counters { counts: counts.collect(), faults: self.faults.iter().map(|count| count.load(Relaxed)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let of = |method: Method, uri: &str| Operation::of(&method, &uri.parse().unwrap(), uri.contains("copy"));
        assert_eq!(of(Method::GET, "/bucket?list-type=2"), Operation::List);
        assert_eq!(of(Method::GET, "/bucket/"), Operation::List);
        assert_eq!(of(Method::GET, "/bucket/key"), Operation::Get);
        assert_eq!(of(Method::HEAD, "/bucket/key"), Operation::Head);
        assert_eq!(of(Method::HEAD, "/bucket"), Operation::Other);
        assert_eq!(of(Method::GET, "/"), Operation::Other);
        assert_eq!(of(Method::GET, "/bucket?location"), Operation::Other);
        assert_eq!(of(Method::PUT, "/bucket/key?partNumber=1&uploadId=x"), Operation::Put);
        assert_eq!(of(Method::PUT, "/bucket/copy"), Operation::Copy);
        assert_eq!(of(Method::POST, "/bucket/key?uploads"), Operation::Upload);
        assert_eq!(of(Method::POST, "/bucket?delete"), Operation::Delete);
        assert_eq!(of(Method::DELETE, "/bucket/key"), Operation::Delete);
        for (index, operation) in OPERATIONS.into_iter().enumerate() {
            assert_eq!(index, operation as usize);
        }
    }

    #[test]
    fn counts_are_printed_for_people_and_for_programs() {
        let tally = LiveCounters::default();
        tally.request(Operation::Get);
        tally.answered(Operation::Get, 206);
        tally.sent(Operation::Get, 100);
        tally.fault(Fault::Reset);
        let counters = tally.counters();
        assert_eq!((counters.requests(), counters.bytes_out(), counters.faults(Fault::Reset)), (1, 100, 1));
        assert!(counters.json().contains(
            "\"get\":{\"requests\":1,\"bytes_in\":0,\"bytes_out\":100,\"throttled\":0,\"statuses\":{\"206\":1}}"
        ));
        assert!(counters.to_string().contains("fault reset: 1"));
    }
}
