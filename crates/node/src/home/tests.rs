//! Which folders are taken for a cache, and by whom.

use super::*;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

fn folder(mode: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    folder
}

#[test]
fn a_folder_that_others_can_write_into_is_refused() {
    let denied = |folder: &tempfile::TempDir, group| {
        matches!(Home::take(folder.path(), group), Err(Error { kind: Kind::Denied, .. }))
    };
    assert!(denied(&folder(0o777), false) && denied(&folder(0o777), true));
    let of_group = folder(0o770);
    assert!(denied(&of_group, false) && !denied(&of_group, true));
    let own = folder(0o755);
    assert!(!denied(&own, false));
    std::fs::create_dir(own.path().join("blocks")).unwrap();
    symlink("/tmp", own.path().join("blocks/objects")).unwrap();
    assert!(denied(&own, false), "a link within it leads elsewhere");
}

#[test]
fn a_cache_that_was_begun_on_a_full_disk_or_lost_its_power_is_taken_again() {
    for lock in [&b""[..], &[0; 12]] {
        let begun = folder(0o700);
        std::fs::write(begun.path().join("lock"), lock).unwrap();
        std::fs::create_dir_all(begun.path().join("blocks/objects")).unwrap();
        std::fs::create_dir_all(begun.path().join("manifests")).unwrap();
        std::fs::write(begun.path().join("blocks/index"), b"").unwrap();
        drop(Home::take(begun.path(), false).unwrap());
        std::fs::write(begun.path().join("lock"), b"").unwrap();
        std::fs::write(begun.path().join("blocks/objects/data"), b"somebody's").unwrap();
        assert!(Home::take(begun.path(), false).is_err());
    }
}

#[test]
fn what_others_can_reach_and_write_within_a_cache_is_refused() {
    let top = folder(0o755);
    drop(Home::take(top.path(), false).unwrap());
    let deep = top.path().join("blocks/objects/abcd");
    std::fs::create_dir_all(&deep).unwrap();
    let index = top.path().join("blocks/index");
    std::fs::write(&index, b"").unwrap();
    let may = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let is_denied = || matches!(Home::take(top.path(), false), Err(Error { kind: Kind::Denied, .. }));
    let open = || ["", "blocks", "blocks/objects"].iter().for_each(|folder| may(&top.path().join(folder), 0o755));
    open();
    for (path, closed, written) in [(&deep, 0o700, 0o777), (&index, 0o600, 0o666)] {
        may(path, closed);
        assert!(!is_denied());
        may(path, written);
        assert!(is_denied(), "{}", path.display());
        may(top.path(), 0o700);
        may(&top.path().join("blocks"), 0o700);
        may(&top.path().join("blocks/objects"), 0o700);
        assert!(!is_denied(), "nobody gets there");
        open();
        may(path, closed);
    }
}

#[test]
fn a_folder_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can give a folder away");
    }
    let foreign = folder(0o755);
    std::os::unix::fs::chown(foreign.path(), Some(12_345), None).unwrap();
    assert!(matches!(Home::take(foreign.path(), false), Err(Error { kind: Kind::Denied, .. })));
}

#[test]
fn a_folder_with_data_in_it_is_refused_and_left_as_it_is() {
    let own = folder(0o700);
    std::fs::create_dir(own.path().join("lost+found")).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(own.path().join("lost+found"), Some(12_345), None).unwrap();
    }
    drop(Home::take(own.path(), false).unwrap());
    std::fs::write(own.path().join("note"), b"beside a cache").unwrap();
    assert!(Home::take(own.path(), false).is_ok(), "it is a cache already");

    for name in ["blocks/objects/precious", "lock", "picture.jpg", ".hidden", "blocks/index"] {
        let data = folder(0o700);
        let file = data.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, b"somebody's data").unwrap();
        let before = std::fs::read_dir(data.path()).unwrap().count();
        let Err(error) = Home::take(data.path(), false) else { panic!("{name} was taken over") };
        assert_eq!((error.kind, &*error.on), (Kind::Denied, &*data.path().display().to_string()));
        assert_eq!(std::fs::read(&file).unwrap(), b"somebody's data");
        assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), before, "nothing was made");
    }
}

#[test]
fn what_stands_in_the_place_of_a_file_of_the_cache_is_named_and_refused() {
    type Makes = fn(&Path);
    let pipe: Makes = |path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap();
    let socket: Makes = |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    let inner: Makes = |path| std::fs::create_dir(path).unwrap();
    let plain: Makes = |path| std::fs::write(path, b"").unwrap();
    let device: Makes = |path| {
        use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
        mknodat(CWD, path, FileType::CharacterDevice, Mode::RUSR, makedev(1, 3)).unwrap();
    };
    let mut makes = vec![("a pipe", pipe), ("a socket", socket), ("a folder", inner), ("a file", plain)];
    match rustix::process::geteuid().is_root() {
        true => makes.push(("a device", device)),
        false => eprintln!("SKIPPED: only root can make a device"),
    }
    for name in ["lock", "blocks", "blocks/index", "blocks/clean", "blocks/objects", "manifests"] {
        let own_kind = if is_folder(name) { "a folder" } else { "a file" };
        for (there, make) in makes.iter().filter(|(there, _)| *there != own_kind) {
            let own = folder(0o700);
            std::fs::create_dir(own.path().join("blocks")).unwrap();
            // One of them says that it is a cache.
            let mark = if name == "lock" { ("blocks/index", LOG_MARK) } else { ("lock", MARK) };
            std::fs::write(own.path().join(mark.0), mark.1).unwrap();
            let path = own.path().join(name);
            if name == "blocks" {
                std::fs::remove_dir(&path).unwrap();
            }
            make(&path);
            let Err(error) = Home::take(own.path(), false) else { panic!("{there} as {name} was taken") };
            assert!(error.what.contains(there), "{name}: {error}");
            assert!(error.hint.contains(&format!("rm {}", path.display())) || *there == "a folder", "{error}");
            assert_eq!(error.on, path.display().to_string(), "{error}");
            assert!(std::fs::symlink_metadata(&path).is_ok(), "it is left");
        }
    }
}

fn is_folder(name: &str) -> bool {
    ["blocks", "blocks/objects", "manifests"].contains(&name)
}

#[test]
fn caches_without_a_mark_are_caches() {
    let (older, killed) = (folder(0o700), folder(0o700));
    std::fs::create_dir_all(older.path().join("blocks/objects")).unwrap();
    std::fs::create_dir_all(older.path().join("manifests")).unwrap();
    std::fs::write(older.path().join("blocks/index"), b"STOKERLG\x02\0\0\0whatever").unwrap();
    std::fs::write(killed.path().join("lock"), b"").unwrap();
    for cache in [older, killed] {
        drop(Home::take(cache.path(), false).unwrap());
        assert_eq!(std::fs::read(cache.path().join("lock")).unwrap(), MARK);
    }
}

#[test]
fn a_cache_of_which_only_names_are_left_is_one() {
    let own = folder(0o700);
    let snapshot = own.path().join("manifests/names");
    std::fs::create_dir(own.path().join("manifests")).unwrap();
    for (content, is_ours) in [(&SNAPSHOT_MARK[..], true), (b"somebody's", false)] {
        std::fs::write(&snapshot, content).unwrap();
        assert_eq!(Home::take(own.path(), false).is_ok(), is_ours);
        assert_eq!(std::fs::read(&snapshot).unwrap(), content);
        let _ = std::fs::remove_file(own.path().join("lock"));
    }
}

#[test]
fn a_folder_that_was_removed_is_taken_again_unless_another_node_has_it() {
    let top = folder(0o700);
    let path = top.path().join("cache");
    let home = Home::take(&path, false).unwrap();
    assert_eq!(home.hold().unwrap(), Hold::Same);
    for removed in [path.clone(), path.join("lock")] {
        let remove = || match removed.is_dir() {
            true => std::fs::remove_dir_all(&removed).unwrap(),
            false => std::fs::remove_file(&removed).unwrap(),
        };
        remove();
        assert_eq!((home.hold().unwrap(), home.hold().unwrap()), (Hold::Anew, Hold::Same));
        assert!(Home::take(&path, false).is_err(), "it is held");
        remove();
        let other = Home::take(&path, false).unwrap();
        assert!(matches!(home.hold(), Err(Error { kind: Kind::Unavailable { .. }, .. })));
        drop(other);
        assert_eq!(home.hold().unwrap(), Hold::Anew, "others were here");
    }
}

#[test]
fn a_folder_that_cannot_be_looked_at_is_still_held() {
    let top = folder(0o700);
    let (path, aside) = (top.path().join("cache"), top.path().join("aside"));
    let home = Home::take(&path, false).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    symlink(&path, &path).unwrap();
    assert_eq!(home.hold().unwrap(), Hold::Unknown, "a link to itself leads nowhere, also for root");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"").unwrap();
    assert!(home.hold().is_err(), "it is gone, and there is no place for another");
}

#[test]
fn a_folder_has_one_node() {
    let own = folder(0o700);
    let first = Home::take(own.path(), false).unwrap();
    assert!(matches!(Home::take(own.path(), false), Err(Error { kind: Kind::Unavailable { .. }, .. })));
    drop(first);
    assert!(Home::take(own.path(), false).is_ok());
}
