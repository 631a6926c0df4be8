//! One connection to another member, from the side that asks: many requests on it at once, answered in any order.
//!
//! Doesn't decide whom to ask, or what to do when it fails. Invariants: a block that comes out of here agrees with the
//! checksums that came with it; and nobody waits here for a member that is silent.

use crate::transport::Wire;
use crate::unkept::Loan;
use crate::wire::{self, ANSWER_BYTES_MAX, Failure, GREETING, Greeting, HEADER, Header, REQUESTS_MAX, Wish, Word};
use block::{Address, Block, Error, Object, Proof, Run};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::MissedTickBehavior;

/// How often a member that works on something says that it lives, and how many such times it may be silent before it
/// counts as dead: a dead host tells nobody.
pub const BEAT: Duration = Duration::from_millis(100);
pub const SILENT_BEATS: u32 = 6;

/// A member of which less than so much comes meanwhile, 2 MB/s over all connections to it, is slower than any store: who reads
/// doesn't wait for it. One of its connections may starve for as long where many share a link.
const SLOW_AFTER: Duration = Duration::from_millis(500);
const SLOW_STEPS: u32 = 5;
const SLOW_BYTES: u64 = 1 << 20;

/// As long as so much comes from all members together, 32 MB/s, it is shared by many and none of them is slow.
const SLOW_BYTES_OF_ALL: u64 = 16 << 20;

/// Within which a connection is there, greeting included.
const GREETED_WITHIN: Duration = Duration::from_millis(600);

/// Requests on their way to the writer.
const REQUESTS_WAITING: usize = 64;

/// Headers and short answers are read from this.
const READ_AHEAD: usize = 16 << 10;

/// Why a request brought no more.
#[derive(Clone, Debug)]
pub enum Lost {
    /// The member doesn't read that store by those credentials.
    NotMine,
    /// What the member says of the request: it lives.
    Failed(Error),
    /// A block differs from the checksums that came with it.
    Damaged(Error),
    /// The member has no room for it, and this one keeps it.
    Elsewhere(u128),
    /// The member has no room for it, and nobody else has; but somebody asked for it just before, or nobody did.
    Lent(Loan),
    /// It doesn't lie there and won't be kept there.
    NotHeld,
    /// The connection broke, or fell silent.
    Broken(Error),
    /// It lives, and is too slow to wait for.
    Slow(Error),
}

impl Lost {
    /// A member lives, and hasn't given what it was asked for in all the time that somebody is patient.
    pub fn gives_nothing(member: &str) -> Lost {
        Lost::Slow(Error::unavailable(GIVES_NOTHING, member))
    }

    /// Whether that is how it was lost.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Lost::Slow(error) if error.what == GIVES_NOTHING)
    }
}

const GIVES_NOTHING: &str = "another member lives and gives nothing";

/// A connection.
#[derive(Clone)]
pub struct Link(Arc<Parts>, mpsc::Sender<Vec<Bytes>>);

/// What the asker and its connection share. The connection ends when nobody can ask on it any more.
struct Parts {
    name: String,
    open: Mutex<Open>,
    /// Requests for blocks that may be under way.
    turns: Arc<Semaphore>,
    is_broken: AtomicBool,
    /// Times that something came, of whatever.
    heard: AtomicU64,
    /// Beats: times that the member had nothing to send.
    beats: AtomicU64,
    came: Came,
}

/// Bytes of payloads that came.
#[derive(Clone, Default)]
pub struct Came {
    /// Over all connections to this member.
    pub here: Arc<AtomicU64>,
    /// From all members.
    pub of_all: Arc<AtomicU64>,
}

#[derive(Default)]
struct Open {
    next: u32,
    asked: BTreeMap<u32, Asked>,
}

/// A request that is not answered to its end.
struct Asked {
    /// None where no block is asked for.
    object: Option<Arc<Object>>,
    left: Range<u32>,
    /// There is room for all of its blocks, so it never waits.
    answers: mpsc::Sender<Heard>,
}

/// A part of an answer.
type Heard = std::result::Result<Said, Lost>;

enum Said {
    Block(Block),
    Words(Bytes),
}

/// The answer to a request, as it comes. Dropped, the request is given up.
pub struct Answer {
    link: Link,
    request: u32,
    left: Range<u32>,
    answers: mpsc::Receiver<Heard>,
    _turn: Option<OwnedSemaphorePermit>,
}

/// Tells that an answer is too slow, for as long as it comes.
pub type Slowness = BoxFuture<'static, Lost>;

impl Link {
    /// Greet whoever is at the other end: it has to be this member.
    pub async fn begin(
        wire: Wire,
        name: &str,
        greeting: Greeting,
        (runtime, came): (&tokio::runtime::Handle, Came),
    ) -> io::Result<Link> {
        let Wire { mut read, mut write, .. } = wire;
        let greeted = async {
            write.write_all(&greeting.encode()).await?;
            write.flush().await?;
            let mut answer = [0; GREETING];
            read.read_exact(&mut answer).await?;
            Ok::<_, io::Error>(answer)
        };
        let answer = tokio::time::timeout(GREETED_WITHIN, greeted).await??;
        if Greeting::decode(&answer).is_none_or(|answer| answer.from != greeting.to) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "another member, or another version, answers there",
            ));
        }
        let (requests, asks) = mpsc::channel(REQUESTS_WAITING);
        let (open, is_broken, heard, beats) = Default::default();
        let (name, turns) = (name.into(), Arc::new(Semaphore::new(REQUESTS_MAX)));
        let parts = Arc::new(Parts { name, open, turns, is_broken, heard, beats, came });
        runtime.spawn(parts.clone().live(read, write, asks));
        Ok(Link(parts, requests))
    }

    /// Ask for the blocks of a run.
    pub async fn ask(&self, word: Word, wish: &Wish) -> std::result::Result<Answer, Lost> {
        let Some(payload) = wish.encode() else { return Err(Lost::NotMine) };
        let Run { object, blocks, .. } = &wish.run;
        self.send(word, payload, Some(object.clone()), blocks.clone()).await
    }

    /// Ask for words.
    pub async fn words(&self, word: Word, payload: Vec<u8>) -> std::result::Result<Bytes, Lost> {
        let mut answer = self.send(word, payload, None, 0..1).await?;
        match answer.hear().await? {
            Said::Words(words) => Ok(words),
            Said::Block(_) => Err(self.0.broken("answered with a block that nobody asked for")),
        }
    }

    async fn send(
        &self,
        word: Word,
        payload: Vec<u8>,
        object: Option<Arc<Object>>,
        left: Range<u32>,
    ) -> std::result::Result<Answer, Lost> {
        let turn = match &object {
            Some(_) => self.0.turns.clone().acquire_owned().await.ok(),
            None => None,
        };
        let (sender, answers) = mpsc::channel(left.len() + 1);
        let request = {
            let mut open = self.0.open();
            // Nobody waits for one that broke before it was asked.
            if self.is_broken() {
                return Err(self.0.broken("is gone"));
            }
            open.next = open.next.wrapping_add(1);
            let request = open.next;
            open.asked.insert(request, Asked { object, left: left.clone(), answers: sender });
            request
        };
        let answer = Answer { link: self.clone(), request, left, answers, _turn: turn };
        let sent = self.1.send(wire::frame(word, request, payload)).await;
        sent.map_err(|_| self.0.broken("is gone"))?;
        Ok(answer)
    }

    pub fn is_broken(&self) -> bool {
        self.0.is_broken.load(Relaxed)
    }
}

impl Parts {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self, what: &str) -> Lost {
        Lost::Broken(Error::unavailable(format!("the connection to another member {what}"), &self.name))
    }

    /// Read, write and listen for silence until one of them ends.
    async fn live(
        self: Arc<Self>,
        read: Box<dyn AsyncRead + Send + Unpin>,
        write: Box<dyn AsyncWrite + Send + Unpin>,
        asks: mpsc::Receiver<Vec<Bytes>>,
    ) {
        // What is to be sent comes first: it is bounded by the turns that there are.
        let what = tokio::select! {
            biased;
            failed = send(write, asks) => failed.map_or_else(|error| format!("broke: {error}"), |()| "was closed".into()),
            failed = self.hear(read) => failed.map_or_else(|error| format!("broke: {error}"), |()| "was closed".into()),
            () = self.fell_silent() => "fell silent".into(),
        };
        let asked = {
            let mut open = self.open();
            self.is_broken.store(true, Relaxed);
            std::mem::take(&mut open.asked)
        };
        for asked in asked.into_values() {
            let _ = asked.answers.try_send(Err(self.broken(&what)));
        }
    }

    /// Ends when nothing came for some beats while something was asked for. Beats of ours: while we don't get to count
    /// them, we don't get to hear either.
    async fn fell_silent(&self) {
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut silent, mut before) = (0, 0);
        while silent <= SILENT_BEATS {
            beat.tick().await;
            let heard = self.heard.load(Relaxed);
            let is_silent = heard == before && !self.open().asked.is_empty();
            (silent, before) = (if is_silent { silent + 1 } else { 0 }, heard);
        }
    }

    /// Read frames until the other side closes.
    async fn hear(&self, read: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut read = BufReader::with_capacity(READ_AHEAD, read);
        loop {
            let mut head = [0; HEADER];
            match read.read_exact(&mut head).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            };
            self.heard.fetch_add(1, Relaxed);
            let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
            let header = Header::decode(&head, ANSWER_BYTES_MAX).ok_or_else(|| wrong("an answer makes no sense"))?;
            let payload = self.payload(&mut read, header.length as usize).await?;
            match header.word {
                Word::Beat => drop(self.beats.fetch_add(1, Relaxed)),
                Word::Block => self.block(&header, payload),
                Word::Done => self.over(header.request, None),
                Word::NotMine => self.over(header.request, Some(Err(Lost::NotMine))),
                Word::NotHeld => self.over(header.request, Some(Err(Lost::NotHeld))),
                Word::Elsewhere => {
                    let member =
                        wire::decode_member(&payload).ok_or_else(|| wrong("a member's name makes no sense"))?;
                    self.over(header.request, Some(Err(Lost::Elsewhere(member))));
                }
                Word::Yours => {
                    let loan = wire::decode_loan(&payload).ok_or_else(|| wrong("a loan makes no sense"))?;
                    self.over(header.request, Some(Err(Lost::Lent(loan))));
                }
                Word::Told => self.over(header.request, Some(Ok(Said::Words(payload)))),
                Word::Failed => {
                    let error = Failure::decode(&payload, &self.on(header.request));
                    let error = error.ok_or_else(|| wrong("a failure makes no sense"))?;
                    self.over(header.request, Some(Err(Lost::Failed(error))));
                }
                Word::Fetch | Word::Held | Word::Cancel | Word::Urge | Word::Used | Word::Sum => {
                    return Err(wrong("a request came as an answer"));
                }
                Word::State | Word::Names | Word::Piece | Word::News | Word::Bring | Word::Kept => {
                    return Err(wrong("a request came as an answer"));
                }
            }
        }
    }

    /// What a request is about.
    fn on(&self, request: u32) -> String {
        let open = self.open();
        let object = open.asked.get(&request).and_then(|asked| asked.object.as_ref());
        object.map_or_else(|| self.name.clone(), |object| object.to_string())
    }

    async fn payload(&self, read: &mut (impl AsyncRead + Unpin), length: usize) -> io::Result<Bytes> {
        let mut payload = BytesMut::with_capacity(length);
        while payload.len() < length {
            let left = (length - payload.len()) as u64;
            match (&mut *read).take(left).read_buf(&mut payload).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                came => {
                    self.came.here.fetch_add(came as u64, Relaxed);
                    self.came.of_all.fetch_add(came as u64, Relaxed);
                }
            }
            self.heard.fetch_add(1, Relaxed);
        }
        Ok(payload.freeze())
    }

    /// A block came: if it is the next one, and right, whoever asked gets it.
    fn block(&self, header: &Header, mut payload: Bytes) {
        let object = {
            let mut open = self.open();
            let Some(asked) = open.asked.get_mut(&header.request) else { return };
            let object = asked.object.clone().filter(|_| asked.left.next() == Some(header.block));
            drop(open);
            let Some(object) = object else {
                return self.over(header.request, Some(Err(self.broken("sent another block than was asked for"))));
            };
            object
        };
        let address = Address { object, index: header.block };
        let sums = wire::sums_bytes(address.len());
        let is_whole = payload.len() == sums + address.len();
        let (sums, bytes) = (payload.split_to(sums.min(payload.len())), payload);
        let damaged =
            || Error::corrupt("a block that another member sent differs from its checksums", &*address.object);
        let block = match is_whole && wire::are_right(&sums, &bytes) {
            true => Block::verified(address.clone(), vec![bytes], Proof::Peer),
            false => Err(damaged()),
        };
        match block {
            Ok(block) => {
                let answers = self.open().asked.get(&header.request).map(|asked| asked.answers.clone());
                let _ = answers.map(|answers| answers.try_send(Ok(Said::Block(block))).is_ok());
            }
            Err(error) => self.over(header.request, Some(Err(Lost::Damaged(error)))),
        }
    }

    /// The end of an answer.
    fn over(&self, request: u32, last: Option<Heard>) {
        let asked = self.open().asked.remove(&request);
        if let Some((asked, last)) = asked.zip(last) {
            let _ = asked.answers.try_send(last);
        }
    }
}

impl Answer {
    /// The next block; nothing after the last.
    pub async fn next(&mut self) -> Option<std::result::Result<Block, Lost>> {
        if self.left.is_empty() {
            return None;
        }
        let got = match self.hear().await {
            Ok(Said::Block(block)) => Ok(block),
            Ok(Said::Words(_)) => Err(self.link.0.broken("answered with words where a block was asked for")),
            Err(lost) => Err(lost),
        };
        self.left.start += 1;
        if let Err(lost) = &got {
            self.left = 0..0;
            // Of an answer that is damaged the rest still comes.
            if matches!(lost, Lost::Damaged(_)) {
                self.cancel();
            }
        }
        Some(got)
    }
}

impl Answer {
    /// The same, unless it is too slow, or gives nothing for as long as anybody waits for a store.
    pub async fn next_unless(
        &mut self,
        slow: &mut Slowness,
        patience: Duration,
    ) -> Option<std::result::Result<Block, Lost>> {
        let link = self.link.clone();
        tokio::select! {
            biased;
            got = self.next() => got,
            lost = slow => Some(Err(lost)),
            () = tokio::time::sleep(patience) => Some(Err(Lost::gives_nothing(&link.0.name))),
        }
    }

    /// Ends when a reader should wait no longer: for a while little came of the member, though it had more to send, and little
    /// of all others. One that has nothing to send waits for its store, as whoever asks instead would.
    pub fn slowness(&self) -> Slowness {
        let link = self.link.0.clone();
        Box::pin(async move {
            let seen = || [&link.beats, &*link.came.here, &*link.came.of_all].map(|count| count.load(Relaxed));
            loop {
                let before = seen();
                // In steps: while we don't get to count them, we don't get to hear either.
                for _ in 0..SLOW_STEPS {
                    tokio::time::sleep(SLOW_AFTER / SLOW_STEPS).await;
                }
                let now = seen();
                let [beats, bytes, of_all] = std::array::from_fn(|at| now[at] - before[at]);
                if beats == 0 && bytes < SLOW_BYTES && of_all < SLOW_BYTES_OF_ALL {
                    let what = "the way to another member is too slow";
                    return Lost::Slow(Error::unavailable(what, &link.name));
                }
            }
        })
    }

    /// Say that a reader waits for it by now. A member that reads nothing may not let it out for as long as it lives.
    pub fn urge(&self) -> impl Future<Output = ()> + use<> {
        let (link, frame) = (self.link.clone(), wire::frame(Word::Urge, self.request, Vec::new()));
        async move { drop(link.1.send(frame).await) }
    }

    /// It lives, and nothing came in all the time that somebody is patient.
    pub fn gives_nothing(&self) -> Lost {
        Lost::gives_nothing(&self.link.0.name)
    }

    /// Nobody wants the rest. Not heard, it is sent in vain, and nobody gets it.
    fn cancel(&self) {
        let _ = self.link.1.try_send(wire::frame(Word::Cancel, self.request, Vec::new()));
    }

    async fn hear(&mut self) -> Heard {
        self.answers.recv().await.unwrap_or_else(|| Err(self.link.0.broken("ended an answer too early")))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let was_open = self.link.0.open().asked.remove(&self.request).is_some();
        if was_open {
            self.cancel();
        }
    }
}

/// Write what is asked until nobody asks any more.
async fn send(mut write: impl AsyncWrite + Unpin, mut asks: mpsc::Receiver<Vec<Bytes>>) -> io::Result<()> {
    while let Some(frame) = asks.recv().await {
        write_all(&mut write, &frame).await?;
        if asks.is_empty() {
            write.flush().await?;
        }
    }
    Ok(())
}

/// Write pieces, as many at once as the system takes.
async fn write_all(write: &mut (impl AsyncWrite + Unpin), pieces: &[impl AsRef<[u8]>]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece.as_ref())).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match write.write_vectored(rest).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            wrote => IoSlice::advance_slices(&mut rest, wrote),
        }
    }
    Ok(())
}
