//! What happens in a history: its scene and its steps, drawn from a seed, as lines that people can read.
//!
//! A step picks by numbers that are taken modulo what there is when its turn comes, and brings its own seed for chance
//! within it. So any steps can be left out of a history, and the others still make sense.

use super::chance::Chance;
use super::truth::{LARGE_SIZES, Mood, SIZES, Tells};
use super::weather::Trouble;
use block::SMALL;
use std::fmt;

/// Histories that can pay for an object of several stripes, one in so many.
const LARGE_ONE_IN: u64 = 50;

/// Bytes and files of a scene in which nothing has to give way.
const AMPLE_BYTES: u64 = 1 << 30;
const AMPLE_FILES: u64 = 1 << 20;

/// Numbers that something is picked by.
const PICKS: u64 = 5_040;

/// Where a history plays.
#[derive(Clone, Debug)]
pub struct Scene {
    pub sizes: Vec<u64>,
    pub tells: Vec<Tells>,
    /// What the cache may hold.
    pub bytes_max: u64,
    pub files_max: u64,
    pub free_bytes_min: u64,
    /// What the file system holds.
    pub disk_bytes: u64,
    pub disk_files: u64,
    pub has_short_calls: bool,
}

impl Scene {
    /// Whether there is room for everything.
    pub fn is_ample(&self) -> bool {
        self.bytes_max == AMPLE_BYTES
            && self.files_max == AMPLE_FILES
            && self.disk_bytes == 2 * AMPLE_BYTES
            && self.disk_files == AMPLE_FILES
    }

    fn draw(chance: &mut Chance) -> Scene {
        let count = 1 + chance.below(5) as usize;
        let mut sizes: Vec<u64> = (0..count).map(|_| chance.pick(&SIZES)).collect();
        if chance.one_in(LARGE_ONE_IN) {
            sizes[0] = chance.pick(&LARGE_SIZES);
        }
        let tells = sizes.iter().map(|_| chance.pick(&[Tells::Crc64, Tells::Crc64, Tells::Crc32C, Tells::Nothing]));
        let tells = tells.collect();
        let total: u64 = sizes.iter().sum();
        let bytes_max = if chance.one_in(2) { AMPLE_BYTES } else { chance.below(2 * total + SMALL) };
        let files_max = if chance.one_in(4) { 1 + chance.below(4) } else { AMPLE_FILES };
        let free_bytes_min = if chance.one_in(2) { 0 } else { chance.below(SMALL) };
        let is_tight = chance.one_in(4);
        let disk_bytes = if is_tight { (SMALL >> 2) + chance.below(2 * total + SMALL) } else { 2 * AMPLE_BYTES };
        let disk_files = if chance.one_in(8) { 10 + chance.below(8) } else { AMPLE_FILES };
        let has_short_calls = chance.one_in(4);
        Scene { sizes, tells, bytes_max, files_max, free_bytes_min, disk_bytes, disk_files, has_short_calls }
    }
}

/// How a program ends, and what becomes of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order.
    Closed,
    /// Without a word to the disk, but with everything that it does when it lets go of things.
    Dropped,
    Killed,
    /// The machine goes down: one part in so many of what was not written back is there nonetheless.
    PowerLost {
        kept_one_in: u64,
    },
    /// The file system goes away and comes back while the machine runs.
    Remounted {
        kept_one_in: u64,
    },
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A reader asks for blocks and takes some.
    Read {
        object: u64,
        from: u64,
        blocks: u64,
        takes: u64,
    },
    /// Something under way goes on.
    Go {
        task: u64,
        polls: u64,
    },
    /// A reader goes away.
    Abandon {
        task: u64,
    },
    Find {
        object: u64,
    },
    LetGo {
        whole: u64,
    },
    Check {
        object: u64,
    },
    Verify {
        object: u64,
    },
    Settle {
        object: u64,
    },
    /// A key has another version; the old one is released.
    Refresh {
        object: u64,
    },
    Ask {
        object: u64,
    },
    /// The index is rewritten, as it is when most of it means nothing any more: all at once, or other steps come in
    /// between.
    Compact {
        polls: u64,
    },
    /// The next program may keep a share of this.
    Limit {
        share: u64,
    },
    Wait {
        seconds: u64,
    },
    End(End),
    /// The program will end in the middle of what it does, at one of its next calls.
    EndSoon {
        calls: u64,
        end: End,
    },
    Trouble {
        trouble: Trouble,
        one_in: u64,
    },
    /// Calls fail while the next program starts.
    TroubleAtStart {
        trouble: Trouble,
        one_in: u64,
    },
    Fair,
    Mood(Mood),
    /// Others leave so much of the file system free.
    Others {
        free_bytes: u64,
    },
    WriteBack {
        one_in: u64,
    },
    /// A bit flips in a file.
    Rot {
        file: u64,
        at: u64,
    },
    /// Somebody takes away a file, or a folder.
    TakeAway {
        what: u64,
    },
    /// Somebody puts a file among the others.
    Stray {
        what: u64,
    },
}

#[derive(Clone, Debug)]
pub struct Step {
    pub act: Act,
    pub seed: u64,
}

/// The scene and the steps of a seed.
pub fn draw(seed: u64) -> (Scene, Vec<Step>) {
    let mut chance = Chance::of(seed);
    let scene = Scene::draw(&mut chance);
    let temper = Temper::draw(&mut chance);
    let count = 8 + chance.below(40);
    let steps = (0..count).map(|_| Step { act: temper.act(&mut chance), seed: chance.number() });
    (scene, steps.collect())
}

/// What a history is about: each seed leaves some kinds of trouble out, so that the others are met alone.
struct Temper {
    troubles: Vec<Trouble>,
    moods: Vec<Mood>,
    ends: Vec<End>,
    has_rot: bool,
    has_strangers: bool,
    has_others: bool,
    has_limits: bool,
}

impl Temper {
    fn draw(chance: &mut Chance) -> Temper {
        use End::{Closed, Dropped, Killed, PowerLost, Remounted};
        let all = [
            Trouble::Descriptors,
            Trouble::Memory,
            Trouble::Interrupted,
            Trouble::Space,
            Trouble::Broken,
            Trouble::BrokenForWriting,
        ];
        let troubles = match chance.below(4) {
            0 | 1 => vec![],
            2 => all[..3].to_vec(),
            _ => all.to_vec(),
        };
        let still = Mood::default();
        let moods = match chance.below(4) {
            0 => vec![still],
            1 => vec![Mood { waits: 3, ..still }],
            2 => vec![Mood { waits: 3, fails: 6, lies: 0 }, still],
            _ => vec![Mood { waits: 3, fails: 0, lies: 5 }, Mood { waits: 2, fails: 9, lies: 9 }, still],
        };
        let kept_one_in = chance.pick(&[1, 2, 2, 3, u64::MAX]);
        let (lost, away) = (PowerLost { kept_one_in }, Remounted { kept_one_in });
        let ends = match chance.below(4) {
            0 => vec![Closed, Dropped, Killed],
            1 => vec![lost, lost, Killed],
            2 => vec![away, Closed, Killed],
            _ => vec![Closed, Dropped, Killed, lost, lost, away],
        };
        let (has_rot, has_strangers) = (chance.one_in(4), chance.one_in(8));
        let (has_others, has_limits) = (chance.one_in(4), chance.one_in(8));
        Temper { troubles, moods, ends, has_rot, has_strangers, has_others, has_limits }
    }

    fn act(&self, chance: &mut Chance) -> Act {
        use End::{Closed, Dropped, Killed};
        let mut pick = || chance.below(PICKS);
        let (object, other) = (pick(), pick());
        match chance.below(100) {
            0..30 => {
                let whole = chance.one_in(3);
                let blocks = if whole { 64 } else { 1 + chance.below(6) };
                let from = if whole || chance.one_in(4) { 0 } else { other };
                let takes = if chance.one_in(3) { chance.below(5) } else { 64 };
                Act::Read { object, from, blocks, takes }
            }
            30..36 => Act::Go { task: object, polls: 1 + other % 8 },
            36..40 => Act::Compact { polls: 1 + other % 2 },
            40..43 => Act::Abandon { task: object },
            43..51 => Act::Find { object },
            51..54 => Act::LetGo { whole: object },
            54..59 => Act::Check { object },
            59..62 => Act::Verify { object },
            62..67 => Act::Settle { object },
            67..69 => Act::Refresh { object },
            69..70 => Act::Ask { object },
            70..72 => Act::Wait { seconds: other % 15 },
            72..78 => Act::End(chance.pick(&self.ends)),
            78..81 => match chance.pick(&self.ends) {
                Closed | Dropped => Act::EndSoon { calls: other % 30, end: Killed },
                end => Act::EndSoon { calls: other % 30, end },
            },
            81..85 if !self.troubles.is_empty() => {
                let (trouble, one_in) = (chance.pick(&self.troubles), 1 + other % 4);
                match chance.one_in(3) {
                    true => Act::TroubleAtStart { trouble, one_in },
                    false => Act::Trouble { trouble, one_in },
                }
            }
            85..88 => Act::Fair,
            88..90 => Act::Mood(chance.pick(&self.moods)),
            90..92 if self.has_others => Act::Others { free_bytes: chance.below(4 * SMALL) },
            92..94 => Act::WriteBack { one_in: chance.pick(&[1, 1, 1, 2, 3, 4]) },
            94..96 if self.has_rot => Act::Rot { file: object, at: chance.number() >> 8 },
            96..98 if self.has_strangers => Act::TakeAway { what: object },
            98..99 if self.has_strangers => Act::Stray { what: object },
            99 if self.has_limits => Act::Limit { share: 1 + other % 4 },
            _ => Act::Go { task: object, polls: 2 },
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "objects of {:?} bytes, described by {:?}; ", self.sizes, self.tells)?;
        match self.is_ample() {
            true => write!(out, "room for everything")?,
            false => write!(
                out,
                "the cache may hold {} bytes and {} files, leaves {} bytes free, on a disk of {} bytes and {} names",
                self.bytes_max, self.files_max, self.free_bytes_min, self.disk_bytes, self.disk_files
            )?,
        }
        if self.has_short_calls { write!(out, "; reads and writes are cut short") } else { Ok(()) }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Read { takes, .. } => write!(out, "a reader asks for blocks and takes {takes} at most:"),
            Act::Go { polls, .. } => write!(out, "something under way is asked {polls} times"),
            Act::Abandon { .. } => write!(out, "something under way is given up"),
            Act::Find { .. } => write!(out, "an object is opened:"),
            Act::LetGo { .. } => write!(out, "a file is closed"),
            Act::Check { .. } => write!(out, "a check begins:"),
            Act::Verify { .. } => write!(out, "a verification begins:"),
            Act::Settle { .. } => write!(out, "somebody waits until it is settled:"),
            Act::Refresh { .. } => write!(out, "a key gets a new version, the old one is released:"),
            Act::Ask { .. } => write!(out, "somebody asks for room and blocks:"),
            Act::Compact { polls: 1 } => write!(out, "a compaction of the index begins"),
            Act::Compact { .. } => write!(out, "the index is compacted"),
            Act::Limit { share } => write!(out, "the next program may keep 1/{share} of everything"),
            Act::Wait { seconds } => write!(out, "{seconds} seconds pass"),
            Act::End(end) => write!(out, "the program ends ({end:?}), and the next one starts"),
            Act::EndSoon { calls, end } => {
                write!(out, "the program will end after {calls} calls of the disk ({end:?})")
            }
            Act::Trouble { trouble, one_in } => write!(out, "one call in {one_in} fails: {trouble:?}"),
            Act::TroubleAtStart { trouble, one_in } => {
                write!(out, "one call in {one_in} will fail while the next program starts: {trouble:?}")
            }
            Act::Fair => write!(out, "no call fails"),
            Act::Mood(mood) => write!(out, "one answer of the store in so many (0: none): {mood:?}"),
            Act::Others { free_bytes } => write!(out, "others leave {free_bytes} bytes of the file system"),
            Act::WriteBack { one_in } => write!(out, "the kernel writes one dirty page in {one_in} to the disk"),
            Act::Rot { .. } => write!(out, "a bit flips on the disk:"),
            Act::TakeAway { .. } => write!(out, "somebody removes"),
            Act::Stray { .. } => write!(out, "somebody puts a file among those of the cache"),
        }
    }
}
