//! Names, attributes and listings through a real kernel mount.

mod common;

use common::{Body, Mounted, Tree, eventually, modified_ns, noise};
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
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for (path, node) in [("", ROOT), ("folder", folder), ("folder/file.bin", file)] {
        let meta = fs::metadata(mounted.path(path)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (user, group), "`{path}` belongs to whoever mounted");
        assert_eq!(meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), modified_ns(node), "time of `{path}`");
    }
    assert_eq!(names(&mounted.path("")), BTreeSet::from(["folder".into()]));
    assert_eq!(names(&mounted.path("folder")), BTreeSet::from(["deeper".into(), "file.bin".into()]));
    let meta = fs::metadata(mounted.path("folder/file.bin")).unwrap();
    assert_eq!((meta.size(), meta.ino(), meta.nlink(), meta.blocks()), (1234, file, 1, 3));
    assert_eq!(meta.mode(), 0o100_444);
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

/// What a listing that was begun still gives.
fn rest(begun: fs::ReadDir) -> Vec<String> {
    begun.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_listing_goes_on_with_the_names_that_it_began_with_across_refreshes() {
    let tree = Tree::new();
    let folder = tree.folder(ROOT, "many");
    let name = |index: usize| format!("{index:05}");
    for index in 0..MANY {
        tree.file(folder, &name(index), Body::Bytes(noise(1, 1)));
    }
    tree.pin();
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let first: Vec<String> = (0..MANY).map(name).collect();
    let (mut expected, mut begun) = (first.clone(), Vec::new());
    // Before the kernel keeps the listing, and while it does.
    for round in 0..4 {
        let mut listing = fs::read_dir(mounted.path("many")).unwrap();
        let some: Vec<String> =
            listing.by_ref().take(10).map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        begun.push((some, listing, expected.clone()));
        // Half of what was passed goes, so that positions shift, and others come.
        let gone: Vec<String> = expected.iter().step_by(2).cloned().collect();
        gone.iter().for_each(|name| tree.remove(folder, name));
        let come: Vec<String> = (0..100).map(|index| format!("new-{round}-{index}")).collect();
        for name in &come {
            tree.file(folder, name, Body::Bytes(noise(1, 1)));
        }
        expected = expected.iter().skip(1).step_by(2).cloned().chain(come.iter().cloned()).collect();
        tree.pin();
        let stale = gone.iter().chain(&come).map(|name| (folder, name.clone().into_bytes())).collect();
        mounted.session.invalidate(&stale);
        assert_eq!(rest(fs::read_dir(mounted.path("many")).unwrap()), expected, "round {round}");
    }
    for (mut names, listing, expected) in begun {
        names.extend(rest(listing));
        assert_eq!(names, expected);
    }
}

#[test]
fn a_listing_of_names_alone_makes_no_inodes_and_one_with_attributes_few_lookups() {
    let tree = Tree::new();
    let mut nodes = Vec::new();
    for folder in ["a", "b", "c", "d"] {
        let folder = tree.folder(ROOT, folder);
        nodes.extend((0..500).map(|index| tree.file(folder, &format!("{index}"), Body::Bytes(noise(1, 1)))));
    }
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    ["a", "b", "c", "d"].iter().for_each(|folder| assert_eq!(names(&mounted.path(folder)).len(), 500));
    assert!(nodes.iter().all(|&node| tree.count(node) == 0), "no file was made known to the kernel");
    let lookups = || tree.lookups.load(std::sync::atomic::Ordering::Relaxed);
    let before = lookups();
    let listed = std::process::Command::new("ls").arg("-lR").arg(mounted.path("")).output().unwrap();
    assert!(listed.status.success());
    let all = lookups() - before;
    // From the kernel's own pages, a listing needs a lookup a name.
    assert!(all <= 2010, "{all} lookups");
    for folder in ["a", "b", "c", "d"] {
        mounted
            .session
            .invalidate(&(0..500).map(|index| (folder_of(&tree, folder), format!("{index}").into())).collect());
    }
    let before = lookups();
    let listed = std::process::Command::new("ls").arg("-lR").arg(mounted.path("")).output().unwrap();
    assert!(listed.status.success());
    let again = lookups() - before;
    assert!(again <= 510, "{again} lookups: one folder to learn, then one a folder");
}

fn folder_of(tree: &Tree, name: &str) -> u64 {
    let found = tree.lookup(ROOT, name.as_bytes()).unwrap().node;
    tree.remember(found, -1);
    found
}

#[test]
fn names_end_at_255_bytes() {
    let tree = Tree::new();
    tree.file(ROOT, &"n".repeat(255), Body::Bytes(noise(10, 1)));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    assert_eq!(fs::metadata(mounted.path(&"n".repeat(255))).unwrap().len(), 10);
    let program = "import os, sys\n\
        print(os.statvfs(sys.argv[1]).f_namemax)\n\
        for length in 255, 256, 1000:\n\
        \x20   try: os.stat(os.path.join(sys.argv[1], 'm' * length))\n\
        \x20   except OSError as error: print(error.errno)";
    assert_eq!(common::python(program, &mounted.path("")), "255\n2\n36\n36");
}

#[test]
fn owner_and_permissions_are_as_they_were_asked_for_and_the_kernel_goes_by_them() {
    let tree = Tree::new();
    let folder = tree.folder(ROOT, "folder");
    tree.file(folder, "file", Body::Bytes(noise(10, 1)));
    let shown = |options: &mut stoker_mount::Options| {
        (options.owner, options.group) = (Some(1234), Some(1235));
        (options.file_mode, options.folder_mode) = (0o6_740, 0o750);
    };
    let Some(mounted) = Mounted::new(&tree, shown) else { return };
    let file = fs::metadata(mounted.path("folder/file")).unwrap();
    assert_eq!((file.mode(), file.uid(), file.gid()), (0o100_740, 1234, 1235), "and never set-user-id");
    assert_eq!(fs::metadata(mounted.path("folder")).unwrap().mode(), 0o040_750);
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can ask as another user");
    }
    let program = "import os, sys\n\
        for user, group in (1234, 1), (1, 1235), (1, 1):\n\
        \x20   if os.fork() == 0:\n\
        \x20       os.setgroups([]); os.setgid(group); os.setuid(user)\n\
        \x20       try: print(len(open(sys.argv[1], 'rb').read()), os.access(sys.argv[1], os.X_OK), flush=True)\n\
        \x20       except OSError as error: print(error.errno, flush=True)\n\
        \x20       os._exit(0)\n\
        \x20   os.wait()";
    // The folder that the test is in is its user's alone.
    let open = std::process::Command::new("chmod").arg("755").arg(mounted.local_folder()).status().unwrap();
    assert!(open.success());
    assert_eq!(common::python(program, &mounted.path("folder/file")), "10 True\n10 False\n13");
}
