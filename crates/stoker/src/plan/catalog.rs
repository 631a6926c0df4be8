//! `stoker plan catalog`: what is in the catalogues, what is doubtful in them, and a provider's price list as a layer.
//!
//! Invariant: nothing is fetched; a list is a file that the user downloaded.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::plan::catalog::layers::Source;
use ::plan::catalog::quantity::{CHARGES, Charge};
use ::plan::catalog::shipped::SHIPPED;
use ::plan::catalog::{ATTACHES, CLASSES, Catalog, Class, Limit, Node, Price, Service};
use ::plan::figure::Figure;
use ::plan::figure::Layer;
use ::plan::import::{Imported, Known, PROVIDERS, read as read_list};
use anyhow::Result;
use block::Error;

use super::layers::{Layers, read_up_to};
use super::{table, today, wrong};
use crate::chart::{Chart, Column, Table};
use crate::{place, print};

/// Of what a list has two prices is told in so many lines.
const CONFLICTS_SHOWN: usize = 10;

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
        // What is free of it each month is not what it costs.
        let tiers = service.prices(Charge::Capacity, None);
        let price = tiers.iter().find(|price| price.figure.value.likely > 0.0).or(tiers.first());
        let price = price.map_or("unknown".to_owned(), |price| {
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
        rows.push(figure(&of_price(price), &price.figure));
    }
    rows.extend(limits.iter().map(|limit| figure(&of_limit(limit), &limit.figure)));
    for observed in client.into_iter().flat_map(|client| &client.observed) {
        rows.push(figure(&format!("reached on {} ({})", observed.service, observed.case), &observed.figure));
    }
    let names = ["figure", "value", "low", "high", "layer", "confidence", "date", "source"];
    let columns = names
        .iter()
        .enumerate()
        .map(|(at, name)| if (1..4).contains(&at) { Column::right(*name) } else { Column::left(*name) });
    print_table(id, columns.collect(), rows)?;
    let facts = service.into_iter().flat_map(of_service).chain(node.map(of_node));
    facts.into_iter().try_for_each(|line| say!("  {line}"))?;
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

/// What a service is, beside its figures.
fn of_service(service: &Service) -> Vec<String> {
    let charges: Vec<&str> = service.charges.iter().map(|charge| charge.name()).collect();
    let class = CLASSES.iter().find(|(_, class)| *class == service.class).map_or("", |(name, _)| name);
    let attach = ATTACHES.iter().find(|(_, attach)| *attach == service.attach).map_or("", |(name, _)| name);
    let place = if service.is_zonal { ", in one zone" } else { "" };
    let mut lines =
        vec![format!("{}: {class}, read by {attach}{place}", service.name), format!("charged: {}", charges.join(", "))];
    if service.class != Class::Object {
        let most = service.max_gib.map_or("any size".to_owned(), |most| format!("{most} GiB"));
        let (least, step) = (service.min_gib, service.step_gib);
        lines.push(format!("sold: {least} GiB at least, in multiples of {step} GiB, up to {most}"));
    }
    lines.extend((service.min_days > 0.0).then(|| format!("charged for {} days at least", service.min_days)));
    let small = service.min_object_kib;
    lines.extend((small > 0.0).then(|| format!("a file below {small} KiB is charged as one of {small} KiB")));
    lines.extend(service.note.clone());
    lines
}

/// What a node is, beside its figures.
fn of_node(node: &Node) -> String {
    let holds = match node.accelerators {
        0 => "no accelerator".to_owned(),
        count => format!("{count} x {}", node.accelerator),
    };
    let cores = if node.cores > 0.0 { format!(", {} cores", table::number(node.cores)) } else { String::new() };
    format!("{holds}{cores}, of {}", node.provider)
}

fn of_price(price: &Price) -> String {
    let mut text = format!("price of {}, {}", price.of.name(), price.region);
    if price.from_gib > 0.0 {
        text += &format!(" from {} GiB", table::number(price.from_gib));
    }
    if price.above > 0.0 {
        text += &format!(" above {}", table::number(price.above));
    }
    text
}

/// A limit as it is computed: with what it grows by, and between what.
fn of_limit(limit: &Limit) -> String {
    let number = table::number;
    let grows = limit.slope * 1024.0;
    let burst = limit.burst.map(|burst| {
        let (slope, credit) = (number(burst.slope * 1024.0), number(burst.credit_gib_per_gib));
        format!("burst + {slope} a TiB, credit of {credit} GiB a GiB")
    });
    let more = [
        limit.client.as_ref().map(|client| format!("through {client}")),
        (grows > 0.0).then(|| format!("+ {} a TiB", number(grows))),
        (limit.floor > 0.0).then(|| format!("from {}", number(limit.floor))),
        limit.cap.map(|cap| format!("up to {}", number(cap))),
        burst,
        limit.is_bought.then(|| "bought".to_owned()),
        limit.is_least.then(|| "at least".to_owned()),
        limit.doubles_minutes.map(|minutes| format!("doubles in {} minutes", number(minutes))),
        limit.clients.map(|clients| format!("measured with {} nodes", number(clients))),
    ];
    let more: Vec<String> = more.into_iter().flatten().collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
    format!("limit of {}, {}{more}", limit.of.name(), limit.scope.name())
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
    let shipped = Layers::default().catalog()?;
    let known = Known { catalog: &shipped, today: today() };
    let imported =
        read_list(which, &list.display().to_string(), &read_up_to(list, which.bytes_max())?, &known).map_err(wrong)?;
    warn(&imported, list);
    if imported.found.is_empty() {
        let what = format!("no price in it is of the catalogue{}", left(&imported));
        let hint = "a list of object storage, volumes or nodes; `stoker plan catalog list` has what is known";
        return Err(Error::invalid(what, list.display()).hint(hint).into());
    }
    let layer = imported.toml(provider, &format!("imported {}", today()), &shipped);
    // What the commands that use it would refuse is not written.
    let place = out.display().to_string();
    let over = Source { layer: Layer::Refreshed, place: &place, text: &layer };
    Catalog::of(&SHIPPED.into_iter().chain([over]).collect::<Vec<_>>()).map_err(wrong)?;
    crate::report::replace(out, &layer)?;
    let charges = CHARGES.iter().filter(|(_, charge)| imported.found.iter().any(|found| found.charge == *charge));
    let charges: Vec<&str> = charges.map(|(name, _)| *name).collect();
    say!(
        "  {}: {} prices from {} products ({}){}",
        out.display(),
        imported.found.len(),
        imported.products,
        charges.join(", "),
        left(&imported)
    )
}

/// What is missing in a list, and what contradicts itself.
fn warn(imported: &Imported, list: &Path) {
    if let Some(field) = imported.goes_on {
        note!(
            "stoker: warning: `{field}` in {} says that the list goes on, and the rest is missing: import all pages as one list, [PAGE, PAGE]",
            list.display()
        );
    }
    for conflict in imported.conflicts.iter().take(CONFLICTS_SHOWN) {
        note!("stoker: warning: left out, as the list has two prices of it: {conflict}");
    }
    let more = imported.conflicts.len().saturating_sub(CONFLICTS_SHOWN);
    if more > 0 {
        note!("stoker: warning: and {more} more of which the list has two prices");
    }
}

/// What was left out, and why.
fn left(imported: &Imported) -> String {
    let told = imported.left.iter().map(|(why, count)| {
        let (noun, why) = why.told();
        format!("; left out: {} {why}", crate::show::count_of(*count as u64, noun))
    });
    told.collect()
}
