//! Traces of programs made up, and what is judged of them.

use super::derive::{accelerator, workload};
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
    let workload = parsed(&workload(&trace, "mine").expect("a workload"));
    assert_eq!((workload.files.format, workload.files.count, workload.files.samples_per_file), (Format::Jpeg, 160, 1));
    assert_eq!((workload.read.order, workload.read.epochs, workload.read.batch), (Order::Shuffled, 2, 8));
    assert_eq!((workload.files.sample_bytes, workload.read.threads), (157_950.0, 1));
    let accelerator = accelerator(&trace, &workload).expect("pauses were seen");
    let step = accelerator.step("mine").expect("of this workload");
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
    let workload = parsed(&workload(&trace, "records").expect("a workload"));
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

#[test]
fn nothing_read_is_no_workload() {
    let error = workload(&Program::default().trace(), "none").expect_err("there is nothing");
    assert!(error.to_string().contains("\n  try: "), "{error}");
}
