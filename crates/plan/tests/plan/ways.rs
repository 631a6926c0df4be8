//! What is known of each way, and what is paid on it: limits, sizes, draws, zones, regions, losses.

use stoker_plan::candidate;
use stoker_plan::catalog::Need;
use stoker_plan::demand::{Checkpoint, Demand};
use stoker_plan::figure::Layer;
use stoker_plan::luck::Luck;
use stoker_plan::plan::{Offer, Plan};

use super::{CONTRACT, cosmoflow, offer, plan, with};

#[test]
fn a_limit_that_is_unknown_or_unverified_is_a_reason_on_every_way() {
    let mut demand = Demand::new("A100", 32, 100.0, 1e6, 1e6);
    demand.node = Some("aws.p4d.24xlarge".into());
    let found = plan(&with(&[]), &demand);
    // Nobody verified how many requests S3 Express takes, and when its first byte comes: straight, in a cache, as an origin.
    assert!(!found.offers.iter().any(|offer| offer.id.contains("express")), "{:?}", found.offers[0]);
    assert!(!found.offers.iter().any(|offer| offer.id.contains("ebs.sc1")));
    let because = |start: &str, reason: &str| {
        found.unranked.iter().any(|one| one.id.starts_with(start) && one.reasons.iter().any(|why| why.contains(reason)))
    };
    let (requests, sc1) = ("the limit of requests of aws.s3.express", "the limit of requests of aws.ebs.sc1");
    assert!(because("aws.s3.express/rest", requests) && because("aws.ebs.sc1/disk", sc1));
    demand.unverified = true;
    let found = plan(&with(&[]), &demand);
    for way in ["aws.s3.express/rest", "stoker/own-disks/aws.s3.express", "ondemand/own-disks/aws.s3.express"] {
        offer(&found, way);
    }
    // Each way by itself: without the doubtful figures nothing is known of this store at all.
    for way in [
        "stoker/own-disks/x.store",
        "stoker/2xx.keep/x.store",
        "ondemand/own-disks/x.store",
        "x.disk/disk/from-x.store",
    ] {
        let unknown = unknown_store(way);
        assert!(unknown.iter().any(|reason| reason.contains("speed of x.store")), "{way}: {unknown:?}");
    }
}

#[test]
fn a_volume_of_unknown_operations_is_not_ranked() {
    let reasons = unknown_store("x.disk/disk/from-x.store");
    assert!(reasons.iter().any(|reason| reason.contains("speed of x.disk")), "{reasons:?}");
}

/// Why a way from a store that nobody knows the speed of can't be ranked.
fn unknown_store(way: &str) -> Vec<String> {
    let text = r#"
provider = "x"
version = "1"
currency = "USD"
region = "here"
[[source]]
id = "s"
title = "made up"
date = "2026"
[[node]]
id = "x.train"
accelerators = 8
accelerator = "X1"
prices = [{ of = "hour", unit = "hour", value = 10, source = "s", confidence = "high" }]
limits = [
  { of = "network", unit = "MB/s", value = 3000, source = "s", confidence = "high" },
  { of = "local-size", unit = "GB", value = 600, source = "s", confidence = "high" },
  { of = "local-bandwidth", unit = "MB/s", value = 3000, source = "s", confidence = "high" },
  { of = "disk-bandwidth", unit = "MB/s", value = 2000, source = "s", confidence = "high" },
  { of = "disk-requests", unit = "1/s", value = 40000, source = "s", confidence = "high" },
]
[[node]]
id = "x.keep"
accelerators = 0
prices = [{ of = "hour", unit = "hour", value = 1, source = "s", confidence = "high" }]
limits = [
  { of = "network", unit = "MB/s", value = 3000, source = "s", confidence = "high" },
  { of = "local-size", unit = "GB", value = 600, source = "s", confidence = "high" },
  { of = "local-bandwidth", unit = "MB/s", value = 3000, source = "s", confidence = "high" },
]
[[service]]
id = "x.store"
class = "object"
charges = ["capacity", "read", "write"]
prices = [
  { of = "capacity", unit = "GiB-month", value = 0.02, source = "s", confidence = "high" },
  { of = "read", unit = "1k", value = 0.0004, source = "s", confidence = "high" },
  { of = "write", unit = "1k", value = 0.005, source = "s", confidence = "high" },
]
limits = [{ of = "first-byte", scope = "connection", unit = "ms", value = 20, source = "s", confidence = "high" }]
[[service]]
id = "x.disk"
class = "disk"
charges = ["capacity"]
prices = [{ of = "capacity", unit = "GiB-month", value = 0.1, source = "s", confidence = "high" }]
limits = [{ of = "bandwidth", unit = "MB/s", value = 500, source = "s", confidence = "high" }]
[[client]]
id = "rest"
services = ["x.store"]
[[client]]
id = "azcopy"
services = ["x.store"]
[[client]]
id = "stoker"
services = ["x.store"]
[[client]]
id = "disk"
services = ["x.disk"]
"#;
    let catalog = with(&[(Layer::Site, text)]);
    let mut demand = Demand::new("X1", 16, 100.0, 1e6, 1e6);
    demand.node = Some("x.train".into());
    let candidates = candidate::all(&catalog, &demand);
    let scene = stoker_plan::outcome::Scene { catalog: &catalog, demand: &demand, evidence: Default::default() };
    let found = candidates.iter().find(|candidate| candidate.id() == way).unwrap_or_else(|| panic!("no {way}"));
    stoker_plan::outcome::evaluate(scene, found, Default::default()).unwrap_err()
}

#[test]
fn no_more_speed_is_bought_than_the_way_carries() {
    // Four nodes mount premium Files over one connection each: 4 x 300 MiB/s, of which a mount reaches what others did. The
    // job asks for 9.6 GB/s, for which the largest share would be bought.
    let plan = plan(&with(&[]), &cosmoflow());
    let sized = offer(&plan, "azure.files.premium/nfs/sized-for-speed");
    let needed = (4.0 * 300.0 - 100.0) / 0.1;
    assert!((sized.provisioned_gib - needed).abs() <= 1.0, "{} {needed}", sized.provisioned_gib);
    let largest = offer(&plan, "azure.files.premium/nfs/largest");
    assert!(
        sized.hours.likely <= largest.hours.likely * (1.0 + 1e-9) && sized.total_usd.likely < largest.total_usd.likely
    );
}

#[test]
fn break_even_is_over_all_offers_on_all_nodes() {
    // More than all disks hold, and locks: the size of a file system is bought against waiting accelerators.
    let mut demand = Demand::new("A100", 32, 1000.0, 1e6, 1e8);
    demand.needs = vec![Need::Locking];
    let found = plan(&with(&[]), &demand);
    assert!(!found.break_even.is_empty());
    let nodes: std::collections::BTreeSet<&str> = found.offers.iter().map(|offer| offer.node.as_str()).collect();
    assert!(nodes.contains("aws.p4d.24xlarge") && nodes.contains("aws.p4de.24xlarge"), "{nodes:?}");
    assert!(found.offers.iter().any(|offer| offer.id.ends_with("@aws.p4de.24xlarge")));
    // By hand, over all of them: no price between today's and the nearest crossing makes another the cheapest.
    let first = &found.offers[0];
    let today = first.accelerators_usd_per_hour / first.nodes / first.accelerators_per_node;
    let usd =
        |offer: &Offer, factor: f64| offer.storage_usd + factor * (offer.busy_usd + offer.idle_usd + offer.staging_usd);
    let cheapest = |factor: f64| {
        found.offers.iter().min_by(|left, right| usd(left, factor).total_cmp(&usd(right, factor))).unwrap().id.clone()
    };
    for even in &found.break_even {
        let factor = even.usd_per_accelerator_hour / today;
        let (inside, outside) = if factor > 1.0 { (0.999, 1.001) } else { (1.001, 0.999) };
        assert_eq!(cheapest(factor * inside), first.id);
        assert_ne!(cheapest(factor * outside), first.id);
    }
    for factor in [0.01, 0.1, 10.0, 100.0] {
        let is_crossed =
            found.break_even.iter().any(|even| (even.usd_per_accelerator_hour / today - 1.0) * (factor - 1.0) > 0.0);
        assert!(is_crossed || cheapest(factor) == first.id, "{factor}");
    }
}

#[test]
fn chances_are_of_the_rows_and_ranges_keep_their_size() {
    let demand = cosmoflow();
    let catalog = with(&[]);
    let scene = stoker_plan::outcome::Scene { catalog: &catalog, demand: &demand, evidence: Default::default() };
    let mut sized = 0;
    for candidate in candidate::all(&catalog, &demand).iter().filter(|one| one.id().contains("sized-for-speed")) {
        let size = |supply| {
            let knobs = stoker_plan::outcome::Knobs { supply, ..Default::default() };
            stoker_plan::outcome::evaluate(scene, candidate, knobs).map(|outcome| outcome.gib)
        };
        let Ok(likely) = size(Luck::LIKELY) else { continue };
        assert!([Luck::At(0.0), Luck::At(1.0), Luck::Drawn(3)].map(size) == [Ok(likely), Ok(likely), Ok(likely)]);
        sized += 1;
    }
    assert!(sized >= 4, "{sized} were looked at");
}

#[test]
fn what_offers_share_is_drawn_once() {
    // Two accounts of one service, read alike and bound by the nodes' network, are as fast as each other in each draw.
    let demand = cosmoflow();
    let catalog = with(&[]);
    let scene = stoker_plan::outcome::Scene { catalog: &catalog, demand: &demand, evidence: Default::default() };
    let candidates = candidate::all(&catalog, &demand);
    let hours = |id: &str, draw: u64| {
        let candidate = candidates.iter().find(|candidate| candidate.id() == id).unwrap();
        let knobs = stoker_plan::outcome::Knobs { supply: Luck::Drawn(draw), ..Default::default() };
        stoker_plan::outcome::evaluate(scene, candidate, knobs).unwrap().au_warm
    };
    let of = |id: &str| (0..50).map(|draw| hours(id, draw)).collect::<Vec<_>>();
    let ondemand = of("ondemand/own-disks/azure.blob.hot");
    assert_eq!(ondemand, of("ondemand/own-disks/azure.blob.cool"), "the same disks, network and clients");
    assert_eq!(of("azure.blob.hotx4/blobfuse"), of("azure.blob.hotx8/blobfuse"), "the same network and client");
    assert!(ondemand.iter().any(|au| *au != ondemand[0]));
}

#[test]
fn a_lost_node_costs_everybody_what_was_not_written_yet() {
    let mut demand = cosmoflow();
    let before = plan(&with(&[]), &demand);
    demand.losses_per_node_hour = 0.001;
    let after = plan(&with(&[]), &demand);
    for offer_before in &before.offers {
        let later = offer(&after, &offer_before.id);
        // By hand: T/48/2 hours for each of 4 x 0.001 x T losses at least.
        let hours = offer_before.hours.likely - offer_before.staging_hours;
        let least = 4.0 * 0.001 * hours * hours / 48.0 / 2.0;
        let more = later.hours.likely - offer_before.hours.likely;
        assert!(more >= least * (1.0 - 1e-9), "{}: {more} {least}", offer_before.id);
    }
}

#[test]
fn what_a_lost_node_costs_lies_between_checkpoints_where_they_are_written() {
    // Of 48 epochs, one checkpoint after every twelfth: no epoch between them is kept.
    let more = |writes: Option<f64>| {
        let mut demand = cosmoflow();
        demand.checkpoint = writes.map(|writes| Checkpoint { bytes: 1.0, writes });
        let before = plan(&with(&[]), &demand);
        demand.losses_per_node_hour = 0.001;
        let (before, after) = (offer(&before, "azure.blob.hot/rest"), plan(&with(&[]), &demand));
        (before.hours.likely, offer(&after, &before.id).hours.likely - before.hours.likely)
    };
    for (writes, spans) in [(Some(4.0), 4.0), (Some(96.0), 96.0), (Some(1.0), 1.0), (None, 48.0), (Some(0.0), 48.0)] {
        let (hours, more) = more(writes);
        // By hand: 4 nodes, each lost 0.001 times an hour, and each time half of what lies between.
        let expected = 4.0 * 0.001 * hours * hours / spans / 2.0;
        assert!((more / expected - 1.0).abs() < 1e-9, "{writes:?}: {more} {expected}");
    }
}

#[test]
fn a_service_that_nobody_reads_is_a_reason_and_one_with_a_client_an_offer() {
    let service = CONTRACT.replace(
        "id = \"azure.blob.hot\"",
        "id = \"mine.store\"\nclass = \"object\"\ncharges = [\"capacity\", \"read\", \"write\"]",
    );
    let text = service.replace("VALUE", "0.01");
    let found = plan(&with(&[(Layer::Site, &text)]), &cosmoflow());
    let unread = found.unranked.iter().find(|unranked| unranked.id == "mine.store").expect("it is listed");
    assert!(unread.reasons[0].contains("no client reads mine.store"), "{unread:?}");
    let read = text + "[[client]]\nid = \"rest\"\nservices = [\"mine.store\"]\n";
    let found = plan(&with(&[(Layer::Site, &read)]), &cosmoflow());
    let reasons =
        &found.unranked.iter().find(|unranked| unranked.id == "mine.store/rest").expect("it is a candidate").reasons;
    assert!(reasons.iter().any(|reason| reason.contains("speed of mine.store")), "{reasons:?}");
}

#[test]
fn data_in_another_region_are_read_from_there_or_copied_once() {
    let away = CONTRACT.replace("region = \"westus\"", "region = \"there\"").replace(
        "{ of = \"capacity\", unit = \"GiB-month\", value = VALUE, source = \"contract\", confidence = \"high\" }",
        "{ of = \"capacity\", unit = \"GiB-month\", value = 0.02, source = \"contract\", confidence = \"high\" }, \
         { of = \"read\", unit = \"10k\", value = 0.004, source = \"contract\", confidence = \"high\" }, \
         { of = \"write\", unit = \"10k\", value = 0.05, source = \"contract\", confidence = \"high\" }, \
         { of = \"list\", unit = \"10k\", value = 0.05, source = \"contract\", confidence = \"high\" }, \
         { of = \"egress\", unit = \"GiB\", value = 0.02, source = \"contract\", confidence = \"high\" }",
    );
    let catalog = with(&[(Layer::Site, &away)]);
    let mut demand = cosmoflow();
    demand.data.region = Some("there".into());
    let unknown = plan(&catalog, &demand);
    let reasons: Vec<&String> = unknown.unranked.iter().flat_map(|unranked| &unranked.reasons).collect();
    assert!(unknown.offers.is_empty() && reasons.iter().any(|reason| reason.contains("way from there")), "{reasons:?}");
    (demand.data.delay_ms, demand.data.transit_mb) = (30.0, Some(500.0));
    let found = plan(&catalog, &demand);
    let gib = 5.1e12 / 1_073_741_824.0;
    let (far, near) = (offer(&found, "azure.blob.hot/rest"), offer(&found, "azure.blob.hot/rest+replica"));
    assert!((far.egress_usd / (gib * 48.0 * 0.02) - 1.0).abs() < 1e-9 && far.supply_mb_per_s <= 500.0, "{far:?}");
    assert!((near.egress_usd / (gib * 0.02) - 1.0).abs() < 1e-9 && near.supply_mb_per_s > 500.0, "{near:?}");
    assert!((near.ready_hours - 5.1e6 / 500.0 / 3600.0).abs() < 1e-9 && far.ready_hours == 0.0);
}

#[test]
fn a_service_of_one_zone_is_paid_for_by_those_in_others() {
    let mut demand = Demand::new("A100", 32, 100.0, 1e6, 1e6);
    (demand.node, demand.zones) = (Some("aws.p4d.24xlarge".into()), 2);
    let found = plan(&with(&[]), &demand);
    let reason = "no price of cross-zone of aws.fsx_lustre.125 is known";
    let is = |unranked: &&stoker_plan::plan::Unranked| unranked.id.starts_with("aws.fsx_lustre.125/lustre");
    let unranked = found.unranked.iter().find(is).expect("it is of one zone");
    assert!(unranked.reasons.contains(&reason.to_owned()), "{unranked:?}");
    offer(&found, "aws.s3.standard/rest");
}

#[test]
fn a_checkpoint_reaches_what_its_client_reaches() {
    let mut demand = cosmoflow();
    demand.checkpoint = Some(Checkpoint { bytes: 1e12, writes: 10.0 });
    let (with_writes, catalog) = (plan(&with(&[]), &demand), with(&[]));
    demand.checkpoint = None;
    let without = plan(&catalog, &demand);
    let id = "azure.blob.hot/blobfuse";
    let hours = offer(&with_writes, id).hours.likely - offer(&without, id).hours.likely;
    // By hand: 10 TB at 0.207 of the lesser of 3.125 GB/s of an account and 3 GB/s of four nodes.
    let expected = 1e7 / (0.207 * 3000.0) / 3600.0;
    assert!((hours / expected - 1.0).abs() < 1e-6, "{hours} {expected}");
}

#[test]
fn burst_credit_is_divided_by_the_volumes_once() {
    // One st1 a node, 4749.7 GiB: 194.5 MB/s, and 524.3 while a credit of 5.1 TB lasts, 15465 s. By hand, of 244.8 TB over n
    // volumes, against the 2401.5 MB/s of a node's accelerators.
    for (nodes, au) in [(1, 8.27), (2, 8.45), (4, 8.84), (8, 9.72), (16, 12.15)] {
        let mut demand = Demand::new("V100", 8 * nodes, 1.0 / 0.0533, 16e6, 318_750.0);
        (demand.epochs, demand.node) = (48.0, Some("aws.p3dn.24xlarge".into()));
        let found = plan(&with(&[]), &demand);
        let st1 = offer(&found, "aws.ebs.st1/disk/from-aws.s3.standard");
        assert!((st1.au_percent - au).abs() < 0.006, "{nodes}: {} {au}", st1.au_percent);
    }
}

#[test]
fn each_file_is_a_request_at_least() {
    // 5.1 TB in samples of 16 MB, each of them 16 files: 5.1 million files, one request each, 48 times.
    let mut demand = cosmoflow();
    let few = plan(&with(&[]), &demand);
    demand.files = demand.samples() * 16.0;
    let many = plan(&with(&[]), &demand);
    let id = "azure.blob.hot/rest";
    assert!((offer(&many, id).requests / (demand.files * 48.0) - 1.0).abs() < 1e-9, "{}", offer(&many, id).requests);
    let usd = |plan: &Plan| offer(plan, id).requests_usd;
    assert!(usd(&many) > 10.0 * usd(&few), "{} {}", usd(&many), usd(&few));
    // Of as much time until the first byte a file has more a byte.
    let slack = |plan: &Plan| {
        let limits = &offer(plan, id).limits;
        limits.iter().find(|bound| bound.limit.contains("first byte")).expect("it is known").of_demand
    };
    assert!(slack(&many) < 0.9 * slack(&few), "{} {}", slack(&many), slack(&few));
}

#[test]
fn what_is_deleted_early_is_paid_for_the_days_that_are_charged_at_least() {
    let mut demand = Demand::new("A100", 32, 100.0, 1e6, 8e6);
    demand.node = Some("aws.p4d.24xlarge".into());
    let found = plan(&with(&[]), &demand);
    let (cold, warm) = (offer(&found, "aws.s3.ia/rest"), offer(&found, "aws.s3.standard/rest"));
    // By hand: 8 TB are 7450.58 GiB, in a run of hours. IA is charged for 30 days, Standard for the hours.
    let gib = 8e12 / 1_073_741_824.0;
    assert!(cold.hours.likely < 30.0 * 24.0);
    assert!((cold.capacity_usd / (gib * 0.0125 / 730.0 * 720.0) - 1.0).abs() < 1e-9, "{}", cold.capacity_usd);
    assert!(
        (warm.capacity_usd / (gib * 0.023 / 730.0 * warm.hours.likely) - 1.0).abs() < 1e-9,
        "{}",
        warm.capacity_usd
    );
    // A run of more than 30 days is charged as it lasts.
    demand.epochs = 1000.0;
    let found = plan(&with(&[]), &demand);
    let long = offer(&found, "aws.s3.ia/rest");
    assert!(long.hours.likely > 720.0);
    assert!(
        (long.capacity_usd / (gib * 0.0125 / 730.0 * long.hours.likely) - 1.0).abs() < 1e-9,
        "{}",
        long.capacity_usd
    );
}

#[test]
fn what_exists_all_month_is_paid_all_month_volumes_as_well() {
    let mut demand = Demand::new("A100", 32, 100.0, 1e6, 8e6);
    demand.node = Some("aws.p4d.24xlarge".into());
    let always = plan(&with(&[]), &demand);
    // A tenth of each month: volumes are filled once, and stand there in between.
    demand.hours_per_month = Some(73.0);
    let tenth = plan(&with(&[]), &demand);
    for id in ["aws.ebs.gp2/disk/from-aws.s3.standard", "aws.fsx_lustre.scratch2/lustre", "aws.s3.standard/rest"] {
        let (always, tenth) = (offer(&always, id), offer(&tenth, id));
        assert!((tenth.capacity_usd / always.capacity_usd / 10.0 - 1.0).abs() < 1e-9, "{id}: {}", tenth.capacity_usd);
        assert!((tenth.busy_usd / always.busy_usd - 1.0).abs() < 1e-9, "nodes are paid for the hours trained");
    }
}

#[test]
fn what_stoker_was_not_measured_on_says_so() {
    let found = plan(&with(&[]), &cosmoflow());
    let blob = offer(&found, "stoker/own-disks/azure.blob.hot");
    assert_eq!(blob.warnings, ["needs a mount of az://, which was not measured yet"]);
    assert!(offer(&found, "azure.blob.hot/rest").warnings.is_empty(), "a client of its own reads it");
    let found = plan(&with(&[]), &Demand { node: Some("aws.p3dn.24xlarge".into()), ..cosmoflow() });
    // Of those of AWS it mounts all; how fast their disks are filled is another matter.
    let aws = &offer(&found, "stoker/own-disks/aws.s3.standard").warnings;
    assert!(!aws.iter().any(|warning| warning.contains("a mount of")), "{aws:?}");
}

#[test]
fn request_rates_that_grow_by_and_by_take_the_first_epoch_longer() {
    // What clients reach of this store is told, so that figures can be computed by hand.
    let reached = r#"
provider = "gcp"
version = "mine"
currency = "USD"
[[source]]
id = "mine"
title = "our own"
date = "2026-11"
[[client]]
id = "rest"
observed = [{ service = "gcp.gcs.standard", case = "mine", unit = "of-listed", value = 1, source = "mine", confidence = "high" }]
"#;
    // 32 accelerators ask for 500 files of 100 KB a second each: 16,000 requests, 1,600 MB/s. The store begins with 5,000 a second,
    // 500 MB/s, and doubles in 20 minutes: 20 minutes at 500 MB/s and 20 at 1,000, then all that is asked for.
    let mut demand = Demand::new("A100", 32, 500.0, 1e5, 1e8);
    (demand.node, demand.streams, demand.epochs) = (Some("gcp.a2-highgpu-8g".into()), 64.0, 3.0);
    let found = plan(&with(&[(Layer::Site, reached)]), &demand);
    let straight = offer(&found, "gcp.gcs.standard/rest");
    let longer = 1200.0 * (1.0 - 500.0 / 1600.0) + 1200.0 * (1.0 - 1000.0 / 1600.0);
    assert!((longer - 1275.0_f64).abs() < 1e-9);
    assert!((straight.ramp_hours * 3600.0 - longer).abs() < 1e-6, "{}", straight.ramp_hours);
    let ideal = 3.0 * 1e8 / 16e3 / 3600.0;
    assert!((straight.hours.likely - ideal - longer / 3600.0).abs() < 1e-9 && straight.idle_usd > 0.0);
    assert_eq!(straight.au_cold_percent, 100.0, "in the end all comes that is asked for");
    // Two buckets begin with twice as much: 20 minutes at 1,000 MB/s.
    let two = offer(&found, "gcp.gcs.standardx2/rest");
    assert!((two.ramp_hours * 3600.0 - 450.0).abs() < 1e-6, "{}", two.ramp_hours);
    // A run that ends before never sees the rest: 100 GB at 500 MB/s take 200 s, and would have taken 62.5.
    (demand.dataset_bytes, demand.files, demand.epochs) = (1e11, 1e6, 1.0);
    let short = plan(&with(&[(Layer::Site, reached)]), &demand);
    let short = offer(&short, "gcp.gcs.standard/rest");
    assert!((short.ramp_hours * 3600.0 - 137.5).abs() < 1e-6, "{}", short.ramp_hours);
    // Where no pace is told, the least that is promised is the limit.
    let amazon = plan(&with(&[]), &Demand { node: Some("aws.p4d.24xlarge".into()), ..demand });
    let straight = offer(&amazon, "aws.s3.standard/rest");
    assert_eq!((straight.ramp_hours, straight.binding_limit.as_str()), (0.0, "requests"));
}

#[test]
fn a_copy_in_another_region_says_how_long_it_lags() {
    let away = CONTRACT
        .replace("provider = \"azure\"", "provider = \"aws\"")
        .replace("region = \"westus\"", "region = \"us-west-2\"")
        .replace("azure.blob.hot", "aws.s3.standard")
        .replace(
            "{ of = \"capacity\", unit = \"GiB-month\", value = VALUE, source = \"contract\", confidence = \"high\" }",
            &[("capacity", "GiB-month"), ("read", "1k"), ("write", "1k"), ("list", "1k"), ("egress", "GiB")]
                .map(|(of, unit)| {
                    let figure = "value = 0.02, source = \"contract\", confidence = \"high\"";
                    format!("{{ of = \"{of}\", unit = \"{unit}\", {figure} }}, ")
                })
                .concat(),
        );
    let mut demand = Demand::new("A100", 8, 100.0, 1e6, 1e6);
    demand.node = Some("aws.p4d.24xlarge".into());
    (demand.data.region, demand.data.transit_mb) = (Some("us-west-2".into()), Some(500.0));
    let found = plan(&with(&[(Layer::Site, &away)]), &demand);
    let (copy, afar) = (offer(&found, "aws.s3.standard/rest+replica"), offer(&found, "aws.s3.standard/rest"));
    assert_eq!((copy.replica_lag_minutes, afar.replica_lag_minutes), (Some(15.0), None));
    assert!(copy.warnings.iter().any(|warning| warning.contains("15 minutes")), "{:?}", copy.warnings);
    assert_eq!((copy.data_region.as_deref(), afar.data_region.as_deref()), (None, Some("us-west-2")));
    assert!(copy.region == "us-east-1" && copy.ready_hours > 0.0 && afar.warnings.is_empty());
}
