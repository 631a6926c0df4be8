//! Google's billing catalogue: `skus[]` of one page or of several pages in a list.

use serde_json::Value;

use super::{Found, Known, Page, Product, Read, in_usd, price, text};
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

/// What descriptions have of data in several regions: other prices of other services.
const SEVERAL: [&str; 2] = ["Dual-region", "Multi-region"];

pub(super) fn read(list: &Value, place: &str, entries: &Known) -> Result<Read> {
    let page = Page {
        whose: "Google's billing catalogue",
        field: "skus",
        next: "nextPageToken",
        hint: "the answer to services.skus.list",
    };
    page.read(list, place, |sku, place| of_sku(sku, place, entries))
}

fn of_sku(sku: &Value, place: &str, entries: &Known) -> Result<Product> {
    let description = text(sku, "description");
    let is_one = !SEVERAL.iter().any(|several| description.contains(several));
    let on_demand = sku.get("category").map(|category| text(category, "usageType")) == Some("OnDemand");
    let known = STORAGE.iter().find(|(known, id, _)| description.starts_with(known) && entries.has(id));
    let Some((_, id, charge)) = known.filter(|_| on_demand && is_one) else { return Ok(Product::Unknown) };
    let all = sku.get("pricingInfo").and_then(Value::as_array).filter(|all| !all.is_empty());
    let Some(all) = all else {
        return Err(Wrong::new("a price is missing", place, "pricingInfo", "a list of prices"));
    };
    // The last that has begun; where none has, that it is of a day to come is told.
    let has_begun =
        |pricing: &&Value| Date::of_moment(text(pricing, "effectiveTime")).is_none_or(|date| date <= entries.today);
    let pricing = all.iter().rfind(has_begun).unwrap_or(&all[0]);
    let expression = pricing.get("pricingExpression").unwrap_or(&Value::Null);
    let unit = match (charge, text(expression, "usageUnit")) {
        (Charge::Capacity, "GiBy.mo") => "GiB-month",
        (Charge::Read | Charge::Write, "count") => "1",
        _ => return Ok(Product::Unit),
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
                from,
                date: Date::of_moment(text(pricing, "effectiveTime")),
                sku: text(sku, "skuId").to_owned(),
            });
        }
    }
    Ok(Product::Prices(found))
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
