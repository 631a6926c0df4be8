//! One other member, as this node reaches it: a few connections, opened when they are needed, and what is known of
//! whether it answers.
//!
//! Invariant: a reader waits here for a connection once, and never for a member that is known to be away.

use crate::breaker::{Breaker, How};
use crate::link::{Answer, Came, Link, Lost};
use crate::transport::Transport;
use crate::wire::{self, Greeting, Manner, Wish, Word};
use crate::{Figures, Seat};
use block::{Checksum, Error, Object, Run};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Connections to one member: as many as fill a link of 100 Gb/s with a core each at both ends.
const LINKS: usize = 4;

/// Within which a connection is made.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);

/// Another member.
pub struct Contact {
    pub seat: Seat,
    me: u128,
    transport: Arc<dyn Transport>,
    runtime: tokio::runtime::Handle,
    figures: Arc<Figures>,
    came: Came,
    breaker: Mutex<Breaker>,
    /// Whether it answered when it was last asked how it is, which waits for no store.
    is_well: AtomicBool,
    brought: AtomicU64,
    /// Why it was lost last.
    reason: Mutex<Option<String>>,
    links: [tokio::sync::Mutex<Option<Link>>; LINKS],
    turn: AtomicUsize,
    /// It connected to this node, so it may be back.
    knocked: Notify,
}

impl Contact {
    pub fn new(
        seat: Seat,
        me: u128,
        transport: Arc<dyn Transport>,
        runtime: tokio::runtime::Handle,
        (figures, of_all): (Arc<Figures>, Arc<AtomicU64>),
    ) -> Arc<Contact> {
        let (breaker, is_well, brought, reason, links, turn, knocked) = Default::default();
        let came = Came { of_all, ..Came::default() };
        Arc::new(Contact {
            seat,
            me,
            transport,
            runtime,
            figures,
            came,
            breaker,
            is_well,
            brought,
            reason,
            links,
            turn,
            knocked,
        })
    }

    /// Ask for the blocks of a run. `None` if the member is known to be away.
    pub async fn ask(self: &Arc<Self>, word: Word, wish: &Wish) -> Option<Result<Answer, Lost>> {
        if !self.answers() {
            return None;
        }
        let asked = match self.link().await {
            Ok(link) => link.ask(word, wish).await.inspect_err(|lost| self.lost(lost)),
            // That is noted already.
            Err(error) => Err(Lost::Broken(error)),
        };
        Some(asked)
    }

    /// Ask for words. `None` if the member is known to be away, or doesn't answer with any.
    pub async fn words(self: &Arc<Self>, word: Word, payload: Vec<u8>) -> Option<Bytes> {
        self.say(word, payload).await?.ok()
    }

    /// What the whole of an object is to be compared with. `None` if it doesn't say within `patience`.
    pub async fn sum(self: &Arc<Self>, object: &Arc<Object>, patience: Duration) -> Option<Option<Checksum>> {
        let wish = Wish { run: Run::new(object.clone(), 0..1), manner: Manner::default() };
        let words = tokio::time::timeout(patience, self.words(Word::Sum, wish.encode()?)).await.ok()??;
        wire::decode_sum(&words)
    }

    /// The same as `words`, with what it answered instead. `None` if the member is known to be away.
    pub async fn say(self: &Arc<Self>, word: Word, payload: Vec<u8>) -> Option<Result<Bytes, Lost>> {
        if !self.answers() {
            return None;
        }
        let mut asked = (word == Word::State).then(|| Asked { is_well: &self.is_well, is_answered: false });
        let said = match self.link().await {
            Ok(link) => link.words(word, payload).await.inspect_err(|lost| self.lost(lost)),
            Err(error) => Err(Lost::Broken(error)),
        };
        asked.iter_mut().for_each(|asked| asked.is_answered = said.is_ok());
        Some(said)
    }

    /// A request was lost. What the member said itself is no failure of the member, nor is a store that hangs, as long as
    /// it answers otherwise: what it has of others is to be had of it.
    pub fn lost(self: &Arc<Self>, lost: &Lost) {
        match lost {
            Lost::NotMine => drop(self.figures.not_mine.fetch_add(1, Relaxed)),
            Lost::Failed(_) | Lost::Damaged(_) | Lost::Elsewhere(_) | Lost::Lent(_) | Lost::NotHeld => {}
            Lost::Broken(error) | Lost::Slow(error) => {
                self.figures.broken.fetch_add(1, Relaxed);
                let how = match lost {
                    Lost::Slow(_) if lost.is_nothing() => How::Hung,
                    Lost::Slow(_) => How::Slow,
                    _ => How::Gone,
                };
                self.note(error);
                if lost.is_nothing() && self.is_well.load(Relaxed) {
                    return;
                }
                if self.breaker().failed(how, tokio::time::Instant::now()) {
                    tracing::warn!("another member is passed over until it answers: {error}");
                    let runtime = self.runtime.clone();
                    runtime.spawn(probe(Arc::downgrade(self)));
                }
            }
        }
    }

    /// How often it said what became of a stripe that it was to bring.
    pub fn brought(&self) -> u64 {
        self.brought.load(Relaxed)
    }

    pub fn has_brought(&self) {
        self.brought.fetch_add(1, Relaxed);
    }

    /// It was asked, and gives nothing.
    pub fn gives_nothing(self: &Arc<Self>) -> Lost {
        let lost = Lost::gives_nothing(&self.seat.name);
        self.lost(&lost);
        lost
    }

    /// It connected to this node: if it was away, that is worth a try.
    pub fn knocks(&self) {
        if !self.answers() {
            self.knocked.notify_one();
        }
    }

    /// Whether it answered when it was asked last.
    pub fn answers(&self) -> bool {
        !self.breaker().is_open()
    }

    /// Why it doesn't answer, if it doesn't.
    pub fn reason(&self) -> Option<String> {
        if self.answers() { None } else { self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }

    fn note(&self, error: &Error) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.what.clone());
    }

    /// A connection that lives, each in its turn.
    async fn link(self: &Arc<Self>) -> block::Result<Link> {
        let turn = self.turn.fetch_add(1, Relaxed) % LINKS;
        let mut place = self.links[turn].lock().await;
        if let Some(link) = place.as_ref().filter(|link| !link.is_broken()) {
            return Ok(link.clone());
        }
        *place = None;
        if !self.answers() {
            // Others tried while this one stood in line.
            return Err(Error::unavailable("another member can't be reached", &self.seat.name));
        }
        let link = self.connect().await.inspect_err(|error| self.lost(&Lost::Broken(error.clone())))?;
        *place = Some(link.clone());
        Ok(link)
    }

    async fn connect(&self) -> block::Result<Link> {
        let failed = |error: std::io::Error| {
            let on = format!("{} ({})", self.seat.name, self.seat.address);
            Error::unavailable(format!("another member can't be reached: {error}"), on)
        };
        let connecting = self.transport.connect(&self.seat);
        let wire = tokio::time::timeout(CONNECTED_WITHIN, connecting).await.map_err(|late| failed(late.into()))?;
        let greeting = Greeting { from: self.me, to: self.seat.id };
        Link::begin(wire.map_err(failed)?, &self.seat.name, greeting, (&self.runtime, self.came.clone()))
            .await
            .map_err(|error| failed(hung_up(error)))
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member is asked how it is; dropped, it answered or didn't.
struct Asked<'a> {
    is_well: &'a AtomicBool,
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.is_well.store(self.is_answered, Relaxed);
    }
}

/// Who takes a connection and then hangs up at the first words of this node has a reason that it doesn't say.
fn hung_up(error: std::io::Error) -> std::io::Error {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        UnexpectedEof | ConnectionReset | BrokenPipe => std::io::Error::new(
            error.kind(),
            format!(
                "{error}: it hung up at the greeting. It may not have this node among its members, or speak by other keys, or encrypted where this one doesn't"
            ),
        ),
        _ => error,
    }
}

/// Ask again and again whether a member is back, until it is or nobody knows it any more.
async fn probe(contact: Weak<Contact>) {
    loop {
        let Some(contact) = contact.upgrade() else { return };
        let Some(pause) = contact.breaker().pause() else { return };
        let _ = tokio::time::timeout(pause, contact.knocked.notified()).await;
        match contact.connect().await {
            Err(error) => contact.note(&error),
            Ok(link) => {
                let mut place = contact.links[0].lock().await;
                // One that is slow has connections that live.
                *place = place.take().filter(|link| !link.is_broken()).or(Some(link));
                drop(place);
                contact.breaker().answered();
                tracing::info!("another member answers again: {}", contact.seat.name);
            }
        }
    }
}
