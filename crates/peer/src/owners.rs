//! Asking the owner of a stripe, or who is next in line for it.
//!
//! Doesn't keep. Invariants: a request that came from another member never gets here, so none travels twice; and what no
//! member gives comes from this node's own tiers, by its own credentials, so that nobody's absence is a reader's error.

use crate::contact::Contact;
use crate::link::{Answer, Lost};
use crate::transport::Transport;
use crate::wire::Word;
use crate::{Figures, Roster};
use block::{Address, Block, Blocks, Cause, Checksum, Door, Object, Result, Run, Source, Stripe, Waiting};
use futures_util::StreamExt;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Members that are asked for a run before the store is.
const ASKED_MAX: usize = 2;

/// Asks members, and this node's own tiers where none gives. A run lies within one stripe.
#[derive(Clone)]
pub struct Owners(Arc<Parts>);

struct Parts {
    inner: Arc<dyn Source>,
    roster: watch::Receiver<Arc<Roster>>,
    contacts: Mutex<HashMap<u128, Arc<Contact>>>,
    transport: Arc<dyn Transport>,
    runtime: tokio::runtime::Handle,
    figures: Arc<Figures>,
}

impl Owners {
    /// `inner` is what this node has and fetches itself.
    pub fn over(
        inner: Arc<dyn Source>,
        roster: watch::Receiver<Arc<Roster>>,
        transport: Arc<dyn Transport>,
        runtime: tokio::runtime::Handle,
        figures: Arc<Figures>,
    ) -> Owners {
        Owners(Arc::new(Parts { inner, roster, contacts: Mutex::default(), transport, runtime, figures }))
    }

    pub fn roster(&self) -> Arc<Roster> {
        self.0.roster.borrow().clone()
    }

    pub fn figures(&self) -> &Arc<Figures> {
        &self.0.figures
    }

    /// Whether a member answered when it was asked last. One that nobody asked does.
    pub fn answers(&self, id: u128) -> bool {
        self.contacts().get(&id).is_none_or(|contact| contact.answers())
    }

    fn contacts(&self) -> MutexGuard<'_, HashMap<u128, Arc<Contact>>> {
        self.0.contacts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a member is reached now: its address may have changed.
    fn contact(&self, roster: &Roster, id: u128) -> Option<Arc<Contact>> {
        let seat = roster.seat(id)?;
        let mut contacts = self.contacts();
        if let Some(known) = contacts.get(&id).filter(|known| known.seat.address == seat.address) {
            return Some(known.clone());
        }
        // Who has left the cluster is not asked any more.
        contacts.retain(|id, _| roster.seat(*id).is_some());
        let Parts { transport, runtime, figures, .. } = &*self.0;
        let contact = Contact::new(seat.clone(), roster.me(), transport.clone(), runtime.clone(), figures.clone());
        contacts.insert(id, contact.clone());
        Some(contact)
    }

    /// Members to ask for a stripe, in order, before this node's own tiers are.
    fn candidates(&self, run: &Run) -> VecDeque<Arc<Contact>> {
        let roster = self.roster();
        let stripe = Stripe::of(&Address { object: run.object.clone(), index: run.blocks.start });
        let others = roster.order(&stripe).into_iter().take_while(|id| *id != roster.me());
        others.filter_map(|id| self.contact(&roster, id)).collect()
    }
}

/// A run on its way, within one stripe.
struct Asking {
    owners: Owners,
    run: Run,
    next: u32,
    /// Who is still to be asked.
    candidates: VecDeque<Arc<Contact>>,
    asked: usize,
    from: From,
    is_over: bool,
}

/// Who answers at the moment.
enum From {
    Nobody,
    Member(Arc<Contact>, Answer),
    Inner(Blocks),
}

impl Asking {
    async fn step(mut self) -> Option<(Result<Block>, Asking)> {
        while !self.is_over && self.next < self.run.blocks.end {
            let got = match &mut self.from {
                From::Nobody => {
                    self.turn_to_the_next().await;
                    continue;
                }
                From::Inner(blocks) => blocks.next().await?,
                From::Member(contact, answer) => {
                    self.run.course.enter(Cause::Peer);
                    match answer.next().await? {
                        Ok(block) => {
                            self.owners.0.figures.had.add(block.len());
                            Ok(block)
                        }
                        Err(lost) => {
                            contact.lost(&lost);
                            self.note(&lost);
                            self.from = From::Nobody;
                            continue;
                        }
                    }
                }
            };
            self.next += 1;
            self.is_over = got.is_err();
            return Some((got, self));
        }
        // The tiers below finish what they keep when they are asked for what comes after the last block.
        match &mut self.from {
            From::Inner(blocks) if !self.is_over => {
                let end = blocks.next().await?;
                self.is_over = true;
                Some((end, self))
            }
            _ => None,
        }
    }

    fn note(&self, lost: &Lost) {
        if let Lost::Failed(error) = lost {
            if error.kind == block::Kind::Corrupt {
                self.owners.0.figures.damaged.fetch_add(1, Relaxed);
            }
            tracing::debug!("asking elsewhere for what a member could not give: {error}");
        }
    }

    /// Ask the next candidate, or at the end this node's own tiers.
    async fn turn_to_the_next(&mut self) {
        let rest = self.run.part(self.next..self.run.blocks.end);
        let figures = self.owners.0.figures.clone();
        while self.asked < ASKED_MAX
            && let Some(contact) = self.candidates.pop_front()
        {
            self.run.course.enter(Cause::Peer);
            match contact.ask(Word::Fetch, &rest).await {
                // Known to be away, it counts as none.
                None => continue,
                Some(Ok(answer)) => {
                    self.asked += 1;
                    self.from = From::Member(contact, answer);
                    return;
                }
                Some(Err(lost)) => {
                    self.asked += 1;
                    self.note(&lost);
                }
            }
        }
        if self.asked > 0 || !self.candidates.is_empty() {
            figures.around.fetch_add(1, Relaxed);
        }
        self.from = From::Inner(self.owners.0.inner.fetch(rest));
    }
}

impl Source for Owners {
    fn fetch(&self, run: Run) -> Blocks {
        let candidates = self.candidates(&run);
        if candidates.is_empty() {
            return self.0.inner.fetch(run);
        }
        let (owners, next, from) = (self.clone(), run.blocks.start, From::Nobody);
        let asking = Asking { owners, run, next, candidates, asked: 0, from, is_over: false };
        futures_util::stream::unfold(asking, Asking::step).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.inner.checksum(object, via)
    }

    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        self.0.inner.holds(address, may_wait)
    }

    fn forget(&self, object: &Object) {
        self.0.inner.forget(object);
    }
}
