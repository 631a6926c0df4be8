//! What is predicted of each case, by the same code that plans.

use super::{Named, Row};
use crate::candidate::{self, Candidate};
use crate::catalog::Catalog;
use crate::demand::Demand;
use crate::evidence::Evidence;
use crate::figure::Range;
use crate::luck::Luck;
use crate::outcome::{Knobs, Outcome, Scene, evaluate};

/// Sources round hours of days and thousands of dollars; throughputs of plots are read by eye.
const HOURS: f64 = 0.10;
const USD: f64 = 0.10;
const SPEED: f64 = 0.15;

/// What an hour of each of the study's accelerators cost: 26.438 USD for eight.
const PAID: Option<f64> = Some(26.438 / 8.0);

/// CosmoFlow on 32 V100: 300 MB/s each, 48 epochs over 5.1 TB in files of 16 MB.
fn cosmoflow() -> Demand {
    let mut demand = Demand::new("V100", 32, 18.75, 16e6, 318_750.0);
    (demand.epochs, demand.accelerator_usd_hour) = (48.0, PAID);
    demand.node = Some("azure.ND40rs_v2".into());
    demand
}

/// Files that 8 threads or more on each of four nodes read at once, as fast as they come.
fn elbencho(file_bytes: f64) -> Demand {
    let mut demand = Demand::new("V100", 32, 1e5 * 1e6 / file_bytes, file_bytes, 12_800.0);
    demand.accelerator_usd_hour = PAID;
    demand.node = Some("azure.ND40rs_v2".into());
    demand
}

/// Images of 100 KB as fast as accelerators of one kind take them.
fn images(node: &str, accelerators: u32, each: f64) -> Demand {
    let mut demand = Demand::new("any", accelerators, each, 100e3, 7_000_000.0);
    demand.files = 5120.0;
    demand.streams = 64.0;
    demand.node = Some(node.into());
    demand
}

fn find<'a>(catalog: &'a Catalog, demand: &Demand, id: &str) -> Candidate<'a> {
    let found = candidate::all(catalog, demand).into_iter().find(|candidate| candidate.id() == id);
    found.expect("the case is of the catalogue")
}

fn at(catalog: &Catalog, demand: &Demand, id: &str, evidence: Evidence, supply: f64) -> Outcome {
    let scene = Scene { catalog, demand, evidence };
    let knobs = Knobs { supply: Luck::At(supply), ..Knobs::default() };
    evaluate(scene, &find(catalog, demand, id), knobs).unwrap_or_else(|reasons| panic!("{id}: {reasons:?}"))
}

struct Asked<'a> {
    catalog: &'a Catalog,
    case: &'static str,
    id: &'static str,
    demand: Demand,
}

impl Asked<'_> {
    fn row(
        &self,
        quantity: &'static str,
        published: f64,
        tolerance: f64,
        note: &'static str,
        of: impl Fn(&Outcome) -> f64,
    ) -> Row {
        let value = |evidence, supply| of(&at(self.catalog, &self.demand, self.id, evidence, supply));
        let range = |evidence| Range::of(value(evidence, 0.0), value(evidence, 0.5), value(evidence, 1.0));
        let observed = self.catalog.clients.iter().flat_map(|client| &client.observed);
        let is_observed = observed.filter(|observed| observed.case == self.case).count() > 0;
        Row {
            case: self.case,
            quantity,
            published,
            tolerance,
            returned: is_observed.then(|| value(Evidence::Only(self.case), 0.5)),
            predicted: range(Evidence::All),
            left_out: range(Evidence::Without(self.case)),
            note,
        }
    }

    fn binds(&self, what: &'static str, published: &'static str) -> Named {
        let name = |evidence| {
            let outcome = at(self.catalog, &self.demand, self.id, evidence, 0.5);
            let tightest = outcome.bounds.first().filter(|bound| bound.of_demand < 1.0);
            tightest.map_or_else(|| "none".to_owned(), |bound| bound.limit.to_owned())
        };
        Named {
            case: self.case,
            what,
            published,
            predicted: name(Evidence::All),
            left_out: name(Evidence::Without(self.case)),
        }
    }
}

/// Hours without the copy, which the sources count apart.
fn hours(outcome: &Outcome) -> f64 {
    outcome.hours - outcome.staging_hours
}

/// What the nodes cost in that time: the sources leave storage out.
fn usd(outcome: &Outcome) -> f64 {
    hours(outcome) * outcome.nodes_usd_hour
}

fn gb(outcome: &Outcome) -> f64 {
    outcome.supply_mb / 1e3
}

pub(super) fn rows(catalog: &Catalog) -> Vec<Row> {
    let asked = |case, id, demand| Asked { catalog, case, id, demand };
    let beeond = asked("nag-cosmoflow-beeond", "ondemand/own-disks/azure.blob.hot", cosmoflow());
    let premium = asked("nag-cosmoflow-premium-blob", "azure.blob.premium/blobfuse", cosmoflow());
    let hot = asked("nag-cosmoflow-hot-blob", "azure.blob.hot/blobfuse", cosmoflow());
    let staging = asked("nag-staging", "ondemand/own-disks/azure.blob.hot", cosmoflow());
    let sweep = asked("nag-beeond-elbencho", "ondemand/own-disks/azure.blob.hot", elbencho(16e6));
    let minutes = |outcome: &Outcome| outcome.staging_hours * 60.0;
    let mut rows = vec![
        beeond.row("hours", 11.5, HOURS, "the source's 15 minutes are rounded: 48 of them are 12 hours", hours),
        beeond.row("USD of the nodes", 1200.0, USD, "", usd),
        premium.row("hours", 60.0, HOURS, "", hours),
        premium.row(
            "USD of the nodes",
            7000.0,
            USD,
            "60 hours of these nodes are 6,345 USD: the source rounds up",
            usd,
        ),
        hot.row("hours", 110.0, HOURS, "", hours),
        hot.row("USD of the nodes", 12_000.0, USD, "", usd),
        staging.row(
            "minutes of the copy",
            35.0,
            HOURS,
            "the compressed copy took 13 minutes: it was bound by unpacking",
            minutes,
        ),
        sweep.row("GB/s of large files", 10.0, SPEED, "15 at best", gb),
    ];
    rows.extend(rescale(catalog));
    rows
}

fn rescale(catalog: &Catalog) -> Vec<Row> {
    let asked = |case, id, demand| Asked { catalog, case, id, demand };
    let disk = |id, accelerators, node| asked("rescale-disks-resnet50", id, images(node, accelerators, 525.0));
    let rate = |demand: &Demand| {
        let ideal = demand.mb() / 0.1;
        move |outcome: &Outcome| ideal.min(outcome.supply_mb / 0.1)
    };
    let gp2 = disk("cases.disk.gp2/disk/from-cases.gcs", 4, "cases.4xV100");
    let eight = disk("cases.disk.io1/disk/from-cases.gcs", 8, "cases.8xV100");
    let gcs = asked("rescale-gcs-32p100", "cases.gcs/rest", images("cases.4xP100", 32, 937.5));
    let hdfs2 = asked("rescale-hdfs-2-datanodes", "hdfs.nodesx2/hdfs", images("cases.8xV100", 64, 1e4));
    let hdfs4 = asked("rescale-hdfs-4-datanodes", "hdfs.nodesx4/hdfs", images("cases.8xV100", 64, 1e4));
    let per_second =
        |asked: &Asked, published, note| asked.row("images/s", published, SPEED, note, rate(&asked.demand));
    let mut scale = eight.row(
        "images/s of 8 V100 on io1",
        525.0 * 4.0 * 1.75,
        SPEED,
        "1.75 times what 4 reach: the rest is lost in training, not in storage",
        rate(&eight.demand),
    );
    scale.returned = None;
    vec![
        Row { quantity: "images/s of 4 V100 on gp2", ..per_second(&gp2, 1600.0, "160 MB/s of images of 100 KB") },
        scale,
        gcs.row("GB/s", 3.0, SPEED, "no limit was met", |outcome| gb(outcome).min(3.0)),
        per_second(&hdfs2, 25_000.0, ""),
        per_second(&hdfs4, 48_000.0, "storage was no longer the limit: the true one lies above"),
    ]
}

/// Which limit each source names.
pub(super) fn named(catalog: &Catalog) -> Vec<Named> {
    let asked = |case, id, demand| Asked { catalog, case, id, demand };
    let disk = |id, accelerators, node| asked("rescale-disks-resnet50", id, images(node, accelerators, 525.0));
    let sweep = |bytes| asked("nag-beeond-elbencho", "ondemand/own-disks/azure.blob.hot", elbencho(bytes));
    let disks = "disks of the nodes";
    let s3 = Demand { unverified: true, ..images("cases.8xV100", 8, 525.0) };
    vec![
        sweep(256e3).binds("files of 256 KB", "metadata"),
        sweep(1e6).binds("files of 1 MB", "metadata"),
        sweep(4e6).binds("files of 4 MB", disks),
        sweep(64e6).binds("files of 64 MB", disks),
        disk("cases.disk.gp2/disk/from-cases.gcs", 4, "cases.4xV100").binds("gp2, 4 V100", "service bandwidth"),
        disk("cases.disk.st1/disk/from-cases.gcs", 4, "cases.4xV100").binds("st1, 4 V100", "requests"),
        disk("cases.disk.io1/disk/from-cases.gcs", 8, "cases.8xV100").binds("io1, 8 V100", "none"),
        disk("cases.disk.azure_premium/disk/from-cases.gcs", 4, "cases.4xV100")
            .binds("Azure premium disk, 4 V100", "none"),
        disk("cases.disk.pd_ssd/disk/from-cases.gcs", 8, "cases.8xV100").binds("PD SSD, 8 V100", "none"),
        asked("rescale-gcs-32p100", "cases.gcs/rest", images("cases.4xP100", 32, 937.5))
            .binds("Cloud Storage, 32 P100", "none"),
        asked("rescale-s3-throttled", "cases.s3/rest", s3).binds("S3, 8 V100", "requests"),
    ]
}
