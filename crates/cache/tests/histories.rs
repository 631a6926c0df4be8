//! Plays histories of the disk tier by hand: `make histories` (docs/histories.md). Not a test that `cargo test` runs.
//!
//! One failure of each kind is printed, with the shortest history found for it. `--until-failure` stops at the first.
//!
//!     cargo test --release -p stoker-cache --features simulate --test histories -- --from 0 --count 1000000
//!     cargo test --release -p stoker-cache --features simulate --test histories -- --seed 17

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;
use stoker_cache::disk::histories;

/// Histories between two words on how far it is.
const TOLD_EVERY: u64 = 20_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    std::panic::set_hook(Box::new(|_| ()));
    match (number("--seed"), number("--from").unwrap_or(0), number("--count").unwrap_or(100_000)) {
        (Some(seed), ..) => {
            let lines = histories::explain(seed);
            println!("{}", lines.join("\n"));
            ExitCode::from(u8::from(lines.last().is_some_and(|line| line.starts_with("FAILED"))))
        }
        (None, from, count) => run(from, count, arguments.iter().any(|argument| argument == "--until-failure")),
    }
}

fn run(from: u64, count: u64, until_failure: bool) -> ExitCode {
    let (began, mut kinds, mut blocks, mut steps) = (Instant::now(), BTreeMap::<String, u64>::new(), 0, 0);
    for seed in from..from + count {
        let outcome = histories::play(seed);
        (blocks, steps) = (blocks + outcome.blocks, steps + outcome.steps);
        if let Some(failure) = outcome.failure {
            let times = kinds.entry(histories::kind(&failure)).or_default();
            *times += 1;
            if *times == 1 {
                println!("{}\n", histories::explain(seed).join("\n"));
            }
        }
        let done = seed + 1 - from;
        let is_over = done == count || until_failure && !kinds.is_empty();
        if done.is_multiple_of(TOLD_EVERY) || is_over {
            let (failures, seconds) = (kinds.values().sum::<u64>(), began.elapsed().as_secs_f64());
            println!(
                "seeds {from}..{}: {done} histories, {steps} steps, {blocks} blocks compared, {failures} failures, {seconds:.0} s",
                seed + 1,
            );
        }
        if is_over {
            break;
        }
    }
    kinds.iter().for_each(|(kind, times)| println!("{times} times: {kind}"));
    ExitCode::from(u8::from(!kinds.is_empty()))
}
