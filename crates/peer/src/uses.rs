//! What readers open of what other members own: gathered here and told to the owners, since copies, memory and the kernel
//! hide it from them. An open is told by the request that it leads to, if there is one, else with all others of some seconds.
//!
//! Who stands in for an owner that is away counts as one. Advice alone: what is over a bound, or for a member that is away, is
//! dropped, which costs hits and nothing else.
//! Invariants: each open is told once; what the owner passes on to who keeps it in its stead goes no further.

use crate::Roster;
use crate::contact::Contact;
use crate::lines::Lines;
use crate::wire::{Reader, Wish, Word};
use block::{Address, ONE_STRIPE_BYTES_MAX, ObjectId, Stripe, blocks_of};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Between two times that owners are told.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The same at least, also where readers open much.
const TOLD_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// Sooner than that, once so many parts of what this node reads of a set in an epoch were opened: owners are to know the
/// order of opens to some sixteenth of an epoch, also of one that takes seconds.
const EPOCH_PARTS: u64 = 16;

/// How long a member is waited for.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// Objects that wait to be told of, and as many that are open: some hundred bytes each. At half of that they are told.
const UNTOLD_MAX: usize = 1 << 15;

/// Uses of one request: they fit.
pub const USES_MAX: usize = 960;

/// Stripes of an object whose owners are looked for: 16 GiB. Each costs a hash for each member, on every open; of what is larger the
/// rest is not counted, and a size that is a lie costs no more.
const STRIPES_COUNTED_MAX: usize = 1024;

/// Stripes of all uses of one request: of what is over that, nothing is counted. Of objects
/// up to 128 MiB, all is counted that one can tell.
const STRIPES_HEARD_MAX: usize = 8 * STRIPES_COUNTED_MAX;

/// Bytes of one of them, and of what comes before them.
const USE: usize = 33;
const HEAD: usize = 1;

const _: () = assert!(HEAD + USES_MAX * USE <= crate::wire::REQUEST_BYTES_MAX as usize);
const _: () = assert!(USES_MAX <= STRIPES_HEARD_MAX);

/// An object that readers have use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    pub object: ObjectId,
    pub size: u64,
    /// Of the data set that it belongs to.
    pub set_bytes: u64,
    /// It was opened just now; else it is open still.
    pub is_new: bool,
}

/// What a member is to count of a use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub used: Use,
    /// Blocks of the object.
    pub parts: Vec<Range<u32>>,
    /// Of the set, as far as this member owns it.
    pub set_bytes: u64,
    /// Whether it owns these parts and nobody keeps them in its stead. Of others it may have copies, or keep them in the owner's.
    pub is_own: bool,
}

/// Uses as bytes. `is_passed_on`: the owner says so to who keeps them in its stead.
pub fn encode_uses(uses: &[Use], is_passed_on: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + uses.len() * USE);
    out.push(u8::from(is_passed_on));
    for Use { object, size, set_bytes, is_new } in uses {
        out.push(u8::from(*is_new));
        out.extend(object.0.to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend(set_bytes.to_le_bytes());
    }
    out
}

/// Nothing of bytes that nobody says so.
pub fn decode_uses(bytes: &[u8]) -> Option<(Vec<Use>, bool)> {
    let (head, rest) = bytes.split_first()?;
    let (uses, rest) = rest.as_chunks::<USE>();
    let one = |bytes: &[u8; USE]| {
        let mut reader = Reader(bytes);
        let is_new = flag(reader.take(1)?[0])?;
        let (object, size, set_bytes) = (ObjectId(reader.u128()?), reader.u64()?, reader.u64()?);
        blocks_of(size).filter(|blocks| *blocks > 0)?;
        Some(Use { object, size, set_bytes, is_new })
    };
    let uses = uses.iter().map(one).collect::<Option<Vec<Use>>>()?;
    (rest.is_empty() && uses.len() <= USES_MAX).then_some((uses, flag(*head)?))
}

fn flag(byte: u8) -> Option<bool> {
    (byte < 2).then_some(byte == 1)
}

/// What owners are still to be told.
#[derive(Default)]
pub(crate) struct Uses {
    untold: Mutex<Untold>,
    /// There is so much that it is to be told now.
    wanted: Arc<Notify>,
}

#[derive(Default)]
struct Untold {
    opened: HashMap<ObjectId, Opened>,
    /// Bytes of them.
    bytes: u64,
    /// When it was last told what is open.
    open_told: Option<Instant>,
    /// How many came before.
    count: u64,
    /// What this node is to pass on, and to whom.
    passed_on: HashMap<(u128, ObjectId), Use>,
    /// What is open, and how often.
    open: HashMap<ObjectId, (u32, Use)>,
}

struct Opened {
    used: Use,
    /// Its owner; none of what is cut into stripes, which may have many.
    owner: Option<u128>,
    /// How many came before it.
    turn: u64,
}

impl Uses {
    fn untold(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader opened what another member owns.
    fn gather(&self, used: Use, owner: Option<u128>, members: u64) {
        let mut untold = self.untold();
        if untold.opened.len() >= UNTOLD_MAX && !untold.opened.contains_key(&used.object) {
            return;
        }
        let turn = untold.count;
        untold.count += 1;
        if untold.opened.insert(used.object, Opened { used, owner, turn }).is_none() {
            untold.bytes = untold.bytes.saturating_add(used.size);
        }
        let share = used.set_bytes / EPOCH_PARTS / members.max(1);
        if untold.bytes > share || untold.opened.len() >= UNTOLD_MAX / 2 {
            self.wanted.notify_one();
        }
    }

    fn pass_on(&self, used: Use, keepers: &[u128]) {
        let mut untold = self.untold();
        for keeper in keepers {
            if untold.passed_on.len() < UNTOLD_MAX {
                untold.passed_on.insert((*keeper, used.object), used);
            }
        }
    }

    /// The owner of an object is asked for it: whether it is to be told by that request that a reader opened it.
    pub(crate) fn take(&self, object: ObjectId) -> Option<Use> {
        let mut untold = self.untold();
        untold.opened.get(&object).filter(|opened| opened.owner.is_some())?;
        let used = untold.opened.remove(&object)?.used;
        untold.bytes = untold.bytes.saturating_sub(used.size);
        Some(used)
    }
}

/// A reader has an object open for as long as this lives.
pub struct Reading(Lines, ObjectId);

impl Drop for Reading {
    fn drop(&mut self) {
        let mut untold = self.0.uses().untold();
        let Some((count, _)) = untold.open.get_mut(&self.1) else { return };
        *count -= 1;
        if *count == 0 {
            untold.open.remove(&self.1);
        }
    }
}

/// Whose an object is.
#[derive(Default)]
struct Owners {
    /// Blocks that this node owns and that nobody keeps in its stead.
    parts: Vec<Range<u32>>,
    /// Who keeps others of them.
    keepers: Vec<u128>,
    /// Another member that owns some, if there is one.
    other: Option<u128>,
}

impl Lines {
    /// A reader opened an object, which others may own: that is told. What is to be counted here comes back.
    pub fn opened(&self, object: ObjectId, size: u64, set_bytes: u64) -> Count {
        let used = Use { object, size, set_bytes, is_new: true };
        let (roster, owners) = (self.roster(), self.owners(&used));
        if let Some(owner) = owners.other {
            let owner = (size <= ONE_STRIPE_BYTES_MAX).then_some(owner);
            self.uses().gather(used, owner, roster.seats().len() as u64);
        }
        self.counted(&roster, used, owners)
    }

    /// A reader has an object open, which others may own, until what comes back is dropped.
    pub fn reads(&self, object: ObjectId, size: u64) -> Option<Reading> {
        let mut untold = self.uses().untold();
        if untold.open.len() >= UNTOLD_MAX {
            return None;
        }
        let used = Use { object, size, set_bytes: 0, is_new: false };
        untold.open.entry(object).or_insert((0, used)).0 += 1;
        drop(untold);
        // No request for some of it reaches all who own others.
        if size > ONE_STRIPE_BYTES_MAX {
            self.uses().wanted.notify_one();
        }
        Some(Reading(self.clone(), object))
    }

    /// Another member says that its readers use this. What is to be counted here comes back.
    pub(crate) fn heard(&self, used: Use, is_passed_on: bool) -> Count {
        let roster = self.roster();
        let owners = if is_passed_on { Owners::default() } else { self.owners(&used) };
        self.counted(&roster, used, owners)
    }

    /// What is to be counted of a request for blocks: that a reader opened the object, if it says so; and that one has it open who waits
    /// for some of it, and may ask for the rest much later.
    pub(crate) fn asked(&self, wish: &Wish) -> Vec<Count> {
        let Wish { run, manner } = wish;
        let used = Use { object: run.object.id(), size: run.object.size, set_bytes: 0, is_new: false };
        let opened = manner.opened.map(|set_bytes| self.heard(Use { set_bytes, is_new: true, ..used }, false));
        let parts = || {
            let first = Address { object: run.object.clone(), index: run.blocks.start };
            vec![Stripe::of(&first).blocks(&run.object)]
        };
        let is_open = manner.is_urgent && run.object.blocks() > 1;
        let open = is_open.then(|| Count { used, parts: parts(), set_bytes: 0, is_own: false });
        opened.into_iter().chain(open).collect()
    }

    /// The same of all uses of one request, as far as they lead to bounded work.
    pub(crate) fn heard_all(&self, uses: Vec<Use>, is_passed_on: bool) -> Vec<Count> {
        let mut left = STRIPES_HEARD_MAX;
        let mut is_bounded = |used: &Use| {
            let rest = left.checked_sub(stripes_of(used));
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        let heard = uses.into_iter().filter(|used| is_bounded(used));
        heard.map(|used| self.heard(used, is_passed_on)).collect()
    }

    fn owners(&self, used: &Use) -> Owners {
        let (roster, mut owners) = (self.roster(), Owners::default());
        for (stripe, blocks) in Stripe::all(used.object, used.size).take(STRIPES_COUNTED_MAX) {
            match self.first(&stripe).filter(|first| *first != roster.me()) {
                Some(other) => owners.other = Some(other),
                None => match self.keeper_of(&stripe).filter(|keeper| roster.seat(*keeper).is_some()) {
                    Some(keeper) if owners.keepers.contains(&keeper) => {}
                    Some(keeper) => owners.keepers.push(keeper),
                    None => owners.parts.push(blocks),
                },
            }
        }
        owners
    }

    fn counted(&self, roster: &Roster, used: Use, owners: Owners) -> Count {
        self.uses().pass_on(used, &owners.keepers);
        let is_own = !owners.parts.is_empty();
        let all = 0..blocks_of(used.size).unwrap_or(0);
        let parts = if is_own { owners.parts } else { vec![all] };
        Count { used, parts, set_bytes: roster.share(used.set_bytes), is_own }
    }

    /// Tell owners now and then for as long as the lines live.
    pub(crate) fn begin_telling(&self) {
        let (lines, wanted) = (self.downgrade(), self.uses().wanted.clone());
        self.runtime().spawn(async move {
            loop {
                tokio::time::sleep(TOLD_AT_MOST_EVERY).await;
                let _ = tokio::time::timeout(TOLD_EVERY, wanted.notified()).await;
                let Some(lines) = lines.upgrade() else { return };
                lines.tell_uses().await;
            }
        });
    }

    /// Tell owners what was opened since they were told last, and what is open.
    async fn tell_uses(&self) {
        let roster = self.roster();
        let tell = self.untold(&roster).into_iter().filter_map(|((member, is_passed_on), uses)| {
            let contact = self.contact(&roster, member)?;
            Some(async move {
                let _ = tokio::time::timeout(TOLD_WITHIN, tell(&contact, &uses, is_passed_on)).await;
            })
        });
        futures_util::future::join_all(tell).await;
    }

    /// What is to be told to whom, and whether it is passed on, in the order in which it was opened.
    fn untold(&self, roster: &Roster) -> BTreeMap<(u128, bool), Vec<Use>> {
        let mut untold = self.uses().untold();
        let (opened, passed_on) = (std::mem::take(&mut untold.opened), std::mem::take(&mut untold.passed_on));
        let now = self.now();
        // It counts for three times as long.
        let is_due = untold.open_told.is_none_or(|at| now.saturating_duration_since(at) >= TOLD_EVERY);
        // Of what was opened just now, also sooner: its next version may take its place before.
        let open = untold.open.iter().filter(|(object, _)| is_due || opened.contains_key(object));
        let open: Vec<Use> = open.map(|(_, (_, used))| *used).collect();
        untold.open_told = if is_due { Some(now) } else { untold.open_told };
        untold.bytes = 0;
        drop(untold);
        let mut told: BTreeMap<(u128, bool), Vec<Use>> = BTreeMap::new();
        let mut opened: Vec<Opened> = opened.into_values().collect();
        opened.sort_unstable_by_key(|opened| opened.turn);
        for Opened { used, owner, .. } in opened {
            self.told(roster, owner).for_each(|member| told.entry((member, false)).or_default().push(used));
        }
        for used in open {
            let is_one = used.size <= ONE_STRIPE_BYTES_MAX;
            let owner = is_one.then(|| self.first(&Stripe { object: used.object, index: 0 })).flatten();
            let is_mine = is_one && owner.is_none_or(|owner| owner == roster.me());
            // Of what is cut into stripes some may be this node's as well.
            if is_mine || !is_one {
                self.uses().pass_on(used, &self.owners(&used).keepers);
            }
            if is_mine {
                continue;
            }
            self.told(roster, owner).for_each(|member| told.entry((member, false)).or_default().push(used));
        }
        for ((keeper, _), used) in passed_on {
            told.entry((keeper, true)).or_default().push(used);
        }
        told
    }

    /// The owner, or all members where there may be many.
    fn told(&self, roster: &Roster, owner: Option<u128>) -> impl Iterator<Item = u128> + use<> {
        let me = roster.me();
        let all = if owner.is_none() { roster.seats().iter().map(|seat| seat.id).collect() } else { Vec::new() };
        owner.into_iter().chain(all).filter(move |member| *member != me)
    }
}

/// Stripes of it that are looked at.
fn stripes_of(used: &Use) -> usize {
    Stripe::all(used.object, used.size).take(STRIPES_COUNTED_MAX).count()
}

async fn tell(contact: &Arc<Contact>, uses: &[Use], is_passed_on: bool) {
    let mut rest = uses;
    while !rest.is_empty() {
        let mut stripes = 0;
        let fits = |used: &&Use| {
            stripes += stripes_of(used);
            stripes <= STRIPES_HEARD_MAX
        };
        let some;
        (some, rest) = rest.split_at(rest.iter().take(USES_MAX).take_while(fits).count());
        if contact.words(Word::Used, encode_uses(some, is_passed_on)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
