//! What can't be meant: a figure of a catalogue, a field of a demand.
//!
//! It knows no exit codes. Invariants: each names the place and the field, and what would be right; none has a control character.

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
        let (what, place, field, hint) = (what.into(), place.into(), field.into(), hint.into());
        Wrong { what: plain(what), place: plain(place), field: plain(field), hint: plain(hint) }
    }

    /// Place and field in one.
    pub fn on(&self) -> String {
        match self.field.is_empty() {
            true => self.place.clone(),
            false => format!("{}, field `{}`", self.place, self.field),
        }
    }
}

/// Texts of files are told as they can be read: what would move a terminal is written out.
pub fn plain(text: String) -> String {
    match text.chars().any(char::is_control) {
        false => text,
        true => text
            .chars()
            .flat_map(|letter| match letter.is_control() {
                true => letter.escape_default().collect::<Vec<char>>(),
                false => vec![letter],
            })
            .collect(),
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n  on:  {}", self.what, self.on())?;
        if self.hint.is_empty() { Ok(()) } else { write!(out, "\n  try: {}", self.hint) }
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_moves_no_terminal() {
        let wrong = Wrong::new("`\u{1b}[31mred\u{7}` is no price", "list\n.json", "\u{9b}2J", "");
        assert!(!wrong.to_string().replace("\n  on:  ", "").chars().any(char::is_control), "{wrong:?}");
        assert_eq!(wrong.what, "`\\u{1b}[31mred\\u{7}` is no price");
    }
}
