//! Manifests and folders of strangers: what they name is not believed, and what lies there is not overwritten.

use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use store::Memory;
use targets::{Folder, Store, Target};

use super::*;

/// A small set, and what its manifest says.
fn small(folder: &Path) -> Value {
    let images = ImageSpec { count: 3, classes: 1, mean_bytes: 8 << 10 };
    made(&Set { images, seed: 2, ..Set::default() }, folder);
    serde_json::from_slice(&fs::read(folder.join(MANIFEST)).unwrap()).unwrap()
}

/// The folder of a set after a stranger changed its manifest.
fn changed(folder: &Path, change: impl Fn(&mut Value)) -> Result<Manifest> {
    let mut told = small(folder);
    change(&mut told);
    fs::write(folder.join(MANIFEST), told.to_string()).unwrap();
    Manifest::open(folder)
}

/// A store in memory, written to from this thread.
fn memory(runtime: &tokio::runtime::Runtime) -> (Arc<Memory>, Store) {
    let memory = Arc::new(Memory::new("bucket"));
    let both: (Arc<dyn store::Store>, Arc<dyn store::Sink>) = (memory.clone(), Arc::new(memory.clone()));
    (memory.clone(), Store::over("memory://bucket/set", "set/", both, runtime.handle().clone(), 1))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn copied(manifest: &Manifest, from: &Path, to: &dyn Target) -> Result<()> {
    copy(manifest, &Folder::at(from).unwrap(), to.writable().unwrap(), THREADS, &|_| ())
}

#[test]
fn a_manifest_names_only_files_of_its_set() {
    for name in
        ["../keys", "/etc/keys", "train/../../keys", "", ".ssh/keys", "train/.keys", "a//b", "./a", "a\0", MANIFEST]
    {
        let folder = scratch();
        let error = changed(folder.path(), |told| told["files"][0]["path"] = json!(name)).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{name:?}: {error}");
    }
}

type Change = fn(&mut Value);

#[test]
fn a_manifest_that_contradicts_itself_is_refused() {
    let changes: [(&str, Change); 6] = [
        ("another format", |told| told["format"] = json!(2)),
        ("one file twice", |told| told["files"][1] = told["files"][0].clone()),
        ("out of order", |told| told["files"].as_array_mut().unwrap().reverse()),
        ("more bytes than there can be", |told| {
            (0..2).for_each(|file| told["files"][file]["bytes"] = json!(u64::MAX));
        }),
        ("more samples than there can be", |told| {
            (0..2).for_each(|file| told["files"][file]["samples"] = json!(u64::MAX));
        }),
        ("more records than there can be", |told| {
            (0..2).for_each(|file| told["files"][file]["records"] = json!(u64::MAX));
        }),
    ];
    for (what, change) in changes {
        let error = changed(scratch().path(), change).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{what}: {error}");
    }
}

#[test]
fn a_manifest_or_an_index_of_any_size_is_not_read_into_memory() {
    let folder = scratch();
    small(folder.path());
    let sparse = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(path).unwrap().set_len(20 << 30).unwrap();
    };
    let mut manifest = Manifest::open(folder.path()).unwrap();
    manifest.files[0].records = 5;
    sparse(&index::name(&manifest.files[0].path));
    let target = Folder::at(folder.path()).unwrap();
    assert_eq!(manifest.records(&target, &manifest.files[0]).unwrap_err().kind, Kind::Invalid);
    sparse(MANIFEST);
    assert_eq!(Manifest::open(folder.path()).unwrap_err().kind, Kind::Invalid);
    fs::remove_file(folder.path().join(MANIFEST)).unwrap();
    mknodat(CWD, folder.path().join(MANIFEST), FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert_eq!(Manifest::open(folder.path()).unwrap_err().kind, Kind::Invalid, "a pipe that nobody writes to");
}

#[test]
fn a_copy_overwrites_nothing_of_a_folder_that_holds_something_else() {
    let (from, other) = (scratch(), scratch());
    small(from.path());
    let manifest = Manifest::open(from.path()).unwrap();
    made(&set(), other.path());
    let theirs = fs::read(other.path().join(MANIFEST)).unwrap();
    let to = Folder::at(other.path()).unwrap();
    assert_eq!(copied(&manifest, from.path(), &to).unwrap_err().kind, Kind::Invalid, "another set");
    assert_eq!(fs::read(other.path().join(MANIFEST)).unwrap(), theirs);
    for name in [manifest.files[0].path.as_str(), ".hidden", MANIFEST] {
        let folder = scratch();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "precious").unwrap();
        let to = Folder::at(folder.path()).unwrap();
        assert_eq!(copied(&manifest, from.path(), &to).unwrap_err().kind, Kind::Invalid, "{name}");
        assert_eq!(fs::read(&path).unwrap(), b"precious", "{name}");
        assert!(copied(&manifest, from.path(), &to).is_err(), "nor does it the second time");
    }
}

#[test]
fn a_copy_overwrites_nothing_of_a_store_that_holds_something_else() {
    let (from, runtime) = (scratch(), runtime());
    small(from.path());
    let manifest = Manifest::open(from.path()).unwrap();
    for name in [manifest.files[0].path.as_str(), "else/where", MANIFEST] {
        let (memory, to) = memory(&runtime);
        memory.put(&format!("set/{name}"), b"precious".to_vec());
        assert_eq!(copied(&manifest, from.path(), &to).unwrap_err().kind, Kind::Invalid, "{name}");
        assert_eq!(to.stat(name).unwrap().bytes, 8, "{name}");
    }
    let (memory, to) = memory(&runtime);
    memory.put("sets/keys", b"of another prefix".to_vec());
    memory.put("set/", Vec::new());
    copied(&manifest, from.path(), &to).unwrap();
    copied(&manifest, from.path(), &to).unwrap();
    assert!(verify(&manifest, &to, THREADS, &|_| ()).unwrap().is_empty());
}

#[test]
fn a_copy_that_was_cut_short_is_begun_again() {
    let (from, to) = (scratch(), scratch());
    small(from.path());
    let manifest = Manifest::open(from.path()).unwrap();
    let last = from.path().join(&manifest.files[2].path);
    let bytes = fs::read(&last).unwrap();
    fs::write(&last, "torn").unwrap();
    let target = Folder::at(to.path()).unwrap();
    copy(&manifest, &Folder::at(from.path()).unwrap(), &target, 1, &|_| ()).unwrap_err();
    assert!(to.path().join(&manifest.files[0].path).exists(), "files lie there already");
    fs::write(&last, bytes).unwrap();
    copied(&manifest, from.path(), &target).unwrap();
    assert_eq!(Manifest::open(to.path()).unwrap(), manifest);
}

#[test]
fn a_copy_that_has_no_room_is_refused_before_it_begins() {
    let (from, to) = (scratch(), scratch());
    small(from.path());
    let mut manifest = Manifest::open(from.path()).unwrap();
    room(&manifest, to.path()).unwrap();
    manifest.files[0].bytes = 1 << 60;
    assert_eq!(room(&manifest, to.path()).unwrap_err().kind, Kind::Full);
}
