//! Mounting without privileges: `fusermount3` is setuid, mounts for us and passes the device back over
//! a socket.

use super::{SUBTYPE, Wanted};
use crate::device::Device;
use block::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = "fusermount3";

/// Mount on a folder that was found fit.
pub fn attach(wanted: &Wanted<'_>, target: &Path) -> Result<Device> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::io("making a socket for fusermount3", target.display(), &errno.into()))?;
    let mut command = Command::new(PROGRAM);
    command.arg("-o").arg(options(wanted)).arg("--").arg(target);
    // The socket is its standard input: the one descriptor that is passed on without unsafe code.
    command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs));
    run(&mut command, target)?;
    receive(&ours).ok_or_else(|| Error::denied("fusermount3 mounted, but passed no device back", target.display()))
}

pub fn unmount(target: &Path, lazy: bool) -> Result<()> {
    let mut command = Command::new(PROGRAM);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(target);
    run(&mut command, target)
}

fn options(wanted: &Wanted<'_>) -> String {
    let other = if wanted.allow_other { ",allow_other" } else { "" };
    // The list is split at commas unless they are escaped.
    let url = wanted.url.replace('\\', "\\\\").replace(',', "\\,");
    format!("ro,nosuid,nodev,default_permissions,subtype={SUBTYPE},fsname={url}{other}")
}

fn run(command: &mut Command, target: &Path) -> Result<()> {
    let done = command.output().map_err(|error| {
        Error::io("running fusermount3", target.display(), &error).hint("install the package fuse3, or run as root")
    })?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(refusal(said.trim().trim_start_matches("fusermount3: "), target))
}

/// It tells by words only.
fn refusal(said: &str, target: &Path) -> Error {
    if said.ends_with("resource busy") {
        return super::unmount::refused_unmount(Errno::BUSY, target);
    }
    let hint = if said.contains("/dev/fuse") {
        "let all users open the device, as distributions do: chmod 666 /dev/fuse; or run as root"
    } else {
        "check that the folder is yours and that you may write into it"
    };
    Error::denied(format!("fusermount3 refused: {said}"), target.display()).hint(hint)
}

fn receive(socket: &OwnedFd) -> Option<Device> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let fds = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    fds?.next().map(Device::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fusermount_says_is_shown_with_advice() {
        let busy = refusal("failed to unmount /data: Device or resource busy", Path::new("/data"));
        assert!(busy.hint.contains("--lazy"), "{busy}");
        let device = refusal("failed to open /dev/fuse: Permission denied", Path::new("/data"));
        assert!(device.hint.contains("chmod"), "{device}");
    }

    #[test]
    fn a_comma_in_the_address_does_not_end_it() {
        let wanted = Wanted { mount_point: Path::new("/data"), url: "s3://bucket/a,b", allow_other: false };
        let expected = "ro,nosuid,nodev,default_permissions,subtype=stoker,fsname=s3://bucket/a\\,b";
        assert_eq!(options(&wanted), expected);
    }
}
