//! Programs that people have, on a mount: each says of it what it says of the folder itself, with files of a few bytes and of
//! more than 16 MiB, while everything has to be fetched, and again after a restart when nothing has.
//!
//! Tar, rsync, git, sqlite3 and the library of Python are everywhere; what else there is of Python comes by `make programs`, and reads
//! without a mount as well.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::content::{compare, noise};
use support::{Bed, drop_page_cache, finished, text};

/// More than one request of the store, and no multiple of a block.
const LARGE: usize = (17 << 20) + 12_345;

/// What a program says, of the folder in which it is started.
fn said(program: &str, words: &[&str], folder: &Path) -> String {
    let mut command = Command::new(program);
    // A user's own settings are not those of others, and a place on the disk is not to be seen in what is said.
    command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_OPTIONAL_LOCKS", "0");
    command.envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")]);
    let done = finished(command.args(words).current_dir(folder).stdin(Stdio::null()));
    assert!(done.status.success(), "{program} {words:?} in {}: {}", folder.display(), text(&done));
    text(&done)
}

/// The program says the same of the folder, of a cold mount, and of a warm one whose store is asked for nothing.
fn agrees(bed: &Bed, program: impl Fn(&Path) -> String) {
    let expected = program(&bed.path("data"));
    assert!(!expected.is_empty(), "it says nothing");
    let daemon = bed.mount(&["--fill", "off"]);
    let gets = bed.gets();
    assert_eq!(program(&bed.path("mnt")), expected, "of a cold mount");
    assert!(bed.gets() > gets, "nothing was read");
    let loaded = finished(bed.stoker(["load"]).arg(bed.path("mnt")));
    assert!(loaded.status.success(), "{}", text(&loaded));
    daemon.end();
    drop_page_cache();
    let gets = bed.gets();
    let daemon = bed.mount(&["--fill", "off"]);
    assert_eq!(program(&bed.path("mnt")), expected, "of a warm mount");
    assert_eq!(bed.gets(), gets, "all of it was in the cache");
    daemon.end();
}

/// Whether there is such a program; if not, says so.
fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("SKIPPED: there is no {program} here");
    }
    found
}

/// A tree of small files, a large one, one of nothing and one of zeros.
fn tree(bed: &Bed) {
    for number in 0..60_u64 {
        bed.put(&format!("folder {}/{number}.bin", number % 5), &noise(number as usize * 2_003, number));
    }
    bed.put("large", &noise(LARGE, 100));
    bed.put("zeros", &vec![0; 3 << 20]);
    bed.put("deep/er/and/deeper/käse 100%", b"cheese");
}

#[test]
fn tar_makes_the_same_archive() {
    let Some(bed) = Bed::new().filter(|_| is_here("tar")) else { return };
    tree(&bed);
    // Modes, owners and times of folders are the mount's own.
    let same = "--sort=name --format=gnu --mode=a=r --owner=0 --group=0 --numeric-owner --mtime=@0";
    agrees(&bed, |folder| said("sh", &["-c", &format!("tar -c {same} . | sha256sum")], folder));
    let daemon = bed.mount(&["--fill", "off"]);
    // As a file that has holes, if it had any.
    for (sparse, into) in [("--no-xattrs", "plain"), ("--sparse", "sparse")] {
        fs::create_dir(bed.path(into)).expect("a folder");
        let copy = format!("tar -c {sparse} . | tar -x -C '{}'", bed.path(into).display());
        said("sh", &["-c", &copy], &bed.path("mnt"));
        compare(&bed.path(into), &bed.path("data"));
    }
    daemon.end();
}

#[test]
fn rsync_copies_the_same_and_has_nothing_to_do_afterwards() {
    let Some(bed) = Bed::new().filter(|_| is_here("rsync")) else { return };
    tree(&bed);
    let copy = bed.path("copy");
    let to = format!("{}/", copy.display());
    agrees(&bed, |folder| {
        let _ = fs::remove_dir_all(&copy);
        said("rsync", &["-rt", "./", &to], folder);
        compare(&copy, &bed.path("data"));
        // By time and size, and then by content.
        let again = said("rsync", &["-rti", "--omit-dir-times", "./", &to], folder);
        assert_eq!(again, "", "it copies again what is the same");
        let checked = said("rsync", &["-rci", "--dry-run", "--omit-dir-times", "./", &to], folder);
        assert_eq!(checked, "", "it finds other content");
        let listed = said("rsync", &["-r", "--list-only", "./"], folder);
        listed.lines().filter(|line| line.starts_with('-')).map(|line| &line[10..]).collect()
    });
}

/// A repository with history in `data`, whose objects are loose and of which one is large.
fn repository(bed: &Bed) {
    tree(bed);
    let git = |words: &[&str]| {
        said("git", &[&["-c", "user.name=a", "-c", "user.email=a@b"], words].concat(), &bed.path("data"))
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["config", "core.compression", "0"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    bed.put("folder 1/1.bin", b"changed");
    git(&["commit", "-q", "-a", "-m", "second"]);
    // In a mount, files are not executable.
    git(&["config", "core.fileMode", "false"]);
    bed.put("folder 2/new", b"not known to git");
    fs::remove_file(bed.data("folder 3/8.bin")).expect("it is there");
}

#[test]
fn git_says_the_same_of_a_checkout() {
    let Some(bed) = Bed::new().filter(|_| is_here("git")) else { return };
    repository(&bed);
    agrees(&bed, |folder| {
        let say = |words: &[&str]| said("git", words, folder);
        let status = say(&["status", "--porcelain"]);
        assert_eq!(status, " D \"folder 3/8.bin\"\n?? \"folder 2/new\"\n");
        let history = say(&["log", "--stat", "--format=%H %s"]);
        let checked = say(&["fsck", "--full", "--strict", "--no-progress"]);
        let shown = said("sh", &["-c", "git show HEAD~1:large | sha256sum && git archive HEAD | sha256sum"], folder);
        let cloned = bed.path("clone");
        let _ = fs::remove_dir_all(&cloned);
        say(&["clone", "-q", ".", &cloned.display().to_string()]);
        [status, history, checked, shown, said("git", &["rev-parse", "HEAD"], &cloned)].concat()
    });
}

#[test]
fn sqlite_reads_the_same_tables() {
    let Some(bed) = Bed::new().filter(|_| is_here("sqlite3")) else { return };
    let make = "create table noise(id integer primary key, bytes blob, number real);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
        insert into noise select i, zeroblob(900) || i, i * 1.5 from n; create index numbers on noise(number);";
    for (name, journal) in [("usual.db", "delete"), ("ahead.db", "wal")] {
        said("sqlite3", &[name, &format!("pragma journal_mode={journal}; {make}")], &bed.path("data"));
    }
    said("sqlite3", &["small.db", "create table one(x); insert into one values (1), (2);"], &bed.path("data"));
    assert!(fs::metadata(bed.data("usual.db")).expect("it is there").len() > 16 << 20);
    agrees(&bed, |folder| {
        let ask = "pragma integrity_check; select count(*), sum(length(bytes)), sum(number) from noise;
            select id from noise where number between 3000 and 3010; select hex(bytes) from noise where id = 12345;";
        let of = |name: &str, how: &str, ask: &str| said("sqlite3", &[&format!("file:{name}?{how}"), ask], folder);
        // One that has a log of its own can't be shared by who may not write beside it.
        [
            of("usual.db", "immutable=1", ask),
            of("usual.db", "mode=ro", ask),
            of("ahead.db", "immutable=1", ask),
            of("small.db", "mode=ro", "select sum(x) from one"),
        ]
        .concat()
    });
}

/// A Python that has a library: what `make programs` brought, what the system has, the user's own.
fn python(library: &str) -> Option<PathBuf> {
    let brought = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/programs/bin/python");
    let all = [brought, "/usr/bin/python3".into(), "python3".into()];
    let has = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", &format!("import {library}")]).stdin(Stdio::null());
        let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        done.is_ok_and(|done| done.success())
    };
    let found = all.into_iter().find(has);
    if found.is_none() {
        eprintln!("SKIPPED: no python3 here has {library}: `make programs` brings it");
    }
    found
}

/// One kind of `programs/formats.py`, whose library has this name.
fn format_agrees(kind: &str, library: &str) {
    let Some(python) = python(library) else { return };
    let Some(bed) = Bed::new() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/formats.py");
    let script = script.canonicalize().expect("it lies beside this file").display().to_string();
    let data = bed.path("data").display().to_string();
    let python = python.display().to_string();
    // The module compiled is nothing to leave in the repository.
    let run = |verb: &str, folder: &Path| said(&python, &["-B", &script, verb, kind, "."], folder);
    run("make", &bed.path("data"));
    assert!(
        support::content::files(Path::new(&data))
            .iter()
            .any(|name| { fs::metadata(bed.data(&name.to_string_lossy())).is_ok_and(|found| found.len() > 16 << 20) })
    );
    agrees(&bed, |folder| run("read", folder));
}

#[test]
fn the_library_of_python_reads_the_same() {
    format_agrees("stdlib", "mmap");
}

#[test]
fn numpy_reads_and_maps_the_same_arrays() {
    format_agrees("numpy", "numpy");
}

#[test]
fn h5py_reads_the_same_data_sets() {
    format_agrees("h5py", "h5py");
}

#[test]
fn pillow_decodes_the_same_pictures() {
    format_agrees("pictures", "PIL, numpy");
}

#[test]
fn pyarrow_reads_the_same_tables() {
    format_agrees("pyarrow", "pyarrow");
}

#[test]
fn duckdb_finds_the_same_rows() {
    format_agrees("duckdb", "duckdb, pyarrow");
}

#[test]
fn safetensors_maps_the_same_tensors() {
    format_agrees("safetensors", "safetensors, numpy");
}

#[test]
fn four_workers_of_pytorch_that_shuffle_get_the_same_samples() {
    format_agrees("torch", "torch, numpy");
}

/// A module of Python that looks at the client in Python; what it says is shown.
fn looked_at(library: &str, words: &[&str]) {
    let Some(python) = python(library) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(python);
    command.args(["-B", "-m"]).args(words).current_dir(root.join("python"));
    command.env("STOKER_BIN", env!("CARGO_BIN_EXE_stoker"));
    let done = command.output().expect("it runs");
    let said = text(&done);
    eprintln!("{said}");
    assert!(done.status.success());
    // It succeeds as well where all that wants a library was skipped.
    let is_whole = root.join("target/tools/programs/whole").exists();
    assert!(!is_whole || !said.contains("SKIPPED: there is no"), "a library is missing that `make programs` brought");
}

#[test]
fn fsspec_s_own_tests_pass_and_libraries_read_through_it_the_same() {
    looked_at("fsspec, pytest", &["pytest", "-p", "no:cacheprovider", "-rs", "-v", "tests/test_fsspec.py"]);
}

#[test]
fn the_client_in_python_has_strict_types() {
    looked_at("mypy", &["mypy", "--strict", "--cache-dir", "/dev/null", "stoker"]);
}
