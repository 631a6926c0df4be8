//! Starts the programs in Python that load as PyTorch, TensorFlow or DALI do; they travel with the command.
//!
//! It measures nothing. Invariant: the program that runs is the one that this version of the command brought.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::loader::{Among, Job, Loader, Watch};
use block::{Error, crc64};
use report::Epoch;

use super::launch;
use crate::place;

const FILES: [(&str, &str); 4] = [
    ("common.py", include_str!("../../../../python/loaders/common.py")),
    ("torch_loader.py", include_str!("../../../../python/loaders/torch_loader.py")),
    ("tensorflow_loader.py", include_str!("../../../../python/loaders/tensorflow_loader.py")),
    ("dali_loader.py", include_str!("../../../../python/loaders/dali_loader.py")),
];

/// A loader by its name.
pub fn named(name: &str) -> Result<Loader, String> {
    match name.to_ascii_lowercase().as_str() {
        "torch" | "pytorch" => Ok(Loader::Torch),
        "tensorflow" => Ok(Loader::Tensorflow),
        "dali" => Ok(Loader::Dali),
        _ => Err("one of torch, tensorflow, dali".into()),
    }
}

/// Run a job through a loader.
pub fn run(loader: Loader, job: &Job, among: Among, watch: &mut dyn Watch) -> anyhow::Result<Vec<Epoch>> {
    let program = program(&launch::python(), &place::cache(None)?, loader)?;
    Ok(bench::loader::run(loader, job, program, among, watch)?)
}

fn program(python: &str, cache: &Path, loader: Loader) -> Result<Command, Error> {
    let folder = unpack(cache)?;
    let file = match loader {
        Loader::Torch => "torch_loader.py",
        Loader::Tensorflow => "tensorflow_loader.py",
        Loader::Dali => "dali_loader.py",
    };
    let mut program = Command::new(python);
    // Without -B each start would leave its __pycache__ beside the programs.
    program.arg("-B").arg(folder.join(file));
    Ok(program)
}

/// The programs as files, because processes that Python starts afresh read them again.
fn unpack(cache: &Path) -> Result<PathBuf, Error> {
    let content: Vec<u8> = FILES.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()].concat()).collect();
    let folder = cache.join(format!("loaders/{:016x}", crc64::of(&content)));
    const HINT: &str = "set XDG_CACHE_HOME to a folder of yours";
    let doing = |error| Error::io("cannot unpack the loaders", folder.display(), &error).hint(HINT);
    fs::create_dir_all(&folder).map_err(doing)?;
    for (name, text) in FILES {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
            continue;
        }
        report::whole::write(&path, text.as_bytes()).map_err(|error| error.hint(HINT))?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::{ImageSpec, Set, generate};
    use workload::{Format, Order, Partition, Workload};

    struct Seen {
        begun: Vec<u64>,
    }

    impl Watch for Seen {
        fn begin(&mut self, epoch: u64) -> Result<bool, Error> {
            self.begun.push(epoch);
            Ok(epoch == 1)
        }

        fn made(&mut self, _epoch: u64, step: u64, steps: u64) {
            assert!(step <= steps);
        }
    }

    fn started(python: &str, cache: &Path, loader: Loader, job: &Job, seen: &mut Seen) -> Result<Vec<Epoch>, Error> {
        let among = Among { ranks: &ranks::Alone, node: "here" };
        bench::loader::run(loader, job, program(python, cache, loader)?, among, seen)
    }

    fn python_with(library: &str) -> Option<String> {
        let has = |python: &&str| {
            let asked = Command::new(python).args(["-c", &format!("import {library}")]).output();
            asked.is_ok_and(|done| done.status.success())
        };
        let named = std::env::var("PYTHON").ok().into_iter();
        let all = named.chain(["python3", "/usr/bin/python3"].map(str::to_owned));
        let found = all.into_iter().find(|python| has(&python.as_str()));
        if found.is_none() {
            eprintln!("SKIPPED: no python3 here has {library}");
        }
        found
    }

    /// Fifty small pictures for two accelerators, two epochs: six batches of four each.
    fn job(folder: &Path) -> Job {
        let mut workload: Workload = workload::shipped("unet3d").expect("it is shipped");
        workload.files.format = Format::Jpeg;
        workload.read.order = Order::Shuffled;
        let step = workload::accelerator::Step {
            step_seconds: 0.02,
            batch: Some(4),
            prefetch_batches: None,
            derived: false,
            source: String::new(),
        };
        let folder = folder.to_str().expect("a name of ours");
        Job { epochs: 2, workers: 2, ..Job::of(&workload, &step, 2, Some(folder), 7) }
    }

    #[test]
    fn pytorch_loads_what_its_sampler_deals_in_every_epoch() {
        let Some(python) = python_with("torch") else { return };
        let scratch = tempfile::tempdir().expect("a folder");
        let data = scratch.path().join("data");
        fs::create_dir(&data).expect("a folder");
        let images = ImageSpec { count: 50, classes: 2, mean_bytes: 8 << 10 };
        let set = Set { images, seed: 1, ..Set::default() };
        let made = generate(&set, &data, 2, &|_| {}).expect("a set");
        let (smallest, largest) =
            made.files.iter().fold((u64::MAX, 0), |(low, high), file| (low.min(file.bytes), high.max(file.bytes)));
        let mut seen = Seen { begun: Vec::new() };
        for decode in [false, true] {
            let job = Job { decode, ..job(&data) };
            let epochs = started(&python, scratch.path(), Loader::Torch, &job, &mut seen).expect("two epochs");
            assert_eq!(epochs.len(), 2);
            for (number, epoch) in epochs.iter().enumerate() {
                assert_eq!((epoch.epoch, epoch.steps, epoch.samples), (number as u64 + 1, 6, 48));
                assert_eq!(epoch.cold, number == 0);
                assert!((48 * smallest..=48 * largest).contains(&epoch.bytes["asked"]), "{epoch:?}");
                assert!(epoch.au_percent > 0.0 && epoch.au_percent <= 100.0, "{epoch:?}");
                assert!(epoch.step_seconds["p50"] >= 0.02, "no step is shorter than its nominal time: {epoch:?}");
            }
        }
        assert_eq!(seen.begun, [1, 2, 1, 2]);
        let few = Job { batch: 20, ..job(&data) };
        let error = started(&python, scratch.path(), Loader::Torch, &few, &mut seen).expect_err("one step counts not");
        assert!(error.to_string().contains("fewer accelerators, or a larger set"), "{error}");
        let gone = job(&scratch.path().join("absent"));
        let error = started(&python, scratch.path(), Loader::Torch, &gone, &mut seen).expect_err("no folder");
        assert!(error.on.contains("absent"), "{error}");
    }

    #[test]
    fn pytorch_reads_the_same_part_again_where_the_partition_is_fixed() {
        let Some(python) = python_with("torch") else { return };
        let scratch = tempfile::tempdir().expect("a folder");
        let data = scratch.path().join("data");
        fs::create_dir(&data).expect("a folder");
        let images = ImageSpec { count: 48, classes: 2, mean_bytes: 8 << 10 };
        let made = generate(&Set { images, seed: 1, ..Set::default() }, &data, 2, &|_| {}).expect("a set");
        let mut files: Vec<_> = made.files.iter().map(|file| (file.path.clone(), file.bytes)).collect();
        files.sort();
        let first = files[..24].iter().map(|file| file.1).sum::<u64>();
        let bytes = |partition| {
            let job = Job { partition, accelerators: 1, ..job(&data) };
            let mut seen = Seen { begun: Vec::new() };
            let epochs = started(&python, scratch.path(), Loader::Torch, &job, &mut seen).expect("two epochs");
            epochs.iter().map(|epoch| epoch.bytes["asked"]).collect::<Vec<u64>>()
        };
        assert_eq!(bytes(Partition::Fixed), [first, first]);
        let fresh = bytes(Partition::Fresh);
        assert_ne!(fresh[0], fresh[1]);
    }

    /// Two epochs of small pictures through a library that reads whole files.
    fn whole_files(library: &str, loader: Loader) {
        let Some(python) = python_with(library) else { return };
        let scratch = tempfile::tempdir().expect("a folder");
        let data = scratch.path().join("data");
        fs::create_dir(&data).expect("a folder");
        let images = ImageSpec { count: 50, classes: 2, mean_bytes: 8 << 10 };
        generate(&Set { images, seed: 1, ..Set::default() }, &data, 2, &|_| {}).expect("a set");
        let mut seen = Seen { begun: Vec::new() };
        let epochs = started(&python, scratch.path(), loader, &job(&data), &mut seen).expect("two epochs");
        assert_eq!(seen.begun, [1, 2]);
        for (number, epoch) in epochs.iter().enumerate() {
            assert_eq!((epoch.epoch, epoch.steps, epoch.samples), (number as u64 + 1, 6, 48));
            assert!(epoch.bytes["asked"] > 0 && epoch.step_seconds["p50"] >= 0.02, "{epoch:?}");
        }
    }

    #[test]
    fn tensorflow_loads_every_epoch() {
        whole_files("tensorflow", Loader::Tensorflow);
    }

    #[test]
    fn dali_loads_every_epoch() {
        whole_files("nvidia.dali", Loader::Dali);
    }

    #[test]
    fn pytorch_reads_no_shard_twice_in_an_epoch() {
        let Some(python) = python_with("torch") else { return };
        let scratch = tempfile::tempdir().expect("a folder");
        let data = scratch.path().join("data");
        fs::create_dir_all(data.join(".hidden")).expect("folders");
        let record = [&1000_u64.to_le_bytes()[..], &[0; 4], &[7; 1000], &[0; 4]].concat();
        for shard in 0..11 {
            fs::write(data.join(format!("{shard:02}.tfrecord")), record.repeat(20)).expect("a shard");
        }
        fs::write(data.join(".hidden/00.tfrecord.index"), "no shard").expect("a file");
        // Of 11 shards one accelerator's three workers have 4, 4 and 3; of two accelerators each has 5 at least: 2, 2 and 1.
        for (accelerators, steps) in [(1, 16 + 16 + 12), (2, 8 + 8 + 4)] {
            let (format, order) = (Format::Tfrecord, Order::Shards);
            let job = Job { format, order, samples_per_file: 20, batch: 5, workers: 3, ..job(&data) };
            let job =
                Job { accelerators, replicas: accelerators, shuffle_buffer: Some(30), step_seconds: 0.001, ..job };
            let mut seen = Seen { begun: Vec::new() };
            for epoch in started(&python, scratch.path(), Loader::Torch, &job, &mut seen).expect("two epochs") {
                assert_eq!((epoch.steps, epoch.bytes["asked"]), (steps, steps * accelerators * 5 * 1000));
            }
        }
    }

    /// A loader of nothing whose accelerators do as they are told in their third step.
    const TOLD: &str = "
import os, signal, time, common

class Loader:
    steps = 6

    def __init__(self, job, accelerator):
        self.accelerator = accelerator
        with open(os.environ['STOKER_TEST_PID'] + str(accelerator), 'w') as file:
            file.write(str(os.getpid()))

    def batches(self, number):
        for step in range(self.steps):
            told = os.environ['STOKER_TEST_DO'] if (self.accelerator, step) == (1, 2) else ''
            if told == 'die':
                time.sleep(0.2)
                os.kill(os.getpid(), signal.SIGKILL)
            if told == 'interrupt':
                os.kill(os.getppid(), signal.SIGINT)
            yield 4, 400, 0.0, 0.0, time.monotonic()

    def close(self):
        pass

if __name__ == '__main__':
    common.main(Loader, None)
";

    fn told(folder: &Path, what: &str) -> Command {
        let script = unpack(folder).expect("the loaders").join("told.py");
        fs::write(&script, TOLD).expect("a program");
        let mut program = Command::new("python3");
        program.arg("-B").arg(script).env("STOKER_TEST_PID", folder.join("pid")).env("STOKER_TEST_DO", what);
        program
    }

    #[test]
    fn one_accelerator_that_dies_ends_all_and_an_interrupt_is_for_who_started_them() {
        let scratch = tempfile::tempdir().expect("a folder");
        let among = Among { ranks: &ranks::Alone, node: "here" };
        let job = job(scratch.path());
        let mut seen = Seen { begun: Vec::new() };
        let mut run = |what| bench::loader::run(Loader::Torch, &job, told(scratch.path(), what), among, &mut seen);
        let error = run("die").expect_err("the other waits for it at the barrier");
        assert!(error.what.contains("ended before its work did"), "{error}");
        assert_eq!(run("interrupt").expect("two epochs").len(), 2);
    }

    #[test]
    fn accelerators_end_with_the_program_that_started_them() {
        struct Killing(PathBuf);
        impl Watch for Killing {
            fn begin(&mut self, _epoch: u64) -> Result<bool, Error> {
                while pid(&self.0).is_none() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                // What fails here kills the program.
                Err(Error::invalid("no", "here"))
            }
            fn made(&mut self, _epoch: u64, _step: u64, _steps: u64) {}
        }
        fn pid(path: &Path) -> Option<u32> {
            fs::read_to_string(path).ok()?.parse().ok()
        }
        let scratch = tempfile::tempdir().expect("a folder");
        let program = told(scratch.path(), "nothing");
        let said = scratch.path().join("pid0");
        let among = Among { ranks: &ranks::Alone, node: "here" };
        let job = job(scratch.path());
        bench::loader::run(Loader::Torch, &job, program, among, &mut Killing(said.clone())).expect_err("it was killed");
        let one = pid(&said).expect("it said who it is");
        // A process that has ended and was not yet waited for has no command line.
        let runs = || fs::read(format!("/proc/{one}/cmdline")).is_ok_and(|line| !line.is_empty());
        let patience = std::time::Instant::now();
        while runs() {
            assert!(patience.elapsed().as_secs() < 60, "process {one} outlives its program");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    #[test]
    fn a_python_without_the_library_is_told_what_to_install() {
        let scratch = tempfile::tempdir().expect("a folder");
        let mut seen = Seen { begun: Vec::new() };
        // Without the site's packages no Python has any of them.
        let (script, python) = (scratch.path().join("script"), scratch.path().join("bare"));
        fs::write(&script, "#!/bin/sh\nexec python3 -S -E \"$@\"\n").expect("a script");
        // Made executable by another process: what another test starts meanwhile would hold a file of ours open.
        let made = std::process::Command::new("install").args(["-m", "755"]).args([&script, &python]).status();
        assert!(made.is_ok_and(|made| made.success()));
        let python = python.to_str().expect("a name of ours");
        for (loader, cure) in [
            (Loader::Torch, "pip install torch"),
            (Loader::Tensorflow, "pip install tensorflow"),
            (Loader::Dali, "pip install nvidia-dali"),
        ] {
            let error = started(python, scratch.path(), loader, &job(scratch.path()), &mut seen).expect_err("nothing");
            assert!(error.hint.contains(cure), "{error}");
        }
        let error = started("/nowhere/python3", scratch.path(), Loader::Torch, &job(scratch.path()), &mut seen);
        assert!(error.expect_err("no Python").hint.contains("install python3"));
    }
}
