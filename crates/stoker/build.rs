//! Hands the page of reports (`web/`) to the compiler, if Node has built it, and the commit, if git knows it.
//!
//! It never runs Node: `make build` does. Invariant: without the page the command builds all the same, with an empty
//! template, and its reports say that they are plain; without git they name no commit.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// What `report.rs` puts the reports into; a page without it is of another version.
const SLOT: &str = "<script id=\"reports\" type=\"application/json\"></script>";

/// What the command is made of. Only with these does the commit change that is named: one of other files builds nothing
/// anew, and the earlier one stays true.
const SOURCES: [&str; 6] = [
    "../../crates",
    "../../workloads",
    "../../accelerators",
    "../../python/loaders",
    "../../Cargo.lock",
    "../../Cargo.toml",
];

/// The page, of which only what Node has built is watched.
const WEB: &str = "../../web";

fn main() {
    SOURCES.iter().for_each(|source| println!("cargo:rerun-if-changed={source}"));
    if let Some(commit) = commit() {
        println!("cargo:rustc-env=STOKER_COMMIT={commit}");
    }
    page();
}

/// The commit of this repository, with a `+` where what is built is not what it holds.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let done = Command::new("git").arg("--no-optional-locks").args(arguments).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    // Sources that lie in a repository of others have a commit of theirs.
    git(&["rev-parse", "--show-prefix"]).filter(|prefix| prefix == "crates/stoker/")?;
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&[&["status", "--porcelain", "--", WEB][..], &SOURCES].concat())?;
    if changed.is_empty() {
        return Some(commit);
    }
    // The next commit may hold what is built now, file for file: git notes it here.
    let commits = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists());
    commits.iter().for_each(|path| println!("cargo:rerun-if-changed={path}"));
    Some(commit + "+")
}

fn page() {
    let web = Path::new(WEB);
    let built = web.join("dist/index.html");
    // A path that isn't there would have this run at every build: its folder tells when it comes.
    let watched = if built.exists() { built.as_path() } else { web };
    println!("cargo:rerun-if-changed={}", watched.display());
    println!("cargo:rerun-if-changed=build.rs");
    let page = fs::read_to_string(&built).unwrap_or_default();
    if !page.is_empty() && page.matches(SLOT).count() != 1 {
        println!("cargo:warning={} has no place for reports: remove web/dist, or `make web`", built.display());
        std::process::exit(1);
    }
    let folder = env::var_os("OUT_DIR").expect("cargo tells a build script where to write");
    fs::write(Path::new(&folder).join("report.html"), page).expect("cargo's folder for output can be written to");
}
