//! What an asker says, request by request: what lies ready is put in line, and for the rest somebody works.

use super::answer::{Frame, answer};
use super::ready::Waiting;
use super::{Parts, wrong};
use crate::uses;
use crate::wire::{self, HEADER, Header, REQUEST_BYTES_MAX, State, Wish, Word};
use block::{Course, Run};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::OwnedSemaphorePermit;

/// Requests that are read at once, if that many wait.
const READ_AHEAD: usize = 16 << 10;

/// One asker.
pub struct Asker(pub Arc<Parts>);

impl Asker {
    /// Read requests until the asker leaves.
    pub async fn hear(&self, read: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut read = BufReader::with_capacity(READ_AHEAD, read);
        loop {
            let mut head = [0; HEADER];
            match read.read_exact(&mut head).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            };
            let header = Header::decode(&head, REQUEST_BYTES_MAX).ok_or_else(|| wrong("a request makes no sense"))?;
            let mut payload = vec![0; header.length as usize];
            read.read_exact(&mut payload).await?;
            self.one(header, payload).await?;
        }
    }

    /// One request.
    async fn one(&self, header: Header, payload: Vec<u8>) -> io::Result<()> {
        match header.word {
            Word::Fetch | Word::Held | Word::Sum | Word::Bring => {
                let wish = Wish::decode(&payload).ok_or_else(|| wrong("a request makes no sense"))?;
                self.wish(header, wish).await?;
            }
            Word::State | Word::Kept | Word::Used | Word::Names | Word::News => {
                let told = self.at_once(header.word, &payload).ok_or_else(|| wrong("a request makes no sense"))?;
                self.tell(header.request, told).await;
            }
            Word::Piece => {
                let (set, id, at) = wire::decode_piece(&payload).ok_or_else(|| wrong("a piece makes no sense"))?;
                let turn = self.0.requests.clone().acquire_owned().await.expect("it is never closed");
                let parts = self.0.clone();
                self.0.run(header.request, (turn, Course::default()), async move {
                    // It is read when it can be sent: until then it takes no memory.
                    let taken = parts.portion.piece().await;
                    let Ok(place) = parts.frames.reserve().await else { return };
                    let piece = parts.giver.piece(set, id, at).await;
                    place.send(Frame::piece(Word::Told, header.request, piece.into(), taken));
                });
            }
            Word::Cancel => {
                self.0.ready.cancel(header.request);
                let task = self.0.running().remove(&header.request);
                task.inspect(|(task, _)| task.abort());
            }
            Word::Urge => {
                self.0.ready.urge(header.request);
                if let Some((_, course)) = self.0.running().get(&header.request) {
                    course.urge();
                }
            }
            _ => return Err(wrong("an answer came as a request")),
        }
        Ok(())
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
                giver.used(lines.heard_all(uses, is_passed_on));
            }
            Word::Names => return Some(giver.names(wire::decode_member(payload)?).encode()),
            _ => giver.news(wire::decode_member(payload)?),
        }
        Some(Vec::new())
    }

    /// What takes work, unless it lies ready.
    async fn wish(&self, header: Header, wish: Wish) -> io::Result<()> {
        let (parts, request) = (&self.0, header.request);
        if parts.running().contains_key(&request) || parts.ready.has(request) {
            return Err(wrong("two requests have one number"));
        }
        let turn = parts.requests.clone().acquire_owned().await.expect("it is never closed");
        let is_fetched = header.word == Word::Fetch && wish.manner.lent.is_none();
        if is_fetched {
            parts.giver.used(parts.lines.asked(&wish));
        }
        let is_plain = is_fetched && !wish.manner.verify;
        if is_plain && let Some(file) = parts.giver.open(&wish.run) {
            let Wish { run, manner } = wish;
            let due = parts.lines.now() + Duration::from_millis(manner.due_ms.unwrap_or(0).into());
            parts.ready.push(Waiting { request, run, manner, due, file, turn });
            return Ok(());
        }
        let (work, course) = (parts.clone(), parts.giver.course(wish.manner));
        let wish = Wish { run: Run { course: course.clone(), ..wish.run }, ..wish };
        parts.run(request, (turn, course), async move { answer(&work, header, wish).await });
        Ok(())
    }

    async fn tell(&self, request: u32, words: Vec<u8>) {
        let _ = self.0.frames.send(Frame::of(Word::Told, request, words)).await;
    }
}

impl Parts {
    /// Answer from the tiers what was to lie ready, and doesn't.
    pub fn answer_away(self: &Arc<Parts>, waiting: Waiting) {
        let Waiting { request, run, manner, turn, .. } = waiting;
        let (work, course) = (self.clone(), self.giver.course(manner));
        let wish = Wish { run: Run { course: course.clone(), ..run }, manner };
        let header = Header { word: Word::Fetch, length: 0, request, block: 0 };
        self.run(request, (turn, course), async move { answer(&work, header, wish).await });
    }

    /// Work for a request, which counts as being answered until that ends.
    pub fn run(
        self: &Arc<Parts>,
        request: u32,
        (turn, course): (OwnedSemaphorePermit, Course),
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let parts = self.clone();
        let mut running = self.running();
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
