//! The house rules as a test: it reads the repository and says what breaks a rule, where, and what to do instead.
//!
//! It doesn't judge what the compiler and clippy judge, and understands no more of Rust than where comments,
//! texts and brackets are (`source`) and no more of Markdown than spans, links and headings (`words`).
//! Invariants: all offences come in one message; each ban names what to use instead, each exception its reason.

#[path = "tidy/locks.rs"]
mod locks;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;

use source::Source;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours, wherever they are; and cargo's own, beside the manifest of the workspace.
const FOREIGN: [&str; 5] = ["node_modules", "dist", "__pycache__", "venv", "corpus"];
const BUILT: &str = "target";

/// Text files larger than this are results of measurements.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// A file of the repository, by its path below the root.
pub struct File {
    pub path: String,
    pub text: String,
}

/// What breaks a rule: where, what, and the cure.
pub struct Offence(String);

impl Offence {
    pub fn new(path: &str, line: usize, what: &str, cure: &str) -> Offence {
        Offence(format!("{path}:{line}: {what}\n    instead: {cure}"))
    }
}

fn root() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.join("../..").canonicalize().expect("the crate lies two folders below the root")
}

/// All text files below a folder; hidden ones are tools' own, but for what runs the tests.
fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let kind = entry.file_type().expect("a type");
        let is_hidden = name.starts_with('.') && name != ".ci" && name != ".github";
        let is_foreign = FOREIGN.contains(&&*name) || folder == root && name == BUILT;
        if is_hidden || kind.is_symlink() || kind.is_dir() && is_foreign {
            continue;
        }
        if kind.is_dir() {
            walk(root, &path, files);
        } else if entry.metadata().is_ok_and(|found| found.len() <= TEXT_BYTES_MAX)
            && let Some(text) = std::fs::read(&path).ok().and_then(|bytes| String::from_utf8(bytes).ok())
            && !text.contains('\0')
        {
            let path = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            files.push(File { path, text });
        }
    }
}

fn repository() -> Vec<File> {
    let (root, mut files) = (root(), Vec::new());
    walk(&root, &root, &mut files);
    files
}

/// Fail with everything that was found.
fn judge(offences: Vec<Offence>) {
    let count = offences.len();
    let lines: Vec<String> = offences.into_iter().map(|offence| offence.0).collect();
    assert!(lines.is_empty(), "{count} offences against the house rules (CONTRIBUTING.md):\n{}", lines.join("\n"));
}

#[test]
fn the_house_rules_are_kept() {
    let files = repository();
    assert!(files.len() > 100, "the repository was not found");
    let mut offences = Vec::new();
    for file in &files {
        rules::text(file, &mut offences);
        if file.path.ends_with(".rs") {
            rules::rust(file, &Source::read(&file.text), &mut offences);
        }
    }
    judge(offences);
}

#[test]
fn arrows_between_crates_point_down() {
    let mut offences = Vec::new();
    let manifests: Vec<File> = repository().into_iter().filter(|file| file.path.ends_with("Cargo.toml")).collect();
    assert!(manifests.len() > 8, "the manifests were not found");
    manifests.iter().for_each(|manifest| rules::arrows(manifest, &mut offences));
    judge(offences);
}

#[test]
fn each_library_has_a_reason() {
    let (mut offences, mut files) = (Vec::new(), repository());
    let reasons =
        files.iter().position(|file| file.path == "docs/decisions/0001-dependencies.md").expect("it is there");
    let reasons = files.swap_remove(reasons);
    files.retain(|file| file.path.ends_with("Cargo.toml"));
    rules::libraries(&files, &reasons, &mut offences);
    judge(offences);
}

#[test]
fn what_is_fuzzed_is_built_from_the_libraries_that_are_shipped() {
    let (mut offences, files) = (Vec::new(), repository());
    let [lock, of_rest] = ["fuzz/Cargo.lock", "Cargo.lock"]
        .map(|path| files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path} is not there")));
    locks::follows(lock, of_rest, &files, &mut offences);
    judge(offences);
}

#[test]
fn every_claim_of_the_semantics_names_tests_that_exist() {
    let files = repository();
    let sources = files.iter().filter(|file| file.path.ends_with(".rs"));
    let tests = sources.flat_map(|file| Source::read(&file.text).tests()).collect();
    let mut offences = Vec::new();
    let semantics = files.iter().find(|file| file.path == "docs/semantics.md").expect("docs/semantics.md is there");
    words::claims(semantics, &tests, &mut offences);
    judge(offences);
}

#[test]
fn the_code_map_names_every_crate_and_file() {
    let files = repository();
    let map = files.iter().find(|file| file.path == "ARCHITECTURE.md").expect("ARCHITECTURE.md is there");
    let mut offences = Vec::new();
    words::map(map, &files, &mut offences);
    words::modules(&files, &mut offences);
    judge(offences);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut offences = Vec::new();
    let files = repository();
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    documents.for_each(|document| words::links(document, &root(), &mut offences));
    judge(offences);
}
