//! `stoker plan catalog`: what is in the catalogues, what is doubtful in them, and a provider's price list as a layer.
//!
//! Invariant: nothing is fetched; a list is a file that the user downloaded.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::plan::catalog::Catalog;
use ::plan::catalog::quantity::{CHARGES, Charge};
use ::plan::figure::Figure;
use ::plan::import::{PROVIDERS, TEXT_BYTES_MAX, read as read_list};
use anyhow::Result;
use block::Error;

use super::layers::{Layers, read_up_to};
use super::{table, today, wrong};
use crate::chart::{Chart, Column, Table};
use crate::{place, print};

/// What an imported layer begins with.
const LAYER: &str = "# Prices imported";

#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// All services, nodes and clients
    List {
        #[command(flatten)]
        layers: Layers,
    },
    /// Everything that is known of one of them
    Show {
        /// Its id, as `list` has it
        id: String,
        #[command(flatten)]
        layers: Layers,
    },
    /// What is missing, unverified, undated or old
    Check {
        #[command(flatten)]
        layers: Layers,
    },
    /// Make a layer of a price list that you downloaded: AWS's offer file, Azure's retail prices, Google's billing catalogue
    Import {
        /// Whose list it is: aws, azure, gcp
        provider: String,
        /// The list, as JSON
        list: PathBuf,
        /// Where the layer goes: use it by `--catalog refreshed=FILE`
        #[arg(long, value_name = "FILE.toml")]
        out: PathBuf,
    },
}

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List { layers } => list(&layers.catalog()?)?,
        Command::Show { id, layers } => show(&layers.catalog()?, id)?,
        Command::Check { layers } => check(&layers.catalog()?)?,
        Command::Import { provider, list, out } => import(provider, list, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table(title: &str, columns: Vec<Column>, rows: Vec<Vec<String>>) -> Result<()> {
    let chart = Chart { title: title.into(), table: Table { columns, rows }, ..Chart::default() };
    print::out(format_args!("\n{}", chart.text(&table::style())))
}

fn list(catalog: &Catalog) -> Result<()> {
    let services = catalog.services.iter().map(|service| {
        let price = service.prices(Charge::Capacity, None).first().map_or("unknown".to_owned(), |price| {
            let month = price.figure.value.likely * ::plan::catalog::quantity::MONTH_HOURS;
            let doubt = if price.figure.is_trusted(false) { "" } else { " (unverified)" };
            format!("{month:.4}{doubt}")
        });
        let clients = catalog.clients.iter().filter(|client| client.reads(service)).map(|client| client.id.as_str());
        vec![service.id.clone(), service.region.clone(), price, clients.collect::<Vec<_>>().join(" ")]
    });
    let columns =
        vec![Column::left("service"), Column::left("region"), Column::right("$ a GiB-month"), Column::left("clients")];
    print_table("Services", columns, services.collect())?;
    let nodes = catalog.nodes.iter().map(|node| {
        let price = node.price(None).map_or("unknown".to_owned(), |price| {
            let doubt = if price.figure.is_trusted(false) { "" } else { " (unverified)" };
            format!("{:.3}{doubt}", price.figure.value.likely)
        });
        vec![node.id.clone(), node.region.clone(), node.accelerators.to_string(), node.accelerator.clone(), price]
    });
    let columns = vec![
        Column::left("node"),
        Column::left("region"),
        Column::right("accelerators"),
        Column::left("of"),
        Column::right("$ an hour"),
    ];
    print_table("Nodes", columns, nodes.collect())?;
    for part in &catalog.parts {
        say!("  {}: {} of {}, layer {}", part.place, part.version, part.provider, part.layer.name())?;
    }
    Ok(())
}

fn show(catalog: &Catalog, id: &str) -> Result<()> {
    let service = catalog.services.iter().find(|service| service.id == id);
    let node = catalog.nodes.iter().find(|node| node.id == id);
    let client = catalog.clients.iter().find(|client| client.id == id);
    let (prices, limits) = match (service, node, client) {
        (Some(service), ..) => (&service.prices[..], &service.limits[..]),
        (_, Some(node), _) => (&node.prices[..], &node.limits[..]),
        (.., Some(client)) => (&[][..], &client.limits[..]),
        _ => {
            let error = Error::invalid("there is nothing of this id", id);
            return Err(error.hint("`stoker plan catalog list` has them all").into());
        }
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for price in prices {
        let tier = if price.from_gib > 0.0 { format!(" from {} GiB", price.from_gib) } else { String::new() };
        rows.push(figure(&format!("price of {}, {}{tier}", price.of.name(), price.region), &price.figure));
    }
    for limit in limits {
        let scope = format!("{:?}", limit.scope).to_lowercase();
        let grows = if limit.slope > 0.0 { format!(" + {} a TiB", limit.slope * 1024.0) } else { String::new() };
        rows.push(figure(&format!("limit of {}, {scope}{grows}", limit.of.name()), &limit.figure));
    }
    for observed in client.into_iter().flat_map(|client| &client.observed) {
        rows.push(figure(&format!("reached on {} ({})", observed.service, observed.case), &observed.figure));
    }
    let names = ["figure", "value", "low", "high", "layer", "confidence", "date", "source"];
    let columns = names
        .iter()
        .enumerate()
        .map(|(at, name)| if (1..4).contains(&at) { Column::right(*name) } else { Column::left(*name) });
    print_table(id, columns.collect(), rows)?;
    let units = "  Units: USD a GiB and hour, a request, a GiB, an hour; MB/s; requests a second; ms; GiB.";
    say!("{units}")
}

fn figure(name: &str, figure: &Figure) -> Vec<String> {
    let number = |value: f64| if value != 0.0 && value < 0.01 { format!("{value:.3e}") } else { table::number(value) };
    let origin = &figure.origin;
    vec![
        name.to_owned(),
        number(figure.value.likely),
        number(figure.value.low),
        number(figure.value.high),
        origin.layer.name().to_owned(),
        format!("{:?}", origin.confidence).to_lowercase(),
        origin.date.map_or("undated".to_owned(), |date| date.to_string()),
        origin.source.clone(),
    ]
}

fn check(catalog: &Catalog) -> Result<()> {
    let doubts = catalog.check(today());
    for doubt in &doubts {
        say!("{}, {}: {}", doubt.entry, doubt.field, doubt.what)?;
    }
    say!("{}", crate::show::count_of(doubts.len() as u64, "doubt"))
}

fn import(provider: &str, list: &Path, out: &Path) -> Result<()> {
    let known = PROVIDERS.iter().find(|(name, _)| *name == provider).map(|(_, provider)| *provider);
    let error = || Error::invalid(format!("there is no provider `{provider}`"), "stoker plan catalog import");
    let which = known.ok_or_else(|| error().hint("aws, azure, gcp"))?;
    place::can_be_written(&[(Some(out), LAYER)], [list])?;
    let imported = read_list(which, &list.display().to_string(), &read_up_to(list, TEXT_BYTES_MAX)?).map_err(wrong)?;
    let shipped = Layers::default().catalog()?;
    crate::report::replace(out, &imported.toml(provider, &format!("imported {}", today()), &shipped))?;
    if let Some(field) = imported.goes_on {
        note!(
            "stoker: warning: `{field}` in {} says that the list goes on, and the rest is missing: import all pages as one list, [PAGE, PAGE]",
            list.display()
        );
    }
    let charges = CHARGES.iter().filter(|(_, charge)| imported.found.iter().any(|found| found.charge == *charge));
    let charges: Vec<&str> = charges.map(|(name, _)| *name).collect();
    say!(
        "  {}: {} prices from {} products, {} of them not of the catalogue ({})",
        out.display(),
        imported.found.len(),
        imported.products,
        imported.unknown,
        charges.join(", ")
    )
}
