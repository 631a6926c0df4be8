//! Azure's retail prices: `Items[]` of one page or of several pages in a list.

use serde_json::Value;

use super::{Found, Known, Page, Product, Read, in_usd, price, text};
use crate::catalog::quantity::Charge;
use crate::date::Date;
use crate::wrong::{Result, Wrong};

/// Which product and meter is which entry. `Blob Storage`, of accounts of an older kind, has prices of its own and is none.
const STORAGE: [(&str, &str, &str); 5] = [
    ("General Block Blob v2", "Hot LRS", "azure.blob.hot"),
    ("General Block Blob v2 Hierarchical Namespace", "Hot LRS", "azure.blob-hns.hot"),
    ("General Block Blob v2", "Cool LRS", "azure.blob.cool"),
    ("Premium Block Blob", "Premium LRS", "azure.blob.premium"),
    ("Premium Files", "Premium LRS", "azure.files.premium"),
];

/// How meters are called after the tier and the redundancy, and what they charge.
/// What machines are let as beside virtual machines on demand, in the name of a product or of its kind.
const OTHERS: [&str; 7] =
    ["Windows", "Cloud Services", "CloudServices", "Dedicated Host", "Promo", "Spot", "Low Priority"];

const METERS: [(&str, Charge); 6] = [
    ("Data Stored", Charge::Capacity),
    ("Provisioned", Charge::Capacity),
    ("Read Operations", Charge::Read),
    ("Write Operations", Charge::Write),
    ("List and Create Container Operations", Charge::List),
    ("Data Retrieval", Charge::ReadBytes),
];

pub(super) fn read(list: &Value, place: &str, entries: &Known) -> Result<Read> {
    let page = Page {
        whose: "Azure's retail prices",
        field: "Items",
        next: "NextPageLink",
        hint: "the answer of the Retail Prices API",
    };
    let pages = list.as_array().map_or(std::slice::from_ref(list), Vec::as_slice);
    for page in pages {
        in_usd(text(page, "BillingCurrency"), place, "BillingCurrency")?;
    }
    page.read(list, place, |item, place| found(item, place, entries))
}

fn found(item: &Value, place: &str, entries: &Known) -> Result<Product> {
    let (product, sku, meter) = (text(item, "productName"), text(item, "skuName"), text(item, "meterName"));
    in_usd(text(item, "currencyCode"), place, "currencyCode")?;
    if text(item, "type") != "Consumption" {
        return Ok(Product::Unknown);
    }
    let Some((id, charge)) = known(item, product, sku, meter).filter(|(id, _)| entries.has(id)) else {
        return Ok(Product::Unknown);
    };
    let unit = match (charge, text(item, "unitOfMeasure")) {
        (Charge::Capacity, "1 GB/Month" | "1 GiB/Month") => "GiB-month",
        (Charge::Read | Charge::Write | Charge::List, "10K") => "10k",
        (Charge::ReadBytes, "1 GB") => "GiB",
        (Charge::Hour, "1 Hour") => "hour",
        _ => return Ok(Product::Unit),
    };
    let Some(usd) = item.get("retailPrice").and_then(Value::as_f64) else {
        return Err(Wrong::new("a price is missing", place, "retailPrice", "a number"));
    };
    let from = item.get("tierMinimumUnits").and_then(Value::as_f64).unwrap_or(0.0);
    Ok(Product::Prices(vec![Found {
        id,
        charge,
        region: text(item, "armRegionName").to_owned(),
        unit,
        usd: price(usd, place, "retailPrice")?,
        from: price(from, place, "tierMinimumUnits")?,
        date: Date::of_moment(text(item, "effectiveStartDate")),
        sku: text(item, "meterId").to_owned(),
    }]))
}

fn known(item: &Value, product: &str, sku: &str, meter: &str) -> Option<(String, Charge)> {
    if text(item, "serviceName") == "Virtual Machines" {
        let node = text(item, "armSkuName").strip_prefix("Standard_")?;
        let is_plain = !OTHERS.iter().any(|other| product.contains(other) || sku.contains(other));
        return is_plain.then(|| (format!("azure.{node}"), Charge::Hour));
    }
    let (_, _, id) = STORAGE.iter().find(|(known, tier, _)| *known == product && *tier == sku)?;
    // `Hot Iterative Read Operations` are other operations than `Hot Read Operations`.
    let is_called = |name: &str| {
        let before = meter.strip_suffix(name);
        before.is_some_and(|before| before.split_whitespace().all(|word| sku.split(' ').any(|of| of == word)))
    };
    let (_, charge) = METERS.iter().find(|(name, _)| is_called(name))?;
    Some(((*id).to_owned(), *charge))
}
