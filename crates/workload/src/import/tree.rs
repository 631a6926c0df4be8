//! YAML with the line of each value, read key by key: what nobody takes is refused by its name.
//!
//! Invariants: a text is a stranger's, and reading it ends in time and memory that its length bounds, whatever aliases it
//! has; a value that was not understood is an error with its place, never a default.

use std::fmt;

use block::{Error, Result};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A workload of DLIO takes a page; of one with two hundred columns it is fifteen thousand characters.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Values of a text, those of aliases included.
const NODES_MAX: usize = 50_000;
const DEPTH_MAX: usize = 32;

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    line: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Nothing,
    Scalar(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    line: u64,
    value: Node,
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
        from.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Kind;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Nothing)
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Kind, D::Error> {
        from.deserialize_any(Any)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Kind, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = from.next_element::<Spanned<Kind>>()? {
            list.push(Node { line: item.referenced.line(), kind: item.value });
        }
        Ok(Kind::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = from.next_key::<Spanned<String>>()? {
            let value = from.next_value::<Spanned<Kind>>()?;
            let value = Node { line: value.referenced.line(), kind: value.value };
            entries.push(Entry { key: key.value, line: key.referenced.line(), value });
        }
        Ok(Kind::Table(entries))
    }
}

/// A table of which keys are taken one by one.
pub struct Table {
    place: String,
    /// What it is called: empty for the root, else with a dot behind it.
    name: String,
    line: u64,
    entries: Vec<Entry>,
}

/// A value that was taken.
pub struct Value {
    place: String,
    name: String,
    node: Node,
}

/// The root of a text; `place` names it in errors.
pub fn parse(text: &str, place: &str) -> Result<Table> {
    let wrong = |what: String, on: String| {
        Error::invalid(format!("this is no workload of DLIO: {what}"), on)
            .hint("name a file of DLIO's configs/workload, with the tables dataset, reader and train")
    };
    if text.len() > TEXT_BYTES_MAX {
        return Err(wrong(format!("it has {} bytes", text.len()), place.to_owned()));
    }
    let mut budget = serde_saphyr::Budget::default();
    (budget.max_nodes, budget.max_events, budget.max_depth) = (NODES_MAX, 4 * NODES_MAX, DEPTH_MAX);
    let mut aliases = serde_saphyr::options::AliasLimits::default();
    aliases.max_total_replayed_events = NODES_MAX;
    let mut options = serde_saphyr::Options::default();
    (options.budget, options.alias_limits, options.strict_booleans) = (Some(budget), aliases, true);
    options.non_finite_float_policy = serde_saphyr::options::NonFiniteFloatPolicy::AsString;
    let root: Spanned<Kind> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let on = error.location().map_or_else(|| place.to_owned(), |at| format!("{place}:{}", at.line()));
        wrong(error.without_snippet().to_string(), on)
    })?;
    let mut root = Node { line: root.referenced.line(), kind: root.value };
    if let Kind::Table(entries) = &root.kind {
        let known = Node { line: 1, kind: Kind::Table(entries.clone()) };
        resolve(&mut root, &known);
    }
    Value { place: place.to_owned(), name: String::new(), node: root }.table()
}

/// Put in what simple interpolations name: `${workload.dataset.num_files_train}`, with or without its first part. What
/// stays is refused where it is taken.
fn resolve(node: &mut Node, root: &Node) {
    match &mut node.kind {
        Kind::Nothing => {}
        Kind::Scalar(text) => {
            let named = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
            let found = named.and_then(|path| {
                let inner = path.strip_prefix("workload.").unwrap_or(path);
                root.scalar(inner).or_else(|| root.scalar(&format!("workload.{inner}")))
            });
            if let Some(found) = found {
                *text = found.to_owned();
            }
        }
        Kind::List(list) => list.iter_mut().for_each(|item| resolve(item, root)),
        Kind::Table(entries) => entries.iter_mut().for_each(|entry| resolve(&mut entry.value, root)),
    }
}

impl Node {
    /// What a path names, if it is plain.
    fn scalar(&self, path: &str) -> Option<&str> {
        let mut node = self;
        for part in path.split('.') {
            let Kind::Table(entries) = &node.kind else { return None };
            node = &entries.iter().find(|entry| entry.key == part)?.value;
        }
        match &node.kind {
            Kind::Scalar(text) if !text.contains("${") => Some(text),
            _ => None,
        }
    }
}

impl Table {
    /// Where it begins, as editors read it.
    pub fn on(&self) -> String {
        format!("{}:{}", self.place, self.line)
    }

    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// A value under the first of some names that is there; one that is empty is not there.
    pub fn take(&mut self, keys: &[&str]) -> Result<Option<Value>> {
        let Some(key) = keys.iter().find(|key| self.has(key)) else { return Ok(None) };
        let at = self.entries.iter().position(|entry| entry.key == **key).expect("found above");
        let entry = self.entries.remove(at);
        let value = Value { place: self.place.clone(), name: format!("{}{key}", self.name), node: entry.value };
        match &value.node.kind {
            Kind::Nothing => Ok(None),
            Kind::Scalar(text) if text == "???" => {
                Err(value.wrong("has to be given").hint("write its value into the file"))
            }
            Kind::Scalar(text) if text.contains("${") => {
                let hint =
                    "write the value itself: of interpolations only the name of another value of the file is known";
                Err(value.wrong(&format!("is put together from elsewhere: {text}")).hint(hint))
            }
            _ => Ok(Some(value)),
        }
    }

    /// A table, empty where there is none.
    pub fn table(&mut self, keys: &[&str]) -> Result<Table> {
        match self.take(keys)? {
            Some(value) => value.table(),
            None => Ok(Table {
                place: self.place.clone(),
                name: format!("{}{}.", self.name, keys[0]),
                line: self.line,
                entries: Vec::new(),
            }),
        }
    }

    pub fn whole(&mut self, keys: &[&str]) -> Result<Option<u64>> {
        self.take(keys)?.map(|value| value.whole()).transpose()
    }

    /// A count that DLIO takes for none where it is negative.
    pub fn whole_or_none(&mut self, keys: &[&str]) -> Result<Option<u64>> {
        if keys.iter().any(|key| self.is_negative(key)) { self.take(keys).map(|_| None) } else { self.whole(keys) }
    }

    pub fn is_negative(&self, key: &str) -> bool {
        let of = self.entries.iter().find(|entry| entry.key == key);
        // Only a number: a word is refused where it is read.
        of.is_some_and(|entry| matches!(&entry.value.kind, Kind::Scalar(text) if text.parse().is_ok_and(|number: f64| number < 0.0)))
    }

    pub fn number(&mut self, keys: &[&str]) -> Result<Option<f64>> {
        self.take(keys)?.map(|value| value.number()).transpose()
    }

    pub fn word(&mut self, keys: &[&str]) -> Result<Option<String>> {
        self.take(keys)?.map(|value| value.word().map(str::to_owned)).transpose()
    }

    pub fn is_on(&mut self, key: &str) -> Result<bool> {
        self.take(&[key])?.map_or(Ok(false), |value| value.is_true())
    }

    /// Refuse a key unless it has one of the values that change nothing.
    pub fn only(&mut self, key: &str, values: &[&str], hint: &str) -> Result<()> {
        let Some(value) = self.take(&[key])? else { return Ok(()) };
        let text = value.word()?.to_ascii_lowercase();
        if values.contains(&text.as_str()) || text.parse::<f64>().is_ok_and(|number| number == 0.0) {
            return Ok(());
        }
        Err(value.wrong(&format!("is not known here as `{text}`")).hint(hint))
    }

    /// The end: what is left is of no account, if it is on a list.
    pub fn end(self, of_no_account: &[&str]) -> Result<()> {
        let left = self.entries.iter().find(|entry| !of_no_account.contains(&entry.key.as_str()));
        left.map_or(Ok(()), |entry| {
            let what = format!("the key `{}{}` is not known", self.name, entry.key);
            let hint = "take it out if it changes nothing of what is read; docs/import.md lists what is known";
            Err(Error::invalid(what, format!("{}:{}", self.place, entry.line)).hint(hint))
        })
    }
}

impl Value {
    pub fn wrong(&self, what: &str) -> Error {
        let named = if self.name.is_empty() { "the file" } else { &self.name };
        Error::invalid(format!("`{named}` {what}"), format!("{}:{}", self.place, self.node.line))
            .hint("DLIO's documentation says what its keys mean")
    }

    pub fn is_table(&self) -> bool {
        matches!(self.node.kind, Kind::Table(_))
    }

    pub fn table(self) -> Result<Table> {
        match self.node.kind {
            Kind::Table(entries) => {
                let name = if self.name.is_empty() { String::new() } else { format!("{}.", self.name) };
                Ok(Table { place: self.place, name, line: self.node.line, entries })
            }
            Kind::Nothing if self.name.is_empty() => Err(self.wrong("is empty")),
            _ => Err(self.wrong("is no table")),
        }
    }

    pub fn list(self) -> Result<Vec<Value>> {
        let Kind::List(list) = self.node.kind else { return Err(self.wrong("is no list")) };
        let named =
            |(number, node)| Value { place: self.place.clone(), name: format!("{}[{number}]", self.name), node };
        Ok(list.into_iter().enumerate().map(named).collect())
    }

    pub fn word(&self) -> Result<&str> {
        match &self.node.kind {
            Kind::Scalar(text) => Ok(text),
            _ => Err(self.wrong("is no plain value")),
        }
    }

    pub fn number(&self) -> Result<f64> {
        let found = self.word()?.parse::<f64>().ok().filter(|number| number.is_finite());
        found.ok_or_else(|| self.wrong(&format!("is no number: {}", self.shown())))
    }

    pub fn whole(&self) -> Result<u64> {
        let text = self.word()?;
        let of_float =
            || text.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && (0.0..1e15).contains(number));
        let found = text.parse::<u64>().ok().or_else(|| of_float().map(|number| number as u64));
        found.ok_or_else(|| self.wrong(&format!("is no whole number from 0 on: {}", self.shown())))
    }

    pub fn is_true(&self) -> Result<bool> {
        match self.word()?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(self.wrong(&format!("is neither true nor false: {}", self.shown()))),
        }
    }

    fn shown(&self) -> String {
        match &self.node.kind {
            Kind::Scalar(text) => text.chars().take(40).collect(),
            _ => String::new(),
        }
    }
}
