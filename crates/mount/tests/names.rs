//! Names, attributes and listings through a real kernel mount.

mod common;

use common::{Body, Mounted, Tree, eventually, noise};
use node::namespace::{Namespace, ROOT};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Enough that a listing takes many requests.
const MANY: usize = 3000;

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_tree_is_listed_and_described_as_it_is() {
    let tree = Tree::new();
    let folder = tree.folder(ROOT, "folder");
    tree.folder(folder, "deeper");
    let file = tree.file(folder, "file.bin", Body::Bytes(noise(1234, 1)));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    assert_eq!(names(&mounted.path("")), BTreeSet::from(["folder".into()]));
    assert_eq!(names(&mounted.path("folder")), BTreeSet::from(["deeper".into(), "file.bin".into()]));
    let meta = fs::metadata(mounted.path("folder/file.bin")).unwrap();
    assert_eq!((meta.size(), meta.ino(), meta.nlink(), meta.blocks()), (1234, file, 1, 3));
    assert_eq!((meta.mode(), meta.mtime(), meta.mtime_nsec()), (0o100_444, 1_500_000_000, 1));
    let meta = fs::metadata(mounted.path("folder")).unwrap();
    assert_eq!((meta.mode(), meta.nlink()), (0o040_555, 3));
    assert_eq!(fs::metadata(mounted.path("nothing")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_long_listing_is_complete_however_it_is_read_and_gives_back_all_lookups() {
    let tree = Tree::new();
    let folder = tree.folder(ROOT, "many");
    let name = |index: usize| format!("{index:05}-{}", "x".repeat(index % 200));
    let nodes: Vec<u64> =
        (0..MANY).map(|index| tree.file(folder, &name(index), Body::Bytes(noise(index, 1)))).collect();
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let expected: BTreeSet<String> = (0..MANY).map(name).collect();
    for _ in 0..3 {
        assert_eq!(names(&mounted.path("many")), expected);
        for entry in fs::read_dir(mounted.path("many")).unwrap() {
            let (entry, size) = entry.map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).unwrap();
            assert_eq!(entry.to_str().unwrap()[..5].parse::<u64>().unwrap(), size);
        }
    }
    let listed = std::process::Command::new("ls").arg("-la").arg(mounted.path("many")).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), MANY + 3, "and . and .. and the total");
    assert!(nodes.iter().all(|&node| tree.count(node) > 0));
    let stale = (0..MANY).map(|index| (folder, name(index).into_bytes())).collect();
    mounted.session.invalidate(&stale);
    eventually("every lookup is given back", || nodes.iter().all(|&node| tree.count(node) == 0));
}

#[test]
fn a_listing_with_attributes_needs_few_lookups() {
    let tree = Tree::new();
    let folder = tree.folder(ROOT, "many");
    for index in 0..MANY {
        tree.file(folder, &format!("{index}"), Body::Bytes(noise(1, 1)));
    }
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    for entry in fs::read_dir(mounted.path("many")).unwrap() {
        entry.unwrap().metadata().unwrap();
    }
    let lookups = tree.lookups.load(std::sync::atomic::Ordering::Relaxed);
    assert!(lookups < MANY as u64 / 4, "{lookups} lookups for {MANY} files");
}

#[test]
fn nothing_can_be_written() {
    let tree = Tree::new();
    tree.file(ROOT, "file", Body::Bytes(noise(10, 1)));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let read_only =
        |outcome: std::io::Result<()>| assert_eq!(outcome.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    read_only(fs::write(mounted.path("new"), b"x"));
    read_only(fs::write(mounted.path("file"), b"x"));
    read_only(fs::remove_file(mounted.path("file")));
    read_only(fs::create_dir(mounted.path("folder")));
    read_only(fs::rename(mounted.path("file"), mounted.path("other")));
}

#[test]
fn a_refresh_shows_new_names_and_versions_and_leaves_open_files_alone() {
    let tree = Tree::new();
    let (old, new) = (noise(5000, 1), noise(6000, 2));
    tree.file(ROOT, "changed", Body::Bytes(old.clone()));
    tree.file(ROOT, "gone", Body::Bytes(noise(10, 1)));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    assert_eq!(names(&mounted.path("")).len(), 2);
    assert_eq!(names(&mounted.path("")).len(), 2, "from the kernel's cache");
    assert_eq!(fs::read(mounted.path("gone")).unwrap().len(), 10);
    let mut open = fs::File::open(mounted.path("changed")).unwrap();
    ["changed", "gone"].into_iter().for_each(|name| tree.remove(ROOT, name));
    tree.file(ROOT, "changed", Body::Bytes(new.clone()));
    tree.file(ROOT, "fresh", Body::Bytes(noise(10, 1)));
    mounted.session.invalidate(&["changed", "gone", "fresh"].map(|name| (ROOT, name.into())).to_vec());
    assert_eq!(names(&mounted.path("")), BTreeSet::from(["changed".into(), "fresh".into()]));
    assert_eq!(fs::read(mounted.path("changed")).unwrap(), new);
    assert!(fs::metadata(mounted.path("gone")).is_err());
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut open, &mut read).unwrap();
    assert_eq!(read, old, "an open file keeps its version");
}

#[test]
fn a_name_that_appears_is_seen_within_the_time_that_its_absence_was_remembered() {
    let tree = Tree::new();
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    assert!(fs::metadata(mounted.path("late")).is_err());
    tree.file(ROOT, "late", Body::Bytes(noise(10, 1)));
    eventually("the name is seen", || fs::metadata(mounted.path("late")).is_ok());
}

#[test]
fn df_shows_what_it_was_told() {
    let tree = Tree::new();
    let space = stoker_mount::Space { bytes: 10 << 30, files: 1234 };
    let Some(mounted) = Mounted::new(&tree, |options| options.space = space) else { return };
    let program = "import os, sys; s = os.statvfs(sys.argv[1]); print(s.f_blocks * s.f_frsize, s.f_files, s.f_bavail)";
    assert_eq!(common::python(program, &mounted.path("")), format!("{} 1234 0", 10_u64 << 30));
    mounted.session.tell_space(stoker_mount::Space { bytes: 0, files: 1 });
    assert_eq!(common::python(program, &mounted.path("")), "0 1 0");
}

#[test]
fn requests_that_are_not_offered_are_refused_politely() {
    let tree = Tree::new();
    tree.file(ROOT, "file", Body::Bytes(noise(100, 1)));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let program = "import os, sys\n\
        path = sys.argv[1]\n\
        for attempt in range(2):\n\
        \x20   try: os.getxattr(path, 'user.x')\n\
        \x20   except OSError as error: print(error.errno)\n\
        fd = os.open(path, os.O_RDONLY)\n\
        print(os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 0, os.SEEK_HOLE)); os.fsync(fd)\n\
        print(os.access(path, os.R_OK), os.access(path, os.X_OK))";
    assert_eq!(common::python(program, &mounted.path("file")), "95\n95\n0 100\nTrue False");
    assert!(tree.attributes(ROOT).is_some());
}
