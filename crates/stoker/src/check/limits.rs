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
    vec![files(), memory()]
}

fn files() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    // The node raises the one to the other.
    let most = limit.maximum.unwrap_or(u64::MAX);
    let said = match limit.maximum {
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

fn memory() -> Finding {
    let machine = place::memory_of_machine().unwrap_or(0);
    let allowed = place::memory_of_group();
    let takes = match place::memory(None) {
        Ok(takes) => takes,
        Err(error) => return Finding::of("memory", &error),
    };
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
