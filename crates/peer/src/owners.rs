//! Asking the owner of a stripe, whoever it names instead, and who is next in line for it.
//!
//! Doesn't keep. Invariants: a request that came from another member never gets here, so none travels twice; and what no
//! member gives comes from this node's own tiers, by its own credentials, so that nobody's absence is a reader's error.

use crate::contact::Contact;
use crate::lines::Lines;
use crate::link::{Answer, Lost, Slowness};
use crate::placement::Verdict;
use crate::unkept::{FOR_ALL, Lender, Loan, Turn};
use crate::wire::{Manner, Wish, Word};
use crate::{For, Room, Roster};
use block::{
    Address, Block, Blocks, Cause, Checksum, Course, Door, Kind, Object, Result, Run, Source, Stripe, Waiting,
};
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// Questions to members about one run before the store is asked. While disks fill up, an owner may name several members, one
/// after the other, that had room when they last told.
pub(crate) const ASKED_MAX: usize = 12;

/// After which a run whose member breaks off is not asked of another one, but of the store.
const AWAY_AFTER: Duration = Duration::from_millis(300);

/// Asks members, and this node's own tiers where none gives. A run lies within one stripe.
#[derive(Clone)]
pub struct Owners {
    lines: Lines,
    own: Own,
}

/// Whether a node has room for a block, and for whom.
type HasRoom = dyn Fn(&Address, For) -> Room + Send + Sync;

/// What is this node's own.
#[derive(Clone)]
pub struct Own {
    /// What it has and fetches itself.
    pub inner: Arc<dyn Source>,
    /// The same, and it is in memory for a while for all who read it at once.
    pub shared: Arc<dyn Source>,
    /// Whether it has room for a block.
    pub room: Arc<HasRoom>,
}

impl Owners {
    pub fn over(own: Own, lines: Lines) -> Owners {
        Owners { lines, own }
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Members before this node in the line for a stripe.
    pub(crate) fn line(&self, run: &Run) -> VecDeque<Arc<Contact>> {
        let roster = self.lines.roster();
        let stripe = Stripe::of(&Address { object: run.object.clone(), index: run.blocks.start });
        let others = roster.order(&stripe).into_iter().take_while(|id| *id != roster.me());
        others.filter_map(|id| self.lines.contact(&roster, id)).collect()
    }

    /// A run that this node owns, and has no room for: from who keeps it in its stead.
    /// `is_wanted`: readers asked for it often enough for something else to give way there.
    pub fn spilled(&self, run: Run, is_wanted: bool) -> Blocks {
        let address = Address { object: run.object.clone(), index: run.blocks.start };
        match self.lines.verdict(&address, None, is_wanted) {
            Verdict::Yours => {
                let turn = self.lines.turn(&run, self.lines.roster().me(), None);
                let mut asking = self.asking(run, VecDeque::new());
                asking.take(turn);
                asking.blocks()
            }
            Verdict::Elsewhere(member) => {
                let asking = self.asking(run, VecDeque::new());
                Asking { named: Some(Named::Keeper(member)), ..asking }.blocks()
            }
        }
    }

    fn asking(&self, run: Run, line: VecDeque<Arc<Contact>>) -> Asking {
        let (owners, next, from, came_at) = (self.clone(), run.blocks.start, From::Nobody, self.lines.now());
        Asking {
            owners,
            run,
            next,
            line,
            named: None,
            owner: None,
            asked: 0,
            came_at,
            lost_one: false,
            is_others: false,
            from,
            is_named: false,
            manner: Manner::default(),
            began: next,
            until: next,
            was_urgent: true,
            is_over: false,
        }
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
    named: Option<Named>,
    /// Who named somebody; none if it was this node.
    owner: Option<Arc<Contact>>,
    asked: usize,
    /// When the last block came, or the run was asked for.
    came_at: Instant,
    /// Whether somebody who was asked is away.
    lost_one: bool,
    /// Whether somebody in line said something of it: it is theirs to keep.
    is_others: bool,
    from: From,
    /// Whether who is asked was named by the owner.
    is_named: bool,
    /// How who answers was asked.
    manner: Manner,
    /// The block from which, and up to which, whoever answers was asked.
    began: u32,
    until: u32,
    /// Whether who answers knows that a reader waits.
    was_urgent: bool,
    is_over: bool,
}

/// The next block of an answer. If a reader comes to wait for it, the member hears so, and may not be slow.
pub(crate) async fn next(
    answer: &mut Answer,
    slow: &mut Slowness,
    (course, patience): (&Course, Duration),
    was_urgent: &mut bool,
) -> Option<std::result::Result<Block, Lost>> {
    if !*was_urgent {
        tokio::select! {
            biased;
            got = answer.next() => return got,
            () = course.urged() => {}
            () = tokio::time::sleep(patience) => return Some(Err(answer.gives_nothing())),
        }
        let urge = answer.urge();
        let next = answer.next_unless(slow, patience);
        tokio::pin!(next);
        tokio::select! {
            biased;
            got = &mut next => return got,
            () = urge => *was_urgent = true,
        }
        return next.await;
    }
    answer.next_unless(slow, patience).await
}

/// Whom an owner names that has no room itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    /// It keeps it in the owner's stead.
    Keeper(u128),
    /// It asked for it last, up to this block, and may have it in memory.
    Lender(Lender, u32),
}

/// Who answers at the moment.
enum From {
    Nobody,
    Member(Arc<Contact>, Answer, Slowness),
    Inner(Blocks),
}

impl Asking {
    fn blocks(self) -> Blocks {
        futures_util::stream::unfold(self, Asking::step).boxed()
    }

    async fn step(mut self) -> Option<(Result<Block>, Asking)> {
        while !self.is_over && self.next < self.run.blocks.end {
            let got = match &mut self.from {
                From::Nobody => {
                    self.turn().await;
                    continue;
                }
                // The tiers below finish what they keep when they are asked for what comes after the last block.
                From::Inner(blocks) if self.next == self.until => match blocks.next().await {
                    None => {
                        self.from = From::Nobody;
                        self.back(None).await;
                        continue;
                    }
                    Some(end) => {
                        self.is_over = true;
                        return Some((end, self));
                    }
                },
                From::Inner(blocks) => {
                    let got = blocks.next().await?;
                    self.asked = 0;
                    got
                }
                // What it has for this node was all of that.
                From::Member(..) if self.next == self.until => {
                    self.from = From::Nobody;
                    self.back(None).await;
                    continue;
                }
                From::Member(contact, answer, slow) => {
                    self.run.course.enter(Cause::Peer);
                    let wanted = (&self.run.course, self.owners.lines.patience());
                    match next(answer, slow, wanted, &mut self.was_urgent).await? {
                        Ok(block) => {
                            self.is_others = true;
                            // Who gives may be one of many who each give some.
                            (self.asked, self.came_at) = (0, self.owners.lines.now());
                            self.owners.lines.figures().had.add(block.len());
                            Ok(block)
                        }
                        // It found the whole wrong: what came before is in doubt.
                        Err(Lost::Failed(error)) if error.kind == Kind::Corrupt && self.next > self.began => Err(error),
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
        if self.named == Some(Named::Keeper(roster.me())) {
            self.named = None;
            let address = Address { object: self.run.object.clone(), index: self.next };
            if (self.owners.own.room)(&address, For::Owner).keeps() {
                // It is to be kept here, in the owner's stead.
                return self.own(false, self.run.blocks.end);
            }
            self.back(Some(roster.me())).await;
            if !matches!(self.from, From::Nobody) {
                return;
            }
        }
        while self.asked < ASKED_MAX && !self.waited_in_vain() {
            let Some((contact, manner, until)) = self.next_asked(&roster) else { break };
            self.is_named = manner.for_owner || manner.lent.is_some();
            let member = contact.seat.id;
            if self.ask(contact, manner, until).await {
                return;
            }
            if self.is_named {
                self.back(Some(member)).await;
            }
            if !matches!(self.from, From::Nobody) {
                return;
            }
        }
        self.own(true, self.run.blocks.end);
    }

    /// Whether a reader has waited for somebody who is away: the next one may be as well.
    fn waited_in_vain(&self) -> bool {
        let is_late = self.owners.lines.now() - self.came_at > AWAY_AFTER;
        is_late && self.asked > 0 && self.lost_one && self.run.course.is_urgent()
    }

    /// Whom to ask, how, and until which block: who was named, else who comes next in line.
    fn next_asked(&mut self, roster: &Roster) -> Option<(Arc<Contact>, Manner, u32)> {
        let end = self.run.blocks.end;
        let (id, manner, until) = match self.named.take() {
            Some(Named::Keeper(id)) => (Some(id), Manner { for_owner: true, ..self.manner() }, end),
            Some(Named::Lender(Lender { member, ticket }, until)) => {
                (Some(member), Manner { lent: Some(ticket), ..self.manner() }, until.clamp(self.next + 1, end))
            }
            None => (None, self.manner(), end),
        };
        match id.and_then(|id| self.owners.lines.contact(roster, id)) {
            Some(named) => Some((named, manner, until)),
            None => Some((self.line.pop_front()?, self.manner(), end)),
        }
    }

    /// Ask a member. False if it is away, or has said already that it doesn't give.
    async fn ask(&mut self, contact: Arc<Contact>, manner: Manner, until: u32) -> bool {
        self.run.course.enter(Cause::Peer);
        let opened = if manner.lent.is_none() { self.owners.lines.uses().take(self.run.object.id()) } else { None };
        let manner = Manner { opened: opened.map(|used| used.set_bytes), ..manner };
        let wish = Wish { run: self.run.part(self.next..until), manner };
        (self.began, self.until, self.manner) = (self.next, until, manner);
        self.was_urgent = manner.is_urgent;
        // With as many requests under way as it takes, who gives nothing takes none.
        let asked = tokio::time::timeout(self.owners.lines.patience(), contact.ask(Word::Fetch, &wish)).await;
        match asked.unwrap_or_else(|_| Some(Err(contact.gives_nothing()))) {
            // Known to be away, it counts as none.
            None => return false,
            Some(Ok(answer)) => {
                let slow = answer.slowness();
                self.from = From::Member(contact, answer, slow);
            }
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
            Lost::Elsewhere(member) => (self.named, self.owner) = (Some(Named::Keeper(member)), Some(contact.clone())),
            Lost::Lent(loan) => {
                self.owner = Some(contact.clone());
                self.borrow(loan);
            }
            // It gave it from its disk without reading it, and is to compare it: it finds what is wrong, and gives what is right.
            Lost::Damaged(_) if !self.manner.verify && self.manner.lent.is_none() => {
                let manner = Manner { verify: true, ..self.manner };
                let is_asked = self.ask(contact.clone(), manner, self.until).await;
                if !is_asked && self.is_named {
                    self.back(Some(contact.seat.id)).await;
                }
            }
            // It was patient with the store already: the next one would be as long again.
            Lost::Failed(error) if error.kind != Kind::Corrupt && (error.passes() || !self.is_named) => {
                self.own(true, self.run.blocks.end);
            }
            Lost::NotHeld | Lost::NotMine | Lost::Failed(_) | Lost::Damaged(_) | Lost::Broken(_) | Lost::Slow(_) => {
                if self.is_named {
                    self.back(Some(contact.seat.id)).await;
                }
            }
        }
    }

    /// Who was named gives no more: the owner is asked again, and if it named in vain, it is to know that.
    async fn back(&mut self, refused: Option<u128>) {
        self.is_named = false;
        if let Some(owner) = self.owner.take() {
            if self.asked < ASKED_MAX {
                self.ask(owner, Manner { refused, ..self.manner() }, self.run.blocks.end).await;
            }
            return;
        }
        // This node is the owner.
        let rest = self.run.part(self.next..self.run.blocks.end);
        let (lines, address) = (&self.owners.lines, Address { object: self.run.object.clone(), index: self.next });
        match lines.verdict(&address, refused, false) {
            Verdict::Elsewhere(member) => self.named = Some(Named::Keeper(member)),
            Verdict::Yours => {
                let turn = lines.turn(&rest, lines.roster().me(), refused);
                self.take(turn);
            }
        }
    }

    /// Nobody keeps what this node owns.
    fn take(&mut self, turn: Turn) {
        match turn {
            Turn::Lent(loan) => self.borrow(loan),
            Turn::Given(until) => self.inside(until, self.owners.own.shared.clone(), false),
        }
    }

    /// Nobody keeps it: who asked before may have it, else this node asks the store.
    fn borrow(&mut self, loan: Loan) {
        let me = self.owners.lines.roster().me();
        match loan.lender {
            Some(Lender { member, ticket: FOR_ALL }) if member == me => {
                self.inside(loan.until, self.owners.own.shared.clone(), self.owner.is_some());
            }
            Some(lender) => {
                self.run.course.counts_as(loan.ticket);
                self.named = Some(Named::Lender(lender, loan.until));
            }
            // Who asks the store waits for nobody: whoever waits for him may go on.
            None => self.inside(loan.until, self.owners.own.inner.clone(), self.owner.is_some()),
        }
    }

    /// Up to a block this node's own tiers answer. `around`: though others own it.
    fn own(&mut self, around: bool, until: u32) {
        let address = Address { object: self.run.object.clone(), index: self.next };
        let (lines, stripe) = (&self.owners.lines, Stripe::of(&address));
        let answers_for_it = around && lines.first(&stripe) == Some(lines.roster().me());
        lines.figures().around.fetch_add(u64::from(around && !answers_for_it), Relaxed);
        if around && (self.owners.own.room)(&address, For::Reader).keeps() {
            lines.stands_in(&stripe);
        }
        self.inside(until, self.owners.own.inner.clone(), around && self.is_others);
    }

    /// `is_copy`: it is others' to keep.
    fn inside(&mut self, until: u32, source: Arc<dyn Source>, is_copy: bool) {
        self.until = until.clamp(self.next + 1, self.run.blocks.end);
        let run = Run { is_copy, ..self.run.part(self.next..self.until) };
        self.from = From::Inner(source.fetch(run));
    }

    fn manner(&self) -> Manner {
        Manner {
            is_urgent: self.run.course.is_urgent(),
            due_ms: self.owners.lines.due_ms(&self.run.course),
            ..Manner::default()
        }
    }

    fn note(&mut self, lost: &Lost) {
        self.lost_one |= matches!(lost, Lost::Broken(_) | Lost::Slow(_));
        self.is_others |= !matches!(lost, Lost::Broken(_) | Lost::NotMine);
        if let Lost::Failed(error) | Lost::Damaged(error) = lost {
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
        if line.is_empty() { self.own.inner.fetch(run) } else { self.asking(run, line).blocks() }
    }

    /// The owner compared the whole before it called it complete, and says with what; it alone asks the store.
    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        let (owners, object) = (self.clone(), object.clone());
        Box::pin(async move {
            // Of one in stripes nobody has the whole.
            if object.size <= block::ONE_STRIPE_BYTES_MAX
                && let Some(owner) = owners.line(&Run::new(object.clone(), 0..1)).pop_front()
                && let Some(sum) = owner.sum(&object, owners.lines.patience()).await
            {
                return Ok(sum);
            }
            owners.own.inner.checksum(&object, via).await
        })
    }

    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        self.own.inner.holds(address, may_wait)
    }

    fn forget(&self, object: &Object) {
        self.own.inner.forget(object);
    }
}
