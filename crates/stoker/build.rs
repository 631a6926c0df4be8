//! Hands the page of reports (`web/`) to the compiler, if Node has built it.
//!
//! It never runs Node: `make build` does. Invariant: without the page the command builds all the same, with an empty
//! template, and its reports say that they are plain.

use std::path::Path;
use std::{env, fs};

/// What `report.rs` puts the reports into; a page without it is of another version.
const SLOT: &str = "<script id=\"reports\" type=\"application/json\"></script>";

fn main() {
    let web = Path::new("../../web");
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
