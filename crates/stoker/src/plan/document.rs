//! A plan as JSON (docs/planner.md): offers in rank order, then what can't be ranked.
//!
//! Invariant: a number that is unknown is null or absent, never 0.

use ::plan::figure::Range;
use ::plan::plan::{Offer, Plan};
use serde_json::{Value, json};

use super::simulated::Row;

/// Raised when a field changes its meaning; new fields don't raise it.
const SCHEMA: u32 = 1;

/// One plan, or the points of a sweep; and what was simulated of it.
pub fn of(plans: &[Plan], simulated: &[Row]) -> Value {
    let mut document = match plans {
        [plan] => one(plan),
        several => json!({ "schema": SCHEMA, "command": "plan", "sweep": several.iter().map(one).collect::<Vec<_>>() }),
    };
    if !simulated.is_empty() {
        document["simulated"] = serde_json::to_value(simulated).expect("a row has no keys but strings");
    }
    document
}

fn one(plan: &Plan) -> Value {
    let mut document = serde_json::to_value(plan).expect("a plan has no keys but strings");
    let unranked =
        plan.unranked.iter().map(|unranked| json!({ "id": unranked.id, "ranked": false, "reasons": unranked.reasons }));
    let offers: Vec<Value> = plan.offers.iter().map(offer).chain(unranked).collect();
    document["offers"] = offers.into();
    document["schema"] = SCHEMA.into();
    document["command"] = "plan".into();
    let members = document.as_object_mut().expect("a plan is an object");
    members.remove("unranked");
    document
}

/// Ranges as three numbers, so that `hours` and `total_usd` are numbers.
fn offer(offer: &Offer) -> Value {
    let mut document = serde_json::to_value(offer).expect("an offer has no keys but strings");
    let mut range = |name: &str, Range { low, likely, high }: Range| {
        document[name] = likely.into();
        document[format!("{name}_low")] = low.into();
        document[format!("{name}_high")] = high.into();
    };
    range("hours", offer.hours);
    range("total_usd", offer.total_usd);
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::plan::catalog::Catalog;
    use ::plan::catalog::shipped::SHIPPED;
    use ::plan::date::Date;
    use ::plan::demand::Demand;

    #[test]
    fn an_offer_has_the_fields_that_are_promised() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let demand = Demand::new("V100", 32, 18.75, 16e6, 318_750.0);
        let plan = Plan::of(&catalog, &demand, Date::parse("2026-11-24").unwrap()).unwrap();
        let document = of(&[plan], &[]);
        let first = &document["offers"][0];
        for field in [
            "au_percent",
            "hours",
            "total_usd",
            "usd_per_epoch",
            "idle_usd",
            "storage_usd",
            "requests_usd",
            "mb_per_s_per_usd_hour",
        ] {
            assert!(first[field].is_f64(), "{field}: {}", first[field]);
        }
        for field in ["id", "binding_limit", "next_limit", "oldest_price"] {
            assert!(first[field].is_string(), "{field}: {}", first[field]);
        }
        let offers = document["offers"].as_array().unwrap();
        let ranked = offers.iter().filter(|offer| offer["ranked"] == true).count();
        assert!(ranked > 3 && offers[..ranked].iter().all(|offer| offer["ranked"] == true) && ranked < offers.len());
        assert!(offers[ranked]["reasons"][0].is_string() && offers[ranked].get("total_usd").is_none());
        assert!(offers[..ranked].windows(2).all(|pair| pair[0]["total_usd"].as_f64() <= pair[1]["total_usd"].as_f64()));
    }
}
