//! Asking the owner of a stripe, whoever it names instead, and who is next in line for it.
//!
//! Doesn't keep. Invariants: a request that came from another member never gets here, so none travels twice; and what no
//! member gives comes from this node's own tiers, by its own credentials, so that nobody's absence is a reader's error.

use crate::contact::Contact;
use crate::lines::Lines;
use crate::link::{Answer, Lost};
use crate::placement::Verdict;
use crate::wire::{self, Manner, Wish, Word};
use block::{Address, Block, Blocks, Cause, Checksum, Door, Kind, Object, Result, Run, Source, Stripe, Waiting};
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Questions to members about one run before the store is asked.
const ASKED_MAX: usize = 5;

/// Asks members, and this node's own tiers where none gives. A run lies within one stripe.
#[derive(Clone)]
pub struct Owners {
    lines: Lines,
    inner: Arc<dyn Source>,
}

impl Owners {
    /// `inner` is what this node has and fetches itself.
    pub fn over(inner: Arc<dyn Source>, lines: Lines) -> Owners {
        Owners { lines, inner }
    }

    /// Members before this node in the line for a stripe.
    fn line(&self, run: &Run) -> VecDeque<Arc<Contact>> {
        let roster = self.lines.roster();
        let stripe = Stripe::of(&Address { object: run.object.clone(), index: run.blocks.start });
        let others = roster.order(&stripe).into_iter().take_while(|id| *id != roster.me());
        others.filter_map(|id| self.lines.contact(&roster, id)).collect()
    }

    /// A run that this node owns, and has no room for: from who keeps it in its stead.
    pub fn spilled(&self, run: Run) -> Blocks {
        let address = Address { object: run.object.clone(), index: run.blocks.start };
        match self.lines.verdict(&address, false) {
            Verdict::Yours => self.inner.fetch(run),
            Verdict::Elsewhere(member) => self.ask(run, VecDeque::new(), Some(member)),
        }
    }

    fn ask(&self, run: Run, line: VecDeque<Arc<Contact>>, named: Option<u128>) -> Blocks {
        let (owners, next, from) = (self.clone(), run.blocks.start, From::Nobody);
        let asking = Asking { owners, run, next, line, named, owner: None, asked: 0, from, is_over: false };
        futures_util::stream::unfold(asking, Asking::step).boxed()
    }
}

/// A run on its way, within one stripe.
struct Asking {
    owners: Owners,
    run: Run,
    next: u32,
    /// Who is still to be asked, in order.
    line: VecDeque<Arc<Contact>>,
    /// Whom the owner named in its stead.
    named: Option<u128>,
    /// Who named somebody; none if it was this node.
    owner: Option<Arc<Contact>>,
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
                    self.turn().await;
                    continue;
                }
                From::Inner(blocks) => blocks.next().await?,
                From::Member(contact, answer) => {
                    self.run.course.enter(Cause::Peer);
                    match answer.next().await? {
                        Ok(block) => {
                            self.owners.lines.figures().had.add(block.len());
                            Ok(block)
                        }
                        Err(lost) => {
                            contact.lost(&lost);
                            let contact = contact.clone();
                            self.from = From::Nobody;
                            self.after(&contact, lost).await;
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

    /// Ask whoever was named, or the next in line, or at the end this node's own tiers.
    async fn turn(&mut self) {
        let roster = self.owners.lines.roster();
        if self.named == Some(roster.me()) {
            // It is to be kept here, in the owner's stead.
            return self.own(false);
        }
        while self.asked < ASKED_MAX {
            let named = self.named.take().and_then(|id| self.owners.lines.contact(&roster, id));
            let for_owner = named.is_some();
            let Some(contact) = named.or_else(|| self.line.pop_front()) else { break };
            let manner = Manner { is_urgent: self.run.course.is_urgent(), for_owner, is_back: false };
            if self.ask(contact, manner).await {
                return;
            }
            if !matches!(self.from, From::Nobody) {
                return;
            }
        }
        self.own(self.asked > 0 || !self.line.is_empty());
    }

    /// Ask a member. False if it is away, or has said already that it doesn't give.
    async fn ask(&mut self, contact: Arc<Contact>, manner: Manner) -> bool {
        self.run.course.enter(Cause::Peer);
        let wish = Wish { run: self.run.part(self.next..self.run.blocks.end), manner };
        match contact.ask(Word::Fetch, &wish).await {
            // Known to be away, it counts as none.
            None => return false,
            Some(Ok(answer)) => self.from = From::Member(contact, answer),
            Some(Err(lost)) => {
                self.asked += 1;
                self.note(&lost);
                return false;
            }
        }
        self.asked += 1;
        true
    }

    /// A member gives no more: what it said decides who is next.
    async fn after(&mut self, contact: &Arc<Contact>, lost: Lost) {
        self.note(&lost);
        match lost {
            Lost::Yours => self.own(false),
            Lost::Elsewhere(member) => (self.named, self.owner) = (Some(member), Some(contact.clone())),
            Lost::NotHeld => {
                // The owner is to know that it names in vain.
                match self.owner.take() {
                    Some(owner) if self.asked < ASKED_MAX => {
                        let manner = Manner { is_urgent: self.run.course.is_urgent(), for_owner: false, is_back: true };
                        self.ask(owner, manner).await;
                    }
                    Some(_) => {}
                    None => {
                        let address = Address { object: self.run.object.clone(), index: self.next };
                        match self.owners.lines.verdict(&address, true) {
                            Verdict::Elsewhere(member) => self.named = Some(member),
                            Verdict::Yours => self.own(false),
                        }
                    }
                }
            }
            // It was patient with the store already: the next one would be as long again.
            Lost::Failed(error) if error.kind != Kind::Corrupt => self.own(true),
            Lost::NotMine | Lost::Failed(_) | Lost::Broken(_) => {}
        }
    }

    /// From here on this node's own tiers answer. `around`: though others own it.
    fn own(&mut self, around: bool) {
        self.owners.lines.figures().around.fetch_add(u64::from(around), Relaxed);
        self.from = From::Inner(self.owners.inner.fetch(self.run.part(self.next..self.run.blocks.end)));
    }

    fn note(&self, lost: &Lost) {
        if let Lost::Failed(error) = lost {
            if error.kind == Kind::Corrupt {
                self.owners.lines.figures().damaged.fetch_add(1, Relaxed);
            }
            tracing::debug!("asking elsewhere for what a member could not give: {error}");
        }
    }
}

impl Source for Owners {
    fn fetch(&self, run: Run) -> Blocks {
        let line = self.line(&run);
        if line.is_empty() { self.inner.fetch(run) } else { self.ask(run, line, None) }
    }

    /// The owner compared the whole before it called it complete, and says with what; it alone asks the store.
    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        let (owners, object) = (self.clone(), object.clone());
        Box::pin(async move {
            let run = Run::new(object.clone(), 0..1);
            if let Some(owner) = owners.line(&run).pop_front()
                && let Some(payload) = (Wish { run, manner: Manner::default() }).encode()
                && let Some(words) = owner.words(Word::Sum, payload).await
                && let Some(sum) = wire::decode_sum(&words)
            {
                return Ok(sum);
            }
            owners.inner.checksum(&object, via).await
        })
    }

    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        self.inner.holds(address, may_wait)
    }

    fn forget(&self, object: &Object) {
        self.inner.forget(object);
    }
}
