//! Price lists in the providers' shapes, made here.

use super::*;
use crate::catalog::layers::Source;
use crate::catalog::shipped::SHIPPED;
use crate::figure::Layer;

/// As AWS writes them: EC2 has a node twice, on demand and in a block of capacity, and other classes of S3 are called alike.
const AWS: &str = r#"{"formatVersion": "v1.0", "offerCode": "AmazonS3", "products": {
  "S1": {"sku": "S1", "productFamily": "Storage", "attributes": {"servicecode": "AmazonS3", "regionCode": "eu-central-1", "usagetype": "EUC1-TimedStorage-ByteHrs", "storageClass": "General Purpose", "volumeType": "Standard"}},
  "S2": {"sku": "S2", "productFamily": "API Request", "attributes": {"servicecode": "AmazonS3", "regionCode": "eu-central-1", "usagetype": "EUC1-Requests-Tier2"}},
  "C1": {"sku": "C1", "productFamily": "Compute Instance (bare metal)", "attributes": {"servicecode": "AmazonEC2", "regionCode": "eu-central-1", "instanceType": "p4d.24xlarge", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand", "operation": "RunInstances"}},
  "C2": {"sku": "C2", "productFamily": "Compute Instance", "attributes": {"servicecode": "AmazonEC2", "regionCode": "eu-central-1", "instanceType": "p4d.24xlarge", "operatingSystem": "Windows", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand", "operation": "RunInstances:0002"}},
  "C3": {"sku": "C3", "productFamily": "Compute Instance", "attributes": {"servicecode": "AmazonEC2", "regionCode": "eu-central-1", "instanceType": "p4d.24xlarge", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "CapacityBlock", "operation": "RunInstances:CB"}}},
 "terms": {"OnDemand": {
  "S1": {"S1.T": {"sku": "S1", "effectiveDate": "2026-10-01T00:00:00Z", "priceDimensions": {
     "S1.T.1": {"unit": "GB-Mo", "beginRange": "0", "endRange": "51200", "pricePerUnit": {"USD": "0.0245"}},
     "S1.T.2": {"unit": "GB-Mo", "beginRange": "51200", "endRange": "Inf", "pricePerUnit": {"USD": "0.0235"}}}}},
  "S2": {"S2.T": {"sku": "S2", "effectiveDate": "2026-10-01T00:00:00Z", "priceDimensions": {"S2.T.1": {"unit": "Requests", "beginRange": "0", "pricePerUnit": {"USD": "0.00000043"}}}}},
  "C1": {"C1.T": {"sku": "C1", "effectiveDate": "2026-10-01T00:00:00Z", "priceDimensions": {"C1.T.1": {"unit": "Hrs", "beginRange": "0", "pricePerUnit": {"USD": "27.5"}}}}},
  "C3": {"C3.T": {"sku": "C3", "effectiveDate": "2026-10-01T00:00:00Z", "priceDimensions": {"C3.T.1": {"unit": "Hrs", "beginRange": "0", "pricePerUnit": {"USD": "0.0000000000"}}}}}}, "Reserved": {}}}"#;

const AZURE: &str = r#"{"BillingCurrency": "USD", "Items": [
  {"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 0.019, "armRegionName": "westeurope", "productName": "General Block Blob v2", "skuName": "Hot LRS", "meterName": "Hot LRS Data Stored", "meterId": "m-1", "serviceName": "Storage", "unitOfMeasure": "1 GB/Month", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"},
  {"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 0.005, "armRegionName": "westeurope", "productName": "General Block Blob v2", "skuName": "Hot LRS", "meterName": "Hot Read Operations", "meterId": "m-2", "serviceName": "Storage", "unitOfMeasure": "10K", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"},
  {"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 24.1, "armRegionName": "westeurope", "armSkuName": "Standard_ND40rs_v2", "productName": "NDv2 Series", "skuName": "ND40rs v2", "meterName": "ND40rs v2", "meterId": "m-3", "serviceName": "Virtual Machines", "unitOfMeasure": "1 Hour", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"},
  {"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 4.8, "armRegionName": "westeurope", "armSkuName": "Standard_ND40rs_v2", "productName": "NDv2 Series", "skuName": "ND40rs v2 Spot", "meterName": "ND40rs v2 Spot", "meterId": "m-4", "serviceName": "Virtual Machines", "unitOfMeasure": "1 Hour", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"}]}"#;

const GOOGLE: &str = r#"{"skus": [
  {"skuId": "A-1", "description": "Standard Storage Belgium", "category": {"resourceFamily": "Storage", "usageType": "OnDemand"}, "serviceRegions": ["europe-west1"],
   "pricingInfo": [{"effectiveTime": "2026-08-15T00:00:00Z", "pricingExpression": {"usageUnit": "GiBy.mo", "tieredRates": [{"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 20000000}}]}}]},
  {"skuId": "A-2", "description": "Something else", "category": {"usageType": "OnDemand"}, "serviceRegions": ["europe-west1"], "pricingInfo": []}]}"#;

/// A list that is read on the day of these tests.
fn read(provider: Provider, place: &str, text: &str) -> Result<Imported> {
    let known = Known { catalog: &shipped(), today: Date::parse("2026-11-24").unwrap() };
    super::read(provider, place, text, &known)
}

fn left(imported: &Imported) -> Vec<(Left, usize)> {
    imported.left.iter().map(|(why, count)| (*why, *count)).collect()
}

/// What a list says that a thing costs, in units of the list.
fn usd(imported: &Imported, id: &str, charge: Charge) -> Vec<f64> {
    let is = |found: &&Found| found.id == id && found.charge == charge;
    imported.found.iter().filter(is).map(|found| found.usd).collect()
}

fn shipped() -> Catalog {
    Catalog::of(&SHIPPED).unwrap()
}

/// What an import says becomes the layer above what is shipped.
fn laid(provider: &str, imported: &Imported) -> Catalog {
    let text = imported.toml(provider, "2026-11-24.1", &shipped());
    let overlay = Source { layer: Layer::Refreshed, place: "refreshed.toml", text: &text };
    Catalog::of(&SHIPPED.into_iter().chain([overlay]).collect::<Vec<_>>())
        .unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
}

#[test]
fn a_list_of_aws_becomes_a_layer() {
    let imported = read(Provider::Aws, "aws.json", AWS).unwrap();
    assert_eq!((imported.products, left(&imported), imported.found.len()), (5, vec![(Left::Unknown, 2)], 4));
    let catalog = laid("aws", &imported);
    let service = catalog.services.iter().find(|service| service.id == "aws.s3.standard").unwrap();
    let tiers = service.prices(Charge::Capacity, Some("eu-central-1"));
    assert_eq!(tiers.iter().map(|tier| tier.from_gib).collect::<Vec<_>>(), [0.0, 51200.0]);
    assert!((tiers[0].figure.value.likely * 730.0 - 0.0245).abs() < 1e-12);
    assert_eq!(
        (tiers[0].figure.origin.layer, tiers[0].figure.origin.date),
        (Layer::Refreshed, Date::parse("2026-10-01"))
    );
    assert_eq!(service.prices(Charge::Capacity, None).len(), 1, "the shipped region keeps its price");
    let node = catalog.nodes.iter().find(|node| node.id == "aws.p4d.24xlarge").unwrap();
    assert_eq!(node.price(Some("eu-central-1")).unwrap().figure.value.likely, 27.5);
}

#[test]
fn a_page_of_azure_becomes_a_layer() {
    let imported = read(Provider::Azure, "azure.json", AZURE).unwrap();
    assert_eq!((imported.products, left(&imported), imported.found.len()), (4, vec![(Left::Unknown, 1)], 3));
    let catalog = laid("azure", &imported);
    let service = catalog.services.iter().find(|service| service.id == "azure.blob.hot").unwrap();
    assert_eq!(service.prices(Charge::Read, Some("westeurope"))[0].figure.value.likely, 0.005 * 1e-4);
    let node = catalog.nodes.iter().find(|node| node.id == "azure.ND40rs_v2").unwrap();
    assert_eq!(
        node.price(Some("westeurope")).unwrap().figure.value.likely,
        24.1,
        "a spot price is not a price on demand"
    );
    let pages = format!("[{AZURE},{AZURE}]");
    assert_eq!(read(Provider::Azure, "azure.json", &pages).unwrap().found.len(), 3);
}

#[test]
fn a_page_of_google_becomes_a_layer() {
    let imported = read(Provider::Google, "google.json", GOOGLE).unwrap();
    assert_eq!((imported.products, left(&imported), imported.found.len()), (2, vec![(Left::Unknown, 1)], 1));
    let catalog = laid("gcp", &imported);
    let service = catalog.services.iter().find(|service| service.id == "gcp.gcs.standard").unwrap();
    let price = &service.prices(Charge::Capacity, Some("europe-west1"))[0].figure;
    assert!((price.value.likely * 730.0 - 0.02).abs() < 1e-12 && price.origin.date == Date::parse("2026-08-15"));
}

#[test]
fn what_is_no_price_names_its_place_and_field() {
    let broken = [
        (Provider::Aws, "{}".to_owned(), "products"),
        (Provider::Aws, AWS.replace("\"0.0245\"", "\"cheap\""), "pricePerUnit"),
        (Provider::Aws, AWS.replace("\"0.0245\"", "\"-1\""), "pricePerUnit"),
        (Provider::Aws, AWS.replace("{\"USD\": \"0.0245\"}", "{\"CNY\": \"1\"}"), "pricePerUnit"),
        (Provider::Azure, "{}".to_owned(), "Items"),
        (Provider::Azure, AZURE.replace("\"retailPrice\": 0.019, ", ""), "retailPrice"),
        (Provider::Azure, AZURE.replace("\"currencyCode\": \"USD\"", "\"currencyCode\": \"EUR\""), "currencyCode"),
        (
            Provider::Azure,
            AZURE.replace("\"BillingCurrency\": \"USD\"", "\"BillingCurrency\": \"EUR\""),
            "BillingCurrency",
        ),
        (Provider::Google, GOOGLE.replace("\"currencyCode\": \"USD\"", "\"currencyCode\": \"EUR\""), "currencyCode"),
        (Provider::Google, "{}".to_owned(), "skus"),
        (Provider::Google, GOOGLE.replace("\"nanos\": 20000000", "\"nanos\": \"many\""), "nanos"),
        (Provider::Google, "not JSON".to_owned(), ""),
    ];
    for (provider, text, field) in broken {
        let wrong = read(provider, "list.json", &text).unwrap_err();
        assert!(wrong.field == field && wrong.place.starts_with("list.json"), "{provider:?}: {wrong}");
    }
}

#[test]
fn lists_say_what_listing_costs_so_that_a_region_can_be_ranked() {
    let tier_1 = AWS.replace("Requests-Tier2", "Requests-Tier1").replace("0.00000043", "0.0000054");
    let catalog = laid("aws", &read(Provider::Aws, "aws.json", &tier_1).unwrap());
    let usd = |catalog: &Catalog, id: &str, charge: Charge, region: &str| {
        let service = catalog.services.iter().find(|service| service.id == id).unwrap();
        service.prices(charge, Some(region)).first().map(|price| price.figure.value.likely)
    };
    for charge in [Charge::Write, Charge::List] {
        assert_eq!(usd(&catalog, "aws.s3.standard", charge, "eu-central-1"), Some(0.0000054), "{charge:?}");
    }
    let listing = AZURE.replace("Hot Read Operations", "Hot LRS List and Create Container Operations");
    let catalog = laid("azure", &read(Provider::Azure, "azure.json", &listing).unwrap());
    assert_eq!(usd(&catalog, "azure.blob.hot", Charge::List, "westeurope"), Some(0.005 * 1e-4));
    assert_eq!(usd(&catalog, "azure.blob.hot", Charge::Write, "westeurope"), None, "a list is no write");
}

#[test]
fn a_list_that_goes_on_says_so() {
    let azure = |text: &str| read(Provider::Azure, "azure.json", text).unwrap().goes_on;
    let first =
        AZURE.replacen('{', "{\"NextPageLink\": \"https://prices.azure.com/api/retail/prices?$skip=1000\", ", 1);
    let last = AZURE.replacen('{', "{\"NextPageLink\": null, ", 1);
    assert_eq!((azure(&first), azure(&last), azure(AZURE)), (Some("NextPageLink"), None, None));
    assert_eq!(azure(&format!("[{first},{last}]")), None, "all pages are here");
    assert_eq!(azure(&format!("[{last},{first}]")), None, "in whatever order");
    assert_eq!(azure(&format!("[{first},{first}]")), Some("NextPageLink"));
    let [second, third] = ["2000&currencyCode=USD", "3000"].map(|skip| first.replace("1000", skip));
    assert_eq!(azure(&format!("[{first},{second},{third},{last}]")), None);
    for some in [[&first, &third], [&second, &third], [&first, &first.replace("1000", "2500")]] {
        assert_eq!(azure(&format!("[{},{},{last}]", some[0], some[1])), Some("NextPageLink"), "one is missing");
    }
    let google = GOOGLE.replacen('{', "{\"nextPageToken\": \"x\", ", 1);
    assert_eq!(read(Provider::Google, "google.json", &google).unwrap().goes_on, Some("nextPageToken"));
}

#[test]
fn an_hour_of_a_node_is_one_price_on_demand_and_never_nothing() {
    // A block of capacity is paid before, and listed at nothing an hour.
    let imported = read(Provider::Aws, "aws.json", AWS).unwrap();
    assert_eq!(usd(&imported, "aws.p4d.24xlarge", Charge::Hour), [27.5]);
    // Were it not told from the other, its price would still be none.
    let alike = AWS.replace("CapacityBlock", "OnDemand").replace("RunInstances:CB", "RunInstances");
    let imported = read(Provider::Aws, "aws.json", &alike).unwrap();
    assert_eq!(usd(&imported, "aws.p4d.24xlarge", Charge::Hour), [27.5]);
    assert_eq!(left(&imported), [(Left::Unknown, 1), (Left::Free, 1)]);
    // Two prices of one thing are named, and none of them is taken.
    let two = alike.replace("\"0.0000000000\"", "\"30\"");
    let imported = read(Provider::Aws, "aws.json", &two).unwrap();
    assert!(usd(&imported, "aws.p4d.24xlarge", Charge::Hour).is_empty());
    let named = "hour of aws.p4d.24xlarge in eu-central-1: 27.5 USD (C1) and 30 USD (C3)";
    assert_eq!(imported.conflicts, [named]);
    let same = alike.replace("\"0.0000000000\"", "\"27.5\"");
    assert!(read(Provider::Aws, "aws.json", &same).unwrap().conflicts.is_empty(), "the same price twice is one");
}

#[test]
fn what_is_called_like_s3_standard_is_not_taken_for_it() {
    let class = ("\"storageClass\": \"General Purpose\"", "\"storageClass\": \"Infrequent Access\"");
    for (from, to) in [
        (
            "\"servicecode\": \"AmazonS3\", \"regionCode\": \"eu-central-1\", \"usagetype\": \"EUC1-Timed",
            "\"servicecode\": \"AmazonEFS\", \"regionCode\": \"eu-central-1\", \"usagetype\": \"EUC1-Timed",
        ),
        ("EUC1-TimedStorage", "Tables-TimedStorage"),
        ("EUC1-TimedStorage", "Vectors-TimedStorage"),
        ("EUC1-TimedStorage", "EUC1-Tables-TimedStorage"),
        class,
    ] {
        let imported = read(Provider::Aws, "aws.json", &AWS.replace(from, to)).unwrap();
        assert!(usd(&imported, "aws.s3.standard", Charge::Capacity).is_empty(), "{to}");
        assert_eq!(left(&imported), [(Left::Unknown, 3)], "{to}");
    }
    for code in ["", "EU-", "USW2-"] {
        let imported = read(Provider::Aws, "aws.json", &AWS.replace("EUC1-Timed", &format!("{code}Timed"))).unwrap();
        assert_eq!(usd(&imported, "aws.s3.standard", Charge::Capacity).len(), 2, "{code}");
    }
}

#[test]
fn other_operations_and_machines_of_azure_are_not_taken_for_those_that_are_meant() {
    let item = |from: &str, to: &str| {
        let start = AZURE.find("  {\"currencyCode\"").unwrap();
        let items = &AZURE[start..AZURE.len() - 2];
        AZURE.replace(items, &format!("{items},\n{}", items.replace(from, to)))
    };
    // The same operations at another price, under another name.
    let iterative = item("\"meterName\": \"Hot Read", "\"meterName\": \"Hot Iterative Read").replace("0.005", "0.006");
    let other = iterative.replacen("0.006", "0.005", 1);
    let imported = read(Provider::Azure, "azure.json", &other).unwrap();
    assert_eq!((usd(&imported, "azure.blob.hot", Charge::Read), imported.conflicts.len()), (vec![0.005], 0));
    // The same machine under a product that is no virtual machine on demand.
    let cloud = item("NDv2 Series", "NDv2 Series Cloud Services");
    let at = cloud.rfind("24.1").unwrap();
    let cloud = format!("{}99{}", &cloud[..at], &cloud[at + 4..]);
    let imported = read(Provider::Azure, "azure.json", &cloud).unwrap();
    assert_eq!((usd(&imported, "azure.ND40rs_v2", Charge::Hour), imported.conflicts.len()), (vec![24.1], 0));
    // Tiers of an older kind of account beside those of today.
    let older = item("General Block Blob v2", "Blob Storage");
    let at = older.rfind("\"tierMinimumUnits\": 0, \"retailPrice\": 0.019").unwrap();
    let older = format!("{}{}", &older[..at], older[at..].replacen("Units\": 0", "Units\": 51200", 1));
    let imported = read(Provider::Azure, "azure.json", &older).unwrap();
    assert_eq!(usd(&imported, "azure.blob.hot", Charge::Capacity), [0.019]);
}

#[test]
fn a_price_of_a_day_to_come_does_not_hold_today_and_one_of_no_region_nowhere() {
    let start = AZURE.find("  {\"currencyCode\"").unwrap();
    let first = AZURE[start..].lines().next().unwrap();
    let with = |more: String| read(Provider::Azure, "azure.json", &AZURE.replace(first, &format!("{first}\n{more}")));
    let future = with(first.replace("2026-09-01", "2027-06-01").replace("0.019", "0.05")).unwrap();
    assert_eq!(usd(&future, "azure.blob.hot", Charge::Capacity), [0.019]);
    assert_eq!(left(&future), [(Left::Unknown, 1), (Left::Future, 1)]);
    let later = with(first.replace("2026-09-01", "2026-10-01").replace("0.019", "0.02")).unwrap();
    assert_eq!(usd(&later, "azure.blob.hot", Charge::Capacity), [0.02], "what began later holds");
    for region in ["", "us gov(1)"] {
        let none = with(first.replace("westeurope", region)).unwrap();
        assert_eq!((usd(&none, "azure.blob.hot", Charge::Capacity).len(), left(&none)[1]), (1, (Left::Region, 1)));
        laid("azure", &none);
    }
    let unit = with(first.replace("1 GB/Month", "100 GB/Month")).unwrap();
    assert_eq!(left(&unit), [(Left::Unknown, 1), (Left::Unit, 1)]);
    // What is free of operations each month is not what they cost.
    let reads = AZURE.lines().nth(2).unwrap();
    let free = reads.replace("\"retailPrice\": 0.005", "\"retailPrice\": 0.0");
    let paid = reads.replace("\"tierMinimumUnits\": 0", "\"tierMinimumUnits\": 10");
    let tiers = read(Provider::Azure, "azure.json", &AZURE.replace(reads, &format!("{free}\n{paid}"))).unwrap();
    assert_eq!(usd(&tiers, "azure.blob.hot", Charge::Read), [0.005]);
    assert_eq!(left(&read(Provider::Aws, "aws.json", &AWS.replace("Hrs", "Days")).unwrap())[1], (Left::Unit, 1));
}

#[test]
fn what_google_charges_everywhere_is_charged_in_each_region_and_two_regions_are_not_one() {
    let sku = |id: &str, of: &str, region: &str, unit: &str, nanos: u32| {
        format!(
            r#"{{"skuId": "{id}", "description": "{of}", "category": {{"usageType": "OnDemand"}}, "serviceRegions": ["{region}"], "pricingInfo": [{{"effectiveTime": "2026-08-15T00:00:00Z", "pricingExpression": {{"usageUnit": "{unit}", "tieredRates": [{{"startUsageAmount": 0, "unitPrice": {{"currencyCode": "USD", "units": "0", "nanos": 0}}}}, {{"startUsageAmount": 5, "unitPrice": {{"currencyCode": "USD", "units": "0", "nanos": {nanos}}}}}]}}}}]}}"#
        )
    };
    let list = |more: &[String]| format!("{{\"skus\": [{}]}}", more.join(","));
    let iowa = sku("I", "Standard Storage Iowa", "us-central1", "GiBy.mo", 20_000_000);
    let writes = sku("A", "Regional Standard Class A Operations", "global", "count", 5000);
    let dual = sku("D", "Standard Storage Iowa Dual-region", "us-central1", "GiBy.mo", 36_000_000);
    let imported = read(Provider::Google, "google.json", &list(&[dual, iowa.clone(), writes.clone()])).unwrap();
    assert_eq!(usd(&imported, "gcp.gcs.standard", Charge::Capacity), [0.0, 0.02]);
    for charge in [Charge::Write, Charge::List] {
        assert_eq!(usd(&imported, "gcp.gcs.standard", charge), [5e-6], "{charge:?}");
    }
    assert!(imported.found.iter().all(|found| found.region == "us-central1") && imported.conflicts.is_empty());
    laid("gcp", &imported);
    let alone = read(Provider::Google, "google.json", &list(&[writes])).unwrap();
    assert!(alone.found.is_empty() && left(&alone) == [(Left::Region, 1)], "of which regions it can't be told");
}
