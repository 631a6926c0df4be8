//! `stoker bench` from end to end, as a user types it: make a set, put it into a bucket, train on the bucket and on a
//! folder, replay what a program asked, simulate from the probe, and lay the reports over each other.

mod support;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::{BUCKET, Bed, eventually, finished, is_root, signal, text};

/// A command that succeeded, or that only found accelerators waiting (3).
fn ran(done: &Output) {
    assert!(matches!(done.status.code(), Some(0 | 3)), "{}", text(done));
}

/// A command whose accelerators waited for storage of a known speed, which it did not find faster than that.
fn ran_slowly(done: &Output, report: &Path, bytes_per_second: f64) {
    assert_eq!(done.status.code(), Some(3), "{}", text(done));
    for epoch in json(report)["epochs"].as_array().expect("epochs") {
        let of = |name: &str| epoch[name].as_f64().unwrap_or_else(|| panic!("no {name}: {epoch}"));
        // What lay in buffers when the clock began is little beside a second's worth.
        assert!(of("seconds") > 1.0 && of("bytes_per_second") < 1.05 * bytes_per_second, "{epoch}");
        assert!((50.0..=102.0).contains(&of("share_of_bound_percent")), "{epoch}: {}", text(done));
    }
}

/// The machine for itself: what is measured here beside others would be measured too low, by the probe as by the loop.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a report")).expect("a document")
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Two hundred small images below `img` of the bed, and in its bucket.
fn images(bed: &Bed) {
    let mut command = bed.stoker(words("bench data --workload imagenet-folder --files 200 --verify"));
    command.arg(bed.path("img")).args(["--to", &format!("s3://{BUCKET}/img")]).args(bed.reach());
    ran(&finished(&mut command));
}

const JOB: &str = "--workload imagenet-folder --accelerators 2 --set step=5ms,batch=2,epochs=2,threads=2,prefetch=2";

/// Many steps with little on its way, so that the share of the bound is that of a steady loop within a percent.
const STEADY: &str = "batch=1,threads=1,prefetch=1";

#[test]
fn a_training_loop_that_is_interrupted_says_so_and_keeps_what_had_ended() {
    let _alone = alone();
    let Some(bed) = Bed::new() else { return };
    images(&bed);
    let kept = bed.path("kept.json");
    let mut command = bed.stoker(words(&format!("bench train --target {} {JOB}", bed.path("img").display())));
    command.args(["--set", "epochs=100000"]).arg("--save").arg(&kept).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let has_ended = || json(&kept)["epochs"].as_array().is_some_and(|epochs| !epochs.is_empty());
    eventually("an epoch has ended", || kept.exists() && has_ended());
    signal(child.id(), "INT");
    let ended = child.wait_with_output().expect("it ends");
    let said = text(&ended);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(["interrupted", "kept.json", "not finished"].iter().all(|word| said.contains(word)), "{said}");
    let kept = json(&kept);
    assert_eq!((&kept["finished"], &kept["summary"]["passed"]), (&false.into(), &false.into()), "{kept}");
    assert!(kept["summary"].get("verdict").is_none(), "{kept}");
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_set_that_lost_files_is_refused_with_their_names() {
    let _alone = alone();
    let Some(bed) = Bed::new() else { return };
    images(&bed);
    let mut images = files(&bed.path("img/train"));
    images.sort();
    fs::remove_file(&images[7]).expect("a file");
    fs::write(&images[9], "cut").expect("a file");
    let train = |more: &[&str]| {
        let line = format!("bench train --target {} {JOB}", bed.path("img").display());
        finished(bed.stoker(words(&line)).args(more))
    };
    let done = train(&[]);
    assert_eq!(done.status.code(), Some(2), "{}", text(&done));
    let names = [7, 9].map(|at| images[at].file_name().expect("a name").to_str().expect("text").to_owned());
    for said in ["2 of 200 files", "(missing)", "(3 bytes instead of", &names[0], &names[1], ".stoker-data.json"] {
        assert!(text(&done).contains(said), "{said}: {}", text(&done));
    }
    // As its advice says: the same command makes what is missing.
    let line = format!("bench data {} --workload imagenet-folder --files 200", bed.path("img").display());
    ran(&finished(&mut bed.stoker(words(&line))));
    ran(&train(&["--set", "epochs=1,steps=50,pause=0s"]));
}

#[test]
fn a_target_that_vanishes_leaves_what_was_measured_and_why_it_ended() {
    let _alone = alone();
    let Some(bed) = Bed::new() else { return };
    images(&bed);
    let [kept, page] = ["kept.json", "kept.html"].map(|name| bed.path(name));
    let mut command = bed.stoker(words(&format!("bench train --target {} {JOB}", bed.path("img").display())));
    command.args(["--set", "epochs=100000,pause=0s"]).arg("--save").arg(&kept).arg("--report").arg(&page);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    eventually("an epoch has ended", || {
        kept.exists() && json(&kept)["epochs"].as_array().is_some_and(|epochs| !epochs.is_empty())
    });
    fs::remove_dir_all(bed.path("img/train")).expect("a folder");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended));
    let report = json(&kept);
    assert_eq!((&report["finished"], &report["summary"]["passed"]), (&false.into(), &false.into()), "{report}");
    assert!(report["epochs"].as_array().is_some_and(|epochs| !epochs.is_empty()) && page.exists());
    let error = report["sections"]["error"].as_str().expect("an error");
    assert!(text(&ended).contains(error.lines().next().expect("a line")), "{error}: {}", text(&ended));
}

#[test]
fn a_bucket_is_measured_verified_and_simulated_from_its_probe() {
    let _alone = alone();
    let Some(bed) = Bed::new() else { return };
    images(&bed);
    let (measured, page) = (bed.path("bucket.json"), bed.path("bucket.html"));
    bed.set_bandwidth(8_000_000);
    let mut command = bed.stoker(words(&format!("bench train --target s3://{BUCKET}/img {JOB},{STEADY}")));
    command.args(bed.reach()).arg("--save").arg(&measured).arg("--report").arg(&page);
    ran_slowly(&finished(&mut command), &measured, 8e6);
    let report = json(&measured);
    assert_eq!((&report["kind"], &report["finished"]), (&Value::from("measured"), &Value::from(true)));
    let epochs = report["epochs"].as_array().expect("epochs");
    assert_eq!(epochs.len(), 2);
    for epoch in epochs {
        assert_eq!(epoch["samples"], 200, "100 steps of 2 accelerators with a sample each");
        assert_eq!(epoch["cold"], true, "what reads a store keeps nothing");
        let bytes = &epoch["bytes"];
        assert!(bytes["asked"].as_u64() > Some(0) && bytes["asked"] == bytes["verified"], "{bytes}");
        assert_eq!(bytes["asked"], bytes["storage"], "each byte is one of an answer");
        for figure in ["au_percent", "au_dlio_percent", "ceiling_percent", "bound_percent", "share_of_bound_percent"] {
            assert!(epoch[figure].as_f64().is_some_and(|percent| percent > 0.0), "{figure}: {}", epoch[figure]);
        }
    }
    assert_eq!(report["sections"]["probe"]["given_percent"], 100.0);
    assert!(fs::read_to_string(&page).expect("a page").contains("imagenet-folder"));
    let simulated = bed.path("simulated.json");
    let mut command = bed.stoker(words("bench simulate --workload imagenet-folder --accelerator fixed --seed 1"));
    command.args(["--accelerators", "2,8", "--epochs", "1x20", "--calibrate"]).arg(&measured);
    ran(&finished(command.arg("--save").arg(&simulated)));
    let report = json(&simulated);
    assert_eq!((&report["kind"], report["points"].as_array().map(Vec::len)), (&Value::from("simulated"), Some(2)));
    let mut command = bed.stoker(["bench", "compare"]);
    let done = finished(command.arg(&measured).arg(&simulated));
    ran(&done);
    assert!(text(&done).contains("simulated"), "{}", text(&done));
}

#[test]
fn what_a_program_asked_is_asked_again_by_the_workload_that_observe_wrote() {
    let _alone = alone();
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: only root has a mount namespace everywhere");
    }
    images(&bed);
    let (workload, measured) = (bed.path("observed.toml"), bed.path("replay.json"));
    let read = "import glob,sys\nfor name in sorted(glob.glob(sys.argv[1] + '/**/*.JPEG', recursive=True)): open(name, 'rb').read()";
    let mut command = bed.stoker(["observe", "--workload"]);
    command.arg(&workload).arg(bed.path("img")).args(["--", "python3", "-c", read]).arg(bed.path("img"));
    ran(&finished(&mut command));
    let line = format!("bench train --accelerators 1 --set step=1ms,epochs=1,{STEADY} --shape-disk 8MB/s");
    let mut command = bed.stoker(words(&line));
    command.arg("--workload").arg(&workload).arg("--target").arg(bed.path("img"));
    ran_slowly(&finished(command.arg("--save").arg(&measured)), &measured, 8e6);
    let report = json(&measured);
    assert_eq!(report["epochs"][0]["samples"], 200, "every file that the program read");
}

#[test]
fn a_mount_of_our_own_is_made_cold_by_the_command_that_mounts_it_anew() {
    let _alone = alone();
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: only root can make the kernel forget a FUSE file system");
    }
    images(&bed);
    bed.set_bandwidth(8_000_000);
    let at = bed.path("own");
    fs::create_dir(&at).expect("a folder");
    let typed = |command: &Command| {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" ")
    };
    let mut mount = bed.mounting(&format!("s3://{BUCKET}/img"), "own", &["--detach"]);
    let umount = bed.stoker(["umount".as_ref(), at.as_os_str()]);
    let cache = bed.path("cache");
    let anew = format!("{} && rm -r {} && {}", typed(&umount), cache.display(), typed(&mount));
    ran(&finished(&mut mount));
    let report = bed.path("own.json");
    let workload = bed.path("own.toml");
    let shipped = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/imagenet-folder.toml"))
        .expect("a shipped workload");
    fs::write(&workload, shipped.replace("pause_seconds = 30", "")).expect("a workload without pauses");
    let job = JOB.replace("imagenet-folder", &workload.display().to_string());
    let mut command = bed.stoker(words(&format!("bench train --target {} {job},{STEADY}", at.display())));
    let done = finished(command.arg("--save").arg(&report).args(["--drop-command", &anew]));
    ran(&done);
    let epochs = json(&report)["epochs"].clone();
    assert_eq!((&epochs[0]["cold"], &epochs[1]["cold"]), (&true.into(), &false.into()), "{}", text(&done));
    // The first epoch had to wait for a store of 8 MB/s, the second had all at hand.
    let rate = |epoch: usize| epochs[epoch]["bytes_per_second"].as_f64().expect("a rate");
    assert!(rate(0) < 1.1 * 8e6 && rate(1) > 2.0 * rate(0), "{}", text(&done));
    // The first had all of it from the store, the second nothing.
    let nodes = [0, 1].map(|epoch| epochs[epoch]["nodes"][0].clone());
    let of = |epoch: usize, tier: &str| nodes[epoch]["bytes_by_tier"][tier].as_u64().expect("bytes");
    assert!(of(0, "store") >= nodes[0]["asked_bytes"].as_u64().expect("bytes") && of(1, "store") == 0, "{nodes:?}");
    assert_eq!((&epochs[0]["hit_percent"], &epochs[1]["hit_percent"]), (&0.0.into(), &100.0.into()), "{nodes:?}");
    assert!(text(&done).contains("epoch 1.2: hit rate 100.0 % on "), "{}", text(&done));
    ran(&finished(&mut bed.stoker(["umount".as_ref(), at.as_os_str()])));
}

#[test]
fn what_can_not_be_measured_is_refused_with_what_to_try() {
    let _alone = alone();
    let Some(bed) = Bed::new() else { return };
    fs::create_dir(bed.path("empty")).expect("a folder");
    let empty = bed.path("empty").display().to_string();
    for (line, said) in [
        (format!("--target /no/such/folder {JOB}"), "name a folder that exists"),
        (format!("--target {empty} {JOB}"), "stoker bench data"),
        (format!("--target null: {JOB} --save /proc/x.json"), "name a file in a folder"),
        (format!("--target null: {JOB} --report /sys/x.html"), "name a file in a folder"),
        (
            "--workload UNet3D --accelerator H100 --target null: --accelerators 100000 --set threads=1000000".into(),
            "fewer",
        ),
        (format!("--target null: {JOB} --set threads=1000000000000000000"), "at most 10^9"),
        (format!("--target {empty} {JOB} --set caches=keep --drop-command true"), "leave it out"),
        (format!("--target s3://{BUCKET}/none {JOB}"), "stoker bench data"),
        ("--workload nothing --target null:".into(), "unet3d"),
        (format!("--workload unet3d --accelerator h100 --target {empty} --loader torch --find-max"), "cannot be used"),
    ] {
        let mut command = bed.stoker(words(&format!("bench train {line}")));
        let done = finished(command.args(bed.reach()));
        assert!(done.status.code() == Some(2) && text(&done).contains(said), "{line}: {}", text(&done));
    }
    let made = bed.path("made");
    for (line, said) in [
        (format!("data {} --workload checkpoint-llama3-8b", made.display()), "bench train"),
        (format!("data {} /no/such", made.display()), "no/such"),
        ("compare /no/such.json".into(), "no/such"),
        ("sweep /no/such".into(), "name a folder that exists"),
        ("simulate --workload unet3d --accelerator h100 --accelerators 8..2 --store 1GB/s".into(), "2..8"),
    ] {
        let done = finished(&mut bed.stoker(words(&format!("bench {line}"))));
        assert!(done.status.code() == Some(2) && text(&done).contains(said), "{line}: {}", text(&done));
        assert!(!made.exists(), "{line}: nothing was made");
    }
}

#[test]
fn a_checkpoint_that_was_read_from_memory_says_so_and_judges_nothing() {
    let _alone = alone();
    let Some(bed) = Bed::new() else { return };
    let (folder, saved) = (bed.path("state"), bed.path("state.json"));
    fs::create_dir(&folder).expect("a folder");
    let workload = bed.path("state.toml");
    let shipped = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/checkpoint-llama3-8b.toml"));
    let mut small = shipped.expect("a shipped workload");
    for (from, to) in
        [("writes = 10", "writes = 2"), ("reads = 10", "reads = 1"), ("pause_seconds = 5", "pause_seconds = 0")]
    {
        small = small.replace(from, to);
    }
    fs::write(&workload, small).expect("a workload without pauses");
    let run = |bytes: &str| {
        let set = format!("checkpoint-bytes={bytes},checkpoint-processes=2,caches=keep");
        let mut command =
            bed.stoker(words(&format!("bench train --set {set} --target {} --workload", folder.display())));
        finished(command.arg(&workload).arg("--save").arg(&saved))
    };
    let done = run("8MiB");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    assert!(text(&done).matches("not cold").count() > 1, "{}", text(&done));
    let report = json(&saved);
    assert!(report.get("summary").is_none() && report["finished"] == true, "{report}");
    assert!(report["warnings"].to_string().contains("not cold"), "{report}");
    let passes = report["sections"]["checkpoint"].as_array().expect("passes");
    assert_eq!(passes.len(), 3, "{report}");
    for pass in passes {
        assert_eq!(pass.get("cold").cloned(), (pass["what"] == "read").then_some(Value::from(false)), "{pass}");
        assert_eq!(pass["process_seconds"].as_array().map(Vec::len), Some(2), "{pass}");
    }
    assert!(fs::read_dir(&folder).expect("a folder").next().is_none(), "nothing stays");
    let done = run("9000000GB");
    assert!(!done.status.success() && text(&done).contains("checkpoint-bytes="), "{}", text(&done));
    assert!(fs::read_dir(&folder).expect("a folder").next().is_none(), "nothing was begun");
}
