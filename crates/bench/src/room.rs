//! Whether what is written to can take all of it, before a byte of it is written.
//!
//! It asks no file system itself. Invariant: all ranks refuse, or none does.

use std::collections::BTreeMap;

use block::{Error, Result};
use ranks::Ranks;
use serde::{Deserialize, Serialize};

/// What stays free besides, and of what is written this part: the file system's own books, and what others write meanwhile.
const SPARE_BYTES: u64 = 64 << 20;
const SPARE_PART: u64 = 50;
/// Of a small file system, this part of what is free.
const SPARE_OF_FREE: u64 = 10;

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

/// What one rank may write at a time where it asks for so much, or else for this part of what is free but no more than
/// `most`. The same at all ranks; all fail together where what was asked for doesn't fit.
pub fn share(ranks: &dyn Ranks, room: Option<&Room>, asked: Option<u64>, part: u64, most: u64) -> Result<u64> {
    let own = Own { room: room.cloned(), bytes: asked.unwrap_or(0) };
    let told = crate::gathered(ranks, &own)?;
    let verdict = crate::told(ranks, &shared(&told, part, most))?;
    let Some(Share { folder, free, each, default }) = verdict else { return Ok(asked.unwrap_or(most)) };
    match asked {
        None => Ok(default),
        Some(asked) if asked <= each => Ok(asked),
        Some(asked) => {
            let what = format!(
                "{asked} bytes of each rank don't fit with what has to stay free, and {:.1} GB are left",
                free as f64 / 1e9
            );
            Err(Error::full(what, folder).hint(format!(
                "free some space, name a folder on another file system, or write less at a time: up to {each} bytes"
            )))
        }
    }
}

/// What a rank may write where there is the least room for one.
#[derive(Debug, Serialize, Deserialize)]
struct Share {
    folder: String,
    free: u64,
    /// Without what has to stay free.
    each: u64,
    /// Where nothing was asked for.
    default: u64,
}

fn shared(told: &[Own], part: u64, most: u64) -> Option<Share> {
    let systems = systems(told).into_values().map(|(room, _, ranks)| {
        let each = fitting(room.free_bytes) / ranks;
        Share { folder: room.folder.clone(), free: room.free_bytes, each, default: most.min(each / part) }
    });
    systems.min_by_key(|one| one.each)
}

/// Each file system where it has the least free space, with what all ranks write to it, and how many of them.
fn systems(told: &[Own]) -> BTreeMap<&str, (&Room, u64, u64)> {
    let mut systems: BTreeMap<&str, (&Room, u64, u64)> = BTreeMap::new();
    for (room, bytes) in told.iter().filter_map(|own| Some((own.room.as_ref()?, own.bytes))) {
        let (least, sum, ranks) = systems.entry(&room.system).or_insert((room, 0, 0));
        // Free space is asked for at slightly different moments.
        *least = if room.free_bytes < least.free_bytes { room } else { least };
        (*sum, *ranks) = (sum.saturating_add(bytes), *ranks + 1);
    }
    systems
}

/// What stays free of so much, whatever is written.
fn spare(free_bytes: u64) -> u64 {
    SPARE_BYTES.min(free_bytes / SPARE_OF_FREE)
}

/// What may be written where so much is free.
fn fitting(free_bytes: u64) -> u64 {
    (free_bytes - spare(free_bytes)) / (SPARE_PART + 1) * SPARE_PART
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
    let whole = told.iter().map(|own| own.bytes).fold(0, u64::saturating_add);
    let lacks = systems(told).into_values().map(|(room, bytes, _)| {
        let room_for = fitting(room.free_bytes);
        Lack {
            folder: room.folder.clone(),
            needed: bytes.saturating_add(bytes / SPARE_PART).saturating_add(spare(room.free_bytes)),
            free: room.free_bytes,
            fits: (room_for as f64 * whole as f64 / bytes.max(1) as f64) as u64,
        }
    });
    lacks.filter(|one| one.needed > one.free).max_by_key(|one| one.needed - one.free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(system: &str, free_bytes: u64) -> Own {
        Own { room: Some(Room { system: system.into(), free_bytes, folder: "/data".into() }), bytes: 0 }
    }

    #[test]
    fn ranks_on_one_file_system_share_what_is_free() {
        let free = 10 * SPARE_BYTES;
        let told = |systems: [&str; 2]| shared(&systems.map(|system| own(system, free)), 2, u64::MAX).unwrap();
        let (one, two) = (told(["nfs", "nfs"]), told(["disk of a", "disk of b"]));
        assert_eq!((one.each, one.default), (fitting(free) / 2, fitting(free) / 4));
        assert_eq!((two.each, two.default), (fitting(free), fitting(free) / 2));
        assert!((0.85..0.9).contains(&(fitting(free) as f64 / free as f64)), "the rest stays free");
        let least = shared(&[own("disk of a", free), own("disk of b", 32 << 20)], 2, 7).unwrap();
        assert_eq!((least.each, least.default), (fitting(32 << 20), 7), "a small one too has room");
        assert!(shared(&[Own { room: None, bytes: 5 }], 2, 7).is_none(), "nobody knows");
    }

    #[test]
    fn what_is_asked_for_and_does_not_fit_is_refused_at_all_ranks() {
        let room = own("disk", 51 * 1000 * 10 / 9).room;
        let share = |asked, part| share(&ranks::Alone, room.as_ref(), asked, part, 1 << 40);
        assert_eq!(share(Some(50_000), 2).unwrap(), 50_000);
        assert_eq!(share(None, 2).unwrap(), 25_000);
        assert_eq!(share(None, 1).unwrap(), 50_000, "some stays free although all was asked for");
        let error = share(Some(1 << 40), 2).unwrap_err();
        assert!(error.kind == block::Kind::Full && error.hint.contains("50000 bytes"), "{error}");
    }
}
