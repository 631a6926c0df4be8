//! Answering other members: what they ask for comes from this node's own tiers, and never from a third member, so that
//! no request travels in circles.
//!
//! Doesn't hold blocks: whoever gives them has a budget, and takes room for what is on its way. Invariant: an asker that
//! stops reading loses its connection, and with it all that was held for it.

use crate::lines::Lines;
use crate::link::{BEAT, write_all};
use crate::names::Names;
use crate::placement::{Loan, Verdict};
use crate::transport::{Handshake, Listener, Wire};
use crate::uses::{self, Count, Use};
use crate::wire::{
    self, Brought, Failure, GREETING, Greeting, HEADER, Header, Manner, REQUEST_BYTES_MAX, REQUESTS_MAX, State, Wish,
    Word,
};
use block::{Address, Block, Blocks, Checksum, Course, Object, Run, Waiting};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;

/// Connections at a time: a few of each member.
const CONNECTIONS_MAX: usize = 8192;

/// Requests of one connection that are answered at a time; more wait unread. An asker keeps to fewer: what it gave up is
/// counted here until its word arrives.
const ANSWERED_MAX: usize = 2 * REQUESTS_MAX;

/// Frames that wait for the wire: each may hold a block.
const FRAMES_WAITING: usize = 4;

/// Within which a frame has to leave.
const STALLED: Duration = Duration::from_secs(1);

/// Answers from the disk alone that are under way: nobody's budget covers their blocks.
const HELD_AT_ONCE: usize = 16;

/// Within which a stranger has to say who he is.
const GREETED_WITHIN: Duration = Duration::from_secs(2);

/// Pause after a connection could not be taken: the system lacks something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a member gives to others.
pub trait Giver: Send + Sync {
    /// Blocks from wherever this node has them, by the course of the run. Nothing if it doesn't read that
    /// store by those credentials.
    fn fetch(&self, run: Run) -> Option<Blocks>;

    /// The course of a run that is asked for in this manner.
    fn course(&self, manner: Manner) -> Course;

    /// The same from its disk alone.
    fn held(&self, run: Run) -> Option<Blocks>;

    /// The same from the memory of its readers alone; ends with an error at the first block that is not there, or is waited
    /// for by a reader whom the owner counts as an asker after this one.
    fn lent(&self, run: Run, ticket: u64) -> Option<Blocks>;

    /// What the truth says about all bytes of an object. Nothing if it doesn't read that store.
    fn checksum(&self, object: &Arc<Object>) -> Option<Waiting<Option<Checksum>>>;

    /// Have the stripe of a block on this node's disk, for nobody in particular; `verify`: compare what lies there already.
    /// Nothing if it doesn't read that store.
    fn bring(&self, address: Address, verify: bool) -> Option<Waiting<Brought>>;

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

/// Whether a node has room for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It lies there, or its stripe does in part.
    Here,
    Free,
    /// There is none, but readers asked for it often enough for something else to give way, if there is anything.
    Wanted,
    Full,
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

/// Answer whoever connects, for as long as the task lives.
pub async fn serve(mut listener: Box<dyn Listener>, giver: Arc<dyn Giver>, lines: Lines) {
    let (room, held) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(Semaphore::new(HELD_AT_ONCE)));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let place = room.clone().acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok(handshake) => {
                let (giver, lines, held) = (giver.clone(), lines.clone(), held.clone());
                connections.spawn(async move {
                    if let Err(error) = connection(handshake, giver, lines, held).await {
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
async fn connection(handshake: Handshake, giver: Arc<dyn Giver>, lines: Lines, held: Arc<Semaphore>) -> io::Result<()> {
    let me = lines.roster().me();
    let Wire { mut read, mut write, is_member } = tokio::time::timeout(GREETED_WITHIN, handshake).await??;
    let mut bytes = [0; GREETING];
    tokio::time::timeout(GREETED_WITHIN, read.read_exact(&mut bytes)).await??;
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let greeting = Greeting::decode(&bytes).ok_or_else(|| wrong("this is no member, or one of another version"))?;
    write.write_all(&Greeting { from: me, to: greeting.from }.encode()).await?;
    write.flush().await?;
    if greeting.to != me {
        return Err(wrong("another member was meant"));
    }
    if !is_member(greeting.from) {
        return Err(wrong("it says that it is a member that its certificate is not of"));
    }
    lines.knocks(greeting.from);
    let (frames, sending) = mpsc::channel(FRAMES_WAITING);
    let (running, requests) = (Default::default(), Arc::new(Semaphore::new(ANSWERED_MAX)));
    let from = greeting.from;
    let asker = Asker(Arc::new(Parts { from, giver, lines, frames, running, requests, held }));
    let work = asker.0.clone();
    let _end = End(asker.0.clone());
    // What is to be sent comes first: it is bounded by what was heard.
    tokio::select! {
        biased;
        sent = send(write, sending, &work) => sent,
        heard = asker.hear(read) => heard,
    }
}

struct Asker(Arc<Parts>);

struct Parts {
    /// Who asks, by its own word where nothing is encrypted.
    from: u128,
    giver: Arc<dyn Giver>,
    lines: Lines,
    frames: mpsc::Sender<Frame>,
    /// Requests that are being answered, by number, and their courses.
    running: Mutex<BTreeMap<u32, (AbortHandle, Course)>>,
    requests: Arc<Semaphore>,
    held: Arc<Semaphore>,
}

impl Parts {
    fn running(&self) -> MutexGuard<'_, BTreeMap<u32, (AbortHandle, Course)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
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
                Word::Fetch | Word::Held | Word::Sum | Word::Bring => {
                    let wish = Wish::decode(&payload).ok_or_else(|| wrong("a request makes no sense"))?;
                    if self.0.running().contains_key(&header.request) {
                        return Err(wrong("two requests have one number"));
                    }
                    let turn = self.0.requests.clone().acquire_owned().await.expect("it is never closed");
                    let (parts, course) = (self.0.clone(), self.0.giver.course(wish.manner));
                    let wish = Wish { run: Run { course: course.clone(), ..wish.run }, ..wish };
                    self.run(header.request, (turn, course), async move { answer(&parts, header, wish).await });
                }
                Word::State | Word::Kept | Word::Used | Word::Names | Word::News => {
                    let told = self.at_once(header.word, &payload).ok_or_else(|| wrong("a request makes no sense"))?;
                    self.tell(header.request, told).await;
                }
                Word::Piece => {
                    let (set, id, at) = wire::decode_piece(&payload).ok_or_else(|| wrong("a piece makes no sense"))?;
                    let turn = self.0.requests.clone().acquire_owned().await.expect("it is never closed");
                    let (reading, parts) = (self.0.giver.piece(set, id, at), self.0.clone());
                    self.run(header.request, (turn, Course::default()), async move {
                        let told = Frame::of(Word::Told, header.request, reading.await.into());
                        let _ = parts.frames.send(told).await;
                    });
                }
                Word::Cancel => {
                    let task = self.0.running().remove(&header.request);
                    task.inspect(|(task, _)| task.abort());
                }
                Word::Urge => {
                    if let Some((_, course)) = self.0.running().get(&header.request) {
                        course.urge();
                    }
                }
                _ => return Err(wrong("an answer came as a request")),
            }
        }
    }

    /// What takes no time is answered at once; nothing comes back of words that make no sense.
    fn at_once(&self, word: Word, payload: &[u8]) -> Option<Vec<u8>> {
        let Parts { giver, lines, from, .. } = &*self.0;
        match word {
            Word::State => {
                let ((free_bytes, kept_bytes), stale_bytes) = (giver.room_bytes(), giver.stale_bytes());
                return Some(State { free_bytes, kept_bytes, age_ms: lines.age_ms(), stale_bytes }.encode());
            }
            Word::Kept => lines.keeps(*from, &wire::decode_stripes(payload)?),
            Word::Used => {
                let (uses, is_passed_on) = uses::decode_uses(payload)?;
                giver.used(uses.into_iter().map(|used| lines.heard(used, is_passed_on)).collect());
            }
            Word::Names => return Some(giver.names(wire::decode_member(payload)?).encode()),
            _ => giver.news(wire::decode_member(payload)?),
        }
        Some(Vec::new())
    }

    async fn tell(&self, request: u32, words: Vec<u8>) {
        let _ = self.0.frames.send(Frame::of(Word::Told, request, words)).await;
    }

    /// Work for a request, which counts as being answered until that ends.
    fn run(
        &self,
        request: u32,
        (turn, course): (OwnedSemaphorePermit, Course),
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let parts = self.0.clone();
        let mut running = self.0.running();
        let task = tokio::spawn(async move {
            // Taken off the list when it ends, however it ends.
            let _done = Done(parts, request);
            work.await;
            drop(turn);
        });
        if let Some((same, _)) = running.insert(request, (task.abort_handle(), course)) {
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
    let (word, payload) = match header.word {
        Word::Fetch => fetch(parts, header.request, wish).await,
        Word::Held => {
            let _turn = parts.held.acquire().await.expect("it is never closed");
            let first = Address { object: wish.run.object.clone(), index: wish.run.blocks.start };
            match parts.lines.keeper(&first) {
                // It was this node's, and another one keeps it.
                Some(keeper) if parts.giver.room(&first, For::Nobody) != Room::Here => {
                    (Word::Elsewhere, keeper.to_le_bytes().into())
                }
                _ => send_blocks(parts, header.request, parts.giver.held(wish.run)).await,
            }
        }
        Word::Bring => bring(parts, wish).await,
        _ => sum(parts, &wish.run.object).await,
    };
    let _ = parts.frames.send(Frame::of(word, header.request, payload)).await;
}

/// Give what this node has or keeps; of what it has no room for, say who is to be asked.
async fn fetch(parts: &Parts, request: u32, wish: Wish) -> Last {
    if let Some(ticket) = wish.manner.lent {
        return match send_blocks(parts, request, parts.giver.lent(wish.run, ticket)).await {
            (Word::Failed, _) => (Word::NotHeld, Vec::new()),
            last => last,
        };
    }
    if let Some(set_bytes) = wish.manner.opened {
        let used = Use { object: wish.run.object.id(), size: wish.run.object.size, set_bytes, is_new: true };
        parts.giver.used(vec![parts.lines.heard(used, false)]);
    }
    if let Some(elsewhere) = elsewhere(parts, &wish, true) {
        return elsewhere;
    }
    let blocks = parts.giver.fetch(wish.run);
    send_blocks(parts, request, blocks).await
}

/// Bring what this node keeps; of what it has no room for, say who is to.
async fn bring(parts: &Parts, wish: Wish) -> Last {
    if let Some(elsewhere) = elsewhere(parts, &wish, false) {
        return elsewhere;
    }
    let address = Address { object: wish.run.object, index: wish.run.blocks.start };
    match parts.giver.bring(address, wish.manner.verify) {
        None => (Word::NotMine, Vec::new()),
        Some(brought) => match brought.await {
            Ok(brought) => (Word::Told, brought.encode()),
            Err(error) => (Word::Failed, Failure::encode(&error)),
        },
    }
}

/// Who is to be asked for what this node has no room for. `has_memory`: the asker will have it in memory for a while.
fn elsewhere(parts: &Parts, wish: &Wish, has_memory: bool) -> Option<Last> {
    let address = Address { object: wish.run.object.clone(), index: wish.run.blocks.start };
    let room = parts.giver.room(
        &address,
        match (has_memory, wish.manner.for_owner) {
            (false, _) => For::Nobody,
            (true, true) => For::Owner,
            (true, false) => For::Reader,
        },
    );
    if matches!(room, Room::Here | Room::Free) {
        return None;
    }
    if wish.manner.for_owner {
        return Some((Word::NotHeld, Vec::new()));
    }
    Some(match parts.lines.verdict(&address, wish.manner.refused, room == Room::Wanted) {
        Verdict::Yours if !has_memory => (Word::Yours, wire::encode_loan(Loan::none(wish.run.blocks.end))),
        Verdict::Yours => {
            (Word::Yours, wire::encode_loan(parts.lines.lend(&wish.run, parts.from, wish.manner.refused)))
        }
        Verdict::Elsewhere(member) => (Word::Elsewhere, member.to_le_bytes().into()),
    })
}

async fn sum(parts: &Parts, object: &Arc<Object>) -> Last {
    match parts.giver.checksum(object) {
        None => (Word::NotMine, Vec::new()),
        Some(asked) => match asked.await {
            Ok(sum) => (Word::Told, wire::encode_sum(sum)),
            Err(error) => (Word::Failed, Failure::encode(&error)),
        },
    }
}

/// The last frame of an answer.
type Last = (Word, Vec<u8>);

async fn send_blocks(parts: &Parts, request: u32, blocks: Option<Blocks>) -> Last {
    let Some(mut blocks) = blocks else { return (Word::NotMine, Vec::new()) };
    while let Some(block) = blocks.next().await {
        let block = match block {
            Ok(block) => block,
            Err(error) => return (Word::Failed, Failure::encode(&error)),
        };
        parts.lines.figures().served.add(block.len());
        let frame = Frame { bytes: wire::block_frame(request, &block), _block: Some(block) };
        if parts.frames.send(frame).await.is_err() {
            // Nobody hears it any more.
            break;
        }
    }
    (Word::Done, Vec::new())
}

/// Write frames; and beats as long as something is worked on, one for each time in which there was mostly nothing to write. So an
/// asker can tell a member that waits from one whose frames don't get through.
async fn send(mut write: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Frame>, parts: &Parts) -> io::Result<()> {
    let (mut idle, mut since) = (Duration::ZERO, parts.lines.now());
    loop {
        let before = parts.lines.now();
        let frame = match tokio::time::timeout(BEAT, frames.recv()).await {
            Ok(Some(frame)) => Some(frame),
            Ok(None) => return Ok(()),
            Err(_) => None,
        };
        let now = parts.lines.now();
        idle += now - before;
        let mut pieces = Vec::new();
        if now - since >= BEAT {
            if 2 * idle >= now - since && !parts.running().is_empty() {
                pieces.extend(Frame::of(Word::Beat, 0, Vec::new()).bytes);
            }
            (idle, since) = (Duration::ZERO, now);
        }
        pieces.extend(frame.iter().flat_map(|frame| frame.bytes.clone()));
        // An asker has room for what it asks for: one that doesn't read is dead, or out of reach.
        let wrote = async {
            write_all(&mut write, &pieces).await?;
            if frames.is_empty() { write.flush().await } else { Ok(()) }
        };
        tokio::time::timeout(STALLED, wrote).await??;
    }
}
