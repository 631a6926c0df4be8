//! Whether what is written to can take the whole state, before a byte of it is written.
//!
//! It asks no file system itself. Invariant: all ranks refuse, or none does.

use std::collections::BTreeMap;

use block::{Error, Result};
use ranks::Ranks;
use serde::{Deserialize, Serialize};

/// What stays free besides, and of what is written this part: the file system's own books, and what others write meanwhile.
const SPARE_BYTES: u64 = 64 << 20;
const SPARE_PART: u64 = 50;

/// What a file system of one rank has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Ranks that write to one file system give it one name.
    pub system: String,
    pub free_bytes: u64,
    pub folder: String,
}

/// What a rank tells of itself.
#[derive(Serialize, Deserialize)]
struct Own {
    room: Option<Room>,
    bytes: u64,
}

/// Fail on every rank if what all of them write doesn't fit. Where nobody knows what is left, as of stores, it may fit.
pub fn check(ranks: &dyn Ranks, room: Option<&Room>, bytes: u64) -> Result<()> {
    let all = crate::gathered(ranks, &Own { room: room.cloned(), bytes })?;
    let Some(Lack { folder, needed, free, fits }) = crate::told(ranks, &lacking(&all))? else { return Ok(()) };
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let what =
        format!("a checkpoint needs {:.1} GB with what has to stay free, and {:.1} GB are left", gb(needed), gb(free));
    let less = format!("; or write less: --set checkpoint-bytes={fits}");
    let less = if fits > 0 { less } else { String::new() };
    Err(Error::full(what, folder).hint(format!("free some space, or name a folder on another file system{less}")))
}

#[derive(Debug, Serialize, Deserialize)]
struct Lack {
    folder: String,
    needed: u64,
    free: u64,
    /// A whole state that would fit.
    fits: u64,
}

/// The file system that lacks the most, with a part of the whole state.
fn lacking(told: &[Own]) -> Option<Lack> {
    let whole: u64 = told.iter().map(|own| own.bytes).sum();
    let mut systems: BTreeMap<&str, (&Room, u64)> = BTreeMap::new();
    for (room, bytes) in told.iter().filter_map(|own| Some((own.room.as_ref()?, own.bytes))) {
        let (least, sum) = systems.entry(&room.system).or_insert((room, 0));
        // Free space is asked for at slightly different moments.
        *least = if room.free_bytes < least.free_bytes { room } else { least };
        *sum += bytes;
    }
    let lacks = systems.into_values().map(|(room, bytes)| {
        let room_for = room.free_bytes.saturating_sub(SPARE_BYTES) / (SPARE_PART + 1) * SPARE_PART;
        Lack {
            folder: room.folder.clone(),
            needed: bytes + bytes / SPARE_PART + SPARE_BYTES,
            free: room.free_bytes,
            fits: (room_for as f64 * whole as f64 / bytes.max(1) as f64) as u64,
        }
    });
    lacks.filter(|one| one.needed > one.free).max_by_key(|one| one.needed - one.free)
}
