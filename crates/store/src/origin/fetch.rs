//! One run on its way: bodies cut into blocks, broken ones taken up again, checksums compared.
//!
//! Invariant: blocks come out in order, each once; the digest has seen exactly the blocks that are complete.

use super::limit::Leave;
use super::pace::Timing;
use super::window::Outcome;
use super::{Parts, Tries, outcome};
use block::{Address, Block, Cause, Checksum, Digest, Error, Result, Run, last_try};
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use std::sync::Arc;
use tokio::time::Instant;

/// Pieces of a block that room is made for at once: what a fast connection delivers it in.
const PIECES: usize = 8;

/// One run on its way.
pub struct Fetch {
    parts: Arc<Parts>,
    run: Run,
    /// Index of the block that comes next.
    next: u32,
    open: Option<Open>,
    tries: Tries,
    /// What the store said about the whole object, and the digest of the blocks so far.
    checksum: Option<(Checksum, Digest)>,
}

/// A body being read, and the leave that it takes.
struct Open {
    bytes: BoxStream<'static, Result<Bytes>>,
    /// What was delivered beyond the last block.
    left: Bytes,
    leave: Leave,
    timing: Timing,
}

/// Why there is no block yet.
enum Failure {
    /// The next try may bring it.
    Passing(Error),
    /// Blocks that are already out are in doubt, and nobody can take them back.
    Final(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Passing(error)
    }
}

impl Fetch {
    pub fn new(parts: Arc<Parts>, run: Run) -> Fetch {
        let next = run.blocks.start;
        // Enough is left for a last try.
        let budget = parts.settings.budget;
        let waited = run.waited.min(budget - last_try(budget));
        Fetch { parts, run, next, open: None, tries: Tries { used: waited, ..Tries::begin() }, checksum: None }
    }

    /// The next block, whatever it takes within the budget.
    pub async fn step(mut self) -> Result<Option<(Block, Fetch)>> {
        if self.next == self.run.blocks.end {
            return Ok(None);
        }
        loop {
            let (error, is_final) = match self.block().await {
                Ok(block) => {
                    self.next += 1;
                    self.parts.hedges().earn(block.len() as u64);
                    self.parts.limit.answered();
                    self.tries = Tries::begin();
                    return Ok(Some((block, self)));
                }
                Err(Failure::Passing(error)) => (error, false),
                Err(Failure::Final(error)) => (error, true),
            };
            self.close(outcome(&error));
            if is_final {
                self.parts.failed(&error);
                return Err(error);
            }
            self.parts.wait_or_fail(&mut self.tries, error, &self.run.course).await?;
        }
    }

    /// The next block in one try.
    async fn block(&mut self) -> Result<Block, Failure> {
        if self.open.is_none() {
            self.begin().await?;
        }
        self.run.course.enter(Cause::Bandwidth);
        let address = Address { object: self.run.object.clone(), index: self.next };
        let pieces = self.pieces(address.len()).await?;
        let is_last = self.next + 1 == self.run.blocks.end;
        if is_last {
            self.end().await?;
        }
        self.run.course.enter(Cause::Cpu);
        if let Some((_, digest)) = &mut self.checksum {
            pieces.iter().for_each(|piece| digest.update(piece));
        }
        if is_last {
            self.compare()?;
        }
        Ok(Block::verified(address, pieces, block::Proof::Store)?)
    }

    /// Ask for all blocks that are still due.
    async fn begin(&mut self) -> Result<()> {
        let leave = self.parts.leave(&mut self.tries, &self.run.object, &self.run.course).await?;
        let start = self.run.object.start(self.next);
        let range = start..self.run.range().end;
        let answer = match self.parts.ask(&self.tries, &self.run, range, leave).await {
            Ok(answer) => answer,
            Err(refusal) => {
                let (error, kept) = *refusal;
                self.tries.kept = kept;
                return Err(error);
            }
        };
        let body = answer.body;
        if self.next == 0 {
            let checksum = body.checksum.filter(|_| self.run.is_whole());
            self.checksum = checksum.map(|checksum| (checksum, checksum.digest()));
        }
        let timing = Timing { first_byte: answer.first_byte, ..Timing::default() };
        self.open = Some(Open { bytes: body.bytes, left: Bytes::new(), leave: answer.leave, timing });
        Ok(())
    }

    /// The bytes of one block, in the pieces in which they arrive.
    async fn pieces(&mut self, due: usize) -> Result<Vec<Bytes>> {
        self.tries.go_on();
        let open = self.open.as_mut().expect("a body was opened before it is read");
        let mut pieces = Vec::with_capacity(PIECES);
        let mut missing = due;
        while missing > 0 {
            if open.left.is_empty() {
                let object = &self.run.object;
                let asked = Instant::now();
                let piece = self.parts.in_time(&self.tries, object, next(&mut open.bytes)).await?;
                open.timing.body += asked.elapsed();
                open.timing.bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                open.left = piece.ok_or_else(|| {
                    Error::corrupt(
                        format!("the body ended {missing} bytes before the end of block {}", self.next),
                        &**object,
                    )
                })?;
                continue;
            }
            let piece = open.left.split_to(missing.min(open.left.len()));
            missing -= piece.len();
            pieces.push(piece);
        }
        Ok(pieces)
    }

    /// See the body end where it should, which also lets its connection be used again.
    async fn end(&mut self) -> Result<()> {
        let open = self.open.as_mut().expect("a body was opened before it ends");
        let mut more = std::mem::take(&mut open.left);
        while more.is_empty() {
            match self.parts.in_time(&self.tries, &self.run.object, next(&mut open.bytes)).await? {
                Some(piece) => more = piece,
                None => {
                    self.close(Outcome::Fine);
                    return Ok(());
                }
            }
        }
        Err(Error::corrupt("the body is longer than what was asked for", &*self.run.object))
    }

    /// Compare all bytes with what the store said about them, if it did.
    fn compare(&self) -> Result<(), Failure> {
        let Some((checksum, digest)) = &self.checksum else { return Ok(()) };
        if digest.matches(*checksum) {
            return Ok(());
        }
        let error =
            Error::corrupt("the bytes do not match the checksum that the store gave with them", &*self.run.object);
        Err(if self.next == 0 { Failure::Passing(error) } else { Failure::Final(error) })
    }

    fn close(&mut self, outcome: Outcome) {
        if let Some(open) = self.open.take() {
            match outcome {
                Outcome::Fine => open.leave.fine(open.timing),
                _ => open.leave.done(outcome),
            }
        }
    }
}

async fn next(bytes: &mut BoxStream<'static, Result<Bytes>>) -> Result<Option<Bytes>> {
    bytes.next().await.transpose()
}
