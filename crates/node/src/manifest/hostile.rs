//! A snapshot of names as bytes that mean harm: other members send them, and disks keep them. For `make fuzz`; what it found is
//! read again by the test below.
//!
//! Invariant: nothing that is asked of it panics, or goes on for ever.

use super::layout::{HEADER, u32_at};
use super::text::Text;
use super::{Manifest, head};
use crate::namespace::{Attributes, ROOT};
use std::io::Write;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Names that are looked at: a listing that has more is left.
const LOOKED_AT_MAX: usize = 2_000;

/// Names as text, which people hand to each other.
pub fn text(bytes: &[u8]) {
    let Ok(mut text) = Text::open(bytes, "text") else { return };
    let mut before = None;
    while let Ok(Some(listed)) = text.advance() {
        assert!(before.is_none_or(|before| before < listed.key), "keys ascend");
        before = Some(listed.key);
    }
}

/// A file of a snapshot, its header put right, for nobody finds its checksum by chance.
pub fn snapshot(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= HEADER {
        let length = u32_at(&bytes, 12) as usize;
        let all = bytes.len() as u64;
        bytes[24..32].copy_from_slice(&all.to_le_bytes());
        if let Some(sum) = bytes.get(24..length).map(xxh3_64) {
            bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let _ = head(&bytes, bytes.len() as u64);
    let file = rustix::fs::memfd_create("snapshot", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    let mut file = std::fs::File::from(file);
    file.write_all(&bytes).expect("memory takes it");
    let Ok(manifest) = Manifest::of(&file, Path::new("snapshot")) else { return };
    let _ = (manifest.verify(), manifest.id(), manifest.piece(7, 100), manifest.fingerprint());
    look(&manifest);
}

fn look(manifest: &Manifest) {
    let mut left = LOOKED_AT_MAX;
    let mut folders = vec![ROOT];
    while let Some(folder) = folders.pop() {
        let mut found: Vec<(u64, Vec<u8>, bool)> = Vec::new();
        manifest.list(folder, 0, &mut |_, name, attributes: Attributes| {
            found.push((attributes.node, name.to_vec(), attributes.folder));
            left = left.saturating_sub(1);
            left > 0
        });
        for (node, name, is_folder) in found {
            let _ = (manifest.lookup(folder, &name), manifest.attributes(node), manifest.path(node));
            if let Some(object) = manifest.object(node) {
                let _ = manifest.node_of(&object);
            }
            if is_folder && left > 0 {
                folders.push(node);
            }
        }
    }
    let _ = (manifest.find(b"a/b"), manifest.lookup(ROOT, b"a"));
    for node in [0, 1, 2, u64::MAX, 1 << 32] {
        let _ = (manifest.attributes(node), manifest.object(node), manifest.path(node));
        manifest.list(node, u64::MAX, &mut |_, _, _| false);
    }
    let mut walk = manifest.walk(ROOT);
    (0..LOOKED_AT_MAX).take_while(|_| walk.advance().is_some()).for_each(drop);
}

#[cfg(test)]
#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::corpus::each_is_borne;

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        each_is_borne("snapshot", super::snapshot);
        each_is_borne("manifest", super::text);
    }
}
