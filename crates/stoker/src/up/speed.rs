//! How fast each host of a pool is: its disk, what it reads from the store, and what it reads that its neighbour has.
//!
//! A look of seconds before a job begins, not a benchmark: it finds the host that is slower than the others.
//! The judging part is pure. Invariant: no host is refused for being slow, it is named.

use super::Rising;
use crate::hosts::speed::{Measured, Moved};
use crate::show;
use fleet::{Failure, Host};
use serde_json::{Map, Value};

/// A host that has less than this part of what others have is named.
const SLOW: f64 = 0.5;

/// Less than this tells nothing of a speed.
const TELLING_BYTES: u64 = 32 << 20;

/// What is measured: how it is called in a table, and in JSON.
const KINDS: [(&str, &str); 4] = [
    ("disk write", "disk_write_gigabytes_per_second"),
    ("disk read", "disk_read_gigabytes_per_second"),
    ("store", "store_gigabytes_per_second"),
    ("pool", "pool_gigabytes_per_second"),
];

/// Of one host, in the order of [`KINDS`].
pub type Speeds = [Moved; 4];

/// Measure all hosts at the same time, as a job will use them.
pub fn measure<'a>(rising: &'a Rising<'a>, begun: &[bool]) -> Result<Vec<Speeds>, super::Failed<'a>> {
    let (hosts, pool, stop) = (&rising.conduct.hosts, &rising.pool, &rising.conduct.stop);
    let dir = pool.plan.dir.display().to_string();
    let ask = |host: &Host, words: &[String]| {
        let words: Vec<String> =
            ["hosts", "speed"].map(str::to_owned).into_iter().chain(words.iter().cloned()).collect();
        let said = pool.call(host, &words, stop)?;
        let read = said.first().and_then(|line| serde_json::from_slice::<Measured>(line).ok());
        read.ok_or_else(|| Failure::Unfit("it does not say how fast it is".into()))
    };
    let at = |host: &Host| hosts.iter().position(|known| known == host).unwrap_or(0);
    let part = |number: usize| format!("--part={}/{}", number % hosts.len(), hosts.len());
    let disks = rising.step("measuring the disk of", begun, |host| ask(host, &[".".into()]))?;
    let stores = rising.step("reading from the store on", begun, |host| ask(host, &[part(at(host)), dir.clone()]))?;
    // What the neighbour has read by now, and its owners keep.
    let pools = rising.step("reading from each other on", begun, |host| {
        let next = (at(host) + 1) % hosts.len();
        ask(host, &[part(next), format!("--pieces={}", stores[next].pieces), dir.clone()])
    })?;
    let speeds = disks.iter().zip(&stores).zip(&pools);
    Ok(speeds.map(|((disk, store), pool)| [disk.written, disk.read, store.read, pool.read]).collect())
}

/// Bytes a second, where enough was moved to tell.
fn rate(moved: Moved) -> Option<f64> {
    (moved.bytes >= TELLING_BYTES).then(|| moved.bytes as f64 / moved.seconds.max(1e-9))
}

/// For JSON: in GB/s, without those that say nothing.
pub fn figures(speeds: &Speeds) -> Map<String, Value> {
    let known = KINDS.iter().zip(speeds).filter_map(|((_, name), moved)| Some((*name, rate(*moved)? / 1e9)));
    known.map(|(name, rate)| (name.to_owned(), rate.into())).collect()
}

/// A line for each host, and the sum.
pub fn table(hosts: &[String], speeds: &[Speeds]) -> String {
    let width = hosts.iter().map(|name| name.chars().count()).chain([5]).max().unwrap_or(5);
    let said = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| format!("{}/s", show::bytes(rate as u64)));
    let line = |name: &str, cells: [String; 4]| {
        format!("{name:width$}{}\n", cells.iter().map(|cell| format!("{cell:>14}")).collect::<String>())
    };
    let mut out = line("host", KINDS.map(|(name, _)| name.to_owned()));
    for (host, speeds) in hosts.iter().zip(speeds) {
        out += &line(host, speeds.map(|moved| said(rate(moved))));
    }
    if hosts.len() > 1 {
        let sum = |kind: usize| speeds.iter().map(|speeds| rate(speeds[kind])).sum::<Option<f64>>();
        out += &line("all", std::array::from_fn(|kind| said(sum(kind))));
    }
    out
}

/// What is to be said of hosts that are much slower than the others.
pub fn slow(hosts: &[String], speeds: &[Speeds]) -> Vec<String> {
    let of_kind = |kind: usize| {
        let mut all: Vec<f64> = speeds.iter().filter_map(|speeds| rate(speeds[kind])).collect();
        all.sort_by(f64::total_cmp);
        let usual = *all.get(all.len() / 2)?;
        let slow = hosts.iter().zip(speeds).filter_map(|(host, speeds)| Some((host, rate(speeds[kind])?)));
        let slow = slow.filter(|(_, rate)| *rate < SLOW * usual);
        let names: Vec<String> = slow.map(|(host, rate)| format!("{host} ({}/s)", show::bytes(rate as u64))).collect();
        let (name, usual) = (KINDS[kind].0, show::bytes(usual as u64));
        (!names.is_empty()).then(|| format!("slow ({name}): {}; the others have {usual}/s", names.join(", ")))
    };
    (0..KINDS.len()).filter_map(of_kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds(rates: [u64; 4]) -> Speeds {
        rates.map(|rate| Moved { bytes: rate * 1_000_000, seconds: 1.0 })
    }

    #[test]
    fn who_is_much_slower_than_the_others_is_named_and_who_moved_little_is_not_judged() {
        let hosts = ["a", "b", "c"].map(str::to_owned);
        let all = [speeds([600, 900, 60, 500]), speeds([600, 1000, 60, 200]), speeds([500, 1000, 1, 600])];
        assert_eq!(slow(&hosts, &all), ["slow (pool): b (200 MB/s); the others have 500 MB/s"]);
        assert_eq!(slow(&hosts[..1], &all[..1]), [""; 0]);
        let table = table(&hosts, &all);
        assert!(table.contains("host     disk write") && table.lines().count() == 5, "{table}");
        assert!(table.lines().nth(3).is_some_and(|line| line.contains(" - ")), "{table}");
        assert_eq!(figures(&all[2]).len(), 3);
        assert_eq!(figures(&all[0])["pool_gigabytes_per_second"], 0.5);
    }
}
