//! A session driven by hand, as kernels drive it that this machine does not have.

use super::*;
use crate::abi::{init, opcode, open};
use block::Result;
use bytes::Bytes;
use node::namespace::{Attributes, Content, Opening, ROOT, Reading};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// One file that is larger than what is fetched whole.
struct OneFile;

const FILE: u64 = 2;
const SIZE: u64 = 3 << 20;

impl Namespace for OneFile {
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<Attributes> {
        (parent == ROOT && name == b"file").then(|| self.attributes(FILE)).flatten()
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        let folder = node == ROOT;
        Some(Attributes { node, folder, size: if folder { 0 } else { SIZE }, modified_ns: 0, folders: 0 })
    }

    fn list(&self, _: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        if from == 0 {
            each(1, b"file", self.attributes(FILE).expect("it is there"));
        }
        true
    }

    fn remember(&self, _: u64, _: i64) {}

    fn open(&self, _: u64) -> Opening {
        Opening::Ready(Ok(Arc::new(Streamed)))
    }
}

struct Streamed;

impl Content for Streamed {
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read(&self, _: u64, length: u32) -> Reading {
        Reading::Ready(Ok(vec![Bytes::from(vec![7; length as usize])]))
    }
}

/// The kernel's end of the device.
struct Kernel {
    device: OwnedFd,
    unique: u64,
}

impl Kernel {
    /// Ask something; the errno or the body of the answer.
    fn ask(&mut self, code: u32, node: u64, body: &[u8]) -> std::result::Result<Vec<u8>, i32> {
        self.unique += 2;
        let mut request = Vec::new();
        request.extend_from_slice(&((40 + body.len()) as u32).to_ne_bytes());
        request.extend_from_slice(&code.to_ne_bytes());
        request.extend_from_slice(&self.unique.to_ne_bytes());
        request.extend_from_slice(&node.to_ne_bytes());
        [0, 0, 4321, 0_u32].iter().for_each(|word| request.extend_from_slice(&word.to_ne_bytes()));
        request.extend_from_slice(body);
        rustix::io::write(&self.device, &request).expect("the session listens");
        let mut answer = vec![0; 256 << 10];
        let length = rustix::io::read(&self.device, &mut answer).expect("an answer");
        answer.truncate(length);
        assert_eq!(word(&answer, 0) as usize, length, "an answer begins with its length");
        assert_eq!(answer[8..16], self.unique.to_ne_bytes());
        match word(&answer, 4).cast_signed() {
            0 => Ok(answer.split_off(16)),
            errno => Err(-errno),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// What comes of a handshake: the session, the kernel, and what it was answered.
struct Greeted {
    session: Result<Session>,
    kernel: Kernel,
    agreed: std::result::Result<Vec<u8>, i32>,
    runtime: tokio::runtime::Runtime,
}

/// A kernel of this level greets, offering these flags.
fn greet(minor: u32, offer: u64) -> Greeted {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("two sockets");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread");
    let kernel = std::thread::spawn(move || {
        let mut kernel = Kernel { device: theirs, unique: 0 };
        let mut body = words(&[7, minor, 128 << 10, offer as u32]);
        if offer & init::EXT != 0 {
            body.extend_from_slice(&words(&[(offer >> 32) as u32]));
            body.extend_from_slice(&[0; 44]);
        }
        let agreed = kernel.ask(opcode::INIT, 0, &body);
        (kernel, agreed)
    });
    let options = Options::new("nowhere", "memory:test");
    let session = Session::over(
        Device::from(ours),
        mounting::MountPoint::nowhere(),
        &options,
        Arc::new(OneFile),
        runtime.handle().clone(),
    );
    let (kernel, agreed) = kernel.join().expect("no panic");
    Greeted { session, kernel, agreed, runtime }
}

/// What Linux 5.15 offers: bits 0 to 29 but for those that came and went, and no second word.
const OFFER_5_15: u64 = 0x3fff_ffff;
/// What Linux 6.1 offers beside it: the second word, with security contexts and DAX of single files.
const OFFER_6_1: u64 = OFFER_5_15 | init::EXT | 1 << 32 | 1 << 33;
/// What came later, as far as we use it.
const OFFER_6_18: u64 = OFFER_6_1 | init::DIRECT_IO_ALLOW_MMAP | init::NO_EXPORT_SUPPORT;

#[test]
fn kernels_5_15_and_6_1_get_a_handshake_and_answers_that_they_know() {
    for (minor, offer, direct) in [
        (31, OFFER_5_15, false),
        (34, OFFER_5_15, false),
        (37, OFFER_6_1, false),
        (38, OFFER_6_1, false),
        (45, OFFER_6_18, true),
    ] {
        let Greeted { session, mut kernel, agreed, runtime } = greet(minor, offer);
        let (session, agreed) = (session.expect("it serves"), agreed.expect("it agrees"));
        assert_eq!((agreed.len(), word(&agreed, 0), word(&agreed, 4)), (64, 7, minor));
        let flags = u64::from(word(&agreed, 12)) | u64::from(word(&agreed, 32)) << 32;
        assert_eq!(flags & !offer, 0, "nothing is taken that was not offered");
        let needed = init::ASYNC_READ | init::PARALLEL_DIROPS | init::MAX_PAGES | init::DO_READDIRPLUS;
        assert_eq!(flags & needed, needed);
        assert_eq!((flags & init::EXT, word(&agreed, 32) > 0), (offer & init::EXT, direct), "level 7.{minor}");
        assert_eq!(word(&agreed, 28) & 0xffff, u32::from(abi::MAX_PAGES));

        let entry = kernel.ask(opcode::LOOKUP, ROOT, b"file\0").expect("it is there");
        assert_eq!((entry.len(), &entry[..8]), (128, &FILE.to_ne_bytes()[..]));
        assert_eq!(kernel.ask(opcode::LOOKUP, ROOT, &[&[b'n'; 256][..], b"\0"].concat()), Err(36));
        let opened = kernel.ask(opcode::OPEN, FILE, &words(&[0, 0])).expect("it opens");
        let mode = word(&opened, 8) & (open::DIRECT_IO | open::KEEP_CACHE | open::PASSTHROUGH);
        // Without the right to map it, a file read past the page cache could not be mapped shared.
        let expected = if direct { open::DIRECT_IO | open::KEEP_CACHE } else { open::KEEP_CACHE };
        assert_eq!(mode, expected, "level 7.{minor}");
        assert_eq!(kernel.ask(25, FILE, &[0; 24]), Err(38), "no close asks us, also before there is a flag for that");
        let read = [&opened[..8], &1000_u64.to_ne_bytes(), &words(&[5000, 0]), &[0; 16]].concat();
        assert_eq!(kernel.ask(opcode::READ, FILE, &read), Ok(vec![7; 5000]));

        let folder = kernel.ask(opcode::OPENDIR, ROOT, &words(&[0, 0])).expect("it opens");
        let list = [&folder[..8], &[0; 8], &words(&[4096, 0]), &[0; 16]].concat();
        let listed = kernel.ask(opcode::READDIR, ROOT, &list).expect("a listing");
        assert_eq!(listed.len(), 32 + 32 + 32, "the dots and a file");
        let listed = kernel.ask(opcode::READDIRPLUS, ROOT, &list).expect("a listing");
        assert_eq!(listed.len(), 3 * (128 + 32));
        assert_eq!(kernel.ask(opcode::RELEASEDIR, ROOT, &[&folder[..8], &[0; 16]].concat()), Ok(vec![]));
        let space = kernel.ask(opcode::STATFS, ROOT, b"").expect("an answer");
        assert_eq!((space.len(), word(&space, 44)), (80, 255));
        drop(kernel);
        session.wait();
        drop((session, runtime));
    }
}

#[test]
fn the_kernel_may_believe_for_one_second_that_a_name_is_not_there() {
    let Greeted { session, mut kernel, runtime, .. } = greet(45, OFFER_6_18);
    let absent = kernel.ask(opcode::LOOKUP, ROOT, b"late\0").expect("an entry without a node");
    // Node, generation, then seconds for the name and the attributes, and the nanoseconds of both.
    let long = |at: usize| u64::from_ne_bytes(absent[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!((absent.len(), [0, 8, 16, 24, 32].map(long)), (128, [0, 0, 1, 0, 0]));
    drop(kernel);
    session.expect("it serves").wait();
    drop(runtime);
}

#[test]
fn a_kernel_that_is_too_old_is_refused_with_advice() {
    let Greeted { session, agreed, .. } = greet(30, OFFER_5_15);
    assert_eq!(agreed, Err(71), "EPROTO");
    let refused = session.err().expect("it can't serve");
    assert!(refused.what.contains("too old") && refused.hint.contains("5.6"), "{refused}");
}

#[test]
fn the_end_of_a_mount_may_ask_whether_it_has_ended() {
    let alive = Alive::default();
    *alive.threads() = 2;
    alive.leave(|| panic!("another thread serves"));
    let mut seen = None;
    alive.leave(|| seen = alive.threads.try_lock().ok().map(|threads| *threads));
    assert_eq!((seen, *alive.threads()), (Some(1), 0));
    alive.wait();
}
