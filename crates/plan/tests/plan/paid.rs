//! What decides and what is paid, by hand: doubtful figures, hours for nothing, ways between regions and zones, sizes as they are sold.

use stoker_plan::demand::{Checkpoint, Demand};
use stoker_plan::figure::Layer;
use stoker_plan::plan::Plan;

use super::{cosmoflow, offer, plan, today, with};

const GIB: f64 = 1_073_741_824.0;

/// A file over the catalogue, of our own.
fn over(provider: &str, region: &str, body: &str) -> String {
    format!(
        "provider = \"{provider}\"\nversion = \"1\"\ncurrency = \"USD\"\nregion = \"{region}\"\n[[source]]\nid = \"s\"\ntitle = \"ours\"\ndate = \"2026-10\"\n{body}"
    )
}

/// Prices of a store in another region of AWS, at its own price of what goes from zone to zone.
fn west(id: &str) -> String {
    let price = |of: &str, unit: &str, usd: f64| {
        format!("{{ of = \"{of}\", unit = \"{unit}\", value = {usd}, source = \"s\", confidence = \"high\" }}, ")
    };
    let prices = [
        price("capacity", "GiB-month", 0.01),
        price("read", "1k", 0.0004),
        price("write", "1k", 0.005),
        price("list", "1k", 0.005),
        price("read-bytes", "GiB", 0.01),
        price("egress", "GiB", 0.05),
        price("cross-zone", "GiB", 0.5),
    ];
    over("aws", "us-west-2", &format!("[[service]]\nid = \"{id}\"\nprices = [{}]\n", prices.concat()))
}

/// 32 A100 on four nodes in us-east-1, and 8 TB.
fn four_nodes() -> Demand {
    let mut demand = Demand::new("A100", 32, 100.0, 1e6, 8e6);
    demand.node = Some("aws.p4d.24xlarge".into());
    demand
}

fn far() -> Demand {
    let mut demand = four_nodes();
    (demand.data.region, demand.data.transit_mb) = (Some("us-west-2".into()), Some(1250.0));
    demand
}

fn same(left: f64, right: f64) {
    assert!((left / right - 1.0).abs() < 1e-9, "{left} and {right}");
}

#[test]
fn an_observation_that_nobody_verified_or_that_is_superseded_decides_nothing() {
    let observed = |confidence: &str| {
        let body = format!(
            "[[client]]\nid = \"blobfuse\"\nobserved = [{{ service = \"azure.blob.hot\", case = \"mine\", unit = \"of-listed\", value = 0.01, source = \"s\", confidence = \"{confidence}\" }}]\n"
        );
        with(&[(Layer::Site, &over("azure", "westus", &body))])
    };
    let hours = |confidence: &str, demand: &Demand| {
        offer(&plan(&observed(confidence), demand), "azure.blob.hot/blobfuse").hours.likely
    };
    let without = offer(&plan(&with(&[]), &cosmoflow()), "azure.blob.hot/blobfuse").hours.likely;
    for confidence in ["unverified", "superseded"] {
        assert_eq!(hours(confidence, &cosmoflow()), without, "{confidence}");
    }
    assert!(hours("high", &cosmoflow()) > 2.0 * without);
    let asked = Demand { unverified: true, ..cosmoflow() };
    assert!(hours("unverified", &asked) > 2.0 * without, "who asks for it has it");
    assert_eq!(hours("superseded", &asked), without);
    let doubts = observed("unverified").check(today());
    assert!(doubts.iter().any(|doubt| doubt.entry == "blobfuse" && doubt.what.contains("unverified")), "{doubts:?}");
}

#[test]
fn a_limit_of_a_client_that_nobody_verified_is_a_reason_and_never_none() {
    for client in ["blobfuse", "ondemand"] {
        let of = if client == "ondemand" { "metadata\", unit = \"1/s" } else { "in-flight\", unit = \"count" };
        let body = format!(
            "[[client]]\nid = \"{client}\"\nlimits = [{{ of = \"{of}\", value = 1, source = \"s\", confidence = \"unverified\" }}]\n"
        );
        let catalog = with(&[(Layer::Site, &over("azure", "westus", &body))]);
        let found = plan(&catalog, &cosmoflow());
        assert!(!found.offers.iter().any(|offer| offer.client == client), "{client}");
        let reason =
            |one: &stoker_plan::plan::Unranked| one.reasons.iter().any(|why| why.contains("is not verified (s)"));
        assert!(found.unranked.iter().any(reason), "{client}: {:?}", found.unranked);
        let found = plan(&catalog, &Demand { unverified: true, ..cosmoflow() });
        assert!(found.offers.iter().any(|offer| offer.client == client), "{client}");
        assert!(catalog.check(today()).iter().any(|doubt| doubt.entry == client), "{client}");
    }
}

#[test]
fn an_hour_of_a_node_for_nothing_never_decides() {
    let free = |usd: f64| {
        let body = format!(
            "[[node]]\nid = \"aws.p5.48xlarge\"\nprices = [{{ of = \"hour\", unit = \"hour\", value = {usd}, source = \"s\", confidence = \"high\" }}]\n"
        );
        with(&[(Layer::Refreshed, &over("aws", "us-east-1", &body))])
    };
    let demand = Demand { node: Some("aws.p5.48xlarge".into()), ..Demand::new("H100", 8, 100.0, 1e6, 1e6) };
    assert!(!plan(&free(40.0), &demand).offers.is_empty());
    let found = plan(&free(0.0), &demand);
    assert!(found.offers.is_empty(), "{:?}", found.offers[0]);
    let reason = "no verified price of aws.p5.48xlarge";
    assert!(found.unranked.iter().any(|one| one.reasons.iter().any(|why| why.contains(reason))));
    let doubts = free(0.0).check(today());
    assert!(doubts.iter().any(|doubt| doubt.entry == "aws.p5.48xlarge" && doubt.what.contains("never decides")));
    // Who owns them says so.
    let owned = Demand { accelerator_usd_hour: Some(0.0), ..demand };
    assert!(!plan(&free(0.0), &owned).offers.is_empty());
}

#[test]
fn a_copy_in_another_region_is_held_while_it_is_made_and_says_how_long() {
    let catalog = with(&[(Layer::Site, &west("aws.s3.standard"))]);
    let found = plan(&catalog, &far());
    let copy = offer(&found, "aws.s3.standard/rest+replica");
    // By hand: 8 TB at 1250 MB/s are 6400 s, in which both are held: 0.01 a GiB-month there, 0.023 here.
    let ready = 6400.0 / 3600.0;
    same(copy.ready_hours, ready);
    same(copy.capacity_usd, 8e12 / GIB * (0.01 + 0.023) / 730.0 * (copy.hours.likely + ready));
    assert!(copy.warnings.iter().any(|warning| warning.contains("1.8 hours before")), "{:?}", copy.warnings);
}

#[test]
fn checkpoints_that_leave_the_region_or_the_zone_pay_for_it() {
    let catalog = with(&[(Layer::Site, &west("aws.s3.standard"))]);
    let egress = |demand: &Demand| offer(&plan(&catalog, demand), "aws.s3.standard/rest").egress_usd;
    let checkpoint = Some(Checkpoint { bytes: 1e12, writes: 10.0 });
    // They leave from where the nodes are, at 0.02 a GiB; the data come from there, at 0.05.
    same(egress(&far()), 8e12 / GIB * 0.05);
    same(egress(&Demand { checkpoint, ..far() }), 8e12 / GIB * 0.05 + 1e13 / GIB * 0.02);
    assert_eq!(egress(&Demand { checkpoint, ..four_nodes() }), 0.0, "at home nothing leaves");
    // A service of one zone, with nodes in two: half of what is read, and half of what is written, goes to the other.
    let zonal = "[[service]]\nid = \"aws.fsx_lustre.125\"\nprices = [{ of = \"cross-zone\", unit = \"GiB\", value = 0.02, source = \"s\", confidence = \"high\" }]\n";
    let catalog = with(&[(Layer::Site, &over("aws", "us-east-1", zonal))]);
    let zones = |checkpoint| Demand { zones: 2, checkpoint, ..four_nodes() };
    let egress = |demand: &Demand| {
        let found = plan(&catalog, demand);
        offer(&found, "aws.fsx_lustre.125/lustre/sized-for-speed").egress_usd
    };
    same(egress(&zones(None)), 8e12 / GIB / 2.0 * 0.02);
    same(egress(&zones(checkpoint)), (8e12 + 1e13) / GIB / 2.0 * 0.02);
    assert!(plan(&catalog, &four_nodes()).not_modelled.iter().any(|what| what.contains("room that checkpoints take")));
}

#[test]
fn what_nodes_send_each_other_is_paid_where_they_are() {
    let catalog = with(&[(Layer::Site, &west("aws.s3.standard"))]);
    let demand = Demand { zones: 2, ..far() };
    let found = plan(&catalog, &demand);
    // By hand: the one epoch is missed, and half of it owned in the other zone, at 0.02 here and not at 0.5 there.
    same(offer(&found, "stoker/own-disks/aws.s3.standard").egress_usd, 8e12 / GIB * (0.05 + 0.02 / 2.0));
}

#[test]
fn the_way_to_the_data_holds_back_nobody_who_is_where_they_are() {
    let at = |region: &str| {
        let mut demand = far();
        demand.data.region = Some(region.into());
        (demand.data.delay_ms, demand.data.transit_mb) = (1000.0, Some(1.0));
        demand
    };
    let catalog = with(&[(Layer::Site, &west("aws.s3.standard"))]);
    let hours = |found: &Plan, id: &str| offer(found, id).hours.likely;
    let (home, none) = (plan(&catalog, &at("us-east-1")), plan(&catalog, &four_nodes()));
    for id in ["aws.s3.standard/rest", "aws.ebs.gp3/disk/sized-for-speed/from-aws.s3.standard"] {
        assert_eq!(hours(&home, id), hours(&none, id), "{id}");
        assert!(hours(&plan(&catalog, &at("us-west-2")), id) > 2.0 * hours(&none, id), "{id}");
    }
    // Volumes are read where they are, and bought as fast as if the copy had come from near.
    let bought = |found: &Plan| offer(found, "aws.ebs.gp3/disk/sized-for-speed/from-aws.s3.standard").supply_mb_per_s;
    assert_eq!(bought(&plan(&catalog, &at("us-west-2"))), bought(&none));
}

#[test]
fn sizes_are_those_that_are_sold() {
    for samples in [1e5, 2e6, 3e6, 8e6, 30e6] {
        let demand = Demand { dataset_bytes: samples * 1e6, files: samples, ..four_nodes() };
        let found = plan(&with(&[]), &demand);
        let fsx = found.offers.iter().filter(|offer| offer.service.starts_with("aws.fsx"));
        let sizes: Vec<f64> = fsx.map(|offer| offer.provisioned_gib).collect();
        assert!(!sizes.is_empty());
        // 1200 GiB, or a multiple of 2400.
        assert!(sizes.iter().all(|gib| *gib == 1200.0 || gib % 2400.0 == 0.0), "{sizes:?}");
    }
}

#[test]
fn a_small_file_is_paid_for_as_one_of_the_least_size() {
    let small = |bytes: f64| {
        let mut demand = four_nodes();
        demand.files = 8e12 / bytes;
        demand
    };
    let capacity = |bytes: f64, id: &str| offer(&plan(&with(&[]), &small(bytes)), id).capacity_usd;
    // By hand: files of 16 KB are paid for as of 128 KiB each for 30 days, eight times as much; larger ones as they are.
    same(capacity(16_384.0, "aws.s3.ia/rest"), 8.0 * 8e12 / GIB * 0.0125 / 730.0 * 720.0);
    same(capacity(1e6, "aws.s3.ia/rest"), 8e12 / GIB * 0.0125 / 730.0 * 720.0);
    let found = plan(&with(&[]), &small(16_384.0));
    let standard = offer(&found, "aws.s3.standard/rest");
    same(standard.capacity_usd, 8e12 / GIB * 0.023 / 730.0 * standard.hours.likely);
}

#[test]
fn a_checkpoint_costs_time_requests_and_money() {
    let mut demand = cosmoflow();
    let before = plan(&with(&[]), &demand);
    demand.checkpoint = Some(Checkpoint { bytes: 1e12, writes: 10.0 });
    let after = plan(&with(&[]), &demand);
    let (before, after) = (offer(&before, "azure.blob.hot/blobfuse"), offer(&after, "azure.blob.hot/blobfuse"));
    assert!(
        after.hours.likely > before.hours.likely
            && after.requests_usd > before.requests_usd
            && after.idle_usd > before.idle_usd
    );
}
