//! Many processes as one benchmark: real launchers, four ranks on this machine, one result; and what happens when one of
//! them dies or goes away. Each launcher that isn't here is skipped, and said to be.

use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
    launcher.args(["--target", "null:", "--accelerators", "4", "--set", "epochs=1,steps=4,batch=2,step=50ms,pass=1"]);
    let done = started(launcher.args(options).arg("--save").arg(&report)).ended();
    let said = text(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", text(&done.stderr));
    assert_eq!(said.matches("accelerator utilisation").count(), 1, "only rank 0 prints: {said}");
    let found: Value = serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("a document");
    assert_eq!((&found["finished"], &found["environment"]["ranks"]), (&true.into(), &RANKS.into()), "{found}");
    let processes = found["epochs"][0]["processes"].as_array().expect("a part of each rank");
    let ranks: Vec<_> = processes.iter().map(|one| one["rank"].as_u64().expect("a number")).collect();
    assert_eq!(ranks, [0, 1, 2, 3], "{found}");
    assert_eq!(found["epochs"][0]["samples"], 4 * 4 * 2, "{found}");
}

#[test]
fn four_ranks_of_open_mpi_train_as_one() {
    let Some((mut mpirun, compiler)) = launcher("Open MPI") else { return };
    mpirun.env("MPICC", compiler);
    trained(mpirun, &["-n", "4"], &[]);
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
