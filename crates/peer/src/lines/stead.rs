//! What members keep in the stead of others: who keeps it tells the owner, and the owner tells who need not any more.
//!
//! Invariants: what is remembered is bounded, and what is forgotten costs hits or room, and no byte. Of what its owner has itself, or
//! another keeps, nobody else keeps more than a copy.

use super::{Lines, STATE_WITHIN};
use crate::wire::{self, Word};
use block::Stripe;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Stripes of others that this node remembers to tell them of. Of more they hear nothing.
const UNTOLD_MAX: usize = 1 << 16;

/// What is known of it.
#[derive(Default)]
pub(super) struct Stead {
    /// What others weren't told yet: what this node keeps in their stead, and what they need not keep in its own.
    untold: Mutex<BTreeMap<u128, BTreeSet<Stripe>>>,
    /// What owners said that nobody need keep in their stead.
    spared: Mutex<BTreeSet<Stripe>>,
    /// Somebody said so.
    is_spared: Notify,
    /// Somebody said what it keeps in this node's stead.
    is_stood_in_for: Notify,
}

impl Lines {
    /// Tell a member what this node keeps in its stead; whether it heard all of it. One that only says that it lives holds up nobody
    /// who is told next.
    pub async fn tell_kept(&self, member: u128, stripes: &[Stripe]) -> bool {
        let Some(contact) = self.contact(&self.roster(), member) else { return false };
        for some in stripes.chunks(wire::STRIPES_MAX) {
            let told = contact.words(Word::Kept, wire::encode_stripes(some));
            if tokio::time::timeout(self.patience(), told).await.ok().flatten().is_none() {
                return false;
            }
        }
        true
    }

    /// This node keeps from now on what another one owns, who is away, or whom an asker doesn't reach: it hears so once it answers.
    pub(crate) fn stands_in(&self, stripe: &Stripe) {
        let roster = self.roster();
        let owner = roster.owner(stripe).filter(|owner| *owner != roster.me());
        if owner.is_some_and(|owner| self.remember(owner, [*stripe])) {
            self.0.wanted.notify_one();
        }
    }

    /// Remember what is to be told to a member, as far as there is room for that. Whether there was some. Who is away for long takes none
    /// from who answers: what it isn't told then costs it a fetch.
    pub fn remember(&self, member: u128, stripes: impl IntoIterator<Item = Stripe>) -> bool {
        let mut untold = self.in_stead();
        let left = |untold: &BTreeMap<u128, BTreeSet<Stripe>>| {
            UNTOLD_MAX.saturating_sub(untold.values().map(BTreeSet::len).sum())
        };
        if left(&untold) == 0 && self.answers(member) {
            untold.retain(|other, _| self.answers(*other));
        }
        let left = left(&untold);
        if left > 0 {
            untold.entry(member).or_default().extend(stripes.into_iter().take(left));
        }
        left > 0
    }

    /// Tell those who answer what this node keeps in their stead. Who doesn't hear it is told again.
    pub(super) async fn tell_untold(&self) {
        let (roster, all) = (self.roster(), std::mem::take(&mut *self.in_stead()));
        let tell =
            all.into_iter().filter(|(member, _)| roster.seat(*member).is_some()).map(|(member, stripes)| async move {
                let some: Vec<Stripe> = stripes.iter().copied().collect();
                let telling = tokio::time::timeout(STATE_WITHIN, self.tell_kept(member, &some));
                if !self.answers(member) || !telling.await.unwrap_or(false) {
                    // Others took some of the room meanwhile.
                    self.remember(member, stripes);
                }
            });
        futures_util::future::join_all(tell).await;
    }

    /// A member says that it keeps these in this node's stead; or, of its own, that this node need not.
    pub(crate) fn keeps(&self, member: u128, stripes: &[Stripe]) {
        let roster = self.roster();
        if roster.seat(member).is_none() {
            return;
        }
        let (own, others): (Vec<_>, Vec<_>) = stripes.iter().partition(|stripe| roster.owner(stripe) == Some(member));
        if !own.is_empty() {
            let mut spared = self.spare();
            let left = UNTOLD_MAX.saturating_sub(spared.len());
            spared.extend(own.into_iter().take(left));
            self.0.stead.is_spared.notify_one();
        }
        if others.is_empty() {
            return;
        }
        // Not of its own: those it is asked for. This node may answer for others of which it doesn't know yet that they are away.
        let mut placement = self.placement();
        let mut is_kept_by_another =
            |stripe: &Stripe| placement.keeps(*stripe, member, |id| self.answers(id)) != member;
        let twice: Vec<Stripe> = others.into_iter().copied().filter(|stripe| is_kept_by_another(stripe)).collect();
        drop(placement);
        self.spares(
            twice.into_iter().filter(|stripe| roster.owner(stripe) == Some(roster.me())).map(|stripe| (member, stripe)),
        );
        self.0.stead.is_stood_in_for.notify_one();
    }

    /// Members need not keep these in this node's stead: it has them itself, or another keeps them.
    fn spares(&self, stripes: impl IntoIterator<Item = (u128, Stripe)>) {
        for (member, stripe) in stripes {
            self.remember(member, [stripe]);
        }
        self.0.wanted.notify_one();
    }

    /// What this node owns, has and was told that others keep in its stead: they hear that they need not.
    pub fn has_itself(&self, stripes: &[Stripe]) {
        let mut placement = self.placement();
        let kept: Vec<_> = stripes.iter().filter_map(|stripe| Some((placement.forget(stripe)?, *stripe))).collect();
        drop(placement);
        self.spares(kept);
    }

    /// Wait until somebody says what it keeps in this node's stead.
    pub async fn stood_in_for(&self) {
        self.0.stead.is_stood_in_for.notified().await;
    }

    /// What owners said since this was asked that nobody need keep in their stead: some of it, once there is some.
    pub async fn spared(&self) -> BTreeSet<Stripe> {
        loop {
            let spared = std::mem::take(&mut *self.spare());
            if !spared.is_empty() {
                return spared;
            }
            self.0.stead.is_spared.notified().await;
        }
    }

    fn spare(&self) -> MutexGuard<'_, BTreeSet<Stripe>> {
        self.0.stead.spared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_stead(&self) -> MutexGuard<'_, BTreeMap<u128, BTreeSet<Stripe>>> {
        self.0.stead.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Roster, Seat, Twin};
    use block::ObjectId;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;

    #[tokio::test(start_paused = true)]
    async fn what_members_are_still_to_be_told_is_bounded_also_while_they_are_told_in_vain() {
        let seats = ["a", "b", "c"].map(|name| Seat::new(name, format!("{name}:1"), 1));
        let (_sender, roster) = watch::channel(Arc::new(Roster::of(seats[0].id, seats.clone())));
        let runtime = tokio::runtime::Handle::current();
        let twin = Twin::default();
        // Somebody who never greets.
        let _silent = twin.listen("b:1");
        let lines = Lines::new(roster, Arc::new(twin), Duration::from_secs(1), runtime);
        let stripe = |object| Stripe { object: ObjectId(object), index: 0 };
        let known = || lines.in_stead().values().map(BTreeSet::len).sum::<usize>();
        lines.remember(seats[1].id, (0..UNTOLD_MAX as u128).map(stripe));
        let (telling, meanwhile) = (lines.tell_untold(), async {
            assert_eq!(known(), 0, "they are being told");
            lines.remember(seats[2].id, (0..100).map(stripe));
        });
        tokio::join!(telling, meanwhile);
        assert_eq!(known(), UNTOLD_MAX);
        assert!(!lines.remember(seats[1].id, [stripe(u128::MAX)]));
    }
}
