//! Where nodes listen: one socket a cache folder, in a folder of the user's own.

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

/// All sockets in a folder, in the order of their names.
pub fn all(runtime: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(runtime).into_iter().flatten().flatten().map(|file| file.path());
    let mut sockets: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    sockets.sort();
    sockets
}
