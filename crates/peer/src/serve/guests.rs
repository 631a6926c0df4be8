//! Who is connected: a few connections of each, so that nobody takes the place of others.
//!
//! Who comes where there are too many takes the place of the one that came first: a member that lost its network, or ended
//! without a word, leaves connections behind that nobody else hears of.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Connections of one member: those that it uses, one that looks whether this node is back, and some that it lost.
pub const OF_MEMBER_MAX: usize = 8;

/// Connections of all together whom nobody told this node of: for a while they may be members all the same.
const OF_UNKNOWN_MAX: usize = 64;

/// Connections that have not said yet who they are.
pub const OF_STRANGERS_MAX: usize = 256;

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    Stranger,
    Unknown,
    Member(u128),
}

/// All connections.
#[derive(Clone, Default)]
pub struct Guests(Arc<Mutex<Places>>);

#[derive(Default)]
struct Places {
    count: u64,
    /// In the order in which they came.
    of: HashMap<Who, VecDeque<(u64, oneshot::Sender<()>)>>,
}

/// A place that a connection takes, until it is dropped.
pub struct Guest {
    guests: Guests,
    who: Who,
    number: u64,
    is_alone: bool,
    left: oneshot::Receiver<()>,
}

impl Guests {
    pub fn enter(&self, who: Who) -> Guest {
        let most = match who {
            Who::Stranger => OF_STRANGERS_MAX,
            Who::Unknown => OF_UNKNOWN_MAX,
            Who::Member(_) => OF_MEMBER_MAX,
        };
        let (sender, left) = oneshot::channel();
        let mut places = self.places();
        places.count += 1;
        let number = places.count;
        let same = places.of.entry(who).or_default();
        let is_alone = same.is_empty();
        if same.len() >= most {
            same.pop_front();
        }
        same.push_back((number, sender));
        Guest { guests: self.clone(), who, number, is_alone, left }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// Whether there was no other of the same when it came.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Ends when another one takes its place.
    pub async fn replaced(&mut self) {
        let _ = (&mut self.left).await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut places = self.guests.places();
        if let Some(same) = places.of.get_mut(&self.who) {
            same.retain(|(number, _)| *number != self.number);
            if same.is_empty() {
                places.of.remove(&self.who);
            }
        }
    }
}
