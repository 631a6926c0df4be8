//! The way to each other member, and what is known of them: shared by those who ask and those who answer.
//!
//! Invariant: who has left the cluster is forgotten when the next one is looked for.

mod stead;

use crate::contact::Contact;
use crate::link::{BEAT, SILENT_BEATS};
use crate::placement::{Placement, Verdict};
use crate::transport::Transport;
use crate::unkept::{Lender, Loan, Turn, Unkept};
use crate::uses::Uses;
use crate::wire::{State, Word};
use crate::{Figures, Roster};
use block::{Address, Course, Run, Stripe};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use stead::Stead;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Between two times that the others are asked how they are.
const EXCHANGE_EVERY: Duration = Duration::from_secs(10);

/// The same at least, also where what they said seems to be used up, and soon after the start, when members come one
/// after another.
const EXCHANGE_AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// A member that is younger by so much than it should be has begun anew.
const YOUNGER_MS: u64 = 1000;

/// Times that a member is asked in vain how it is before it counts as gone for long: each node looks at all it has then.
const AWAY_TIMES: u32 = 2;

/// How long each is waited for.
const STATE_WITHIN: Duration = Duration::from_secs(2);

/// For so long after others may have taken something in this node's stead they are asked for it before the store is: until then
/// they have told it.
const IN_DOUBT: Duration = Duration::from_secs(30);

/// Between two looks at whether this node stood still.
const STILL_LOOK: Duration = Duration::from_millis(100);

/// A member that is older than this node by so much, and has something, was there before it.
pub(crate) const OLDER: Duration = Duration::from_secs(3);

/// Lines to the other members.
#[derive(Clone)]
pub struct Lines(Arc<Parts>);

struct Parts {
    roster: watch::Receiver<Arc<Roster>>,
    contacts: Mutex<BTreeMap<u128, Arc<Contact>>>,
    placement: Mutex<Placement>,
    unkept: Mutex<Unkept>,
    ages: Mutex<Ages>,
    somebody_changed: Notify,
    stead: Stead,
    /// Somebody wants to know how the others are now.
    wanted: Arc<Notify>,
    /// When this node became a member, and whether others were there long before.
    began: Instant,
    came_late: AtomicBool,
    /// Until when others may have what this node owns: it stood still, or somebody lost it.
    in_doubt: Mutex<Option<Instant>>,
    transport: Arc<dyn Transport>,
    /// How long a member is waited for that says only that it lives.
    patience: Duration,
    runtime: tokio::runtime::Handle,
    figures: Arc<Figures>,
    /// Bytes that came from all members.
    of_all: Arc<AtomicU64>,
    uses: Uses,
}

/// Lines that last no longer for being known here.
pub(crate) struct Known(Weak<Parts>);

impl Known {
    pub(crate) fn upgrade(&self) -> Option<Lines> {
        self.0.upgrade().map(Lines)
    }
}

/// How long others have been members, and who of them came back or went away, for which nobody was told yet what this node keeps.
#[derive(Default)]
pub(crate) struct Ages {
    pub(crate) known: HashMap<u128, (u64, Instant)>,
    /// How often those were asked in vain who don't answer.
    away: HashMap<u128, u32>,
    changed: BTreeSet<u128>,
}

impl Lines {
    /// `patience`: how long a reader waits for a member that says only that it lives, as long as for a store.
    pub fn new(
        roster: watch::Receiver<Arc<Roster>>,
        transport: Arc<dyn Transport>,
        patience: Duration,
        runtime: tokio::runtime::Handle,
    ) -> Lines {
        let (contacts, placement, unkept, ages, somebody_changed, stead) = Default::default();
        let (wanted, figures, came_late, in_doubt, of_all, uses) = Default::default();
        let began = Instant::now();
        let lines = Lines(Arc::new(Parts {
            roster,
            contacts,
            placement,
            unkept,
            ages,
            somebody_changed,
            stead,
            wanted,
            began,
            came_late,
            in_doubt,
            transport,
            patience,
            runtime: runtime.clone(),
            figures,
            of_all,
            uses,
        }));
        lines.begin_telling();
        runtime.spawn(notice_stops(lines.downgrade()));
        let exchanging = Arc::downgrade(&lines.0);
        runtime.spawn(async move {
            let mut pause = EXCHANGE_AT_MOST_EVERY;
            while let Some(parts) = exchanging.upgrade() {
                let wanted = parts.wanted.clone();
                Lines(parts).exchange().await;
                tokio::time::sleep(EXCHANGE_AT_MOST_EVERY).await;
                let _ = tokio::time::timeout(pause - EXCHANGE_AT_MOST_EVERY, wanted.notified()).await;
                pause = (2 * pause).min(EXCHANGE_EVERY);
            }
        });
        lines
    }

    pub fn roster(&self) -> Arc<Roster> {
        self.0.roster.borrow().clone()
    }

    pub(crate) fn patience(&self) -> Duration {
        self.0.patience
    }

    pub fn figures(&self) -> &Arc<Figures> {
        &self.0.figures
    }

    pub(crate) fn uses(&self) -> &Uses {
        &self.0.uses
    }

    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.0.runtime
    }

    pub(crate) fn downgrade(&self) -> Known {
        Known(Arc::downgrade(&self.0))
    }

    /// The members, as they change.
    pub fn rosters(&self) -> watch::Receiver<Arc<Roster>> {
        self.0.roster.clone()
    }

    /// The next member that came back after it had ended, and remembers nothing; or that went away, and somebody answers in its
    /// stead who doesn't know what it knew.
    pub async fn came_or_went(&self) -> u128 {
        loop {
            let next = self.ages().changed.pop_first();
            match next {
                Some(member) => return member,
                None => self.0.somebody_changed.notified().await,
            }
        }
    }

    /// The first in line for a stripe who is not away: its owner, or who stands in for it. It may be this node.
    pub(crate) fn first(&self, stripe: &Stripe) -> Option<u128> {
        let roster = self.roster();
        let is_there = |id: &u128| *id == roster.me() || self.answers(*id);
        let owner = roster.owner(stripe)?;
        if is_there(&owner) { Some(owner) } else { roster.order(stripe).into_iter().find(is_there) }
    }

    /// The first in line for a stripe, if it is another member. Nobody where it is of no account that this one came or went.
    pub fn answers_for(&self, stripe: &Stripe, came_or_went: u128) -> Option<u128> {
        let (roster, first) = (self.roster(), self.first(stripe)?);
        // Most are of others, who are there all the time.
        if first == roster.me() || (first != came_or_went && roster.owner(stripe) == Some(first)) {
            return None;
        }
        let line = roster.order(stripe);
        line.into_iter().find(|id| *id == first || *id == came_or_went).filter(|id| *id == came_or_went)?;
        Some(first)
    }

    /// Whether a member answered when it was asked last. One that nobody asked does.
    pub fn answers(&self, id: u128) -> bool {
        self.contacts().get(&id).is_none_or(|contact| contact.answers())
    }

    /// Why a member doesn't answer, if it doesn't.
    pub fn reason(&self, id: u128) -> Option<String> {
        self.contacts().get(&id).and_then(|contact| contact.reason())
    }

    /// Stripes that others keep in this node's stead.
    pub fn placed(&self) -> u64 {
        self.placement().placed()
    }

    /// Where a member is reached now: its address may have changed.
    pub(crate) fn contact(&self, roster: &Roster, id: u128) -> Option<Arc<Contact>> {
        let seat = roster.seat(id).filter(|seat| seat.id != roster.me())?;
        let mut contacts = self.contacts();
        if let Some(known) = contacts.get(&id).filter(|known| known.seat.address == seat.address) {
            return Some(known.clone());
        }
        contacts.retain(|id, _| roster.seat(*id).is_some());
        let Parts { transport, runtime, figures, of_all, .. } = &*self.0;
        let counts = (figures.clone(), of_all.clone());
        let contact = Contact::new(seat.clone(), roster.me(), transport.clone(), runtime.clone(), counts);
        contacts.insert(id, contact.clone());
        Some(contact)
    }

    /// A member connected to this node. `is_anew`: it has no other connection.
    pub(crate) fn knocks(&self, member: u128, is_anew: bool) {
        let roster = self.roster();
        if let Some(contact) = self.contact(&roster, member) {
            contact.knocks();
        }
        // One that was connected before had lost this node.
        if is_anew && self.ages().known.contains_key(&member) {
            self.doubt();
        }
        // It may have begun anew, and not know what others keep for it.
        self.0.wanted.notify_one();
    }

    /// Whether others may have what this node owns now: they were members long before it, or did without it for a moment.
    pub fn came_late(&self) -> bool {
        let is_in_doubt =
            || self.0.in_doubt.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|end| Instant::now() < end);
        self.0.came_late.load(Relaxed) || is_in_doubt()
    }

    /// Others may have taken something in this node's stead just now.
    fn doubt(&self) {
        *self.0.in_doubt.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + IN_DOUBT);
    }

    /// In how many milliseconds a reader will wait for a run. No clock but this one tells that.
    pub(crate) fn due_ms(&self, course: &Course) -> Option<u32> {
        let left = Instant::from_std(course.due()?).saturating_duration_since(Instant::now());
        Some(u32::try_from(left.as_millis()).unwrap_or(u32::MAX))
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    pub(crate) fn age_ms(&self) -> u64 {
        self.0.began.elapsed().as_millis() as u64
    }

    /// Where a block is to be had that this node has no room for. `refused`: this one was named before, and
    /// doesn't have it. `is_wanted`: readers asked for it often enough for something else to give way.
    pub(crate) fn verdict(&self, address: &Address, refused: Option<u128>, is_wanted: bool) -> Verdict {
        let (roster, stripe) = (self.roster(), Stripe::of(address));
        let others: Vec<u128> = roster.order(&stripe).into_iter().filter(|id| *id != roster.me()).collect();
        let blocks = stripe.blocks(&address.object);
        let bytes = address.object.start(blocks.end).min(address.object.size) - address.object.start(blocks.start);
        let mut placement = self.placement();
        if let Some(member) = refused {
            placement.refused(&stripe, member);
        }
        let verdict = placement.verdict((stripe, bytes, is_wanted), &others, |id| self.answers(id));
        if verdict == Verdict::Yours {
            self.0.wanted.notify_one();
        }
        verdict
    }

    /// Who keeps the stripe of a block in this node's stead.
    pub fn keeper(&self, address: &Address) -> Option<u128> {
        self.keeper_of(&Stripe::of(address))
    }

    /// Whether somebody keeps it in this node's stead who answers, and was not asked in vain.
    pub(crate) fn is_kept(&self, address: &Address, refused: Option<u128>) -> bool {
        self.keeper(address).is_some_and(|keeper| Some(keeper) != refused && self.answers(keeper))
    }

    pub(crate) fn keeper_of(&self, stripe: &Stripe) -> Option<u128> {
        self.placement().keeper(stripe)
    }

    /// Where the first blocks of a run come from that nobody keeps, and until which block that is so.
    pub(crate) fn turn(&self, run: &Run, asker: u128, refused: Option<u128>) -> Turn {
        let roster = self.roster();
        let (what, who) = ((run.object.id(), run.blocks.clone()), (roster.me(), asker));
        let turn = self.unkept().turn(what, who, refused, Instant::now());
        match turn {
            Turn::Lent(loan) => {
                let is_there = |lender: &Lender| roster.seat(lender.member).is_some() && self.answers(lender.member);
                Turn::Lent(Loan { lender: loan.lender.filter(is_there), ..loan })
            }
            given => given,
        }
    }

    /// Ask all others how they are.
    async fn exchange(&self) {
        let roster = self.roster();
        let contacts: Vec<_> = roster.seats().iter().filter_map(|seat| self.contact(&roster, seat.id)).collect();
        let ask = |contact: Arc<Contact>| async move {
            // One that works on much may answer late, and holds up nobody.
            let said = tokio::time::timeout(STATE_WITHIN, contact.words(Word::State, Vec::new())).await;
            (contact.seat.id, said.ok().flatten().and_then(|words| State::decode(&words)))
        };
        let told = futures_util::future::join_all(contacts.into_iter().map(ask)).await;
        let is_older = |state: &State| state.kept_bytes > 0 && state.age_ms > self.age_ms() + OLDER.as_millis() as u64;
        if told.iter().any(|(_, state)| state.as_ref().is_some_and(is_older)) {
            self.0.came_late.store(true, Relaxed);
        }
        self.note_ages(&told);
        self.tell_untold().await;
        let mut placement = self.placement();
        for (member, state) in told {
            // Who answers late has the room that it had.
            let Some(state) = state.or_else(|| (!self.answers(member)).then(State::default)) else { continue };
            placement.told(member, state.free_bytes);
            placement.told_stale(member, state.stale_bytes);
        }
    }

    /// Who is younger than it was has ended since, and begun anew; who doesn't answer any more is away.
    fn note_ages(&self, told: &[(u128, Option<State>)]) {
        let (mut ages, now) = (self.ages(), Instant::now());
        for (member, state) in told {
            let Some(state) = state else {
                let times = ages.away.entry(*member).or_default();
                *times = times.saturating_add(u32::from(!self.answers(*member)));
                if *times == AWAY_TIMES {
                    ages.changed.insert(*member);
                }
                continue;
            };
            let was_away = ages.away.remove(member).is_some_and(|times| times > 0);
            let known = ages.known.insert(*member, (state.age_ms, now));
            // One that was not there yet had nothing to take.
            if was_away && known.is_some() {
                self.doubt();
            }
            let would_be =
                |(age, at): (u64, Instant)| age.saturating_add(now.saturating_duration_since(at).as_millis() as u64);
            if known.is_some_and(|known| state.age_ms.saturating_add(YOUNGER_MS) < would_be(known)) {
                ages.changed.insert(*member);
            }
        }
        if !ages.changed.is_empty() {
            self.0.somebody_changed.notify_one();
        }
        let roster = self.roster();
        ages.known.retain(|member, _| roster.seat(*member).is_some());
        ages.away.retain(|member, _| roster.seat(*member).is_some());
    }

    pub(crate) fn ages(&self) -> MutexGuard<'_, Ages> {
        self.0.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contacts(&self) -> MutexGuard<'_, BTreeMap<u128, Arc<Contact>>> {
        self.0.contacts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unkept(&self) -> MutexGuard<'_, Unkept> {
        self.0.unkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn placement(&self) -> MutexGuard<'_, Placement> {
        self.0.placement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notice that this node stood still for longer than others wait for it.
async fn notice_stops(lines: Known) {
    loop {
        let before = Instant::now();
        tokio::time::sleep(STILL_LOOK).await;
        let Some(lines) = lines.upgrade() else { return };
        if before.elapsed() > BEAT * SILENT_BEATS {
            lines.doubt();
        }
    }
}
