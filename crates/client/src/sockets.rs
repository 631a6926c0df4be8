//! Where nodes listen: one socket a cache folder, in a folder of the user's own.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// The socket of the node of a cache folder. Named by a hash, because a socket's path has at most 107 bytes.
pub fn of_cache(runtime: &Path, cache: &Path) -> PathBuf {
    // FNV-1a, 64 bits (Fowler, Noll, Vo): a name, not a secret; the node answers with its folder.
    let bytes = cache.as_os_str().as_encoded_bytes();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    runtime.join(format!("{hash:016x}.sock"))
}

/// The data socket beside a control socket.
pub fn of_data(control: &Path) -> PathBuf {
    control.with_extension("data")
}

/// The turn to change which sockets are in a folder; given back when dropped. Where folders can't be locked there is none.
pub fn turn(runtime: &Path) -> Option<File> {
    let folder = File::open(runtime).ok()?;
    folder.lock().ok().map(|()| folder)
}

/// Remove the socket of a node that was killed, unless another node is taking its place.
pub(crate) async fn remove_dead(socket: &Path) {
    let Some(Ok(folder)) = socket.parent().map(File::open) else { return };
    if folder.try_lock().is_err() {
        return;
    }
    let asked = UnixStream::connect(socket).await;
    if asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        let _ = std::fs::remove_file(socket);
        let _ = std::fs::remove_file(of_data(socket));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_a_socket_at_which_nobody_listens_is_removed_and_only_while_nobody_takes_its_place() {
        let folder = std::env::temp_dir().join(format!("stoker-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let [dead, alive] = ["dead.sock", "alive.sock"].map(|name| folder.join(name));
        drop(UnixListener::bind(&dead).expect("a socket"));
        let _listener = UnixListener::bind(&alive).expect("a socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let remove = || [&dead, &alive].map(|socket| runtime.block_on(remove_dead(socket)));
        let turn = turn(&folder);
        assert!(turn.is_some());
        remove();
        assert!(dead.exists(), "somebody takes its place");
        drop(turn);
        remove();
        assert!(!dead.exists() && alive.exists());
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }
}
