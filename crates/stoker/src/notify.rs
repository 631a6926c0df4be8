//! What systemd hears of a service of `Type=notify`: sd_notify(3), which is a datagram.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long it may take to hear something.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// Where it wants to hear it. Not for child processes.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// Tell it, where it listens.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os(SOCKET) else { return };
    let sent = address(&name).and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("`{state}` could not be sent to systemd: {error}");
    }
}

/// Where systemd takes descriptors to hold for this service (since 254; `FileDescriptorStoreMax=` in its unit). `None` if it
/// takes none.
pub fn store() -> Option<std::io::Result<UnixDatagram>> {
    // Not of whoever was started by the service's own process: systemd takes none from there.
    let is_ours = |pid: String| pid == std::process::id().to_string();
    std::env::var("SYSTEMD_EXEC_PID").map_or(Some(()), |pid| is_ours(pid).then_some(()))?;
    let most: u32 = std::env::var("FDSTORE").ok()?.parse().ok()?;
    let name = std::env::var_os(SOCKET).filter(|_| most > 0)?;
    Some(address(&name).and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_write_timeout(Some(HEARD_WITHIN))?;
        Ok(socket)
    }))
}

fn address(name: &OsStr) -> std::io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(name),
    }
}

/// Mounted, or ready for mounts.
pub fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}"));
}

/// On the way to the end.
pub fn stopping() {
    notify("STOPPING=1\nSTATUS=ending");
}
