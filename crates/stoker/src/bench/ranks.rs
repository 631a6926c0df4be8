//! `stoker bench ranks`: whether the launcher's ranks find each other, and what waiting for all of them costs.
//!
//! It measures no storage. Invariant: rank 0 prints, once, and only when all ranks have come to the end.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use ranks::{Alone, Ranks};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::launch;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Barriers to time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    rounds: u32,
}

/// What a rank sends to rank 0.
#[derive(Serialize, Deserialize)]
struct Times {
    host: String,
    rank: u32,
    seconds: Vec<f64>,
}

/// Times that a rank keeps; a longer run keeps its last ones.
const KEPT_MAX: usize = 100_000;

pub fn run(args: &Args) -> Result<ExitCode> {
    let companion = launch::companion()?;
    let (ranks, launcher, library): (&dyn Ranks, _, _) = match &companion {
        Some((launched, companion)) => (companion, launched.launcher.to_string(), companion.greeting().library.clone()),
        None => (&Alone, "none".to_owned(), "none".to_owned()),
    };
    let seed = ranks.broadcast(args.rounds.to_le_bytes().to_vec())?;
    let rounds = u32::from_le_bytes(seed.try_into().map_err(|_| anyhow::anyhow!("a broadcast of four bytes"))?);
    ranks.barrier()?;
    let mut seconds = Vec::new();
    for round in 0..rounds as usize {
        let began = Instant::now();
        ranks.barrier()?;
        let took = began.elapsed().as_secs_f64();
        if seconds.len() < KEPT_MAX { seconds.push(took) } else { seconds[round % KEPT_MAX] = took }
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let own = serde_json::to_vec(&Times { host, rank: ranks.rank(), seconds })?;
    let all = ranks.gather(&own)?;
    ranks.barrier()?;
    if ranks.rank() == 0 {
        let times = all.iter().map(|one| serde_json::from_slice(one)).collect::<Result<Vec<Times>, _>>()?;
        say!("{}", serde_json::to_string_pretty(&summary(&times, &launcher, &library, rounds))?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The slowest rank of each barrier would need clocks that agree; each rank's own times don't, and are pooled.
fn summary(times: &[Times], launcher: &str, library: &str, rounds: u32) -> serde_json::Value {
    let mut seconds: Vec<f64> = times.iter().flat_map(|one| one.seconds.iter().copied()).collect();
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| seconds[((seconds.len() - 1) as f64 * share).round() as usize];
    json!({
        "ranks": times.len(),
        "hosts": times.iter().map(|one| &one.host).collect::<Vec<_>>(),
        "launcher": launcher,
        "library": library,
        "rounds": rounds,
        "barrier_seconds": { "p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999), "max": at(1.0) },
    })
}
