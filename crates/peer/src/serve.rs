//! Answering other members: what they ask for comes from this node's own tiers, and never from a third member, so that
//! no request travels in circles.
//!
//! Doesn't hold blocks: whoever gives them has a budget, and takes room for what is on its way. Invariant: an asker that
//! stops reading loses its connection, and with it all that was held for it.

use crate::figures::Figures;
use crate::link::{BEAT, write_all};
use crate::transport::{Listener, Wire};
use crate::wire::{self, Failure, GREETING, Greeting, HEADER, Header, REQUEST_BYTES_MAX, Wish, Word};
use block::{Block, Blocks, Run};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;

/// Connections at a time: a few of each member.
const CONNECTIONS_MAX: usize = 8192;

/// Requests of one connection that are answered at a time; more wait unread.
const REQUESTS_MAX: usize = 256;

/// Frames that wait for the wire: each may hold a block.
const FRAMES_WAITING: usize = 4;

/// Within which a frame has to leave.
const STALLED: Duration = Duration::from_secs(1);

/// Within which a stranger has to say who he is.
const GREETED_WITHIN: Duration = Duration::from_secs(2);

/// Pause after a connection could not be taken: the system lacks something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a member gives to others.
pub trait Giver: Send + Sync {
    /// Blocks from wherever this node has them; urgent ones a reader waits for. Nothing if it doesn't read that store by
    /// those credentials.
    fn fetch(&self, run: Run, is_urgent: bool) -> Option<Blocks>;

    /// The same from its disk alone.
    fn held(&self, run: Run) -> Option<Blocks>;
}

/// Answer whoever connects, for as long as the task lives.
pub async fn serve(mut listener: Box<dyn Listener>, me: u128, giver: Arc<dyn Giver>, figures: Arc<Figures>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let place = room.clone().acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok(wire) => {
                let (giver, figures) = (giver.clone(), figures.clone());
                connections.spawn(async move {
                    if let Err(error) = connection(wire, me, giver, figures).await {
                        tracing::debug!("a connection of another member ended: {error}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!("a connection could not be taken: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

/// One asker.
async fn connection(wire: Wire, me: u128, giver: Arc<dyn Giver>, figures: Arc<Figures>) -> io::Result<()> {
    let Wire { mut read, mut write } = wire;
    let mut bytes = [0; GREETING];
    tokio::time::timeout(GREETED_WITHIN, read.read_exact(&mut bytes)).await??;
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let greeting = Greeting::decode(&bytes).ok_or_else(|| wrong("this is no member, or one of another version"))?;
    write.write_all(&Greeting { from: me, to: greeting.from }.encode()).await?;
    write.flush().await?;
    if greeting.to != me {
        return Err(wrong("another member was meant"));
    }
    let (frames, sending) = mpsc::channel(FRAMES_WAITING);
    let (running, requests) = (Default::default(), Arc::new(Semaphore::new(REQUESTS_MAX)));
    let asker = Asker(Arc::new(Parts { giver, frames, running, requests, figures }));
    let work = asker.0.clone();
    let _end = End(asker.0.clone());
    tokio::select! {
        heard = asker.hear(read) => heard,
        sent = send(write, sending, &work) => sent,
    }
}

struct Asker(Arc<Parts>);

struct Parts {
    giver: Arc<dyn Giver>,
    frames: mpsc::Sender<Frame>,
    /// Requests that are being answered, by number.
    running: Mutex<HashMap<u32, AbortHandle>>,
    requests: Arc<Semaphore>,
    figures: Arc<Figures>,
}

impl Parts {
    fn running(&self) -> MutexGuard<'_, HashMap<u32, AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection has ended: nobody works for it any more.
struct End(Arc<Parts>);

impl Drop for End {
    fn drop(&mut self) {
        let running = std::mem::take(&mut *self.0.running());
        running.into_values().for_each(|task| task.abort());
    }
}

impl Asker {
    /// Read requests until the asker leaves.
    async fn hear(&self, read: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut read = BufReader::new(read);
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        loop {
            let mut head = [0; HEADER];
            match read.read_exact(&mut head).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            };
            let header = Header::decode(&head, REQUEST_BYTES_MAX).ok_or_else(|| wrong("a request makes no sense"))?;
            let mut payload = vec![0; header.length as usize];
            read.read_exact(&mut payload).await?;
            match header.word {
                Word::Fetch | Word::Held => {
                    let wish = Wish::decode(&payload).ok_or_else(|| wrong("a request makes no sense"))?;
                    let turn = self.0.requests.clone().acquire_owned().await.expect("it is never closed");
                    self.answer(header, wish, turn);
                }
                Word::Cancel => {
                    let task = self.0.running().remove(&header.request);
                    task.inspect(AbortHandle::abort);
                }
                _ => return Err(wrong("an answer came as a request")),
            }
        }
    }

    fn answer(&self, header: Header, wish: Wish, turn: OwnedSemaphorePermit) {
        let parts = self.0.clone();
        let mut running = self.0.running();
        let task = tokio::spawn(async move {
            let request = header.request;
            // Taken off the list when it ends, however it ends.
            let _done = Done(parts.clone(), request);
            answer(&parts, header, wish).await;
            drop(turn);
        });
        if let Some(same) = running.insert(header.request, task.abort_handle()) {
            same.abort();
        }
    }
}

struct Done(Arc<Parts>, u32);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.running().remove(&self.1);
    }
}

/// What is written next. It holds on to its block, and with it to a share of a budget, until it was written.
struct Frame {
    bytes: Vec<Bytes>,
    _block: Option<Block>,
}

impl Frame {
    fn of(word: Word, request: u32, payload: Vec<u8>) -> Frame {
        Frame { bytes: wire::frame(word, request, payload), _block: None }
    }
}

/// Send the blocks of a run as they come.
async fn answer(parts: &Parts, header: Header, wish: Wish) {
    let (request, Wish { run, is_urgent }) = (header.request, wish);
    let blocks = match header.word {
        Word::Fetch => parts.giver.fetch(run, is_urgent),
        _ => parts.giver.held(run),
    };
    let last = match blocks {
        Some(blocks) => match send_blocks(parts, request, blocks).await {
            Ok(()) => Frame::of(Word::Done, request, Vec::new()),
            Err(error) => Frame::of(Word::Failed, request, Failure::encode(&error)),
        },
        None => Frame::of(Word::NotMine, request, Vec::new()),
    };
    let _ = parts.frames.send(last).await;
}

async fn send_blocks(parts: &Parts, request: u32, mut blocks: Blocks) -> block::Result<()> {
    while let Some(block) = blocks.next().await {
        let block = block?;
        parts.figures.served.add(block.len());
        let frame = Frame { bytes: wire::block_frame(request, &block), _block: Some(block) };
        // Nobody hears it any more; then this task is ended too.
        let _ = parts.frames.send(frame).await;
    }
    Ok(())
}

/// Write frames; a beat where there is none for a while, as long as something is worked on.
async fn send(mut write: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Frame>, parts: &Parts) -> io::Result<()> {
    loop {
        let frame = match tokio::time::timeout(BEAT, frames.recv()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(_) if parts.running().is_empty() => continue,
            Err(_) => Frame::of(Word::Beat, 0, Vec::new()),
        };
        // An asker has room for what it asks for: one that doesn't read is dead, or out of reach.
        let wrote = async {
            write_all(&mut write, &frame.bytes).await?;
            if frames.is_empty() { write.flush().await } else { Ok(()) }
        };
        tokio::time::timeout(STALLED, wrote).await??;
    }
}
