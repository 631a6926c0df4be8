//! Traces of programs made up, and what is judged of them.

use super::derive;
use super::*;
use workload::{Format, Order, Workload};

/// Reads of a program, one after another, on a clock of its own.
#[derive(Default)]
struct Program {
    events: Vec<Event>,
    now_ns: u64,
    opens: u64,
}

const MS: u64 = 1_000_000;

impl Program {
    fn push(&mut self, process: u32, file: u64, what: What) {
        let begin_ns = self.now_ns + 20_000;
        self.now_ns = begin_ns + 30_000;
        let (end_ns, open) = (self.now_ns, self.opens);
        self.events.push(Event { begin_ns, end_ns, process, thread: process, file, open, what });
    }

    fn open(&mut self, process: u32, file: u64, name: &str, size: u64) {
        self.opens += 1;
        self.push(process, file, What::Open { path: name.as_bytes().into(), size, listed: 0 });
    }

    /// Read a file from end to end.
    fn whole(&mut self, process: u32, file: u64, size: u64) {
        self.open(process, file, &format!("train/{file:06}.jpg"), size);
        for offset in (0..size).step_by(100_000) {
            self.push(process, file, What::Read { offset, length: (size - offset).min(100_000) as u32 });
        }
        self.push(process, file, What::Close);
    }

    fn trace(self) -> Trace {
        let mut tracer = Tracer::new();
        self.events.iter().for_each(|event| tracer.add(event));
        tracer.finish(0)
    }
}

/// A permutation of so many that is another for each seed.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    order.sort_by_key(|place| (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(2 * seed + 3) >> 20);
    order
}

fn parsed(workload: &Workload) -> Workload {
    let text = toml::to_string(workload).expect("a workload can be written");
    Workload::parse(&text, "observed.toml").expect("and read again")
}

#[test]
fn shuffled_epochs_with_a_pause_after_each_batch_are_seen_as_such() {
    let mut program = Program::default();
    for epoch in 0..2 {
        for (place, file) in shuffled(160, epoch).into_iter().enumerate() {
            program.whole(7, file, 150_000 + file * 100);
            if place % 8 == 7 {
                program.now_ns += 25 * MS;
            }
        }
    }
    let trace = program.trace();
    assert_eq!((trace.opens, trace.reads, trace.streams), (320, 640, 1));
    let derived = derive::of(&trace, "mine").expect("a workload");
    let workload = parsed(&derived.workload);
    assert_eq!((workload.files.format, workload.files.count, workload.files.samples_per_file), (Format::Jpeg, 160, 1));
    assert_eq!((workload.read.order, workload.read.epochs, workload.read.batch), (Order::Shuffled, 2, 8));
    assert_eq!((workload.files.sample_bytes, workload.read.threads), (157_950.0, 1));
    let step = derived.accelerator.step("mine").expect("of this workload");
    assert!((0.025..0.027).contains(&step.step_seconds) && step.derived, "{step:?}");
    assert!(trace.groups[0].whole_percent > 99.0 && trace.groups[0].sequential_percent > 99.0);
}

#[test]
fn files_in_the_order_of_their_names_are_sequential_even_if_workers_overtake() {
    let mut program = Program::default();
    for block in 0..40 {
        for worker in [2, 0, 3, 1] {
            program.whole(worker as u32, block * 4 + worker, 50_000);
        }
    }
    let trace = program.trace();
    assert_eq!(trace.groups[0].order, Order::Sequential);
    assert_eq!(trace.streams, 4);
    assert_eq!(trace.pace, None);
}

#[test]
fn an_order_that_is_the_same_in_each_epoch_is_no_shuffle() {
    let mut program = Program::default();
    for _ in 0..2 {
        shuffled(100, 5).into_iter().for_each(|file| program.whole(1, file, 1000));
    }
    assert_eq!(program.trace().groups[0].order, Order::Sequential);
}

#[test]
fn records_read_here_and_there_are_random() {
    let mut program = Program::default();
    program.open(3, 1, "packed.bin", 64_000_000);
    for record in shuffled(1000, 1) {
        program.push(3, 1, What::Read { offset: record * 64_000, length: 64_000 });
    }
    let trace = program.trace();
    let workload = parsed(&derive::of(&trace, "records").expect("a workload").workload);
    assert_eq!((workload.read.order, workload.files.samples_per_file), (Order::Random, 1000));
    assert_eq!((workload.files.sample_bytes, workload.read.epochs), (64_000.0, 1));
}

#[test]
fn a_head_that_is_looked_at_first_is_no_epoch_of_its_own() {
    let mut program = Program::default();
    for file in shuffled(50, 2) {
        program.open(1, file, &format!("{file}.npz"), 200_000);
        program.push(1, file, What::Read { offset: 0, length: 4096 });
        program.push(1, file, What::Close);
        program.open(1, file, &format!("{file}.npz"), 200_000);
        program.push(1, file, What::Read { offset: 0, length: 200_000 });
        program.push(1, file, What::Close);
    }
    let trace = program.trace();
    assert_eq!((trace.groups[0].epochs, trace.groups[0].files), (1.0, 50));
}

#[test]
fn what_is_bounded_is_counted() {
    let mut program = Program::default();
    for process in 0..PROCESSES_MAX as u32 + 10 {
        program.whole(process, 1, 100);
    }
    let trace = program.trace();
    assert_eq!((trace.process_count, trace.beyond), (PROCESSES_MAX as u64, 10));
    assert_eq!(trace.bytes, 100 * (PROCESSES_MAX as u64 + 10));
}

/// Reads of threads side by side: batches of eight files, which a reader opens and reads in 2 ms each.
#[derive(Default)]
struct Threads {
    events: Vec<Event>,
    files: u64,
}

const FILE_MS: u64 = 2;

impl Threads {
    /// Some files one after another; gives when they were read.
    fn read(&mut self, mut at_ms: u64, (process, thread): (u32, u32), files: u64) -> u64 {
        for _ in 0..files {
            let (file, open) = (self.files % 400, self.files);
            self.files += 1;
            let begin_ns = at_ms * MS;
            let event = Event { begin_ns, end_ns: begin_ns + MS, process, thread, file, open, what: What::Close };
            let path = format!("{file:05}.jpg").as_bytes().into();
            self.events.push(Event { what: What::Open { path, size: 1000, listed: 0 }, ..event });
            at_ms += FILE_MS;
            let (begin_ns, end_ns) = (event.end_ns, at_ms * MS);
            let what = What::Read { offset: 0, length: 1000 };
            self.events.push(Event { begin_ns, end_ns, process, thread, file, open, what });
        }
        at_ms
    }

    fn derived(mut self) -> (Trace, derive::Derived) {
        self.events.sort_by_key(|event| event.begin_ns);
        let mut tracer = Tracer::new();
        self.events.iter().for_each(|event| tracer.add(event));
        let trace = tracer.finish(0);
        let derived = derive::of(&trace, "mine").expect("a workload");
        parsed(&derived.workload);
        (trace, derived)
    }
}

/// Batch, threads, batches ahead, and the step in milliseconds.
fn figures(derived: &derive::Derived) -> (u64, u64, u64, f64) {
    let read = &derived.workload.read;
    let step = derived.accelerator.step("mine").expect("of this workload");
    (read.batch, read.threads, read.prefetch_batches, (1e4 * step.step_seconds).round() / 10.0)
}

#[test]
fn threads_that_share_a_batch_step_once_for_all_of_them() {
    let mut program = Threads::default();
    for batch in 0..100 {
        // Four threads read for 4 ms, then the program computes for 40.
        (0..4).for_each(|thread| _ = program.read(44 * batch, (1, thread), 2));
    }
    let (_, derived) = program.derived();
    assert_eq!(figures(&derived), (8, 4, 0, 40.0));
}

#[test]
fn processes_that_own_a_batch_each_step_from_batch_to_batch() {
    // A batch takes a process 16 ms, and the program 10: they are never idle together. Each has two on their way.
    let (mut program, mut free, mut ready) = (Threads::default(), [0; 4], Vec::<u64>::new());
    let mut taken = Vec::<u64>::new();
    for batch in 0..200_usize {
        while taken.len() + 8 <= batch {
            let number = taken.len();
            taken.push(ready[number].max(taken.last().map_or(0, |last| last + 10)));
        }
        let begin = free[batch % 4].max(batch.checked_sub(8).map_or(0, |freed| taken[freed]));
        ready.push(program.read(begin, (batch as u32 % 4, 0), 8));
        free[batch % 4] = ready[batch];
    }
    let (trace, derived) = program.derived();
    let pace = trace.pace.expect("pauses");
    assert_eq!((pace.owner, pace.owners), (Owner::Process, 4));
    assert_eq!(figures(&derived), (8, 4, 8, 10.0));
}

#[test]
fn what_is_read_ahead_is_no_part_of_the_step() {
    let (mut program, mut done, mut taken) = (Threads::default(), 0, Vec::<u64>::new());
    for batch in 0..100_usize {
        // Four wait or are on their way while one is computed, for 40 ms.
        let begin = batch.checked_sub(4).map_or(0, |freed| taken[freed]).max(done);
        done = program.read(begin, (1, 1), 8);
        taken.push(done.max(taken.last().map_or(0, |last| last + 40)));
    }
    assert_eq!(figures(&program.derived().1), (8, 1, 4, 40.0));
}

#[test]
fn a_program_that_always_waits_for_reads_has_a_step_of_at_most_their_time() {
    let mut program = Threads::default();
    (0..4).for_each(|thread| _ = program.read(0, (thread, 0), 200));
    let (trace, derived) = program.derived();
    assert_eq!(trace.pace, None);
    assert_eq!(figures(&derived), (1, 4, 4, 0.5));
    let source = &derived.accelerator.steps["mine"].source;
    assert!(source.contains("at most") && derived.doubts.iter().any(|doubt| doubt.contains("upper bound")), "{source}");
}

#[test]
fn pieces_of_any_size_are_no_batches() {
    let (mut program, mut at) = (Threads::default(), 0);
    for files in shuffled(40, 3) {
        at = program.read(at + 30, (1, 1), 1 + files);
    }
    let (trace, derived) = program.derived();
    assert_eq!((trace.pace, derived.workload.read.batch), (None, 1));
}

#[test]
fn steps_that_do_not_fit_into_the_run_are_lowered_and_that_is_said() {
    let mut program = Threads::default();
    (0..100).for_each(|batch| _ = program.read(60 * batch, (1, 1), 8));
    let (mut trace, _) = program.derived();
    trace.run_seconds = Some(3.0);
    let derived = derive::of(&trace, "mine").expect("a workload");
    assert_eq!(figures(&derived), (8, 1, 0, 30.0));
    assert!(derived.workload.source.contains("longer than the run"), "{}", derived.workload.source);
}

#[test]
fn nothing_read_is_no_workload() {
    let error = derive::of(&Program::default().trace(), "none").err().expect("there is nothing");
    assert!(error.to_string().contains("\n  try: "), "{error}");
}
