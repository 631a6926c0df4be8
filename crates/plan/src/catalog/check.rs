//! What is doubtful in a catalogue: figures that can't decide, prices that are missing, dates that are old.
//!
//! It refuses nothing; that is done where texts are read. Invariant: each finding names its entry and figure.

use serde::Serialize;

use super::Catalog;
use super::quantity::Charge;
use crate::date::Date;
use crate::figure::{Confidence, Origin};

/// A doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Doubt {
    pub entry: String,
    pub field: String,
    pub what: String,
}

/// Prices that are older are worth a warning: list prices have moved by a third within a year and a half.
pub const OLD_DAYS: f64 = 548.0;

impl Catalog {
    /// All doubts, at a day.
    pub fn check(&self, today: Date) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for service in &self.services {
            self.missing(service, &mut doubts);
            for price in &service.prices {
                judge(&service.id, &format!("price of {}", price.of.name()), &price.figure.origin, today, &mut doubts);
            }
            for limit in &service.limits {
                judge(&service.id, &format!("limit of {}", limit.of.name()), &limit.figure.origin, today, &mut doubts);
            }
        }
        for node in &self.nodes {
            if node.prices.is_empty() {
                doubts.push(doubt(&node.id, "price of hour", "none is known: it can't be ranked"));
            }
            for price in &node.prices {
                if !price.costs() {
                    let what = format!("it is 0 in {}: it never decides, as --accelerator-price 0 does", price.region);
                    doubts.push(doubt(&node.id, "price of hour", what));
                }
                judge(&node.id, "price of hour", &price.figure.origin, today, &mut doubts);
            }
            for limit in &node.limits {
                judge(&node.id, &format!("limit of {}", limit.of.name()), &limit.figure.origin, today, &mut doubts);
            }
        }
        for client in &self.clients {
            for limit in &client.limits {
                judge(&client.id, &format!("limit of {}", limit.of.name()), &limit.figure.origin, today, &mut doubts);
            }
            for observed in &client.observed {
                judge(
                    &client.id,
                    &format!("reached on {}", observed.service),
                    &observed.figure.origin,
                    today,
                    &mut doubts,
                );
            }
        }
        doubts
    }

    fn missing(&self, service: &super::Service, doubts: &mut Vec<Doubt>) {
        for charge in &service.charges {
            if service.prices(*charge, None).is_empty() {
                let what = "it is charged, and no price is known: it can't be ranked";
                doubts.push(doubt(&service.id, &format!("price of {}", charge.name()), what));
            }
        }
        let extra = service.prices.iter().find(|price| !service.charges.contains(&price.of) && !is_optional(price.of));
        if let Some(price) = extra {
            let what = "it has a price and is not among the charges: nobody pays it";
            doubts.push(doubt(&service.id, &format!("price of {}", price.of.name()), what));
        }
        if !self.clients.iter().any(|client| client.reads(service)) {
            doubts.push(doubt(&service.id, "client", "no client reads it: it is in no plan"));
        }
    }
}

/// Paid only where somebody reads from elsewhere.
fn is_optional(charge: Charge) -> bool {
    matches!(charge, Charge::Egress | Charge::CrossZone)
}

fn doubt(entry: &str, field: &str, what: impl Into<String>) -> Doubt {
    Doubt { entry: entry.to_owned(), field: field.to_owned(), what: what.into() }
}

fn judge(entry: &str, field: &str, origin: &Origin, today: Date, doubts: &mut Vec<Doubt>) {
    match origin.confidence {
        Confidence::Unverified => doubts.push(doubt(entry, field, "it is unverified: it never decides")),
        Confidence::Superseded => doubts.push(doubt(entry, field, "it is superseded: it is never used")),
        Confidence::Low => doubts.push(doubt(entry, field, "it is press or marketing")),
        _ => {}
    }
    match origin.date {
        None => doubts.push(doubt(entry, field, format!("it has no date ({})", origin.source))),
        Some(date) if date > today => doubts.push(doubt(entry, field, format!("it is of a day to come, {date}"))),
        Some(date) if field.starts_with("price") && today.days() - date.days() > OLD_DAYS => {
            doubts.push(doubt(entry, field, format!("it is old, {date}")));
        }
        Some(_) => {}
    }
}
