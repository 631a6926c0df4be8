//! Texts of a catalogue over each other: shipped, refreshed, site, measured.
//!
//! Invariants: a figure of a later layer replaces that of an earlier one, and nothing else; what only an overlay knows is
//! added; a service, node or client is complete, or an error says what it lacks.

use super::quantity::Charge;
use super::read::{self, ClientText, NodeText, ServiceText};
use super::{Attach, Catalog, Class, Client, Limit, Node, Part, Price, Service};
use crate::figure::Layer;
use crate::wrong::{Result, Wrong};

/// A text, its name in errors, and which layer it is of.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub layer: Layer,
    pub place: &'a str,
    pub text: &'a str,
}

/// More entries are a mistake, or an attack.
const ENTRIES_MAX: usize = 20_000;

impl Catalog {
    /// All texts, in the order of their layers; within a layer a later text replaces an earlier one.
    pub fn of(sources: &[Source]) -> Result<Catalog> {
        let mut sources: Vec<&Source> = sources.iter().collect();
        sources.sort_by_key(|source| source.layer);
        let mut catalog = Catalog::default();
        for source in sources {
            let text = read::text(source.place, source.layer, source.text)?;
            for service in text.services {
                catalog.lay_service(service, &text.provider)?;
            }
            for node in text.nodes {
                catalog.lay_node(node, &text.provider)?;
            }
            text.clients.into_iter().try_for_each(|client| catalog.lay_client(client))?;
            let Source { layer, place, .. } = *source;
            let (provider, version) = (text.provider, text.version);
            catalog.parts.push(Part { place: place.to_owned(), provider, version, layer });
        }
        let entries = catalog.services.len() + catalog.nodes.len() + catalog.clients.len();
        if entries > ENTRIES_MAX {
            let what = format!("{entries} entries are too many");
            return Err(Wrong::new(what, "the catalogue", "", format!("at most {ENTRIES_MAX}")));
        }
        Ok(catalog)
    }

    fn lay_service(&mut self, text: ServiceText, provider: &str) -> Result<()> {
        if let Some(known) = self.services.iter_mut().find(|known| known.id == text.id) {
            set(&mut known.name, text.name);
            set(&mut known.class, text.class);
            set(&mut known.attach, text.attach);
            set(&mut known.charges, text.charges);
            charged(known.class, &known.charges, &text.place)?;
            set(&mut known.min_gib, text.min_gib);
            set(&mut known.step_gib, text.step_gib);
            set(&mut known.min_days, text.min_days);
            set(&mut known.min_object_kib, text.min_object_kib);
            set(&mut known.is_zonal, text.is_zonal);
            known.max_gib = text.max_gib.or(known.max_gib);
            known.note = text.note.or(known.note.take());
            lay_prices(&mut known.prices, text.prices);
            lay_limits(&mut known.limits, text.limits);
            return sizes(known, &text.place);
        }
        let service = whole_service(text, provider)?;
        self.services.push(service);
        Ok(())
    }

    fn lay_node(&mut self, text: NodeText, provider: &str) -> Result<()> {
        if let Some(known) = self.nodes.iter_mut().find(|known| known.id == text.id) {
            known.accelerators = text.accelerators.map_or(known.accelerators, |count| count as u32);
            set(&mut known.accelerator, text.accelerator);
            set(&mut known.cores, text.cores);
            lay_prices(&mut known.prices, text.prices);
            lay_limits(&mut known.limits, text.limits);
            return Ok(());
        }
        let lacks = |field: &str| lacks(&text.place, field);
        self.nodes.push(Node {
            accelerators: text.accelerators.ok_or_else(|| lacks("accelerators"))? as u32,
            accelerator: text.accelerator.unwrap_or_default(),
            cores: text.cores.unwrap_or(0.0),
            id: text.id,
            provider: provider.to_owned(),
            region: text.region,
            prices: text.prices,
            limits: text.limits,
        });
        Ok(())
    }

    fn lay_client(&mut self, text: ClientText) -> Result<()> {
        if let Some(known) = self.clients.iter_mut().find(|known| known.id == text.id) {
            set(&mut known.name, text.name);
            set(&mut known.method, text.method);
            known.services.extend(text.services);
            known.grants.extend(text.grants);
            lay_limits(&mut known.limits, text.limits);
            known.observed.extend(text.observed);
            return Ok(());
        }
        self.clients.push(Client {
            method: text.method.ok_or_else(|| lacks(&text.place, "method"))?,
            name: text.name.unwrap_or_else(|| text.id.clone()),
            id: text.id,
            services: text.services.into_iter().collect(),
            grants: text.grants,
            limits: text.limits,
            observed: text.observed,
        });
        Ok(())
    }
}

fn set<T>(known: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *known = said;
    }
}

fn lacks(place: &str, field: &str) -> Wrong {
    let hint = "a new entry has all of its kind; if a known one is meant, is its id misspelt? `stoker plan catalog list` has them";
    Wrong::new("something is missing, and no entry of this id is known", place, field, hint)
}

fn whole_service(text: ServiceText, provider: &str) -> Result<Service> {
    let lacks = |field: &str| lacks(&text.place, field);
    let class = text.class.ok_or_else(|| lacks("class"))?;
    let charges = text.charges.ok_or_else(|| lacks("charges"))?;
    charged(class, &charges, &text.place)?;
    let service = Service {
        name: text.name.unwrap_or_else(|| text.id.clone()),
        class,
        attach: text.attach.unwrap_or(if class == Class::Disk { Attach::One } else { Attach::Many }),
        charges,
        min_gib: text.min_gib.unwrap_or(0.0),
        step_gib: text.step_gib.unwrap_or(1.0),
        max_gib: text.max_gib,
        min_days: text.min_days.unwrap_or(0.0),
        min_object_kib: text.min_object_kib.unwrap_or(0.0),
        is_zonal: text.is_zonal.unwrap_or(false),
        region: text.region,
        prices: text.prices,
        limits: text.limits,
        note: text.note,
        provider: provider.to_owned(),
        id: text.id,
    };
    sizes(&service, &text.place)?;
    Ok(service)
}

/// What every service of a class charges.
fn charged(class: Class, charges: &[Charge], place: &str) -> Result<()> {
    let needed: &[Charge] = match class {
        Class::Object => &[Charge::Capacity, Charge::Read, Charge::Write],
        _ => &[Charge::Capacity],
    };
    match needed.iter().find(|charge| !charges.contains(charge)) {
        None => Ok(()),
        Some(charge) => {
            let name = charge.name();
            let hint = format!("`{name}` is charged by every service of this class; a free one has the price 0");
            Err(Wrong::new("a charge is missing", place, "charges", hint))
        }
    }
}

fn sizes(service: &Service, place: &str) -> Result<()> {
    match service.max_gib.is_some_and(|most| most < service.min_gib) {
        true => Err(Wrong::new("the largest size is below the smallest", place, "max-gib", "min-gib <= max-gib")),
        false => Ok(()),
    }
}

/// All tiers of a charge in a region come from one text: those of two lists don't fit together.
fn lay_prices(known: &mut Vec<Price>, said: Vec<Price>) {
    known.retain(|price| !said.iter().any(|new| new.of == price.of && new.region == price.region));
    known.extend(said);
}

fn lay_limits(known: &mut Vec<Limit>, said: Vec<Limit>) {
    let key = |limit: &Limit| (limit.of, limit.scope, limit.client.clone());
    known.retain(|limit| !said.iter().any(|new| key(new) == key(limit)));
    known.extend(said);
}
