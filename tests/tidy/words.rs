//! What documents say of the code: that the tests, files and documents which they name exist.
//!
//! It doesn't judge whether a sentence is true; the test that it names does.

use super::{File, Offence};
use std::collections::HashSet;
use std::path::Path;

/// In docs/semantics.md the tests of a claim stand behind this sign.
const TESTED_BY: char = '→';

/// Behind this heading stands what is not promised, and so not tested.
const NOT_PROMISED: &str = "## Not promised";

/// Each claim of the semantics, a point of a list, ends with the tests that hold it, and they exist.
pub fn claims(semantics: &File, known: &HashSet<String>, out: &mut Vec<Offence>) {
    let promised = semantics.text.split(NOT_PROMISED).next().unwrap_or_default();
    let mut claims = 0;
    for (line, claim) in points(promised) {
        claims += 1;
        let Some((_, tests)) = claim.rsplit_once(TESTED_BY) else {
            let cure =
                format!("end it with {TESTED_BY} and the names of its tests, or move it below \"{NOT_PROMISED}\"");
            out.push(Offence::new(&semantics.path, line, "a claim without a test", &cure));
            continue;
        };
        for test in spans(tests).filter(|test| !known.contains(*test)) {
            let cure = "name a function with #[test] that exists, and that is not ignored";
            out.push(Offence::new(&semantics.path, line, &format!("there is no test `{test}`"), cure));
        }
        if spans(tests).next().is_none() {
            out.push(Offence::new(&semantics.path, line, "a claim without a test", "name it: `a_test`"));
        }
    }
    assert!(claims > 10, "the claims were not found");
}

/// Points of lists, with the line in which each begins.
fn points(text: &str) -> Vec<(usize, String)> {
    let mut points: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(point) = line.strip_prefix("- ") {
            points.push((number + 1, point.to_owned()));
            is_open = true;
        } else if is_open && line.starts_with("  ") {
            let (_, point) = points.last_mut().expect("a point is open");
            *point = format!("{point} {}", line.trim());
        } else {
            is_open = false;
        }
    }
    points
}

/// What stands between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The code map has a section for each crate, which names each of its files by its stem.
pub fn map(map: &File, files: &[File], out: &mut Vec<Offence>) {
    let sections: Vec<&str> = map.text.split("\n### ").collect();
    for file in files {
        let Some((name, rest)) = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        let heading = format!("`crates/{name}`");
        let Some(section) = sections.iter().find(|section| section.starts_with(&heading)) else {
            out.push(Offence::new(
                &map.path,
                1,
                &format!("crates/{name} is not in the code map"),
                &format!("a section ### {heading}"),
            ));
            continue;
        };
        let is_named = |module: &&str| !module.contains('/') && !matches!(*module, "lib" | "tests");
        let Some(module) = rest.strip_suffix(".rs").filter(is_named) else {
            continue;
        };
        if !spans(section).any(|span| span == module) {
            let what = format!("{} is not in the code map", file.path);
            out.push(Offence::new(&map.path, 1, &what, &format!("a sentence on `{module}` below ### {heading}")));
        }
    }
    let known: HashSet<&str> =
        files.iter().filter_map(|file| file.path.strip_prefix("crates/")?.split('/').next()).collect();
    let headings = sections.iter().filter_map(|section| section.strip_prefix("`crates/")?.split('`').next());
    for gone in headings.filter(|name| !known.contains(name)) {
        out.push(Offence::new(
            &map.path,
            1,
            &format!("there is no crates/{gone}"),
            "take its section out of the code map",
        ));
    }
}

/// Each file of a crate is a module of the one above it: one that nobody declares is compiled by nobody.
pub fn modules(files: &[File], out: &mut Vec<Offence>) {
    for file in files {
        let within = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        let Some((name, module)) = within.and_then(|(name, path)| Some((name, path.strip_suffix(".rs")?))) else {
            continue;
        };
        if matches!(module, "lib" | "main") || module.starts_with("bin/") {
            continue;
        }
        let (above, stem) = match module.rsplit_once('/') {
            Some((above, stem)) => (vec![format!("{above}.rs"), format!("{above}/mod.rs")], stem),
            None => (vec!["lib.rs".to_owned(), "main.rs".to_owned()], module),
        };
        let above: Vec<String> = above.iter().map(|path| format!("crates/{name}/src/{path}")).collect();
        let declared = format!("mod {stem};");
        if !files.iter().any(|other| above.contains(&other.path) && other.text.contains(&declared)) {
            out.push(Offence::new(
                &file.path,
                1,
                "no module declares this file",
                &format!("`{declared}` above it, or none"),
            ));
        }
    }
}

/// Links within the repository lead to a file.
pub fn links(document: &File, root: &Path, out: &mut Vec<Offence>) {
    let folder = root.join(&document.path).parent().expect("a file lies in a folder").to_owned();
    for (number, line) in document.text.lines().enumerate() {
        for link in line.split("](").skip(1).chain(line.split("src=\"").skip(1)) {
            let target = link.split([')', '"', '#', ' ']).next().unwrap_or_default();
            let is_elsewhere = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !is_elsewhere && !folder.join(target).exists() {
                let cure = "name a file that is there, by its path from this document";
                out.push(Offence::new(
                    &document.path,
                    number + 1,
                    &format!("a link to {target}, which is not there"),
                    cure,
                ));
            }
        }
    }
}
