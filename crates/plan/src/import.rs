//! Price lists of providers, as a user downloaded them, made entries of a catalogue.
//!
//! Layout: `aws`, `azure`, `google`: one reader for each shape; `members` a text in pieces, `choice` which of several prices holds. Text
//! in, TOML out; nothing is fetched. Invariants: only prices of services and nodes that the catalogue knows are taken, each with its date,
//! in USD alone; what isn't understood, or contradicts itself, is counted or named, never guessed; an hour for nothing is no price.

mod aws;
mod azure;
mod choice;
mod google;
mod members;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;

use crate::catalog::Catalog;
use crate::catalog::quantity::{CHARGES, Charge};
use crate::date::Date;
use crate::wrong::{Result, Wrong};

/// Whose list it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Aws,
    Azure,
    Google,
}

pub const PROVIDERS: [(&str, Provider); 3] =
    [("aws", Provider::Aws), ("azure", Provider::Azure), ("gcp", Provider::Google)];

impl Provider {
    /// A list is no larger. The largest, of EC2 in one region, has 480 MB and takes as much memory; others take eight
    /// times theirs, as their pages are read whole.
    pub fn bytes_max(self) -> usize {
        match self {
            Provider::Aws => 1 << 30,
            Provider::Azure | Provider::Google => 256 << 20,
        }
    }
}

/// A price that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// A service or a node of the catalogue.
    pub id: String,
    pub charge: Charge,
    pub region: String,
    pub unit: &'static str,
    pub usd: f64,
    /// From which amount on, in units of the list.
    pub from: f64,
    pub date: Option<Date>,
    pub sku: String,
}

/// Why something is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// A product that no entry of the catalogue is of, or in a unit that isn't known.
    Unknown,
    Unit,
    /// A price of no region that a catalogue can name, of a day to come, or of an hour for nothing.
    Region,
    Future,
    Free,
}

impl Left {
    pub fn told(self) -> (&'static str, &'static str) {
        match self {
            Left::Unknown => ("product", "of no entry of the catalogue"),
            Left::Unit => ("product", "in units that are not known"),
            Left::Region => ("price", "of no region"),
            Left::Future => ("price", "of a day to come"),
            Left::Free => ("price", "of 0 for an hour of a node, which never decides"),
        }
    }
}

/// What came of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    pub found: Vec<Found>,
    /// Products that were read, and what is left out.
    pub products: usize,
    pub left: BTreeMap<Left, usize>,
    /// Prices of one thing that contradict each other: none of them is taken.
    pub conflicts: Vec<String>,
    /// The list says by this field that it goes on: what comes there is missing.
    pub goes_on: Option<&'static str>,
}

/// What a list is read for: entries of a catalogue, at a day.
pub struct Known<'a> {
    pub catalog: &'a Catalog,
    pub today: Date,
}

impl Known<'_> {
    fn has(&self, id: &str) -> bool {
        let Catalog { services, nodes, .. } = self.catalog;
        services.iter().any(|service| service.id == id) || nodes.iter().any(|node| node.id == id)
    }
}

/// Google's word for all regions.
const EVERYWHERE: &str = "global";

/// The prices of a list.
pub fn read(provider: Provider, place: &str, text: &str, known: &Known) -> Result<Imported> {
    let most = provider.bytes_max();
    if text.len() > most {
        let hint = format!("at most {} MiB: take one service or region", most >> 20);
        return Err(Wrong::new("this is too large for a price list", place, "", hint));
    }
    let parsed = || serde_json::from_str::<Value>(text).map_err(|error| no_json(&error, place));
    let mut read = match provider {
        Provider::Aws => aws::read(text, place, known),
        Provider::Azure => azure::read(&parsed()?, place, known),
        Provider::Google => google::read(&parsed()?, place, known),
    }?;
    let found = std::mem::take(&mut read.found);
    let found: Vec<Found> = found.into_iter().filter(|found| read.takes(found, known.today)).collect();
    let (mut found, conflicts) = choice::of(found);
    spread(&mut found, &mut read);
    // Whoever lists pays what a write costs, by AWS and Google; Azure has a meter for it.
    if provider != Provider::Azure {
        let writes = found.iter().filter(|found| found.charge == Charge::Write);
        let lists: Vec<Found> = writes.map(|found| Found { charge: Charge::List, ..found.clone() }).collect();
        found.extend(lists);
    }
    found.sort_by(|left, right| left.id.cmp(&right.id));
    Ok(Imported { found, products: read.products, left: read.left, conflicts, goes_on: read.goes_on })
}

/// What is charged alike everywhere is charged in each region that has a price of the same entry.
fn spread(found: &mut Vec<Found>, read: &mut Read) {
    let (everywhere, mut placed): (Vec<Found>, Vec<Found>) =
        std::mem::take(found).into_iter().partition(|found| found.region == EVERYWHERE);
    for price in everywhere {
        let mut regions: Vec<String> = placed
            .iter()
            .filter(|other| other.id == price.id && other.charge == Charge::Capacity)
            .map(|other| other.region.clone())
            .collect();
        regions.dedup();
        read.leave(Left::Region, usize::from(regions.is_empty()));
        let is_placed = |region: &String| {
            placed.iter().any(|other| (&other.id, other.charge, &other.region) == (&price.id, price.charge, region))
        };
        let missing: Vec<String> = regions.into_iter().filter(|region| !is_placed(region)).collect();
        placed.extend(missing.into_iter().map(|region| Found { region, ..price.clone() }));
    }
    *found = placed;
}

fn no_json(error: &serde_json::Error, place: &str) -> Wrong {
    Wrong::new(format!("this is no JSON: {error}"), place, "", "the file as the provider sent it")
}

/// What was read of a list, before it is sifted.
#[derive(Default)]
struct Read {
    found: Vec<Found>,
    products: usize,
    left: BTreeMap<Left, usize>,
    goes_on: Option<&'static str>,
}

impl Read {
    fn leave(&mut self, why: Left, count: usize) {
        if count > 0 {
            *self.left.entry(why).or_default() += count;
        }
    }

    /// Whether a price can stand in a catalogue and decide; what can't is counted.
    fn takes(&mut self, found: &Found, today: Date) -> bool {
        let why = match found {
            // A region that is written otherwise would become another one.
            found if found.region.is_empty() || plain(&found.region) != found.region => Left::Region,
            found if found.date.is_some_and(|date| date > today) => Left::Future,
            found if found.charge == Charge::Hour && found.usd == 0.0 => Left::Free,
            _ => return true,
        };
        self.leave(why, 1);
        false
    }
}

/// What a product of a list is.
enum Product {
    Unknown,
    Unit,
    Prices(Vec<Found>),
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
    fn read(&self, list: &Value, place: &str, of: impl Fn(&Value, &str) -> Result<Product>) -> Result<Read> {
        let pages = list.as_array().map_or(std::slice::from_ref(list), Vec::as_slice);
        let mut read = Read::default();
        for page in pages {
            let Some(products) = page.get(self.field).and_then(Value::as_array) else {
                let what = format!("this is no page of {}", self.whose);
                return Err(Wrong::new(what, place, self.field, self.hint));
            };
            for (index, product) in products.iter().enumerate() {
                read.products += 1;
                match of(product, &format!("{place}, {}[{index}]", self.field))? {
                    Product::Unknown => read.leave(Left::Unknown, 1),
                    Product::Unit => read.leave(Left::Unit, 1),
                    Product::Prices(found) => read.found.extend(found),
                }
            }
        }
        read.goes_on = self.lacks_some(pages).then_some(self.next);
        Ok(read)
    }

    /// Whether pages are missing. The last one is that which none follows, wherever it stands; where the others tell how many
    /// products come before the next, as Azure's do, each such step is there.
    fn lacks_some(&self, pages: &[Value]) -> bool {
        let is_last = |page: &Value| text(page, self.next).is_empty();
        let before_next = |page: &Value| text(page, self.next).split("$skip=").nth(1)?.split('&').next()?.parse().ok();
        let steps: BTreeSet<u64> = pages.iter().filter_map(before_next).collect();
        let is_gap = match (steps.first(), steps.last()) {
            (Some(first), Some(last)) => *first == 0 || last % first != 0 || last / first != steps.len() as u64,
            _ => false,
        };
        is_gap || (!pages.is_empty() && !pages.iter().any(is_last))
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
    /// The overlay: a layer over the catalogue that it was read for.
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
                let tier = if found.from > 0.0 { format!(", from-gib = {}", found.from) } else { String::new() };
                let _ = writeln!(
                    text,
                    "  {{ of = \"{name}\", unit = \"{}\", value = {}, region = \"{}\"{tier}{date}, source = \"price-list\", confidence = \"high\", note = \"{}\" }},",
                    found.unit,
                    found.usd,
                    found.region,
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
