//! Price lists in the providers' shapes, made here.

use super::*;
use crate::catalog::layers::Source;
use crate::catalog::shipped::SHIPPED;
use crate::figure::Layer;

const AWS: &str = r#"{"formatVersion": "v1.0", "products": {
  "S1": {"sku": "S1", "productFamily": "Storage", "attributes": {"regionCode": "eu-central-1", "usagetype": "EUC1-TimedStorage-ByteHrs"}},
  "S2": {"sku": "S2", "productFamily": "API Request", "attributes": {"regionCode": "eu-central-1", "usagetype": "EUC1-Requests-Tier2"}},
  "C1": {"sku": "C1", "productFamily": "Compute Instance (bare metal)", "attributes": {"regionCode": "eu-central-1", "instanceType": "p4d.24xlarge", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}},
  "C2": {"sku": "C2", "productFamily": "Compute Instance", "attributes": {"regionCode": "eu-central-1", "instanceType": "p4d.24xlarge", "operatingSystem": "Windows", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}}},
 "terms": {"OnDemand": {
  "S1": {"S1.T": {"sku": "S1", "effectiveDate": "2026-10-01T00:00:00Z", "priceDimensions": {
     "S1.T.1": {"unit": "GB-Mo", "beginRange": "0", "endRange": "51200", "pricePerUnit": {"USD": "0.0245"}},
     "S1.T.2": {"unit": "GB-Mo", "beginRange": "51200", "endRange": "Inf", "pricePerUnit": {"USD": "0.0235"}}}}},
  "S2": {"S2.T": {"sku": "S2", "effectiveDate": "2026-10-01T00:00:00Z", "priceDimensions": {"S2.T.1": {"unit": "Requests", "beginRange": "0", "pricePerUnit": {"USD": "0.00000043"}}}}},
  "C1": {"C1.T": {"sku": "C1", "effectiveDate": "2026-10-01T00:00:00Z", "priceDimensions": {"C1.T.1": {"unit": "Hrs", "beginRange": "0", "pricePerUnit": {"USD": "27.5"}}}}}}}}"#;

const AZURE: &str = r#"{"BillingCurrency": "USD", "Items": [
  {"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 0.019, "armRegionName": "westeurope", "productName": "General Block Blob v2", "skuName": "Hot LRS", "meterName": "Hot LRS Data Stored", "meterId": "m-1", "serviceName": "Storage", "unitOfMeasure": "1 GB/Month", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"},
  {"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 0.005, "armRegionName": "westeurope", "productName": "General Block Blob v2", "skuName": "Hot LRS", "meterName": "Hot Read Operations", "meterId": "m-2", "serviceName": "Storage", "unitOfMeasure": "10K", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"},
  {"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 24.1, "armRegionName": "westeurope", "armSkuName": "Standard_ND40rs_v2", "productName": "NDv2 Series", "skuName": "ND40rs v2", "meterName": "ND40rs v2", "meterId": "m-3", "serviceName": "Virtual Machines", "unitOfMeasure": "1 Hour", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"},
  {"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 4.8, "armRegionName": "westeurope", "armSkuName": "Standard_ND40rs_v2", "productName": "NDv2 Series", "skuName": "ND40rs v2 Spot", "meterName": "ND40rs v2 Spot", "meterId": "m-4", "serviceName": "Virtual Machines", "unitOfMeasure": "1 Hour", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"}]}"#;

const GOOGLE: &str = r#"{"skus": [
  {"skuId": "A-1", "description": "Standard Storage Belgium", "category": {"resourceFamily": "Storage", "usageType": "OnDemand"}, "serviceRegions": ["europe-west1"],
   "pricingInfo": [{"effectiveTime": "2026-08-15T00:00:00Z", "pricingExpression": {"usageUnit": "GiBy.mo", "tieredRates": [{"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 20000000}}]}}]},
  {"skuId": "A-2", "description": "Something else", "category": {"usageType": "OnDemand"}, "serviceRegions": ["europe-west1"], "pricingInfo": []}]}"#;

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
    assert_eq!((imported.products, imported.unknown, imported.found.len()), (4, 1, 4));
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
    assert_eq!((imported.products, imported.unknown, imported.found.len()), (4, 1, 3));
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
    assert_eq!((imported.products, imported.unknown, imported.found.len()), (2, 1, 1));
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
    assert_eq!(azure(&format!("[{first},{first}]")), Some("NextPageLink"));
    let google = GOOGLE.replacen('{', "{\"nextPageToken\": \"x\", ", 1);
    assert_eq!(read(Provider::Google, "google.json", &google).unwrap().goes_on, Some("nextPageToken"));
}
