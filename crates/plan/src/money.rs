//! What things cost: prices of a service as amounts are bought.
//!
//! Invariant: a price that is missing or unverified is a reason, never zero.

use serde::Serialize;

use crate::catalog::Service;
use crate::catalog::quantity::{Charge, GIB};
use crate::demand::Demand;
use crate::figure::Figure;
use crate::luck::Luck;

/// What a run costs, in USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Money {
    /// Accelerators while they compute, and while they wait for data.
    pub busy: f64,
    pub idle: f64,
    /// Accelerators while data are copied before the job.
    pub staging: f64,
    /// What is held or rented: capacity, speed that is bought, cache nodes.
    pub capacity: f64,
    pub requests: f64,
    /// Fees for bytes read and written.
    pub bytes: f64,
    /// Bytes from elsewhere, and between zones.
    pub egress: f64,
}

impl Money {
    pub fn total(&self) -> f64 {
        self.busy + self.idle + self.staging + self.storage()
    }

    /// All but the accelerators.
    pub fn storage(&self) -> f64 {
        self.capacity + self.requests + self.bytes + self.egress
    }
}

/// The prices of a service for a demand.
#[derive(Clone, Copy, Debug)]
pub struct Prices<'a> {
    pub service: &'a Service,
    pub demand: &'a Demand,
    /// Where it is; None: where its text has its prices.
    pub region: Option<&'a str>,
    /// Where in the range of each price, and by what all are multiplied.
    pub luck: Luck,
    pub factor: f64,
}

impl<'a> Prices<'a> {
    /// Likely ones, where its text has them.
    pub fn likely(service: &'a Service, demand: &'a Demand) -> Prices<'a> {
        Prices { service, demand, region: None, luck: Luck::LIKELY, factor: 1.0 }
    }

    fn region(&self) -> Option<&'a str> {
        self.region.or(self.demand.region.as_deref())
    }

    /// Why it can't be told what the service costs, if `also` is charged as well.
    pub fn reasons(&self, also: &[Charge]) -> Vec<String> {
        [self.lacks(&self.service.charges), self.lacks(also)].concat()
    }

    /// Why it can't be told what these cost.
    pub fn lacks(&self, charges: &[Charge]) -> Vec<String> {
        charges.iter().filter_map(|charge| self.missing(*charge, self.region())).collect()
    }

    fn missing(&self, charge: Charge, region: Option<&str>) -> Option<String> {
        let (id, name) = (&self.service.id, charge.name());
        let tiers = self.service.prices(charge, region);
        match tiers.first() {
            None => match region {
                Some(region) if self.service.prices.iter().any(|price| price.of == charge) => {
                    Some(format!("no price of {name} of {id} in {region} ({})", self.elsewhere(charge)))
                }
                _ => Some(format!("no price of {name} of {id} is known")),
            },
            Some(tier) if tier.from_gib > 0.0 => {
                Some(format!("the price of {name} of {id} begins at {} GiB", tier.from_gib))
            }
            Some(_) => tiers
                .iter()
                .find(|tier| !tier.figure.is_trusted(self.demand.unverified))
                .map(|tier| format!("the price of {name} of {id} is not verified ({})", tier.figure.origin.source)),
        }
    }

    /// In which regions a charge has a price.
    fn elsewhere(&self, charge: Charge) -> String {
        let prices = self.service.prices.iter().filter(|price| price.of == charge);
        let mut regions: Vec<&str> = prices.map(|price| price.region.as_str()).collect();
        regions.sort_unstable();
        regions.dedup();
        format!("known in {}", regions.join(", "))
    }

    fn of(&self, charge: Charge, amount: f64) -> f64 {
        if !self.service.charges.contains(&charge) && !matches!(charge, Charge::Egress | Charge::CrossZone) {
            return 0.0;
        }
        let tiers = self.service.prices(charge, self.region());
        let place = self.luck.place(&["price", &self.service.id, charge.name()]);
        let mut usd = 0.0;
        for (index, tier) in tiers.iter().enumerate() {
            let end = tiers.get(index + 1).map_or(f64::INFINITY, |next| next.from_gib);
            let within = (amount.min(end) - tier.from_gib).max(0.0);
            usd += (within - tier.above).max(0.0) * tier.figure.value.at(place);
        }
        usd * self.factor
    }

    /// USD an hour for what is held: GiB, MB/s and operations a second that are bought.
    pub fn held(&self, gib: f64, mb: f64, requests: f64) -> f64 {
        self.of(Charge::Capacity, gib) + self.of(Charge::Throughput, mb) + self.of(Charge::Iops, requests)
    }

    pub fn reads(&self, requests: f64) -> f64 {
        self.of(Charge::Read, requests)
    }

    pub fn writes(&self, requests: f64) -> f64 {
        self.of(Charge::Write, requests)
    }

    pub fn lists(&self, requests: f64) -> f64 {
        self.of(Charge::List, requests)
    }

    pub fn read_bytes(&self, bytes: f64) -> f64 {
        self.of(Charge::ReadBytes, bytes / GIB)
    }

    pub fn write_bytes(&self, bytes: f64) -> f64 {
        self.of(Charge::WriteBytes, bytes / GIB)
    }

    pub fn egress(&self, bytes: f64) -> f64 {
        self.of(Charge::Egress, bytes / GIB)
    }

    pub fn cross_zone(&self, bytes: f64) -> f64 {
        self.of(Charge::CrossZone, bytes / GIB)
    }

    /// The figures that decide, if `also` is charged as well.
    pub fn figures(&self, also: &[Charge]) -> Vec<&'a Figure> {
        [self.figures_of(&self.service.charges), self.figures_of(also)].concat()
    }

    pub fn figures_of(&self, charges: &[Charge]) -> Vec<&'a Figure> {
        charges
            .iter()
            .flat_map(|charge| self.service.prices(*charge, self.region()))
            .map(|price| &price.figure)
            .collect()
    }
}
