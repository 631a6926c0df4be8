//! The tier below the disk: what another member has is asked for before the store is. Of a member that came late, the next in line
//! owned until then what it owns now; and of one that had no room, who keeps it in its stead. So a join costs links and not the
//! store.
//!
//! Invariant: only what lies on the other's disk is asked for, so nobody waits here for somebody who waits for a store.

use crate::contact::Contact;
use crate::lines::{Lines, OLDER};
use crate::link::{Answer, Lost, Slowness};
use crate::wire::{Manner, Wish, Word};
use block::{Address, Block, Blocks, Cause, Checksum, Door, Object, Result, Run, Source, Stripe, Waiting};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;

/// Asks who was the owner before, over the store.
pub struct Elders {
    lines: Lines,
    store: Arc<dyn Source>,
}

impl Elders {
    pub fn over(store: Arc<dyn Source>, lines: Lines) -> Elders {
        Elders { lines, store }
    }
}

/// A run on its way.
struct Asking {
    lines: Lines,
    store: Arc<dyn Source>,
    run: Run,
    next: u32,
    from: From,
    /// Who keeps it in the elder's stead, once it said so.
    keeper: Option<u128>,
    /// Whether the elder's slowness counts: a reader waits.
    was_urgent: bool,
}

enum From {
    Nobody,
    Elder(Arc<Contact>, Answer, Slowness),
    Store(Blocks),
}

impl Asking {
    async fn step(mut self) -> Option<(Result<Block>, Asking)> {
        loop {
            match &mut self.from {
                From::Store(blocks) => return blocks.next().await.map(|got| (got, self)),
                From::Elder(contact, answer, slow) => {
                    let wanted = (&self.run.course, self.lines.patience());
                    match crate::owners::next(answer, slow, wanted, &mut self.was_urgent).await {
                        Some(Ok(block)) => {
                            self.next += 1;
                            self.lines.figures().had.add(block.len());
                            return Some((Ok(block), self));
                        }
                        None if self.next == self.run.blocks.end => return None,
                        Some(Err(Lost::Elsewhere(keeper))) if self.keeper.is_none() => {
                            (self.keeper, self.from) = (Some(keeper), From::Nobody);
                        }
                        Some(Err(lost)) => {
                            contact.lost(&lost);
                            self.ask_store();
                        }
                        None => self.ask_store(),
                    }
                }
                From::Nobody => match elder(&self.lines, self.rest(), self.keeper).await {
                    Some((contact, answer)) => {
                        let slow = answer.slowness();
                        self.from = From::Elder(contact, answer, slow);
                    }
                    None => self.ask_store(),
                },
            }
        }
    }

    fn ask_store(&mut self) {
        self.from = From::Store(self.store.fetch(self.rest()));
    }

    fn rest(&self) -> Run {
        self.run.part(self.next..self.run.blocks.end)
    }
}

/// Who owned a run before this node did: the next in line, or who keeps it in its stead. `None` if this node neither owns it nor stands
/// in for who does, or nobody is next.
fn before(lines: &Lines, run: &Run, keeper: Option<u128>) -> Option<Arc<Contact>> {
    let roster = lines.roster();
    let stripe = Stripe::of(&Address { object: run.object.clone(), index: run.blocks.start });
    if lines.first(&stripe) != Some(roster.me()) {
        return None;
    }
    // Whoever was not away either: the others had nothing to keep. And nobody who came together with this node, if one is older.
    let line = roster.order(&stripe).into_iter().skip_while(|id| *id != roster.me()).skip(1);
    let line: Vec<u128> = line.filter(|id| lines.answers(*id)).collect();
    let next = line.iter().find(|id| lines.is_older(**id)).or(line.first())?;
    lines.contact(&roster, keeper.unwrap_or(*next))
}

/// What it has of it.
async fn elder(lines: &Lines, run: Run, keeper: Option<u128>) -> Option<(Arc<Contact>, Answer)> {
    let contact = before(lines, &run, keeper)?;
    run.course.enter(Cause::Peer);
    let wish = Wish { run, manner: Manner::default() };
    let asked = tokio::time::timeout(lines.patience(), contact.ask(Word::Held, &wish)).await.ok()??.ok()?;
    Some((contact, asked))
}

impl Lines {
    /// Whether a member was one for a while before this node was.
    fn is_older(&self, member: u128) -> bool {
        let known = self.ages().known.get(&member).copied();
        known.is_some_and(|(age_ms, at)| {
            let age = Duration::from_millis(age_ms).saturating_add(at.elapsed());
            age > Duration::from_millis(self.age_ms()) + OLDER
        })
    }
}

impl Source for Elders {
    fn fetch(&self, run: Run) -> Blocks {
        let keeper = self.lines.keeper(&Address { object: run.object.clone(), index: run.blocks.start });
        if keeper.is_none() && !self.lines.came_late() {
            return self.store.fetch(run);
        }
        let (lines, store, next) = (self.lines.clone(), self.store.clone(), run.blocks.start);
        let was_urgent = run.course.is_urgent();
        let asking = Asking { lines, store, run, next, from: From::Nobody, keeper, was_urgent };
        futures_util::stream::unfold(asking, Asking::step).boxed()
    }

    /// Who gave the bytes compared the whole, if it is complete there.
    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        let (store, lines, object) = (self.store.clone(), self.lines.clone(), object.clone());
        let keeper = lines.keeper(&Address { object: object.clone(), index: 0 });
        // Of one in stripes nobody has the whole.
        if keeper.is_none() && !lines.came_late() || object.size > block::ONE_STRIPE_BYTES_MAX {
            return store.checksum(&object, via);
        }
        Box::pin(async move {
            if let Some(contact) = before(&lines, &Run::new(object.clone(), 0..1), keeper)
                && let Some(sum) = contact.sum(&object, lines.patience()).await
            {
                return Ok(sum);
            }
            store.checksum(&object, via).await
        })
    }

    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        self.store.holds(address, may_wait)
    }

    fn forget(&self, object: &Object) {
        self.store.forget(object);
    }
}
