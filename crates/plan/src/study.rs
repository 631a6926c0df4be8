//! The figures of a study of storage cost, for any catalogue: limits of all services, speed and latency by file size and
//! threads, cost at a size, and speed for money.
//!
//! Four nodes, or any other number, read files of one size as fast as they come. Listed limits alone: the study's own
//! measurements were published as pictures. Invariants: the request rate is what the speed needs, never the highest there
//! is; a provisioned service is bought at the size of its best speed.

use serde::Serialize;

use crate::catalog::quantity::{GIB, Of, Scope};
use crate::catalog::{Catalog, Class, Client, Method, Service};
use crate::demand::Demand;
use crate::luck::Luck;
use crate::money::Prices;
use crate::nodes::{Nodes, trusted};
use crate::supply::{Cap, Reader, least};

/// File sizes, MB, and threads of each node.
pub const FILES_MB: [f64; 6] = [0.1, 0.25, 1.0, 4.0, 16.0, 64.0];
pub const THREADS: [f64; 5] = [1.0, 4.0, 16.0, 64.0, 128.0];
/// Sizes of the data, TB.
pub const DATA_TB: [f64; 2] = [100.0, 10.0];

/// How fast one service is for one kind of files.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    pub service: String,
    pub client: String,
    pub file_mb: f64,
    pub threads_of_node: f64,
    pub mb_per_s: f64,
    /// From the open to the last byte of a file.
    pub latency_ms: f64,
    pub binding_limit: &'static str,
}

/// What one service costs while it gives its best.
#[derive(Clone, Debug, Serialize)]
pub struct Value {
    pub service: String,
    pub client: String,
    pub data_tb: f64,
    pub file_mb: f64,
    pub mb_per_s: f64,
    pub usd_per_hour: f64,
    pub mb_per_s_per_usd_hour: f64,
}

/// One limit of one service.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    pub service: String,
    pub limit: &'static str,
    pub scope: Scope,
    pub value: f64,
    pub grows_per_tib: f64,
    pub cap: Option<f64>,
    pub confidence: crate::figure::Confidence,
    pub source: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Study {
    pub nodes: f64,
    pub node: String,
    pub limits: Vec<Listed>,
    pub speeds: Vec<Speed>,
    pub values: Vec<Value>,
}

impl Study {
    /// Over what a catalogue has of the provider of these nodes.
    pub fn of(catalog: &Catalog, nodes: &Nodes) -> Study {
        let of_provider = |service: &&Service| service.provider == nodes.node.provider && service.class != Class::Disk;
        let mut study = Study {
            nodes: nodes.count,
            node: nodes.node.id.clone(),
            limits: limits(catalog),
            speeds: Vec::new(),
            values: Vec::new(),
        };
        for service in catalog.services.iter().filter(of_provider) {
            let reads = |client: &&Client| {
                client.reads(service) && !matches!(client.method, Method::Copy | Method::Stoker | Method::Ondemand)
            };
            for client in catalog.clients.iter().filter(reads) {
                for file_mb in FILES_MB {
                    study
                        .speeds
                        .extend(THREADS.iter().filter_map(|threads| speed(nodes, service, client, file_mb, *threads)));
                    study.values.extend(DATA_TB.iter().filter_map(|tb| value(nodes, service, client, file_mb, *tb)));
                }
            }
        }
        study
    }

    pub fn speed(&self, service: &str, client: &str, file_mb: f64) -> Option<f64> {
        let found = self
            .speeds
            .iter()
            .filter(|speed| speed.service == service && speed.client == client && speed.file_mb == file_mb);
        found.map(|speed| speed.mb_per_s).max_by(f64::total_cmp)
    }

    pub fn value(&self, service: &str, client: &str, file_mb: f64, data_tb: f64) -> Option<f64> {
        let is = |value: &&Value| {
            value.service == service && value.client == client && value.file_mb == file_mb && value.data_tb == data_tb
        };
        self.values.iter().find(is).map(|value| value.mb_per_s_per_usd_hour)
    }
}

fn limits(catalog: &Catalog) -> Vec<Listed> {
    let of = |service: &Service| {
        let id = service.id.clone();
        service
            .limits
            .iter()
            .map(move |limit| Listed {
                service: id.clone(),
                limit: limit.of.name(),
                scope: limit.scope,
                value: limit.figure.value.likely,
                grows_per_tib: limit.slope * 1024.0,
                cap: limit.cap,
                confidence: limit.figure.origin.confidence,
                source: limit.figure.origin.source.clone(),
            })
            .collect::<Vec<_>>()
    };
    catalog.services.iter().flat_map(of).collect()
}

/// A demand that asks for files of a size and never computes.
fn demand(nodes: &Nodes, file_mb: f64, data_tb: f64, threads: f64) -> Demand {
    let accelerators = (nodes.count * f64::from(nodes.node.accelerators.max(1))) as u32;
    let mut demand = Demand::new(&nodes.node.accelerator, accelerators, 1e9, file_mb * 1e6, data_tb * 1e6 / file_mb);
    demand.streams = threads * nodes.count / f64::from(accelerators);
    demand
}

/// A service at the size at which it is fastest, or that of the data.
struct Best {
    caps: Vec<Cap>,
    gib: f64,
    bought: (f64, f64),
    request_mb: f64,
}

/// None where one of its limits is not known.
fn best(nodes: &Nodes, service: &Service, client: &Client, demand: &Demand) -> Option<Best> {
    let gib = largest(service, demand);
    let bought = |of: Of| {
        let limit = trusted(service.limit(of, Scope::Service, &client.id), demand).filter(|limit| limit.is_bought);
        limit.map_or(0.0, |limit| limit.figure.value.likely)
    };
    let bought = (bought(Of::Bandwidth), bought(Of::Requests));
    let (units, luck, share) = (1.0, Luck::LIKELY, 1.0);
    let reader = Reader { service, client, demand, nodes, units, gib, bought, luck, share };
    let is_known = reader.unknown().is_empty();
    is_known.then(|| Best { caps: reader.caps(), gib, bought, request_mb: reader.request_mb() })
}

fn largest(service: &Service, demand: &Demand) -> f64 {
    let data = demand.dataset_bytes / GIB;
    if service.class == Class::Object {
        return data;
    }
    let growing = service.limits.iter().filter(|limit| limit.slope > 0.0 && limit.of == Of::Bandwidth);
    let at_cap =
        growing.filter_map(|limit| Some((limit.cap? - limit.figure.value.likely) / limit.slope)).fold(data, f64::max);
    let at_cap = service.max_gib.map_or(at_cap, |most| at_cap.min(most.max(data)));
    at_cap.max(service.min_gib)
}

fn speed(nodes: &Nodes, service: &Service, client: &Client, file_mb: f64, threads: f64) -> Option<Speed> {
    let demand = demand(nodes, file_mb, DATA_TB[0], threads);
    let best = best(nodes, service, client, &demand)?;
    let (first, _) = least(&best.caps);
    let first = first?;
    // What is in flight over what comes through: Little's law again.
    let latency_ms = threads * nodes.count * file_mb / first.mb * 1e3;
    Some(Speed {
        service: service.id.clone(),
        client: client.id.clone(),
        file_mb,
        threads_of_node: threads,
        mb_per_s: first.mb,
        latency_ms,
        binding_limit: first.name,
    })
}

fn value(nodes: &Nodes, service: &Service, client: &Client, file_mb: f64, data_tb: f64) -> Option<Value> {
    let demand = demand(nodes, file_mb, data_tb, THREADS[THREADS.len() - 1]);
    let prices = Prices::likely(service, &demand);
    if !prices.reasons(&[]).is_empty() {
        return None;
    }
    let Best { caps, gib, bought, request_mb } = best(nodes, service, client, &demand)?;
    let mb_per_s = least(&caps).0?.mb;
    let read = mb_per_s * 3600.0;
    let usd = prices.held(gib, bought.0, bought.1) + prices.reads(read / request_mb) + prices.read_bytes(read * 1e6);
    (usd > 0.0).then(|| Value {
        service: service.id.clone(),
        client: client.id.clone(),
        data_tb,
        file_mb,
        mb_per_s,
        usd_per_hour: usd,
        mb_per_s_per_usd_hour: mb_per_s / usd,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::shipped::SHIPPED;

    fn azure() -> Study {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let node = catalog.nodes.iter().find(|node| node.id == "azure.ND40rs_v2").unwrap();
        Study::of(&catalog, &Nodes { node, count: 4.0, home: &node.region, price: None })
    }

    const HOT: (&str, &str) = ("azure.blob.hot", "blobfuse");
    const PREMIUM: (&str, &str) = ("azure.blob.premium", "blobfuse");
    const NFS: (&str, &str) = ("azure.blob-hns.hot", "blob-nfs");
    const FILES: (&str, &str) = ("azure.files.premium", "nfs");

    #[test]
    fn what_nobody_verified_is_not_drawn() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let node = catalog.nodes.iter().find(|node| node.id == "aws.p4d.24xlarge").unwrap();
        let study = Study::of(&catalog, &Nodes { node, count: 4.0, home: &node.region, price: None });
        assert!(study.speed("aws.s3.standard", "rest", 16.0).is_some());
        assert!(study.speed("aws.s3.express", "rest", 16.0).is_none());
        assert!(study.value("aws.s3.express", "rest", 16.0, 100.0).is_none());
    }

    #[test]
    fn blob_is_above_files_for_large_files() {
        let study = azure();
        for file_mb in [4.0, 16.0, 64.0] {
            let files = study.speed(FILES.0, FILES.1, file_mb).unwrap();
            assert!(study.speed(HOT.0, HOT.1, file_mb).unwrap() > files);
            assert!(study.speed(PREMIUM.0, PREMIUM.1, file_mb).unwrap() > files);
        }
    }

    #[test]
    fn blobfuse_is_above_nfs_and_more_so_for_larger_files() {
        let study = azure();
        let gap = |file_mb| study.speed(HOT.0, HOT.1, file_mb).unwrap() / study.speed(NFS.0, NFS.1, file_mb).unwrap();
        assert!(gap(16.0) > 1.0 && gap(64.0) > 1.0);
        assert!(FILES_MB.windows(2).all(|sizes| gap(sizes[0]) <= gap(sizes[1]) + 1e-9), "{:?}", FILES_MB.map(gap));
    }

    #[test]
    fn hot_blob_is_the_best_value_at_100_tb() {
        let study = azure();
        for file_mb in FILES_MB {
            let hot = study.value(HOT.0, HOT.1, file_mb, 100.0).unwrap();
            for (service, client) in [PREMIUM, FILES, NFS] {
                let other = study.value(service, client, file_mb, 100.0).unwrap();
                assert!(hot > other, "{file_mb} MB: {hot} against {other} of {service}");
            }
        }
    }

    #[test]
    fn premium_blob_closes_in_at_10_tb_and_premium_files_cost_as_at_100() {
        let study = azure();
        for file_mb in [1.0, 4.0, 16.0] {
            let ahead = |tb| {
                study.value(HOT.0, HOT.1, file_mb, tb).unwrap()
                    / study.value(PREMIUM.0, PREMIUM.1, file_mb, tb).unwrap()
            };
            assert!(ahead(10.0) < ahead(100.0));
        }
        let files = |tb| study.value(FILES.0, FILES.1, 16.0, tb).unwrap();
        assert!((files(10.0) / files(100.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_article_s_own_rule_does_not_give_its_ranking() {
        // At the highest request rate hot costs more than premium Files, which docs/planner.md explains.
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let demand = Demand::new("V100", 32, 1.0, 1e6, 1e8);
        let hourly = |id: &str, rate: f64| {
            let service = catalog.services.iter().find(|service| service.id == id).unwrap();
            let prices = Prices::likely(service, &demand);
            prices.held(demand.dataset_bytes / GIB, 0.0, 0.0) + prices.reads(rate * 3600.0)
        };
        let (hot, premium) = (hourly("azure.blob.hot", 20e3), hourly("azure.blob.premium", 20e3));
        assert!((hot - 34.3).abs() < 0.3 && (premium - 38.0).abs() < 2.0, "{hot} {premium}");
        assert!(hot > hourly("azure.files.premium", 0.0));
    }
}
