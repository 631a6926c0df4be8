//! All files below a folder, one after the other: for loading, and for what matches a pattern.
//!
//! Holds one path and one position a level, nothing a name. Invariant: it visits each entry at most once,
//! whatever the bytes of the snapshot are, because an entry is taken only from the folder it names as its own.

use super::{Manifest, names};
use std::ops::Range;

/// Bytes of the longest path in a sound snapshot: the limit, with the reserved word of a renamed file.
const PATH_BYTES: usize = names::PATH_BYTES_MAX + names::NAME_BYTES_MAX;

/// A walk over files. Ask for the next by [`Walk::advance`].
pub struct Walk<'m> {
    manifest: &'m Manifest,
    path: Vec<u8>,
    levels: Vec<Level>,
}

/// A folder that the walk is in.
struct Level {
    folder: u32,
    left: Range<u32>,
    path_bytes: usize,
}

/// A file, as a walk comes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'w> {
    pub node: u64,
    /// From the top folder, names separated by slashes.
    pub path: &'w [u8],
    pub size: u64,
}

impl<'m> Walk<'m> {
    pub(super) fn below(manifest: &'m Manifest, folder: Option<u32>) -> Walk<'m> {
        let mut walk = Walk { manifest, path: Vec::new(), levels: Vec::new() };
        if let Some((folder, path)) = folder.and_then(|folder| Some((folder, manifest.names(folder)?.join(&b'/')))) {
            walk.path = path;
            walk.enter(folder);
        }
        walk
    }

    /// The next file; `None` after the last.
    pub fn advance(&mut self) -> Option<File<'_>> {
        let (node, size) = self.step()?;
        Some(File { node, path: &self.path, size })
    }

    fn step(&mut self) -> Option<(u64, u64)> {
        loop {
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_bytes);
            let child = level.left.next().and_then(|index| Some((index, self.manifest.child(level.folder, index)?)));
            let Some((index, (entry, name))) = child else {
                self.levels.pop();
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            if !entry.folder() {
                return Some((entry.node(), entry.size()));
            }
            if self.path.len() <= PATH_BYTES {
                self.enter(index);
            }
        }
    }

    fn enter(&mut self, folder: u32) {
        let left = self.manifest.range(folder).unwrap_or_default();
        self.levels.push(Level { folder, left, path_bytes: self.path.len() });
    }
}
