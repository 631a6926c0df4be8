//! Where nodes listen: one socket a cache folder, in a folder of the user's own.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The socket of the node of a cache folder. Named by a hash, because a socket's path has at most 107 bytes.
pub fn of_cache(runtime: &Path, cache: &Path) -> PathBuf {
    // FNV-1a, 64 bits (Fowler, Noll, Vo): a name, not a secret; the node answers with its folder.
    let bytes = cache.as_os_str().as_encoded_bytes();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    runtime.join(format!("{hash:016x}.sock"))
}

/// Sockets that are looked at in one folder: a user has a handful of nodes, and could plant any number of sockets.
const SOCKETS_MAX: usize = 64;

/// Whether a folder is one, and its user's alone: nobody else can put a socket into it.
pub fn is_private(folder: &Path, user: u32) -> std::io::Result<bool> {
    let found = std::fs::symlink_metadata(folder)?;
    Ok(found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
}

/// The sockets of a user's nodes in a folder that is this user's alone, in the order of their names.
pub fn all(runtime: &Path, user: u32) -> Vec<PathBuf> {
    if !is_private(runtime, user).unwrap_or(false) {
        return Vec::new();
    }
    let files = std::fs::read_dir(runtime).into_iter().flatten().flatten().map(|file| file.path());
    let is_socket = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "sock")
            && std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket() && found.uid() == user)
    };
    let mut sockets: Vec<_> = files.filter(is_socket).take(SOCKETS_MAX).collect();
    sockets.sort();
    sockets
}
