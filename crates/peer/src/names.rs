//! Who lists a data set: one member, and the others take what it found.
//!
//! Doesn't know what a snapshot holds. Invariants: of members that begin at the same time, the first in line for the set
//! lists, and those who come later take it from whoever has it; nobody waits for one that gets no further.

use crate::contact::Contact;
use crate::lines::Lines;
use crate::wire::Word;
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Between two questions whether a member that lists is done.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// A member that lists, and found no more keys for so long, is not waited for; nor for less than twice as long as a store is. One
/// that is done with the keys may take a while to write them.
const STUCK_AFTER_MIN: Duration = Duration::from_secs(60);

/// Bytes of one answer with a piece of a snapshot.
pub const PIECE_BYTES: usize = 512 << 10;

/// How a member is about to have the names of a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Soon {
    /// It isn't.
    #[default]
    Not,
    /// It asks the others for them.
    Asks,
    /// It lists, or will unless somebody before it in line is about to have them too.
    Lists,
}

/// What a member has of the names of a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub soon: Soon,
    /// A hash of its snapshot, and half of that of the one that this was built on; 0 is none.
    pub id: u128,
    pub before: u64,
    /// Bytes of its snapshot.
    pub bytes: u64,
    /// When the listing began, nanoseconds since 1970.
    pub listed_ns: i64,
    /// Keys that the listing under way has found so far.
    pub keys: u64,
    /// A hash of what it found, the same on all members that find the same.
    pub fingerprint: u128,
}

impl Names {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.soon as u8];
        out.extend(self.id.to_le_bytes());
        out.extend(self.before.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.listed_ns.to_le_bytes());
        out.extend(self.keys.to_le_bytes());
        out.extend(self.fingerprint.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Names> {
        let (head, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (before, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (listed, rest) = rest.split_first_chunk()?;
        let (keys, rest) = rest.split_first_chunk()?;
        let fingerprint = rest.try_into().ok()?;
        Some(Names {
            soon: [Soon::Not, Soon::Asks, Soon::Lists].into_iter().find(|soon| *soon as u8 == *head)?,
            id: u128::from_le_bytes(*id),
            before: u64::from_le_bytes(*before),
            bytes: u64::from_le_bytes(*length),
            listed_ns: i64::from_le_bytes(*listed),
            keys: u64::from_le_bytes(*keys),
            fingerprint: u128::from_le_bytes(fingerprint),
        })
    }
}

/// What members that are waited for said last, and since when they say that.
#[derive(Default)]
struct Progress(HashMap<u128, ((Soon, u64), Instant)>);

impl Progress {
    /// Whether a member gets any further. One that waits for others is waited for twice as long as those, or it and who waits for
    /// it would give them up at once, and both list.
    fn goes_on(&mut self, (member, names): &(u128, Names), now: Instant, stuck_after: Duration) -> bool {
        let said = (names.soon, names.keys);
        let (before, since) = self.0.entry(*member).or_insert((said, now));
        if *before != said {
            (*before, *since) = (said, now);
        }
        let times = if names.soon == Soon::Lists { 1 } else { 2 };
        now - *since < stuck_after.saturating_mul(times)
    }
}

impl Lines {
    /// The newest names of a set that another member has; such as are said to be listed later than this are not believed. `None`
    /// if this node is to list: nobody has any, and nobody lists or comes before it in line. `lists` is told so first, for the
    /// others to hear. Who hears that somebody lists waits, as long as that one gets further; two who say so at once hear it of
    /// each other when they ask again, and the first in line goes on.
    pub async fn names(&self, set: u128, until_ns: impl Fn() -> i64, lists: impl Fn(bool)) -> Option<(u128, Names)> {
        let (mut is_said, mut progress) = (false, Progress::default());
        let stuck_after = self.patience().saturating_mul(2).max(STUCK_AFTER_MIN);
        loop {
            let mut told = self.ask_names(set).await;
            let until_ns = until_ns();
            let is_believed = |(_, names): &&(u128, Names)| names.id != 0 && names.listed_ns <= until_ns;
            let newest = told.iter().filter(is_believed).max_by_key(|(_, names)| names.listed_ns);
            if let Some(newest) = newest {
                lists(false);
                return Some(*newest);
            }
            let now = self.now();
            told.retain(|one| progress.goes_on(one, now, stuck_after));
            let goes_first = |(member, names): &(u128, Names)| match names.soon {
                Soon::Not => false,
                Soon::Lists if !is_said => true,
                Soon::Asks | Soon::Lists => self.is_before_me(set, *member),
            };
            let waits = told.iter().any(goes_first);
            if is_said && !waits {
                return None;
            }
            is_said = !waits;
            lists(is_said);
            if waits {
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
    }

    /// Whether a member that has the set comes before this one in line to list it.
    pub async fn is_listed_by_another(&self, set: u128) -> bool {
        self.ask_names(set).await.iter().any(|(member, names)| names.id != 0 && self.is_before_me(set, *member))
    }

    /// Bytes of a snapshot from this place on; none if the member doesn't give it any more.
    pub async fn piece(&self, member: u128, set: u128, id: u128, offset: u64) -> Option<Bytes> {
        let contact = self.contact(&self.roster(), member)?;
        let mut payload = set.to_le_bytes().to_vec();
        payload.extend(id.to_le_bytes());
        payload.extend(offset.to_le_bytes());
        let piece = timeout(self.patience(), contact.words(Word::Piece, payload)).await.ok().flatten();
        piece.filter(|piece| (1..=PIECE_BYTES).contains(&piece.len()))
    }

    /// Tell all others that this node has newer names of a set.
    pub async fn tell_news(&self, set: u128) {
        let roster = self.roster();
        let contacts: Vec<_> = roster.seats().iter().filter_map(|seat| self.contact(&roster, seat.id)).collect();
        let news = |contact: &Arc<Contact>| {
            let (contact, words) = (contact.clone(), set.to_le_bytes().to_vec());
            timeout(self.patience(), async move { contact.words(Word::News, words).await })
        };
        let tell = contacts.iter().map(news);
        join_all(tell).await;
    }

    async fn ask_names(&self, set: u128) -> Vec<(u128, Names)> {
        let roster = self.roster();
        let contacts: Vec<_> = roster.seats().iter().filter_map(|seat| self.contact(&roster, seat.id)).collect();
        let patience = self.patience();
        let ask = |contact: Arc<Contact>| async move {
            let words = timeout(patience, contact.words(Word::Names, set.to_le_bytes().to_vec())).await.ok()??;
            Some((contact.seat.id, Names::decode(&words)?))
        };
        join_all(contacts.into_iter().map(ask)).await.into_iter().flatten().collect()
    }

    fn is_before_me(&self, set: u128, member: u128) -> bool {
        is_before(set, member, self.roster().me())
    }
}

/// Which of two members comes first in line to list a set. All find the same, whatever else they were told: neither weights nor
/// other members count, or two could wait for each other.
fn is_before(set: u128, one: u128, other: u128) -> bool {
    let place = |member: u128| {
        let bytes = [set.to_le_bytes(), member.to_le_bytes()].concat();
        (xxhash_rust::xxh3::xxh3_64(&bytes), member)
    };
    place(one) < place(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_names_is_understood_and_nothing_else() {
        let (id, before, bytes, listed_ns, keys) = (7, u64::MAX, 1 << 40, -5, 1 << 50);
        let names = Names { soon: Soon::Lists, id, before, bytes, listed_ns, keys, fingerprint: u128::MAX - 1 };
        let bytes = names.encode();
        assert_eq!(Names::decode(&bytes), Some(names));
        for length in 0..bytes.len() {
            assert_eq!(Names::decode(&bytes[..length]), None);
        }
        assert_eq!(Names::decode(&[&[3], &bytes[1..]].concat()), None);
        assert_eq!(Names::decode(&[bytes, vec![0]].concat()), None);
    }

    #[test]
    fn of_two_members_one_is_first_and_each_of_them_for_some_sets() {
        let first: Vec<bool> = (0..100).map(|set| is_before(set, 1, 2)).collect();
        for (set, first) in first.iter().enumerate() {
            assert_eq!(is_before(set as u128, 2, 1), !first);
            assert!(!is_before(set as u128, 1, 1));
        }
        assert!((20..80).contains(&first.iter().filter(|first| **first).count()));
    }
}
