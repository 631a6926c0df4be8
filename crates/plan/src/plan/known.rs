//! Whether the words of a demand are those of the catalogue, and fit each other.
//!
//! Invariant: an error names the field, and what is known.

use crate::catalog::Catalog;
use crate::catalog::quantity::Charge;
use crate::demand::Demand;
use crate::nodes::is_called;
use crate::wrong::{Result, Wrong};

pub(super) fn check(catalog: &Catalog, demand: &Demand) -> Result<()> {
    if catalog.services.is_empty() {
        let hint = "the shipped catalogue, or one of your own with services";
        return Err(Wrong::new("there is no service in it", "the catalogue", "service", hint));
    }
    region(catalog, "region", demand.region.as_deref())?;
    region(catalog, "data-region", demand.data.region.as_deref())?;
    if let Some(zone) = &demand.data.zone {
        let of_zone = demand.data.region().filter(|region| regions(catalog).contains(region));
        let known = regions(catalog).join(", ");
        let hint = format!("a region with what tells its zones apart, as us-east-1a or westus-2; regions: {known}");
        let what = format!("no region of a zone `{zone}` is known");
        of_zone.ok_or_else(|| Wrong::new(what, "the demand", "data-zone", hint))?;
    }
    let of = |what: String, field: &str, known: Vec<&str>| Wrong::new(what, "the demand", field, listed(known));
    let accelerators = || catalog.nodes.iter().filter(|node| node.accelerators > 0);
    if let Some(id) = &demand.node {
        let Some(node) = accelerators().find(|node| node.id == *id) else {
            let ids = accelerators().map(|node| node.id.as_str()).collect();
            return Err(of(format!("no node `{id}` with accelerators is known"), "node", ids));
        };
        if !is_called(&node.accelerator, &demand.accelerator) {
            let what = format!("{id} has {}, and the accelerator is {}", node.accelerator, demand.accelerator);
            let hint = format!("--accelerator {}, or another node", short(&node.accelerator));
            return Err(Wrong::new(what, "the demand", "node", hint));
        }
    }
    if !accelerators().any(|node| is_called(&node.accelerator, &demand.accelerator)) {
        let names = accelerators().map(|node| short(&node.accelerator)).collect();
        return Err(of(format!("no node with `{}` is known", demand.accelerator), "accelerator", names));
    }
    Ok(())
}

/// As it is called without the size of its memory: by that, workloads know how fast it is.
fn short(accelerator: &str) -> &str {
    accelerator.split('-').next().unwrap_or(accelerator)
}

fn region(catalog: &Catalog, field: &str, region: Option<&str>) -> Result<()> {
    let Some(region) = region else { return Ok(()) };
    let known = regions(catalog);
    match known.contains(&region) {
        true => Ok(()),
        false => {
            let what = format!("no price of a region `{region}` is known");
            let hint = format!("{}; of another, import a price list (`stoker plan catalog import`)", listed(known));
            Err(Wrong::new(what, "the demand", field, hint))
        }
    }
}

/// For which regions prices are known: of nodes with these accelerators, and of services.
pub fn priced(catalog: &Catalog, demand: &Demand) -> (String, String) {
    let nodes = catalog.nodes.iter().filter(|node| is_called(&node.accelerator, &demand.accelerator));
    let of_nodes = nodes.flat_map(|node| &node.prices).map(|price| price.region.as_str());
    let held = catalog.services.iter().flat_map(|service| &service.prices).filter(|price| price.of == Charge::Capacity);
    let of_services = held.map(|price| price.region.as_str());
    (listed(of_nodes.collect()), listed(of_services.collect()))
}

/// All regions of which a price is known.
fn regions(catalog: &Catalog) -> Vec<&str> {
    let of_services = catalog.services.iter().flat_map(|service| &service.prices);
    let of_nodes = catalog.nodes.iter().flat_map(|node| &node.prices);
    let mut regions: Vec<&str> = of_services.chain(of_nodes).map(|price| price.region.as_str()).collect();
    regions.sort_unstable();
    regions.dedup();
    regions
}

fn listed(mut words: Vec<&str>) -> String {
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}
