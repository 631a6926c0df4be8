//! How a simulated disk behaves: which calls fail, with which errors, and which are cut short.

use super::chance::Chance;
use rustix::io::Errno;

/// Reads and writes that are cut short, one in so many.
const SHORT_ONE_IN: u64 = 16;

/// Calls in one step: more than that is a loop.
const CALLS_MAX: u64 = 1_000_000;

/// What a call does, as far as the errors that it may end with depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    Create,
    /// Change a name.
    Change,
    Look,
    Read,
    Write,
}

/// What is wrong with a disk for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Too many files are open, here or in the whole system.
    Descriptors,
    /// The kernel has no memory.
    Memory,
    /// A signal came.
    Interrupted,
    /// There is no space left, though there seemed to be.
    Space,
    /// The disk fails.
    Broken,
    /// The disk fails to write.
    BrokenForWriting,
}

impl Trouble {
    /// Whether it passes without anything being wrong with any file.
    pub fn is_harmless(self) -> bool {
        matches!(self, Trouble::Descriptors | Trouble::Memory | Trouble::Interrupted)
    }

    fn errno(self, call: Call, chance: &mut Chance) -> Option<Errno> {
        match (self, call) {
            (Trouble::Descriptors, Call::Open | Call::Create) => Some(chance.pick(&[Errno::MFILE, Errno::NFILE])),
            (Trouble::Memory, _) => Some(Errno::NOMEM),
            (Trouble::Interrupted, Call::Read | Call::Write | Call::Open) => Some(Errno::INTR),
            (Trouble::Space, Call::Create | Call::Write) => Some(chance.pick(&[Errno::NOSPC, Errno::DQUOT])),
            (Trouble::Broken, _) => Some(Errno::IO),
            (Trouble::BrokenForWriting, Call::Create | Call::Write | Call::Change) => {
                Some(chance.pick(&[Errno::IO, Errno::ROFS]))
            }
            _ => None,
        }
    }
}

/// The weather of the next calls. Fair, but for calls that are cut short, unless something else was said.
pub struct Weather {
    pub chance: Chance,
    pub trouble: Option<Trouble>,
    /// Calls that fail: one in so many of those that can.
    pub one_in: u64,
    pub is_short: bool,
    /// Calls since the last step.
    pub calls: u64,
    /// Calls that pass before the program dies in the middle of what it does.
    pub calls_left: Option<u64>,
}

impl Default for Weather {
    fn default() -> Weather {
        Weather { chance: Chance::of(0), trouble: None, one_in: 1, is_short: false, calls: 0, calls_left: None }
    }
}

impl Weather {
    pub fn strikes(&mut self, call: Call) -> Option<Errno> {
        self.calls += 1;
        assert!(self.calls < CALLS_MAX, "it calls the disk without end");
        let trouble = self.trouble?;
        let errno = trouble.errno(call, &mut self.chance)?;
        // A signal is met again and again by nobody.
        let one_in = if trouble == Trouble::Interrupted { self.one_in + 1 } else { self.one_in };
        self.chance.one_in(one_in).then_some(errno)
    }

    /// Whether the program dies at this call.
    pub fn is_last_call(&mut self) -> bool {
        let is_last = self.calls_left == Some(0);
        self.calls_left = if is_last { None } else { self.calls_left.map(|left| left - 1) };
        is_last
    }

    /// How many of some bytes are read or written.
    pub fn short(&mut self, bytes: usize) -> usize {
        match bytes > 1 && self.is_short && self.chance.one_in(SHORT_ONE_IN) {
            true => 1 + self.chance.below(bytes as u64 - 1) as usize,
            false => bytes,
        }
    }
}
