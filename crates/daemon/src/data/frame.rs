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
use tokio::sync::{Semaphore, SemaphorePermit};

/// Length, descriptors, and two bytes that are zero.
pub const HEADER: usize = 8;

/// Descriptors of one frame: one for each item, and one of memory.
pub const DESCRIPTORS_MAX: usize = client::messages::ITEMS_MAX + 1;

/// Each part of a frame that has begun, either way, is over within this time, or the connection is: what it begins with, its turn, and its body.
const WITHIN: Duration = Duration::from_secs(60);

/// Of a body, memory is taken for so much before any of it has come.
const BODY_AT_ONCE: usize = 64 << 10;

/// Memory of long bodies that have come in part, all connections of the node's user together. Those of others have no more by their limits.
const LONG_BODIES_MAX: usize = 64 << 20;

/// A unit of it: permits are counted in 32 bits.
const UNIT: usize = 4 << 10;

/// Room for the long bodies of connections: one that finds none waits for its turn.
pub struct Room(Semaphore);

impl Default for Room {
    fn default() -> Room {
        Room(Semaphore::new(LONG_BODIES_MAX / UNIT))
    }
}

impl Room {
    /// For a body of so many bytes, of which there are no more than all the room.
    async fn take(&self, length: usize) -> Option<SemaphorePermit<'_>> {
        let units = u32::try_from(length.div_ceil(UNIT)).ok().filter(|_| length > BODY_AT_ONCE)?;
        self.0.acquire_many(units).await.ok()
    }
}

/// A frame's body, which takes room until it is dropped.
pub struct Body<'a> {
    pub bytes: Vec<u8>,
    _room: Option<SemaphorePermit<'a>>,
}

/// The next frame's body; `None` once the other side has hung up between two frames. Where there is room to be taken, a long one waits for
/// its turn first.
pub async fn hear<'a>(stream: &mut UnixStream, most: usize, room: Option<&'a Room>) -> Result<Option<Body<'a>>> {
    let mut header = [0; HEADER];
    if stream.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    let length = in_time(async {
        stream.read_exact(&mut header[1..]).await?;
        let [a, b, c, d, descriptors @ ..] = header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > most || descriptors != [0; 4] {
            let what = format!("a frame of {length} bytes, of which {most} are the most");
            return Err(Error::new(ErrorKind::InvalidData, what));
        }
        Ok(length)
    });
    let length = length.await?;
    let room = match room {
        Some(room) => in_time(async { Ok(room.take(length).await) }).await?,
        None => None,
    };
    let body = in_time(async {
        let mut bytes = Vec::with_capacity(length.min(BODY_AT_ONCE));
        let got = (&mut *stream).take(length as u64).read_to_end(&mut bytes).await?;
        if got < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(Body { bytes, _room: room }) }
    });
    body.await.map(Some)
}

async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(WITHIN, work).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
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
    in_time(sending).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    /// The beginning of a frame of so many bytes, and the other side of its connection.
    async fn begun(length: usize) -> (UnixStream, UnixStream) {
        let (mut asking, answering) = UnixStream::pair().expect("two sockets");
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&(length as u32).to_le_bytes());
        asking.write_all(&header).await.expect("it listens");
        (asking, answering)
    }

    #[tokio::test(start_paused = true)]
    async fn long_bodies_take_turns_where_they_would_take_more_than_all_may_and_short_ones_don_t_wait() {
        let (room, half) = (Room::default(), LONG_BODIES_MAX / 2);
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(begun(half).await);
        }
        let mut heard = Vec::new();
        for (_, answering) in &mut all {
            heard.push(Box::pin(hear(answering, half, Some(&room))));
        }
        for _ in 0..3 {
            for one in &mut heard {
                assert!(futures_util::poll!(one.as_mut()).is_pending(), "nothing of its body has come");
            }
            // What was sent is seen to have come.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(room.0.available_permits(), 0, "two of them have all the room");
        let (mut asking, mut answering) = begun(BODY_AT_ONCE).await;
        asking.write_all(&[7; BODY_AT_ONCE]).await.expect("it listens");
        let short = hear(&mut answering, half, Some(&room)).await.expect("it is heard").expect("a body");
        assert_eq!(short.bytes, [7; BODY_AT_ONCE]);
        drop(heard.remove(0));
        assert!(futures_util::poll!(heard[1].as_mut()).is_pending());
        assert_eq!(room.0.available_permits(), 0, "the third has its turn");
        let late = heard.remove(1).await;
        assert_eq!(late.err().map(|error| error.kind()), Some(ErrorKind::TimedOut), "who says no more is let go");
        drop(heard);
        assert_eq!(room.0.available_permits(), LONG_BODIES_MAX / UNIT);
    }
}
