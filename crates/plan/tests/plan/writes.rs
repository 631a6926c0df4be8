//! What is written: a cache in its first epoch, checkpoints.

use stoker_plan::demand::{Checkpoint, Demand};
use stoker_plan::figure::Layer;

use super::{offer, plan, with};

/// A figure of what the disks of nodes of AWS carry.
fn disks(nodes: &[&str], of: &str, value: f64) -> String {
    let mut text = "provider = \"aws\"\nversion = \"1\"\ncurrency = \"USD\"\nregion = \"us-east-1\"\n\
        [[source]]\nid = \"s\"\ntitle = \"made up\"\ndate = \"2026\"\n"
        .to_owned();
    for node in nodes {
        text += &format!(
            "[[node]]\nid = \"{node}\"\nlimits = [{{ of = \"{of}\", scope = \"node\", unit = \"MB/s\", value = {value}, \
            source = \"s\", confidence = \"high\" }}]\n"
        );
    }
    text
}

/// 3.2 GB/s on four nodes.
fn demand(bytes: f64) -> Demand {
    let mut demand = Demand::new("A100", 32, 100.0, 1e6, bytes / 1e6);
    (demand.epochs, demand.node) = (10.0, Some("aws.p4d.24xlarge".into()));
    demand
}

#[test]
fn a_cache_is_filled_no_faster_than_its_disks_write() {
    let id = "stoker/own-disks/aws.s3.standard";
    let text = disks(&["aws.p4d.24xlarge"], "write-bandwidth", 200.0);
    let catalog = with(&[(Layer::Site, &text)]);
    // By hand: four nodes of 200 MB/s, of which Stoker reaches 99 %. Of 64 TB they keep 32, and write no more.
    for (bytes, mb) in [(1e12, 4.0 * 200.0 * 0.99), (64e12, 4.0 * 200.0 * 0.99 / 0.5)] {
        let found = plan(&catalog, &demand(bytes));
        let own = offer(&found, id);
        assert!((own.cold_supply_mb_per_s / mb - 1.0).abs() < 1e-9, "{} {mb}", own.cold_supply_mb_per_s);
        assert!((own.au_cold_percent - 100.0 * mb / 3200.0).abs() < 1e-6, "{}", own.au_cold_percent);
        assert!(own.warnings.is_empty(), "{:?}", own.warnings);
    }
    // What lies there is read as before.
    let found = plan(&catalog, &demand(1e12));
    assert!((offer(&found, id).au_warm_percent - 100.0).abs() < 1e-9);
}

#[test]
fn rented_disks_are_filled_no_faster_than_they_write() {
    let shipped = with(&[]);
    let keeps = |node: &&stoker_plan::catalog::Node| node.provider == "aws" && node.accelerators == 0;
    let nodes: Vec<&str> = shipped.nodes.iter().filter(keeps).map(|node| node.id.as_str()).collect();
    let text = disks(&nodes, "write-bandwidth", 10.0);
    let found = plan(&with(&[(Layer::Site, &text)]), &demand(1e12));
    let rented: Vec<_> = found.offers.iter().filter(|offer| offer.cache_nodes > 0).collect();
    assert!(!rented.is_empty());
    for offer in rented {
        let mb = f64::from(offer.cache_nodes) * 10.0 * 0.99 / offer.cache_ratio;
        assert!((offer.cold_supply_mb_per_s / mb - 1.0).abs() < 1e-9, "{}: {mb}", offer.id);
    }
}

#[test]
fn an_offer_says_where_it_rests_on_what_disks_read() {
    let id = "stoker/own-disks/aws.s3.standard";
    let text = disks(&["aws.p4d.24xlarge"], "local-bandwidth", 300.0);
    let found = plan(&with(&[(Layer::Site, &text)]), &demand(1e12));
    let own = offer(&found, id);
    assert!((own.cold_supply_mb_per_s - 4.0 * 300.0 * 0.99).abs() < 1e-6, "{}", own.cold_supply_mb_per_s);
    assert!(own.warnings.iter().any(|warning| warning.contains("aws.p4d.24xlarge write")), "{:?}", own.warnings);
    assert!(found.not_modelled.iter().any(|what| what.contains("write-bandwidth")));
    // Half of 8,192 MB/s a node holds nothing back.
    let found = plan(&with(&[]), &demand(1e12));
    assert!(offer(&found, id).warnings.is_empty(), "{:?}", offer(&found, id).warnings);
}

#[test]
fn an_offer_says_where_nobody_lists_what_a_checkpoint_is_held_by() {
    let mut demand = demand(1e12);
    let silent = plan(&with(&[]), &demand);
    demand.checkpoint = Some(Checkpoint { bytes: 1e12, writes: 10.0 });
    let found = plan(&with(&[]), &demand);
    let said = |plan, id| offer(plan, id).warnings.join("; ");
    for id in ["aws.s3.standard/rest", "stoker/own-disks/aws.s3.standard"] {
        let warning =
            "what aws.s3.standard takes of writes is not listed: checkpoints are held by the nodes' network alone";
        assert_eq!((said(&found, id).as_str(), said(&silent, id).as_str()), (warning, ""), "{id}");
    }
    demand = super::cosmoflow();
    demand.checkpoint = Some(Checkpoint { bytes: 1e12, writes: 10.0 });
    let listed = plan(&with(&[]), &demand);
    assert_eq!(said(&listed, "azure.blob.hot/rest"), "");
}
