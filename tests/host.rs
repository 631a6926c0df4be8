//! Stoker where it lives: mount(8) and a table of file systems, and a user who is not root.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use support::confines::wrapped;
use support::content::noise;
use support::{BUCKET, Bed, LONG, eventually, finished, is_root, pids, text};

/// Run a script in a mount namespace of its own, as root; `None`, and said so, where it ends with 77: it could not prepare.
fn within(bed: &Bed, script: &str) -> Option<String> {
    if !is_root() {
        eprintln!("SKIPPED: only root can lay one file system over another");
        return None;
    }
    let done = finished(&mut wrapped("unshare", &["-m", "sh", "-c", script, "sh"], &bed.stoker(["unused"])));
    if done.status.code() == Some(77) {
        eprintln!("SKIPPED: no file system can be laid over another here: {}", text(&done));
        return None;
    }
    assert!(done.status.success(), "{}", text(&done));
    Some(text(&done))
}

/// Prepares /sbin to have `mount.stoker` too.
fn helper(bed: &Bed) -> String {
    fs::create_dir(bed.path("over")).expect("a folder");
    format!(
        "sbin=$(readlink -f /sbin); mount -t tmpfs none {0} || exit 77; mkdir {0}/u {0}/w; ln -s {1} {0}/u/mount.stoker
         mount -t overlay over -o lowerdir=$sbin,upperdir={0}/u,workdir={0}/w $sbin || exit 77\n",
        bed.path("over").display(),
        env!("CARGO_BIN_EXE_stoker")
    )
}

#[test]
fn mount_and_the_table_of_file_systems_know_the_type_stoker() {
    let Some(bed) = Bed::new() else { return };
    bed.put("folder/file", &noise(300_000, 1));
    fs::create_dir(bed.path("copy")).expect("a folder");
    let options = format!(
        "anonymous,region=us-east-1,endpoint={},cache={},uid=7,_netdev,x-systemd.automount,noauto",
        bed.endpoint(),
        bed.path("cache").display()
    );
    let at = bed.path("mnt").display().to_string();
    fs::write(bed.path("fstab"), format!("s3://{BUCKET}/folder {at} stoker {options} 0 0\n")).expect("a table");
    let script = format!(
        "mount -t stoker s3://{BUCKET}/folder {at} -o {options}
         stat -c uid=%u {at}/file; cp {at}/file {copy}/file; umount {at}
         mount -T {table} {at}; cat {at}/file > {copy}/again; umount {at}
         mount -t stoker s3://{BUCKET} {at} -o {options},no_such_thing=1 && exit 1; echo \"code $?\"
         mount -t stoker s3://no-such-bucket {at} -o {options} && exit 1; echo \"code $?\"
         mount -f -t stoker s3://{BUCKET} {at} -o {options}; mountpoint -q {at} && exit 1; ls -A {at}",
        copy = bed.path("copy").display(),
        table = bed.path("fstab").display()
    );
    let Some(said) = within(&bed, &format!("{}set -e\n{script}", helper(&bed))) else { return };
    for words in ["uid=7\n", "no_such_thing", "code 1\n", "code 32\n", "no-such-bucket"] {
        assert!(said.contains(words), "`{words}` is missing: {said}");
    }
    for name in ["file", "again"] {
        let read = fs::read(bed.path("copy").join(name)).expect("a copy");
        support::content::same(&read, &noise(300_000, 1), &name);
    }
    eventually("nothing is left", || pids(&bed.path("run")).is_empty());
}

/// A user who is nobody in particular.
const USER: u32 = 65_534;

#[test]
fn who_is_not_root_mounts_by_fusermount_and_is_told_that_files_do_not_pass_through() {
    let Some(bed) = Bed::new() else { return };
    bed.put("small", &noise(100_000, 1));
    bed.put("large", &noise((17 << 20) + 5, 2));
    for name in ["bin", "cache"] {
        fs::create_dir(bed.path(name)).expect("a folder");
    }
    // The program lies where anybody may read it; all else that it needs is this user's own.
    fs::set_permissions(bed.path(""), fs::Permissions::from_mode(0o755)).expect("its folder is ours");
    fs::copy(env!("CARGO_BIN_EXE_stoker"), bed.path("bin/stoker")).expect("a copy");
    let script = format!(
        "cd {scratch}; chown {USER} mnt run home cache
         # As distributions have the device: anybody may open it.
         mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse || exit 77
         set -e
         as='setpriv --reuid={USER} --regid={USER} --clear-groups --'
         (cd data; sha256sum small large)
         $as bin/stoker mount s3://{BUCKET} mnt --cache cache --detach --fill off {reach}
         for time in cold warm; do $as sh -c 'cd mnt; sha256sum small large'; done
         ls mnt 2> /dev/null && exit 1
         $as bin/stoker status
         $as bin/stoker umount mnt",
        scratch = bed.path("").display(),
        reach = bed.reach().join(" ")
    );
    let Some(said) = within(&bed, &script) else { return };
    let sums: Vec<&str> = said.lines().filter(|line| line.ends_with("  small") || line.ends_with("  large")).collect();
    assert_eq!((sums.len(), &sums[..2], &sums[..2]), (6, &sums[2..4], &sums[4..]), "{said}");
    assert!(said.contains("passthrough off") || said.contains("passthrough needs"), "{said}");
    eventually("nothing is left", || pids(&bed.path("run")).is_empty());
}

#[test]
fn a_mount_whose_folder_above_was_renamed_is_found_by_its_new_path_and_only_by_that() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(300_000, 1));
    fs::create_dir(bed.path("above")).expect("a folder");
    let (held, mut left) = (bed.mount_at(&format!("s3://{BUCKET}"), "above/held", &[]), {
        let words = ["--detach"];
        bed.mount_at(&bed.path("data").display().to_string(), "above/left", &words)
    });
    assert!(left.waited(LONG).is_some_and(|status| status.success()));
    fs::rename(bed.path("above"), bed.path("renamed")).expect("it is ours");
    let on = |word: &str, at: &str| bed.run([word.as_ref(), bed.path(at).as_os_str()]);
    let is_shown = |at: &str| {
        let shown = bed.path(at).display().to_string();
        bed.status()["mounts"].as_array().is_some_and(|mounts| mounts.iter().any(|mount| mount["path"] == *shown))
    };
    let goes = |word: &str, at: &str| {
        let done = on(word, at);
        assert!(done.status.success(), "{word} {at}: {}", text(&done));
    };
    let both_are_found = || {
        for at in ["renamed/held", "renamed/left"] {
            assert!(is_shown(at), "{}", bed.status());
            goes("status", at);
            support::content::compare(&bed.path(at), &bed.path("data"));
        }
        goes("load", "renamed/held/file");
        let gone = on("status", "above/held");
        assert!(!gone.status.success(), "{}", text(&gone));
    };
    both_are_found();
    if bed.status()["keeper"]["state"] == "on" {
        goes("restart", "renamed/left");
        both_are_found();
    }
    // At the old path there may be another by now.
    let mut other = bed.mount_at(&bed.path("data").display().to_string(), "above", &["--detach"]);
    assert!(other.waited(LONG).is_some_and(|status| status.success()));
    goes("umount", "renamed/left");
    assert!(is_shown("above") && is_shown("renamed/held") && !is_shown("renamed/left"), "{}", bed.status());
    goes("umount", "above");
    held.end();
    eventually("nothing is left", || pids(&bed.path("run")).is_empty());
}

/// Files to mount; their folder, a mount point, two folders to bind a part and all of it to, and the command that mounts.
fn to_be_bound() -> Option<(Bed, [String; 5])> {
    let bed = Bed::new()?;
    bed.put("deep/file", &noise(300_000, 1));
    bed.put("file", &noise(10, 2));
    ["part", "all"].iter().for_each(|name| fs::create_dir(bed.path(name)).expect("a folder"));
    let [data, cache, mnt, part, all] =
        ["data", "cache", "mnt", "part", "all"].map(|name| bed.path(name).display().to_string());
    let (stoker, endpoint) = (env!("CARGO_BIN_EXE_stoker"), bed.endpoint());
    let mount = format!(
        "{stoker} mount --fill off --anonymous --region us-east-1 --endpoint {endpoint} --cache {cache} s3://{BUCKET} {mnt}"
    );
    Some((bed, [data, mnt, part, all, mount]))
}

#[test]
fn what_is_bound_from_a_mount_is_known_as_a_part_of_it_and_never_ends_it() {
    let Some((bed, [data, mnt, part, all, mount])) = to_be_bound() else { return };
    let stoker = env!("CARGO_BIN_EXE_stoker");
    let script = format!(
        "set -e; {mount} --detach; mount --bind {mnt}/deep {part}; mount --bind {mnt} {all}
         find {part} -type f | {stoker} load --stdin {part} 2>&1; {stoker} status {all}
         {stoker} umount {part} 2>&1 && exit 1; {stoker} umount {all} 2>&1 && exit 1; cmp {part}/file {all}/deep/file
         {stoker} umount {mnt} 2>&1; cmp {all}/file {data}/file; {stoker} refresh {all}
         echo moved; {stoker} status {all}/deep; echo moved
         {stoker} umount {all} 2>&1; cmp {part}/file {data}/deep/file; {stoker} status; {stoker} umount {part}
         {mount} & for i in $(seq 100); do [ -e {mnt}/file ] || sleep 0.1; done; mount --bind {mnt} {all}; exec 7<{mnt}/file
         {stoker} umount --lazy {mnt} 2>&1; {stoker} refresh {all}; mount --bind {all} {part}; kill -9 $!
         for i in $(seq 100); do ! grep -q -e {all} -e {part} /proc/self/mountinfo || sleep 0.1; done
         ! grep -e {all} -e {part} /proc/self/mountinfo"
    );
    let Some(said) = within(&bed, &script) else { return };
    assert!(said.contains("1 file, 300 kB"), "{said}");
    assert_eq!(said.matches(&format!("this is another place of the mount {mnt}\n")).count(), 2, "{said}");
    assert_eq!(said.matches(&format!("unmounted here, and still mounted at {all}\n")).count(), 2, "{said}");
    let moved = said.split("moved\n").nth(1).expect("a status");
    assert!(moved.contains(&format!("  {all}  s3://")) && !moved.contains("detached"), "its place by then: {said}");
    assert_eq!(
        said.matches(&format!("unmounted here, and a part of it is still mounted at {part}\n")).count(),
        1,
        "{said}"
    );
    assert_eq!(said.matches("unmounted here, and held where a part of it is bound").count(), 1, "{said}");
    eventually("the node has ended", || bed.nodes().is_empty());
}

#[test]
fn a_mount_that_ends_leaves_nothing_where_it_was_bound_and_says_so_where_another_covers_it() {
    let Some((bed, [data, mnt, part, all, mount])) = to_be_bound() else { return };
    let stoker = env!("CARGO_BIN_EXE_stoker");
    let is_up = format!("for i in $(seq 100); do [ -e {mnt}/file ] || sleep 0.1; done");
    let is_gone = format!(
        "for i in $(seq 100); do ! grep -q -e {all} -e {part} /proc/self/mountinfo || sleep 0.1; done
         ! grep -e {all} -e {part} /proc/self/mountinfo || exit 1"
    );
    // What is mounted there is at two places at once.
    let within_shared = format!("{} {all}/m", mount.strip_suffix(&mnt).expect("the mount point comes last"));
    let script = format!(
        "set -e; {mount} --detach; mount -t tmpfs over {mnt}
         {stoker} umount {mnt} 2>&1 && exit 1; {stoker} umount --lazy {mnt} 2>&1 && exit 1; umount {mnt}
         cmp {mnt}/file {data}/file; {stoker} umount {mnt}
         {mount} & {is_up}; mount --bind {mnt}/deep {part}; kill $!; wait $!; {is_gone}
         {mount} 2>&1 & {is_up}; mount --bind {mnt} {all}; mount --bind {mnt}/deep {part}; mount -t tmpfs over {mnt}
         kill $!; wait $! && exit 1; {is_gone}; umount {mnt}; {stoker} umount {mnt}
         {mount} --detach; mount --bind {mnt} {all}; mount --bind {mnt}/deep {mnt}; {stoker} umount {mnt} 2>&1 && exit 1
         umount {mnt}; {stoker} umount {mnt} 2>&1 & {stoker} umount {mnt} 2>&1; wait $!
         cmp {all}/file {data}/file; {stoker} umount {all}
         {mount} --detach; mount --bind {mnt}/deep {part}; {stoker} umount {mnt} 2>&1; {stoker} status {part} 2>&1 && exit 1
         {stoker} umount {part}
         mount -t tmpfs over {all}; mount --make-shared {all}; mkdir {all}/m; mount --bind {all} {part}
         {within_shared} & for i in $(seq 100); do [ -e {part}/m/file ] || sleep 0.1; done; cmp {part}/m/file {all}/m/file
         kill $!; wait $!; ! grep -e {all}/m -e {part}/m /proc/self/mountinfo || exit 1; umount {part}; umount {all}
         mount -t tmpfs older {part}; {mount} --detach; mount --move {part} {mnt}; {stoker} umount {mnt} 2>&1 && exit 1
         umount {mnt}; cmp {mnt}/file {data}/file; {stoker} umount {mnt}"
    );
    let Some(said) = within(&bed, &script) else { return };
    assert_eq!(said.matches("another mount covers it\n").count(), 4, "{said}");
    assert!(said.contains(&format!("this is a part of the mount {mnt} that is bound over it\n")), "{said}");
    assert!(said.contains("a part of a mount is bound there, and the whole of it is not mounted here\n"), "{said}");
    assert!(said.contains(&format!("unmounted here, and still mounted at {all}\n")), "{said}");
    eventually("the node has ended", || bed.nodes().is_empty());
}
