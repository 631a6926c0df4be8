//! Answering other members: what they ask for comes from this node's own tiers, and never from a third member, so that
//! no request travels in circles.
//!
//! In its folder: `guests`, who is connected; `hear`, what each asks; `answer`, what it is answered; `portion`, how much memory that
//! may take; `ready`, what the kernel sends from files; `send`, how all of it leaves.
//!
//! Doesn't hold blocks: whoever gives them has a budget, and takes room for what is on its way. Invariant: an asker that
//! stops reading loses its connection, and with it all that was held for it.

mod answer;
mod guests;
mod hear;
mod portion;
mod ready;
mod send;

use crate::lines::Lines;
use crate::names::Names;
use crate::transport::{Handshake, Listener, Wire};
use crate::uses::Count;
use crate::wire::{Brought, GREETING, Greeting, Manner};
use answer::Frame;
use block::{Address, Blocks, Checksum, Course, Object, Run, Waiting};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use guests::{Guests, Who};
use hear::Asker;
use portion::{Portion, Portions};
use ready::Ready;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

/// Requests of one connection that are answered at a time; more wait unread. An asker keeps to fewer: what it gave up is
/// counted here until its word arrives.
const ANSWERED_MAX: usize = 2 * crate::wire::REQUESTS_MAX;

/// Frames that wait for the wire: each may hold a block.
const FRAMES_WAITING: usize = 4;

/// Within which a stranger has to say who he is.
const GREETED_WITHIN: Duration = Duration::from_secs(2);

/// Pause after a connection could not be taken: the system lacks something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a member gives to others.
pub trait Giver: Send + Sync {
    /// Blocks from wherever this node has them, by the course of the run. Nothing if it doesn't read that
    /// store by those credentials.
    fn fetch(&self, run: Run) -> Option<Blocks>;

    /// The file that has all blocks of a run, if it is open: the kernel sends them from there, if nobody has to wait for the disk.
    fn open(&self, run: &Run) -> Option<Arc<dyn Opened>>;

    /// Bytes of memory that may be on their way to others: fetched for them, and as much again lent from readers.
    fn given_bytes(&self) -> u64;

    /// The course of a run that is asked for in this manner.
    fn course(&self, manner: Manner) -> Course;

    /// The same, of what nobody keeps and several read at once: it is in memory for a while for all of them.
    fn shared(&self, run: Run) -> Option<Blocks>;

    /// The same from its disk alone.
    fn held(&self, run: Run) -> Option<Blocks>;

    /// The same from the memory of its readers alone; ends with an error at the first block that is not there, or is waited
    /// for by a reader whom the owner counts as an asker after this one.
    fn lent(&self, run: Run, ticket: u64) -> Option<Blocks>;

    /// What the truth says about all bytes of an object. Nothing if it doesn't read that store.
    fn checksum(&self, object: &Arc<Object>) -> Option<Waiting<Option<Checksum>>>;

    /// Have the stripe of a block on this node's disk, for nobody in particular; in which manner: compare what lies there already, or
    /// only drop what lies there of the object. Nothing if it doesn't read that store.
    fn bring(&self, address: Address, manner: Manner) -> Option<Waiting<Brought>>;

    /// Whether a block lies here, or would be kept for whoever asks.
    fn room(&self, address: &Address, asker: For) -> Room;

    /// Readers of other members have use of this.
    fn used(&self, uses: Vec<Count>);

    /// Bytes that would be kept, and that are.
    fn room_bytes(&self) -> (u64, u64);

    /// Bytes of what is probably not read any more, and gives way to what owners have no room for and readers want.
    fn stale_bytes(&self) -> u64;

    /// What this node has of the names of a set.
    fn names(&self, set: u128) -> Names;

    /// Bytes of a snapshot from this place on, [`crate::PIECE_BYTES`] at most; none if it is not to be had any more.
    fn piece(&self, set: u128, id: u128, offset: u64) -> BoxFuture<'static, Bytes>;

    /// Another member has newer names of this set.
    fn news(&self, set: u128);
}

/// A file that has blocks whose checksums are known. It is not read before it is sent: whoever gets the blocks compares
/// them.
pub trait Opened: Send + Sync {
    fn file(&self) -> BorrowedFd<'_>;

    /// Where a block begins in the file.
    fn place(&self, address: &Address) -> u64;

    /// The checksums of a block.
    fn sums(&self, address: &Address) -> &[u64];

    /// Whether a block lies in memory of the kernel, so that sending it waits for no disk.
    fn is_at_hand(&self, address: &Address) -> bool;
}

/// Whether a node has room for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It lies there, or its stripe does in part.
    Here,
    /// There is some that nobody uses.
    Free,
    /// There is some once copies give way, or what no data set lists, or what readers want less.
    Yielded,
    /// There is none, but readers asked for it often enough for something else to give way, if there is anything.
    Wanted,
    Full,
}

impl Room {
    /// Whether what is fetched now is kept.
    pub fn keeps(self) -> bool {
        matches!(self, Room::Here | Room::Free | Room::Yielded)
    }

    /// Whether the owner of a block, or who stands in for it, takes it now. What somebody keeps already (`is_kept`) has use of room that
    /// nobody uses, and displaces nothing: others may be about to come for that.
    pub(crate) fn takes(self, is_kept: impl FnOnce() -> bool) -> bool {
        self.keeps() && (self != Room::Yielded || !is_kept())
    }
}

/// For whom room is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Nobody in particular: nothing gives way for it but copies, and what no data set lists.
    Nobody,
    /// A reader, for whom others give way on evidence.
    Reader,
    /// The reader of an owner that has no room, and says that readers want it: what is read no more gives way.
    Owner,
}

/// What all connections share.
#[derive(Clone)]
struct Desk {
    giver: Arc<dyn Giver>,
    lines: Lines,
    guests: Guests,
    portions: Arc<Portions>,
}

/// Answer whoever connects, for as long as the task lives.
pub async fn serve(mut listener: Box<dyn Listener>, giver: Arc<dyn Giver>, lines: Lines) {
    let portions = Arc::new(Portions::of(giver.given_bytes()));
    let desk = Desk { giver, lines, guests: Guests::default(), portions };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        match listener.accept().await {
            Ok(handshake) => {
                let desk = desk.clone();
                connections.spawn(async move {
                    if let Err(error) = connection(handshake, desk).await {
                        tracing::debug!("a connection of another member ended: {error}");
                    }
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
async fn connection(handshake: Handshake, desk: Desk) -> io::Result<()> {
    let mut stranger = desk.guests.enter(Who::Stranger);
    let (wire, from) = tokio::select! {
        greeted = greet(handshake, &desk.lines) => greeted?,
        () = stranger.replaced() => return Err(wrong("too many others came who don't say who they are")),
    };
    let is_known = desk.lines.roster().seat(from).is_some();
    let mut guest = desk.guests.enter(if is_known { Who::Member(from) } else { Who::Unknown });
    drop(stranger);
    desk.lines.knocks(from, guest.is_alone());
    let (frames, sending) = mpsc::channel(FRAMES_WAITING);
    let (running, requests, ready) = (Default::default(), Arc::new(Semaphore::new(ANSWERED_MAX)), Default::default());
    let (Desk { giver, lines, .. }, portion) = (desk.clone(), desk.portions.portion(from));
    let work = Arc::new(Parts { from, giver, lines, frames, running, requests, portion, ready });
    let (asker, _end) = (Asker(work.clone()), End(work.clone()));
    // What is to be sent comes first: it is bounded by what was heard.
    tokio::select! {
        biased;
        sent = send::send(wire.write, sending, &work) => sent,
        heard = asker.hear(wire.read) => heard,
        () = guest.replaced() => Err(wrong("it has connected too often since")),
    }
}

/// Hear who connects, and say who is here.
async fn greet(handshake: Handshake, lines: &Lines) -> io::Result<(Wire, u128)> {
    let me = lines.roster().me();
    let mut wire = tokio::time::timeout(GREETED_WITHIN, handshake).await??;
    let mut bytes = [0; GREETING];
    tokio::time::timeout(GREETED_WITHIN, wire.read.read_exact(&mut bytes)).await??;
    let greeting = Greeting::decode(&bytes).ok_or_else(|| wrong("this is no member, or one of another version"))?;
    wire.write.write_all(&Greeting { from: me, to: greeting.from }.encode()).await?;
    wire.write.flush().await?;
    if greeting.to != me {
        return Err(wrong("another member was meant"));
    }
    if !(wire.is_member)(greeting.from) {
        return Err(wrong("it says that it is a member that its certificate is not of"));
    }
    Ok((wire, greeting.from))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What is done for one connection.
struct Parts {
    /// Who asks, by its own word where nothing is encrypted.
    from: u128,
    giver: Arc<dyn Giver>,
    lines: Lines,
    frames: mpsc::Sender<Frame>,
    /// Requests that are being answered, by number, and their courses.
    running: Mutex<BTreeMap<u32, (AbortHandle, Course)>>,
    requests: Arc<Semaphore>,
    portion: Arc<Portion>,
    /// Requests whose blocks lie ready in files.
    ready: Ready,
}

impl Parts {
    fn running(&self) -> MutexGuard<'_, BTreeMap<u32, (AbortHandle, Course)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is worked on.
    fn is_busy(&self) -> bool {
        !self.running().is_empty()
    }
}

/// The connection has ended: nobody works for it any more.
struct End(Arc<Parts>);

impl Drop for End {
    fn drop(&mut self) {
        let running = std::mem::take(&mut *self.0.running());
        running.into_values().for_each(|(task, _)| task.abort());
    }
}
