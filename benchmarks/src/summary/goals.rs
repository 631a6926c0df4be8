//! The goals of issues 2 and 3 as a table of data, and one verdict a line.

use std::fmt::Write;

use super::statistics::{Spread, View};
use super::{Cell, NATIVE, figure, per_gigabyte, value};
use crate::record::Sample;
use crate::workload::{Phase, Unit, Workload};
use Phase::{Cold, Dropped, Kept, Restart};
use Workload::{Find, Large1, Large4, Loop, Lslr, Rand, Small, Stat8};

const STOKER: &str = "stoker";
const IMMUTABLE: &str = "stoker-immutable";

/// What is asked of a cell.
enum Ask {
    /// Of native in the same round, median.
    Ratio(f64),
    CpuRatio(f64),
    /// As many times native's seconds at most.
    TimesNative(f64),
    /// As many times the best peer's of the same round at least, median; for seconds the other way round.
    AheadOfPeers(f64),
    PerSecond(f64),
    DaemonCpuPerGigabyte(f64),
    /// GETs a file at most, and nothing else but listings; what the mount asked is not per file.
    GetsPerFile(f64),
    NoRequests,
    /// Bytes sent by the store over those of the blocks or files touched.
    StoreBytes(f64),
    AnonymousMegabytes(f64),
}

struct Goal {
    issue: u32,
    target: &'static str,
    workload: Workload,
    phase: Phase,
    ask: Ask,
}

const fn goal(issue: u32, target: &'static str, workload: Workload, phase: Phase, ask: Ask) -> Goal {
    Goal { issue, target, workload, phase, ask }
}

const GOALS: &[Goal] = &[
    goal(2, STOKER, Large1, Kept, Ask::Ratio(0.95)),
    goal(2, STOKER, Large1, Kept, Ask::CpuRatio(0.90)),
    goal(2, STOKER, Large1, Dropped, Ask::Ratio(0.95)),
    goal(2, STOKER, Large1, Dropped, Ask::CpuRatio(0.90)),
    goal(2, STOKER, Large4, Kept, Ask::Ratio(0.95)),
    goal(2, STOKER, Large4, Kept, Ask::CpuRatio(0.90)),
    goal(2, STOKER, Large4, Dropped, Ask::Ratio(0.95)),
    goal(2, STOKER, Large4, Dropped, Ask::CpuRatio(0.90)),
    goal(2, STOKER, Rand, Kept, Ask::Ratio(0.95)),
    goal(2, STOKER, Rand, Dropped, Ask::Ratio(0.95)),
    goal(2, STOKER, Small, Kept, Ask::Ratio(0.55)),
    goal(2, IMMUTABLE, Small, Kept, Ask::Ratio(0.75)),
    goal(2, STOKER, Small, Dropped, Ask::Ratio(0.75)),
    goal(2, STOKER, Small, Restart, Ask::Ratio(0.75)),
    // "Cold daemon with snapshot" is the phase after a restart.
    goal(2, STOKER, Find, Restart, Ask::TimesNative(1.4)),
    goal(2, STOKER, Find, Restart, Ask::AheadOfPeers(1.0)),
    goal(2, STOKER, Lslr, Restart, Ask::AheadOfPeers(1.0)),
    goal(2, STOKER, Stat8, Restart, Ask::PerSecond(60_000.0)),
    goal(2, STOKER, Stat8, Restart, Ask::AheadOfPeers(1.0)),
    goal(2, STOKER, Small, Cold, Ask::GetsPerFile(1.0)),
    goal(2, STOKER, Small, Kept, Ask::NoRequests),
    goal(2, STOKER, Small, Dropped, Ask::NoRequests),
    goal(2, STOKER, Small, Restart, Ask::NoRequests),
    goal(3, STOKER, Small, Cold, Ask::AheadOfPeers(1.6)),
    goal(3, STOKER, Small, Cold, Ask::DaemonCpuPerGigabyte(3.0)),
    goal(3, STOKER, Small, Cold, Ask::StoreBytes(1.005)),
    goal(3, STOKER, Large1, Cold, Ask::AheadOfPeers(1.3)),
    goal(3, STOKER, Large1, Cold, Ask::DaemonCpuPerGigabyte(1.0)),
    goal(3, STOKER, Large4, Cold, Ask::AheadOfPeers(1.3)),
    goal(3, STOKER, Large4, Cold, Ask::DaemonCpuPerGigabyte(1.0)),
    goal(3, STOKER, Large4, Cold, Ask::StoreBytes(1.005)),
    goal(3, STOKER, Rand, Cold, Ask::AheadOfPeers(1.0)),
    goal(3, STOKER, Rand, Cold, Ask::StoreBytes(1.1)),
    goal(3, STOKER, Loop, Cold, Ask::Ratio(0.6)),
    goal(3, STOKER, Loop, Dropped, Ask::Ratio(0.9)),
    goal(3, STOKER, Loop, Kept, Ask::Ratio(0.95)),
];

/// "<= 256 MB by default", in all cells.
const ANONYMOUS_MEGABYTES: Ask = Ask::AnonymousMegabytes(256.0);

#[derive(Debug, PartialEq)]
struct Verdict {
    measured: String,
    met: bool,
}

/// Markdown: one line a goal. A goal whose cell failed in any round is not met.
pub fn table(view: &View) -> String {
    let mut page = String::from("| issue | target | cell | goal | measured | |\n|---|---|---|---|---|---|\n");
    let mut met = 0;
    let mut judged = 0;
    for goal in GOALS {
        let cell = Cell { target: goal.target, workload: goal.workload, phase: goal.phase };
        let verdict = judge(view, cell, &goal.ask);
        met += u32::from(verdict.as_ref().is_some_and(|verdict| verdict.met));
        judged += u32::from(verdict.is_some());
        let place = format!("{} {}", goal.workload.name(), goal.phase.name());
        line(&mut page, goal.issue, goal.target, &place, &wanted(&goal.ask, goal.workload), verdict);
    }
    for target in [STOKER, IMMUTABLE] {
        let verdict = memory(view, target);
        met += u32::from(verdict.as_ref().is_some_and(|verdict| verdict.met));
        judged += u32::from(verdict.is_some());
        line(&mut page, 2, target, "all", &wanted(&ANONYMOUS_MEGABYTES, Small), verdict);
    }
    let _ = writeln!(page, "\n{met} of {judged} judged goals are met.");
    page
}

fn line(page: &mut String, issue: u32, target: &str, place: &str, goal: &str, verdict: Option<Verdict>) {
    let (measured, mark) = match verdict {
        None => ("not measured".to_owned(), "-"),
        Some(Verdict { measured, met: true }) => (measured, "met"),
        Some(Verdict { measured, met: false }) => (measured, "**missed**"),
    };
    let _ = writeln!(page, "| {issue} | {target} | {place} | {goal} | {measured} | {mark} |");
}

fn wanted(ask: &Ask, workload: Workload) -> String {
    match ask {
        Ask::Ratio(least) => format!(">= {least} of native"),
        Ask::CpuRatio(least) => format!("CPU ratio >= {least}"),
        Ask::TimesNative(most) => format!("<= {most} times native"),
        Ask::AheadOfPeers(factor) => format!(">= {factor} times the best peer"),
        Ask::PerSecond(least) => format!(">= {} {}", figure(*least), workload.unit().name()),
        Ask::DaemonCpuPerGigabyte(most) => format!("daemon CPU <= {most} s per GB"),
        Ask::GetsPerFile(most) => format!("<= {most} GET a file, else only listings"),
        Ask::NoRequests => "no request to the store".to_owned(),
        Ask::StoreBytes(most) => format!("store bytes <= {most} of those touched"),
        Ask::AnonymousMegabytes(most) => format!("peak anonymous memory <= {most} MB"),
    }
}

fn judge(view: &View, cell: Cell, ask: &Ask) -> Option<Verdict> {
    if view.failed(cell) {
        return Some(Verdict { measured: "errors, see below".to_owned(), met: false });
    }
    let at_least = |measured: Spread, least: f64| Verdict {
        measured: figure(measured.median) + &view.of_rounds(&measured),
        met: measured.median >= least,
    };
    let at_most = |measured: f64, most: f64| Verdict { measured: figure(measured), met: measured <= most };
    Some(match *ask {
        Ask::Ratio(least) => at_least(view.ratio(cell)?, least),
        Ask::CpuRatio(least) => at_least(view.cpu_ratio(cell)?, least),
        Ask::TimesNative(most) => {
            let ratio = view.ratio(cell)?;
            let verdict = at_most(ratio.median, most);
            Verdict { measured: verdict.measured + &view.of_rounds(&ratio), ..verdict }
        }
        Ask::PerSecond(least) => at_least(view.values(cell)?, least),
        Ask::DaemonCpuPerGigabyte(most) => {
            at_most(view.median(cell, |one| per_gigabyte(one.daemon_cpu_seconds, one))?, most)
        }
        Ask::AheadOfPeers(factor) => ahead(view, cell, factor)?,
        Ask::GetsPerFile(most) => {
            Verdict { measured: view.requests(cell)?, met: view.sound(cell).all(|sample| only_gets(sample, most)) }
        }
        Ask::NoRequests => Verdict {
            measured: view.requests(cell)?,
            // A mount that asks the store again has not kept its names.
            met: view.sound(cell).all(|sample| sample.requests.is_empty() && sample.mount_requests.is_empty()),
        },
        Ask::StoreBytes(most) => at_most(view.most(cell, store_bytes).filter(|ratio| ratio.is_finite())?, most),
        Ask::AnonymousMegabytes(_) => return memory(view, cell.target),
    })
}

/// Compared with the peer that comes closest: each round by itself, and the median of that.
fn ahead(view: &View, cell: Cell, factor: f64) -> Option<Verdict> {
    let seconds = cell.workload.unit() == Unit::Seconds;
    let times = |own: &Sample, peer: &Sample| match seconds {
        true => value(peer) / value(own),
        false => value(own) / value(peer),
    };
    let peers = view.targets().into_iter().filter(|name| ![NATIVE, STOKER, IMMUTABLE].contains(name));
    let (name, least) = peers
        .filter_map(|target| Some((target, view.against(cell, target, times)?)))
        .min_by(|one, other| one.1.median.total_cmp(&other.1.median))?;
    let measured = format!("{} times {name}{}", figure(least.median), view.of_rounds(&least));
    Some(Verdict { measured, met: least.median >= factor })
}

fn only_gets(sample: &Sample, most: f64) -> bool {
    sample.requests.iter().all(|(kind, count)| match kind.as_str() {
        "GET" => *count as f64 <= most * sample.items as f64,
        "LIST" | "bytes" => true,
        _ => false,
    })
}

/// Not a number where the server does not count bytes.
fn store_bytes(sample: &Sample) -> f64 {
    let sent = sample.requests.get("bytes").map_or(f64::NAN, |bytes| *bytes as f64);
    sent / sample.touched_bytes as f64
}

fn memory(view: &View, target: &str) -> Option<Verdict> {
    let most = view
        .rows()
        .filter_map(|(workload, phase)| {
            let cell = Cell { target, workload, phase };
            view.most(cell, |sample| sample.daemon_anonymous_peak_bytes as f64 / 1e6)
        })
        .max_by(f64::total_cmp)?;
    let Ask::AnonymousMegabytes(limit) = ANONYMOUS_MEGABYTES else { return None };
    Some(Verdict { measured: format!("{most:.0} MB"), met: most <= limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Scale;
    use crate::record::{Record, Settings, Subject};
    use crate::server::Kind;

    fn sample(requests: &[(&str, u64)]) -> Sample {
        let mut sample = Sample::blank(1, STOKER, Small, Cold);
        sample.items = 10;
        sample.touched_bytes = 1000;
        sample.requests = requests.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
        sample
    }

    #[test]
    fn one_get_a_file_and_a_listing_are_allowed() {
        assert!(only_gets(&sample(&[("GET", 10), ("LIST", 3), ("bytes", 1000)]), 1.0));
        assert!(!only_gets(&sample(&[("GET", 11)]), 1.0));
        assert!(!only_gets(&sample(&[("GET", 10), ("HEAD", 1)]), 1.0));
    }

    #[test]
    fn a_peer_is_compared_within_its_rounds() {
        let mut record = Record::new(Settings {
            scale: Scale::Quick,
            server: Kind::Emulate,
            server_extra: vec![],
            workloads: vec![],
            rounds: 3,
        });
        let subject = |name: &str| Subject { name: name.to_owned(), version: None, absent: None };
        record.targets = [STOKER, "peer"].map(subject).into();
        // Twice as fast in each round, on a machine whose speed changes; the peer failed in the fourth.
        for (round, seconds) in [(1, 1.0), (2, 8.0), (3, 2.0), (4, 100.0)] {
            for (target, seconds) in [(STOKER, seconds), ("peer", 2.0 * seconds)] {
                let mut sample = Sample::blank(round, target, Small, Cold);
                (sample.items, sample.seconds) = (1000, seconds);
                sample.errors = u64::from(round == 4 && target == "peer");
                record.samples.push(sample);
            }
        }
        let cell = Cell { target: STOKER, workload: Small, phase: Cold };
        let verdict = |factor| ahead(&View::new(&record), cell, factor).unwrap();
        assert_eq!(verdict(2.0), Verdict { measured: "2.00 times peer n=3".to_owned(), met: true });
        assert!(!verdict(2.1).met);
    }

    #[test]
    fn bytes_that_are_not_counted_are_not_judged() {
        assert!((store_bytes(&sample(&[("bytes", 1005)])) - 1.005).abs() < 1e-9);
        assert!(store_bytes(&sample(&[("GET", 10)])).is_nan());
    }
}
