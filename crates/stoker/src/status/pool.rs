//! `stoker status --hosts`: the nodes of a pool, one line each.
//!
//! A host that doesn't answer, or whose node has ended, is a line too. What nodes say is asked of them by `stoker status` there.

use crate::hosts::{Conduct, Crew, typed};
use crate::{args, place, print, show};
use block::Error;
use client::messages::Status;
use fleet::pool::{Plan, Pool, folder_there};
use fleet::{Failure, Host, Sink, Stream, crew, ssh};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A host that takes longer to say how it is, is not well.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Keeps the first complaint of each host: it says what is wrong, the last what to try.
#[derive(Default)]
pub struct Complaints(Mutex<HashMap<String, String>>);

impl Complaints {
    pub fn take(&self, host: &Host) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&host.label())
    }
}

impl Sink for Complaints {
    fn line(&self, host: &Host, stream: Stream, line: &[u8]) {
        if stream == Stream::Err {
            let line = String::from_utf8_lossy(line);
            let line = line.trim_start_matches("stoker: ").to_owned();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(host.label()).or_insert(line);
        }
    }

    fn moved(&self, _: u64) {}
}

pub fn run(args: &args::Status, hosts: &Path) -> anyhow::Result<ExitCode> {
    let Some(dir) = &args.dir else {
        let error = Error::invalid("this doesn't say which pool is meant", "stoker status --hosts");
        return Err(error.hint("add its mount point").into());
    };
    folder_there(dir).map_err(typed)?;
    let crew = Crew {
        hosts: hosts.to_owned(),
        first: false,
        timeout: Some(ANSWERS_WITHIN),
        at_once: ssh::AT_ONCE,
        ssh_config: args.ssh_config.clone(),
        json: args.json,
    };
    let mut conduct = Conduct::new(&crew)?;
    conduct.ssh.as_root = args.sudo;
    let plan =
        Plan { dir: dir.clone(), cache: None, port: 0, is_plaintext: true, token: String::new(), programs: Vec::new() };
    let complaints = Complaints::default();
    let pool = Pool { plan: &plan, hosts: &conduct.hosts, ssh: &conduct.ssh, sink: &complaints };
    loop {
        let all = crew::each(&conduct.hosts, conduct.ssh.at_once, &conduct.stop, |host| {
            ask(&pool, host, &conduct).map_err(|failure| match (failure, complaints.take(host)) {
                (Failure::Exit(_, _), Some(complaint)) => Failure::Unfit(complaint),
                (failure, _) => failure,
            })
        });
        if conduct.stop.is_wanted() {
            return Ok(ExitCode::from(crate::node::INTERRUPTED));
        }
        let rows: Vec<_> = conduct.hosts.iter().map(Host::label).zip(all).collect();
        match args.json {
            true => rows.iter().try_for_each(|row| say!("{}", object(row)))?,
            false => print::out(format_args!("{}", show::plain(&table(&rows, place::now()))))?,
        }
        if !args.watch {
            let is_well = rows.iter().all(|(_, row)| row.is_ok());
            return Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        std::thread::sleep(args.interval);
    }
}

fn ask(pool: &Pool<'_>, host: &Host, conduct: &Conduct) -> Result<Status, Failure> {
    let dir = pool.plan.dir.display().to_string();
    let said = pool.call(host, &["status", "--json", "--", &dir], &conduct.stop)?;
    let read = said.first().and_then(|line| serde_json::from_slice(line).ok());
    read.ok_or_else(|| Failure::Hostile("this is no status of a node".into()))
}

type Row = (String, Result<Status, Failure>);

fn object((host, status): &Row) -> serde_json::Value {
    match status {
        Ok(status) => json!({ "host": host, "ok": true, "status": status }),
        Err(failure) => {
            json!({ "host": host, "ok": false, "failure": failure.name(), "reason": failure.to_string() })
        }
    }
}

/// What is said of a node, and of all of them.
#[derive(Clone, Copy, Default)]
struct Figures {
    kept: u64,
    /// Bytes that were answered, and those of them that were there.
    answered: u64,
    there: u64,
    served_s: f64,
    store_s: f64,
    had: u64,
    around: u64,
    /// Other members, and those that answer.
    others: usize,
    up: usize,
    lease_ends: Option<f64>,
}

impl Figures {
    fn of(status: &Status) -> Figures {
        let tiers = &status.tiers;
        let cluster = status.cluster.as_ref();
        let others = cluster.map_or(&[][..], |cluster| &cluster.members).iter().filter(|member| !member.me);
        let (had, around) = cluster.map_or((0, 0), |cluster| (cluster.had_bytes, cluster.around));
        let there = tiers.memory.bytes + tiers.disk.bytes;
        Figures {
            kept: status.limits.disk_written,
            answered: there + tiers.origin.bytes + had,
            there,
            served_s: status.rates.served_bytes_per_second,
            store_s: status.rates.store_bytes_per_second,
            had,
            around,
            others: others.clone().count(),
            up: others.filter(|member| member.answering).count(),
            lease_ends: status.lease.as_ref().map(|lease| lease.ends_at),
        }
    }

    fn add(self, other: Figures) -> Figures {
        let sooner = |one: Option<f64>, two: Option<f64>| one.into_iter().chain(two).reduce(f64::min);
        Figures {
            kept: self.kept + other.kept,
            answered: self.answered + other.answered,
            there: self.there + other.there,
            served_s: self.served_s + other.served_s,
            store_s: self.store_s + other.store_s,
            had: self.had + other.had,
            around: self.around + other.around,
            others: self.others + other.others,
            up: self.up + other.up,
            lease_ends: sooner(self.lease_ends, other.lease_ends),
        }
    }

    fn cells(&self, now: f64) -> [String; 8] {
        use show::bytes;
        let lease = self.lease_ends.map_or_else(|| "-".into(), |end| show::left(end - now));
        let hits = match self.answered {
            0 => "-".into(),
            all => format!("{:.1} %", self.there as f64 * 100.0 / all as f64),
        };
        [
            bytes(self.kept),
            hits,
            format!("{}/s", bytes(self.served_s as u64)),
            format!("{}/s", bytes(self.store_s as u64)),
            bytes(self.had),
            format!("{}/{}", self.up, self.others),
            show::count(self.around),
            lease,
        ]
    }
}

const HEADS: [&str; 8] = ["kept", "hits", "served", "store", "from peers", "peers up", "fallbacks", "lease"];

/// A line for each host, the sum, and what to look into.
fn table(rows: &[Row], now: f64) -> String {
    let width = rows.iter().map(|(host, _)| host.chars().count()).chain([4]).max().unwrap_or(4);
    let line = |name: &str, cells: &[String]| {
        format!("{name:width$}{}\n", cells.iter().map(|cell| format!("{cell:>12}")).collect::<String>())
    };
    let mut out = line("host", &HEADS.map(str::to_owned));
    let (mut all, mut words) = (Figures::default(), String::new());
    for (host, row) in rows {
        match row {
            Ok(status) => {
                let figures = Figures::of(status);
                all = all.add(figures);
                out += &line(host, &figures.cells(now));
                words += &odd(host, status, now);
            }
            Err(failure) => out += &format!("{host:width$}  {}\n", show::line(&failure.to_string())),
        }
    }
    let sets = rows.iter().filter_map(|(_, row)| row.as_ref().ok()?.mounts.iter().map(|mount| mount.bytes).max());
    let set = sets.max().map_or_else(String::new, |most| format!("the set has {}\n", show::bytes(most)));
    out + &line("all", &all.cells(now)) + &set + &words
}

/// What doesn't stand in the line of a host.
fn odd(host: &str, status: &Status, now: f64) -> String {
    let mut out = String::new();
    let members = status.cluster.as_ref().map_or(&[][..], |cluster| &cluster.members);
    for member in members.iter().filter(|member| !member.answering) {
        let reason = member.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", show::line(reason)));
        out += &format!("{host} has no answer from {}{reason}\n", show::line(&member.name));
    }
    for store in status.stores.iter().filter(|store| !store.answering) {
        out += &format!("{host} has no answer from the store {}\n", show::line(&store.store));
    }
    if let Some(end) = status.lease.as_ref().and_then(|lease| lease.credentials_end_at) {
        out += &format!("{host} has credentials for another {}\n", show::left(end - now));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::messages::{Cluster, Lease, Member};

    #[test]
    fn a_host_is_a_line_whatever_became_of_it_and_all_are_one_more() {
        let mut status = Status::default();
        (status.limits.disk_written, status.tiers.disk.bytes, status.tiers.origin.bytes) = (2_000_000, 300, 100);
        status.mounts = vec![client::messages::Mount { bytes: 50_100_000, ..Default::default() }];
        status.lease = Some(Lease { ends_at: 7_300.0, credentials_end_at: Some(160.0) });
        let member = |name: &str, answering| Member { name: name.into(), answering, ..Member::default() };
        let members = vec![Member { me: true, ..member("a", true) }, member("b", true), member("c", false)];
        status.cluster = Some(Cluster { members, around: 7, ..Cluster::default() });
        let rows = [("a".to_owned(), Ok(status)), ("b".into(), Err(Failure::Unreachable("no route\nforged".into())))];
        let shown = table(&rows, 100.0);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 7, "{shown}");
        for (at, words) in [
            (1, ["2.00 MB", "75.0 %", "1/2", "7", "2 hours"].as_slice()),
            (2, &["b ", "no route"]),
            (3, &["all", "2.00 MB"]),
            (4, &["the set has 50.1 MB"]),
            (5, &["a has no answer from c"]),
            (6, &["a has credentials for another 60 s"]),
        ] {
            assert!(words.iter().all(|word| lines[at].contains(word)), "{at}: {shown}");
        }
        assert_eq!(
            (object(&rows[1])["ok"].as_bool(), object(&rows[0])["status"]["lease"]["ends_at"].as_f64()),
            (Some(false), Some(7300.0))
        );
    }
}
