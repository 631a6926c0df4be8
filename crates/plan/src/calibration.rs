//! Ten published cases that a planner has to return before it is believed, each also predicted with itself left out.
//!
//! Layout: `cases.toml` what they ran on, `rows` what is predicted. Invariants: the tolerance of a row is fixed here and was
//! before it was predicted, and is asked of the likely value; a misfit stays a misfit and carries its explanation.

mod rows;

use serde::Serialize;

use crate::catalog::Catalog;
use crate::catalog::layers::Source;
use crate::catalog::shipped::SHIPPED;
use crate::figure::{Layer, Range};

const CASES: &str = include_str!("calibration/cases.toml");

/// One figure of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub case: &'static str,
    pub quantity: &'static str,
    pub published: f64,
    /// How far a prediction may be off, as a share.
    pub tolerance: f64,
    /// With the efficiency that was measured in this case alone, where there is one: whether the arithmetic holds.
    pub returned: Option<f64>,
    /// With everything that is known, and with this case left out.
    pub predicted: Range,
    pub left_out: Range,
    /// Why a row misfits, or what it rests on.
    pub note: &'static str,
}

/// A limit that a case names.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    pub case: &'static str,
    pub what: &'static str,
    pub published: &'static str,
    pub predicted: String,
    pub left_out: String,
}

pub struct Calibration {
    pub rows: Vec<Row>,
    pub named: Vec<Named>,
}

impl Row {
    pub fn is_near(&self, value: f64) -> bool {
        (value / self.published - 1.0).abs() <= self.tolerance
    }

    /// How far the likely value of a prediction is off, as a share: by this a prediction holds or misses.
    pub fn misfit(&self, range: Range) -> f64 {
        range.likely / self.published - 1.0
    }

    /// Whether the likely value lies within the tolerance.
    pub fn holds(&self, range: Range) -> bool {
        self.is_near(range.likely)
    }

    /// Whether the range of a prediction reaches the published figure within the tolerance.
    pub fn reaches(&self, range: Range) -> bool {
        range.low <= self.published * (1.0 + self.tolerance) && range.high >= self.published * (1.0 - self.tolerance)
    }
}

/// The shipped catalogue with what the cases ran on.
pub fn catalog() -> Catalog {
    let own = Source { layer: Layer::Shipped, place: "calibration/cases.toml", text: CASES };
    let sources: Vec<Source> = SHIPPED.into_iter().chain([own]).collect();
    Catalog::of(&sources).expect("the shipped catalogues are read by a test")
}

pub fn all() -> Calibration {
    let catalog = catalog();
    Calibration { rows: rows::rows(&catalog), named: rows::named(&catalog) }
}

impl Calibration {
    /// The tables of docs/planner.md.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| case | figure | published | within | from its own measurement | predicted | off | with itself left out | off | holds | reached |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for row in &self.rows {
            let range =
                |range: Range| format!("{} ({} to {})", short(range.likely), short(range.low), short(range.high));
            let word = |is_so: bool| if is_so { "yes" } else { "**no**" };
            let off = |range: Range| format!("{:+.0} %", row.misfit(range) * 100.0).replace("-0 %", "+0 %");
            text += &format!(
                "| {} | {} | {} | {:.0} % | {} | {} | {} | {} | {} | {}, {} | {}, {} |\n",
                row.case,
                row.quantity,
                short(row.published),
                row.tolerance * 100.0,
                row.returned.map_or("-".into(), short),
                range(row.predicted),
                off(row.predicted),
                range(row.left_out),
                off(row.left_out),
                word(row.holds(row.predicted)),
                word(row.holds(row.left_out)),
                word(row.reaches(row.predicted)),
                word(row.reaches(row.left_out)),
            );
        }
        text += "\n| case | what limits | published | predicted | with itself left out |\n| --- | --- | --- | --- | --- |\n";
        for named in &self.named {
            text += &format!(
                "| {} | {} | {} | {} | {} |\n",
                named.case, named.what, named.published, named.predicted, named.left_out
            );
        }
        text
    }
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 100.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests;
