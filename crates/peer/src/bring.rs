//! Having a stripe brought to the disk of who owns it, for nobody in particular: its bytes cross the network once, from the
//! store to its owner.
//!
//! Invariant: as of a fetch, who has no room names another, and what no member takes is this node's to bring.

use crate::For;
use crate::contact::Contact;
use crate::link::Lost;
use crate::owners::{ASKED_MAX, Owners};
use crate::placement::Verdict;
use crate::wire::{Brought, Manner, Wish, Word};
use block::{Address, Error, Kind, Object, Result, Run, Stripe};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Bytes a second of one stripe that a member brings at least, if it brings nothing else meanwhile.
const BROUGHT_A_SECOND: u64 = 256 << 10;

/// Members that are still to be asked.
struct Asking<'a> {
    owners: &'a Owners,
    address: &'a Address,
    line: VecDeque<(Arc<Contact>, Manner)>,
    /// Who named somebody; none if it was this node.
    owner: Option<Arc<Contact>>,
    manner: Manner,
    /// This node has no room for it.
    is_full: bool,
}

/// What an answer leads to.
enum Next {
    Over(Result<Brought>),
    /// This node is to bring it.
    Here,
    On,
}

impl Owners {
    /// Have the stripe of a block brought by whoever keeps it; `verify`: what lies there already is compared again. `None` if
    /// this node is to bring it. `is_full`: this node has no room for it.
    pub async fn bring(&self, address: &Address, verify: bool, is_full: bool) -> Option<Result<Brought>> {
        let manner = Manner { verify, ..Manner::default() };
        let run = Run::new(address.object.clone(), address.index..address.index + 1);
        let line: VecDeque<_> = self.line(&run).into_iter().map(|contact| (contact, manner)).collect();
        let mut asking = Asking { owners: self, address, line, owner: None, manner, is_full };
        if self.lines().first(&Stripe::of(address)) == Some(self.lines().roster().me()) {
            // Those before it are away.
            asking.line.clear();
            self.lines().stands_in(&Stripe::of(address));
        }
        if asking.line.is_empty() && is_full {
            match asking.named(None) {
                Next::On => {}
                Next::Over(brought) => return Some(brought),
                Next::Here => return None,
            }
        }
        for _ in 0..ASKED_MAX {
            let Some((contact, manner)) = asking.line.pop_front() else {
                // Nobody of those before it answers.
                if !is_full {
                    self.lines().stands_in(&Stripe::of(address));
                }
                return None;
            };
            let payload = Wish { run: run.clone(), manner }.encode()?;
            match self.brought(&contact, address, payload).await {
                None => {}
                Some(Ok(words)) => match Brought::decode(&words) {
                    Some(brought) => return Some(Ok(brought)),
                    None => tracing::warn!("another member said what makes no sense: {}", contact.seat.name),
                },
                Some(Err(lost)) => match asking.after(contact, lost) {
                    Next::Over(brought) => return Some(brought),
                    Next::Here => return None,
                    Next::On => {}
                },
            }
        }
        None
    }

    /// What a member says of a stripe that it is to bring. It is waited for as long as it brings anything at all: its store may be
    /// slow, much may be asked of it, or its disk hangs while it says that it lives.
    async fn brought(
        &self,
        contact: &Arc<Contact>,
        address: &Address,
        payload: Vec<u8>,
    ) -> Option<std::result::Result<Bytes, Lost>> {
        let bytes = block::bytes_of(address.object.size, &Stripe::of(address).blocks(&address.object));
        let within = self.lines().patience() + Duration::from_secs(bytes / BROUGHT_A_SECOND);
        let mut said = std::pin::pin!(contact.say(Word::Bring, payload));
        loop {
            let before = contact.brought();
            match tokio::time::timeout(within, &mut said).await {
                Ok(said) => {
                    contact.has_brought();
                    return said;
                }
                Err(_) if contact.brought() != before => {}
                Err(_) => return Some(Err(contact.gives_nothing())),
            }
        }
    }
}

impl Owners {
    /// Have all members drop what they have of an object that is wrong as a whole: it is not known which part of it is. Who is away
    /// keeps that, until it is found again.
    pub async fn drop_wrong(&self, object: &Arc<Object>) {
        let wish = Wish { run: Run::new(object.clone(), 0..1), manner: Manner { is_wrong: true, ..Manner::default() } };
        let Some(payload) = wish.encode() else { return };
        let roster = self.lines().roster();
        let others: Vec<_> = roster.seats().iter().filter_map(|seat| self.lines().contact(&roster, seat.id)).collect();
        let tell = |contact: Arc<Contact>| {
            let payload = payload.clone();
            // One that only says that it lives holds up nobody.
            async move { drop(tokio::time::timeout(self.lines().patience(), contact.say(Word::Bring, payload)).await) }
        };
        futures_util::future::join_all(others.into_iter().map(tell)).await;
    }
}

impl Asking<'_> {
    /// A member didn't bring it.
    fn after(&mut self, contact: Arc<Contact>, lost: Lost) -> Next {
        match lost {
            Lost::Lent(_) => Next::Over(Ok(Brought::Unkept)),
            Lost::Elsewhere(member) => {
                self.owner = Some(contact);
                self.sent_to(member)
            }
            Lost::NotHeld => self.refused(contact.seat.id),
            Lost::Failed(error) if matches!(error.kind, Kind::Missing | Kind::Changed) => {
                // The link knows the member alone, not what was asked.
                let on = self.address.object.to_string();
                Next::Over(Err(Error::new(error.kind, error.what, on).hint(error.hint)))
            }
            // It was patient with the store already, and each of the next ones would be as long again: this node is to try.
            Lost::Failed(error) if error.kind != Kind::Corrupt && error.passes() => self.on_alone(),
            lost if lost.is_nothing() => self.on_alone(),
            // Anything else may be the member's own trouble.
            Lost::NotMine | Lost::Failed(_) | Lost::Damaged(_) | Lost::Broken(_) | Lost::Slow(_) => Next::On,
        }
    }

    /// This node tries next, if it has room.
    fn on_alone(&mut self) -> Next {
        if !self.is_full {
            self.line.clear();
        }
        Next::On
    }

    /// Whom this node, which owns it and has no room, names.
    fn named(&mut self, refused: Option<u128>) -> Next {
        match self.owners.lines().verdict(self.address, refused, false) {
            Verdict::Yours => Next::Over(Ok(Brought::Unkept)),
            Verdict::Elsewhere(member) => self.sent_to(member),
        }
    }

    /// Who was named doesn't take it. The owner is to know that it names in vain.
    fn refused(&mut self, member: u128) -> Next {
        let Some(owner) = self.owner.take() else { return self.named(Some(member)) };
        self.line.push_front((owner, Manner { refused: Some(member), ..self.manner }));
        Next::On
    }

    fn sent_to(&mut self, member: u128) -> Next {
        let roster = self.owners.lines().roster();
        if member == roster.me() {
            // It named this node by what that told some time ago.
            let has_room = !self.is_full && (self.owners.own().room)(self.address, For::Nobody).keeps();
            return if has_room { Next::Here } else { self.refused(member) };
        }
        let contact = self.owners.lines().contact(&roster, member);
        if let Some(contact) = contact {
            self.line.push_front((contact, Manner { for_owner: true, ..self.manner }));
        }
        Next::On
    }
}
