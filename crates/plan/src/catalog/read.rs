//! One text of a catalogue, as it says it: what a layer leaves out is left open here.
//!
//! It puts nothing together. Invariant: every figure has a source that the text describes, a unit and a confidence.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::quantity::{CHARGES, Charge, LIMITS, MONTH_HOURS, Of, SCOPES, Scope};
use super::{ATTACHES, Attach, Burst, CLASSES, Class, Limit, METHODS, Method, NEEDS, Need, Observed, Price};
use crate::date::Date;
use crate::figure::{Confidence, Figure, Layer, Origin, Range};
use crate::wrong::{Result, Wrong};

/// A catalogue is no larger.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
/// No request rate doubles faster or slower.
const MINUTES_LEAST: f64 = 0.01;
const MINUTES_MOST: f64 = 10_000.0;
/// No provider asks for more days of storage.
const DAYS_MAX: f64 = 3650.0;
/// Nor for larger files.
const OBJECT_KIB_MAX: f64 = 1_048_576.0;
/// Of a listed limit somebody may well reach more, but no multiple: that is another unit, or the wrong limit.
const SHARE_MAX: f64 = 1.5;
/// An id is no longer, and has no other letters.
const ID_BYTES_MAX: usize = 120;

pub struct Text {
    pub provider: String,
    pub version: String,
    pub services: Vec<ServiceText>,
    pub nodes: Vec<NodeText>,
    pub clients: Vec<ClientText>,
}

pub struct ServiceText {
    pub place: String,
    pub id: String,
    pub name: Option<String>,
    pub class: Option<Class>,
    pub attach: Option<Attach>,
    pub charges: Option<Vec<Charge>>,
    pub min_gib: Option<f64>,
    pub step_gib: Option<f64>,
    pub max_gib: Option<f64>,
    pub min_days: Option<f64>,
    pub min_object_kib: Option<f64>,
    pub is_zonal: Option<bool>,
    pub region: String,
    pub prices: Vec<Price>,
    pub limits: Vec<Limit>,
    pub note: Option<String>,
}

pub struct NodeText {
    pub place: String,
    pub id: String,
    pub accelerators: Option<f64>,
    pub accelerator: Option<String>,
    pub cores: Option<f64>,
    pub region: String,
    pub prices: Vec<Price>,
    pub limits: Vec<Limit>,
}

pub struct ClientText {
    pub place: String,
    pub id: String,
    pub name: Option<String>,
    pub method: Option<Method>,
    pub services: Vec<String>,
    pub grants: Vec<Need>,
    pub limits: Vec<Limit>,
    pub observed: Vec<Observed>,
}

/// What a text says of where its figures come from.
struct Sources {
    known: BTreeMap<String, (String, Option<Date>)>,
    layer: Layer,
    region: String,
}

pub fn text(place: &str, layer: Layer, text: &str) -> Result<Text> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Wrong::new("this is too large for a catalogue", place, "", "at most 64 MiB"));
    }
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Wrong::new(
            format!("this is no TOML: {}", error.message()),
            format!("{place}:{line}"),
            "",
            "docs/planner.md shows one",
        )
    })?;
    let mut top = Entry::new(place.to_owned(), table);
    let (provider, version) = (id(&mut top, "provider")?, top.needed_text("version")?);
    let currency = top.needed_text("currency")?;
    if currency != "USD" {
        return Err(top.wrong("currency", format!("prices in {currency} are not compared"), "USD"));
    }
    let region = top.text("region")?.unwrap_or_default();
    let sources = sources(&mut top, layer, region)?;
    let text = Text {
        services: named(&mut top, "service")?
            .into_iter()
            .map(|entry| service(entry, &sources))
            .collect::<Result<_>>()?,
        nodes: named(&mut top, "node")?.into_iter().map(|entry| node(entry, &sources)).collect::<Result<_>>()?,
        clients: named(&mut top, "client")?.into_iter().map(|entry| client(entry, &sources)).collect::<Result<_>>()?,
        provider,
        version,
    };
    top.finish()?;
    Ok(text)
}

/// Entries with an id, which is also their place.
fn named(top: &mut Entry, field: &str) -> Result<Vec<(String, Entry)>> {
    let place = top.place.clone();
    let entries = top.entries(field)?.into_iter();
    let named: Vec<(String, Entry)> = entries
        .map(|mut entry| {
            let id = id(&mut entry, "id")?;
            entry.place = format!("{place}, {field} {id}");
            Ok((id, entry))
        })
        .collect::<Result<_>>()?;
    let mut ids: Vec<&str> = named.iter().map(|(id, _)| id.as_str()).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Wrong::new(
            "this id stands twice",
            format!("{place}, {field} {}", pair[0]),
            "id",
            "one entry for each id",
        )),
        None => Ok(named),
    }
}

fn id(entry: &mut Entry, field: &str) -> Result<String> {
    let id = entry.needed_text(field)?;
    let is_id = id.len() <= ID_BYTES_MAX
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !id.starts_with(['.', '-']);
    match is_id {
        true => Ok(id),
        false => Err(entry.wrong(field, "this is no id", "letters, digits, dots, dashes and underscores, 120 at most")),
    }
}

fn sources(top: &mut Entry, layer: Layer, region: String) -> Result<Sources> {
    let mut known = BTreeMap::new();
    for (id, mut entry) in named(top, "source")? {
        let title = entry.needed_text("title")?;
        let date = date(&mut entry)?;
        entry.text("kind")?;
        entry.text("dated-by")?;
        entry.finish()?;
        known.insert(id, (title, date));
    }
    Ok(Sources { known, layer, region })
}

fn date(entry: &mut Entry) -> Result<Option<Date>> {
    let Some(text) = entry.text("date")? else { return Ok(None) };
    let date = Date::parse(&text);
    date.map(Some).ok_or_else(|| entry.wrong("date", format!("`{text}` is no date"), "2024-07-01, 2024-07 or 2024"))
}

impl Sources {
    /// The figure of an entry, in the unit of its quantity.
    fn figure(&self, entry: &mut Entry, units: &[(&str, f64)]) -> Result<(Figure, f64)> {
        let unit = entry.needed_word("unit", units)?;
        let Some(likely) = entry.number("value")? else {
            return Err(entry.wrong(
                "value",
                "something is missing",
                "a number; leave the entry out where none is known",
            ));
        };
        let (low, high) = (entry.number("low")?.unwrap_or(likely), entry.number("high")?.unwrap_or(likely));
        if !(low <= likely && likely <= high) {
            return Err(entry.wrong(
                "value",
                format!("{likely} is not between {low} and {high}"),
                "low <= value <= high",
            ));
        }
        let value = Range { low, likely, high }.times(unit);
        Ok((Figure { value, origin: self.origin(entry)? }, unit))
    }

    fn origin(&self, entry: &mut Entry) -> Result<Origin> {
        let source = entry.needed_text("source")?;
        let Some((title, dated)) = self.known.get(&source) else {
            let known = self.known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(entry.wrong("source", format!("`{source}` is described nowhere in this file"), known));
        };
        let word = entry.needed_text("confidence")?;
        let confidence = Confidence::parse(&word).ok_or_else(|| {
            entry.wrong(
                "confidence",
                format!("`{word}` means nothing here"),
                "high, medium, low, unverified, superseded",
            )
        })?;
        let date = date(entry)?.or(*dated);
        Ok(Origin { source, title: title.clone(), date, confidence, layer: self.layer, note: entry.text("note")? })
    }

    fn prices(&self, entry: &mut Entry) -> Result<Vec<Price>> {
        let prices = entry.entries("prices")?.into_iter().map(|mut entry| {
            let of = entry.needed_word("of", &CHARGES)?;
            let (figure, unit) = self.figure(&mut entry, of.units())?;
            let region = entry.text("region")?.unwrap_or_else(|| self.region.clone());
            if region.is_empty() {
                return Err(entry.wrong("region", "something is missing", "a region, here or at the top of the file"));
            }
            let from_gib = entry.number("from-gib")?.unwrap_or(0.0);
            let above = above(&mut entry, of, unit)?;
            entry.finish()?;
            Ok(Price { of, region, from_gib, above, figure })
        });
        let prices: Vec<Price> = prices.collect::<Result<_>>()?;
        let is_twice = |left: &Price, right: &Price| {
            (left.of, &left.region, left.from_gib) == (right.of, &right.region, right.from_gib)
        };
        let twice = |(index, price): (usize, &Price)| prices[..index].iter().any(|before| is_twice(before, price));
        match prices.iter().enumerate().position(twice) {
            None => Ok(prices),
            Some(index) => {
                let price = &prices[index];
                let what =
                    format!("{} of {} has two prices from {} GiB", price.of.name(), price.region, price.from_gib);
                Err(entry.wrong("prices", what, "one price for each from-gib"))
            }
        }
    }

    fn limits(&self, entry: &mut Entry) -> Result<Vec<Limit>> {
        entry.entries("limits")?.into_iter().map(|entry| self.limit(entry)).collect()
    }

    fn limit(&self, mut entry: Entry) -> Result<Limit> {
        let of = entry.needed_word("of", &LIMITS)?;
        let scope = entry.word("scope", &SCOPES)?.unwrap_or(Scope::Service);
        let (figure, unit) = self.figure(&mut entry, of.units())?;
        let size = entry.word("per", &[("GiB", 1.0), ("TiB", 1024.0)])?;
        let slope = entry.number("slope")?;
        let burst = entry.number("burst-slope")?;
        if (slope.is_some() || burst.is_some()) != size.is_some() {
            return Err(entry.wrong(
                "per",
                "a slope is of a size, and only a slope is",
                "per = \"GiB\" or \"TiB\" beside slope",
            ));
        }
        let size = size.unwrap_or(1.0);
        let credit = entry.number("credit-gib-per-gib")?;
        if burst.is_some() != credit.is_some() {
            return Err(entry.wrong(
                "credit-gib-per-gib",
                "a burst has a credit, and only a burst has",
                "both, or neither",
            ));
        }
        let limit = Limit {
            of,
            scope,
            client: entry.text("client")?,
            figure,
            slope: slope.unwrap_or(0.0) * unit / size,
            floor: entry.number("floor")?.unwrap_or(0.0) * unit,
            cap: entry.number("cap")?.map(|cap| cap * unit),
            burst: burst
                .zip(credit)
                .map(|(slope, credit_gib_per_gib)| Burst { slope: slope * unit / size, credit_gib_per_gib }),
            is_bought: entry.flag("bought")?,
            is_least: entry.flag("at-least")?,
            doubles_minutes: entry.number("doubles-minutes")?,
            clients: entry.number("clients")?,
        };
        if limit.cap.is_some_and(|cap| cap < limit.floor) {
            return Err(entry.wrong("cap", "the cap is below the floor", "floor <= cap"));
        }
        if limit.doubles_minutes.is_some_and(|minutes| {
            of != Of::Requests || !limit.is_least || !(MINUTES_LEAST..=MINUTES_MOST).contains(&minutes)
        }) {
            let hint = "minutes, from 0.01 to 10000, of requests that are at-least";
            return Err(entry.wrong("doubles-minutes", "this is no ramp of a request rate", hint));
        }
        if limit.clients.is_some_and(|clients| clients < 1.0) {
            return Err(entry.wrong("clients", "somebody has measured it", "1 or more"));
        }
        entry.finish()?;
        Ok(limit)
    }
}

/// What is included before anything is charged, in MB/s or operations a second, where the unit of the price is one of these.
fn above(entry: &mut Entry, of: Charge, unit: f64) -> Result<f64> {
    match entry.number("above")? {
        None => Ok(0.0),
        // A price for MiB/s shrank to one for MB/s by as much as the amount grows.
        Some(above) if matches!(of, Charge::Throughput | Charge::Iops) => Ok(above / unit / MONTH_HOURS),
        Some(_) => {
            Err(entry.wrong("above", "something is included only in speed that is bought", "of throughput or iops"))
        }
    }
}

fn service((id, mut entry): (String, Entry), sources: &Sources) -> Result<ServiceText> {
    let charges = match entry.has("charges") {
        false => None,
        true => Some(words(&mut entry, "charges", &CHARGES)?),
    };
    let text = ServiceText {
        id,
        name: entry.text("name")?,
        class: entry.word("class", &CLASSES)?,
        attach: entry.word("attach", &ATTACHES)?,
        charges,
        min_gib: entry.number("min-gib")?,
        step_gib: entry.number("step-gib")?,
        max_gib: entry.number("max-gib")?,
        min_days: entry.number("min-days")?,
        min_object_kib: entry.number("min-object-kib")?,
        is_zonal: entry.has("zonal").then(|| entry.flag("zonal")).transpose()?,
        region: sources.region.clone(),
        prices: sources.prices(&mut entry)?,
        limits: sources.limits(&mut entry)?,
        note: entry.text("note")?,
        place: entry.place.clone(),
    };
    if text.step_gib == Some(0.0) {
        return Err(entry.wrong("step-gib", "a step of nothing", "above 0, or left out"));
    }
    if text.min_days.is_some_and(|days| days > DAYS_MAX) {
        return Err(entry.wrong("min-days", "nothing is kept for so long", "days, up to 3650"));
    }
    if text.min_object_kib.is_some_and(|kib| kib > OBJECT_KIB_MAX) {
        return Err(entry.wrong("min-object-kib", "no file is paid for as so large a one", "KiB, up to 1048576"));
    }
    entry.finish()?;
    Ok(text)
}

fn node((id, mut entry): (String, Entry), sources: &Sources) -> Result<NodeText> {
    let accelerators = entry.number("accelerators")?;
    if accelerators.is_some_and(|count| count.fract() != 0.0 || count > 1024.0) {
        return Err(entry.wrong("accelerators", "this is no number of accelerators", "a whole number up to 1024"));
    }
    let prices = sources.prices(&mut entry)?;
    let region = prices.first().map_or_else(|| sources.region.clone(), |price| price.region.clone());
    let text = NodeText {
        id,
        accelerators,
        accelerator: entry.text("accelerator")?,
        cores: entry.number("cores")?,
        region,
        prices,
        limits: sources.limits(&mut entry)?,
        place: entry.place.clone(),
    };
    entry.finish()?;
    Ok(text)
}

fn client((id, mut entry): (String, Entry), sources: &Sources) -> Result<ClientText> {
    let observed = entry.entries("observed")?.into_iter().map(|mut entry| {
        let (service, case) = (entry.needed_text("service")?, entry.needed_text("case")?);
        let (figure, _) = sources.figure(&mut entry, &[("of-listed", 1.0)])?;
        if figure.value.low <= 0.0 {
            return Err(entry.wrong("value", "nothing at all was read", "above 0"));
        }
        let fields = [("value", figure.value.likely), ("high", figure.value.high)];
        if let Some((field, share)) = fields.into_iter().find(|(_, share)| *share > SHARE_MAX) {
            let what = format!("nobody reaches {share} times what is listed");
            return Err(entry.wrong(field, what, "a share of the listed limit, up to 1.5: 0.8 for 80 %"));
        }
        entry.finish()?;
        Ok(Observed { service, case, figure })
    });
    let observed = observed.collect::<Result<_>>()?;
    let text = ClientText {
        id,
        name: entry.text("name")?,
        method: entry.word("method", &METHODS)?,
        services: entry.texts("services")?,
        grants: words(&mut entry, "grants", &NEEDS)?,
        limits: sources.limits(&mut entry)?,
        observed,
        place: entry.place.clone(),
    };
    entry.finish()?;
    Ok(text)
}

fn words<T: Copy>(entry: &mut Entry, field: &str, words: &[(&str, T)]) -> Result<Vec<T>> {
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let texts = entry.texts(field)?.into_iter();
    let meant = texts.map(|text| match words.iter().find(|(word, _)| *word == text) {
        Some((_, meaning)) => Ok(*meaning),
        None => Err(entry.wrong(field, format!("`{text}` means nothing here"), known.join(", "))),
    });
    meant.collect()
}
