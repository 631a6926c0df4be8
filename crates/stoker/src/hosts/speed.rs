//! `stoker hosts speed`: how fast a disk, or a mount, is just now. `stoker up` asks it of each host, and `stoker check` of
//! the disk of a cache.
//!
//! Bounded in bytes and in time; what it writes has no name, so that nothing is left however it ends.
//! Invariant: whatever is measured is bytes over time, on all hosts alike.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What is written to a disk and read again at most: a second of a good one is more than its memory takes unseen.
const DISK_BYTES: usize = 256 << 20;
const DISK_TIME: Duration = Duration::from_secs(1);

/// What is read through a mount at most.
const MOUNT_BYTES: u64 = 1 << 30;
const MOUNT_TIME: Duration = Duration::from_secs(2);

/// What one thread reads in turn: a stripe, so that it is one owner's.
const PIECE_BYTES: u64 = 16 << 20;

/// Streams at the same time.
const STREAMS: usize = 8;

/// Bytes of one read or write.
const STEP_BYTES: usize = 1 << 20;

/// Names that are looked at.
const NAMES_MAX: usize = 100_000;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The folder of a disk, or of a mount
    folder: PathBuf,
    /// Read files of a mount: the pieces of this part of so many, as 2/8
    #[arg(long, value_parser = part)]
    part: Option<(usize, usize)>,
    /// No more of them than this
    #[arg(long, default_value_t = usize::MAX)]
    pieces: usize,
}

fn part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(one, all)| Some((one.parse().ok()?, all.parse().ok()?)));
    numbers.filter(|(one, all)| one < all).ok_or_else(|| "write it as 0/8".into())
}

/// Bytes in a time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Moved {
    pub bytes: u64,
    pub seconds: f64,
}

impl Moved {
    pub fn bytes_per_second(self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// What was measured, as a line of JSON.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub written: Moved,
    pub read: Moved,
    /// Pieces of a mount that were read to their end.
    pub pieces: usize,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let measured = match args.part {
        None => disk(&args.folder, DISK_BYTES)
            .with_context(|| format!("measuring the disk of {}", args.folder.display()))?,
        Some(part) => mount(&args.folder, part, args.pieces)?,
    };
    say!("{}", serde_json::to_string(&measured)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Write to a disk and read that again, past what memory keeps of it: so many bytes at most, and [`DISK_BYTES`].
pub fn disk(folder: &Path, most: usize) -> std::io::Result<Measured> {
    let mut file = without_name(folder)?;
    let (mut written, step, most) = (0, noise(), most.min(DISK_BYTES));
    let began = Instant::now();
    while written < most && began.elapsed() < DISK_TIME {
        file.write_all(&step)?;
        written += step.len();
    }
    file.sync_data()?;
    let written = Moved { bytes: written as u64, seconds: began.elapsed().as_secs_f64() };
    // Memory of its own (tmpfs) can't be forgotten, and is as fast as that.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    file.seek(SeekFrom::Start(0))?;
    let (began, mut bytes, mut buffer) = (Instant::now(), 0, step);
    while bytes < written.bytes && began.elapsed() < DISK_TIME {
        match file.read(&mut buffer)? {
            0 => break,
            count => bytes += count as u64,
        }
    }
    let read = Moved { bytes, seconds: began.elapsed().as_secs_f64() };
    Ok(Measured { written, read, pieces: 0 })
}

/// A file that is gone when it is closed.
fn without_name(folder: &Path) -> std::io::Result<File> {
    let path = folder.join(format!(".speed.{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Bytes that no disk makes smaller.
fn noise() -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    };
    (0..STEP_BYTES / 8).flat_map(|_| next()).collect()
}

/// Read each so-manieth piece of what is mounted. Pieces of a host are the same each time, and no two hosts have one in common.
fn mount(folder: &Path, (part, of): (usize, usize), most: usize) -> anyhow::Result<Measured> {
    let mut all = Vec::new();
    pieces(folder, MOUNT_BYTES.saturating_mul(of as u64), &mut 0, &mut all)
        .with_context(|| format!("reading the names in {}", folder.display()))?;
    let mine: Vec<_> =
        all.iter().enumerate().filter(|(at, _)| at % of == part).map(|(_, piece)| piece).take(most).collect();
    let (next, whole, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
    let (failed, began) = (Mutex::new(None), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..STREAMS {
            scope.spawn(|| {
                let mut buffer = vec![0; STEP_BYTES];
                while let Some(piece) = mine.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match piece.read(&mut buffer, &bytes, began) {
                        Ok(true) => whole.fetch_add(1, Ordering::Relaxed),
                        Ok(false) => return,
                        Err(error) => {
                            *failed.lock().expect("nobody fails with it") = Some((piece.path.clone(), error));
                            return;
                        }
                    };
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    if let Some((path, error)) = failed.into_inner().expect("nobody fails with it") {
        anyhow::bail!("{} can't be read: {error}", path.display());
    }
    Ok(Measured {
        read: Moved { bytes: bytes.into_inner(), seconds },
        pieces: whole.into_inner(),
        ..Measured::default()
    })
}

struct Piece {
    path: PathBuf,
    from: u64,
    bytes: u64,
}

impl Piece {
    /// Whether it was read to its end before the time was over.
    fn read(&self, buffer: &mut [u8], sum: &AtomicU64, began: Instant) -> std::io::Result<bool> {
        let (file, mut done) = (File::open(&self.path)?, 0);
        while done < self.bytes {
            if began.elapsed() >= MOUNT_TIME {
                return Ok(false);
            }
            let most = usize::try_from(self.bytes - done).unwrap_or(usize::MAX).min(buffer.len());
            let count = file.read_at(&mut buffer[..most], self.from + done)? as u64;
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            sum.fetch_add(count, Ordering::Relaxed);
            done += count;
        }
        Ok(true)
    }
}

/// Pieces of the files below a folder, in the order of their names, until there are enough.
fn pieces(folder: &Path, most: u64, names: &mut usize, all: &mut Vec<Piece>) -> std::io::Result<u64> {
    let mut entries = std::fs::read_dir(folder)?.take(NAMES_MAX).collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut sum = 0;
    for entry in entries {
        *names += 1;
        if sum >= most || *names > NAMES_MAX {
            break;
        }
        let found = entry.metadata()?;
        if found.is_dir() {
            sum += pieces(&entry.path(), most - sum, names, all)?;
        } else if found.is_file() {
            let size = found.len().min(most - sum);
            let cut = (0..size).step_by(PIECE_BYTES as usize);
            all.extend(cut.map(|from| Piece { path: entry.path(), from, bytes: PIECE_BYTES.min(size - from) }));
            sum += size;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_mount_are_all_of_it_and_none_is_read_twice() {
        let scratch = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(scratch.path().join("deep")).expect("a folder");
        let big = File::create(scratch.path().join("deep/big")).expect("a file");
        big.set_len(2 * PIECE_BYTES + 7).expect("a length");
        for name in 0..5 {
            std::fs::write(scratch.path().join(format!("{name}")), vec![7; 100 + name]).expect("a file");
        }
        let read: Vec<_> =
            (0..3).map(|part| mount(scratch.path(), (part, 3), usize::MAX).expect("a measure")).collect();
        assert_eq!(read.iter().map(|one| one.read.bytes).sum::<u64>(), 2 * PIECE_BYTES + 7 + 510);
        assert_eq!(read.iter().map(|one| one.pieces).collect::<Vec<_>>(), [3, 3, 2]);
        assert_eq!(mount(scratch.path(), (0, 3), 1).expect("a measure").pieces, 1);
        assert!(mount(&scratch.path().join("none"), (0, 3), 1).is_err());
    }

    #[test]
    fn a_disk_is_measured_and_nothing_is_left_on_it() {
        let scratch = tempfile::tempdir().expect("a folder");
        let measured = disk(scratch.path(), 3 << 20).expect("a measure");
        assert!((1..=3 << 20).contains(&measured.written.bytes) && measured.read.bytes > 0);
        assert_eq!(std::fs::read_dir(scratch.path()).expect("a folder").count(), 0);
        assert_eq!([part("1/2"), part("2/2"), part("x")].map(|part| part.ok()), [Some((1, 2)), None, None]);
    }
}
