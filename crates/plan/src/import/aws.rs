//! AWS's price list: `products` by their codes, and `terms.OnDemand` of each.

use serde_json::Value;

use super::{Found, Imported, price, text};
use crate::catalog::quantity::Charge;
use crate::date::Date;
use crate::wrong::{Result, Wrong};

/// How usage is called after the region, and which entry it is of.
const STORAGE: [(&str, &str, Charge); 15] = [
    ("TimedStorage-ByteHrs", "aws.s3.standard", Charge::Capacity),
    ("Requests-Tier1", "aws.s3.standard", Charge::Write),
    ("Requests-Tier2", "aws.s3.standard", Charge::Read),
    ("TimedStorage-SIA-ByteHrs", "aws.s3.ia", Charge::Capacity),
    ("Requests-SIA-Tier1", "aws.s3.ia", Charge::Write),
    ("Requests-SIA-Tier2", "aws.s3.ia", Charge::Read),
    ("Retrieval-SIA", "aws.s3.ia", Charge::ReadBytes),
    ("EBS:VolumeUsage.gp2", "aws.ebs.gp2", Charge::Capacity),
    ("EBS:VolumeUsage.gp3", "aws.ebs.gp3", Charge::Capacity),
    ("EBS:VolumeUsage.piops", "aws.ebs.io1", Charge::Capacity),
    ("EBS:VolumeP-IOPS.piops", "aws.ebs.io1", Charge::Iops),
    ("EBS:VolumeUsage.io2", "aws.ebs.io2", Charge::Capacity),
    ("EBS:VolumeUsage.st1", "aws.ebs.st1", Charge::Capacity),
    ("EBS:VolumeUsage.sc1", "aws.ebs.sc1", Charge::Capacity),
    ("EBS:VolumeUsage", "aws.ebs.standard", Charge::Capacity),
];

pub(super) fn read(list: &Value, place: &str) -> Result<Imported> {
    let part = |name: &str| list.get(name).and_then(Value::as_object);
    let (Some(products), Some(terms)) = (part("products"), list.get("terms")) else {
        return Err(Wrong::new(
            "this is no price list of AWS",
            place,
            "products",
            "an offer file, with products and terms",
        ));
    };
    let mut imported = Imported::default();
    for (sku, product) in products {
        imported.products += 1;
        let attributes = product.get("attributes").unwrap_or(&Value::Null);
        let Some((id, charge)) = known(product, attributes) else {
            imported.unknown += 1;
            continue;
        };
        let offers = terms.get("OnDemand").and_then(|terms| terms.get(sku)).and_then(Value::as_object);
        for offer in offers.into_iter().flat_map(|offers| offers.values()) {
            let dimensions = offer.get("priceDimensions").and_then(Value::as_object);
            for (code, dimension) in dimensions.into_iter().flatten() {
                let place = format!("{place}, {code}");
                let Some(found) = found(&id, charge, attributes, offer, dimension, &place)? else { continue };
                // Whoever lists pays what a write costs: both are requests of tier 1.
                let list = (charge == Charge::Write).then(|| Found { charge: Charge::List, ..found.clone() });
                imported.found.extend([Some(found), list].into_iter().flatten());
            }
        }
    }
    Ok(imported)
}

fn known(product: &Value, attributes: &Value) -> Option<(String, Charge)> {
    if text(product, "productFamily").starts_with("Compute Instance") {
        let is_plain = text(attributes, "operatingSystem") == "Linux"
            && text(attributes, "tenancy") == "Shared"
            && text(attributes, "preInstalledSw") == "NA"
            && text(attributes, "capacitystatus") == "Used";
        return is_plain.then(|| (format!("aws.{}", text(attributes, "instanceType")), Charge::Hour));
    }
    let usage = text(attributes, "usagetype");
    // Other regions have their code before it: `EU-TimedStorage-ByteHrs`, `USW2-EBS:VolumeUsage.gp3`.
    let is = |known: &str| {
        usage == known
            || usage
                .strip_suffix(known)
                .is_some_and(|rest| rest.ends_with('-') && !rest[..rest.len() - 1].contains('-'))
    };
    STORAGE.iter().find(|(known, ..)| is(known)).map(|(_, id, charge)| ((*id).to_owned(), *charge))
}

fn found(
    id: &str,
    charge: Charge,
    attributes: &Value,
    offer: &Value,
    dimension: &Value,
    place: &str,
) -> Result<Option<Found>> {
    let Some(text_of_price) = dimension.get("pricePerUnit").and_then(|price| price.get("USD")).and_then(Value::as_str)
    else {
        return Err(Wrong::new("a price in USD is missing", place, "pricePerUnit", "{\"USD\": \"0.023\"}"));
    };
    let usd: f64 = text_of_price.parse().map_err(|_| {
        Wrong::new(format!("`{text_of_price}` is no price"), place, "pricePerUnit", "a number in quotes")
    })?;
    let unit = match (charge, text(dimension, "unit")) {
        (Charge::Capacity, "GB-Mo") => "GiB-month",
        (Charge::Read | Charge::Write | Charge::List, "Requests") => "1",
        (Charge::ReadBytes, "GB") => "GiB",
        (Charge::Iops, "IOPS-Mo") => "IOPS-month",
        (Charge::Hour, "Hrs") => "hour",
        _ => return Ok(None),
    };
    let from = text(dimension, "beginRange").parse().unwrap_or(0.0);
    Ok(Some(Found {
        id: id.to_owned(),
        charge,
        region: text(attributes, "regionCode").to_owned(),
        unit,
        usd: price(usd, place, "pricePerUnit")?,
        from_gib: if charge == Charge::Capacity { price(from, place, "beginRange")? } else { 0.0 },
        date: Date::of_moment(text(offer, "effectiveDate")),
        sku: text(offer, "sku").to_owned(),
    }))
}
