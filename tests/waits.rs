//! Every wait has a name: a store with one weakness, and what `stoker status` then says that readers waited for.
//! Shares are compared, never times: what a busy machine adds goes to all causes alike.

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use support::content::{noise, same};
use support::{Bed, eventually};

const CAUSES: [&str; 7] = ["bandwidth", "requests", "throttling", "errors", "disk", "cpu", "unknown"];

fn seconds(status: &Value, cause: &str) -> f64 {
    status["waits"][format!("{cause}_seconds")].as_f64().unwrap_or_else(|| panic!("no {cause} in {status}"))
}

/// The cause for which readers waited longest, and its share of all waits.
fn longest(bed: &Bed) -> (&'static str, f64) {
    let status = bed.status();
    let all: f64 = CAUSES.iter().map(|cause| seconds(&status, cause)).sum();
    let cause = CAUSES.into_iter().max_by(|left, right| seconds(&status, left).total_cmp(&seconds(&status, right)));
    let cause = cause.expect("seven causes");
    eprintln!("{}", status["waits"]);
    (cause, seconds(&status, cause) / all)
}

/// Objects of so many bytes, mounted at a store of these limits and faults, and each read by one reader.
fn read(objects: u64, bytes: usize, limits: &emulate::Limits, faults: &str) -> Option<(&'static str, f64)> {
    let bed = Bed::new()?;
    for number in 0..objects {
        bed.put(&format!("{number}"), &noise(bytes, number));
    }
    let daemon = bed.mount(&["--fill", "off"]);
    bed.set_limits(limits);
    bed.set_faults(faults);
    for number in 0..objects {
        assert_eq!(fs::read(bed.mounted(&number.to_string())).expect("a read").len(), bytes);
    }
    let longest = longest(&bed);
    let said = String::from_utf8(bed.run(["status"]).stdout).expect("text");
    assert!(said.contains("readers waited "), "{said}");
    daemon.end();
    Some(longest)
}

#[test]
fn a_store_that_answers_late_is_told_from_one_that_sends_slowly_and_one_that_refuses() {
    let none = emulate::Limits::default;
    let late = emulate::Limits { latency: emulate::Latency::Fixed(Duration::from_millis(60)), ..none() };
    let slow = emulate::Limits { bandwidth: Some(4_000_000), ..none() };
    let throttle = emulate::Throttle::Refuse { retry_after: Some(Duration::from_secs(1)) };
    let few = emulate::Limits { requests_per_second: Some(10), throttle, ..none() };
    for (objects, bytes, limits, faults, cause) in [
        (20, 20_000, &late, "", "requests"),
        (2, 3_000_000, &slow, "", "bandwidth"),
        (20, 20_000, &few, "", "throttling"),
        // Three of four requests fail, so that the waits between them double and are most of it on any machine.
        (10, 20_000, &none(), "internal-error=0.75,seed=1", "errors"),
    ] {
        let Some((longest, share)) = read(objects, bytes, limits, faults) else { return };
        assert_eq!(longest, cause, "{limits:?} {faults}");
        assert!(share > 0.5, "{longest}: {share}");
    }
}

#[test]
fn what_nobody_waits_for_is_not_booked() {
    let Some(bed) = Bed::new() else { return };
    for number in 0..40 {
        bed.put(&format!("{number}"), &noise(20_000, number));
    }
    bed.set_limits(&emulate::Limits {
        latency: emulate::Latency::Fixed(Duration::from_millis(20)),
        ..emulate::Limits::default()
    });
    let daemon = bed.mount(&["--fill", "all"]);
    eventually("it is filled", || bed.status()["mounts"][0]["filled_files"] == 40);
    let status = bed.status();
    assert!(CAUSES.iter().all(|cause| seconds(&status, cause) == 0.0), "{status}");
    daemon.end();
}

#[test]
fn what_was_fetched_ahead_in_time_is_not_waited_for() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(20 << 20, 1));
    let latency = emulate::Latency::Fixed(Duration::from_millis(20));
    bed.set_limits(&emulate::Limits { latency, ..emulate::Limits::default() });
    let daemon = bed.mount(&["--fill", "off"]);
    let file = fs::File::open(bed.mounted("file")).expect("an open");
    let read = |at: u64, length: usize| {
        let mut part = vec![0; length];
        file.read_exact_at(&mut part, at).expect("a read");
        same(&part, &noise(20 << 20, 1)[at as usize..][..length], &at);
    };
    let waited = |status: &Value| CAUSES.map(|cause| seconds(status, cause));
    read(0, 64 << 10);
    let first = bed.status();
    assert!(seconds(&first, "requests") > 0.0, "the first block was waited for: {first}");
    // Nobody reads meanwhile.
    let is_there = |status: &Value| status["tiers"]["origin"]["bytes"].as_u64().is_some_and(|bytes| bytes >= 4 << 20);
    eventually("four mebibytes have come ahead", || is_there(&bed.status()));
    assert_eq!(waited(&bed.status()), waited(&first), "what comes ahead is waited for by nobody");
    (1..16).for_each(|part| read(part * (64 << 10), 64 << 10));
    assert_eq!(waited(&bed.status()), waited(&first), "it was there when it was read");
    daemon.end();
}
