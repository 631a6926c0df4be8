//! systemd, as far as it holds what outlives a process of its service.
//!
//! Invariant: a name that it is told to let go of was one that it held.

use super::Bed;
use super::successor::as_in;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// What systemd does for a service with `FileDescriptorStoreMax=`: it holds descriptors, and hands them to the next process.
pub struct Systemd {
    socket: UnixDatagram,
    pub held: BTreeMap<String, OwnedFd>,
}

impl Systemd {
    pub fn new(bed: &Bed) -> Systemd {
        let socket = UnixDatagram::bind(bed.path("notify")).expect("a socket");
        Systemd { socket, held: BTreeMap::new() }
    }

    /// Hear all that was said by now.
    pub fn hear(&mut self) {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let (mut ancillary, mut bytes) = (RecvAncillaryBuffer::new(&mut space), [0; 1024]);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let Ok(heard) = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) else {
                return;
            };
            let words = String::from_utf8_lossy(&bytes[..heard.bytes]).into_owned();
            let Some(name) = words.lines().find_map(|line| line.strip_prefix("FDNAME=")) else { continue };
            let descriptor = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            match descriptor {
                Some(descriptor) => drop(self.held.insert(name.into(), descriptor)),
                None => assert!(words.contains("FDSTOREREMOVE=1") && self.held.remove(name).is_some(), "{words}"),
            }
        }
    }

    /// Whether it holds something of a name with this end.
    pub fn holds(&self, end: &str) -> bool {
        self.held.keys().any(|name| name.ends_with(end))
    }

    /// Start the service, with all that is held.
    pub fn start(&self, bed: &Bed) -> Child {
        // They are for the process of this number, as sd_listen_fds(3) has it.
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_stoker"), "node", "--cache"]);
        as_in(bed, &mut command);
        command.arg(bed.path("cache")).env("NOTIFY_SOCKET", bed.path("notify")).env("FDSTORE", "512");
        let names: Vec<&str> = self.held.keys().map(String::as_str).collect();
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        let above: Vec<OwnedFd> =
            self.held.values().map(|held| rustix::io::fcntl_dupfd_cloexec(held, 200).expect("a descriptor")).collect();
        // SAFETY: what is called is async-signal-safe but for setting a variable, which this single thread may.
        unsafe {
            command.pre_exec(move || {
                for (number, descriptor) in (3..).zip(&above) {
                    libc::dup2(descriptor.as_raw_fd(), number);
                }
                Ok(())
            });
        }
        command.spawn().expect("it starts")
    }
}
