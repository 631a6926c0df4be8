//! The data that every target serves: which files there are and which bytes they hold.
//!
//! Both are pure functions of the scale, so the generator, the reader and the judge agree without
//! a list on disk. Every 4 KiB of a file begin with a tag (which file, which offset): a block that
//! is stale, misplaced or of another file is seen by looking at sixteen bytes of it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::interrupt;

/// Distance between two tags: the page size, so no page can be wrong unnoticed when all are checked.
const TAG_EVERY: usize = 4096;
/// File number and offset, eight bytes each.
const TAG_BYTES: usize = 16;
/// Files are written in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;
/// Changing the content means changing this, so that old folders are made anew.
const SEED: u64 = 0x5706_4e52_0001;
const DIRECTORIES: u32 = 100;

/// How much data: `full` gives figures, `quick` only shows that everything works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// 10,000 files of 75-125 KB, 8 of 140 MB, one of 1 GiB.
    Full,
    /// 1,000 files of 75-125 KB, 2 of 16 MB, one of 64 MiB.
    Quick,
}

/// One file: its name below the root, its number (part of every tag) and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub number: u32,
    pub name: String,
    pub size: u64,
}

impl Scale {
    pub fn name(self) -> &'static str {
        match self {
            Scale::Full => "full",
            Scale::Quick => "quick",
        }
    }

    /// The many small files, in the order of their names.
    pub fn small(self) -> Vec<Member> {
        let count = match self {
            Scale::Full => 10_000,
            Scale::Quick => 1_000,
        };
        let each = count / DIRECTORIES;
        (0..count)
            .map(|number| Member {
                number,
                name: format!("small/d{:03}/{number:08}.bin", number / each),
                size: 75_000 + mixed(SEED, u64::from(number)) % 50_001,
            })
            .collect()
    }

    /// The large files that are read in sequence.
    pub fn large(self) -> Vec<Member> {
        let (count, size) = match self {
            Scale::Full => (8, 140_000_000),
            Scale::Quick => (2, 16_000_000),
        };
        (0..count)
            .map(|index| Member { number: 1_000_000 + index, name: format!("large/{index:02}.bin"), size })
            .collect()
    }

    /// The one file that is read at random.
    pub fn big(self) -> Member {
        Member {
            number: 2_000_000,
            name: "big/00.bin".to_owned(),
            size: match self {
                Scale::Full => 1 << 30,
                Scale::Quick => 64 << 20,
            },
        }
    }

    pub fn members(self) -> Vec<Member> {
        let mut members = self.small();
        members.extend(self.large());
        members.push(self.big());
        members
    }

    pub fn bytes(self) -> u64 {
        self.members().iter().map(|member| member.size).sum()
    }

    /// Directories below `small/`, itself not counted.
    pub fn directories(self) -> u32 {
        DIRECTORIES
    }

    /// Writes the whole set below `root`, unless a complete one of the same content is there.
    pub fn generate(self, root: &Path) -> Result<()> {
        // Beside the folder, not in it: the folder is served as it is.
        let mark = root.with_extension("complete");
        let stamp = format!("{} {SEED:x}", self.name());
        if fs::read_to_string(&mark).is_ok_and(|found| found == stamp) {
            return Ok(());
        }
        if root.exists() {
            fs::remove_dir_all(root).with_context(|| format!("clearing {}", root.display()))?;
        }
        let members = self.members();
        for member in &members {
            let path = root.join(&member.name);
            let parent = path.parent().expect("every member lies in a directory");
            fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        }
        write_all(&members, root)?;
        fs::write(&mark, stamp).with_context(|| format!("writing {}", mark.display()))?;
        Ok(())
    }
}

impl Member {
    /// What an S3 server shall call the version. The suffix of a multipart upload keeps clients
    /// from taking it for the MD5 of the content.
    pub fn etag(&self) -> String {
        let half = mixed(SEED, u64::from(self.number));
        format!("{half:016x}{:016x}-1", mixed(half, 1))
    }

    /// How many of the looked-at tags in `bytes`, read at `start`, are not those of this file.
    /// Looks at the first, the middle and the last: three cache lines, whatever the length.
    pub fn wrong_tags(&self, bytes: &[u8], start: u64) -> u64 {
        let first = (start.next_multiple_of(TAG_EVERY as u64) - start) as usize;
        if bytes.len() < first + TAG_BYTES {
            return 0;
        }
        let last = (bytes.len() - TAG_BYTES - first) / TAG_EVERY;
        [0, last / 2, last]
            .into_iter()
            .map(|index| first + index * TAG_EVERY)
            .filter(|&at| bytes[at..at + TAG_BYTES] != self.tag(start + at as u64))
            .count() as u64
    }

    fn tag(&self, offset: u64) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&mixed(SEED, u64::from(self.number)).to_le_bytes());
        tag[8..].copy_from_slice(&offset.to_le_bytes());
        tag
    }

    /// Fills `bytes` with what this file holds from `start`, which lies on a tag.
    fn fill(&self, bytes: &mut [u8], start: u64) {
        let mut state = mixed(SEED ^ u64::from(self.number), start);
        for word in bytes.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&finish(state).to_le_bytes()[..word.len()]);
        }
        for at in (0..bytes.len()).step_by(TAG_EVERY) {
            let end = (at + TAG_BYTES).min(bytes.len());
            bytes[at..end].copy_from_slice(&self.tag(start + at as u64)[..end - at]);
        }
    }

    fn write(&self, root: &Path) -> Result<()> {
        let path = root.join(&self.name);
        let place = || format!("writing {}", path.display());
        let mut file = File::create(&path).with_context(place)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < self.size {
            let length = (self.size - at).min(PIECE_BYTES as u64) as usize;
            self.fill(&mut piece[..length], at);
            file.write_all(&piece[..length]).with_context(place)?;
            at += length as u64;
        }
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        // For a server over a plain folder that keeps its versions there; where the file system
        // has no attributes the server makes up its own.
        let _ = rustix::fs::setxattr(&path, "user.etag", self.etag().as_bytes(), rustix::fs::XattrFlags::empty());
        Ok(())
    }
}

/// An empty folder, whatever lay there.
pub fn wipe(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("wiping {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))
}

fn write_all(members: &[Member], root: &Path) -> Result<()> {
    // Two halves by bytes: the small files and the first large ones; the rest.
    let middle = members.len() - members.len().min(5);
    let write = |part: &[Member]| {
        part.iter().try_for_each(|member| {
            interrupt::check()?;
            member.write(root)
        })
    };
    thread::scope(|scope| {
        let front = scope.spawn(|| write(&members[..middle]));
        write(&members[middle..])?;
        front.join().expect("the writing thread does not panic")
    })
}

/// All order and chance comes from here: a number from a seed and a place, without state.
pub fn mixed(seed: u64, place: u64) -> u64 {
    finish(finish(seed).wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Puts `items` in an order that depends on the seed alone.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    for last in (1..items.len()).rev() {
        let other = mixed(seed, last as u64) % (last as u64 + 1);
        items.swap(last, other as usize);
    }
}

/// The finalizer of splitmix64.
fn finish(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_set_is_what_the_tables_say() {
        let small = Scale::Full.small();
        assert_eq!(small.len(), 10_000);
        assert!(small.iter().all(|member| (75_000..=125_000).contains(&member.size)));
        let total: u64 = small.iter().map(|member| member.size).sum();
        assert!((990_000_000..1_010_000_000).contains(&total), "{total}");
        assert_eq!(small[9_999].name, "small/d099/00009999.bin");
    }

    #[test]
    fn a_tag_is_wrong_in_another_file_or_at_another_place() {
        let members = Scale::Quick.small();
        let mut bytes = vec![0; 75_000];
        members[3].fill(&mut bytes, 0);
        assert_eq!(members[3].wrong_tags(&bytes, 0), 0);
        assert_eq!(members[4].wrong_tags(&bytes, 0), 3);
        assert_eq!(members[3].wrong_tags(&bytes[4096..], 4096), 0);
        assert_eq!(members[3].wrong_tags(&bytes[100..], 100), 0);
        assert_eq!(members[3].wrong_tags(&bytes, 4096), 3);
        bytes[73_728] ^= 1;
        assert_eq!(members[3].wrong_tags(&bytes, 0), 1);
    }

    #[test]
    fn a_shuffle_is_a_permutation_given_by_its_seed() {
        let mut once: Vec<u32> = (0..1000).collect();
        let mut again = once.clone();
        shuffle(&mut once, 7);
        shuffle(&mut again, 7);
        assert_eq!(once, again);
        again.sort_unstable();
        assert!(once != again && again == (0..1000).collect::<Vec<_>>());
    }
}
