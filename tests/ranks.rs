//! Many processes as one benchmark: real launchers, four ranks on this machine, one result; and what happens when one of
//! them dies or goes away. Each launcher that isn't here is skipped, and said to be.

mod support;

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::{BUCKET, Bed, finished};

const RANKS: usize = 4;

/// Longer than any launcher takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Rounds that nobody waits for.
const ENDLESS: &str = "100000000";

/// `mpirun` of one MPI, whichever of its names is here, and its compiler.
fn launcher(mpi: &str) -> Option<(Command, String)> {
    let knows = |program: &str, word: &str| {
        let printed = Command::new(program).arg("--version").output();
        printed.is_ok_and(|printed| String::from_utf8_lossy(&printed.stdout).contains(word))
    };
    let (word, short) = if mpi == "Open MPI" { ("Open", "openmpi") } else { ("HYDRA", "mpich") };
    let names = [format!("mpirun.{short}"), "mpirun".to_owned()];
    let Some(program) = names.iter().find(|name| knows(name, word)) else {
        eprintln!("SKIPPED: there is no mpirun of {mpi} here (apt install openmpi-bin libopenmpi-dev, or mpich)");
        return None;
    };
    let mut command = Command::new(program);
    if mpi == "Open MPI" {
        // More ranks than cores, and a machine of tests where everything is root's.
        command.arg("--oversubscribe").env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    let compiler = if program == "mpirun" { "mpicc".to_owned() } else { format!("mpicc.{short}") };
    // What starts ranks and what they are compiled by are packages of their own.
    let compiled = Command::new(&compiler).args(["-E", "-include", "mpi.h", "-x", "c", "/dev/null"]).output();
    if !compiled.is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: there is no mpirun of {mpi} here that has its headers (apt install lib{short}-dev)");
        return None;
    }
    Some((command, compiler))
}

fn ranks(rounds: &str) -> [String; 5] {
    [env!("CARGO_BIN_EXE_stoker"), "bench", "ranks", "--rounds", rounds].map(str::to_owned)
}

/// Start it with its output piped, and in a group of its own, which nothing of a failed test outlives.
fn started(command: &mut Command) -> Launch {
    use std::os::unix::process::CommandExt;
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    Launch(Some(command.spawn().expect("the launcher starts")))
}

struct Launch(Option<Child>);

impl Launch {
    fn id(&self) -> u32 {
        self.0.as_ref().expect("it runs").id()
    }

    /// How it ended, and what it said; a launch that doesn't end fails the test.
    fn ended(mut self) -> Output {
        let mut child = self.0.take().expect("it runs");
        let read = |pipe: Option<Box<dyn Read + Send>>| {
            let mut pipe = pipe.expect("it was piped");
            thread::spawn(move || {
                let mut said = Vec::new();
                let _ = pipe.read_to_end(&mut said);
                said
            })
        };
        let stdout = read(child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
        let stderr = read(child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("its status") {
                break status;
            }
            if began.elapsed() > PATIENCE {
                self.0 = Some(child);
                panic!("the launcher doesn't end");
            }
            thread::sleep(Duration::from_millis(20));
        };
        let [stdout, stderr] = [stdout, stderr].map(|one| one.join().expect("a reader"));
        Output { status, stdout, stderr }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
            let _ = child.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One document from all ranks together.
fn judge(done: &Output, launcher: &str) {
    assert!(done.status.success(), "{}\n{}", text(&done.stdout), text(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("one document, not ({error}): {}", text(&done.stdout)));
    assert_eq!(found["ranks"], RANKS, "{found}");
    assert_eq!(found["hosts"].as_array().map(Vec::len), Some(RANKS), "{found}");
    assert_eq!(found["launcher"], launcher, "{found}");
    let (median, longest) = (&found["barrier_seconds"]["p50"], &found["barrier_seconds"]["max"]);
    assert!(median.as_f64() > Some(0.0) && longest.as_f64() >= median.as_f64(), "{found}");
}

fn find_each_other(mpi: &str) {
    let Some((mut mpirun, compiler)) = launcher(mpi) else { return };
    mpirun.env("MPICC", compiler).args(["-n", &RANKS.to_string()]).args(ranks("50"));
    judge(&started(&mut mpirun).ended(), &format!("mpirun of {mpi}"));
}

#[test]
fn four_ranks_of_open_mpi_find_each_other_and_give_one_result() {
    find_each_other("Open MPI");
}

#[test]
fn four_ranks_of_mpich_find_each_other_and_give_one_result() {
    find_each_other("MPICH");
}

/// The process of a rank, among all that the launcher started.
fn process_of(rank: usize, group: u32) -> Option<u32> {
    let binary = Path::new(env!("CARGO_BIN_EXE_stoker")).canonicalize().expect("it was built");
    let ours = |id: &u32| {
        let place = PathBuf::from(format!("/proc/{id}"));
        let environment = text(&std::fs::read(place.join("environ")).unwrap_or_default());
        let is_set = |name: &str| environment.split('\0').any(|line| line == format!("{name}={rank}"));
        std::fs::read_link(place.join("exe")).is_ok_and(|found| found == binary)
            && environment.split('\0').any(|line| line == format!("STOKER_TEST_OF={}", std::process::id()))
            && (is_set("OMPI_COMM_WORLD_RANK") || is_set("PMI_RANK"))
            && *id != group
    };
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(ours)
}

fn end_with_one(mpi: &str) {
    let Some((mut mpirun, compiler)) = launcher(mpi) else { return };
    let mark = std::process::id().to_string();
    mpirun.env("MPICC", compiler).env("STOKER_TEST_OF", mark).args(["-n", &RANKS.to_string()]).args(ranks(ENDLESS));
    let launch = started(&mut mpirun);
    let began = Instant::now();
    let has_companion = |id: u32| {
        std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).is_ok_and(|found| !found.trim().is_empty())
    };
    let victim = loop {
        match process_of(2, launch.id()) {
            Some(id) if has_companion(id) => break id,
            _ => assert!(began.elapsed() < PATIENCE, "rank 2 doesn't start"),
        }
        thread::sleep(Duration::from_millis(50));
    };
    // Until it has greeted, there is nothing to take with it.
    thread::sleep(Duration::from_secs(1));
    assert!(Command::new("kill").args(["-KILL", &victim.to_string()]).status().expect("kill").success());
    let done = launch.ended();
    assert!(!done.status.success(), "a job that lost a rank is no success");
    assert!(done.stdout.is_empty(), "half a result: {}", text(&done.stdout));
    assert!(!text(&done.stderr).is_empty(), "nobody says why");
    assert!((0..RANKS).all(|rank| process_of(rank, 0).is_none()), "a rank outlives the job");
}

#[test]
fn a_killed_rank_ends_all_ranks_of_open_mpi() {
    end_with_one("Open MPI");
}

#[test]
fn a_killed_rank_ends_all_ranks_of_mpich() {
    end_with_one("MPICH");
}

/// Three ranks go on, the fourth says goodbye at once: a companion without its command, asked to leave.
#[test]
fn a_rank_that_leaves_is_named_by_all_others() {
    let Some((mut mpirun, compiler)) = launcher("Open MPI") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let companion = folder.path().join("companion");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ranks/src/companion.c");
    let made = Command::new(&compiler).arg("-o").arg(&companion).arg(source).status();
    assert!(made.expect("a compiler").success());
    let leaver = format!(r"{{ printf 'Q\0\0\0\0'; sleep 60; }} | {} > /dev/null", companion.display());
    mpirun.env("MPICC", compiler).args(["-n", "3"]).args(ranks(ENDLESS)).args([":", "-n", "1", "sh", "-c", &leaver]);
    let done = started(&mut mpirun).ended();
    assert!(!done.status.success() && done.stdout.is_empty(), "{}", text(&done.stdout));
    assert!(text(&done.stderr).contains("rank 3 left while rank"), "{}", text(&done.stderr));
}

#[test]
fn a_compiler_of_another_mpi_is_refused_with_what_to_do() {
    let (Some((mut mpirun, _)), Some((_, other))) = (launcher("Open MPI"), launcher("MPICH")) else { return };
    mpirun.env("MPICC", other).env("PYTHON", "false").args(["-n", "2"]).args(ranks("1"));
    let done = started(&mut mpirun).ended();
    let said = text(&done.stderr);
    assert!(!done.status.success() && done.stdout.is_empty(), "{}", text(&done.stdout));
    assert!(said.contains("of 1 where the launcher says") && said.contains("try: set MPICC"), "{said}");
}

fn python_with_torch() -> Option<&'static str> {
    let has_torch = |python: &&str| {
        Command::new(python).args(["-c", "import torch"]).output().is_ok_and(|done| done.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_torch);
    if found.is_none() {
        eprintln!("SKIPPED: no python3 here has torch (apt install python3-torch)");
    }
    found
}

#[test]
fn ranks_in_the_environment_of_torchrun_find_each_other() {
    let Some(python) = python_with_torch() else { return };
    // A port that nobody else has: the system's choice, free again by now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port").port();
    let start = |rank: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
        command.args(&ranks("20")[1..]).env("PYTHON", python).env("TORCHELASTIC_RUN_ID", "test");
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string());
        started(command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string()))
    };
    let launches: Vec<Launch> = (0..RANKS).map(start).collect();
    let mut all: Vec<Output> = launches.into_iter().map(Launch::ended).collect();
    judge(&all.remove(0), "torchrun");
    assert!(all.iter().all(|other| other.status.success() && other.stdout.is_empty()), "only rank 0 prints");
}

/// Four ranks train, of which one result comes.
fn trained(mut launcher: Command, before: &[&str], options: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    launcher.args(before).args([env!("CARGO_BIN_EXE_stoker"), "bench", "train", "--workload", "imagenet-folder"]);
    launcher.args(["--target", "null:", "--accelerators", "4", "--set", "epochs=1,steps=24,batch=2,step=20ms,pass=1"]);
    // Long enough for a verdict of what is read ahead.
    launcher.args(["--set", "threads=1,prefetch=1"]);
    let done = started(launcher.args(options).arg("--save").arg(&report)).ended();
    let said = text(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", text(&done.stderr));
    assert_eq!(said.matches("measured: 4 accelerators").count(), 1, "only rank 0 prints: {said}");
    let found: Value = serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("a document");
    assert_eq!((&found["finished"], &found["environment"]["ranks"]), (&true.into(), &RANKS.into()), "{found}");
    let processes = found["epochs"][0]["processes"].as_array().expect("a part of each rank");
    let ranks: Vec<_> = processes.iter().map(|one| one["rank"].as_u64().expect("a number")).collect();
    assert_eq!(ranks, [0, 1, 2, 3], "{found}");
    assert_eq!(found["epochs"][0]["samples"], 4 * 24 * 2, "{found}");
}

#[test]
fn four_ranks_of_open_mpi_train_as_one() {
    let Some((mut mpirun, compiler)) = launcher("Open MPI") else { return };
    mpirun.env("MPICC", compiler);
    trained(mpirun, &["-n", "4"], &[]);
}

/// Eight TFRecord files of twenty samples below `shards` of the bucket, and a workload that reads each rank's own in every epoch.
fn shards(bed: &Bed) -> PathBuf {
    let workload = bed.path("shards.toml");
    let shipped = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/resnet50.toml"));
    let mut small = shipped.expect("a shipped workload");
    for (from, to) in [
        ("count = 1_024", "count = 8"),
        ("samples_per_file = 1_251", "samples_per_file = 20"),
        ("sample_bytes = 114660.07", "sample_bytes = 20000\nsample_bytes_stdev = 5000"),
        ("order = \"sequential\"", "order = \"shards\"\npartition = \"fixed\"\nshuffle_buffer = 8"),
    ] {
        assert!(small.contains(from), "{from}: {small}");
        small = small.replace(from, to);
    }
    fs::write(&workload, small).expect("a workload");
    let mut command = bed.stoker(["bench", "data", "--workload"]);
    command.arg(&workload).arg(bed.path("set")).args(["--to", &format!("s3://{BUCKET}/shards")]).args(bed.reach());
    assert!(finished(&mut command).status.success());
    workload
}

/// `stoker` as a user of this bed, as two ranks of Open MPI.
fn two_ranks(bed: &Bed, mut mpirun: Command, compiler: &str, words: &[&str]) -> Output {
    let stoker = bed.stoker(words);
    mpirun.env("MPICC", compiler).args(["-n", "2"]).arg(stoker.get_program()).args(stoker.get_args());
    for (name, value) in stoker.get_envs() {
        match value {
            Some(value) => mpirun.env(name, value),
            None => mpirun.env_remove(name),
        };
    }
    started(&mut mpirun).ended()
}

#[test]
fn two_ranks_read_every_other_shard_straight_from_a_bucket() {
    let (Some((mpirun, compiler)), Some(bed)) = (launcher("Open MPI"), Bed::new()) else { return };
    let (workload, saved) = (shards(&bed), bed.path("saved.json"));
    let (workload, report) = (workload.to_str().expect("text"), saved.to_str().expect("text"));
    let (target, reach) = (format!("s3://{BUCKET}/shards"), bed.reach());
    let mut words = vec!["bench", "train", "--workload", workload, "--target", &target, "--accelerators", "2"];
    words.extend(["--set", "step=5ms,batch=2,epochs=2,threads=2,prefetch=2,pass=1", "--save", report]);
    words.extend(reach.iter().map(String::as_str));
    let done = two_ranks(&bed, mpirun, &compiler, &words);
    let found: Value = serde_json::from_slice(&fs::read(&saved).unwrap_or_else(|_| panic!("{}", text(&done.stderr))))
        .expect("a document");
    let mut shards: Vec<_> = fs::read_dir(bed.data("shards/train")).expect("the bucket").flatten().collect();
    shards.retain(|entry| entry.file_name().to_string_lossy().contains("-of-"));
    shards.sort_by_key(fs::DirEntry::file_name);
    let sizes: Vec<u64> = shards.iter().map(|shard| shard.metadata().expect("a shard").len()).collect();
    let every_other = |first: usize| sizes[first..].iter().step_by(2).sum::<u64>();
    assert_ne!(every_other(0), every_other(1), "shards of different sizes");
    let epochs = found["epochs"].as_array().expect("epochs");
    assert_eq!(epochs.len(), 2, "{found}");
    for epoch in epochs {
        assert_eq!((&epoch["samples"], &epoch["cold"]), (&160.into(), &true.into()), "{epoch}");
        assert_eq!(epoch["bytes"]["asked"], epoch["bytes"]["storage"], "each byte is one of an answer: {epoch}");
        for rank in 0..2 {
            let process = &epoch["processes"][rank];
            assert_eq!(process["bytes"]["asked"], every_other(rank), "{sizes:?}: {process}");
            assert_eq!(process["bytes"]["asked"], process["bytes"]["verified"], "{process}");
        }
    }
}

#[test]
fn two_ranks_on_one_machine_share_its_mount_and_drop_its_caches_once() {
    let (Some((mpirun, compiler)), Some(bed)) = (launcher("Open MPI"), Bed::new()) else { return };
    let workload = shards(&bed);
    let mount = bed.mount_at(&format!("s3://{BUCKET}/shards"), "mnt", &[]);
    let (saved, log) = (bed.path("saved.json"), bed.path("dropped"));
    let (at, command) =
        (bed.path("mnt").display().to_string(), format!("echo $OMPI_COMM_WORLD_RANK >> {}", log.display()));
    let (workload, report) = (workload.to_str().expect("text"), saved.to_str().expect("text"));
    let mut words = vec!["bench", "train", "--workload", workload, "--target", &at, "--accelerators", "2"];
    words.extend(["--set", "step=5ms,batch=2,epochs=2,threads=2,prefetch=2,pass=1,caches=each", "--save", report]);
    words.extend(["--drop-command", &command]);
    let done = two_ranks(&bed, mpirun, &compiler, &words);
    let found: Value = serde_json::from_slice(&fs::read(&saved).unwrap_or_else(|_| panic!("{}", text(&done.stderr))))
        .expect("a document");
    // The first rank of the machine for all of them, before the probe and before each epoch.
    let dropped = fs::read_to_string(&log).expect("it ran");
    assert!(dropped.lines().count() >= 3 && dropped.lines().all(|rank| rank == "0"), "{dropped}");
    for epoch in found["epochs"].as_array().expect("epochs") {
        let [node] = &epoch["nodes"].as_array().expect("nodes")[..] else { panic!("one machine: {epoch}") };
        assert_eq!(node["asked_bytes"], epoch["bytes"]["asked"], "both ranks together: {epoch}");
    }
    // The command drops nothing of the node: all of the second epoch is at hand.
    assert_eq!(found["epochs"][1]["nodes"][0]["bytes_by_tier"]["store"], 0, "{found}");
    assert_eq!(found["epochs"][1]["hit_percent"], 100.0, "{found}");
    drop(mount);
}

/// Needs a Slurm that answers: where SLURM_CONF, or the machine's own configuration, leads to one.
#[test]
fn four_ranks_of_srun_train_as_one() {
    let mut asked = Command::new("srun");
    let answers = asked.args(["--immediate=5", "--mpi=pmix", "true"]).output().is_ok_and(|done| done.status.success());
    if !answers {
        return eprintln!("SKIPPED: no Slurm with PMIx answers here (apt install slurm-wlm, and a node that is up)");
    }
    trained(Command::new("srun"), &["--mpi=pmix", "--overcommit", "-n", "4"], &[]);
}

#[test]
fn four_ranks_of_torchrun_train_as_one() {
    let Some(python) = python_with_torch() else { return };
    let mut torchrun = Command::new(python);
    torchrun.env("PYTHON", python);
    // Redirections that are spelled out: the default of torch 1.13 fails in Python 3.11.
    let with = ["-m", "torch.distributed.run", "--standalone", "-r", "0:1", "-t", "0:1", "--nproc_per_node", "4"];
    trained(torchrun, &[&with[..], &["--no_python"]].concat(), &[]);
}

#[test]
fn four_ranks_load_through_pytorch_as_one() {
    let (Some(python), Some((mut mpirun, compiler))) = (python_with_torch(), launcher("Open MPI")) else { return };
    mpirun.env("MPICC", compiler).env("PYTHON", python);
    trained(mpirun, &["-n", "4"], &["--loader", "torch", "--set", "threads=1"]);
}

#[test]
fn without_a_launcher_a_process_is_alone_and_needs_nothing() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
    let done = started(command.args(&ranks("3")[1..]).env("MPICC", "false").env("PYTHON", "false")).ended();
    let found: Value = serde_json::from_slice(&done.stdout).expect("a document");
    assert_eq!((&found["ranks"], &found["launcher"]), (&Value::from(1), &Value::from("none")));
}
