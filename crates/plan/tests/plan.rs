//! What a plan promises: layers, reasons, ties, needs, errors that name a field.

#[path = "plan/paid.rs"]
mod paid;
#[path = "plan/ways.rs"]
mod ways;
#[path = "plan/writes.rs"]
mod writes;

use stoker_plan::candidate;
use stoker_plan::catalog::layers::Source;
use stoker_plan::catalog::shipped::SHIPPED;
use stoker_plan::catalog::{Catalog, Need};
use stoker_plan::date::Date;
use stoker_plan::demand::Demand;
use stoker_plan::figure::{Confidence, Layer};
use stoker_plan::plan::{Offer, Plan};

fn today() -> Date {
    Date::parse("2026-11-24").unwrap()
}

fn with(overlays: &[(Layer, &str)]) -> Catalog {
    let overlays = overlays.iter().map(|(layer, text)| Source { layer: *layer, place: "overlay.toml", text });
    Catalog::of(&SHIPPED.into_iter().chain(overlays).collect::<Vec<_>>()).unwrap()
}

/// CosmoFlow as the study ran it, at what its nodes cost.
fn cosmoflow() -> Demand {
    let mut demand = Demand::new("V100", 32, 18.75, 16e6, 318_750.0);
    (demand.epochs, demand.accelerator_usd_hour) = (48.0, Some(26.438 / 8.0));
    demand.node = Some("azure.ND40rs_v2".into());
    demand
}

fn plan(catalog: &Catalog, demand: &Demand) -> Plan {
    Plan::of(catalog, demand, today()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn offer<'a>(plan: &'a Plan, id: &str) -> &'a Offer {
    plan.offers
        .iter()
        .find(|offer| offer.id == id)
        .unwrap_or_else(|| panic!("no {id} in {:?}", plan.offers.iter().map(|offer| &offer.id).collect::<Vec<_>>()))
}

const CONTRACT: &str = r#"
provider = "azure"
version = "contract"
currency = "USD"
region = "westus"
[[source]]
id = "contract"
title = "our contract"
date = "2026-10"
[[service]]
id = "azure.blob.hot"
prices = [{ of = "capacity", unit = "GiB-month", value = VALUE, source = "contract", confidence = "high" }]
"#;

#[test]
fn a_later_layer_wins_and_is_remembered() {
    let text = |value: &str| CONTRACT.replace("VALUE", value);
    let (site, refreshed) = (text("0.5"), text("0.9"));
    let catalog = with(&[(Layer::Site, &site), (Layer::Refreshed, &refreshed)]);
    let service = catalog.services.iter().find(|service| service.id == "azure.blob.hot").unwrap();
    let tiers = service.prices(stoker_plan::catalog::quantity::Charge::Capacity, None);
    assert_eq!(tiers.len(), 1, "tiers of two lists are not mixed");
    assert!((tiers[0].figure.value.likely * 730.0 - 0.5).abs() < 1e-12);
    assert_eq!((tiers[0].figure.origin.layer, tiers[0].figure.origin.title.as_str()), (Layer::Site, "our contract"));
    let reads = service.prices(stoker_plan::catalog::quantity::Charge::Read, None);
    assert_eq!(reads[0].figure.origin.layer, Layer::Shipped, "what the contract leaves out stays as it was");
}

#[test]
fn a_missing_price_is_a_reason_and_never_zero() {
    let plan = plan(&with(&[]), &cosmoflow());
    let unranked = plan.unranked.iter().find(|unranked| unranked.id == "azure.managed_lustre.125/lustre").unwrap();
    assert_eq!(unranked.reasons[0], "no price of capacity of azure.managed_lustre.125 is known");
    assert!(plan.offers.iter().all(|offer| offer.storage_usd > 0.0 && offer.ranked));
}

#[test]
fn an_unverified_figure_never_decides_unless_it_is_asked_to() {
    let mut demand = Demand::new("A100", 8, 100.0, 1e6, 1e6);
    let strict = plan(&with(&[]), &demand);
    assert!(
        strict.unranked.iter().any(|unranked| unranked
            .reasons
            .iter()
            .any(|reason| reason.contains("aws.fsx_lustre.250 is not verified")))
    );
    assert!(!strict.offers.iter().any(|offer| offer.id.starts_with("aws.fsx_lustre.250")));
    demand.unverified = true;
    assert!(plan(&with(&[]), &demand).offers.iter().any(|offer| offer.id.starts_with("aws.fsx_lustre.250")));
}

#[test]
fn needs_are_met_by_what_is_documented() {
    let mut demand = cosmoflow();
    demand.needs = vec![Need::SharedWrites];
    let plan = plan(&with(&[]), &demand);
    assert!(!plan.offers.is_empty());
    assert!(!plan.offers.iter().any(|offer| ["blobfuse", "stoker", "rest"].contains(&offer.client.as_str())));
    assert!(
        plan.unranked
            .iter()
            .any(|unranked| unranked.reasons.contains(&"BlobFuse does not grant shared-writes".to_owned()))
    );
}

#[test]
fn what_was_measured_is_carried_no_further_than_it_says() {
    let measured = r#"
provider = "azure"
version = "mine"
currency = "USD"
region = "westus"
[[source]]
id = "bench"
title = "stoker bench"
date = "2026-11-20"
[[service]]
id = "azure.blob.hot"
limits = [{ of = "bandwidth", client = "blobfuse", unit = "MB/s", value = 400, clients = CLIENTS, source = "bench", confidence = "high" }]
"#;
    let of = |clients: &str| {
        let text = measured.replace("CLIENTS", clients);
        plan(&with(&[(Layer::Measured, &text)]), &cosmoflow())
    };
    let id = "azure.blob.hot/blobfuse";
    let (same, fewer, more) = (of("4"), of("1"), of("16"));
    let (same, fewer, more) = (offer(&same, id), offer(&fewer, id), offer(&more, id));
    assert!((same.supply_mb_per_s - 400.0).abs() < 1e-6 && !same.extrapolated);
    assert!((fewer.supply_mb_per_s - 1600.0).abs() < 1e-6 && fewer.extrapolated, "{}", fewer.supply_mb_per_s);
    // 16 nodes drew 400 MB/s together, so four draw a quarter of it.
    assert!((more.supply_mb_per_s - 100.0).abs() < 1e-6 && !more.extrapolated, "{}", more.supply_mb_per_s);
    // What one node drew is held to the networks of four (3 GB/s), and of 40 to what an account is listed with (6.25 GB/s).
    let text = measured.replace("CLIENTS", "1").replace("value = 400", "value = 4000");
    let catalog = with(&[(Layer::Measured, &text)]);
    let four = plan(&catalog, &cosmoflow());
    let four = offer(&four, id);
    assert!((four.supply_mb_per_s - 3000.0).abs() < 1e-6 && four.binding_limit == "node network", "{four:?}");
    let forty = Demand { accelerators: 320, ..cosmoflow() };
    let forty = plan(&catalog, &forty);
    let forty = offer(&forty, id);
    assert!((forty.supply_mb_per_s - 6250.0).abs() < 1e-6 && forty.binding_limit == "service bandwidth", "{forty:?}");
    assert!(forty.extrapolated);
}

#[test]
fn ranges_that_overlap_are_a_tie_and_the_oldest_price_is_told() {
    let plan = plan(&with(&[]), &cosmoflow());
    assert!(plan.offers[0].is_tie && plan.ties.iter().all(|id| offer(&plan, id).is_tie));
    let apart = plan.offers.iter().filter(|offer| offer.total_usd.low > plan.offers[0].total_usd.high);
    assert!(apart.map(|offer| assert!(!offer.is_tie, "{}", offer.id)).count() > 0);
    // One price that is older than all others is that of whatever is paid by it, and of the plan.
    let old = CONTRACT.replace("VALUE", "0.02").replace("2026-10", "2019-05-06");
    let aged = self::plan(&with(&[(Layer::Site, &old)]), &cosmoflow());
    let date = Date::parse("2019-05-06");
    let of = |id: &str| offer(&aged, id).oldest_price;
    assert_eq!((of("azure.blob.hot/rest"), aged.oldest_price), (date, date));
    assert!(of("azure.blob.cool/rest") > date);
    assert!(aged.warnings.iter().any(|warning| warning.contains("2019-05-06")), "{:?}", aged.warnings);
    let chances: f64 = plan.offers.iter().map(|offer| offer.chance_of_best).sum();
    assert!((chances - 1.0).abs() < 1e-9);
}

#[test]
fn the_front_holds_whatever_is_not_beaten_in_both() {
    let plan = plan(&with(&[]), &cosmoflow());
    // As good in both, and better in one; of those that are alike, the first stands for all.
    let beats = |left: &Offer, right: &Offer| {
        let of = |offer: &Offer| (offer.total_usd.likely, offer.hours.likely);
        let ((usd, hours), (other_usd, other_hours)) = (of(left), of(right));
        usd <= other_usd && hours <= other_hours && (usd < other_usd || hours < other_hours || left.rank < right.rank)
    };
    for offer in &plan.offers {
        let is_beaten = plan.offers.iter().any(|other| beats(other, offer));
        assert_eq!(plan.pareto.contains(&offer.id), !is_beaten, "{}", offer.id);
    }
    assert!(plan.pareto.contains(&plan.offers[0].id));
}

#[test]
fn the_rule_orders_as_the_totals_do_those_that_copy_before_included() {
    // (nodes x price + storage) / AU of the whole run, times the hours of pure computing, is the total.
    let plan = plan(&with(&[]), &cosmoflow());
    assert!(plan.offers.iter().any(|offer| offer.staging_hours > 0.1));
    for offer in &plan.offers {
        let total = offer.rule_usd_per_hour * plan.ideal_hours;
        let usd = offer.total_usd.likely;
        assert!((total / usd - 1.0).abs() < 1e-6, "{}: {total} {usd}", offer.id);
    }
}

#[test]
fn break_even_is_where_both_cost_the_same() {
    // More than the nodes' disks hold, and locks: what is slow and cheap stands against what is fast and dear.
    let mut demand = Demand::new("A100", 32, 1000.0, 1e6, 1e8);
    (demand.needs, demand.accelerator_usd_hour) = (vec![Need::Locking], Some(0.0001));
    let cheap = plan(&with(&[]), &demand);
    let found = &cheap.break_even[0];
    demand.accelerator_usd_hour = Some(found.usd_per_accelerator_hour);
    let even = plan(&with(&[]), &demand);
    let usd = |id: &str| offer(&even, id).total_usd.likely;
    assert!((usd(&found.cheaper_below) / usd(&found.cheaper_above) - 1.0).abs() < 1e-6);
}

#[test]
fn a_cache_that_holds_half_misses_half() {
    let mut demand = cosmoflow();
    demand.dataset_bytes = 2.0 * 4.0 * 2948.0 * 1_073_741_824.0;
    demand.files = demand.samples();
    let plan = plan(&with(&[]), &demand);
    let own = offer(&plan, "stoker/own-disks/azure.blob.hot");
    assert!((own.cache_ratio - 0.5).abs() < 1e-9);
    // One cold epoch, then half of each: 1 + 47/2 passes.
    assert!((own.read_tb * 1e12 / demand.dataset_bytes - 24.5).abs() < 1e-6);
    assert!(
        plan.unranked
            .iter()
            .any(|unranked| unranked.id.starts_with("ondemand/") && unranked.reasons[0].contains("hold"))
    );
}

#[test]
fn bytes_between_zones_and_from_other_regions_are_paid_or_are_a_reason() {
    let mut demand = cosmoflow();
    demand.zones = 3;
    // Azure takes nothing between zones, by what is shipped.
    let apart = plan(&with(&[]), &demand);
    assert_eq!(offer(&apart, "stoker/own-disks/azure.blob.hot").egress_usd, 0.0);
    let priced = CONTRACT.replace(
        "of = \"capacity\", unit = \"GiB-month\", value = VALUE",
        "of = \"cross-zone\", unit = \"GiB\", value = 0.01",
    );
    let paid = plan(&with(&[(Layer::Site, &priced)]), &demand);
    let own = offer(&paid, "stoker/own-disks/azure.blob.hot");
    // By hand: 4 nodes in 3 zones. 5.1 TB are 4749.8 GiB, the four disks have 4 x 2948 = 11792 GiB, so r = 2.4826. A reader
    // finds min(1, r/N) = 0.62065 on its own node, and 0.37935 on one of the 3 others. Of these 4 x 2/3 = 8/3 are in
    // another zone: 8/9 of 0.37935 = 0.33720 of each later epoch. In the first all is missed and owned by any of the 4: 2/3.
    let data = 5.1e12_f64 / 1_073_741_824.0;
    let other = (1.0 - 11_792.0 / data / 4.0) * 8.0 / 9.0;
    let gib = data * (2.0 / 3.0 + 47.0 * other);
    assert!((other - 0.3372).abs() < 1e-4 && (own.egress_usd / (gib * 0.01) - 1.0).abs() < 1e-9, "{}", own.egress_usd);
    // All that a file system over the nodes is asked for is spread over all of them, and so is the copy to it.
    let ondemand = offer(&paid, "ondemand/own-disks/azure.blob.hot");
    assert!((ondemand.egress_usd / (data * 49.0 * 2.0 / 3.0 * 0.01) - 1.0).abs() < 1e-9, "{}", ondemand.egress_usd);
    (demand.zones, demand.data.region, demand.data.transit_mb) = (1, Some("eastus".into()), Some(1e4));
    let away = plan(&with(&[]), &demand);
    let reasons = |unranked: &stoker_plan::plan::Unranked| unranked.reasons.concat();
    assert!(away.offers.is_empty() && away.unranked.iter().any(|unranked| reasons(unranked).contains("egress")));
}

#[test]
fn nodes_and_storage_are_in_one_region_which_the_offer_names() {
    // No region has prices of both these nodes and storage: the study's own question, without the price that it paid.
    let mut demand = cosmoflow();
    (demand.node, demand.accelerator_usd_hour) = (None, None);
    let found = plan(&with(&[]), &demand);
    assert!(
        !found.offers.iter().any(|offer| offer.id.contains("azure")),
        "westus does not feed southcentralus for nothing"
    );
    let node = found.unranked.iter().find(|unranked| unranked.id == "azure.ND40rs_v2").expect("it says why");
    let said =
        "azure.ND40rs_v2 is priced in eastus, southcentralus, westus2, storage of azure in westus. Import a price list";
    assert!(node.reasons[0].contains(said), "{node:?}");
    assert!(found.warnings.iter().any(|warning| warning.starts_with("azure: ") && warning.contains(said)), "{found:?}");
    // Who names a region reads for each service what it lacks there.
    demand.region = Some("southcentralus".into());
    let there = plan(&with(&[]), &demand);
    let lacks = "no price of capacity of azure.blob.hot in southcentralus (known in westus)";
    assert!(there.unranked.iter().any(|unranked| unranked.reasons.iter().any(|reason| reason == lacks)), "{there:?}");
    // One overlay with the prices of that region is enough, and what lies elsewhere is paid for.
    let capacity =
        "{ of = \"capacity\", unit = \"GiB-month\", value = VALUE, source = \"contract\", confidence = \"high\" }";
    let more = ["read", "write", "list"].map(|of| {
        format!(", {{ of = \"{of}\", unit = \"10k\", value = 0.005, source = \"contract\", confidence = \"high\" }}")
    });
    let there = CONTRACT
        .replace("region = \"westus\"", "region = \"southcentralus\"")
        .replace(capacity, &(capacity.to_owned() + &more.concat()))
        .replace("VALUE", "0.02");
    demand.region = None;
    let found = plan(&with(&[(Layer::Site, &there)]), &demand);
    let hot = offer(&found, "azure.blob.hot/blobfuse");
    assert_eq!((hot.region.as_str(), hot.data_region.as_deref()), ("southcentralus", None));
    assert!((hot.accelerators_usd_per_hour - 4.0 * 26.438).abs() < 1e-9, "{}", hot.accelerators_usd_per_hour);
}

#[test]
fn the_shipped_prices_rank_each_provider_where_they_have_one_region() {
    let found = plan(&with(&[]), &Demand::new("A100", 8, 100.0, 1e6, 1e6));
    for (id, region) in [
        ("azure.blob.hot/blobfuse", "westus"),
        ("aws.s3.standard/rest", "us-east-1"),
        ("gcp.gcs.standard/rest", "us-central1"),
    ] {
        assert_eq!(offer(&found, id).region, region);
    }
    let found = plan(&with(&[]), &Demand::new("H100", 8, 100.0, 1e6, 1e6));
    assert_eq!(offer(&found, "azure.blob.hot/blobfuse").node, "azure.ND96isr_H100_v5");
    let google =
        found.unranked.iter().find(|unranked| unranked.id == "gcp.gcs.standard/rest").expect("its price is doubtful");
    assert!(google.reasons.contains(&"no verified price of gcp.a3-highgpu-8g in us-central1".to_owned()), "{google:?}");
}

#[test]
fn nodes_in_several_zones_pay_amazon_at_both_ends() {
    // 4 nodes in 2 zones, 8 TB in all on 32 TB of disks: r = 4, so that later epochs find all on the reader's own node. In the
    // first, any node owns what is missed: half of it lies in the other zone, at 0.02 a GiB.
    let mut demand = Demand::new("A100", 32, 100.0, 1e6, 8e6);
    (demand.node, demand.zones, demand.epochs) = (Some("aws.p4d.24xlarge".into()), 2, 10.0);
    let found = plan(&with(&[]), &demand);
    let own = offer(&found, "stoker/own-disks/aws.s3.standard");
    let gib = 8e12 / 1_073_741_824.0;
    assert!((own.egress_usd / (gib * 0.5 * 0.02) - 1.0).abs() < 1e-9, "{}", own.egress_usd);
    assert_eq!(offer(&found, "aws.s3.standard/rest").egress_usd, 0.0, "all zones reach objects");
    // Objects of a region are in no zone of it: a zone of the data costs nothing.
    (demand.zones, demand.data.zone) = (1, Some("us-east-1a".into()));
    assert_eq!(offer(&plan(&with(&[]), &demand), "aws.s3.standard/rest").egress_usd, 0.0);
}

#[test]
fn cores_that_decode_are_a_limit_like_any_other() {
    let mut demand = cosmoflow();
    // Four nodes of 40 cores take 160 samples a second at a second each; 600 are wanted.
    demand.cpu_seconds = 1.0;
    let plan = plan(&with(&[]), &demand);
    let own = offer(&plan, "stoker/own-disks/azure.blob.hot");
    assert_eq!(own.binding_limit, "CPU");
    assert!((own.supply_mb_per_s - 160.0 * 16.0).abs() < 1e-6, "{}", own.supply_mb_per_s);
}

#[test]
fn credit_carries_a_short_run_and_not_a_long_one() {
    let mut demand = Demand::new("V100", 8, 100.0, 1e6, 1.1e6);
    demand.node = Some("aws.p3dn.24xlarge".into());
    let share = |epochs: f64| {
        let demand = Demand { epochs, ..demand.clone() };
        let plan = plan(&with(&[]), &demand);
        let st1 = offer(&plan, "aws.ebs.st1/disk/from-aws.s3.standard");
        st1.limits.iter().find(|bound| bound.limit == "service bandwidth").unwrap().of_demand
    };
    // A TiB is credited with a TiB above 40 MiB/s, and reads at up to 250.
    assert!(
        share(1.0) / share(1000.0) > 5.0 && share(1.0) / share(1000.0) < 250.0 / 40.0,
        "{} {}",
        share(1.0),
        share(1000.0)
    );
}

#[test]
fn a_lost_node_costs_a_file_system_all_of_its_copy_and_a_cache_its_share() {
    let mut demand = cosmoflow();
    let before = plan(&with(&[]), &demand);
    demand.losses_per_node_hour = 0.05;
    let after = plan(&with(&[]), &demand);
    let lost = |id: &str| offer(&after, id).hours.likely / offer(&before, id).hours.likely;
    let (ondemand, own) = (lost("ondemand/own-disks/azure.blob.hot"), lost("stoker/own-disks/azure.blob.hot"));
    assert!(own > 1.0 && ondemand > 1.0 + (own - 1.0) * 1.5, "{ondemand} {own}");
}

/// What makes a demand one that can't be meant.
type Spoil = fn(&mut Demand);

#[test]
fn contradictions_name_their_field() {
    let wrongs: [(&str, Spoil); 16] = [
        ("region", |demand| demand.region = Some("atlantis".into())),
        ("node", |demand| demand.node = Some("azure.none".into())),
        ("node", |demand| demand.accelerator = "A100".into()),
        ("node", |demand| demand.node = Some("aws.i3.16xlarge".into())),
        ("data-region", |demand| demand.data.region = Some("mars".into())),
        ("data-zone", |demand| demand.data.zone = Some("mars".into())),
        ("data-zone", |demand| {
            (demand.data.region, demand.data.zone) = (Some("westus".into()), Some("us-east-1a".into()));
        }),
        ("accelerators", |demand| demand.accelerators = 0),
        ("dataset", |demand| demand.dataset_bytes = -1.0),
        ("dataset", |demand| demand.dataset_bytes = f64::NAN),
        ("dataset", |demand| demand.dataset_bytes = 100.0),
        ("files", |demand| demand.files = 1e13),
        ("epochs", |demand| demand.epochs = f64::INFINITY),
        ("hours-per-month", |demand| demand.hours_per_month = Some(800.0)),
        ("jobs", |demand| demand.jobs = 33),
        ("accelerator-price", |demand| demand.accelerator_usd_hour = Some(-1.0)),
    ];
    let catalog = with(&[]);
    for (field, spoil) in wrongs {
        let mut demand = cosmoflow();
        spoil(&mut demand);
        let wrong = Plan::of(&catalog, &demand, today()).unwrap_err();
        assert_eq!((wrong.field.as_str(), wrong.place.as_str()), (field, "the demand"), "{wrong}");
    }
    let mut demand = cosmoflow();
    (demand.node, demand.accelerator) = (None, "abacus".into());
    assert_eq!(Plan::of(&catalog, &demand, today()).unwrap_err().field, "accelerator");
    let empty = Plan::of(&Catalog::default(), &cosmoflow(), today()).unwrap_err();
    assert_eq!((empty.place.as_str(), empty.field.as_str()), ("the catalogue", "service"));
}

#[test]
fn texts_that_are_wrong_name_file_entry_and_field() {
    let good = CONTRACT.replace("VALUE", "0.5");
    let wrongs = [
        ("value = 0.5", "value = -0.5", "value"),
        ("value = 0.5", "value = \"cheap\"", "value"),
        ("value = 0.5", "value = nan", "value"),
        ("value = 0.5, ", "", "value"),
        ("value = 0.5", "value = 0.5, low = 0.6", "value"),
        ("\"GiB-month\"", "\"parsec\"", "unit"),
        ("of = \"capacity\"", "of = \"goodwill\"", "of"),
        ("source = \"contract\"", "source = \"hearsay\"", "source"),
        ("confidence = \"high\"", "confidence = \"sure\"", "confidence"),
        ("confidence = \"high\"", "confidence = \"high\", colour = \"blue\"", "colour"),
        ("date = \"2026-10\"", "date = \"soon\"", "date"),
        ("currency = \"USD\"", "currency = \"EUR\"", "currency"),
        ("id = \"azure.blob.hot\"", "id = \"a new one\"", "id"),
        ("id = \"azure.blob.hot\"", "id = \"azure.new\"", "class"),
    ];
    for (right, wrong, field) in wrongs {
        let text = good.replacen(right, wrong, 1);
        let overlay = Source { layer: Layer::Site, place: "site.toml", text: &text };
        let error = Catalog::of(&SHIPPED.into_iter().chain([overlay]).collect::<Vec<_>>()).unwrap_err();
        assert!(error.field == field && error.place.starts_with("site.toml"), "{wrong}: {error}");
    }
}

#[test]
fn a_share_that_nobody_reaches_names_its_field() {
    let head = CONTRACT.split("[[service]]").next().unwrap();
    for (figure, field) in [("value = 50", "value"), ("value = 1.51", "value"), ("value = 1, high = 5", "high")] {
        let text = format!(
            "{head}[[client]]\nid = \"rest\"\nobserved = [{{ service = \"azure.blob.hot\", case = \"ours\", unit = \"of-listed\", \
            {figure}, source = \"contract\", confidence = \"high\" }}]\n"
        );
        let of = |text: &str| {
            let overlay = Source { layer: Layer::Site, place: "site.toml", text };
            Catalog::of(&SHIPPED.into_iter().chain([overlay]).collect::<Vec<_>>())
        };
        let error = of(&text).unwrap_err();
        assert!(error.field == field && error.hint.contains("1.5"), "{figure}: {error}");
        assert!(of(&text.replace(figure, "value = 1.2, high = 1.5")).is_ok());
    }
}

#[test]
fn every_shipped_figure_has_its_source_and_few_are_doubtful() {
    let catalog = with(&[]);
    let origins = catalog
        .services
        .iter()
        .flat_map(|service| service.prices.iter().map(|price| &price.figure.origin))
        .collect::<Vec<_>>();
    assert!(
        origins.len() > 60 && origins.iter().all(|origin| !origin.title.is_empty() && origin.layer == Layer::Shipped)
    );
    let doubts = catalog.check(today());
    assert!(doubts.iter().any(|doubt| doubt.entry == "aws.fsx_lustre.500" && doubt.what.contains("unverified")));
    assert!(doubts.iter().any(|doubt| doubt.entry == "azure.managed_lustre.40" && doubt.what.contains("no price")));
    assert!(origins.iter().filter(|origin| origin.confidence == Confidence::Unverified).count() < 12);
}

#[test]
fn the_enumeration_stays_small() {
    let demand = cosmoflow();
    let catalog = with(&[]);
    let mut ids: Vec<String> = candidate::all(&catalog, &demand).iter().map(candidate::Candidate::id).collect();
    assert!((300..5000).contains(&ids.len()), "{}", ids.len());
    ids.sort();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "an id is of one candidate");
}

#[test]
fn an_overlay_makes_nothing_free_and_no_tier_twice() {
    let refused = |before: &str, after: &str| {
        let text = CONTRACT.replace(before, after).replace("VALUE", "0.5");
        let overlay = Source { layer: Layer::Site, place: "overlay.toml", text: &text };
        Catalog::of(&SHIPPED.into_iter().chain([overlay]).collect::<Vec<_>>()).unwrap_err()
    };
    let free = refused("prices = ", "charges = []\nprices = ");
    assert!(free.field == "charges" && free.to_string().contains("azure.blob.hot"), "{free}");
    let again =
        r#"prices = [{ of = "capacity", unit = "GiB-month", value = 0.1, source = "contract", confidence = "high" }, "#;
    let twice = refused("prices = [", again);
    assert!(twice.field == "prices" && twice.to_string().contains("two prices from 0 GiB"), "{twice}");
}
