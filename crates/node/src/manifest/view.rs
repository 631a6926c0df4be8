//! What a mounted data set asks of one snapshot: names to nodes, nodes to attributes and objects.
//!
//! Counts nothing and knows no other snapshot: [`super::Generations`] does. Invariant: only nodes of this
//! snapshot are answered for.

use super::layout::Entry;
use super::names::{self, SEPARATOR};
use super::{Manifest, OBJECT_BYTES_MAX, TOP, Walk};
use crate::namespace::{Attributes, Names, ROOT};
use block::Object;
use std::sync::Arc;

impl Manifest {
    /// The child of this name.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Option<Attributes> {
        let (_, entry) = self.named(self.index(parent)?, name)?;
        Some(self.described(entry))
    }

    /// What `stat` tells of a node.
    pub fn attributes(&self, node: u64) -> Option<Attributes> {
        Some(self.described(self.entry(self.index(node)?)?))
    }

    /// Children of a folder in the order of their names, from position `from` (0 first), until `each` says
    /// false. `each` receives the position after the child, its name and attributes. False if it is no folder.
    pub fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        let Some(index) = self.index(folder).filter(|&index| self.range(index).is_some()) else {
            return false;
        };
        for ((_, entry, name), position) in self.children(index, from).zip(from..) {
            if !each(position + 1, name, self.described(entry)) {
                break;
            }
        }
        true
    }

    /// The object whose bytes a file holds; `None` for a folder.
    pub fn object(&self, node: u64) -> Option<Arc<Object>> {
        let index = self.index(node)?;
        let entry = self.entry(index).filter(|entry| !entry.folder() && entry.size() <= OBJECT_BYTES_MAX)?;
        let mut key = self.prefix().to_owned();
        key.push_str(&self.key(index, entry)?);
        Some(Arc::new(Object { store: self.store.clone(), key, version: self.version(entry)?, size: entry.size() }))
    }

    /// The path of a node below the mount, without a slash at either end; empty for the top folder.
    pub fn path(&self, node: u64) -> Option<Vec<u8>> {
        Some(self.names(self.index(node)?)?.join(&b'/'))
    }

    /// The node at a path below the mount; slashes at its ends and doubled ones don't matter.
    pub fn find(&self, path: &[u8]) -> Option<u64> {
        let mut index = TOP;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            index = self.named(index, name)?.0;
        }
        Some(if index == TOP { ROOT } else { self.entry(index)?.node() })
    }

    /// The node of an object, if this snapshot lists it.
    pub fn node_of(&self, object: &Object) -> Option<u64> {
        let key = object.key.strip_prefix(self.prefix()).filter(|_| object.store == self.store)?;
        let mut path = Vec::new();
        names::place(key, object.size, &mut path);
        let mut folder = TOP;
        let mut above = path.split(|&byte| byte == SEPARATOR);
        let name = above.next_back()?;
        for name in above {
            folder = self.named(folder, name)?.0;
        }
        let (beside, _) = names::beside_folder(name, key);
        let nodes = [name, &beside].map(|name| self.named(folder, name).map(|(_, entry)| entry.node()));
        nodes.into_iter().flatten().find(|node| self.object(*node).is_some_and(|known| *known == *object))
    }

    /// All files below a folder, depth first in the order of the names, with their paths from the top folder.
    /// A file or an unknown node has none.
    pub fn walk(&self, folder: u64) -> Walk<'_> {
        Walk::below(self, self.index(folder))
    }

    fn described(&self, entry: Entry<'_>) -> Attributes {
        let folder = entry.folder();
        // Stores keep no times of folders. That of the listing makes the kernel drop its lists at a refresh.
        let modified_ns = if folder { self.listed_ns() } else { entry.modified_ns() };
        Attributes { node: entry.node(), folder, size: entry.size(), modified_ns, folders: entry.folders() }
    }
}

impl Names for Manifest {
    fn generation(&self) -> u32 {
        Manifest::generation(self)
    }

    fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        Manifest::list(self, folder, from, each)
    }
}
