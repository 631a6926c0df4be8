//! Which request is spoiled, and how: decided by a seed and by the count of requests that the fault
//! could apply to, never by time. What a fault does is in `gate` and `reply`.
//!
//! Invariant: equal seeds and equal requests give equal faults.

use crate::chance;
use block::{Error, Result};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A way in which a service fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed before the promised length. GetObject only.
    Truncate,
    /// One byte is wrong; the length is right. GetObject only.
    WrongBytes,
    /// A complete answer with fewer bytes than were asked for. GetObject only.
    ShortBody,
    /// The connection is reset before the answer.
    Reset,
    /// No answer ever comes.
    Hang,
    /// 503 SlowDown.
    SlowDown,
    /// 500 InternalError.
    InternalError,
    /// The object has a new version from this request on: another etag, 412 for If-Match. GetObject only.
    EtagChange,
    /// If-Match is not looked at. GetObject and HeadObject that carry it.
    IgnoreIfMatch,
}

/// Kinds of faults.
pub const FAULTS: usize = 9;

const NAMES: [(Fault, &str); FAULTS] = [
    (Fault::Truncate, "truncate"),
    (Fault::WrongBytes, "wrong-bytes"),
    (Fault::ShortBody, "short-body"),
    (Fault::Reset, "reset"),
    (Fault::Hang, "hang"),
    (Fault::SlowDown, "slowdown"),
    (Fault::InternalError, "internal-error"),
    (Fault::EtagChange, "etag-change"),
    (Fault::IgnoreIfMatch, "ignore-if-match"),
];

impl Fault {
    /// As it is written on the command line and in the counters.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// All of them, in the order of their counters.
    pub fn all() -> impl Iterator<Item = Fault> {
        NAMES.into_iter().map(|(fault, _)| fault)
    }
}

/// Which of the requests that a fault could apply to are spoiled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum When {
    #[default]
    Never,
    Always,
    /// With this probability.
    Share(f64),
    /// Every n-th.
    Every(u64),
    /// The n-th alone, counted from one.
    Only(u64),
}

/// What goes wrong and when. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    when: [When; FAULTS],
    pub seed: u64,
}

impl Faults {
    /// The same, with one more fault.
    #[must_use]
    pub fn with(mut self, fault: Fault, when: When) -> Faults {
        self.when[fault as usize] = when;
        self
    }
}

impl FromStr for Faults {
    type Err = Error;

    fn from_str(text: &str) -> Result<Faults> {
        let mut faults = Faults::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            if let Some(seed) = item.strip_prefix("seed=") {
                faults.seed = seed.parse().map_err(|_| bad(item))?;
                continue;
            }
            let end = item.find(['=', '@', '#']).unwrap_or(item.len());
            let (fault, _) = NAMES.into_iter().find(|(_, name)| *name == &item[..end]).ok_or_else(|| bad(item))?;
            faults.when[fault as usize] = when(&item[end..]).ok_or_else(|| bad(item))?;
        }
        Ok(faults)
    }
}

fn when(text: &str) -> Option<When> {
    let count = |number: &str| number.parse().ok().filter(|number| *number > 0);
    match text.chars().next() {
        None => Some(When::Always),
        Some('=') => text[1..].parse().ok().filter(|share| (0.0..=1.0).contains(share)).map(When::Share),
        Some('@') => count(&text[1..]).map(When::Every),
        Some(_) => count(&text[1..]).map(When::Only),
    }
}

fn bad(item: &str) -> Error {
    let names: Vec<&str> = Fault::all().map(Fault::name).collect();
    Error::invalid("a fault was not understood", format!("`{item}`")).hint(format!(
        "write name=share, name@N for every Nth or name#N for the Nth alone, such as truncate=0.01,reset@100,hang#3,seed=7; names: {}",
        names.join(", ")
    ))
}

/// Faults and the counts that decide about them.
#[derive(Debug, Default)]
pub struct Dice {
    faults: Faults,
    seen: [AtomicU64; FAULTS],
}

impl Dice {
    pub fn new(faults: Faults) -> Dice {
        Dice { faults, seen: Default::default() }
    }

    /// Whether this request, to which the fault could apply, is spoiled by it.
    pub fn falls(&self, fault: Fault) -> bool {
        let when = self.faults.when[fault as usize];
        if when == When::Never {
            return false;
        }
        let number = self.seen[fault as usize].fetch_add(1, Ordering::Relaxed) + 1;
        match when {
            When::Never => false,
            When::Always => true,
            When::Share(share) => chance::draw(self.faults.seed, fault as u64, number) < share,
            When::Every(step) => number.is_multiple_of(step),
            When::Only(only) => number == only,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_faults_is_read() {
        let faults: Faults = "truncate=0.25, reset@3,hang#2,ignore-if-match,seed=7".parse().unwrap();
        let expected = Faults { seed: 7, ..Faults::default() }
            .with(Fault::Truncate, When::Share(0.25))
            .with(Fault::Reset, When::Every(3))
            .with(Fault::Hang, When::Only(2))
            .with(Fault::IgnoreIfMatch, When::Always);
        assert_eq!(faults, expected);
        assert_eq!("".parse::<Faults>().unwrap(), Faults::default());
        for (index, fault) in Fault::all().enumerate() {
            assert_eq!(index, fault as usize, "the table is in the order of the kinds");
        }
    }

    #[test]
    fn what_is_not_understood_is_answered_with_an_example() {
        for text in ["explode", "truncate=2", "truncate=-1", "truncate=NaN", "reset@0", "hang#", "seed=x", "truncate@x"]
        {
            assert!(text.parse::<Faults>().unwrap_err().hint.contains("truncate=0.01"), "{text}");
        }
    }

    #[test]
    fn faults_fall_as_often_as_asked_and_repeat() {
        let falls = |text: &str| {
            let dice = Dice::new(text.parse().unwrap());
            (0..10_000).map(|_| dice.falls(Fault::Truncate)).collect::<Vec<bool>>()
        };
        let count = |text: &str| falls(text).into_iter().filter(|fell| *fell).count();
        assert!((900..1100).contains(&count("truncate=0.1,seed=7")));
        assert_eq!(falls("truncate=0.1,seed=7"), falls("truncate=0.1,seed=7"));
        assert_ne!(falls("truncate=0.1,seed=7"), falls("truncate=0.1,seed=8"));
        assert_eq!(count("truncate@100"), 100);
        assert_eq!(falls("truncate#3").iter().position(|fell| *fell), Some(2));
        assert_eq!(count("truncate#3"), 1);
        assert_eq!(count("truncate"), 10_000);
        assert_eq!(count("reset"), 0);
    }
}
