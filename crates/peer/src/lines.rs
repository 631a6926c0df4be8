//! The way to each other member, and what is known of them: shared by those who ask and those who answer.
//!
//! Invariant: who has left the cluster is forgotten when the next one is looked for.

use crate::contact::Contact;
use crate::placement::{Placement, Verdict};
use crate::transport::Transport;
use crate::wire::{State, Word};
use crate::{Figures, Roster};
use block::{Address, Stripe};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Between two times that the others are asked how they are.
const EXCHANGE_EVERY: Duration = Duration::from_secs(10);

/// The same at least, also where what they said seems to be used up, and soon after the start, when members come one
/// after another.
const EXCHANGE_AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// A member that is older than this node by so much, and has something, was there before it.
const OLDER: Duration = Duration::from_secs(3);

/// Lines to the other members.
#[derive(Clone)]
pub struct Lines(Arc<Parts>);

struct Parts {
    roster: watch::Receiver<Arc<Roster>>,
    contacts: Mutex<HashMap<u128, Arc<Contact>>>,
    placement: Mutex<Placement>,
    /// Somebody wants to know how the others are now.
    wanted: Arc<Notify>,
    /// When this node became a member, and whether others were there long before.
    began: Instant,
    came_late: AtomicBool,
    transport: Arc<dyn Transport>,
    runtime: tokio::runtime::Handle,
    figures: Arc<Figures>,
}

impl Lines {
    pub fn new(
        roster: watch::Receiver<Arc<Roster>>,
        transport: Arc<dyn Transport>,
        runtime: tokio::runtime::Handle,
    ) -> Lines {
        let (contacts, placement, wanted, figures, came_late) = Default::default();
        let began = Instant::now();
        let lines = Lines(Arc::new(Parts {
            roster,
            contacts,
            placement,
            wanted,
            began,
            came_late,
            transport,
            runtime: runtime.clone(),
            figures,
        }));
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

    pub fn figures(&self) -> &Arc<Figures> {
        &self.0.figures
    }

    /// Whether a member answered when it was asked last. One that nobody asked does.
    pub fn answers(&self, id: u128) -> bool {
        self.contacts().get(&id).is_none_or(|contact| contact.answers())
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
        let Parts { transport, runtime, figures, .. } = &*self.0;
        let contact = Contact::new(seat.clone(), roster.me(), transport.clone(), runtime.clone(), figures.clone());
        contacts.insert(id, contact.clone());
        Some(contact)
    }

    /// A member connected to this node.
    pub(crate) fn knocks(&self, member: u128) {
        let roster = self.roster();
        if let Some(contact) = self.contact(&roster, member) {
            contact.knocks();
        }
    }

    /// Whether others were members long before this node, and have what it owns now.
    pub fn came_late(&self) -> bool {
        self.0.came_late.load(Relaxed)
    }

    pub(crate) fn age_ms(&self) -> u64 {
        self.0.began.elapsed().as_millis() as u64
    }

    /// Where a block is to be had that this node has no room for. `is_back`: who was named before doesn't keep it.
    pub(crate) fn verdict(&self, address: &Address, is_back: bool) -> Verdict {
        let (roster, stripe) = (self.roster(), Stripe::of(address));
        let others: Vec<u128> = roster.order(&stripe).into_iter().filter(|id| *id != roster.me()).collect();
        let blocks = stripe.blocks(&address.object);
        let bytes = address.object.start(blocks.end).min(address.object.size) - address.object.start(blocks.start);
        let mut placement = self.placement();
        if is_back {
            placement.refused(&stripe);
        }
        let answering: Vec<u128> = others.into_iter().filter(|id| self.answers(*id)).collect();
        let verdict = placement.verdict(stripe, bytes, &answering);
        if verdict == Verdict::Yours {
            self.0.wanted.notify_one();
        }
        verdict
    }

    /// Ask all others how they are.
    async fn exchange(&self) {
        let roster = self.roster();
        let contacts: Vec<_> = roster.seats().iter().filter_map(|seat| self.contact(&roster, seat.id)).collect();
        let ask = |contact: Arc<Contact>| async move {
            let state = contact.words(Word::State, Vec::new()).await.and_then(|words| State::decode(&words));
            (contact.seat.id, state)
        };
        let told = futures_util::future::join_all(contacts.into_iter().map(ask)).await;
        let is_older = |state: &State| state.kept_bytes > 0 && state.age_ms > self.age_ms() + OLDER.as_millis() as u64;
        if told.iter().any(|(_, state)| state.as_ref().is_some_and(is_older)) {
            self.0.came_late.store(true, Relaxed);
        }
        let mut placement = self.placement();
        for (member, state) in told {
            placement.told(member, state.map_or(0, |state| state.free_bytes));
        }
    }

    fn contacts(&self) -> MutexGuard<'_, HashMap<u128, Arc<Contact>>> {
        self.0.contacts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn placement(&self) -> MutexGuard<'_, Placement> {
        self.0.placement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
