//! `stoker observe`: real programs on a real view, and what is said of them; that the view is gone afterwards, however
//! the command or the observation ended.
//!
//! A pause of known length is a lower bound of what is to be seen; nothing here is judged by how fast the machine is.

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use support::content::noise;
use support::{Bed, eventually, finished, is_root, signal, text};
use workload::accelerator::Accelerator;
use workload::{Format, Order, Workload};

/// Reads every file of the folder in a new order in each of two epochs, with a pause after each batch of eight.
const TRAIN: &str = "
import os, random, sys, time
folder = sys.argv[1]
names = sorted(os.listdir(folder))
for epoch in range(2):
    random.Random(epoch).shuffle(names)
    for place in range(0, len(names), 8):
        for name in names[place:place + 8]:
            data = open(os.path.join(folder, name), 'rb').read()
            assert len(data) == 20000 + 100 * int(name[3:7]) and data[0] == int(name[3:7]) % 256
        time.sleep(0.15)
sys.exit(7)
";

struct Seen {
    bed: Bed,
    folder: PathBuf,
}

impl Seen {
    /// A folder to observe; none where nothing can be mounted, or Python is missing.
    fn new() -> Option<Seen> {
        let bed = Bed::new()?;
        if Command::new("python3").arg("--version").output().is_err() {
            eprintln!("SKIPPED: there is no python3 here to be observed");
            return None;
        }
        let folder = bed.path("data");
        Some(Seen { bed, folder })
    }

    /// `img0000.jpg` and so on, of 20,000 bytes and 100 more each.
    fn images(&self, count: usize) {
        for index in 0..count {
            let mut content = noise(20_000 + 100 * index, index as u64);
            content[0] = index as u8;
            fs::write(self.folder.join(format!("img{index:04}.jpg")), content).expect("an image");
        }
    }

    fn path(&self, name: &str) -> String {
        self.bed.path(name).to_string_lossy().into_owned()
    }

    fn script(&self, program: &str) -> String {
        fs::write(self.bed.path("program.py"), program).expect("a program");
        self.path("program.py")
    }

    fn observing(&self, more: &[&str], command: &[&str]) -> Command {
        let folder = self.folder.to_string_lossy().into_owned();
        let words = ["observe"].iter().chain(more).copied().chain([folder.as_str(), "--"]);
        let mut observing = self.bed.stoker(words.chain(command.iter().copied()));
        observing.env("TMPDIR", self.bed.path("run")).stdout(Stdio::piped()).stderr(Stdio::piped());
        observing
    }

    /// Observe a Python program; what it left, the workload, and the document.
    fn observe(&self, program: &str, arguments: &[&str]) -> (Output, Workload, Value) {
        let (script, toml, json) = (self.script(program), self.path("w.toml"), self.path("o.json"));
        let command = [&["python3", script.as_str()][..], arguments].concat();
        let done = finished(&mut self.observing(&["--workload", &toml, "--save", &json], &command));
        let workload = fs::read_to_string(&toml).unwrap_or_else(|_| panic!("no workload: {}", text(&done)));
        let document = fs::read(&json).expect("the document");
        let workload = Workload::parse(&workload, &toml).expect("a workload that can be run");
        (done, workload, serde_json::from_slice(&document).expect("a document"))
    }

    /// Nothing is mounted and nothing is left.
    fn is_clean(&self) {
        let scratch = self.bed.path("").to_string_lossy().into_owned();
        let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
        eventually("the view is unmounted", || !mounts().lines().any(|line| line.contains(&scratch)));
        let left = || fs::read_dir(self.bed.path("run")).expect("the scratch folder").count();
        // The command may run a moment before its starter has tidied up.
        eventually("the scratch folder is empty", || left() == 0);
    }
}

#[test]
fn a_training_loop_is_seen_and_can_be_replayed() {
    let Some(seen) = Seen::new() else { return };
    seen.images(96);
    let folder = seen.folder.to_string_lossy().into_owned();
    let (done, workload, document) = seen.observe(TRAIN, &[&folder]);
    assert_eq!(done.status.code(), Some(7), "{}", text(&done));
    let files = &workload.files;
    assert_eq!((files.format, files.count, files.samples_per_file), (Format::Jpeg, 96, 1));
    assert_eq!((files.sample_bytes, files.sample_bytes_read), (24_750.0, None));
    assert_eq!((workload.read.order, workload.read.epochs, workload.read.threads), (Order::Shuffled, 2, 1));
    let trace = &document["trace"];
    assert_eq!((trace["opens"].as_u64(), trace["reads"].as_u64()), (Some(192), Some(192)));
    assert_eq!(trace["bytes"].as_u64(), Some(2 * 96 * 24_750));
    assert_eq!(trace["groups"][0]["whole_percent"].as_f64(), Some(100.0));
    // The program slept so long, 23 times between two batches; what else it waited for only adds.
    assert!(trace["pace"]["pause_seconds"].as_f64() >= Some(0.15), "{}", trace["pace"]);
    assert!((1..=8).contains(&workload.read.batch), "{}", trace["pace"]);
    seen.is_clean();
}

#[test]
fn the_step_of_an_accelerator_is_the_pause_and_called_derived() {
    let Some(seen) = Seen::new() else { return };
    seen.images(40);
    let (script, toml) = (seen.script(TRAIN), seen.path("a.toml"));
    let folder = seen.folder.to_string_lossy().into_owned();
    let done = finished(&mut seen.observing(&["--accelerator", &toml], &["python3", &script, &folder]));
    let accelerator = fs::read_to_string(&toml).unwrap_or_else(|_| panic!("no accelerator: {}", text(&done)));
    let accelerator = Accelerator::parse(&accelerator, &toml).expect("an accelerator that can be run");
    let step = accelerator.step("data").expect("of the folder's name");
    assert!(step.derived && step.step_seconds >= 0.15 && step.batch.is_some(), "{step:?}");
}

#[test]
fn one_large_file_read_from_end_to_end_is_sequential_and_whole() {
    let Some(seen) = Seen::new() else { return };
    fs::write(seen.folder.join("large.bin"), noise(24_000_000, 3)).expect("a file");
    let program = "
import hashlib, sys
total = hashlib.sha256()
with open(sys.argv[1] + '/large.bin', 'rb', buffering=0) as file:
    while piece := file.read(500_000):
        total.update(piece)
print(total.hexdigest())
";
    let folder = seen.folder.to_string_lossy().into_owned();
    let (done, workload, document) = seen.observe(program, &[&folder]);
    let expected = Command::new("sha256sum").arg(seen.folder.join("large.bin")).output().expect("sha256sum runs");
    assert_eq!(done.stdout[..64], expected.stdout[..64]);
    assert_eq!((workload.files.format, workload.files.count, workload.read.epochs), (Format::Raw, 1, 1));
    assert_eq!((workload.read.order, workload.files.sample_bytes), (Order::Sequential, 24_000_000.0));
    let group = &document["trace"]["groups"][0];
    assert_eq!((group["inside"].as_str(), group["sequential_percent"].as_f64()), (Some("sequential"), Some(100.0)));
    assert_eq!((group["reads"].as_u64(), group["read_bytes_mean"].as_f64()), (Some(48), Some(500_000.0)));
}

#[test]
fn records_that_are_read_at_random_are_told_by_their_size() {
    let Some(seen) = Seen::new() else { return };
    fs::write(seen.folder.join("records.dat"), noise(10_000_000, 4)).expect("a file");
    let program = "
import mmap, os, random, sys
file = os.open(sys.argv[1] + '/records.dat', os.O_RDONLY)
places = list(range(1000))
random.Random(5).shuffle(places)
first = {}
for place in places:
    first[place] = os.pread(file, 10_000, 10_000 * place)
assert all(len(record) == 10_000 for record in first.values())
# Mapped memory shows the same bytes.
mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
assert all(mapped[10_000 * place:10_000 * place + 100] == first[place][:100] for place in range(0, 1000, 250))
";
    let folder = seen.folder.to_string_lossy().into_owned();
    let (done, workload, document) = seen.observe(program, &[&folder]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!((workload.read.order, workload.files.count), (Order::Random, 1));
    let group = &document["trace"]["groups"][0];
    // The pages of the mapping come in steps of the kernel's own, and are few.
    assert!((1000..1100).contains(&group["reads"].as_u64().expect("a count")), "{group}");
    assert_eq!(group["inside"].as_str(), Some("random"));
}

#[test]
fn each_process_of_a_pool_is_told_apart() {
    let Some(seen) = Seen::new() else { return };
    seen.images(64);
    let program = "
import glob, multiprocessing, sys, time
together = multiprocessing.Barrier(4)
def read(names):
    together.wait()
    for name in names:
        open(name, 'rb').read()
        time.sleep(0.002)
    together.wait()
if __name__ == '__main__':
    names = sorted(glob.glob(sys.argv[1] + '/*.jpg'))
    workers = [multiprocessing.Process(target=read, args=(names[place::4],)) for place in range(4)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    sys.exit(max(worker.exitcode for worker in workers))
";
    let folder = seen.folder.to_string_lossy().into_owned();
    let (done, workload, document) = seen.observe(program, &[&folder]);
    assert!(done.status.success(), "{}", text(&done));
    let processes = document["trace"]["processes"].as_array().expect("the processes").clone();
    let readers: Vec<u64> =
        processes.iter().filter_map(|process| process["reads"].as_u64()).filter(|&reads| reads > 0).collect();
    assert_eq!(readers, [16, 16, 16, 16]);
    assert_eq!((workload.read.order, workload.files.count), (Order::Sequential, 64));
    // They began together; a busy machine may let one end before another begins.
    assert!((2..=4).contains(&workload.read.threads), "{}", workload.read.threads);
}

/// What programs have in common that load batches of eight in one of several ways, and step for 150 ms. They say how long a
/// batch took them.
const LOADING: &str = "
import glob, multiprocessing, queue, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
names = sorted(glob.glob(sys.argv[1] + '/*.jpg'))
batches = [names[at:at + 8] for at in range(0, len(names), 8)]
def read(name): return len(open(name, 'rb').read())
def train(loaded):
    count, began = 0, time.monotonic()
    for batch in loaded:
        time.sleep(0.15)
        count += 1
    print((time.monotonic() - began) / count)
";

/// Observe a program that begins as all of them do: the workload, its step, and seconds that a batch took.
fn loading(seen: &Seen, program: &str) -> (Workload, f64, f64) {
    seen.images(160);
    let (script, workload, accelerator) =
        (seen.script(&format!("{LOADING}{program}")), seen.path("w.toml"), seen.path("a.toml"));
    let folder = seen.folder.to_string_lossy().into_owned();
    let flags = ["--workload", &workload, "--accelerator", &accelerator];
    let done = finished(&mut seen.observing(&flags, &["python3", &script, &folder]));
    assert!(done.status.success() && text(&done).contains("replayed as"), "{}", text(&done));
    let told = |path: &str| fs::read_to_string(path).expect("it was written");
    let workload = Workload::parse(&told(&workload), &workload).expect("a workload that can be run");
    let accelerator = Accelerator::parse(&told(&accelerator), &accelerator).expect("an accelerator that can be run");
    let took = String::from_utf8_lossy(&done.stdout).trim().parse().expect("seconds");
    (workload, accelerator.step("data").expect("of the folder's name").step_seconds, took)
}

/// The step is the sleep, and hardly more than what the program itself says that a batch took it.
fn is_the_sleep(step: f64, took: f64) {
    assert!(step > 0.135 && step < 1.25 * took, "{step} of {took}");
}

#[test]
fn threads_that_share_a_batch_are_replayed_batch_by_batch() {
    let Some(seen) = Seen::new() else { return };
    let program = "
pool = ThreadPoolExecutor(4)
train(list(pool.map(read, batch)) for batch in batches)
";
    let (workload, step, took) = loading(&seen, program);
    is_the_sleep(step, took);
    assert_eq!((workload.read.batch, workload.read.prefetch_batches), (8, 0), "{:?}", workload.read);
    let (toml, accelerator, report) = (seen.path("w.toml"), seen.path("a.toml"), seen.bed.path("r.json"));
    let words = ["bench", "train", "--workload", &toml, "--accelerator", &accelerator, "--accelerators", "1"];
    // Its own rate: how near, runs/2026-11-23-observe-replay tells. Other tests may slow all three replays a little, and the
    // observed program too; a wrong step or window is off by a factor.
    let rate = (0..3).map(|_| {
        let mut command = seen.bed.stoker(words);
        command.args(["--set", "repetitions=1,caches=keep", "--target"]).arg(&seen.folder).arg("--save").arg(&report);
        let done = finished(&mut command);
        let report: Value = serde_json::from_slice(&fs::read(&report).unwrap_or_default())
            .unwrap_or_else(|_| panic!("no report: {}", text(&done)));
        report["epochs"][0]["samples_per_second"].as_f64().expect("a rate")
    });
    let rate = rate.fold(0.0, f64::max);
    assert!((0.75 * 8.0 / took..8.0 / 0.135).contains(&rate), "{rate} of {}", 8.0 / took);
}

#[test]
fn processes_that_own_batches_and_read_ahead_are_seen_as_such() {
    let Some(seen) = Seen::new() else { return };
    let program = "
def work(asked, answered):
    for number in iter(asked.get, None): answered.put((number, sum(map(read, batches[number]))))
def loaded():
    asked, answered, ready = [multiprocessing.Queue() for _ in range(4)], multiprocessing.Queue(), set()
    for one in asked: multiprocessing.Process(target=work, args=(one, answered), daemon=True).start()
    for number in range(8): asked[number % 4].put(number)
    for number in range(len(batches)):
        while number not in ready: ready.add(answered.get()[0])
        if number + 8 < len(batches): asked[number % 4].put(number + 8)
        yield number
train(loaded())
";
    let (workload, step, took) = loading(&seen, program);
    is_the_sleep(step, took);
    assert_eq!(workload.read.batch, 8);
    assert!(workload.read.prefetch_batches >= 4, "{:?}", workload.read);
}

#[test]
fn batches_that_are_read_ahead_are_seen_as_such() {
    let Some(seen) = Seen::new() else { return };
    let program = "
waiting = queue.Queue(3)
def fill():
    for batch in batches: waiting.put(sum(map(read, batch)))
threading.Thread(target=fill).start()
train(waiting.get() for batch in batches)
";
    let (workload, step, took) = loading(&seen, program);
    is_the_sleep(step, took);
    assert_eq!((workload.read.batch, workload.read.threads), (8, 1));
}

#[test]
fn shards_of_records_are_known_by_their_records() {
    let Some(seen) = Seen::new() else { return };
    let program = "
import os, random, sys
names = sorted(os.listdir(sys.argv[1]))
for epoch in range(2):
    random.Random(epoch + 10).shuffle(names)
    for name in names:
        with open(os.path.join(sys.argv[1], name), 'rb') as file:
            while file.read(64 << 10): pass
";
    // CRC32C of the length 5000, masked, as TFRecord writes it.
    let length = 5000_u64.to_le_bytes();
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &length) as u32;
    let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let record = [&length[..], &masked, &noise(5000, 1), &[0; 4]].concat();
    for shard in 0..20 {
        fs::write(seen.folder.join(format!("train-{shard:05}-of-00020")), record.repeat(100)).expect("a shard");
    }
    let folder = seen.folder.to_string_lossy().into_owned();
    let (_, workload, _) = seen.observe(program, &[&folder]);
    assert_eq!(
        (workload.files.format, workload.files.count, workload.files.samples_per_file),
        (Format::Tfrecord, 20, 100)
    );
    assert_eq!((workload.files.sample_bytes, workload.read.order, workload.read.epochs), (5000.0, Order::Shards, 2));
}

#[test]
fn the_folder_is_seen_at_its_own_path_even_from_within_and_can_not_be_written() {
    let Some(seen) = Seen::new() else { return };
    seen.images(3);
    let run = seen.folder.join("run.sh");
    fs::write(&run, "#!/bin/sh\ncat img0001.jpg | wc -c\ntouch new && echo written\nexit 3\n").expect("a script");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).expect("it may be executed");
    let mut observing = seen.observing(&[], &["./run.sh"]);
    let done = finished(observing.current_dir(&seen.folder));
    assert_eq!((done.status.code(), text(&done).contains("written")), (Some(3), false), "{}", text(&done));
    assert!(text(&done).contains("20100") && text(&done).contains("Read-only"), "{}", text(&done));
    assert!(text(&done).contains("4 files were") || text(&done).contains("What was asked of"), "{}", text(&done));
    assert!(!seen.folder.join("new").exists());
    seen.is_clean();
}

#[test]
fn a_view_at_another_place_is_named_by_braces_and_the_environment() {
    let Some(seen) = Seen::new() else { return };
    seen.images(2);
    let at = seen.path("mnt");
    let shell = "test -f {}/img0001.jpg && test \"$STOKER_OBSERVED\" = {} && cat {}/img0000.jpg | wc -c";
    let done = finished(&mut seen.observing(&["--at", &at], &["sh", "-c", shell]));
    assert!(done.status.success() && text(&done).contains("20000"), "{}", text(&done));
    assert_eq!(fs::read_dir(&at).expect("the place is there and empty").count(), 0);
    seen.is_clean();
}

#[test]
fn what_can_not_be_done_is_refused_with_advice_and_leaves_nothing() {
    let Some(seen) = Seen::new() else { return };
    seen.images(1);
    let refused = |done: &Output, words: &[&str]| {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(matches!(done.status.code(), Some(1 | 2)), "{said}");
        for part in ["stoker: ", "\n  on:  ", "\n  try: "].iter().chain(words) {
            assert!(said.contains(part), "`{part}` is missing:\n{said}");
        }
    };
    refused(&finished(&mut seen.bed.stoker(["observe", "/no/such/folder", "--", "true"])), &["/no/such/folder"]);
    let file = seen.folder.join("img0000.jpg").to_string_lossy().into_owned();
    refused(&finished(&mut seen.bed.stoker(["observe", &file, "--", "true"])), &["only a folder"]);
    refused(&finished(&mut seen.observing(&[], &["no-such-command-at-all"])), &["no such command", "PATH"]);
    refused(&finished(&mut seen.observing(&["--save", "/no/such/place.json"], &["true"])), &["place.json"]);
    refused(&finished(&mut seen.observing(&["--at", "/no/such/view"], &["true"])), &["/no/such/view", "mkdir"]);
    let within = seen.folder.to_string_lossy().into_owned();
    refused(&finished(&mut seen.observing(&["--at", &within], &["true"])), &["within what it shows"]);
    let nothing = seen.path("w.toml");
    refused(&finished(&mut seen.observing(&["--workload", &nothing], &["true"])), &["nothing was read"]);
    assert_eq!(finished(&mut seen.bed.stoker(["observe", &within])).status.code(), Some(2));
    seen.is_clean();
    if !is_root() {
        return eprintln!("SKIPPED: only root can hide /dev/fuse");
    }
    let observing = seen.observing(&[], &["true"]);
    let mut hidden = Command::new("unshare");
    hidden.args(["-m", "sh", "-c", "mount -t tmpfs none /dev && exec \"$@\"", "sh"]);
    hidden.arg(observing.get_program()).args(observing.get_args());
    refused(&finished(hidden.env("TMPDIR", seen.bed.path("run"))), &["/dev/fuse", "modprobe fuse"]);
    seen.is_clean();
}

#[test]
fn whatever_ends_the_observation_ends_the_view() {
    let Some(seen) = Seen::new() else { return };
    seen.images(1);
    let ready = seen.bed.path("ready");
    let shell = format!("cat img0000.jpg > /dev/null; touch {}; exec sleep 600", ready.display());
    for (name, code) in [("TERM", Some(128 + 15)), ("INT", Some(128 + 2)), ("KILL", None)] {
        let _ = fs::remove_file(&ready);
        let mut observing = seen.observing(&[], &["sh", "-c", &shell]);
        let child = observing.current_dir(&seen.folder).spawn().expect("it starts");
        eventually("the command runs", || ready.exists());
        // The view is mounted nowhere but where the command is.
        seen.is_clean();
        let sleeper = child_of(child.id());
        signal(child.id(), name);
        if code.is_none() {
            // Killed, it can pass nothing on; the command holds its output open.
            signal(sleeper, "KILL");
        }
        let done = child.wait_with_output().expect("it ends");
        assert_eq!(done.status.code(), code, "{}", text(&done));
        assert_eq!(text(&done).contains("What was asked of"), code.is_some(), "{}", text(&done));
        seen.is_clean();
    }
    let _ = fs::remove_file(&ready);
    let mut observing = seen.observing(&[], &["sh", "-c", &shell]);
    let child = observing.current_dir(&seen.folder).spawn().expect("it starts");
    eventually("the command runs", || ready.exists());
    signal(child_of(child.id()), "KILL");
    let done = child.wait_with_output().expect("it ends");
    assert_eq!(done.status.code(), Some(128 + 9), "{}", text(&done));
    seen.is_clean();
}

/// The process that another started.
fn child_of(parent: u32) -> u32 {
    let said = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("its children");
    said.split_whitespace().next().expect("it has one").parse().expect("a number")
}
