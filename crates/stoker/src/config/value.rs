//! One value of a configuration: what it is called, what it is, and where it came from.
//!
//! Invariant: no password of a URL is in it.

use crate::bench::typed::without_user;
use crate::{place, show};
use serde::Serialize;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    Flag,
    Environment,
    File,
    Default,
}

/// A value as it takes effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Value {
    pub name: &'static str,
    pub value: String,
    pub from: From,
    /// The flag, the variable or the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Value {
    /// For people, values as wide as this.
    pub fn line(&self, width: usize) -> String {
        let from = match (self.from, &self.by) {
            (From::Flag, Some(by)) => format!("flag {by}"),
            (From::Environment, Some(by)) => format!("environment {by}"),
            (From::File, Some(by)) => format!("file {by}"),
            _ => "default".into(),
        };
        format!("{:<16} {:<width$}  {}\n", self.name, show::line(&self.value), show::line(&from))
    }
}

/// A variable that is set.
pub fn set(name: &str) -> Option<String> {
    place::variable(name).filter(|value| !value.is_empty())
}

/// The flag with its value if it was typed, else the first of the variables that is set, else the default.
pub fn chosen(
    name: &'static str,
    flag: Option<(&'static str, String)>,
    variables: &[&'static str],
    default: impl FnOnce() -> String,
) -> Value {
    let variable = variables.iter().find_map(|name| Some((*name, set(name)?)));
    let (value, from, by) = match (flag, variable) {
        (Some((by, value)), _) => (value, From::Flag, Some(by)),
        (None, Some((by, value))) => (value, From::Environment, Some(by)),
        (None, None) => (default(), From::Default, None),
    };
    Value { name, value: without_user(&value), from, by: by.map(str::to_owned) }
}

/// A value of which it is known where it came from.
pub fn fixed(name: &'static str, value: &str, from: From, by: &str) -> Value {
    Value { name, value: without_user(value), from, by: Some(by.to_owned()) }
}
