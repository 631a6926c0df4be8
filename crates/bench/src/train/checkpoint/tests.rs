//! A checkpoint as a whole, on a folder, with processes that take different times by a clock of their own.

use std::cell::Cell;
use std::collections::HashSet;
use std::path::Path;

use super::*;
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

fn course<'a>(
    target: &'a dyn Writable,
    clock: &'a dyn Clock,
    chill: &'a dyn Fn(&[Listed]) -> Result<bool>,
) -> Course<'a> {
    Course { target, clock, ranks: &Alone, seed: 1, room: None, chill, look: &|_| () }
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
    let found = passes(&course(&target, &Monotonic, &|_| Ok(false)), &shape(5e6, 2, 2, 1)).unwrap();
    let said: Vec<_> = found.iter().map(|pass| (pass.what.as_str(), pass.number, pass.bytes, pass.cold)).collect();
    assert_eq!(
        said,
        [("write", 1, 5_000_000, None), ("write", 2, 5_000_000, None), ("read", 1, 5_000_000, Some(false))]
    );
    assert!(found.is_sorted_by(|left, right| left.start_seconds < right.start_seconds), "{found:?}");
    assert!(target.list().unwrap().is_empty());
}

#[test]
fn one_slow_process_makes_the_slowest_rate_and_only_weighs_in_the_mean() {
    let folder = tempfile::tempdir().unwrap();
    let target = Uneven(Folder::at(folder.path()).unwrap());
    let [pass] = &passes(&course(&target, &Each, &|_| Ok(false)), &shape(4e6, 4, 1, 0)).unwrap()[..] else {
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
        for file in target.list().unwrap() {
            let (count, distinct) = &mut *seen.lock().unwrap();
            let found = blocks(&folder.path().join(&*file.name));
            *count += found.len();
            distinct.extend(found);
        }
    };
    run(&course(&target, &Monotonic, &|_| Ok(true)), &shape(6.0 * PIECE as f64, 2, 3, 0), &mut |_| {
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
    let error = passes(&course(&target, &Monotonic, &spoil), &shape(4e6, 2, 2, 1)).unwrap_err();
    assert!(error.what.contains("byte 1234567") && error.on.contains("00001"), "{error}");
    assert!(target.list().unwrap().is_empty(), "nothing stays after an error either");
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
                let course = Course { ranks: &pair, room: Some(room), ..course(target, &Monotonic, &|_| Ok(true)) };
                *said = passes(&course, &shape(4e6, 2, 1, 0)).map(drop);
            });
        }
    });
    assert!(target.list().unwrap().is_empty());
    [left, right]
}

#[test]
fn all_ranks_refuse_together_what_has_no_room_on_their_file_system() {
    let enough_for_one = (64 << 20) + 3_000_000;
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
