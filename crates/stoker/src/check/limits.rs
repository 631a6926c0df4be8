//! What this process may use: open files, memory.
//!
//! It only looks. Invariant: a limit is judged as a node takes it, which raises what may be raised.

use super::finding::Finding;
use crate::{place, show};
use rustix::process::{Resource, getrlimit};

/// Each complete file that is open is a descriptor of the node; with fewer than these, jobs of many readers run out.
const OPEN_FILES_MIN: u64 = 65_536;

/// Below it a group has no room for the pages that reads are fast by.
const GROUP_MIN: u64 = 1 << 30;

pub fn look() -> Vec<Finding> {
    // The node raises the one limit to the other.
    let memory = match place::memory(None) {
        Ok(takes) => memory(takes, place::memory_of_machine().unwrap_or(0), place::memory_of_group()),
        Err(error) => Finding::of("memory", &error),
    };
    vec![files(getrlimit(Resource::Nofile).maximum), memory]
}

/// How many may be open; nothing is no limit.
fn files(maximum: Option<u64>) -> Finding {
    let most = maximum.unwrap_or(u64::MAX);
    let said = match maximum {
        Some(most) => format!("{} may be open in a node at once", show::count_of(most, "file")),
        None => "as many may be open in a node as there are".into(),
    };
    let found = match most < OPEN_FILES_MIN {
        true => Finding::warning(
            "open files",
            format!("only {said}"),
            format!(
                "raise the hard limit to {OPEN_FILES_MIN}: ulimit -Hn, LimitNOFILE= of a unit, or --ulimit of a container"
            ),
        ),
        false => Finding::ok("open files", said),
    };
    found.with("open_files_max", most)
}

/// What a node takes of the machine's, or of what its control group allows.
fn memory(takes: u64, machine: u64, allowed: Option<u64>) -> Finding {
    let of = match allowed {
        Some(allowed) => format!("{} that its control group allows", show::bytes(allowed)),
        None => format!("{} of this machine", show::bytes(machine)),
    };
    let said = format!("a node takes {} of {of}", show::bytes(takes));
    let found = match allowed.filter(|allowed| *allowed < GROUP_MIN) {
        Some(_) => Finding::warning(
            "memory",
            format!("{said}; the pages that readers are given count there too"),
            "allow the control group 1 GiB or more",
        ),
        None => Finding::ok("memory", said),
    };
    found.with("node_bytes", takes).with("machine_bytes", machine).with("control_group_bytes", allowed)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;

    #[test]
    fn few_open_files_and_a_small_group_are_warned_of() {
        let (low, all) = (OPEN_FILES_MIN - 1, Some(OPEN_FILES_MIN));
        for (found, outcome, word) in [
            (files(Some(low)), Outcome::Warning, "only 65,535 files"),
            (files(all), Outcome::Ok, "65,536 files may be open"),
            (files(None), Outcome::Ok, "as many may be open"),
            (memory(1 << 28, 1 << 34, Some(GROUP_MIN - 1)), Outcome::Warning, "1.07 GB that its control group allows"),
            (memory(1 << 28, 1 << 34, Some(GROUP_MIN)), Outcome::Ok, "a node takes 268 MB of 1.07 GB"),
            (memory(1 << 28, 1 << 34, None), Outcome::Ok, "of 17.2 GB of this machine"),
        ] {
            assert!(found.outcome == outcome && found.said.contains(word), "{found:?}");
            assert_eq!(found.cure.is_some(), outcome == Outcome::Warning, "{found:?}");
        }
    }
}
