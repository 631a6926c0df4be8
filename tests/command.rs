//! What the command says when something is wrong: what failed, on what, what to try; its exit code; and that no
//! secret is ever among it.

mod support;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use support::confines::{Group, wrapped};
use support::content::noise;
use support::{
    ACCESS, BUCKET, Bed, Daemon, SECRET, eventually, finished, is_root, mounts, mounts_below, refused,
    refused_as_typed, text,
};

#[test]
fn wrong_credentials_are_named_and_never_shown() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", &noise(1_000, 1));
    let mount = |change: &dyn for<'a> Fn(&'a mut Command) -> &'a mut Command| {
        let mut command = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["-vv"]);
        change(&mut command);
        finished(&mut command)
    };
    let wrong_secret = mount(&|command| command.env("AWS_SECRET_ACCESS_KEY", "another secret than that"));
    refused(&wrong_secret, &["signature", "AWS_SECRET_ACCESS_KEY"]);
    assert!(!text(&wrong_secret).contains("another secret than that"));
    let unknown = mount(&|command| command.env("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN"));
    refused(&unknown, &["403", "access key", "AWS_ACCESS_KEY_ID"]);
    let nobody = mount(&|command| command.arg("--anonymous"));
    refused(&nobody, &["s3:ListBucket"]);
    let none = mount(&|command| command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY"));
    refused(&none, &["credentials"]);
    assert_eq!(mounts(&bed), 0);
}

#[test]
fn a_mount_is_made_by_the_keys_of_who_asks_for_it_and_not_by_those_of_who_started_its_node() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", &noise(1_000, 1));
    let first = bed.mount(&[]);
    fs::create_dir(bed.path("second")).expect("a folder");
    let second = |profile: bool| {
        let mut command = bed.mounting(&format!("s3://{BUCKET}"), "second", &["--detach"]);
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        if profile {
            command.env("AWS_SHARED_CREDENTIALS_FILE", bed.path("keys")).env("AWS_PROFILE", "train");
        }
        finished(&mut command)
    };
    refused(&second(false), &["credentials"]);
    let keys = format!("[train]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n");
    fs::write(bed.path("keys"), keys).expect("written");
    let done = second(true);
    assert!(done.status.success(), "by a file that its node knows nothing of: {}", text(&done));
    assert_eq!(fs::read(bed.path("second/file")).expect("a read"), noise(1_000, 1));
    assert!(bed.run(["umount".as_ref(), bed.path("second").as_os_str()]).status.success());
    first.end();
}

#[test]
fn a_secret_is_in_no_log_no_status_and_no_file() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", &noise(1_000, 1));
    let daemon = bed.mount(&["-vv"]);
    assert_eq!(fs::read(bed.mounted("file")).expect("a read"), noise(1_000, 1));
    let _ = bed.run(["-vv", "refresh"].map(String::from).into_iter().chain([bed.path("mnt").display().to_string()]));
    bed.set_faults("internal-error,seed=1");
    let _ = fs::read(bed.mounted("no such name"));
    let outputs = [bed.run(["status"]), bed.run(["status", "--json"]), bed.run(["-vv", "status"])];
    let said = daemon.said();
    bed.set_faults("");
    daemon.end();
    for text in outputs.iter().map(text).chain([said]) {
        assert!(!text.contains(SECRET) && !text.contains("wJalrXUt"), "{text}");
    }
    for folder in ["cache", "run", "home"] {
        for file in support::content::files(&bed.path(folder)) {
            let bytes = fs::read(bed.path(folder).join(&file)).unwrap_or_default();
            assert!(
                !bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()),
                "{} holds the secret",
                file.display()
            );
        }
    }
}

#[test]
fn an_endpoint_is_taken_from_the_environment_the_one_of_s3_first() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    let nobody = "http://127.0.0.1:9";
    let variables = [
        vec![("AWS_ENDPOINT_URL", bed.endpoint())],
        vec![("AWS_ENDPOINT_URL_S3", bed.endpoint()), ("AWS_ENDPOINT_URL", nobody)],
    ];
    for variables in variables {
        let mut mounting = bed.stoker(["mount", "s3://bucket", "--anonymous", "--region", "us-east-1", "--detach"]);
        mounting.arg(bed.path("mnt")).arg("--cache").arg(bed.path("cache")).envs(variables);
        let mounted = finished(&mut mounting);
        assert!(mounted.status.success(), "{}", text(&mounted));
        assert_eq!(fs::read(bed.mounted("file")).expect("a read"), noise(1_000, 1));
        assert!(finished(bed.stoker(["umount"]).arg(bed.path("mnt"))).status.success());
    }
    let mut flag = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--detach"]);
    assert!(finished(flag.env("AWS_ENDPOINT_URL_S3", nobody)).status.success(), "what is typed goes first");
    assert!(finished(bed.stoker(["umount"]).arg(bed.path("mnt"))).status.success());
}

#[test]
fn a_missing_bucket_or_prefix_and_a_dead_endpoint_are_told_apart() {
    let Some(bed) = Bed::new() else { return };
    bed.put("train/file", &noise(1_000, 1));
    refused(&finished(&mut bed.mounting("s3://no-such-bucket", "mnt", &[])), &["no-such-bucket", "check the name"]);
    refused(
        &finished(&mut bed.mounting(&format!("s3://{BUCKET}/trian"), "mnt", &[])),
        &["nothing under", "trian", "prefix"],
    );
    bed.stop_server();
    let unreachable = finished(&mut bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--patience", "2s"]));
    refused(&unreachable, &["can't connect", bed.endpoint().trim_start_matches("http://")]);
    assert_eq!(mounts(&bed), 0);
}

#[test]
fn what_is_no_url_is_refused_with_the_spelling_that_would_do() {
    let Some(bed) = Bed::new() else { return };
    for (url, says) in [
        ("s3:/bucket", "s3://"),
        ("gs:bucket", "s3://"),
        ("ftp://bucket/x", "gs://"),
        ("https://host/x?y", "without a query"),
        ("https://", "https"),
        ("s3://", "s3://"),
    ] {
        refused_as_typed(&finished(&mut bed.mounting(url, "mnt", &[])), &[says]);
    }
}

#[test]
fn what_can_not_be_meant_is_refused_before_anything_is_made() {
    let Some(bed) = Bed::new() else { return };
    refused(&finished(&mut bed.mounting("file:///no/such/folder", "mnt", &[])), &["/no/such/folder"]);
    let wrong = bed.run(["mount", "--cache-size", "many", "s3://bucket", "/mnt"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    assert_eq!(bed.run(["mount"]).status.code(), Some(2));
    for (flag, value, says) in [
        ("--cache-size", "0GB", "less than 1MB"),
        ("--cache-size", "1KB", "less than 1MB"),
        ("--cache-size", "-5GB", "not understood"),
        ("--cache-size", "999999PB", "exabyte"),
        ("--memory", "-5GB", "not understood"),
        ("--refresh", "0s", "at most once a second"),
        ("--patience", "60", "needs a unit"),
        ("--patience", "0s", "no time"),
    ] {
        let done = bed.run(["mount", flag, value, "s3://bucket", "/mnt"]);
        let said = text(&done);
        assert!(
            done.status.code() == Some(2) && [flag, value, says, "try:"].iter().all(|word| said.contains(word)),
            "{said}"
        );
    }
    let names = [
        (vec!["s3://bucket", "--endpoint", "minio:9000"], "minio:9000"),
        (vec!["s3://bucket", "--endpoint", "ftp://host"], "ftp://host"),
        (vec!["s3://no bucket!"], "no bucket!"),
        (vec!["ftp://host/folder"], "ftp://host/folder"),
        (vec!["s3://bucket", "--profile", "nonesuch"], "nonesuch"),
    ];
    for (words, shown) in names {
        let mount =
            bed.stoker(["mount"]).args(&words).arg(bed.path("mnt")).arg("--cache").arg(bed.path("never")).output();
        refused_as_typed(&mount.expect("stoker runs"), &[shown]);
        let copy = bed.stoker(["load"]).args(&words).arg("--to").arg(bed.path("copy")).output();
        refused_as_typed(&copy.expect("stoker runs"), &[shown]);
    }
    assert!(!bed.path("never").exists() && !bed.path("copy").exists(), "nothing was made");
    let half = bed.stoker(["mount", "s3://bucket"]).arg(bed.path("mnt")).env("AWS_ACCESS_KEY_ID", ACCESS).output();
    refused_as_typed(&half.expect("stoker runs"), &["AWS_SECRET_ACCESS_KEY is not set", "set both"]);
    for words in [
        vec!["mount", "s3://bucket", "/mnt", "--uid", "root"],
        vec!["mount", "s3://bucket", "/mnt", "--memory", "999TB"],
        vec!["emulate", "/", "--listen", "localhost"],
        vec!["bench", "train", "--workload", "nosuch", "--accelerator", "h100", "--target", "/"],
        vec!["bench", "train", "--workload", "resnet50", "--accelerator", "nosuch", "--target", "/"],
        vec!["bench", "train", "--workload", "resnet50", "--accelerator", "h100", "--target", "/", "--report", "/tmp"],
        vec!["bench", "data", "never", "--workload", "nosuch"],
        vec!["bench", "data", "never"],
        vec!["bench", "sweep", "/proc", "--sizes", "5"],
    ] {
        let done = finished(bed.stoker(&words).current_dir(bed.path("home")));
        let said = text(&done);
        assert!(done.status.code() == Some(2) && said.contains("try:"), "{words:?}: {said}");
        assert!(!bed.path("home/never").exists(), "{words:?} made the folder");
    }
    let bare = bed.run(["mount", "--cache-size", "10", "s3://bucket", "/mnt"]);
    assert!(bare.status.code() == Some(2) && text(&bare).contains("needs a unit"), "{}", text(&bare));
    refused_as_typed(
        &finished(&mut bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--memory", "1MiB"])),
        &["--memory", "64MiB"],
    );
}

#[test]
fn a_mount_point_that_will_not_do_is_refused() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    let url = format!("s3://{BUCKET}");
    refused(&finished(&mut bed.mounting(&url, "missing", &[])), &["does not exist", "mkdir -p"]);
    fs::write(bed.path("plain"), b"").expect("a file");
    refused_as_typed(&finished(&mut bed.mounting(&url, "plain", &[])), &["not a folder"]);
    let name = std::ffi::OsStr::from_bytes(b"bad\xff");
    fs::create_dir(bed.path("").join(name)).expect("a folder");
    let mut odd = bed.stoker(["mount", &url]);
    let odd = odd.arg(bed.path("").join(name)).args(bed.reach()).arg("--cache").arg(bed.path("cache"));
    refused_as_typed(&finished(odd), &["not UTF-8"]);
    let file = bed.data("file").display().to_string();
    refused_as_typed(&finished(&mut bed.mounting(&file, "mnt", &[])), &["this is a file and not a folder"]);
    let empty = bed.path("home").display().to_string();
    refused(&finished(&mut bed.mounting(&empty, "mnt", &[])), &["no file in this folder", "a folder with files"]);
    let root = finished(bed.stoker(["mount", &url, "/"]).args(bed.reach()));
    refused_as_typed(&root, &["choose another mount point"]);
    let daemon = bed.mount(&[]);
    refused_as_typed(&finished(&mut bed.mounting(&url, "mnt", &[])), &["already mounted", "stoker umount"]);
    refused_as_typed(
        &finished(&mut bed.mounting(&url, "mnt", &["--cache", bed.path("other").to_str().expect("a path")])),
        &["already mounted"],
    );
    assert_eq!(fs::read(bed.mounted("file")).expect("the first goes on"), noise(1_000, 1));
    daemon.end();
}

#[test]
fn without_the_device_it_says_how_to_get_it() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: only root can hide /dev/fuse");
    }
    bed.put("file", &noise(1_000, 1));
    let mounting = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &[]);
    let mut hidden = wrapped(
        "unshare",
        &["-m", "sh", "-c", "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$@\"", "sh"],
        &mounting,
    );
    let done = finished(&mut hidden);
    refused(&done, &["FUSE", "/dev/fuse", "modprobe fuse"]);
}

#[test]
fn the_demo_does_without_the_device() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: only root can hide /dev/fuse");
    }
    let demo = bed.stoker(["demo", "--bandwidth", "1GB", "--latency", "0ms"]);
    let hide = "mount -t tmpfs none /dev && mknod -m 444 /dev/urandom c 1 9 && exec \"$@\"";
    let done = finished(&mut wrapped("unshare", &["-m", "sh", "-c", hide, "sh"], &demo));
    let said = text(&done);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("Without FUSE") && said.contains("Stoker, in process"), "{said}");
}

#[test]
fn the_memory_of_a_node_is_a_quarter_of_what_its_control_group_allows() {
    let Some(bed) = Bed::new() else { return };
    let allowed = 512_u64 << 20;
    let Some(group) = Group::new("quarter", allowed) else { return };
    bed.put("file", &noise(1_000, 1));
    let url = format!("s3://{BUCKET}");
    let within = |more: &[&str]| group.within(&bed.mounting(&url, "mnt", more));
    refused_as_typed(&finished(&mut within(&["--memory", "1GiB"])), &["control group allows", "--memory"]);
    let daemon = Daemon::start(&mut within(&[]), &bed.path("mnt"), &bed.path("mnt.log"));
    assert_eq!(bed.status()["limits"]["memory_bytes"], allowed / 4);
    daemon.end();
}

#[test]
fn nothing_can_be_written() {
    let Some(bed) = Bed::new() else { return };
    bed.put("folder/file", &noise(1_000, 1));
    let daemon = bed.mount(&[]);
    let read_only = |what: &str, error: std::io::Error| assert_eq!(error.raw_os_error(), Some(30), "{what}: {error}");
    let (file, new) = (bed.mounted("folder/file"), bed.mounted("folder/new"));
    read_only("create", fs::write(&new, b"x").expect_err("EROFS"));
    read_only("open", fs::File::options().write(true).open(&file).expect_err("EROFS"));
    read_only("unlink", fs::remove_file(&file).expect_err("EROFS"));
    read_only("rename", fs::rename(&file, &new).expect_err("EROFS"));
    read_only("mkdir", fs::create_dir(&new).expect_err("EROFS"));
    read_only("rmdir", fs::remove_dir(bed.mounted("folder")).expect_err("EROFS"));
    read_only("chmod", fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).expect_err("EROFS"));
    read_only("link", fs::hard_link(&file, &new).expect_err("EROFS"));
    read_only("symlink", std::os::unix::fs::symlink("x", &new).expect_err("EROFS"));
    assert_eq!(fs::read(&file).expect("a read"), noise(1_000, 1));
    daemon.end();
}

#[test]
fn a_path_below_a_mount_point_is_not_unmounted() {
    let Some(bed) = Bed::new() else { return };
    bed.put("folder/file", &noise(1_000, 1));
    let daemon = bed.mount(&[]);
    for inside in ["folder", "folder/file"] {
        let done = finished(bed.stoker(["umount"]).arg(bed.mounted(inside)));
        refused_as_typed(&done, &["inside the mount", &format!("stoker umount {}", bed.path("mnt").display())]);
    }
    assert_eq!(mounts(&bed), 1);
    daemon.kill();
    for words in [["status"], ["load"], ["refresh"]] {
        refused(&finished(bed.stoker(words).arg(bed.path("mnt"))), &["dead", "stoker umount", "mount again"]);
    }
    let inside = finished(bed.stoker(["umount"]).arg(bed.mounted("folder")));
    refused_as_typed(&inside, &["inside the mount"]);
    assert!(finished(bed.stoker(["umount"]).arg(bed.path("mnt"))).status.success());
    assert_eq!(mounts(&bed), 0);
}

#[test]
fn what_can_not_be_printed_is_an_error_but_for_a_closed_pipe_and_a_mount_stays_one() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    let full = || fs::File::options().write(true).open("/dev/full").expect("a device that is full");
    let closed = || std::io::pipe().expect("a pipe").1;
    let to = |command: &mut Command, out: std::process::Stdio| command.stdout(out).output().expect("it runs");
    let mut mounting = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--detach"]);
    let mounted = to(&mut mounting, full().into());
    assert!(mounted.status.success() && text(&mounted).contains("it is mounted, but"), "{}", text(&mounted));
    let point = bed.path("mnt").display().to_string();
    for words in [
        vec!["status"],
        vec!["status", "--json"],
        vec!["log"],
        vec!["load", &point],
        vec!["load", &point, "--json"],
        vec!["refresh", &point],
        vec!["bench", "train", "--list"],
        vec!["man"],
        vec!["completions", "bash"],
        vec!["--help"],
        vec!["--version"],
        vec!["bench", "train", "--help"],
    ] {
        refused(&to(&mut bed.stoker(&words), full().into()), &["printed", "standard output"]);
        let unread = to(&mut bed.stoker(&words), closed().into());
        assert_eq!((unread.status.code(), text(&unread)), (Some(141), String::new()), "{words:?}");
        // Where not even that can be said, it is at least no panic.
        let mute = bed.stoker(&words).stdout(full()).stderr(full()).status().expect("it runs");
        assert_eq!(mute.code(), Some(1), "{words:?}");
    }
    assert!(finished(bed.stoker(["umount"]).arg(&point)).status.success());
}

#[test]
fn a_runtime_folder_is_an_absolute_path_and_a_node_is_not_started_again_and_again() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    let mut relative = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &[]);
    refused_as_typed(&finished(relative.env("STOKER_RUNTIME_DIR", "run")), &["STOKER_RUNTIME_DIR", "absolute"]);
    refused_as_typed(&finished(bed.stoker(["status"]).env("STOKER_RUNTIME_DIR", "run")), &["absolute"]);
    // A folder that is another one to the node, which works at the root: it is never found where it is looked for.
    let run = format!("/proc/self/cwd{}", bed.path("run").display());
    let below = bed.path("home").join(run.trim_start_matches("/proc/self/cwd/"));
    fs::create_dir_all(below).expect("a folder");
    let mut lost = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &[]);
    lost.env("STOKER_RUNTIME_DIR", run).current_dir(bed.path("home"));
    let mut lost = Daemon::spawn(&mut lost, &bed.path("mnt"), &bed.path("lost.log"));
    let (mut most, mut all) = (0, std::collections::BTreeSet::new());
    let ended = loop {
        let children = support::children(lost.pid());
        most = most.max(children.len());
        all.extend(children);
        if let Some(ended) = lost.waited(std::time::Duration::from_millis(10)) {
            break ended;
        }
    };
    assert_eq!(ended.code(), Some(1), "{}", lost.said());
    assert!(lost.said().contains("another node has this cache folder"), "{}", lost.said());
    assert!((1..=3).contains(&most), "{most} children at once: the node, and one that finds it there");
    assert!(all.len() <= 30, "{all:?}: so many tries are made in eleven seconds, each a process that ends at once");
    assert_eq!(mounts(&bed), 0);
}

#[test]
fn a_result_takes_the_place_of_a_file_and_of_nothing_else() {
    let Some(bed) = Bed::new() else { return };
    let pipe = bed.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
    let words = "bench simulate --workload unet3d --accelerator h100 --accelerators 1 --store 10Gbit/s --epochs 1x5";
    for flag in ["--save", "--csv", "--report"] {
        let done = finished(bed.stoker(words.split(' ')).arg(flag).arg(&pipe));
        refused_as_typed(&done, &["a device or a pipe", "name a file"]);
    }
    assert!(!fs::symlink_metadata(&pipe).expect("it is left").is_file());
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    let Some(bed) = Bed::new() else { return };
    let folder = bed.path("tmp");
    fs::create_dir(&folder).expect("a folder");
    let left = || fs::read_dir(&folder).expect("a folder").count();
    let halfway: [(&str, &dyn Fn() -> bool); 2] =
        [("it makes its data", &|| left() > 0), ("it reads through its mount", &|| mounts_below(&folder) > 0)];
    for (when, is_there) in halfway {
        let mut demo = bed.stoker(["demo", "--bandwidth", "1GB/s", "--latency", "5ms"]);
        let mut demo = demo.env("TMPDIR", &folder).stdout(std::process::Stdio::null()).spawn().expect("it starts");
        eventually(when, is_there);
        support::signal(demo.id(), "INT");
        assert_eq!(demo.wait().expect("it ends").code(), Some(130), "{when}");
        assert_eq!((left(), mounts_below(&folder)), (0, 0), "{when}");
    }
}

#[test]
fn a_demo_takes_no_folder_in_which_it_would_remove_somebodys_data() {
    let Some(bed) = Bed::new() else { return };
    for name in ["cache", "mnt"] {
        let folder = bed.path("mine");
        fs::create_dir_all(folder.join(name)).expect("a folder");
        fs::write(folder.join(name).join("precious"), b"data").expect("a file");
        refused_as_typed(&finished(bed.stoker(["demo", "--dir"]).arg(&folder)), &["is there already", "--dir"]);
        assert_eq!(fs::read(folder.join(name).join("precious")).expect("it is left"), b"data");
        assert!(!folder.join("data").exists(), "nothing was made");
        fs::remove_dir_all(folder).expect("removed");
    }
}

#[test]
fn commands_about_nothing_say_so() {
    let Some(bed) = Bed::new() else { return };
    for command in ["umount", "refresh", "load", "status"] {
        let mut words = bed.stoker([command]);
        refused(&finished(words.arg(bed.path("mnt"))), &["nothing is mounted there", "stoker status"]);
    }
    let idle = bed.run(["status"]);
    assert!(idle.status.success() && text(&idle).contains("no node is running"), "{}", text(&idle));
    assert_eq!(bed.nodes().len(), 0);
    refused_as_typed(&bed.run(["load", "s3://bucket"]), &["--to FOLDER"]);
}

#[test]
fn the_manual_page_and_completions_name_every_command() {
    let Some(bed) = Bed::new() else { return };
    let page = text(&bed.run(["man"])).replace("\\-", "-");
    let named =
        ["check", "config", "evict", "debug bundle", "cache show", "cache verify", "cache clean", "status", "up"];
    for name in named {
        assert!(page.contains(&format!("stoker {name}")), "{name} is not in the manual page");
        for shell in ["bash", "zsh", "fish"] {
            let script = text(&bed.run(["completions", shell]));
            let word = name.split(' ').next_back().expect("a word");
            assert!(script.contains(word), "{name} is not completed by {shell}");
        }
    }
    assert!(page.contains("--effective") && page.contains("--quick"));
}

#[test]
fn where_there_are_too_few_threads_a_command_says_so_and_does_not_wait() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", b"content");
    for most in [6, 9, 11] {
        let Some(group) = Group::of_threads(&format!("few-{most}"), most) else { return };
        let mounting = bed.mounting(&format!("s3://{}", support::BUCKET), "mnt", &["--detach"]);
        let done = finished(&mut group.within(&mounting));
        assert!(!done.status.success(), "{most}: {}", text(&done));
        assert!(text(&done).contains("threads more") && text(&done).contains("pids.max"), "{most}: {}", text(&done));
    }
}
