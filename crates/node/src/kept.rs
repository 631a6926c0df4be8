//! How much of a data set lies in the cache, for people to look at. A look opens no file and is no use of one.
//!
//! Costs about a microsecond a file: whoever looks often does so beside what matters.

use crate::manifest::Manifest;
use crate::stack::Stack;
use block::{Error, Object, Result};
use std::sync::Arc;

/// What to try where a name of a data set is not known.
pub(crate) const LISTED: &str =
    "check the name; what was made after the data set was listed is seen after `stoker refresh`";

/// How much of a file or a folder is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub files: u64,
    pub bytes: u64,
    /// Files of which every byte is kept, and bytes also of others.
    pub kept_files: u64,
    pub kept_bytes: u64,
}

impl Kept {
    fn add(&mut self, size: u64, held: u64) {
        self.files += 1;
        self.bytes += size;
        self.kept_files += u64::from(held == size);
        self.kept_bytes += held;
    }
}

/// A file or a folder within another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub is_folder: bool,
    pub kept: Kept,
}

/// All of a data set.
pub fn of_all(manifest: &Manifest, stack: &Stack) -> Kept {
    let (mut all, mut walk) = (Kept::default(), manifest.walk(crate::namespace::ROOT));
    while let Some(file) = walk.advance() {
        all.add(file.size, held(manifest, stack, file.node));
    }
    all
}

/// A file, or a folder with what is directly in it, the first so many by name.
pub fn of_path(manifest: &Manifest, stack: &Stack, path: &[u8], most: usize) -> Result<(Kept, Vec<Entry>)> {
    let node = manifest.find(path).ok_or_else(|| missing(path))?;
    let (mut all, mut entries, mut is_full) = (Kept::default(), Vec::<Entry>::new(), false);
    if let Some(object) = manifest.object(node) {
        all.add(object.size, stack.held_bytes(&object));
        return Ok((all, entries));
    }
    let below = if path.is_empty() { 0 } else { path.len() + 1 };
    let mut walk = manifest.walk(node);
    while let Some(file) = walk.advance() {
        let (size, held) = (file.size, held(manifest, stack, file.node));
        all.add(size, held);
        if is_full {
            continue;
        }
        let rest = file.path.get(below..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'/');
        let name = String::from_utf8_lossy(&rest[..end.unwrap_or(rest.len())]);
        // What is in one folder comes in a row.
        if entries.last().is_none_or(|last| last.name != name) {
            is_full = entries.len() == most;
            if is_full {
                continue;
            }
            entries.push(Entry { name: name.into_owned(), is_folder: end.is_some(), kept: Kept::default() });
        }
        entries.last_mut().expect("one was pushed").kept.add(size, held);
    }
    Ok((all, entries))
}

/// Call `each` with the path and the object of every file at or below a path of which anything is kept, and how many bytes
/// that are, until it says false.
pub fn each_below(
    manifest: &Manifest,
    stack: &Stack,
    path: &[u8],
    mut each: impl FnMut(&[u8], &Arc<Object>, u64) -> bool,
) -> Result<()> {
    let node = manifest.find(path).ok_or_else(|| missing(path))?;
    let mut tell = |path: &[u8], object: Arc<Object>| {
        let held = stack.held_bytes(&object);
        held == 0 || each(path, &object, held)
    };
    if let Some(object) = manifest.object(node) {
        tell(path, object);
        return Ok(());
    }
    let mut walk = manifest.walk(node);
    while let Some(file) = walk.advance() {
        if manifest.object(file.node).is_some_and(|object| !tell(file.path, object)) {
            break;
        }
    }
    Ok(())
}

fn missing(path: &[u8]) -> Error {
    let path = String::from_utf8_lossy(path);
    Error::missing("there is no such file or folder in the data set", path).hint(LISTED)
}

fn held(manifest: &Manifest, stack: &Stack, node: u64) -> u64 {
    manifest.object(node).map_or(0, |object| stack.held_bytes(&object))
}
