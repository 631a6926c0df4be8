//! Which catalogues a plan is made of: what is shipped, and files over it.
//!
//! Invariant: a file says by its layer what it may replace.

use std::path::{Path, PathBuf};

use ::plan::catalog::Catalog;
use ::plan::catalog::layers::Source;
use ::plan::catalog::shipped::SHIPPED;
use ::plan::figure::Layer;
use anyhow::Result;
use block::Error;
use report::Report;

use super::wrong;

const LAYERS: [(&str, Layer); 3] =
    [("refreshed", Layer::Refreshed), ("site", Layer::Site), ("measured", Layer::Measured)];

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Catalogue")]
pub struct Layers {
    /// File over the shipped catalogue, as layer refreshed, site or measured: refreshed=prices.toml; without a name site
    #[arg(long = "catalog", value_name = "[LAYER=]FILE")]
    overlays: Vec<String>,
    /// What was measured on a service through a client: azure.blob.hot/blobfuse=run.json, a report of `stoker bench train`
    #[arg(long = "supply", value_name = "SERVICE/CLIENT=REPORT.json")]
    supplies: Vec<String>,
}

impl Layers {
    pub fn catalog(&self) -> Result<Catalog> {
        let mut texts: Vec<(Layer, String, String)> = Vec::new();
        for file in &self.overlays {
            let (layer, path) = match file.split_once('=') {
                Some((name, path)) => (layer(name, file)?, path),
                None => (Layer::Site, file.as_str()),
            };
            texts.push((layer, path.to_owned(), read(Path::new(path))?));
        }
        for supply in &self.supplies {
            texts.push((Layer::Measured, supply.clone(), measured(supply)?));
        }
        let over = texts.iter().map(|(layer, place, text)| Source { layer: *layer, place, text });
        Catalog::of(&SHIPPED.into_iter().chain(over).collect::<Vec<_>>()).map_err(wrong)
    }
}

fn layer(name: &str, typed: &str) -> Result<Layer> {
    let known = LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer);
    let error = || Error::invalid(format!("there is no layer `{name}`"), format!("--catalog {typed}"));
    Ok(known.ok_or_else(|| error().hint("refreshed, site or measured"))?)
}

pub fn read(path: &Path) -> Result<String> {
    let failed = |error| crate::bench::named(Error::io("cannot read the file", path.display(), &error));
    Ok(std::fs::read_to_string(path).map_err(failed)?)
}

/// A report as a layer: the mean bandwidth of its epochs, through that client, with so many nodes.
fn measured(typed: &str) -> Result<String> {
    let refused =
        |what: &str| Error::invalid(what, format!("--supply {typed}")).hint("azure.blob.hot/blobfuse=run.json");
    let (of, path) = typed.split_once('=').ok_or_else(|| refused("this names no report"))?;
    let (service, client) = of.split_once('/').ok_or_else(|| refused("this names no service and client"))?;
    let is_id = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if !is_id(service) || !is_id(client) {
        return Err(refused("this is no service with a client").into());
    }
    let report = Report::open(&PathBuf::from(path)).map_err(crate::bench::named)?;
    let rates: Vec<f64> = report.epochs.iter().map(|epoch| epoch.bytes_per_second).filter(|rate| *rate > 0.0).collect();
    if rates.is_empty() {
        return Err(refused("nothing was read in this report").into());
    }
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min) / 1e6;
    let most = rates.iter().copied().fold(0.0, f64::max) / 1e6;
    let mean = rates.iter().sum::<f64>() / rates.len() as f64 / 1e6;
    let mut nodes: Vec<&str> =
        report.epochs.iter().flat_map(|epoch| &epoch.processes).map(|process| process.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let clients = nodes.len().max(1);
    let provider = service.split('.').next().unwrap_or(service);
    Ok(format!(
        "provider = \"{provider}\"\nversion = \"measured\"\ncurrency = \"USD\"\n[[source]]\nid = \"bench\"\ntitle = \"stoker bench train\"\nkind = \"measured\"\n[[service]]\nid = \"{service}\"\nlimits = [{{ of = \"bandwidth\", client = \"{client}\", unit = \"MB/s\", value = {mean:?}, low = {least:?}, high = {most:?}, clients = {clients}, source = \"bench\", confidence = \"high\" }}]\n"
    ))
}
