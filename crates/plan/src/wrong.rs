//! What can't be meant: a figure of a catalogue, a field of a demand.
//!
//! It knows no exit codes. Invariant: each names the place and the field, and what would be right.

use std::fmt;

/// Something that was written or typed and can't be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong, as a clause.
    pub what: String,
    /// Where: a file with its entry, or the demand.
    pub place: String,
    /// The field there.
    pub field: String,
    /// What would be right.
    pub hint: String,
}

pub type Result<T, E = Wrong> = std::result::Result<T, E>;

impl Wrong {
    pub fn new(
        what: impl Into<String>,
        place: impl Into<String>,
        field: impl Into<String>,
        hint: impl Into<String>,
    ) -> Wrong {
        Wrong { what: what.into(), place: place.into(), field: field.into(), hint: hint.into() }
    }

    /// Place and field in one.
    pub fn on(&self) -> String {
        match self.field.is_empty() {
            true => self.place.clone(),
            false => format!("{}, field `{}`", self.place, self.field),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n  on:  {}", self.what, self.on())?;
        if self.hint.is_empty() { Ok(()) } else { write!(out, "\n  try: {}", self.hint) }
    }
}

impl std::error::Error for Wrong {}
