//! Azure's retail prices: `Items[]` of one page or of several pages in a list.

use serde_json::Value;

use super::{Found, Imported, Page, in_usd, price, text};
use crate::catalog::quantity::Charge;
use crate::date::Date;
use crate::wrong::{Result, Wrong};

/// Which product and meter is which entry. The meter name begins with the tier and the redundancy.
const STORAGE: [(&str, &str, &str); 7] = [
    ("General Block Blob v2", "Hot LRS", "azure.blob.hot"),
    ("Blob Storage", "Hot LRS", "azure.blob.hot"),
    ("General Block Blob v2 Hierarchical Namespace", "Hot LRS", "azure.blob-hns.hot"),
    ("General Block Blob v2", "Cool LRS", "azure.blob.cool"),
    ("Blob Storage", "Cool LRS", "azure.blob.cool"),
    ("Premium Block Blob", "Premium LRS", "azure.blob.premium"),
    ("Premium Files", "Premium LRS", "azure.files.premium"),
];

/// How meters are called, and what they charge.
const METERS: [(&str, Charge); 6] = [
    ("Data Stored", Charge::Capacity),
    ("Provisioned", Charge::Capacity),
    ("Read Operations", Charge::Read),
    ("Write Operations", Charge::Write),
    ("List and Create Container Operations", Charge::List),
    ("Data Retrieval", Charge::ReadBytes),
];

pub(super) fn read(list: &Value, place: &str) -> Result<Imported> {
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
    page.read(list, place, |item, place| Ok(found(item, place)?.into_iter().collect()))
}

fn found(item: &Value, place: &str) -> Result<Option<Found>> {
    let (product, sku, meter) = (text(item, "productName"), text(item, "skuName"), text(item, "meterName"));
    in_usd(text(item, "currencyCode"), place, "currencyCode")?;
    if text(item, "type") != "Consumption" {
        return Ok(None);
    }
    let Some((id, charge)) = known(item, product, sku, meter) else { return Ok(None) };
    let unit = match (charge, text(item, "unitOfMeasure")) {
        (Charge::Capacity, "1 GB/Month" | "1 GiB/Month") => "GiB-month",
        (Charge::Read | Charge::Write | Charge::List, "10K") => "10k",
        (Charge::ReadBytes, "1 GB") => "GiB",
        (Charge::Hour, "1 Hour") => "hour",
        _ => return Ok(None),
    };
    let Some(usd) = item.get("retailPrice").and_then(Value::as_f64) else {
        return Err(Wrong::new("a price is missing", place, "retailPrice", "a number"));
    };
    let from = item.get("tierMinimumUnits").and_then(Value::as_f64).unwrap_or(0.0);
    Ok(Some(Found {
        id,
        charge,
        region: text(item, "armRegionName").to_owned(),
        unit,
        usd: price(usd, place, "retailPrice")?,
        from_gib: price(from, place, "tierMinimumUnits")?,
        date: Date::of_moment(text(item, "effectiveStartDate")),
        sku: text(item, "meterId").to_owned(),
    }))
}

fn known(item: &Value, product: &str, sku: &str, meter: &str) -> Option<(String, Charge)> {
    if text(item, "serviceName") == "Virtual Machines" {
        let node = text(item, "armSkuName").strip_prefix("Standard_")?;
        let is_plain = !product.contains("Windows") && !sku.contains("Spot") && !sku.contains("Low Priority");
        return is_plain.then(|| (format!("azure.{node}"), Charge::Hour));
    }
    let (_, _, id) = STORAGE.iter().find(|(known, tier, _)| *known == product && *tier == sku)?;
    let (_, charge) = METERS.iter().find(|(name, _)| meter.ends_with(name))?;
    Some(((*id).to_owned(), *charge))
}
