//! Orders that no job says: looked at in its sampler under `stoker run`, or concluded from what it opens.

mod support;

use order::{Mersenne, Sampler};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use support::content::noise;
use support::{Bed, Daemon, eventually, finished, signal, text};

const SIZE: usize = 3_000;

/// A mounted folder of classes, as ImageFolder reads it. Names in the order of their numbers.
fn mounted(files: usize, more: &[&str]) -> Option<(Bed, Daemon, Vec<String>)> {
    let bed = Bed::new()?;
    let mut names: Vec<String> = (0..files).map(|number| format!("train/c{}/{number:05}.jpg", number % 3)).collect();
    names.iter().enumerate().for_each(|(number, name)| bed.put(name, &noise(SIZE, number as u64)));
    bed.put("list.txt", b"what is no sample");
    names.sort_unstable();
    let daemon = bed.mount(more);
    Some((bed, daemon, names))
}

fn orders(bed: &Bed) -> Vec<Value> {
    bed.status()["mounts"][0]["orders"].as_array().cloned().unwrap_or_default()
}

/// A Python that has PyTorch.
fn python() -> Option<PathBuf> {
    let all = [PathBuf::from("/usr/bin/python3"), "python3".into()];
    let has = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import torch"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|done| done.success())
    };
    let found = all.into_iter().find(has);
    if found.is_none() {
        eprintln!("SKIPPED: no python3 here has torch (apt install python3-torch)");
    }
    found
}

fn script(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests").join(name);
    path.canonicalize().expect("it is of the repository").display().to_string()
}

/// A job that says what it read in each epoch, and waits for us between two.
struct Job {
    child: Child,
    out: BufReader<ChildStdout>,
    into: ChildStdin,
}

impl Job {
    fn start(mut command: Command, bed: &Bed, words: &[&str]) -> Job {
        command.arg(script("train.py")).arg(bed.mounted("train")).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let into = child.stdin.take().expect("piped");
        Job { child, out, into }
    }

    fn epoch(&mut self) -> Vec<usize> {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("it says what it read");
        line.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    }

    fn go_on(&mut self) {
        self.into.write_all(b"\n").expect("it listens");
    }

    fn end(mut self) {
        drop(self.into);
        assert!(self.child.wait().expect("it ends").success());
    }
}

#[test]
fn a_job_under_run_has_its_order_fetched_ahead_and_reads_the_same() {
    let Some(python) = python() else { return };
    let Some((bed, _daemon, names)) = mounted(90, &["--fill", "off"]) else { return };
    let words = ["--seed", "5", "--wait", "1.5"];
    let mut run = bed.stoker(["run", "--"]);
    run.arg(&python);
    let mut job = Job::start(run, &bed, &words);
    eventually("its order is known", || orders(&bed).len() == 1);
    let order = &orders(&bed)[0];
    assert_eq!(order["source"], "peeked");
    assert!(order["name"].as_str().is_some_and(|name| name.starts_with("torch sampler, pid ")), "{order}");
    // Two workers ask for 32 of 90 before anybody takes a batch.
    eventually("all came", || bed.gets() >= 90);
    let mut epochs = vec![job.epoch()];
    eventually("all were hits", || orders(&bed)[0]["opened"] == 90);
    assert_eq!((&orders(&bed)[0]["misses"], &orders(&bed)[0]["skipped"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(bed.gets(), 90, "nothing was fetched twice");
    let shown = text(&finished(&mut bed.stoker(["status"])));
    assert!(shown.contains("(its sampler was looked at): 90 opened"), "{shown}");
    job.go_on();
    epochs.push(job.epoch());
    job.go_on();
    job.end();
    eventually("its order is forgotten with it", || orders(&bed).is_empty());

    let mut plain = Job::start(Command::new(python), &bed, &words);
    let alone: Vec<Vec<usize>> = (0..2).map(|_| (plain.epoch(), plain.go_on()).0).collect();
    plain.end();
    assert_eq!(epochs, alone, "training is the same");
    let mut sorted = epochs[0].clone();
    sorted.sort_unstable();
    assert!(sorted == (0..names.len()).collect::<Vec<_>>() && epochs[0] != epochs[1] && epochs[0] != sorted);
}

/// Readers as the workers of a loader: each opens the files of its batches, one after the other.
fn read(bed: &Bed, names: &[String], share: &[u32], workers: usize, batch: usize, pause: Duration) {
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let batches = share.chunks(batch).skip(worker).step_by(workers);
            scope.spawn(move || {
                for number in batches.flatten() {
                    fs::read(bed.mounted(&names[*number as usize])).expect("a file");
                    std::thread::sleep(pause);
                }
            });
        }
    });
}

#[test]
fn a_sampler_is_found_out_by_what_it_opens_and_followed_into_the_next_epoch() {
    let Some((bed, _daemon, names)) = mounted(600, &["--cache-size", "1MB"]) else { return };
    let sampler = Sampler { seed: 40, rank: 1, world: 2, shuffle: true, drop_last: false };
    read(&bed, &names, &sampler.deal(2, 600), 2, 16, Duration::from_millis(20));
    let found = orders(&bed);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["source"], "formula");
    assert_eq!(found[0]["name"], "rank 1 of 2, seed + epoch = 42");
    assert!(found[0]["opened"].as_u64().is_some_and(|opened| opened > 250), "{found:?}");
    assert!(text(&finished(&mut bed.stoker(["status"]))).contains("from opens alone, as a sampler deals"));
    read(&bed, &names, &sampler.deal(3, 600), 2, 16, Duration::from_millis(5));
    eventually("both epochs were hits", || orders(&bed)[0]["opened"].as_u64().is_some_and(|opened| opened > 550));
    assert_eq!((orders(&bed).len(), &orders(&bed)[0]["resting"]), (1, &Value::from(false)));
}

/// More than half are kept of 600. Those the kernel opens by itself once they were opened.
const PART: [&str; 2] = ["--cache-size", "1MB"];

#[test]
fn a_sampler_is_found_out_also_where_the_kernel_opens_by_itself_what_an_earlier_job_left() {
    let Some((bed, _daemon, names)) = mounted(600, &PART) else { return };
    let all: Vec<u32> = (0..600).collect();
    read(&bed, &names, &all, 1, 1, Duration::ZERO);
    let sampler = Sampler { seed: 40, rank: 0, world: 1, shuffle: true, drop_last: false };
    let epoch = |number| {
        read(&bed, &names, &sampler.deal(number, 600), 2, 16, Duration::from_millis(5));
        orders(&bed).into_iter().filter(|order| order["source"] == "formula").collect::<Vec<_>>()
    };
    // A machine that is busy leaves little to a search.
    let found = (2..6).find_map(|number| epoch(number).first().map(|order| (number, order.clone())));
    let (number, found) = found.unwrap_or_else(|| panic!("nothing was found: {:?}", orders(&bed)));
    // A search may end in the epoch after that in which it began.
    let name = |epoch: u64| format!("rank 0 of 1, seed + epoch = {}", 40 + epoch);
    assert!(found["name"] == name(number) || number > 2 && found["name"] == name(number - 1), "{found}");
    let opened = |found: &Value| found["opened"].as_u64().expect("a count");
    let before = opened(&found);
    epoch(number + 1);
    eventually("the next epoch was hits", || orders(&bed).iter().any(|order| opened(order) > before + 500));
}

#[test]
fn an_epoch_that_begins_as_the_one_before_is_taken_to_go_on_like_it() {
    let Some((bed, _daemon, names)) = mounted(600, &PART) else { return };
    let order = Mersenne::of(1 << 31).permutation(600);
    // One reader: of two that nothing paces, either may be far ahead.
    read(&bed, &names, &order, 1, 4, Duration::ZERO);
    assert_eq!(orders(&bed), [] as [Value; 0], "no sampler's");
    read(&bed, &names, &order, 1, 4, Duration::from_millis(5));
    let found = orders(&bed);
    assert!(found.len() == 1 && found[0]["source"] == "repeat", "{found:?}");
    assert!(found[0]["opened"].as_u64() > Some(500), "{found:?}");
    // Another order: it is left alone after a few misses.
    let other: Vec<String> = (0..40).map(|number| format!("other/{number}")).collect();
    other.iter().for_each(|name| bed.put(name, b"new"));
    assert!(bed.run(["refresh", bed.mounted("").to_str().expect("a name")]).status.success());
    other.iter().for_each(|name| drop(fs::read(bed.mounted(name)).expect("a file")));
    eventually("it rests", || orders(&bed).iter().all(|order| order["resting"] == true));
}

#[test]
fn where_nothing_is_fetched_that_nobody_asked_for_nothing_is_concluded() {
    let Some((bed, _daemon, names)) = mounted(300, &["--fill", "off", "--cache-size", "1MB"]) else { return };
    let sampler = Sampler { seed: 0, rank: 0, world: 1, shuffle: true, drop_last: false };
    for _ in 0..2 {
        read(&bed, &names, &sampler.deal(0, 300), 2, 16, Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(orders(&bed), [] as [Value; 0]);
}

#[test]
fn a_command_under_run_has_its_own_exit_code_signals_and_input() {
    let Some(bed) = Bed::new() else { return };
    let code = |words: &[&str]| bed.run([&["run", "--"], words].concat()).status.code();
    assert_eq!(code(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!((code(&["/nowhere"]), code(&["/"])), (Some(127), Some(126)));
    assert_eq!(bed.run(["run"]).status.code(), Some(2));
    // Without the two dashes its flags are its own too.
    assert!(text(&bed.run(["run", "sh", "-c", "echo $0", "--help"])).contains("--help"));
    let mut cat = bed.stoker(["run", "--", "cat"]);
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut into = child.stdin.take().expect("piped");
    into.write_all(b"through and through").expect("taken");
    drop(into);
    assert_eq!(child.wait_with_output().expect("it ends").stdout, b"through and through");
    let mut sleep = bed.stoker(["run", "--", "sleep", "60"]).spawn().expect("it starts");
    eventually("it is the command itself", || {
        fs::read_to_string(format!("/proc/{}/comm", sleep.id())).is_ok_and(|name| name.trim() == "sleep")
    });
    signal(sleep.id(), "TERM");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&sleep.wait().expect("it ends")), Some(15));
}

#[test]
fn python_under_run_is_told_of_no_more_than_it_has_to_be() {
    let Some(bed) = Bed::new() else { return };
    let see = "import sys; print([type(one).__module__ for one in sys.meta_path].count('sitecustomize'), \
               [path for path in sys.path if 'python-' in path])";
    let said = |words: &[&str]| text(&bed.run([&["run", "--", "python3"], words, &["-c", see]].concat()));
    let (with, without) = (said(&[]), said(&["-E"]));
    assert!(with.contains("1 []") && !with.contains("stoker:"), "{with}");
    assert!(without.contains("0 []"), "{without}");
    assert_eq!(without.matches("Python leaves out what tells of the order").count(), 1, "{without}");
    // Where it can't be brought, the command runs all the same.
    fs::remove_dir_all(bed.path("run")).and_then(|()| fs::write(bed.path("run"), "in the way")).expect("a file");
    let alone = said(&[]);
    assert!(alone.contains("0 []") && alone.contains("the command runs all the same"), "{alone}");
}

#[test]
fn what_python_tells_is_what_it_reads() {
    let Some(python) = python() else { return };
    let mut command = Command::new(python);
    command.args(["-B", &script("test_order.py")]).stdin(Stdio::null());
    let done = command.output().expect("it runs");
    assert!(done.status.success(), "{}", text(&done));
}

#[test]
fn a_loader_declares_its_order_and_a_number_is_one_file_in_each_of_its_workers() {
    let Some(python) = python() else { return };
    let mut command = Command::new(python);
    command.args(["-B", &script("test_torch.py"), "-v"]).stdin(Stdio::null());
    let done = command.env("STOKER_BIN", env!("CARGO_BIN_EXE_stoker")).output().expect("it runs");
    eprintln!("{}", text(&done));
    assert!(done.status.success());
}
