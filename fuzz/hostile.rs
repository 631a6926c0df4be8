//! Gives bytes that libFuzzer makes up to what reads foreign bytes. `TARGET` names which; without one, all are named.
//!
//! Deliberately nothing of its own: what must hold stands beside what is read, in the `hostile` modules.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::OnceLock;

type Read = fn(&[u8]);

/// Those that can be named, in the order of the folders of `corpus/`.
const TARGETS: [(&str, Read); 20] = [
    ("azure", store::hostile::azure),
    ("chunked", emulate::hostile::chunked),
    ("dlio", dlio),
    ("google", store::hostile::google),
    ("heads", store::hostile::heads),
    ("hosts", hosts),
    ("key_file", store::hostile::key_file),
    ("ledger", mount::hostile::ledger),
    ("log", cache::disk::hostile::log),
    ("manifest", node::manifest::hostile::text),
    ("members", peer::hostile::members),
    ("parquet", bench::samples::hostile::parquet),
    ("profiles", store::hostile::profiles),
    ("s3", store::hostile::s3),
    ("said", peer::hostile::said),
    ("snapshot", node::manifest::hostile::snapshot),
    ("terms", daemon::hostile::terms),
    ("typed", emulate::hostile::typed),
    ("uses", cache::disk::hostile::uses),
    ("workload", workload),
];

/// A file of hosts, as launchers write them.
fn hosts(bytes: &[u8]) {
    let _ = fleet::roster::parse(bytes, "hosts");
}

/// A workload in YAML of DLIO.
fn dlio(bytes: &[u8]) {
    let _ = std::str::from_utf8(bytes).map(|text| workload::import::dlio(text, "file"));
}

/// A workload and an accelerator in TOML.
fn workload(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = (workload::Workload::parse(text, "file"), workload::accelerator::Accelerator::parse(text, "file"));
}

/// The one that was named.
fn target() -> Read {
    static NAMED: OnceLock<Read> = OnceLock::new();
    *NAMED.get_or_init(|| {
        let name = std::env::var("TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(known, _)| *known == name);
        let all = TARGETS.map(|(known, _)| known).join(" ");
        assert!(Path::new("corpus").is_dir(), "start it in the folder fuzz/");
        found.unwrap_or_else(|| panic!("TARGET={name} is none of: {all}")).1
    })
}

fuzz_target!(|bytes: &[u8]| target()(bytes));
