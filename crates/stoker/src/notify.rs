//! What systemd hears of a service of `Type=notify`: sd_notify(3), which is a datagram.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where it wants to hear it. Not for child processes.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// Tell it, where it listens.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os(SOCKET) else { return };
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("`{state}` could not be sent to systemd: {error}");
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
