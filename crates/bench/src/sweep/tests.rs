//! Whole sweeps: on folders, on a store in memory that fails on purpose, and on two ranks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use block::{Error, Kind, Result};
use ranks::{Alone, Ranks};
use targets::{Created, Listed, Opened, Target, Writable};

use super::*;
use crate::ground::{Ground, Site};
use crate::pair::Pair;

const SEED: u64 = 5;

fn settings() -> Settings {
    Settings {
        sizes: vec![1_000, 70_000],
        threads: vec![1, 3],
        phases: Phase::ALL.to_vec(),
        block: 16_384,
        random_block: 4_096,
        repetitions: 1,
        bytes_max: 300_000,
        files: None,
        time_max: None,
        direct: false,
        durable: true,
        verify: true,
        cooler: None,
        rotate: false,
        seed: SEED,
    }
}

/// Keeps what it hears, and does something when a phase begins.
struct Ear<'a> {
    cells: Mutex<Vec<Cell>>,
    warnings: Mutex<Vec<String>>,
    at: &'a (dyn Fn(&Step) + Sync),
}

impl<'a> Ear<'a> {
    fn of(at: &'a (dyn Fn(&Step) + Sync)) -> Ear<'a> {
        Ear { cells: Mutex::default(), warnings: Mutex::default(), at }
    }
}

impl Observer for Ear<'_> {
    fn began(&self, step: &Step) {
        (self.at)(step);
    }

    fn ended(&self, cell: Cell) -> Result<()> {
        self.cells.lock().unwrap().push(cell);
        Ok(())
    }

    fn warn(&self, warning: String) {
        self.warnings.lock().unwrap().push(warning);
    }
}

fn site(root: &Path) -> Site {
    Site::Folder { root: root.to_owned(), direct: false }
}

/// A sweep of one rank on a folder.
fn sweep(root: &Path, settings: &Settings, ear: &Ear) -> Result<Ended> {
    let (ground, _) = Ground::meet(site(root), WORK, SEED, &Alone)?;
    run(settings, &ground, &Alone, &Live::default(), ear)
}

fn is_empty(root: &Path) -> bool {
    fs::read_dir(root).unwrap().next().is_none()
}

/// A store in memory, seen by one rank.
#[derive(Clone, Default)]
struct Shelf {
    kept: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// Names that this rank opened.
    opened: Arc<Mutex<Vec<String>>>,
    room: Option<usize>,
    /// A byte of each file that is read wrong.
    spoiled: Option<usize>,
    /// Names of this ending are neither found nor removed, as of a store that has no time.
    stuck: Option<&'static str>,
}

impl Shelf {
    fn answer(&self, name: &str) -> Result<()> {
        match self.stuck {
            Some(ending) if name.ends_with(ending) => Err(Error::unavailable("slow down", name)),
            _ => Ok(()),
        }
    }
}

impl Target for Shelf {
    fn url(&self) -> &str {
        "shelf:"
    }

    fn list(&self) -> Result<Vec<Listed>> {
        Err(Error::denied("a shelf isn't listed", "shelf:"))
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        self.answer(name)?;
        let kept = self.kept.lock().unwrap();
        let bytes = kept.get(name).ok_or_else(|| Error::missing("there is no such file", name))?.len();
        Ok(Listed { name: name.into(), bytes: bytes as u64 })
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        let kept = self.kept.lock().unwrap();
        let mut bytes =
            kept.get(&*file.name).ok_or_else(|| Error::missing("there is no such file", &file.name))?.clone();
        self.opened.lock().unwrap().push(file.name.to_string());
        if let Some(byte) = self.spoiled.and_then(|at| bytes.get_mut(at)) {
            *byte ^= 0x10;
        }
        Ok(Box::new(Page(bytes)))
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

struct Page(Vec<u8>);

impl Opened for Page {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl Writable for Shelf {
    fn create(&self, name: &str, _bytes: u64) -> Result<Box<dyn Created>> {
        Ok(Box::new(Leaf { shelf: self.clone(), name: name.into(), bytes: Vec::new() }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.answer(name)?;
        let removed = self.kept.lock().unwrap().remove(name);
        removed.map(drop).ok_or_else(|| Error::missing("there is no such file", name))
    }
}

struct Leaf {
    shelf: Shelf,
    name: String,
    bytes: Vec<u8>,
}

impl Created for Leaf {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, _durable: bool) -> Result<()> {
        let mut kept = self.shelf.kept.lock().unwrap();
        let used: usize = kept.values().map(Vec::len).sum();
        if self.shelf.room.is_some_and(|room| used + self.bytes.len() > room) {
            return Err(Error::full("there is no room", &self.name));
        }
        kept.insert(self.name, self.bytes);
        Ok(())
    }
}

/// A sweep of two ranks, each at its own view of one store: how each ended, and the cells of rank 0.
fn sweep_of_two(settings: &Settings, shelves: [Shelf; 2]) -> ([Result<Ended>; 2], Vec<Cell>) {
    let silent: &(dyn Fn(&Step) + Sync) = &|_| {};
    let ears = [Ear::of(silent), Ear::of(silent)];
    let ended = thread::scope(|scope| {
        let members = Pair::both().map(|pair| {
            let rank = pair.rank();
            let (shelf, ear) = (shelves[rank as usize].clone(), &ears[rank as usize]);
            scope.spawn(move || {
                let (ground, _) = Ground::meet(Site::Store(Box::new(shelf)), WORK, SEED + u64::from(rank), &pair)?;
                run(settings, &ground, &pair, &Live::default(), ear)
            })
        });
        members.map(|member| member.join().unwrap())
    });
    let [first, second] = ears;
    assert!(second.cells.into_inner().unwrap().is_empty(), "only rank 0 hears of cells");
    (ended, first.cells.into_inner().unwrap())
}

#[test]
fn a_sweep_measures_every_phase_of_every_cell_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let ear = Ear::of(&|_| {});
    assert_eq!(sweep(root.path(), &settings(), &ear).unwrap(), Ended::Finished);
    assert!(is_empty(root.path()));
    let cells = ear.cells.into_inner().unwrap();
    assert_eq!(cells.len(), 2 * 2 * 5);
    for cell in &cells {
        let files = (300_000 / (cell.file_bytes * cell.threads)) * cell.threads;
        let blocks = if cell.phase == Phase::Random { cell.file_bytes.div_ceil(4_096) } else { 1 };
        assert_eq!((cell.files, cell.operations), (files, files * blocks), "{cell:?}");
        assert_eq!(cell.bytes, if cell.phase.moves_bytes() { files * cell.file_bytes } else { 0 });
        let reads = matches!(cell.phase, Phase::Read | Phase::Random);
        assert_eq!(cell.verified_bytes, if reads { cell.bytes } else { 0 });
        assert_eq!(cell.histogram.counts.iter().sum::<u64>(), cell.operations);
        assert!(cell.first_done.seconds <= cell.seconds && cell.seconds > 0.0);
        assert!(cell.latency_seconds["min"] <= cell.latency_seconds["p50"]);
        assert!(cell.latency_seconds["p99.9"] <= cell.latency_seconds["max"]);
        assert!(!cell.cold && cell.cooled.is_none() && cell.ended_by == "bytes");
    }
    let text = serde_json::to_string(&cells).unwrap();
    let again: Vec<Cell> = serde_json::from_str(&text).unwrap();
    assert!(again.iter().map(|cell| &cell.histogram).eq(cells.iter().map(|cell| &cell.histogram)));
}

#[test]
fn direct_reads_and_writes_are_of_the_same_content() {
    let root = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let settings = Settings { sizes: vec![8_192, 65_536], direct: true, ..settings() };
    settings.check(1).unwrap();
    let site = Site::Folder { root: root.path().to_owned(), direct: true };
    let (ground, _) = Ground::meet(site, WORK, SEED, &Alone).unwrap();
    let ear = Ear::of(&|_| {});
    match run(&settings, &ground, &Alone, &Live::default(), &ear) {
        Err(error) if error.what.contains("no direct I/O") => eprintln!("SKIPPED: {error}"),
        ended => assert_eq!(ended.unwrap(), Ended::Finished),
    }
    assert!(is_empty(root.path()));
}

#[test]
fn a_byte_that_is_read_wrong_ends_the_sweep_and_is_named() {
    let shelf = Shelf { spoiled: Some(16_390), ..Shelf::default() };
    let kept = shelf.kept.clone();
    let (ground, _) = Ground::meet(Site::Store(Box::new(shelf)), WORK, SEED, &Alone).unwrap();
    let error = run(&settings(), &ground, &Alone, &Live::default(), &Ear::of(&|_| {})).unwrap_err();
    assert_eq!(error.kind, Kind::Corrupt);
    assert!(error.what.starts_with("byte 16390 is") && error.on.ends_with("/f0"), "{error}");
    assert!(kept.lock().unwrap().is_empty(), "nothing is left");
    let blind = Settings { verify: false, ..settings() };
    let shelf = Shelf { spoiled: Some(16_390), ..Shelf::default() };
    let (ground, _) = Ground::meet(Site::Store(Box::new(shelf)), WORK, SEED, &Alone).unwrap();
    assert!(run(&blind, &ground, &Alone, &Live::default(), &Ear::of(&|_| {})).is_ok(), "nobody looked");
}

#[test]
fn a_target_without_room_is_an_error_and_nothing_is_left() {
    let shelf = Shelf { room: Some(200_000), ..Shelf::default() };
    let kept = shelf.kept.clone();
    let (ground, _) = Ground::meet(Site::Store(Box::new(shelf)), WORK, SEED, &Alone).unwrap();
    let ear = Ear::of(&|_| {});
    let error = run(&settings(), &ground, &Alone, &Live::default(), &ear).unwrap_err();
    assert_eq!((error.kind, &*error.what), (Kind::Full, "there is no room"));
    assert!(kept.lock().unwrap().is_empty(), "nothing is left");
}

#[test]
fn what_a_store_does_not_remove_is_counted_and_keeps_its_marker() {
    let wrong = Settings { sizes: vec![70_000], threads: vec![1], phases: vec![Phase::Read], ..settings() };
    for (stuck, left) in [("/f1", &["c0.t0/f1"][..]), (".t0/f0", &["c0.t0/f0"])] {
        let shelf = Shelf { spoiled: Some(16_390), stuck: Some(stuck), ..Shelf::default() };
        let kept = shelf.kept.clone();
        let (ground, _) = Ground::meet(Site::Store(Box::new(shelf)), WORK, SEED, &Alone).unwrap();
        let ear = Ear::of(&|_| {});
        let error = run(&wrong, &ground, &Alone, &Live::default(), &ear).unwrap_err();
        assert_eq!(error.kind, Kind::Corrupt, "what failed first is told: {error}");
        let kept = kept.lock().unwrap();
        let names: Vec<&str> = kept.keys().map(|name| name.split_once('/').unwrap().1).collect();
        assert!(names.len() == 2 && names[0] == "marker" && names[1].ends_with(left[0]), "{names:?}");
        let warnings = ear.warnings.into_inner().unwrap();
        assert!(warnings.len() == 1 && warnings[0].starts_with("1 objects or fewer"), "{warnings:?}");
    }
}

#[test]
fn a_missing_folder_a_file_for_one_and_something_in_the_way_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let meet = |path: &Path| Ground::meet(site(path), WORK, SEED, &Alone).map(drop).unwrap_err();
    let missing = meet(&root.path().join("nowhere"));
    assert!(missing.kind == Kind::Missing && missing.hint.contains("exists"), "{missing}");
    let file = root.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert!(meet(&file).what.contains("no folder"));
    let way = root.path().join(format!("stoker-sweep-{SEED:016x}"));
    for make in [|path: &Path| fs::write(path, "mine"), |path: &Path| fs::create_dir(path)] {
        make(&way).unwrap();
        let error = meet(root.path());
        assert!(error.what.contains("in the way") || error.what.contains("stands where"), "{error}");
        assert!(way.exists(), "what was in the way stays");
        let _ = fs::remove_file(&way);
    }
}

#[test]
fn what_others_put_into_the_folder_stays_and_is_named() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(format!("stoker-sweep-{SEED:016x}"));
    let put = |step: &Step| {
        if step.number == 2 {
            fs::write(folder.join("r0.c0.t0/thesis.txt"), "mine").unwrap();
            fs::create_dir(folder.join("f7")).unwrap();
        }
    };
    let ear = Ear::of(&put);
    assert_eq!(sweep(root.path(), &settings(), &ear).unwrap(), Ended::Finished);
    let left = |path: &Path| {
        let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    assert_eq!(left(&folder), ["f7", "marker", "r0.c0.t0"]);
    assert_eq!(left(&folder.join("r0.c0.t0")), ["thesis.txt"]);
    assert_eq!(ear.warnings.into_inner().unwrap().len(), 2);
}

#[test]
fn without_its_marker_nothing_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(format!("stoker-sweep-{SEED:016x}"));
    let live = Live::default();
    let spoil = |step: &Step| {
        if step.phase == Phase::Delete {
            fs::write(folder.join("marker"), "another run").unwrap();
            live.stop.store(true, Ordering::Relaxed);
        }
    };
    let (ground, _) = Ground::meet(site(root.path()), WORK, SEED, &Alone).unwrap();
    let error = run(&settings(), &ground, &Alone, &live, &Ear::of(&spoil)).unwrap_err();
    assert!(error.what.contains("marker") && error.hint.contains("by hand"), "{error}");
    assert!(folder.join("r0.c0.t0/f0").exists());
}

#[test]
fn an_interrupt_ends_a_sweep_keeps_its_cells_and_removes_its_files() {
    for phase in Phase::ALL {
        let root = tempfile::tempdir().unwrap();
        let shelf = Shelf::default();
        let kept = shelf.kept.clone();
        for site in [site(root.path()), Site::Store(Box::new(shelf))] {
            let live = Live::default();
            let stop = |step: &Step| live.stop.store(step.phase == phase, Ordering::Relaxed);
            let ear = Ear::of(&stop);
            let (ground, _) = Ground::meet(site, WORK, SEED, &Alone).unwrap();
            assert_eq!(run(&settings(), &ground, &Alone, &live, &ear).unwrap(), Ended::Interrupted);
            let cells = ear.cells.into_inner().unwrap();
            assert_eq!(cells.last().unwrap().ended_by, "interrupt");
            assert!(cells[..cells.len() - 1].iter().all(|cell| cell.ended_by == "bytes" && cell.files > 0));
        }
        assert!(is_empty(root.path()) && kept.lock().unwrap().is_empty(), "{phase:?}");
    }
}

#[test]
fn with_rotation_each_rank_reads_what_the_next_one_wrote() {
    let first = Shelf::default();
    let second = Shelf { opened: Arc::default(), ..first.clone() };
    let settings = Settings { rotate: true, ..settings() };
    let (ended, cells) = sweep_of_two(&settings, [first.clone(), second.clone()]);
    assert!(ended.iter().all(|ended| matches!(ended, Ok(Ended::Finished))), "{ended:?}");
    for (shelf, wrote) in [(&first, "/r1."), (&second, "/r0.")] {
        let opened = shelf.opened.lock().unwrap();
        let data: Vec<&String> = opened.iter().filter(|name| !name.ends_with("/marker")).collect();
        assert!(!data.is_empty() && data.iter().all(|name| name.contains(wrote)), "{wrote}: {data:?}");
    }
    assert!(first.kept.lock().unwrap().is_empty());
    let read = cells.iter().find(|cell| cell.phase == Phase::Read).unwrap();
    assert_eq!((read.ranks, read.files, read.bytes, read.verified_bytes), (2, 600, 600_000, 600_000));
    assert_eq!((read.histogram.counts.iter().sum::<u64>(), read.rank_seconds.len()), (600, 2));
}

#[test]
fn a_failure_at_one_rank_ends_both_and_says_where() {
    let first = Shelf::default();
    let second = Shelf { room: Some(1_000), ..first.clone() };
    let ([first_ended, second_ended], _) = sweep_of_two(&settings(), [first.clone(), second]);
    assert!(first_ended.unwrap_err().what.starts_with("rank 1 failed: there is no room"));
    assert_eq!(second_ended.unwrap_err().kind, Kind::Full);
    assert!(first.kept.lock().unwrap().is_empty());
    let apart = [Shelf::default(), Shelf::default()];
    let ([first_ended, second_ended], _) = sweep_of_two(&settings(), apart);
    assert!(first_ended.unwrap_err().what.contains("another rank"));
    assert!(second_ended.unwrap_err().hint.contains("share"));
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_try() {
    let refuse = |change: &dyn Fn(&mut Settings), on: &str| {
        let mut settings = settings();
        change(&mut settings);
        let error = settings.check(1).unwrap_err();
        assert!(format!("{} {}", error.what, error.on).contains(on) && !error.hint.is_empty(), "{error}");
    };
    refuse(&|settings| settings.sizes = vec![0], "--sizes 0");
    refuse(&|settings| settings.threads = vec![1, 5_000], "--threads 5000");
    refuse(&|settings| settings.block = 0, "--block 0");
    refuse(&|settings| settings.rotate = true, "--rotate");
    refuse(&|settings| settings.bytes_max = 500, "no cell");
    refuse(&|settings| settings.direct = true, "4096");
    settings().check(1).unwrap();
}

#[test]
fn a_time_limit_ends_a_phase_between_files_but_not_before_each_thread_has_one() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { time_max: Some(Duration::ZERO), ..settings() };
    let ear = Ear::of(&|_| {});
    assert_eq!(sweep(root.path(), &settings, &ear).unwrap(), Ended::Finished);
    assert!(is_empty(root.path()));
    for cell in ear.cells.into_inner().unwrap() {
        match cell.phase {
            Phase::Write => assert_eq!((cell.files, cell.bytes), (cell.threads, cell.threads * cell.file_bytes)),
            Phase::Delete => assert_eq!((cell.files, &*cell.ended_by), (cell.threads, "bytes")),
            _ => assert_eq!((cell.files, &*cell.ended_by), (0, "time")),
        }
    }
}

#[test]
fn sizes_that_were_not_tried_are_told_in_one_line() {
    let root = tempfile::tempdir().unwrap();
    let ear = Ear::of(&|_| {});
    let wide = Settings { sizes: vec![1 << 20, 2 << 20], threads: vec![1, 4, 8], bytes_max: 4 << 20, ..settings() };
    assert_eq!(sweep(root.path(), &wide, &ear).unwrap(), Ended::Finished);
    let warnings = ear.warnings.into_inner().unwrap();
    assert!(
        warnings.len() == 1 && warnings[0].ends_with("limit of 4 MiB: files of 1 MiB with 8; 2 MiB with 4, 8 threads"),
        "{warnings:?}"
    );
}
