//! `/dev/fuse`: one descriptor that requests are read from and answers are written to, and the three
//! control calls that we use. It does not know what a request means.
//!
//! Invariant: an answer goes to the descriptor that its request was read from, because the kernel looks
//! for it nowhere else; hence whoever owes an answer holds its [`Device`].

use crate::abi::reply::HEADER_BYTES;
use crate::abi::{REQUEST_BYTES_MAX, Reply};
use bytes::Bytes;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};
use std::io::IoSlice;
use std::os::raw::c_void;
use std::path::Path;

pub const DEVICE: &str = "/dev/fuse";

/// Names a registered backing file to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackingId(pub u32);

/// One descriptor of the session.
pub struct Device {
    fd: OwnedFd,
}

/// The kernel waits for this answer no longer: the request was given up or the mount is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// A buffer for requests. On a page boundary, so that the kernel maps as few pages as can be.
#[repr(C, align(4096))]
pub struct Buffer([u8; REQUEST_BYTES_MAX]);

impl Buffer {
    pub fn new() -> Box<Buffer> {
        Box::new(Buffer([0; REQUEST_BYTES_MAX]))
    }
}

impl Device {
    pub fn open() -> Result<Device, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(Path::new(DEVICE), flags, Mode::empty()).map(Device::from)
    }

    /// A further descriptor of the same session, with a queue of its own.
    pub fn again(&self) -> Result<Device, Errno> {
        let twin = Device::open()?;
        let number = self.fd.as_raw_fd().cast_unsigned();
        // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, the number of a descriptor, and writes nothing.
        unsafe { ioctl(&twin.fd, Setter::<CLONE, u32>::new(number))? };
        Ok(twin)
    }

    /// The next request. `None`: nothing this time, ask again.
    pub fn read<'a>(&self, buffer: &'a mut Buffer) -> Result<Option<&'a [u8]>, Errno> {
        match rustix::io::read(&self.fd, &mut buffer.0) {
            // The device never gives nothing; a socket in its place does when the other side has closed.
            Ok(0) => Err(Errno::NODEV),
            Ok(length) => Ok(Some(&buffer.0[..length])),
            // ENOENT: the request was given up between being queued and being read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next request that is there already. `None`: nobody asks anything at the moment.
    pub fn read_now<'a>(&self, buffer: &'a mut Buffer) -> Result<Option<&'a [u8]>, Errno> {
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        rustix::fs::fcntl_setfl(&self.fd, flags | OFlags::NONBLOCK)?;
        let read = loop {
            match rustix::io::read(&self.fd, &mut buffer.0) {
                Err(Errno::INTR | Errno::NOENT) => {}
                read => break read,
            }
        };
        rustix::fs::fcntl_setfl(&self.fd, flags - OFlags::NONBLOCK)?;
        match read {
            Ok(0) => Err(Errno::NODEV),
            Ok(length) => Ok(Some(&buffer.0[..length])),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Answer with an errno.
    pub fn fail(&self, unique: u64, errno: Errno) -> Result<(), Gone> {
        self.send(&mut Reply::new(unique, -errno.raw_os_error()))
    }

    pub fn send(&self, reply: &mut Reply) -> Result<(), Gone> {
        self.write(reply.seal()).map_err(|_| Gone)
    }

    /// Bytes that already begin with a header.
    pub fn write(&self, message: &[u8]) -> Result<(), Errno> {
        rustix::io::write(&self.fd, message).map(drop)
    }

    /// Answer with content, without gathering its pieces unless they are too many for one call.
    pub fn send_pieces(&self, unique: u64, pieces: &[Bytes]) -> Result<(), Gone> {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&((HEADER_BYTES + length) as u32).to_ne_bytes());
        header[8..].copy_from_slice(&unique.to_ne_bytes());
        let sent = match pieces {
            [] => rustix::io::write(&self.fd, &header),
            [piece] => rustix::io::writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(piece)]),
            pieces if pieces.len() < IOV_MAX => {
                let pieces = pieces.iter().map(|piece| IoSlice::new(piece));
                let slices: Vec<IoSlice<'_>> = std::iter::once(IoSlice::new(&header)).chain(pieces).collect();
                rustix::io::writev(&self.fd, &slices)
            }
            pieces => {
                let whole = pieces.concat();
                rustix::io::writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(&whole)])
            }
        };
        sent.map(drop).map_err(|_| Gone)
    }

    /// Tell the kernel of a file that opens may pass through to.
    pub fn register(&self, file: BorrowedFd<'_>) -> Result<BackingId, Errno> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: `Register` passes a `fuse_backing_map`, as FUSE_DEV_IOC_BACKING_OPEN wants.
        unsafe { ioctl(&self.fd, Register(map)) }
    }

    /// Let go of a file; opens that pass through to it go on.
    pub fn unregister(&self, id: BackingId) {
        // SAFETY: FUSE_DEV_IOC_BACKING_CLOSE reads one u32, the number to close, and writes nothing.
        let closed = unsafe { ioctl(&self.fd, Setter::<BACKING_CLOSE, u32>::new(id.0)) };
        if let Err(error) = closed {
            tracing::debug!("closing backing file {}: {error}", id.0);
        }
    }
}

impl From<OwnedFd> for Device {
    fn from(fd: OwnedFd) -> Device {
        Device { fd }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Slices in one `writev`, a limit of Linux (UIO_MAXIOV).
const IOV_MAX: usize = 1024;

const MAGIC: u8 = 229;
const CLONE: Opcode = opcode::read::<u32>(MAGIC, 0);
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(MAGIC, 1);
const BACKING_CLOSE: Opcode = opcode::write::<u32>(MAGIC, 2);
const _: () = assert!(CLONE == 0x8004_e500 && BACKING_OPEN == 0x4010_e501 && BACKING_CLOSE == 0x4004_e502);

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

struct Register(BackingMap);

// SAFETY: the pointer is to a `fuse_backing_map`, which the call only reads; its outcome is its return value.
unsafe impl Ioctl for Register {
    type Output = BackingId;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<BackingId> {
        u32::try_from(out).map(BackingId).map_err(|_| Errno::INVAL)
    }
}
