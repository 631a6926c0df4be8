//! Google's billing catalogue: `skus[]` of one page or of several pages in a list.

use serde_json::Value;

use super::{Found, Imported, Page, in_usd, price, text};
use crate::catalog::quantity::Charge;
use crate::date::Date;
use crate::wrong::{Result, Wrong};

/// How descriptions begin, and which entry they are of.
const STORAGE: [(&str, &str, Charge); 6] = [
    ("Standard Storage ", "gcp.gcs.standard", Charge::Capacity),
    ("Storage PD Capacity", "gcp.pd.standard", Charge::Capacity),
    ("Balanced PD Capacity", "gcp.pd.balanced", Charge::Capacity),
    ("SSD backed PD Capacity", "gcp.pd.ssd", Charge::Capacity),
    ("Regional Standard Class A Operations", "gcp.gcs.standard", Charge::Write),
    ("Regional Standard Class B Operations", "gcp.gcs.standard", Charge::Read),
];

pub(super) fn read(list: &Value, place: &str) -> Result<Imported> {
    let page = Page {
        whose: "Google's billing catalogue",
        field: "skus",
        next: "nextPageToken",
        hint: "the answer to services.skus.list",
    };
    page.read(list, place, of_sku)
}

fn of_sku(sku: &Value, place: &str) -> Result<Vec<Found>> {
    let description = text(sku, "description");
    let on_demand = sku.get("category").map(|category| text(category, "usageType")) == Some("OnDemand");
    let known = STORAGE.iter().find(|(known, ..)| description.starts_with(known));
    let Some((_, id, charge)) = known.filter(|_| on_demand) else { return Ok(Vec::new()) };
    let Some(pricing) = sku.get("pricingInfo").and_then(Value::as_array).and_then(|all| all.last()) else {
        return Err(Wrong::new("a price is missing", place, "pricingInfo", "a list of prices"));
    };
    let expression = pricing.get("pricingExpression").unwrap_or(&Value::Null);
    let unit = match (charge, text(expression, "usageUnit")) {
        (Charge::Capacity, "GiBy.mo") => "GiB-month",
        (Charge::Read | Charge::Write, "count") => "1",
        _ => return Ok(Vec::new()),
    };
    let mut found = Vec::new();
    let regions = sku.get("serviceRegions").and_then(Value::as_array);
    for rate in expression.get("tieredRates").and_then(Value::as_array).into_iter().flatten() {
        let usd = price(usd(rate, place)?, place, "unitPrice")?;
        let from =
            price(rate.get("startUsageAmount").and_then(Value::as_f64).unwrap_or(0.0), place, "startUsageAmount")?;
        for region in regions.into_iter().flatten().filter_map(Value::as_str) {
            found.push(Found {
                id: (*id).to_owned(),
                charge: *charge,
                region: region.to_owned(),
                unit,
                usd,
                from_gib: if *charge == Charge::Capacity { from } else { 0.0 },
                date: Date::of_moment(text(pricing, "effectiveTime")),
                sku: text(sku, "skuId").to_owned(),
            });
        }
    }
    Ok(found)
}

/// Whole dollars as a text, and billionths.
fn usd(rate: &Value, place: &str) -> Result<f64> {
    let wrong =
        |field: &str| Wrong::new("this is no price", place, field, "unitPrice: { units: \"0\", nanos: 20000000 }");
    let price = rate.get("unitPrice").ok_or_else(|| wrong("unitPrice"))?;
    in_usd(text(price, "currencyCode"), place, "currencyCode")?;
    let units: f64 = match price.get("units") {
        None => 0.0,
        Some(Value::String(text)) => text.parse().map_err(|_| wrong("units"))?,
        Some(number) => number.as_f64().ok_or_else(|| wrong("units"))?,
    };
    let nanos = match price.get("nanos") {
        None => 0.0,
        Some(number) => number.as_f64().ok_or_else(|| wrong("nanos"))?,
    };
    if price.get("units").is_none() && price.get("nanos").is_none() {
        return Err(wrong("unitPrice"));
    }
    Ok(units + nanos / 1e9)
}
