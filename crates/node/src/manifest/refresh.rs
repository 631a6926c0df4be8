//! What the kernel has to forget when one snapshot follows another.
//!
//! Doesn't compare contents: the builder has decided which nodes are inherited, so equal node numbers say
//! "unchanged". Invariant: every name whose answer differs is listed, if its folder is known in both; a name in
//! a folder that is new or gone needs no telling, because the kernel forgets it with its folder.

use super::layout::Entry;
use super::{Manifest, TOP};
use crate::namespace::{ROOT, Stale};
use std::cmp::Ordering;

/// Names that were removed, changed, or added (somebody may have been answered that there are none), as
/// (node of the folder, name). About 56 bytes and the name for each.
pub fn stale(previous: &Manifest, current: &Manifest) -> Stale {
    let mut out = Stale::new();
    let mut folders = vec![(ROOT, TOP, TOP)];
    while let Some((node, before, after)) = folders.pop() {
        let mut old = previous.children(before, 0).peekable();
        let mut new = current.children(after, 0).peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((_, _, left)), Some((_, _, right))) => left.cmp(right),
            };
            let left = if order.is_le() { old.next() } else { None };
            let right = if order.is_ge() { new.next() } else { None };
            match (left, right) {
                (Some((before, was, _)), Some((after, is, _))) if was.node() == is.node() => {
                    if both_folders(was, is) {
                        folders.push((is.node(), before, after));
                    }
                }
                (Some((_, _, name)), _) | (None, Some((_, _, name))) => out.push((node, name.to_vec())),
                (None, None) => break,
            }
        }
    }
    out
}

fn both_folders(was: Entry<'_>, is: Entry<'_>) -> bool {
    was.folder() && is.folder()
}
