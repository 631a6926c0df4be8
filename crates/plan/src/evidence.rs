//! What share of the listed limits a client reaches on a service.
//!
//! The rules stand here and nowhere else, and were fixed before any case was predicted: what was observed on this service
//! through this client; else on other services through it, within a factor of two; else what all clients reached. One case
//! can be left out, which shows what the rest would have said of it. Invariant: none of this is fitted to an answer.

use serde::Serialize;

use crate::catalog::{Catalog, Client, Observed, is_within};
use crate::figure::Range;

/// One observation on another service says little of this one.
const CARRIED: f64 = 2.0;
/// Sources round their figures by about this much.
const ROUNDED: f64 = 0.1;
/// Where nothing was observed at all.
const UNKNOWN: Range = Range { low: 0.2, likely: 0.6, high: 1.0 };

/// A share, and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Efficiency {
    #[serde(flatten)]
    pub share: Range,
    pub why: String,
}

/// Which observations count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Evidence<'a> {
    #[default]
    All,
    /// All but those of a case: what would have been said before it was measured.
    Without(&'a str),
    /// Those of a case alone: whether the arithmetic returns what went in.
    Only(&'a str),
}

impl Evidence<'_> {
    pub fn counts(self, case: &str) -> bool {
        match self {
            Evidence::All => true,
            Evidence::Without(left_out) => case != left_out,
            Evidence::Only(only) => case == only,
        }
    }
}

/// Whether an observation decides: of a case that counts, and trusted.
pub fn counts(observed: &Observed, evidence: Evidence, unverified: bool) -> bool {
    evidence.counts(&observed.case) && observed.figure.is_trusted(unverified)
}

/// What a client reaches on a service; `unverified` lets observations decide that nobody verified.
pub fn efficiency(
    catalog: &Catalog,
    service: &str,
    client: &Client,
    evidence: Evidence,
    unverified: bool,
) -> Efficiency {
    let counts = |observed: &&Observed| counts(observed, evidence, unverified);
    let all: Vec<&Observed> = client.observed.iter().filter(counts).collect();
    let here: Vec<&Observed> = all.iter().copied().filter(|observed| is_within(service, &observed.service)).collect();
    if let Some(share) = spread(&here) {
        if matches!(evidence, Evidence::Only(_)) {
            return Efficiency { share: Range::exact(share.likely), why: "as it was measured".into() };
        }
        let share = Range::of(
            share.low * (1.0 - ROUNDED),
            share.likely,
            (share.high * (1.0 + ROUNDED)).min(share.high.max(1.0)),
        );
        return Efficiency { share, why: format!("observed through {} on it", client.name) };
    }
    if let Some(share) = spread(&all) {
        return Efficiency {
            share: carried(share),
            why: format!("observed through {} on other services, within a factor of two", client.name),
        };
    }
    let others: Vec<&Observed> =
        catalog.clients.iter().flat_map(|client| &client.observed).filter(counts).filter(is_remote).collect();
    match spread(&others) {
        Some(share) => Efficiency {
            share: carried(share),
            why: "nothing was observed through this client: what all others reached".into(),
        },
        None => Efficiency { share: UNKNOWN, why: "nothing was observed".into() },
    }
}

/// What was seen on nodes' own disks says nothing of a service that others run.
fn is_remote(observed: &&Observed) -> bool {
    !observed.service.ends_with(".local") && !observed.service.ends_with(".emulated")
}

fn carried(share: Range) -> Range {
    Range::of(share.low / CARRIED, share.likely, (share.high * CARRIED).min(share.high.max(1.0)))
}

/// The least, the geometric mean and the most.
fn spread(observed: &[&Observed]) -> Option<Range> {
    if observed.is_empty() {
        return None;
    }
    let values = || observed.iter().map(|observed| observed.figure.value);
    let logs: f64 = values().map(|value| value.likely.ln()).sum();
    let low = values().fold(f64::INFINITY, |low, value| low.min(value.low));
    let high = values().fold(0.0, |high: f64, value| high.max(value.high));
    Some(Range::of(low, (logs / observed.len() as f64).exp(), high))
}
