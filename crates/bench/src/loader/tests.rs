//! What a loader says is read as if an enemy had written it. The programs are shells that say what they are given.

use super::*;
use ranks::Alone;

struct Seen(Vec<u64>);

impl Watch for Seen {
    fn begin(&mut self, epoch: u64) -> Result<bool> {
        self.0.push(epoch);
        Ok(epoch == 1)
    }

    fn made(&mut self, _epoch: u64, _step: u64, _steps: u64) {}
}

fn job() -> Job {
    let workload = workload::shipped("unet3d").expect("it is shipped");
    let step =
        Step { step_seconds: 0.5, batch: Some(4), prefetch_batches: None, derived: false, source: String::new() };
    Job { epochs: 1, ..Job::of(&workload, &step, 2, None, 1) }
}

fn said(script: &str) -> Result<Vec<Epoch>> {
    let mut program = Command::new("sh");
    program.args(["-c", &format!("read job; {script}")]);
    run(Loader::Torch, &job(), program, ALONE, &mut Seen(Vec::new()))
}

/// Two steps: one second of waiting in each, half a second of computing, then a barrier of a quarter.
fn part(accelerator: u64) -> String {
    format!(
        r#"echo '{{"epoch":1,"accelerator":{accelerator},"seconds":3.5,"samples":8,"bytes":80,"steps":[[0,1,0.5,0.25,0.6,0.4,1],[1.75,1,0.5,0.25,0.5,0.25,2.75]]}}'; "#
    )
}

/// This process and one like it, which does the same.
struct Two;

impl Ranks for Two {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        2
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![own.to_vec(); 2])
    }

    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>> {
        Ok(own)
    }
}

const ALONE: Among = Among { ranks: &Alone, node: "here" };

const READY: &str = r#"echo '{"ready":1}'; read go; "#;

#[test]
fn an_epoch_is_joined_from_its_accelerators() {
    let epochs = said(&format!("{READY}{}{}", part(1), part(0))).expect("an epoch");
    let [epoch] = &epochs[..] else { panic!("one epoch, not {epochs:?}") };
    assert_eq!((epoch.epoch, epoch.steps, epoch.samples, epoch.cold), (1, 2, 16, true));
    // One step of half a second in the 1.75 seconds after the first; DLIO counts the first barrier in: 0.5 of 2.0.
    assert!((epoch.au_percent - 100.0 * 0.5 / 1.75).abs() < 1e-9, "{}", epoch.au_percent);
    assert!((epoch.au_dlio_percent - 25.0).abs() < 1e-9, "{}", epoch.au_dlio_percent);
    let waits: Vec<(&str, f64)> = epoch.wait_seconds_by_cause.iter().map(|(name, one)| (name.as_str(), *one)).collect();
    assert_eq!(waits, [("barrier", 0.5), ("cpu", 0.5), ("loader", 0.5), ("start", 2.5), ("store", 1.0)]);
    assert!((epoch.bytes_per_second - 160.0 / 3.5).abs() < 1e-9);
    assert_eq!(epoch.step_seconds["max"], 1.75);
}

#[test]
fn what_a_loader_read_ahead_lets_no_run_pass() {
    // Batches that lie there are taken at once; storage gives another each 0.6 s, and a step takes 0.5 s of them.
    let job = Job { workers: 1, prefetch_batches: 8, accelerators: 1, replicas: 1, ..job() };
    let steady = job.steady();
    let (steps, mut laps, mut now) = (steady.least, Vec::new(), 0.0);
    for step in 0..steps {
        let whole = step.saturating_sub(2 * steady.lead) as f64 * 0.6;
        let wait = f64::max(whole - now, 0.0);
        laps.push(Lap(now, wait, 0.5, 0.0, 0.0, 0.0, whole));
        now += wait + 0.5;
    }
    let share = Share {
        node: "here".into(),
        cold: true,
        parts: vec![Part { epoch: 1, accelerator: 0, seconds: now, samples: 4 * steps, bytes: 0, steps: laps.clone() }],
    };
    let epoch = joined(&[share], &job);
    assert_eq!((epoch.steps, epoch.steps_counted), (steps, steps - 2 * steady.lead));
    // Eight batches lay there when the first step that counts began, and none after the last.
    let took = laps[(steps - steady.lead - 1) as usize].end() - laps[steady.lead as usize - 1].end();
    let computed = (epoch.steps_counted - steady.lead) as f64 * 0.5;
    assert!((epoch.au_percent - 100.0 * computed / took).abs() < 1e-6, "{} of {steps}", epoch.au_percent);
    let waits: f64 = epoch.wait_seconds_by_cause.iter().filter(|(name, _)| *name != "start").map(|(_, one)| one).sum();
    let counted = &laps[steady.lead as usize..(steps - steady.lead) as usize];
    assert!((waits - counted.iter().map(|lap| lap.1).sum::<f64>()).abs() < 1e-6, "{epoch:?}");
}

#[test]
fn an_epoch_of_ranks_is_joined_from_their_parts_and_tells_each() {
    let mut program = Command::new("sh");
    let meet = r#"echo '{"meet":true}'; read go; "#;
    program.args(["-c", &format!("read job; {READY}{meet}{meet}{}{}", part(0), part(1))]);
    let job = Job { replicas: 4, ..job() };
    let among = Among { ranks: &Two, node: "n1" };
    let epochs = run(Loader::Torch, &job, program, among, &mut Seen(Vec::new())).expect("an epoch");
    let [epoch] = &epochs[..] else { panic!("one epoch, not {epochs:?}") };
    assert_eq!((epoch.steps, epoch.samples, epoch.cold), (2, 32, true));
    assert!((epoch.samples_per_second - 32.0 / 3.5).abs() < 1e-9, "{epoch:?}");
    let each: Vec<_> = epoch.processes.iter().map(|one| (one.node.as_str(), one.rank, one.samples)).collect();
    assert_eq!(each, [("n1", 0, 16), ("n1", 1, 16)]);
    assert!((epoch.processes[1].samples_per_second - 16.0 / 3.5).abs() < 1e-9, "{epoch:?}");
}

#[test]
fn what_can_not_be_is_refused() {
    let whole = part(0);
    for (script, part) in [
        ("echo hello".to_owned(), "hello"),
        (r#"echo '{"ready":2}'"#.to_owned(), "epoch 2 after 0"),
        (r#"echo '{"meet":true}'"#.to_owned(), "other ranks"),
        (format!("{READY}{whole}{whole}"), "accelerator 0"),
        (format!("{READY}{}", whole.replace("\"accelerator\":0", "\"accelerator\":2")), "accelerator 2"),
        (format!("{READY}{}", whole.replace("3.5", "-1")), "can't be"),
        (format!("{READY}{}", whole.replace("3.5", "1e300")), "can't be"),
        (format!("{READY}{}", whole.replace("\"samples\":8", "\"samples\":9")), "9 samples"),
        (format!("{READY}{}", whole.replace("\"epoch\":1", "\"epoch\":3")), "epoch 3"),
        (format!("{READY}{whole}"), "ended before"),
        ("echo oh no >&2; exit 3".to_owned(), "exit status: 3): oh no"),
        (format!("{READY}{whole}{}exit 4", super::tests::part(1)), "exit status: 4"),
    ] {
        let error = said(&script).expect_err(&script);
        assert!(error.to_string().contains(part), "{script}: {error}");
    }
}

#[test]
fn a_missing_library_is_reported_with_how_to_get_it() {
    let error = said(r#"echo '{"missing":"No module named torch"}'; exit 1"#).expect_err("nothing to load with");
    assert!(error.hint.contains("pip install torch"), "{error}");
    let error = said(r#"echo '{"refusal":{"what":"a","on":"b","try":"c"}}'; exit 1"#).expect_err("a refusal");
    assert_eq!((error.what.as_str(), error.on.as_str(), error.hint.as_str()), ("a", "b", "c"));
}

struct Failing;

impl Watch for Failing {
    fn begin(&mut self, _epoch: u64) -> Result<bool> {
        Err(Error::invalid("no", "here"))
    }

    fn made(&mut self, _epoch: u64, _step: u64, _steps: u64) {}
}

#[test]
fn a_worker_that_outlives_its_program_holds_up_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let mut program = Command::new("sh");
    // The worker has the program's standard error, and ends when somebody has opened the other side.
    let script = format!("read job; cat {} & echo '{{\"ready\":1}}'; wait", fifo.display());
    program.args(["-c", &script]);
    assert_eq!(run(Loader::Torch, &job(), program, ALONE, &mut Failing).expect_err("it failed").what, "no");
    drop(std::fs::OpenOptions::new().write(true).open(&fifo).expect("the worker listens"));
}

#[test]
fn a_failure_between_epochs_ends_the_program() {
    let mut program = Command::new("sh");
    program.args(["-c", r#"read job; echo '{"ready":1}'; exec sleep 1000"#]);
    assert_eq!(run(Loader::Torch, &job(), program, ALONE, &mut Failing).expect_err("it failed").what, "no");
}
