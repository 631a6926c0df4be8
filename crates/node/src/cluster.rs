//! This node as a member of a cluster: what it gives to others.
//!
//! Invariant: others are given what their principal may read, by the same principal here: an object's store names it.

use crate::load;
use crate::shared::Sets;
use crate::stack::Stack;
use block::{Address, Blocks, Checksum, Course, Error, Object, PRINCIPAL, Result, Run, Waiting};
use bytes::Bytes;
use cache::Disk;
use cache::disk::{self, Kind, Lying};
use futures_util::future::BoxFuture;
use peer::{Brought, Count, For, Giver, Manner, Names, Opened, Room, Roster, Transport, Use};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use store::Origins;
use tokio::sync::watch;

/// Bytes of an object that another member may say is wrong: somewhat more than any store has in one.
const WRONG_BYTES_MAX: u64 = 64 << 40;

/// What makes a node a member.
pub struct Membership {
    /// Where the members are told, as it was typed.
    pub members: String,
    pub roster: watch::Receiver<Arc<Roster>>,
    pub transport: Arc<dyn Transport>,
    /// Whether members prove who they are, and nobody else hears what they say.
    pub is_encrypted: bool,
}

/// What objects call a store that this principal asks.
pub fn store_name(identity: &str, who: &str) -> Arc<str> {
    let principal = xxhash_rust::xxh3::xxh3_128(who.as_bytes());
    format!("{identity}{PRINCIPAL}{principal:032x}").into()
}

/// Gives others what this node owns.
pub struct Giving {
    pub stack: Stack,
    pub origins: Arc<Origins>,
    pub sets: Arc<Sets>,
    /// Held by whoever looks for what is to be dropped.
    pub dropping: Arc<tokio::sync::Mutex<()>>,
}

impl Giver for Giving {
    fn course(&self, manner: Manner) -> Course {
        let clock = cache::waits::clock;
        let due = manner.due_ms.map(|due| clock() + Duration::from_millis(due.into()));
        Course::wanted(clock, manner.is_urgent, due)
    }

    fn fetch(&self, run: Run) -> Option<Blocks> {
        let door = self.origins.door(&run.object.store)?;
        Some(self.stack.inner().fetch(run.via(door)))
    }

    fn shared(&self, run: Run) -> Option<Blocks> {
        let door = self.origins.door(&run.object.store)?;
        Some(self.stack.shared().fetch(run.via(door)))
    }

    fn open(&self, run: &Run) -> Option<Arc<dyn Opened>> {
        self.origins.door(&run.object.store)?;
        let lying = self.stack.open_file(run)?;
        lying.descriptor()?;
        Some(Arc::new(Open(lying)))
    }

    fn given_bytes(&self) -> u64 {
        self.stack.given_bytes()
    }

    fn held(&self, run: Run) -> Option<Blocks> {
        let door = self.origins.door(&run.object.store)?;
        Some(self.stack.held(run.via(door)))
    }

    fn lent(&self, run: Run, ticket: u64) -> Option<Blocks> {
        self.origins.door(&run.object.store)?;
        Some(self.stack.lend(run, ticket))
    }

    fn checksum(&self, object: &Arc<Object>) -> Option<Waiting<Option<Checksum>>> {
        // Larger ones are kept in pieces, which nobody calls complete.
        let door = self.origins.door(&object.store).filter(|_| object.size <= block::ONE_STRIPE_BYTES_MAX)?;
        Some(self.stack.checksum(object, door))
    }

    fn bring(&self, address: Address, manner: Manner) -> Option<Waiting<Brought>> {
        let (door, stack) = (self.origins.door(&address.object.store)?, self.stack.clone());
        if manner.is_wrong {
            return Some(Box::pin(drop_wrong(stack, address.object, self.dropping.clone())));
        }
        Some(Box::pin(async move { load::stripe_to_disk(&stack, door, &address, manner.verify).await }))
    }

    fn room(&self, address: &Address, asker: For) -> Room {
        self.stack.room(address, asker)
    }

    fn used(&self, uses: Vec<Count>) {
        self.stack.used(uses);
    }

    fn stale_bytes(&self) -> u64 {
        self.stack.stale_bytes()
    }

    fn room_bytes(&self) -> (u64, u64) {
        (self.stack.spare_bytes(), self.stack.disk_usage().0.written)
    }

    fn names(&self, set: u128) -> Names {
        self.sets.names(set)
    }

    fn piece(&self, set: u128, id: u128, offset: u64) -> BoxFuture<'static, Bytes> {
        let views = self.sets.views(set);
        let manifest = views.into_iter().map(|view| view.manifest()).find(|manifest| manifest.id() == id);
        // Pages of the snapshot may lie on a disk that takes its time.
        let read = move || manifest.map(|manifest| manifest.piece(offset, peer::PIECE_BYTES)).unwrap_or_default();
        let reading = tokio::task::spawn_blocking(read);
        Box::pin(async move { reading.await.unwrap_or_default().into() })
    }

    fn news(&self, set: u128) {
        self.sets.views(set).iter().for_each(|view| view.hear_news());
    }
}

/// Drop what lies here of an object that is wrong as a whole. Its size is anybody's word and each stripe of it is looked for: that is
/// bounded, holds up nobody who answers, and is done for one asker after the other.
async fn drop_wrong(stack: Stack, object: Arc<Object>, dropping: Arc<tokio::sync::Mutex<()>>) -> Result<Brought> {
    if object.size > WRONG_BYTES_MAX {
        return Err(Error::invalid("no store has an object of this size", &*object));
    }
    let one = dropping.lock_owned().await;
    let looking = tokio::task::spawn_blocking(move || {
        let _one = one;
        stack.drop_wrong(&object, &(0..object.blocks()));
    });
    looking.await.map_err(|_| Error::unavailable("the node is stopping", "the cache"))?;
    Ok(Brought::Unkept)
}

/// Blocks in a file of the cache, which has a descriptor.
struct Open(Lying);

impl Opened for Open {
    fn file(&self) -> BorrowedFd<'_> {
        self.0.descriptor().expect("it was looked for")
    }

    fn place(&self, address: &Address) -> u64 {
        self.0.place(address)
    }

    fn sums(&self, address: &Address) -> &[u64] {
        self.0.sums(address)
    }

    fn is_at_hand(&self, address: &Address) -> bool {
        self.0.is_at_hand(address)
    }
}

/// Whether a disk has a block, or room for it. What may not be kept at all needs none.
pub fn room(disk: &Disk, address: &Address, asker: For) -> Room {
    if !store::is_settled(&address.object) {
        return Room::Free;
    }
    if disk.keeps(address) {
        return Room::Here;
    }
    if disk.has_free_room_for(address) {
        return Room::Free;
    }
    let has_room = match asker {
        For::Nobody => disk.has_room_for(address),
        For::Reader => disk.may_admit(address),
        For::Owner => disk.may_admit_in_stead(address),
    };
    match has_room {
        true => Room::Yielded,
        false if asker == For::Reader && disk.is_wanted(address) => Room::Wanted,
        false => Room::Full,
    }
}

/// What a member is to count, as its disk counts it.
pub fn use_of(count: Count) -> disk::Use {
    let Count { used: Use { object, size, is_new, .. }, parts, set_bytes, is_own } = count;
    let kind = match (is_new, is_own) {
        (true, true) => Kind::Opened,
        (true, false) => Kind::OpenedOfAnother,
        (false, _) => Kind::Open,
    };
    disk::Use { object, size, parts, set_bytes, kind }
}
