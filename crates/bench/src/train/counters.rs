//! What the kernel counts of networks and disks, out of its texts, and a target that caches of what came from where.
//!
//! It opens no file: who calls reads `/proc/net/dev` and `/proc/diskstats`. Invariant: a line that isn't understood
//! counts as nothing.

use report::Node;
use serde::{Deserialize, Serialize};

/// Bytes of a sector, in whatever sectors the disk itself has.
const SECTOR: u64 = 512;

/// Counters at one moment, since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes received by all interfaces but the loopback.
    pub network: u64,
    pub loopback: u64,
    pub disk: Option<Disk>,
    /// Bytes that this process got from storage, and not from a cache of this machine, if anybody counts them.
    pub given: Option<u64>,
    /// Answers of a store that said to come later.
    pub throttled: u64,
    pub errors: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Milliseconds in which anything was on its way.
    pub busy_ms: u64,
}

/// Bytes that a target which keeps what it reads has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tiers {
    pub store: u64,
    /// That it handed to readers itself; what else they got the kernel read without it.
    pub served: u64,
}

impl Tiers {
    /// What was counted since.
    pub fn since(self, before: Tiers) -> Tiers {
        Tiers { store: self.store.saturating_sub(before.store), served: self.served.saturating_sub(before.served) }
    }

    /// Where the bytes came from that a machine asked for. What the store gave counts in full, also where it was fetched ahead
    /// of anybody who asked; the others make up the rest.
    pub fn node(self, node: &str, asked: u64) -> Node {
        let rest = asked.saturating_sub(self.store);
        let passthrough = asked.saturating_sub(self.served).min(rest);
        let tiers = [("store", self.store), ("disk", rest - passthrough), ("passthrough", passthrough)];
        Node {
            node: node.to_owned(),
            asked_bytes: asked,
            bytes_by_tier: tiers.map(|(name, bytes)| (name.to_owned(), bytes)).into(),
            hit_percent: hit_percent(asked, self.store),
        }
    }
}

/// Of what was asked, the part that no store was asked for.
pub fn hit_percent(asked: u64, store: u64) -> f64 {
    (100.0 - 100.0 * store as f64 / asked.max(1) as f64).max(0.0)
}

/// Bytes received: by interfaces to elsewhere, and by the loopback. The text is that of `/proc/net/dev`. What is stacked on
/// other interfaces, as bonds, bridges and VLANs are, counts nothing that those don't.
pub fn received(text: &str, is_stacked: &dyn Fn(&str) -> bool) -> (u64, u64) {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.fold((0, 0), |(network, loopback), (name, rest)| {
        let bytes = rest.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match name.trim() {
            "lo" => (network, loopback + bytes),
            name if is_stacked(name) => (network, loopback),
            _ => (network + bytes, loopback),
        }
    })
}

/// A disk by the numbers of its device. The text is that of `/proc/diskstats`.
pub fn disk(text: &str, major: u32, minor: u32) -> Option<Disk> {
    text.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok());
        if number(0)? != u64::from(major) || number(1)? != u64::from(minor) {
            return None;
        }
        Some(Disk {
            reads: number(3)?,
            read_bytes: number(5)? * SECTOR,
            writes: number(7)?,
            written_bytes: number(9)? * SECTOR,
            busy_ms: number(12)?,
        })
    })
}

/// Bytes that a process had read from disks and servers. The text is that of `/proc/self/io`.
pub fn read_bytes(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_store_and_the_rest_is_at_hand() {
        let before = Tiers { store: 100, served: 50 };
        let of = |store: u64, served: u64| {
            let found = Tiers { store: 100 + store, served: 50 + served }.since(before).node("n", 1000);
            let by = |name: &str| found.bytes_by_tier[name];
            (by("store"), by("disk"), by("passthrough"), found.hit_percent)
        };
        // Fetched while it was asked for; read back by the kernel; by the node; a part of each, and more than was asked for.
        assert_eq!(of(1000, 400), (1000, 0, 0, 0.0));
        assert_eq!(of(0, 0), (0, 0, 1000, 100.0));
        assert_eq!(of(0, 1000), (0, 1000, 0, 100.0));
        assert_eq!(of(250, 500), (250, 250, 500, 75.0));
        assert_eq!(of(4000, 0), (4000, 0, 0, 0.0));
    }

    #[test]
    fn the_kernels_texts_are_understood() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 500 1 0\n  eth0:1000 2 0\n  eth1: 30 2\n";
        assert_eq!(received(text, &|_| false), (1030, 500));
        assert_eq!(received(text, &|name| name == "eth1"), (1000, 500), "a VLAN on the other");
        let text = " 254  0 vda 100 2 2048 30 50 6 4096 70 0 900 1000 0 0 0 0\n 254 1 vda1 1 1 1 1 1 1 1 1 1 1 1\n";
        let found = disk(text, 254, 0).unwrap();
        assert_eq!((found.reads, found.read_bytes, found.writes), (100, 2048 * 512, 50));
        assert_eq!((found.written_bytes, found.busy_ms), (4096 * 512, 900));
        assert_eq!(disk(text, 8, 0), None);
        let text = "rchar: 6976\nwchar: 0\nsyscr: 10\nsyscw: 0\nread_bytes: 40960\nwrite_bytes: 7\n";
        assert_eq!((read_bytes(text), read_bytes("rchar: 1")), (Some(40960), None));
    }
}
