//! Bytes that differ everywhere, and comparing folders byte for byte.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a seed; every eight of them differ from all others.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&chance.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Numbers by chance from one seed (SplitMix64).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A seed that differs from run to run, printed so that a failure can be repeated.
    pub fn printed(what: &str) -> Chance {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(now.as_nanos() as u64);
        eprintln!("{what}: repeat with SEED={seed}");
        Chance(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for end in (1..things.len()).rev() {
            things.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

/// Paths of all files below a folder.
pub fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                folders.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(folder).expect("below the folder").to_owned());
            }
        }
    }
    found
}

/// Panics at the first difference, without printing megabytes.
pub fn same(got: &[u8], expected: &[u8], what: &dyn std::fmt::Display) {
    assert_eq!(got.len(), expected.len(), "length of {what}");
    if got != expected {
        let at = got.iter().zip(expected).position(|(got, expected)| got != expected).expect("they differ");
        panic!("{what} differs from byte {at} on: {:02x} instead of {:02x}", got[at], expected[at]);
    }
}

/// Every name and every byte below two folders, by several threads.
pub fn compare(got: &Path, expected: &Path) {
    let names = files(expected);
    assert_eq!(files(got), names, "names");
    let names: Vec<PathBuf> = names.into_iter().collect();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let names = &names;
            scope.spawn(move || {
                for name in names.iter().skip(part).step_by(4) {
                    let read = fs::read(got.join(name)).unwrap_or_else(|error| panic!("{}: {error}", name.display()));
                    same(&read, &fs::read(expected.join(name)).expect("the original"), &name.display());
                }
            });
        }
    });
}

/// What a read gives, if it does so before long: who waits for a process that is stopped can't be ended by a test.
pub fn in_time(file: &File, at: usize, bytes: usize) -> Option<Vec<u8>> {
    let (file, (sender, receiver)) = (file.try_clone().expect("a descriptor"), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let mut read = vec![0; bytes];
        let _ = sender.send(file.read_exact_at(&mut read, at as u64).map(|()| read));
    });
    receiver.recv_timeout(super::LONG / 2).ok()?.ok()
}
