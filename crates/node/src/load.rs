//! Fetch a data set before it is read, through the same tiers that readers use.
//!
//! What is there already is not fetched again, so an interrupted load goes on where it stopped. What does not
//! fit is counted and not fetched in vain.

use crate::kept::LISTED;
use crate::manifest::Manifest;
use crate::select::Wanted;
use crate::stack::Stack;
use block::{Address, Checksum, Door, Error, Kind, Object, RUN_BLOCKS_MAX, Result, Run, Stripe, crc64};
use cache::disk::Standing;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use peer::{Brought, For, Room};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Objects that are loaded side by side. Small ones cost a round trip each, and sixty-four of them cover 20 ms
/// at 3,000 files a second.
const OBJECTS_AT_ONCE: usize = 64;

/// Blocks of one run. As much as memory asks for in one request; of more, little memory has no room for the rest, which
/// would then come block by block.
pub(crate) const RUN_BLOCKS: u32 = RUN_BLOCKS_MAX / 2;

/// Stripes of a large object that are brought side by side to the disks of a cluster.
const STRIPES_AT_ONCE: usize = 8;

/// Runs of one object side by side: while one is written, the next is on its way.
const RUNS_AT_ONCE: usize = 2;

/// Times that an object is fetched whose bytes turn out to differ from the store's checksum of the whole.
const FETCHES_MAX: u32 = 3;

/// Times that what didn't fit is tried again: owners hear within a second who has room, once they looked for somebody in vain.
const LOOKS_MAX: u32 = 8;
const LOOKED_AFTER: Duration = Duration::from_millis(1500);

/// Failures that are reported by name; more are counted.
const FAILURES_NAMED: usize = 20;

/// What it takes to fetch files: their names, the tiers, and the credentials of a mount.
#[derive(Clone)]
pub struct Reach {
    pub manifest: Arc<Manifest>,
    pub stack: Stack,
    pub via: Door,
}

/// How far a load has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub files: u64,
    pub bytes: u64,
    pub files_done: u64,
    pub bytes_done: u64,
    /// Of those done: there before or asked for by others, bytes also of files of which a part was.
    pub files_present: u64,
    pub bytes_present: u64,
    /// Files that were not kept: they did not fit, or had just been written when they were listed.
    pub files_unkept: u64,
    pub files_failed: u64,
    /// What failed first, by name.
    pub failures: Vec<String>,
}

/// Running counts of a load.
#[derive(Default)]
pub struct Loading {
    files: AtomicU64,
    bytes: AtomicU64,
    files_done: AtomicU64,
    bytes_done: AtomicU64,
    files_present: AtomicU64,
    bytes_present: AtomicU64,
    files_unkept: AtomicU64,
    files_failed: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Loading {
    pub fn progress(&self) -> Progress {
        let get = |count: &AtomicU64| count.load(Relaxed);
        Progress {
            files: get(&self.files),
            bytes: get(&self.bytes),
            files_done: get(&self.files_done),
            bytes_done: get(&self.bytes_done),
            files_present: get(&self.files_present),
            bytes_present: get(&self.bytes_present),
            files_unkept: get(&self.files_unkept),
            files_failed: get(&self.files_failed),
            failures: self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// What is to be done, as (node, size).
    pub(crate) fn expect(&self, files: &[(u64, u64)]) {
        self.files.store(files.len() as u64, Relaxed);
        self.bytes.store(files.iter().map(|(_, size)| size).sum(), Relaxed);
    }

    /// A file of this size is there, of which so many bytes were found: on the disk, or asked for by others.
    pub(crate) fn done(&self, size: u64, found: u64) {
        self.files_present.fetch_add(u64::from(found == size), Relaxed);
        self.bytes_present.fetch_add(found, Relaxed);
        self.files_done.fetch_add(1, Relaxed);
        self.bytes_done.fetch_add(size, Relaxed);
    }

    pub(crate) fn failed(&self, path: &str, error: &Error) {
        self.files_failed.fetch_add(1, Relaxed);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_NAMED {
            failures.push(format!("{path}: {}", error.what));
        }
    }
}

/// Load what is wanted. `verify` also reads again what was there and compares it with the store's checksums.
pub async fn load(reach: &Reach, wanted: &Wanted, verify: bool, tally: &Arc<Loading>) -> Result<()> {
    let mut files = chosen(&reach.manifest, wanted)?;
    tally.expect(&files);
    for look in 0..LOOKS_MAX {
        let count = files.len();
        files = pass(reach, files, verify, tally).await;
        // As long as that helps; of room, owners may hear late.
        if files.is_empty() || reach.stack.lines().is_none() || (look > 1 && files.len() == count) {
            break;
        }
        tokio::time::sleep(LOOKED_AFTER).await;
    }
    tally.files_unkept.store(files.len() as u64, Relaxed);
    Ok(())
}

/// Load files side by side. Those that didn't fit come back.
async fn pass(reach: &Reach, files: Vec<(u64, u64)>, verify: bool, tally: &Arc<Loading>) -> Vec<(u64, u64)> {
    let one = |(node, size): (u64, u64)| {
        let (reach, tally) = (reach.clone(), tally.clone());
        async move {
            let object = reach.manifest.object(node)?;
            match to_disks(&reach, &object, verify).await {
                Ok(Brought::Unkept) => return Some((node, size)),
                Ok(Brought::There { found, .. }) => tally.done(size, found),
                Err(error) => {
                    let path = reach.manifest.path(node).unwrap_or_default();
                    tally.failed(&String::from_utf8_lossy(&path), &error);
                }
            }
            None
        }
    };
    stream::iter(files).map(one).buffer_unordered(OBJECTS_AT_ONCE).filter_map(std::future::ready).collect().await
}

/// Files that are meant, as (node, size), in the order of their names: so they are laid out on the disk.
pub fn chosen(manifest: &Manifest, wanted: &Wanted) -> Result<Vec<(u64, u64)>> {
    let selection = wanted.selection()?;
    // find(1) names folders, too: that is no mistake.
    let unknown = selection.unknown(|path| manifest.find(path).is_some());
    if let Some(first) = unknown.first() {
        let what = match unknown.len() {
            1 => "1 of the listed names is no file of the data set".to_owned(),
            many => format!("{many} of the listed names are no files of the data set"),
        };
        return Err(Error::missing(what, first).hint("give paths of files as they appear below the mount point"));
    }
    let under = wanted.under.as_bytes();
    let missing = || Error::missing("there is no such file or folder in the data set", &wanted.under).hint(LISTED);
    let node = manifest.find(under).ok_or_else(missing)?;
    if let Some(object) = manifest.object(node) {
        return Ok(if selection.takes(under) { vec![(node, object.size)] } else { Vec::new() });
    }
    let (mut files, mut walk) = (Vec::new(), manifest.walk(node));
    while let Some(file) = walk.advance() {
        if selection.takes(file.path) {
            files.push((file.node, file.size));
        }
    }
    Ok(files)
}

/// Bring one object to the disk, or in a cluster each of its stripes to the disk of its owner.
async fn to_disks(reach: &Reach, object: &Arc<Object>, is_verified: bool) -> Result<Brought> {
    if object.size == 0 {
        return Ok(there(0));
    }
    if reach.stack.lines().is_none() {
        return object_to_disk(&reach.stack, reach.via, object, is_verified).await;
    }
    let (mut found, mut verify) = (None, is_verified);
    for _ in 0..FETCHES_MAX {
        let Some(mut kept) = stripes_to_disks(reach, object, verify).await? else { return Ok(Brought::Unkept) };
        let before = *found.get_or_insert(kept.found);
        // A file that was damaged took along what was brought into it just before.
        if verify && (kept.found < object.size || kept.lost_copies) && kept.sums.len() > 1 {
            match stripes_to_disks(reach, object, false).await? {
                Some(again) => kept = again,
                None => return Ok(Brought::Unkept),
            }
        }
        if agree(reach, object, &kept.sums, verify).await? {
            return Ok(there(before));
        }
        tracing::warn!("{object} differs from the checksum that the store gives; all members fetch it again");
        reach.stack.drop_everywhere(object).await;
        (found, verify) = (Some(0), is_verified);
    }
    Err(Error::corrupt("the bytes that the store sent differ from its own checksum of the object", &**object))
}

/// The stripes of an object as they are kept.
struct Kept {
    /// Bytes that were there before.
    found: u64,
    /// What members say of each, as far as they do.
    sums: Vec<Option<u64>>,
    /// Whether copies that lie here were dropped.
    lost_copies: bool,
}

/// Bring each stripe of an object to the disk of its owner. `None` if one of them is not kept.
async fn stripes_to_disks(reach: &Reach, object: &Arc<Object>, verify: bool) -> Result<Option<Kept>> {
    let bring = |(number, address): (usize, Address)| {
        let reach = reach.clone();
        async move {
            let (brought, lost_copy) = stripe_to_owner(&reach, &address, verify).await?;
            Ok::<_, Error>((number, brought, lost_copy))
        }
    };
    let bringing = stream::iter(stripes(object).enumerate().map(bring));
    let (mut bringing, mut is_kept) = (bringing.buffer_unordered(STRIPES_AT_ONCE), true);
    let mut kept = Kept { found: 0, sums: vec![None; stripes(object).count()], lost_copies: false };
    while let Some((number, brought, lost_copy)) = bringing.try_next().await? {
        kept.lost_copies |= lost_copy;
        match brought {
            Brought::There { found, sum } => {
                // Who says so may be wrong.
                kept.found += found.min(object.size - kept.found);
                kept.sums[number] = sum;
            }
            Brought::Unkept => is_kept = false,
        }
    }
    Ok(is_kept.then_some(kept))
}

/// Whether the stripes of an object are together what the store's checksum says: members compare each with sums of their own.
async fn agree(reach: &Reach, object: &Arc<Object>, sums: &[Option<u64>], verify: bool) -> Result<bool> {
    // One stripe its owner compared.
    if sums.len() < 2 {
        return Ok(true);
    }
    let described = match reach.stack.described(object, reach.via).await {
        Err(error) if !verify => {
            tracing::warn!("{object} is there, and was not compared as a whole: {error}");
            return Ok(true);
        }
        described => described?,
    };
    match (described, combined(object, sums)) {
        (Some(Checksum::Crc64Nvme(described)), Some(sum)) => Ok(described == sum),
        // No other kind follows from what members say.
        (Some(described), _) if verify => reach.stack.agrees(object, described, reach.via).await,
        _ => Ok(true),
    }
}

/// The checksum of an object from those of its stripes.
fn combined(object: &Arc<Object>, sums: &[Option<u64>]) -> Option<u64> {
    // All but the last are of one length.
    let mut append = (0, crc64::Append::bytes(0));
    stripes(object).zip(sums).try_fold(0, |left, (first, sum)| {
        let blocks = Stripe::of(&first).blocks(object);
        let bytes = block::bytes_of(object.size, &blocks);
        if append.0 != bytes {
            append = (bytes, crc64::Append::bytes(bytes));
        }
        Some(append.1.combine(left, (*sum)?))
    })
}

/// Bring the stripe of a block to the disk of its owner. Also whether a copy of it that lies here was dropped.
async fn stripe_to_owner(reach: &Reach, address: &Address, verify: bool) -> Result<(Brought, bool)> {
    let brought = match reach.stack.bring_elsewhere(address, verify, false).await {
        Some(brought) => brought?,
        None => match stripe_to_disk(&reach.stack, reach.via, address, verify).await? {
            // It finds no room after all. Somebody else may keep it, or does already.
            Brought::Unkept => match reach.stack.bring_elsewhere(address, verify, true).await {
                Some(brought) => brought?,
                None => return Ok((Brought::Unkept, false)),
            },
            there => return Ok((there, false)),
        },
    };
    if !verify {
        return Ok((brought, false));
    }
    // What lies here of it is a copy, which readers of this node are given.
    let (object, blocks) = (&address.object, Stripe::of(address).blocks(&address.object));
    let is_sound = reach.stack.compare(object, &blocks).await?;
    let owners = if let Brought::There { sum, .. } = brought { sum } else { None };
    let (copy, was_here) = (reach.stack.sum_of(object, &blocks), reach.stack.has_any(address));
    let differs = copy.zip(owners).is_some_and(|(copy, owners)| copy != owners);
    if differs {
        tracing::warn!("a copy of {object} differs from what its owner keeps; it is dropped");
    }
    // Nothing says whether a part of it is right, here or in memory. A file may hold other stripes, which this node owns.
    let is_in_doubt = copy.is_none() && (blocks.len() as u32 == object.blocks() || reach.stack.is_cut(object));
    if differs || is_in_doubt {
        reach.stack.drop_wrong(object, &blocks);
    } else if copy.is_none() {
        reach.stack.forget(object);
    }
    Ok((brought, !is_sound || differs || is_in_doubt && was_here))
}

/// The first block of each stripe of an object.
pub(crate) fn stripes(object: &Arc<Object>) -> impl Iterator<Item = Address> + use<> {
    let first = Address { object: object.clone(), index: 0 };
    let step = Stripe::of(&first).blocks(object).len();
    (0..object.blocks()).step_by(step).map(move |index| Address { index, ..first.clone() })
}

/// Bring the stripe of a block to this node's disk, whoever owns it.
pub(crate) async fn stripe_to_disk(stack: &Stack, via: Door, address: &Address, verify: bool) -> Result<Brought> {
    let brought = stripe_here(stack, via, address, verify).await?;
    if matches!(brought, Brought::There { .. }) {
        stack.is_here(address);
    }
    Ok(brought)
}

async fn stripe_here(stack: &Stack, via: Door, address: &Address, verify: bool) -> Result<Brought> {
    let (object, blocks) = (&address.object, Stripe::of(address).blocks(&address.object));
    if blocks.len() as u32 == object.blocks() {
        let brought = object_to_disk(stack, via, object, verify).await?;
        return Ok(match brought {
            Brought::There { found, .. } => Brought::There { found, sum: stack.sum_of(object, &blocks) },
            Brought::Unkept => brought,
        });
    }
    if verify {
        stack.compare(object, &blocks).await?;
    }
    let came = Arc::new(AtomicU64::new(0));
    let whole = Run { came: Some(came.clone()), is_own: true, ..Run::new(object.clone(), blocks.clone()).via(via) };
    let is_there = stack.owns_surely(object, &blocks);
    for _ in 0..FETCHES_MAX {
        if !is_there {
            match runs(stack, whole.clone(), blocks.clone()).try_for_each(|()| std::future::ready(Ok(()))).await {
                Err(error) if error.kind == Kind::Full => return Ok(Brought::Unkept),
                brought => brought?,
            }
        }
        if is_there || stack.keeps_all(&whole).await {
            let found = whole.bytes().saturating_sub(came.load(Relaxed));
            return Ok(Brought::There { found, sum: stack.sum_of(object, &blocks) });
        }
        // The file was dropped meanwhile, because some of it was damaged; or memory had what the disk has not.
        stack.forget(object);
        if !store::is_settled(object) || stack.room(address, For::Nobody) == Room::Full {
            break;
        }
    }
    Ok(Brought::Unkept)
}

/// It lies there, and so many bytes of it did before.
fn there(found: u64) -> Brought {
    Brought::There { found, sum: None }
}

/// Bring one object to the disk.
async fn object_to_disk(disk: &Stack, via: Door, object: &Arc<Object>, verify: bool) -> Result<Brought> {
    let standing = disk.find(object);
    let present = match standing {
        Standing::Complete(_) | Standing::Unchecked(_) | Standing::Cut if verify => disk.verify(object, via).await?,
        Standing::Complete(_) | Standing::Cut => true,
        Standing::Unchecked(_) => disk.check(object).await?.is_some(),
        Standing::Absent => {
            // Some of it may lie here.
            if verify {
                disk.compare(object, &(0..object.blocks())).await?;
            }
            false
        }
    };
    if present {
        return Ok(there(object.size));
    }
    // What stays here in part is of no use where another keeps the whole, and nothing says whether it is right.
    let is_left = !verify && disk.held_bytes(object) > 0 || stripes(object).nth(1).is_some();
    let unkept = || {
        if !is_left {
            disk.drop_wrong(object, &(0..object.blocks()));
        }
        Ok(Brought::Unkept)
    };
    if !disk.has_room(object) {
        return unkept();
    }
    let came = Arc::new(AtomicU64::new(0));
    for _ in 0..FETCHES_MAX {
        let like = Run { came: Some(came.clone()), is_own: true, ..Run::new(object.clone(), 0..1).via(via) };
        match runs(disk, like, 0..object.blocks()).try_for_each(|()| std::future::ready(Ok(()))).await {
            Err(error) if error.kind == Kind::Full => return unkept(),
            brought => brought?,
        }
        // What came twice, because it was wrong, is counted once.
        let found = object.size.saturating_sub(came.load(Relaxed));
        match disk.settled(object, via).await {
            Standing::Complete(_) if verify && object.blocks() == 1 => {
                return disk.verify(object, via).await.map(|_| there(found));
            }
            Standing::Complete(_) => return Ok(there(found)),
            // Its stripes came one by one, and nobody compared the whole yet.
            Standing::Cut if disk.verify(object, via).await? => return Ok(there(found)),
            // It may be that what came was wrong.
            _ => disk.forget(object),
        }
        if !disk.has_room(object) {
            return unkept();
        }
    }
    Err(Error::corrupt("the object was fetched but could not be kept whole", &**object))
}

/// All files below a folder, as (node, size), in the order of their names.
pub(crate) fn below(manifest: &Manifest, folder: &[u8]) -> Vec<(u64, u64)> {
    let (mut files, mut walk) = (Vec::new(), manifest.walk(manifest.find(folder).unwrap_or(crate::namespace::ROOT)));
    while let Some(file) = walk.advance() {
        files.push((file.node, file.size));
    }
    files
}

/// Bring blocks of an object in runs, in the manner of one run; an item for each that is there.
pub(crate) fn runs(stack: &Stack, like: Run, blocks: Range<u32>) -> impl Stream<Item = Result<()>> + Unpin + use<> {
    let stack = stack.clone();
    let each = blocks.clone().step_by(RUN_BLOCKS as usize).map(move |start| {
        let (stack, run) = (stack.clone(), like.part(start..blocks.end.min(start + RUN_BLOCKS)));
        Box::pin(async move { stack.bring(run).await })
    });
    stream::iter(each).buffered(RUNS_AT_ONCE)
}
