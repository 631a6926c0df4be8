//! A figure: a number that remembers where it comes from and how far it may be off.
//!
//! Invariant: `low <= likely <= high`, all finite, none below zero. What is missing is no figure; it is never zero.

use crate::date::Date;
use serde::Serialize;

/// A number with the bounds that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    pub low: f64,
    pub likely: f64,
    pub high: f64,
}

impl Range {
    pub fn exact(value: f64) -> Range {
        Range { low: value, likely: value, high: value }
    }

    /// The range of one number for each bound; whichever is the lowest comes first.
    pub fn of(low: f64, likely: f64, high: f64) -> Range {
        Range { low: low.min(likely).min(high), likely, high: high.max(likely).max(low) }
    }

    pub fn map(self, of: impl Fn(f64) -> f64) -> Range {
        Range::of(of(self.low), of(self.likely), of(self.high))
    }

    /// Both are at their lower, likely or higher bound at once.
    pub fn with(self, other: Range, of: impl Fn(f64, f64) -> f64) -> Range {
        Range::of(of(self.low, other.low), of(self.likely, other.likely), of(self.high, other.high))
    }

    pub fn times(self, factor: f64) -> Range {
        self.map(|value| value * factor)
    }

    pub fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    pub fn overlaps(self, other: Range) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// At a place between the bounds: 0 is the lower one, 0.5 the likely one, 1 the higher one.
    pub fn at(self, place: f64) -> f64 {
        match place < 0.5 {
            true => self.low + (self.likely - self.low) * place * 2.0,
            false => self.likely + (self.high - self.likely) * (place - 0.5) * 2.0,
        }
    }
}

/// How well a figure is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Kept to show a change; never used.
    Superseded,
    /// Remembered and found nowhere; it never decides.
    Unverified,
    /// Press or marketing.
    Low,
    /// A third party, or a provider's page without date or region.
    Medium,
    /// A provider's document or price feed, or measured.
    High,
}

impl Confidence {
    pub fn parse(text: &str) -> Option<Confidence> {
        Some(match text {
            "superseded" => Confidence::Superseded,
            "unverified" => Confidence::Unverified,
            "low" => Confidence::Low,
            "medium" => Confidence::Medium,
            "high" => Confidence::High,
            _ => return None,
        })
    }
}

/// Which text a figure comes from. A later layer comes before an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Travels with the program.
    Shipped,
    /// Imported from a provider's price list.
    Refreshed,
    /// The user's contract and quotas.
    Site,
    /// What the user measured.
    Measured,
}

impl Layer {
    pub fn name(self) -> &'static str {
        match self {
            Layer::Shipped => "shipped",
            Layer::Refreshed => "refreshed",
            Layer::Site => "site",
            Layer::Measured => "measured",
        }
    }
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Origin {
    /// The id of the document, and its title.
    pub source: String,
    pub title: String,
    /// None where the document shows none.
    pub date: Option<Date>,
    pub confidence: Confidence,
    pub layer: Layer,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A number and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    #[serde(flatten)]
    pub value: Range,
    #[serde(flatten)]
    pub origin: Origin,
}

impl Figure {
    /// Whether it may decide anything.
    pub fn is_trusted(&self, unverified: bool) -> bool {
        self.origin.confidence > Confidence::Unverified
            || unverified && self.origin.confidence == Confidence::Unverified
    }

    pub fn times(mut self, factor: f64) -> Figure {
        self.value = self.value.times(factor);
        self
    }
}
