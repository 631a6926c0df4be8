//! What the kernel counts of networks and disks, out of its texts.
//!
//! It opens no file: who calls reads `/proc/net/dev` and `/proc/diskstats`. Invariant: a line that isn't understood
//! counts as nothing.

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

/// Bytes received: by interfaces to elsewhere, and by the loopback. The text is that of `/proc/net/dev`.
pub fn received(text: &str) -> (u64, u64) {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.fold((0, 0), |(network, loopback), (name, rest)| {
        let bytes = rest.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
        if name.trim() == "lo" { (network, loopback + bytes) } else { (network + bytes, loopback) }
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
    fn the_kernels_texts_are_understood() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 500 1 0\n  eth0:1000 2 0\n  eth1: 30 2\n";
        assert_eq!(received(text), (1030, 500));
        let text = " 254  0 vda 100 2 2048 30 50 6 4096 70 0 900 1000 0 0 0 0\n 254 1 vda1 1 1 1 1 1 1 1 1 1 1 1\n";
        let found = disk(text, 254, 0).unwrap();
        assert_eq!((found.reads, found.read_bytes, found.writes), (100, 2048 * 512, 50));
        assert_eq!((found.written_bytes, found.busy_ms), (4096 * 512, 900));
        assert_eq!(disk(text, 8, 0), None);
        let text = "rchar: 6976\nwchar: 0\nsyscr: 10\nsyscw: 0\nread_bytes: 40960\nwrite_bytes: 7\n";
        assert_eq!((read_bytes(text), read_bytes("rchar: 1")), (Some(40960), None));
    }
}
