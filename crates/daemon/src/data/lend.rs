//! One batch: complete files are lent as descriptors, what is not complete is fetched together into one memory.
//!
//! Invariant: a descriptor is that of a complete file, read-only, and never that of a file which is still being filled;
//! an extent is of one version, also where the rest of it is asked for later.

use super::{Counted, Desk};
use crate::control;
use block::{Checksum, Error, Result};
use client::messages::{ITEMS_MAX, Item, Wanted};
use futures_util::future::join_all;
use node::View;
use node::namespace::{Content, Namespace, Opening, Reading};
use rustix::fs::{MemfdFlags, SealFlags};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a name: more than a path has in a manifest.
const NAME_BYTES_MAX: usize = 4096;

/// Memory of one answer: sixty-four images of 100 KB that could not be kept.
const MEMORY_MAX: u64 = 8 << 20;

/// Memory that each answer may take, whatever others have.
const MEMORY_MIN: u64 = 256 << 10;

/// What is said of a name that is no file.
const FOLDER: &str = "this is a folder";

/// Files that one connection reads parts of at a time.
const PARTS_MAX: usize = ITEMS_MAX;

/// What is asked of a file at a time.
const READ_BYTES: u64 = 1 << 20;

/// What an answer lends, for as long as it lives.
#[derive(Default)]
pub struct Lent {
    files: Vec<(Arc<dyn Content>, [Counted; 2])>,
    memory: Option<(File, Option<Counted>)>,
}

impl Lent {
    /// The descriptors, in the order in which the items number them; memory last.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let files = self.files.iter().filter_map(|(content, _)| content.backing());
        files.chain(self.memory.iter().map(|(memory, _)| memory.as_fd())).collect()
    }
}

/// What a connection has begun to read.
#[derive(Default)]
pub struct Begun {
    /// Files of which the answer before had not all that was asked for.
    rest: HashMap<u64, Arc<dyn Content>>,
    parts: Parts,
}

/// Files of which parts were asked for lately, and whether that was any byte: who asks for more of one has it open already.
#[derive(Default)]
struct Parts(VecDeque<(u64, bool)>);

impl Parts {
    /// Whether this is more of a file, and not the first of it, or its beginning once more.
    fn is_more(&mut self, node: u64, (from, length): (u64, Option<u64>)) -> bool {
        let is_some = length != Some(0);
        match self.0.iter_mut().find(|(known, _)| *known == node) {
            Some((_, was_read)) => {
                let is_more = from > 0 || !*was_read;
                *was_read |= is_some;
                is_more
            }
            None => {
                self.0.truncate(PARTS_MAX - 1);
                self.0.push_front((node, is_some));
                false
            }
        }
    }
}

/// Where batches come from.
pub struct Counter<'a> {
    pub desk: &'a Arc<Desk>,
    pub view: &'a Arc<View>,
    /// What names are below.
    pub under: &'a str,
    /// The process that asks.
    pub process: u32,
}

/// A node, its size, and what it has.
type Found = Result<(u64, u64, Arc<dyn Content>)>;

/// One file that is asked for.
struct Part {
    node: u64,
    size: u64,
    content: Arc<dyn Content>,
    /// From where, and up to where.
    from: u64,
    until: u64,
}

impl Counter<'_> {
    /// Read a batch.
    pub async fn read(&self, wanted: Wanted, begun: &mut Begun) -> Result<(Vec<Item>, Lent)> {
        check(&wanted)?;
        let Wanted { names, ranges, nodes } = wanted;
        let ranges = ranges.unwrap_or_default();
        let opened = self.open_all(names, &ranges, nodes.unwrap_or_default(), begun).await?;
        let parts = opened.into_iter().enumerate().map(|(number, opened)| {
            let (node, size, content) = opened?;
            let (from, length) = ranges.get(number).copied().unwrap_or((0, None));
            let from = from.min(size);
            let until = length.map_or(size, |length| from.saturating_add(length).min(size));
            Ok(Part { node, size, content, from, until })
        });
        self.answer(parts.collect(), begun).await
    }

    /// What there is to say of names.
    pub fn look(&self, names: &[String]) -> Result<Vec<Item>> {
        let manifest = self.view.manifest();
        let look = |name: &String| {
            let found = manifest.find(self.path(name).as_bytes()).and_then(|node| manifest.attributes(node));
            found.map_or_else(
                || failed(&missing(name)),
                |found| Item {
                    size: found.size,
                    node: found.node,
                    folder: found.folder,
                    modified_ns: Some(found.modified_ns),
                    ..Item::default()
                },
            )
        };
        check(&Wanted { names: names.to_vec(), ..Wanted::default() })?;
        Ok(names.iter().map(look).collect())
    }

    fn path(&self, name: &str) -> String {
        if self.under.is_empty() { name.to_owned() } else { format!("{}/{name}", self.under) }
    }

    /// Open all of them at once: on a thread, since a disk takes its time, and those that are fetched together.
    async fn open_all(
        &self,
        names: Vec<String>,
        ranges: &[(u64, Option<u64>)],
        nodes: Vec<u64>,
        begun: &mut Begun,
    ) -> Result<Vec<Found>> {
        let turn = self.desk.disk.clone().acquire_owned().await.expect("it is never closed");
        let (view, process, ranges) = (self.view.clone(), self.process, ranges.to_vec());
        let Begun { rest, mut parts } = std::mem::take(begun);
        let paths: Vec<String> = names.iter().map(|name| self.path(name)).collect();
        let opening = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let open = |(number, path): (usize, &String)| match nodes.get(number) {
                Some(node) if *node > 0 => go_on(&view, path, *node, &rest),
                _ => open(&view, path, process, ranges.get(number), &mut parts),
            };
            let openings = paths.iter().enumerate().map(open).collect::<Vec<_>>();
            (openings, parts)
        });
        let stopped = |_| Error::unavailable("the node is stopping", self.view.url());
        let openings;
        (openings, begun.parts) = opening.await.map_err(stopped)?;
        let each = openings.into_iter().map(|opening| async {
            let (node, size, opening) = opening?;
            let content = match opening {
                Opening::Ready(content) => content?,
                Opening::Waiting(content) => content.await?,
            };
            Ok((node, size, content))
        });
        Ok(join_all(each).await)
    }

    /// Lend what is complete, and have the rest in memory.
    async fn answer(&self, parts: Vec<Result<Part>>, begun: &mut Begun) -> Result<(Vec<Item>, Lent)> {
        let (mut items, mut lent, mut rest) = (Vec::with_capacity(parts.len()), Lent::default(), Vec::new());
        for part in parts {
            let part = match part {
                Ok(part) => part,
                Err(error) => {
                    items.push(failed(&error));
                    continue;
                }
            };
            let mut item = Item { size: part.size, node: part.node, ..Item::default() };
            match self.lend(&part) {
                Some(counted) => {
                    item.descriptor = Some(lent.files.len() as u32);
                    lent.files.push((part.content, counted));
                }
                None if part.from == part.until => (item.at, item.length, item.crc) = (Some(0), Some(0), Some(0)),
                None => rest.push((items.len(), part)),
            }
            items.push(item);
        }
        self.desk.files_lent.fetch_add(lent.files.len() as u64, Relaxed);
        if !rest.is_empty() {
            lent.memory = Some(self.copy(rest, &mut items, begun).await?);
        }
        Ok((items, lent))
    }

    /// Count a file among those that are lent, if it can be.
    fn lend(&self, part: &Part) -> Option<[Counted; 2]> {
        part.content.backing()?;
        let capacity = self.view.node().settings().limits.bytes;
        // What lies where it lies takes no room in the cache.
        let most = if part.content.lasts() { capacity / super::LENT_SHARE } else { u64::MAX };
        let bytes = Counted::within(&self.desk.lent_bytes, part.size, most)?;
        Some([bytes, Counted::within(&self.desk.lent_files, 1, u64::MAX)?])
    }

    /// Read what is not complete into one memory, all of it at once, as far as there is room.
    async fn copy(
        &self,
        rest: Vec<(usize, Part)>,
        items: &mut [Item],
        begun: &mut Begun,
    ) -> Result<(File, Option<Counted>)> {
        let wanted = rest.iter().map(|(_, part)| part.until - part.from).sum::<u64>().min(MEMORY_MAX);
        let most = self.view.node().settings().memory_bytes / super::LENT_MEMORY_SHARE;
        let counted = Counted::within(&self.desk.lent_memory, wanted, most);
        let mut room = if counted.is_some() { wanted } else { wanted.min(MEMORY_MIN) };
        let odd = |error: std::io::Error| Error::io("taking memory for what is read", self.view.url(), &error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = File::from(rustix::fs::memfd_create("stoker-lent", flags).map_err(|errno| odd(errno.into()))?);
        let mut at = 0;
        let mut reading = Vec::with_capacity(rest.len());
        for (number, part) in rest {
            let length = (part.until - part.from).min(room);
            room -= length;
            reading.push((number, part, at, length));
            at += length;
        }
        let each = reading.iter().map(|(_, part, at, length)| extent(part, &memory, *at, *length));
        let read = join_all(each.collect::<Vec<_>>()).await;
        for ((number, part, at, length), read) in reading.into_iter().zip(read) {
            match read {
                Ok(crc) => {
                    let item = &mut items[number];
                    (item.at, item.length, item.crc) = (Some(at), Some(length), Some(crc));
                    self.desk.bytes_copied.fetch_add(length, Relaxed);
                    match part.from + length < part.until {
                        true => drop(begun.rest.insert(part.node, part.content)),
                        false => drop(self.desk.files_copied.fetch_add(1, Relaxed)),
                    }
                }
                Err(error) => items[number] = failed(&error),
            }
        }
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals).map_err(|errno| odd(errno.into()))?;
        Ok((memory, counted))
    }
}

fn missing(name: &str) -> Error {
    Error::missing("there is no such file in the data set", name)
}

/// Open a file by its name, if it is not more of one that is open.
fn open(
    view: &View,
    path: &str,
    process: u32,
    range: Option<&(u64, Option<u64>)>,
    parts: &mut Parts,
) -> Result<(u64, u64, Opening)> {
    let manifest = view.manifest();
    let found =
        manifest.find(path.as_bytes()).and_then(|node| manifest.attributes(node)).ok_or_else(|| missing(path))?;
    if found.folder {
        return Err(Error::invalid(FOLDER, path).hint("name a file"));
    }
    let is_more = range.is_some_and(|range| parts.is_more(found.node, *range));
    let opening = if is_more { view.go_on(found.node) } else { view.open_by(found.node, process) };
    Ok((found.node, found.size, opening))
}

/// Go on with a file of which the answer before had not all.
fn go_on(view: &View, path: &str, node: u64, rest: &HashMap<u64, Arc<dyn Content>>) -> Result<(u64, u64, Opening)> {
    let gone = || Error::changed("the rest of this version is not at hand any more", path);
    let content = rest.get(&node).ok_or_else(gone)?;
    let size = view.attributes(node).map(|found| found.size).ok_or_else(gone)?;
    // By now it may be complete.
    let opening = match view.go_on(node) {
        Opening::Ready(Ok(whole)) if whole.backing().is_some() => Opening::Ready(Ok(whole)),
        _ => Opening::Ready(Ok(content.clone())),
    };
    Ok((node, size, opening))
}

/// Put bytes of a file into memory; their CRC-32 comes back.
async fn extent(part: &Part, memory: &File, at: u64, length: u64) -> Result<u32> {
    let mut digest = Checksum::Crc32(0).digest();
    let mut done = 0;
    while done < length {
        let asked = (length - done).min(READ_BYTES) as u32;
        let pieces = match part.content.read(part.from + done, asked) {
            Reading::Ready(pieces) => pieces?,
            Reading::Waiting(pieces) => pieces.await?,
        };
        let before = done;
        for piece in pieces {
            digest.update(&piece);
            let written = memory.write_all_at(&piece, at + done);
            written.map_err(|error| Error::io("taking memory for what is read", "memory", &error))?;
            done += piece.len() as u64;
        }
        if done == before || done > length {
            return Err(Error::changed("the file has another length than when it was opened", "a read"));
        }
    }
    Ok(digest.value() as u32)
}

fn failed(error: &Error) -> Item {
    Item { error: Some(control::problem(error)), folder: error.what == FOLDER, ..Item::default() }
}

/// Whether a question can be meant.
fn check(wanted: &Wanted) -> Result<()> {
    let items = wanted.names.len();
    let odd = |what: String| Err(Error::invalid(what, "the data socket").hint("ask for less at a time"));
    if items > ITEMS_MAX {
        return odd(format!("{items} names, of which {ITEMS_MAX} are the most"));
    }
    if let Some(name) = wanted.names.iter().find(|name| name.len() > NAME_BYTES_MAX) {
        return odd(format!("a name of {} bytes, of which {NAME_BYTES_MAX} are the most", name.len()));
    }
    let (ranges, nodes) = (wanted.ranges.as_ref().map(Vec::len), wanted.nodes.as_ref().map(Vec::len));
    match [ranges, nodes].into_iter().flatten().find(|length| *length != items) {
        Some(length) => odd(format!("{items} names with {length} ranges or nodes")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_are_one_open_until_it_is_read_from_its_beginning_again_or_many_others_were() {
        let mut parts = Parts::default();
        assert!(!parts.is_more(1, (0, Some(0))), "where it lies");
        assert!(parts.is_more(1, (0, Some(10))) && parts.is_more(1, (10, Some(10))) && parts.is_more(1, (5, None)));
        assert!(!parts.is_more(1, (0, Some(10))), "the next epoch");
        assert!(!parts.is_more(2, (90, Some(10))), "its end first");
        assert!(parts.is_more(2, (4, Some(10))));
        (100..100 + PARTS_MAX as u64).for_each(|node| assert!(!parts.is_more(node, (7, None))));
        assert!(!parts.is_more(2, (14, Some(10))));
        assert_eq!(parts.0.len(), PARTS_MAX);
    }
}
