//! Through which mount a read came in, so that it goes by the credentials of that mount and of no other.
//!
//! Doesn't know mounts or credentials. Invariant: a number is given out once, so a door that was closed never
//! stands for another.

/// A way into a node. The default is none: a run without a door is asked of no store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Door(u64);

impl Door {
    /// No door: what such a run asks for comes from a tier, or not at all.
    pub const NONE: Door = Door(0);

    /// The door of this number; 0 is none.
    pub fn of(number: u64) -> Door {
        Door(number)
    }
}
