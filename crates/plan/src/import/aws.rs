//! AWS's price list: `products` by their codes, and `terms.OnDemand` of each.
//!
//! A region's list of EC2 has 480 MB: it is read member by member, and what no entry is of is not kept.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::members::{Broken, Reader, each};
use super::{Found, Known, Left, Read, price, text};
use crate::catalog::quantity::Charge;
use crate::date::Date;
use crate::wrong::{Result, Wrong};

/// A kind of usage, and which entry it is of.
struct Usage {
    service: &'static str,
    /// As it is called after the region.
    name: &'static str,
    /// Of what is held: other classes and services are called the same.
    class: &'static str,
    id: &'static str,
    charge: Charge,
}

const S3: &str = "AmazonS3";
const EC2: &str = "AmazonEC2";

const fn usage(service: &'static str, name: &'static str, class: &'static str, of: (&'static str, Charge)) -> Usage {
    Usage { service, name, class, id: of.0, charge: of.1 }
}

const STORAGE: [Usage; 15] = [
    usage(S3, "TimedStorage-ByteHrs", "General Purpose", ("aws.s3.standard", Charge::Capacity)),
    usage(S3, "Requests-Tier1", "", ("aws.s3.standard", Charge::Write)),
    usage(S3, "Requests-Tier2", "", ("aws.s3.standard", Charge::Read)),
    usage(S3, "TimedStorage-SIA-ByteHrs", "Infrequent Access", ("aws.s3.ia", Charge::Capacity)),
    usage(S3, "Requests-SIA-Tier1", "", ("aws.s3.ia", Charge::Write)),
    usage(S3, "Requests-SIA-Tier2", "", ("aws.s3.ia", Charge::Read)),
    usage(S3, "Retrieval-SIA", "", ("aws.s3.ia", Charge::ReadBytes)),
    usage(EC2, "EBS:VolumeUsage.gp2", "", ("aws.ebs.gp2", Charge::Capacity)),
    usage(EC2, "EBS:VolumeUsage.gp3", "", ("aws.ebs.gp3", Charge::Capacity)),
    usage(EC2, "EBS:VolumeUsage.piops", "", ("aws.ebs.io1", Charge::Capacity)),
    usage(EC2, "EBS:VolumeP-IOPS.piops", "", ("aws.ebs.io1", Charge::Iops)),
    usage(EC2, "EBS:VolumeUsage.io2", "", ("aws.ebs.io2", Charge::Capacity)),
    usage(EC2, "EBS:VolumeUsage.st1", "", ("aws.ebs.st1", Charge::Capacity)),
    usage(EC2, "EBS:VolumeUsage.sc1", "", ("aws.ebs.sc1", Charge::Capacity)),
    usage(EC2, "EBS:VolumeUsage", "", ("aws.ebs.standard", Charge::Capacity)),
];

/// Codes of regions before a usage: `EU-TimedStorage-ByteHrs`, `USW2-EBS:VolumeUsage.gp3`. What else stands there is another
/// product: `Tables`, `Vectors`, `Outposts`.
const REGIONS: [&str; 39] = [
    "USE1", "USE2", "USW1", "USW2", "UGE1", "UGW1", "CAN1", "CAN2", "MXC1", "SAE1", "EU", "EUW1", "EUW2", "EUW3",
    "EUC1", "EUC2", "EUN1", "EUS1", "EUS2", "ILC1", "MEC1", "MES1", "AFS1", "APE1", "APE2", "APN1", "APN2", "APN3",
    "APS1", "APS2", "APS3", "APS4", "APS5", "APS6", "APS7", "APS8", "APS9", "CNN1", "CNW1",
];

pub(super) fn read(list: &str, place: &str, known: &Known) -> Result<Read> {
    let mut products = Products { known, kept: BTreeMap::new(), read: Read::default() };
    let is_found = each(list, &["products"], &mut products).map_err(|broken| of_list(broken, place))?;
    let Products { kept, mut read, .. } = products;
    let skus: BTreeSet<&str> = kept.keys().map(String::as_str).collect();
    let mut terms = Terms { skus, kept: &kept, place, found: Vec::new(), units: 0 };
    let has_terms = each(list, &["terms"], &mut Any).map_err(|broken| of_list(broken, place))?;
    each(list, &["terms", "OnDemand"], &mut terms).map_err(|broken| of_list(broken, place))?;
    if !is_found || !has_terms {
        let hint = "an offer file, with products and terms";
        return Err(Wrong::new("this is no price list of AWS", place, "products", hint));
    }
    read.leave(Left::Unit, terms.units);
    read.found = terms.found;
    Ok(read)
}

fn of_list(broken: Broken, place: &str) -> Wrong {
    match broken {
        Broken::Member(wrong) => wrong,
        Broken::Json(error) => super::no_json(&error, place),
    }
}

/// Looks whether there is an object, and keeps nothing.
struct Any;

impl Reader for Any {
    fn is_wanted(&self, _name: &str) -> bool {
        false
    }

    fn read(&mut self, _name: &str, _value: &Value) -> Result<()> {
        Ok(())
    }
}

/// A product that an entry of the catalogue is of.
struct Product {
    id: String,
    charge: Charge,
    region: String,
}

struct Products<'a> {
    known: &'a Known<'a>,
    kept: BTreeMap<String, Product>,
    read: Read,
}

impl Reader for Products<'_> {
    fn is_wanted(&self, _name: &str) -> bool {
        true
    }

    fn read(&mut self, sku: &str, product: &Value) -> Result<()> {
        self.read.products += 1;
        let attributes = product.get("attributes").unwrap_or(&Value::Null);
        let found = of_product(product, attributes).filter(|(id, _)| self.known.has(id));
        let Some((id, charge)) = found else {
            self.read.leave(Left::Unknown, 1);
            return Ok(());
        };
        self.kept.insert(sku.to_owned(), Product { id, charge, region: text(attributes, "regionCode").to_owned() });
        Ok(())
    }
}

fn of_product(product: &Value, attributes: &Value) -> Option<(String, Charge)> {
    let service = text(attributes, "servicecode");
    if text(product, "productFamily").starts_with("Compute Instance") {
        let is = |field: &str, wanted: &str| text(attributes, field) == wanted;
        // A block of capacity is listed at nothing an hour, as it is paid before.
        let is_open = |field: &str, wanted: &str| matches!(text(attributes, field), "" | "NA") || is(field, wanted);
        let is_plain = service == EC2
            && is("operatingSystem", "Linux")
            && is("tenancy", "Shared")
            && is("preInstalledSw", "NA")
            && is("capacitystatus", "Used")
            && is_open("marketoption", "OnDemand")
            && is_open("operation", "RunInstances");
        return is_plain.then(|| (format!("aws.{}", text(attributes, "instanceType")), Charge::Hour));
    }
    let usage = text(attributes, "usagetype");
    let is_called = |name: &str| {
        let before = usage.strip_suffix(name);
        before.is_some_and(|before| {
            before.is_empty() || before.strip_suffix('-').is_some_and(|code| REGIONS.contains(&code))
        })
    };
    let class = text(attributes, "storageClass");
    let is = |known: &&Usage| {
        let is_class = known.class.is_empty() || class == known.class;
        service == known.service && is_class && is_called(known.name)
    };
    STORAGE.iter().find(is).map(|known| (known.id.to_owned(), known.charge))
}

struct Terms<'a> {
    skus: BTreeSet<&'a str>,
    kept: &'a BTreeMap<String, Product>,
    place: &'a str,
    found: Vec<Found>,
    /// Products in a unit that isn't known.
    units: usize,
}

impl Reader for Terms<'_> {
    fn is_wanted(&self, sku: &str) -> bool {
        self.skus.contains(sku)
    }

    fn read(&mut self, sku: &str, offers: &Value) -> Result<()> {
        let mut prices = Vec::new();
        for offer in offers.as_object().into_iter().flat_map(|offers| offers.values()) {
            let dimensions = offer.get("priceDimensions").and_then(Value::as_object);
            for (code, dimension) in dimensions.into_iter().flatten() {
                let place = format!("{}, {code}", self.place);
                // Tiers of which one can't be read are no price.
                let Some(found) = found(sku, &self.kept[sku], offer, dimension, &place)? else {
                    self.units += 1;
                    return Ok(());
                };
                prices.push(found);
            }
        }
        self.found.extend(prices);
        Ok(())
    }
}

fn found(sku: &str, product: &Product, offer: &Value, dimension: &Value, place: &str) -> Result<Option<Found>> {
    let Some(text_of_price) = dimension.get("pricePerUnit").and_then(|price| price.get("USD")).and_then(Value::as_str)
    else {
        return Err(Wrong::new("a price in USD is missing", place, "pricePerUnit", "{\"USD\": \"0.023\"}"));
    };
    let usd: f64 = text_of_price.parse().map_err(|_| {
        Wrong::new(format!("`{text_of_price}` is no price"), place, "pricePerUnit", "a number in quotes")
    })?;
    let unit = match (product.charge, text(dimension, "unit")) {
        (Charge::Capacity, "GB-Mo") => "GiB-month",
        (Charge::Read | Charge::Write | Charge::List, "Requests") => "1",
        (Charge::ReadBytes, "GB") => "GiB",
        (Charge::Iops, "IOPS-Mo") => "IOPS-month",
        (Charge::Hour, "Hrs") => "hour",
        _ => return Ok(None),
    };
    let from = text(dimension, "beginRange").parse().unwrap_or(0.0);
    Ok(Some(Found {
        id: product.id.clone(),
        charge: product.charge,
        region: product.region.clone(),
        unit,
        usd: price(usd, place, "pricePerUnit")?,
        from: price(from, place, "beginRange")?,
        date: Date::of_moment(text(offer, "effectiveDate")),
        sku: sku.to_owned(),
    }))
}
