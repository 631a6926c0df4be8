//! A checkpoint as a whole, on a folder, with processes that take different times by a clock of their own.

use std::cell::Cell;
use std::collections::HashSet;
use std::path::Path;

use super::*;
use crate::ground::Site;
use crate::pair::Pair;
use ranks::Alone;
use targets::clock::{Moment, Monotonic, SECOND};
use targets::{Created, Folder, Opened, Target};

/// Each thread has a time of its own, which passes only where a process is told to be slow.
struct Each;

thread_local!(static NOW: Cell<Moment> = const { Cell::new(0) });

impl Clock for Each {
    fn now(&self) -> Moment {
        NOW.get()
    }

    fn sleep_until(&self, _moment: Moment) {}
}

/// A folder where the last process takes four times as long as the others.
struct Uneven(Folder);

impl Target for Uneven {
    fn url(&self) -> &str {
        self.0.url()
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.0.list()
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        self.0.stat(name)
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        self.0.open(file)
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Uneven {
    fn create(&self, name: &str, bytes: u64) -> Result<Box<dyn Created>> {
        NOW.set(NOW.get() + if name.contains("00003") { 4 * SECOND } else { SECOND });
        self.0.create(name, bytes)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
}

/// What a run has that no test of it changes, on a ground of its own.
struct Around {
    ground: Ground,
    stop: AtomicBool,
}

impl Around {
    fn on(folder: &Path) -> Around {
        Around::at(folder, &Alone)
    }

    fn at(folder: &Path, ranks: &dyn Ranks) -> Around {
        let site = Site::Folder { root: folder.to_owned(), direct: false };
        let (ground, _) = Ground::meet(site, WORK, SEED, ranks).unwrap();
        Around { ground, stop: AtomicBool::new(false) }
    }

    fn course<'a>(
        &'a self,
        target: &'a dyn Writable,
        clock: &'a dyn Clock,
        chill: &'a dyn Fn(&[Listed]) -> Result<bool>,
    ) -> Course<'a> {
        let Around { ground, stop } = self;
        let (look, warn) = (&|_: &str| (), &|warning: String| panic!("{warning}"));
        Course { target, clock, ranks: &Alone, ground, stop, seed: 1, room: None, chill, look, warn }
    }
}

const SEED: u64 = 9;

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

fn shape(bytes: f64, processes: u64, writes: u64, reads: u64) -> Checkpoint {
    Checkpoint { bytes, processes, writes, reads, pause_seconds: 0.0 }
}

fn passes(course: &Course, shape: &Checkpoint) -> Result<Vec<Pass>> {
    let mut passes = Vec::new();
    run(course, shape, &mut |pass| {
        passes.push(pass);
        Ok(())
    })?;
    Ok(passes)
}

#[test]
fn a_checkpoint_is_written_read_and_gone() {
    let folder = tempfile::tempdir().unwrap();
    let target = Folder::at(folder.path()).unwrap();
    std::fs::write(folder.path().join("checkpoint-00000.state"), "precious").unwrap();
    let around = Around::on(folder.path());
    let found = passes(&around.course(&target, &Monotonic, &|_| Ok(false)), &shape(5e6, 2, 2, 1)).unwrap();
    let said: Vec<_> = found.iter().map(|pass| (pass.what.as_str(), pass.number, pass.bytes, pass.cold)).collect();
    assert_eq!(
        said,
        [("write", 1, 5_000_000, None), ("write", 2, 5_000_000, None), ("read", 1, 5_000_000, Some(false))]
    );
    assert!(found.is_sorted_by(|left, right| left.start_seconds < right.start_seconds), "{found:?}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [folder.path().join("checkpoint-00000.state")], "a file of that name was there before");
    assert_eq!(std::fs::read(&left[0]).unwrap(), b"precious");
}

#[test]
fn one_slow_process_makes_the_slowest_rate_and_only_weighs_in_the_mean() {
    let folder = tempfile::tempdir().unwrap();
    let target = Uneven(Folder::at(folder.path()).unwrap());
    let around = Around::on(folder.path());
    let [pass] = &passes(&around.course(&target, &Each, &|_| Ok(false)), &shape(4e6, 4, 1, 0)).unwrap()[..] else {
        panic!("one write")
    };
    assert_eq!((pass.seconds, pass.p50_seconds, &pass.process_seconds[..]), (4.0, 1.0, &[1.0, 1.0, 1.0, 4.0][..]));
    assert_eq!((pass.bytes_per_second, pass.slowest_bytes_per_second), (1e6, 1e6));
    assert_eq!(pass.mean_bytes_per_second, 3.25e6);
}

/// The blocks of 4 KiB of a file.
fn blocks(path: &Path) -> Vec<Vec<u8>> {
    std::fs::read(path).unwrap().chunks(4096).map(<[u8]>::to_vec).collect()
}

#[test]
fn no_block_comes_twice_in_a_file_of_a_process_or_of_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let target = Folder::at(folder.path()).unwrap();
    let seen = std::sync::Mutex::new((0, HashSet::new()));
    let note = || {
        for file in target.list().unwrap().iter().filter(|file| file.name.ends_with(".state")) {
            let (count, distinct) = &mut *seen.lock().unwrap();
            let found = blocks(&folder.path().join(&*file.name));
            *count += found.len();
            distinct.extend(found);
        }
    };
    let around = Around::on(folder.path());
    run(&around.course(&target, &Monotonic, &|_| Ok(true)), &shape(6.0 * PIECE as f64, 2, 3, 0), &mut |_| {
        note();
        Ok(())
    })
    .unwrap();
    let (count, distinct) = seen.into_inner().unwrap();
    assert_eq!((count, distinct.len()), (3 * 6 * PIECE as usize / 4096, count));
}

#[test]
fn a_byte_that_changed_before_a_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = Folder::at(folder.path()).unwrap();
    let spoil = |files: &[Listed]| {
        let path = folder.path().join(&*files[1].name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[1_234_567] ^= 1;
        std::fs::write(path, bytes).unwrap();
        Ok(false)
    };
    let around = Around::on(folder.path());
    let error = passes(&around.course(&target, &Monotonic, &spoil), &shape(4e6, 2, 2, 1)).unwrap_err();
    assert!(error.what.contains("byte 1234567") && error.on.contains("00001"), "{error}");
    assert!(is_empty(folder.path()), "nothing stays after an error either");
}

/// What two ranks that write 2 MB each say of their room.
fn with_room(systems: [&str; 2], free_bytes: u64) -> [Result<()>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let target = Folder::at(folder.path()).unwrap();
    let [mut left, mut right] = [Ok(()), Ok(())];
    thread::scope(|scope| {
        let pairs = Pair::both().into_iter().zip(systems).zip([&mut left, &mut right]);
        for ((pair, system), said) in pairs {
            let target = &target;
            scope.spawn(move || {
                let room = Room { system: system.into(), free_bytes, folder: "/ckpt".into() };
                let around = Around::at(Path::new(target.url()), &pair);
                let course = around.course(target, &Monotonic, &|_| Ok(true));
                *said = passes(&Course { ranks: &pair, room: Some(room), ..course }, &shape(4e6, 2, 1, 0)).map(drop);
            });
        }
    });
    assert!(is_empty(folder.path()));
    [left, right]
}

#[test]
fn all_ranks_refuse_together_what_has_no_room_on_their_file_system() {
    let enough_for_one = 3_300_000;
    for said in with_room(["nfs", "nfs"], enough_for_one) {
        let error = said.unwrap_err();
        assert!(error.kind == Kind::Full && error.on == "/ckpt" && error.hint.contains("checkpoint-bytes="), "{error}");
    }
    assert!(with_room(["disk of a", "disk of b"], enough_for_one).iter().all(Result::is_ok));
    // What is advised fits.
    let told = with_room(["nfs", "nfs"], enough_for_one)[0].as_ref().unwrap_err().hint.clone();
    let fits: u64 = told.rsplit('=').next().unwrap().parse().unwrap();
    assert!((2_500_000..3_000_000).contains(&fits), "{told}");
}

#[test]
fn two_runs_on_one_folder_leave_each_other_alone() {
    let folder = tempfile::tempdir().unwrap();
    let target = Folder::at(folder.path()).unwrap();
    let other = folder.path().join("stoker-checkpoint-other/r0");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("checkpoint-00000.state"), "of another run").unwrap();
    let around = Around::on(folder.path());
    passes(&around.course(&target, &Monotonic, &|_| Ok(false)), &shape(4e6, 2, 1, 1)).unwrap();
    assert_eq!(std::fs::read(other.join("checkpoint-00000.state")).unwrap(), b"of another run");
}

#[test]
fn what_others_put_into_the_folder_of_a_run_stays_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = Folder::at(folder.path()).unwrap();
    let (around, warned) = (Around::on(folder.path()), std::cell::RefCell::new(Vec::new()));
    let put = |files: &[Listed]| {
        let beside = folder.path().join(&*files[0].name).with_file_name("thesis.txt");
        std::fs::write(beside, "mine").unwrap();
        Ok(false)
    };
    let course = around.course(&target, &Monotonic, &put);
    passes(&Course { warn: &|warning| warned.borrow_mut().push(warning), ..course }, &shape(4e6, 2, 1, 1)).unwrap();
    let left: Vec<_> = target.list().unwrap().into_iter().map(|file| file.name.to_string()).collect();
    assert_eq!(left, ["marker", "r0/thesis.txt"].map(|name| around.ground.below(name)));
    let warned = warned.into_inner();
    assert!(warned.len() == 1 && warned[0].contains("thesis.txt"), "{warned:?}");
}

/// A folder that does something when a file is begun.
struct Eager<'a>(Folder, &'a (dyn Fn(&str) + Sync));

impl Target for Eager<'_> {
    fn url(&self) -> &str {
        self.0.url()
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.0.list()
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        self.0.stat(name)
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        (self.1)(&file.name);
        self.0.open(file)
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Eager<'_> {
    fn create(&self, name: &str, bytes: u64) -> Result<Box<dyn Created>> {
        let created = self.0.create(name, bytes);
        (self.1)(name);
        created
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
}

#[test]
fn an_interrupt_at_one_rank_ends_all_and_leaves_nothing() {
    for reads in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let told = std::sync::Mutex::new(Vec::new());
        thread::scope(|scope| {
            for pair in Pair::both() {
                let (folder, told) = (folder.path(), &told);
                scope.spawn(move || {
                    let around = Around::at(folder, &pair);
                    let stops = |name: &str| {
                        let is_due = reads == 0 || Path::new(folder).join(name).exists();
                        around.stop.fetch_or(name.contains("r1/") && is_due, Ordering::Relaxed);
                    };
                    let target = Eager(Folder::at(folder).unwrap(), &stops);
                    let course = around.course(&target, &Monotonic, &|_| Ok(true));
                    let ended = run(&Course { ranks: &pair, ..course }, &shape(8e6, 2, 1, reads), &mut |_| Ok(()));
                    told.lock().unwrap().push(ended.unwrap());
                });
            }
        });
        assert_eq!(*told.lock().unwrap(), [Ended::Interrupted; 2]);
        assert!(is_empty(folder.path()));
    }
}

#[test]
fn a_process_that_panics_fails_the_run_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let around = Around::on(folder.path());
    let breaks = |name: &str| assert!(!name.contains("00001"), "this panic is a part of the test");
    let target = Eager(Folder::at(folder.path()).unwrap(), &breaks);
    let error = passes(&around.course(&target, &Monotonic, &|_| Ok(true)), &shape(4e6, 3, 1, 0)).unwrap_err();
    assert!(error.what.contains("panicked"), "{error}");
    assert!(is_empty(folder.path()));
}

#[test]
fn a_panic_between_passes_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let around = Around::on(folder.path());
    let target = Folder::at(folder.path()).unwrap();
    let course = around.course(&target, &Monotonic, &|_| Ok(true));
    let ended = || run(&course, &shape(4e6, 2, 1, 0), &mut |_| panic!("this panic is a part of the test"));
    assert!(catch_unwind(AssertUnwindSafe(ended)).is_err());
    assert!(is_empty(folder.path()));
}

#[test]
fn a_pause_has_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let around = Around::on(folder.path());
    let target = Folder::at(folder.path()).unwrap();
    let course = around.course(&target, &Monotonic, &|_| Ok(true));
    let long = Checkpoint { pause_seconds: 1e9, ..shape(4e6, 2, 2, 0) };
    assert_eq!(run(&course, &long, &mut |_| panic!("nothing was to be written")).unwrap_err().kind, Kind::Invalid);
}
