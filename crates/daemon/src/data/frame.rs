//! What is said on the data socket, as bytes: a length, how many descriptors come with it, and JSON.
//!
//! Invariant: a frame that has begun comes whole within a time, and takes no more memory than what has come of it.

use serde::Serialize;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;

/// Length, descriptors, and two bytes that are zero.
pub const HEADER: usize = 8;

/// Descriptors of one frame: one for each item, and one of memory.
pub const DESCRIPTORS_MAX: usize = client::messages::ITEMS_MAX + 1;

/// A frame that has begun, either way, is over within this time, or the connection is.
const WITHIN: Duration = Duration::from_secs(60);

/// Of a body, memory is taken for so much before any of it has come.
const BODY_AT_ONCE: usize = 64 << 10;

/// The next frame's body; `None` once the other side has hung up between two frames.
pub async fn hear(stream: &mut UnixStream, most: usize) -> Result<Option<Vec<u8>>> {
    let mut header = [0; HEADER];
    if stream.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    let rest = async {
        stream.read_exact(&mut header[1..]).await?;
        let [a, b, c, d, descriptors @ ..] = header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > most || descriptors != [0; 4] {
            let what = format!("a frame of {length} bytes, of which {most} are the most");
            return Err(Error::new(ErrorKind::InvalidData, what));
        }
        let mut body = Vec::with_capacity(length.min(BODY_AT_ONCE));
        let got = (&mut *stream).take(length as u64).read_to_end(&mut body).await?;
        if got < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(body) }
    };
    tokio::time::timeout(WITHIN, rest).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())).map(Some)
}

/// Say something, with descriptors that come with its first byte.
pub async fn say(stream: &mut UnixStream, message: &impl Serialize, lent: &[BorrowedFd<'_>]) -> Result<()> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - HEADER).map_err(|_| ErrorKind::InvalidData)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..6].copy_from_slice(&(lent.len() as u16).to_le_bytes());
    let sending = async {
        let (mut sent, mut lent) = (0, lent);
        while sent < bytes.len() {
            sent += stream.async_io(Interest::WRITABLE, || send(stream, &bytes[sent..], lent)).await?;
            lent = &[];
        }
        Ok(())
    };
    tokio::time::timeout(WITHIN, sending).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

fn send(stream: &UnixStream, bytes: &[u8], lent: &[BorrowedFd<'_>]) -> Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !lent.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(lent)) {
        return Err(Error::new(ErrorKind::InvalidInput, "more descriptors than a frame has room for"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

/// Ends when the other side has hung up, or says something out of turn.
pub async fn hung_up(stream: &UnixStream) {
    use rustix::net::{RecvFlags, recv};
    let look = || recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT).map(drop);
    // Whatever comes while an answer is awaited is the end of it.
    let _ = stream.async_io(Interest::READABLE, || Ok(look()?)).await;
}
