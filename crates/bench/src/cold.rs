//! Make caches forget files, and prove that nothing of them is left in memory.
//!
//! It can't look into a target: what a server or a FUSE program keeps is dropped by a command of the user's, or the
//! files are not called cold. Invariant: of files [`Cooled::cold`] is true only after mincore(2) found no page of any, or
//! where a look would warm what was dropped (a FUSE program fetches what is opened) after the kernel forgot everything. Of a
//! store nothing is kept here, and the command alone drops what it keeps itself.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use block::{Error, Result};
use ranks::Ranks;
use rustix::fs::{Advice, StatFs};
use serde::{Deserialize, Serialize};

use crate::samples::{Run, Set};

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Clean pages, names and attributes of the whole machine.
const EVERYTHING: &str = "3";
/// Of a file that is looked at in one piece: one byte of answer a page of it.
const WINDOW: u64 = 1 << 30;
/// `f_type` of every FUSE file system, see statfs(2).
const FUSE: u64 = 0x6573_5546;
/// What an error names in place of the command, which may hold a key: errors stand in reports.
const GIVEN: &str = "--drop-command";

/// Of what a failed command wrote.
const COMPLAINT_MAX: usize = 400;

/// Makes caches forget ranges of the files of a set, and nothing else. Gives those that were in memory.
pub type Forget<'a> = dyn Fn(&Set, &[Run]) -> Result<Vec<Run>> + 'a;

/// What was done, and whether it worked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cooled {
    /// No byte of the files is in the memory of this machine.
    pub cold: bool,
    /// Nor are their names and attributes; only the kernel's own switch does that.
    pub names_cold: bool,
    /// `kernel` (drop_caches), `advice` (posix_fadvise of each file), `command`, `no cache` (a store has none here).
    pub means: Vec<String>,
    /// What mincore(2) still found.
    pub resident_bytes: u64,
    /// Why it is not cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// Makes caches forget.
#[derive(Clone, Debug, Default)]
pub struct Cooler {
    /// Drops the caches of the target itself; run by `sh -c`.
    pub command: Option<String>,
}

impl Cooler {
    /// Of a store that is read over the network; this machine keeps nothing of it.
    pub fn cool_store(&self) -> Result<Cooled> {
        let mut means = self.drop_own()?;
        means.push("no cache".into());
        Ok(Cooled { cold: true, names_cold: true, means, ..Cooled::default() })
    }

    /// Of files below a folder.
    pub fn cool_files(&self, folder: &Path, files: &[PathBuf]) -> Result<Cooled> {
        let means = self.drop_own()?;
        self.cool_dropped(folder, files, means)
    }

    /// The same after the command has run; `means` are those used before.
    pub fn cool_dropped(&self, folder: &Path, files: &[PathBuf], mut means: Vec<String>) -> Result<Cooled> {
        let grounds = grounds(folder, files.iter())?;
        let is_served = is_served(&grounds)?;
        flush(&grounds)?;
        let by_kernel = fs::write(DROP_CACHES, EVERYTHING).is_ok();
        means.push(if by_kernel { "kernel" } else { "advice" }.into());
        if is_served && self.command.is_some() {
            let because = "only root can make the kernel forget what it has of a FUSE file system, unopened";
            let because = (!by_kernel).then(|| because.to_owned());
            return Ok(Cooled { cold: by_kernel, names_cold: by_kernel, means, resident_bytes: 0, because });
        }
        let mut left = 0;
        for file in files {
            left += forget(file, by_kernel)?;
        }
        // Whoever looked has brought names and attributes back, and blocks of the disk that they stand in.
        let names_cold = by_kernel && fs::write(DROP_CACHES, EVERYTHING).is_ok();
        let hidden =
            "a program serves this file system and may keep files itself: say how to drop them by --drop-command";
        let because = match left {
            0 => is_served.then(|| hidden.to_owned()),
            left => Some(format!("{left} bytes of the files are still in memory")),
        };
        let cold = because.is_none();
        Ok(Cooled { cold, names_cold: cold && names_cold, means, resident_bytes: left, because })
    }

    /// Of ranges of files alone, whatever else caches hold: each with whether most of it was in memory. Of what a FUSE program
    /// serves and a command drops, all is forgotten; the command has run before.
    pub fn forget(&self, folder: &Path, ranges: &[(PathBuf, Range<u64>)]) -> Result<Vec<bool>> {
        let grounds = grounds(folder, ranges.iter().map(|(path, _)| path))?;
        flush(&grounds)?;
        if self.command.is_some() && is_served(&grounds)? && fs::write(DROP_CACHES, EVERYTHING).is_ok() {
            return Ok(vec![false; ranges.len()]);
        }
        ranges.iter().map(|(path, range)| forget_range(path, range)).collect()
    }

    /// Run the command on each machine once, by the first of its ranks, while none of them reads. All ranks call this.
    pub fn drop_on_all(&self, ranks: &dyn Ranks, node: &str) -> Result<()> {
        if self.command.is_none() {
            return Ok(());
        }
        let done = if is_first_of(ranks, node)? { self.drop_own().map(drop) } else { Ok(()) };
        // All hear of a failure together: who left alone would let the others wait.
        let failed = crate::gathered(ranks, &done.as_ref().err().map(ToString::to_string))?;
        let failed: Option<String> = crate::told(ranks, &failed.into_iter().flatten().next())?;
        done?;
        match failed {
            Some(what) => Err(Error::unavailable(format!("it failed on another rank: {what}"), GIVEN)),
            None => Ok(()),
        }
    }

    /// Run the command. What was used: it, or nothing.
    fn drop_own(&self) -> Result<Vec<String>> {
        let Some(command) = &self.command else { return Ok(Vec::new()) };
        let doing = |error: std::io::Error| Error::io("cannot run the command that drops caches", GIVEN, &error);
        let mut shell = Command::new("sh");
        let ended = shell.arg("-c").arg(command).stdin(Stdio::null()).output().map_err(doing)?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            let said: String = said.trim().chars().take(COMPLAINT_MAX).collect();
            let what = format!("the command that drops caches failed ({}): {said}", ended.status);
            return Err(Error::invalid(what, GIVEN).hint("run it by hand, and give one that works as --drop-command"));
        }
        Ok(vec!["command".into()])
    }
}

/// Whether no rank before this one runs on its machine.
fn is_first_of(ranks: &dyn Ranks, node: &str) -> Result<bool> {
    let all: Vec<String> =
        ranks.gather(node.as_bytes())?.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let all = crate::told(ranks, &all)?;
    Ok(all.iter().position(|name| name == node) == Some(ranks.rank() as usize))
}

/// A folder on each file system that the files lie on, the first that of all: others may be mounted below it. One file of
/// each folder is asked.
fn grounds<'a>(folder: &Path, files: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<PathBuf>> {
    let failed = |path: &Path, error| Error::io("cannot see what a file lies on", path.display(), &error);
    let device = |path: &Path| Ok(fs::metadata(path).map_err(|error| failed(path, error))?.dev());
    let (mut devices, mut grounds) = (HashSet::from([device(folder)?]), vec![folder.to_path_buf()]);
    let mut folders = HashSet::new();
    for file in files.filter(|file| folders.insert(file.parent())) {
        if devices.insert(device(file)?) {
            let real = fs::canonicalize(file).map_err(|error| failed(file, error))?;
            grounds.extend(real.parent().map(Path::to_path_buf));
        }
    }
    Ok(grounds)
}

/// Whether a FUSE program serves one of these folders: the kernel's cache is then not all, and an open may bring a file
/// back.
fn is_served(grounds: &[PathBuf]) -> Result<bool> {
    for folder in grounds {
        let found: StatFs = rustix::fs::statfs(folder)
            .map_err(|error| Error::io("cannot ask for the type of a file system", folder.display(), &error.into()))?;
        if found.f_type as u64 == FUSE {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Dirty pages can't be dropped, so they are written first.
fn flush(grounds: &[PathBuf]) -> Result<()> {
    grounds.iter().try_for_each(|folder| {
        let doing = |error: std::io::Error| Error::io("cannot write back the file system", folder.display(), &error);
        let opened = File::open(folder).map_err(doing)?;
        rustix::fs::syncfs(&opened).map_err(|error| doing(error.into()))
    })
}

/// Ask the kernel to forget one range of a file. Whether most of it was in memory.
fn forget_range(path: &Path, range: &Range<u64>) -> Result<bool> {
    let doing = |error: std::io::Error| Error::io("cannot see what is in memory of a file", path.display(), &error);
    let file = File::open(path).map_err(doing)?;
    let was = resident(&file, range.clone()).map_err(doing)?;
    // A range that ends inside of a page would leave it; one without an end leaves nothing.
    let is_last = file.metadata().map_err(doing)?.len() <= range.end;
    let length = if is_last { None } else { NonZeroU64::new(range.end - range.start) };
    rustix::fs::fadvise(&file, range.start, length, Advice::DontNeed).map_err(|error| doing(error.into()))?;
    Ok(2 * was > range.end - range.start)
}

/// Ask the kernel to forget one file, unless it just forgot everything, and count what it kept.
fn forget(path: &Path, is_dropped: bool) -> Result<u64> {
    let doing = |error: std::io::Error| Error::io("cannot see what is in memory of a file", path.display(), &error);
    let file = OpenOptions::new().read(true).open(path).map_err(doing)?;
    let bytes = file.metadata().map_err(doing)?.len();
    if is_dropped {
        let left = resident(&file, 0..bytes).map_err(doing)?;
        if left == 0 {
            return Ok(0);
        }
    }
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| doing(error.into()))?;
    resident(&file, 0..bytes).map_err(doing)
}

/// Bytes of a range of a file that are in memory, in whole pages. Of a file that the caller may not write, the kernel says that
/// all are, so that nothing is called cold that can't be seen.
pub fn resident(file: &File, range: Range<u64>) -> std::io::Result<u64> {
    let page = rustix::param::page_size() as u64;
    let mut pages = 0;
    let first = range.start / page * page;
    for offset in (first..range.end).step_by(usize::try_from(WINDOW).expect("a gibibyte fits in an address")) {
        let length = usize::try_from(WINDOW.min(range.end - offset)).expect("a gibibyte fits in an address");
        let offset = libc::off_t::try_from(offset).map_err(std::io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice; it is never dereferenced and is unmapped below.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if at == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            // A file system without maps of files has no pages of them to keep.
            return if error.raw_os_error() == Some(libc::ENODEV) { Ok(0) } else { Err(error) };
        }
        let mut present = vec![0u8; length.div_ceil(page as usize)];
        // SAFETY: the mapping is `length` bytes long, and there is a byte of room for each of its pages.
        let asked = unsafe { libc::mincore(at, length, present.as_mut_ptr()) };
        let error = std::io::Error::last_os_error();
        // SAFETY: exactly what was mapped above, and nothing points into it.
        unsafe { libc::munmap(at, length) };
        if asked != 0 {
            return Err(error);
        }
        pages += present.iter().filter(|page| **page & 1 == 1).count() as u64;
    }
    Ok(pages * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 300_000;

    /// A file on a disk; the folder for temporary files may lie in memory.
    fn written() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let path = folder.path().join("f");
        fs::write(&path, vec![7; BYTES]).expect("a file");
        (folder, path)
    }

    #[test]
    fn a_file_that_was_just_written_is_in_memory_and_after_cooling_is_not() {
        let (folder, path) = written();
        let seen = || resident(&File::open(&path).expect("the file"), 0..BYTES as u64).expect("mincore");
        assert!(seen() >= BYTES as u64);
        flush(&[folder.path().to_path_buf()]).expect("a file system");
        assert_eq!(forget(&path, false).expect("advice"), 0);
        assert_eq!(seen(), 0);
        fs::read(&path).expect("the file");
        let cooled = Cooler::default().cool_files(folder.path(), std::slice::from_ref(&path)).expect("cooling");
        assert!(cooled.cold && cooled.because.is_none() && !cooled.means.is_empty(), "{cooled:?}");
    }

    #[test]
    fn a_range_is_forgotten_and_what_lies_beside_it_is_not() {
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let path = folder.path().join("f");
        fs::write(&path, vec![7; 25 * MIB as usize + 5]).expect("a file");
        let seen = |range| resident(&File::open(&path).expect("the file"), range).expect("mincore");
        let end = 25 * MIB + 5;
        let forget = |range| Cooler::default().forget(folder.path(), &[(path.clone(), range)]).expect("advice");
        // Others may drop everything at any moment, and the kernel keep what it is writing; then it is looked at again.
        let is_so = |range: Range<u64>, beside: Range<u64>| {
            fs::read(&path).expect("the file");
            let was = forget(range.clone());
            was == [true] && seen(range) == 0 && seen(beside.clone()) == beside.end - beside.start
        };
        assert!((0..50).any(|_| is_so(8 * MIB..16 * MIB, 0..8 * MIB)), "in the middle");
        assert!((0..50).any(|_| is_so(24 * MIB..end, 16 * MIB..24 * MIB)), "at the end");
        assert_eq!(forget(24 * MIB..end), [false]);
    }

    #[test]
    fn what_lies_in_memory_for_good_is_never_called_cold() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("SKIPPED: there is no file system in memory here");
            return;
        };
        let path = folder.path().join("f");
        fs::write(&path, vec![7; BYTES]).expect("a file");
        let cooled = Cooler::default().cool_files(folder.path(), &[path]).expect("cooling");
        assert!(!cooled.cold && !cooled.names_cold && cooled.resident_bytes >= BYTES as u64, "{cooled:?}");
        assert!(cooled.because.expect("a reason").contains("still in memory"));
    }

    #[test]
    fn the_command_runs_on_each_machine_and_only_once_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let ran = |nodes: [&str; 2]| {
            let log = folder.path().join(nodes.concat());
            let cooler = Cooler { command: Some(format!("echo >> {}", log.display())) };
            std::thread::scope(|scope| {
                for (pair, node) in crate::pair::Pair::both().into_iter().zip(nodes) {
                    let cooler = &cooler;
                    scope.spawn(move || cooler.drop_on_all(&pair, node).expect("it works"));
                }
            });
            fs::read(log).expect("it ran").len()
        };
        assert_eq!((ran(["a", "a"]), ran(["a", "b"])), (1, 2));
    }

    #[test]
    fn a_command_that_fails_on_one_machine_is_heard_of_on_all() {
        let said = std::thread::scope(|scope| {
            let ranks = crate::pair::Pair::both().into_iter().zip([("a", "true"), ("b", "echo lost >&2; exit 3")]);
            let all: Vec<_> = ranks
                .map(|(pair, (node, command))| {
                    let cooler = Cooler { command: Some(command.into()) };
                    scope.spawn(move || cooler.drop_on_all(&pair, node).and_then(|()| ranks::Ranks::barrier(&pair)))
                })
                .collect();
            all.into_iter().map(|rank| rank.join().expect("it returns").expect_err("one failed")).collect::<Vec<_>>()
        });
        assert!(said.iter().all(|error| error.what.contains("lost")), "{said:?}");
    }

    #[test]
    fn what_is_mounted_below_the_folder_is_a_ground_of_its_own() {
        let files = ["/proc/uptime", "/proc/version", "/sys/kernel/uevent_seqnum"].map(PathBuf::from);
        let found = grounds(Path::new("/"), files.iter()).expect("they are there");
        assert_eq!(found, ["/", "/proc", "/sys/kernel"].map(PathBuf::from));
    }

    #[test]
    fn a_command_that_fails_is_an_error_with_what_it_said() {
        let cooler = Cooler { command: Some("echo no such cache >&2; exit 3".into()) };
        let error = cooler.cool_store().expect_err("the command fails");
        assert!(error.what.contains("no such cache") && error.what.contains('3'), "{error}");
        let cooler = Cooler { command: Some("true".into()) };
        assert_eq!(cooler.cool_store().expect("it works").means, ["command", "no cache"]);
    }
}
