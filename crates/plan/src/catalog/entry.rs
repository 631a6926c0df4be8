//! One table of a catalogue as it is read: each key is asked for once, and what nobody asked for is refused.
//!
//! It knows no services. Invariant: an error names file, entry and field; no number gets through that is not finite or is
//! below zero.

use toml::{Table, Value};

use crate::wrong::{Result, Wrong};

/// No figure is larger: sums and products of a few stay numbers.
pub const NUMBER_MAX: f64 = 1e15;
/// A text of a catalogue is no longer.
const TEXT_BYTES_MAX: usize = 2000;

/// A table and where it stands.
pub struct Entry {
    pub place: String,
    table: Table,
}

impl Entry {
    pub fn new(place: String, table: Table) -> Entry {
        Entry { place, table }
    }

    pub fn wrong(&self, field: &str, what: impl Into<String>, hint: impl Into<String>) -> Wrong {
        Wrong::new(what, self.place.clone(), field, hint)
    }

    pub fn has(&self, field: &str) -> bool {
        self.table.contains_key(field)
    }

    pub fn text(&mut self, field: &str) -> Result<Option<String>> {
        match self.table.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control) => {
                Ok(Some(text))
            }
            Some(_) => Err(self.wrong(field, "this is no text", "a text in quotes, on one line")),
        }
    }

    pub fn needed_text(&mut self, field: &str) -> Result<String> {
        match self.text(field)? {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(self.wrong(field, "something is missing", "each entry of this kind has this field")),
        }
    }

    pub fn number(&mut self, field: &str) -> Result<Option<f64>> {
        let number = match self.table.remove(field) {
            None => return Ok(None),
            Some(Value::Float(number)) => number,
            Some(Value::Integer(number)) => number as f64,
            Some(_) => return Err(self.wrong(field, "this is no number", "a number without quotes")),
        };
        match (0.0..=NUMBER_MAX).contains(&number) {
            // A zero with a sign would divide to less than nothing.
            true => Ok(Some(number.abs())),
            false => Err(self.wrong(field, format!("{number} is no figure"), "a number from 0 to 10^15")),
        }
    }

    pub fn flag(&mut self, field: &str) -> Result<bool> {
        match self.table.remove(field) {
            None => Ok(false),
            Some(Value::Boolean(flag)) => Ok(flag),
            Some(_) => Err(self.wrong(field, "this is neither true nor false", "true or false, without quotes")),
        }
    }

    pub fn texts(&mut self, field: &str) -> Result<Vec<String>> {
        let wrong = self.wrong(field, "this is no list of texts", "[\"one\", \"two\"], each on one line");
        match self.table.remove(field) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .into_iter()
                .map(|item| match item {
                    Value::String(text) if text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control) => {
                        Ok(text)
                    }
                    _ => Err(wrong.clone()),
                })
                .collect(),
            Some(_) => Err(wrong),
        }
    }

    /// The tables of a list, each with its place.
    pub fn entries(&mut self, field: &str) -> Result<Vec<Entry>> {
        let wrong = self.wrong(field, "this is no list of tables", "[{ ... }, { ... }]");
        match self.table.remove(field) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| match item {
                    Value::Table(table) => Ok(Entry::new(format!("{}, {field}[{index}]", self.place), table)),
                    _ => Err(wrong.clone()),
                })
                .collect(),
            Some(_) => Err(wrong),
        }
    }

    /// One of the words that are known.
    pub fn word<T: Copy>(&mut self, field: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(self.wrong(field, format!("`{text}` means nothing here"), known.join(", ")))
            }
        }
    }

    pub fn needed_word<T: Copy>(&mut self, field: &str, words: &[(&str, T)]) -> Result<T> {
        match self.word(field, words)? {
            Some(meaning) => Ok(meaning),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(self.wrong(field, "something is missing", known.join(", ")))
            }
        }
    }

    /// What is left is a mistake.
    pub fn finish(self) -> Result<()> {
        match self.table.keys().next() {
            None => Ok(()),
            Some(field) => {
                Err(self.wrong(field, "nobody knows this field", "is it misspelt? docs/planner.md has them all"))
            }
        }
    }
}
