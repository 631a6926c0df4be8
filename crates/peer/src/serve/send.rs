//! What leaves on a connection: frames of those who work for its requests, and blocks that the kernel sends from files.
//!
//! Invariant: as many bytes leave as a frame says, also if a file turns out to be shorter: whoever gets them compares them.

use super::Parts;
use super::answer::Frame;
use super::ready::{Next, Part};
use crate::link::BEAT;
use crate::transport::{Way, unconfirmed};
use crate::wire::Word;
use bytes::Bytes;
use rustix::fs::sendfile;
use rustix::io::{Errno, pread};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Within which some bytes have to leave, of those that wait. How long all of them take is the business of a wire that many
/// share.
const STALLED: Duration = Duration::from_secs(1);

/// Pieces and bytes that are written together, or a little more.
const TOGETHER: (usize, usize) = (64, 256 << 10);

/// A block up to this size is read and written with others; beyond it the kernel sends it from its file.
const READ_MAX: usize = 16 << 10;

/// Times that something is written before it is heard whether the asker has changed his mind.
const WRITES_IN_A_ROW: u32 = 16;

/// Where a file has less than it had.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Write frames; and beats as long as something is worked on, one for each time in which there was mostly nothing to write. So an
/// asker can tell a member that waits from one whose frames don't get through.
pub async fn send(mut way: Box<dyn Way>, frames: mpsc::Receiver<Frame>, parts: &Arc<Parts>) -> io::Result<()> {
    let mut sending = Sending::of(frames, way.socket().is_some());
    let (mut idle, mut since, mut writes) = (Duration::ZERO, parts.lines.now(), 0);
    loop {
        if sending.gather(parts) {
            sending.write(&mut *way).await?;
            writes += 1;
            if writes == WRITES_IN_A_ROW {
                writes = 0;
                tokio::task::yield_now().await;
            }
            continue;
        }
        flush(&mut *way).await?;
        sending.rest();
        let before = parts.lines.now();
        let _ = timeout(BEAT, sending.wait(parts)).await;
        let now = parts.lines.now();
        idle += now - before;
        if now - since >= BEAT {
            if 2 * idle >= now - since && parts.is_busy() {
                sending.add(Frame::of(Word::Beat, 0, Vec::new()));
            }
            (idle, since) = (Duration::ZERO, now);
        }
    }
}

/// What is written next, in the order of its fields.
struct Sending {
    frames: mpsc::Receiver<Frame>,
    /// The end of an answer whose last block has left.
    end: Vec<u8>,
    waiting: Vec<Frame>,
    /// Blocks out of files, with all that belongs to them; at the end what comes before the bytes of `file`.
    read: Vec<u8>,
    /// Whose bytes the kernel sends.
    file: Option<Part>,
    /// What comes after those.
    after: Vec<u8>,
    has_socket: bool,
}

impl Sending {
    fn of(frames: mpsc::Receiver<Frame>, has_socket: bool) -> Sending {
        let (end, waiting, read, file, after) = Default::default();
        Sending { frames, end, waiting, read, file, after, has_socket }
    }

    fn add(&mut self, frame: Frame) {
        self.waiting.push(frame);
    }

    /// Nothing is to be written: no memory is held for it. Members have several connections each, and use them in turns.
    fn rest(&mut self) {
        (self.read, self.after, self.end) = Default::default();
    }

    /// Ends when there may be something to write.
    async fn wait(&mut self, parts: &Parts) {
        tokio::select! {
            biased;
            frame = self.frames.recv() => self.waiting.extend(frame),
            () = parts.ready.came() => {}
        }
    }

    /// What there is at the moment: some of the frames, and one block out of a file or several short ones. False if there is
    /// nothing.
    fn gather(&mut self, parts: &Arc<Parts>) -> bool {
        let (pieces, bytes) = TOGETHER;
        let size = |frame: &Frame| frame.bytes.iter().map(Bytes::len).sum::<usize>();
        let mut waiting: usize = self.waiting.iter().map(size).sum();
        while self.waiting.len() < pieces
            && waiting < bytes
            && let Ok(frame) = self.frames.try_recv()
        {
            waiting += size(&frame);
            self.waiting.push(frame);
        }
        while self.file.is_none() && self.read.len() < bytes {
            match parts.ready.next(parts.lines.now(), &mut self.read, &mut self.after) {
                None => break,
                Some(Next::Away(waiting)) => parts.answer_away(waiting),
                Some(Next::Part(part)) => {
                    parts.lines.figures().served.add(part.length);
                    if self.has_socket && part.length > READ_MAX {
                        self.file = Some(part);
                    } else {
                        read(&part, &mut self.read);
                        self.read.append(&mut self.after);
                    }
                }
            }
        }
        !(self.end.is_empty() && self.waiting.is_empty() && self.read.is_empty())
    }

    async fn write(&mut self, way: &mut dyn Way) -> io::Result<()> {
        let mut pieces = vec![&self.end[..]];
        pieces.extend(self.waiting.iter().flat_map(|frame| frame.bytes.iter().map(|bytes| &bytes[..])));
        pieces.push(&self.read);
        match (&self.file, way.socket()) {
            (Some(part), Some(socket)) => {
                write_more(socket, &pieces).await?;
                send_part(socket, part).await?;
            }
            _ => write_all(way, &pieces).await?,
        }
        self.waiting.clear();
        self.read.clear();
        self.file = None;
        self.end.clear();
        std::mem::swap(&mut self.end, &mut self.after);
        Ok(())
    }
}

/// The bytes of a block out of its file.
fn read(part: &Part, into: &mut Vec<u8>) {
    let end = into.len() + part.length;
    into.reserve(part.length);
    while into.len() < end {
        let at = part.at + (part.length - (end - into.len())) as u64;
        let from = into.len();
        into.resize(end, 0);
        match pread(part.file.file(), &mut into[from..], at) {
            Ok(got @ 1..) => into.truncate(from + got),
            Err(Errno::INTR) => into.truncate(from),
            // What is missing stays zero.
            _ => {}
        }
    }
}

/// Whether an asker takes anything. It has room for what it asks for: one that takes nothing is dead, or out of reach.
struct Watch {
    unconfirmed: Option<u64>,
}

impl Watch {
    /// Nothing could be written for a while. An error if nothing that was written before has left meanwhile.
    fn stalled(&mut self, unconfirmed: Option<u64>) -> io::Result<()> {
        let before = std::mem::replace(&mut self.unconfirmed, unconfirmed);
        match before.zip(unconfirmed) {
            Some((before, now)) if now < before => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::TimedOut, "it takes nothing of what it asked for")),
        }
    }
}

async fn flush(way: &mut dyn Way) -> io::Result<()> {
    let mut watch = Watch { unconfirmed: way.unconfirmed() };
    loop {
        match timeout(STALLED, way.flush()).await {
            Ok(flushed) => return flushed,
            Err(_) => watch.stalled(way.unconfirmed())?,
        }
    }
}

async fn write_all(way: &mut dyn Way, pieces: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    let mut watch = Watch { unconfirmed: way.unconfirmed() };
    while !rest.is_empty() {
        match timeout(STALLED, way.write_vectored(rest)).await {
            Ok(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(wrote) => IoSlice::advance_slices(&mut rest, wrote?),
            Err(_) => watch.stalled(way.unconfirmed())?,
        }
    }
    Ok(())
}

/// What the system takes of a socket's bytes, as soon as it takes some.
async fn some(socket: &TcpStream, mut send: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let mut watch = Watch { unconfirmed: unconfirmed(socket) };
    loop {
        match timeout(STALLED, socket.async_io(Interest::WRITABLE, &mut send)).await {
            Ok(sent) => return sent,
            Err(_) => watch.stalled(unconfirmed(socket))?,
        }
    }
}

/// Pieces of one call: no system takes more (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// Write what has more coming behind it.
async fn write_more(socket: &TcpStream, pieces: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let send = || {
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
            Ok(sendmsg(socket, &rest[..rest.len().min(SLICES_MAX)], &mut SendAncillaryBuffer::default(), flags)?)
        };
        let wrote = some(socket, send).await?;
        IoSlice::advance_slices(&mut rest, wrote);
    }
    Ok(())
}

/// Have the kernel send the bytes of a block from its file.
async fn send_part(socket: &TcpStream, part: &Part) -> io::Result<()> {
    let (mut at, end) = (part.at, part.at + part.length as u64);
    while at < end {
        let left = (end - at) as usize;
        let send = || loop {
            match sendfile(socket.as_fd(), part.file.file(), Some(&mut at), left) {
                Err(Errno::INTR) => {}
                Err(error @ (Errno::AGAIN | Errno::PIPE | Errno::CONNRESET)) => return Err(error.into()),
                sent => return Ok(sent.unwrap_or(0)),
            }
        };
        if some(socket, send).await? == 0 {
            // It is shorter than it was, or the disk fails: whoever gets zeros finds them wrong, and says so.
            let missing = (end - at) as usize;
            let zeros = ZEROS.len().min(missing);
            write_more(socket, &[&ZEROS[..zeros]]).await?;
            at += zeros as u64;
        }
    }
    Ok(())
}
