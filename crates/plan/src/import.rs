//! Price lists of providers, as a user downloaded them, made entries of a catalogue.
//!
//! Layout: `aws`, `azure`, `google`: one reader for each shape. Text in, TOML out; nothing is fetched. Invariants: only prices of
//! services and nodes that the catalogue knows are taken, each with its date, in USD alone; what isn't understood is counted, never
//! guessed; a price of zero is taken only where the list says zero.

mod aws;
mod azure;
mod google;

use std::fmt::Write;

use serde_json::Value;

use crate::catalog::Catalog;
use crate::catalog::quantity::{CHARGES, Charge};
use crate::date::Date;
use crate::wrong::{Result, Wrong};

/// A list is no larger; whole regions of a provider are larger than a catalogue.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// Whose list it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Aws,
    Azure,
    Google,
}

pub const PROVIDERS: [(&str, Provider); 3] =
    [("aws", Provider::Aws), ("azure", Provider::Azure), ("gcp", Provider::Google)];

/// A price that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// A service or a node of the catalogue.
    pub id: String,
    pub charge: Charge,
    pub region: String,
    pub unit: &'static str,
    pub usd: f64,
    pub from_gib: f64,
    pub date: Option<Date>,
    pub sku: String,
}

/// What came of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    pub found: Vec<Found>,
    /// Products that were read, and those of them that no entry of a catalogue is of.
    pub products: usize,
    pub unknown: usize,
    /// The list says by this field that it goes on: what comes there is missing.
    pub goes_on: Option<&'static str>,
}

/// The prices of a list.
pub fn read(provider: Provider, place: &str, text: &str) -> Result<Imported> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Wrong::new(
            "this is too large for a price list",
            place,
            "",
            "at most 256 MiB: take one service or region",
        ));
    }
    let list: Value = serde_json::from_str(text).map_err(|error| {
        Wrong::new(format!("this is no JSON: {error}"), place, "", "the file as the provider sent it")
    })?;
    let mut imported = match provider {
        Provider::Aws => aws::read(&list, place),
        Provider::Azure => azure::read(&list, place),
        Provider::Google => google::read(&list, place),
    }?;
    // A region that is listed twice has one price for each tier: the latest.
    imported.found.sort_by(|left, right| {
        key(left).partial_cmp(&key(right)).expect("no price is not a number").then(left.date.cmp(&right.date))
    });
    let mut found: Vec<Found> = Vec::new();
    for price in imported.found {
        match found.last_mut() {
            Some(last) if key(last) == key(&price) => *last = price,
            _ => found.push(price),
        }
    }
    Ok(Imported { found, ..imported })
}

fn key(found: &Found) -> (&str, Charge, &str, f64) {
    (&found.id, found.charge, &found.region, found.from_gib)
}

/// A list in pages: one of them, or several in a list.
struct Page {
    whose: &'static str,
    field: &'static str,
    /// By which the provider says that there is another page.
    next: &'static str,
    hint: &'static str,
}

impl Page {
    /// What is found in each product of all pages.
    fn read(&self, list: &Value, place: &str, found: impl Fn(&Value, &str) -> Result<Vec<Found>>) -> Result<Imported> {
        let pages = list.as_array().map_or(std::slice::from_ref(list), Vec::as_slice);
        let mut imported = Imported::default();
        for page in pages {
            // Each page says whether one follows: so does the last that is here.
            imported.goes_on = (!text(page, self.next).is_empty()).then_some(self.next);
            let Some(products) = page.get(self.field).and_then(Value::as_array) else {
                let what = format!("this is no page of {}", self.whose);
                return Err(Wrong::new(what, place, self.field, self.hint));
            };
            for (index, product) in products.iter().enumerate() {
                let found = found(product, &format!("{place}, {}[{index}]", self.field))?;
                imported.products += 1;
                imported.unknown += usize::from(found.is_empty());
                imported.found.extend(found);
            }
        }
        Ok(imported)
    }
}

/// A price as it is listed: finite, not below zero.
fn price(value: f64, place: &str, field: &str) -> Result<f64> {
    match (0.0..=1e9).contains(&value) {
        true => Ok(value),
        false => Err(Wrong::new(format!("{value} is no price"), place, field, "a number from 0 to 10^9")),
    }
}

/// Prices in another currency are refused where they stand.
fn in_usd(currency: &str, place: &str, field: &str) -> Result<()> {
    match currency {
        "" | "USD" => Ok(()),
        other => Err(Wrong::new(format!("prices in {other} are not compared"), place, field, "ask for USD")),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

impl Imported {
    /// The overlay: a layer over the shipped catalogue. Entries that `catalog` lacks are left out.
    pub fn toml(&self, provider: &str, version: &str, catalog: &Catalog) -> String {
        let mut text = format!(
            "# Prices imported from a list of the provider's.\nprovider = \"{provider}\"\nversion = \"{version}\"\ncurrency = \"USD\"\n\n[[source]]\nid = \"price-list\"\ntitle = \"price list of {provider}, imported\"\nkind = \"price-feed\"\n"
        );
        let mut ids: Vec<&str> = self.found.iter().map(|found| found.id.as_str()).collect();
        ids.dedup();
        for id in ids {
            let kind = match () {
                () if catalog.services.iter().any(|service| service.id == id) => "service",
                () if catalog.nodes.iter().any(|node| node.id == id) => "node",
                () => continue,
            };
            let _ = write!(text, "\n[[{kind}]]\nid = \"{id}\"\nprices = [\n");
            for found in self.found.iter().filter(|found| found.id == id) {
                let name = CHARGES.iter().find(|(_, charge)| *charge == found.charge).map_or("", |(name, _)| name);
                let date = found.date.map_or(String::new(), |date| format!(", date = \"{date}\""));
                let tier =
                    if found.from_gib > 0.0 { format!(", from-gib = {}", found.from_gib) } else { String::new() };
                let _ = writeln!(
                    text,
                    "  {{ of = \"{name}\", unit = \"{}\", value = {}, region = \"{}\"{tier}{date}, source = \"price-list\", confidence = \"high\", note = \"{}\" }},",
                    found.unit,
                    found.usd,
                    plain(&found.region),
                    plain(&found.sku),
                );
            }
            text += "]\n";
        }
        text
    }
}

/// Letters that can stand in a text of TOML as they are.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_alphanumeric() || " ._-/".contains(*letter)).take(100).collect()
}

#[cfg(test)]
mod tests;
