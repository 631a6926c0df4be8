//! What a training job asks for, in numbers.
//!
//! It knows no service and no price but the user's own. Invariant: a demand that passed [`Demand::check`] can be planned;
//! one that contradicts itself is refused with the name of the field.

use serde::Serialize;

use crate::catalog::quantity::MONTH_HOURS;
use crate::catalog::{Need, Service};
use crate::wrong::{Result, Wrong};

#[derive(Clone, Debug, Serialize)]
pub struct Demand {
    /// How the accelerator is called: `V100` means V100-16GB as well as V100-32GB.
    pub accelerator: String,
    pub accelerators: u32,
    /// What one accelerator computes when it never waits.
    pub samples_per_second: f64,
    pub sample_bytes: f64,
    pub dataset_bytes: f64,
    pub files: f64,
    pub epochs: f64,
    /// Bytes that the program asks for at once; and how many such reads an accelerator has in flight.
    pub read_bytes: f64,
    pub streams: f64,
    /// Time of a core that a sample takes, decoding included.
    pub cpu_seconds: f64,
    /// Hours of a month in which it trains; the data are held and paid for all of it. None: they are held while it trains.
    pub hours_per_month: Option<f64>,
    /// What an hour of one accelerator costs by contract.
    pub accelerator_usd_hour: Option<f64>,
    /// None: for each provider where both nodes and storage have prices, and nodes the lowest.
    pub region: Option<String>,
    /// The node, where it is not the cheapest with such accelerators.
    pub node: Option<String>,
    pub data: Place,
    pub needs: Vec<Need>,
    /// Jobs that train on the same data at the same time, and share the accelerators.
    pub jobs: u32,
    pub checkpoint: Option<Checkpoint>,
    /// How often a node is lost, by failure or because somebody paid more for it, in an hour.
    pub losses_per_node_hour: f64,
    /// Zones over which the nodes are spread.
    pub zones: u32,
    /// Let figures decide that nobody verified.
    pub unverified: bool,
}

/// Where the data lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Place {
    /// None: where the nodes are.
    pub region: Option<String>,
    /// In this zone, and the nodes in others: `us-east-1a`, of the region that its name begins with.
    pub zone: Option<String>,
    /// They are copied to the region of the nodes once, before anything is rented.
    pub replica: bool,
    /// What the way adds to each answer, milliseconds.
    pub delay_ms: f64,
    /// MB/s of the way there; None where it is no limit.
    pub transit_mb: Option<f64>,
}

impl Place {
    /// The region, where it is told: by itself, or with the zone.
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref().or_else(|| zone_region(self.zone.as_deref()?))
    }
}

/// The region of a zone: `us-east-1` of `us-east-1a`, `us-central1` of `us-central1-a`, `westus` of `westus-2`.
fn zone_region(zone: &str) -> Option<&str> {
    let region = zone.strip_suffix(|letter: char| letter.is_ascii_alphanumeric())?;
    Some(region.strip_suffix('-').unwrap_or(region)).filter(|region| !region.is_empty())
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Checkpoint {
    pub bytes: f64,
    /// Over the whole run.
    pub writes: f64,
}

impl Demand {
    /// A demand with what most have.
    pub fn new(
        accelerator: &str,
        accelerators: u32,
        samples_per_second: f64,
        sample_bytes: f64,
        samples: f64,
    ) -> Demand {
        Demand {
            accelerator: accelerator.to_owned(),
            accelerators,
            samples_per_second,
            sample_bytes,
            dataset_bytes: sample_bytes * samples,
            files: samples,
            epochs: 1.0,
            read_bytes: sample_bytes,
            streams: 4.0,
            cpu_seconds: 0.0,
            hours_per_month: None,
            accelerator_usd_hour: None,
            region: None,
            node: None,
            data: Place::default(),
            needs: Vec::new(),
            jobs: 1,
            checkpoint: None,
            losses_per_node_hour: 0.0,
            zones: 1,
            unverified: false,
        }
    }

    /// MB/s of all accelerators when none waits.
    pub fn mb(&self) -> f64 {
        f64::from(self.accelerators) * self.samples_per_second * self.sample_bytes / 1e6
    }

    pub fn file_bytes(&self) -> f64 {
        self.dataset_bytes / self.files
    }

    pub fn samples(&self) -> f64 {
        self.dataset_bytes / self.sample_bytes
    }

    /// Hours of the run when no accelerator waits.
    pub fn ideal_hours(&self) -> f64 {
        let accelerators = f64::from(self.accelerators) / f64::from(self.jobs);
        self.samples() * self.epochs / (accelerators * self.samples_per_second) / 3600.0
    }

    /// The region in which the data lie, where it is another than that of the nodes.
    pub fn away<'a>(&'a self, home: &str) -> Option<&'a str> {
        self.data.region().filter(|region| *region != home)
    }

    /// Whether data that a service keeps in one zone lie in another zone of the region of the nodes. What is of a whole region
    /// is in all of its zones.
    pub fn beside(&self, service: &Service, home: &str) -> bool {
        service.is_zonal && self.data.zone.is_some() && self.away(home).is_none()
    }

    /// Whether each epoch reads a service from elsewhere, seen from the region of the nodes. What is at home has no way.
    fn is_far(&self, service: &Service, home: &str) -> bool {
        (self.away(home).is_some() || self.beside(service, home)) && !self.data.replica
    }

    /// What the way to the data adds to an answer of a service.
    pub fn delay_ms(&self, service: &Service, home: &str) -> f64 {
        if self.is_far(service, home) { self.data.delay_ms } else { 0.0 }
    }

    /// MB/s of the way to the data, where it is a limit.
    pub fn transit_mb(&self, service: &Service, home: &str) -> Option<f64> {
        self.data.transit_mb.filter(|_| self.is_far(service, home))
    }

    /// Of what so many nodes read from places that are spread over all zones, the share that comes from another zone.
    pub fn across(&self, nodes: f64) -> f64 {
        let zones = f64::from(self.zones).min(nodes).max(1.0);
        (zones - 1.0) / zones
    }

    pub fn check(&self) -> Result<()> {
        let wrong = |field: &str, what: String, hint: &str| Err(Wrong::new(what, "the demand", field, hint));
        let numbers = [
            ("accelerators", f64::from(self.accelerators), 1.0, 1e6),
            ("samples-per-second", self.samples_per_second, 1e-6, 1e9),
            ("sample-bytes", self.sample_bytes, 1.0, 1e13),
            ("dataset", self.dataset_bytes, 1.0, 1e18),
            ("files", self.files, 1.0, 1e13),
            ("epochs", self.epochs, 1.0, 1e6),
            ("read-bytes", self.read_bytes, 1.0, 1e13),
            ("streams", self.streams, 1.0, 1e6),
            ("cpu-seconds", self.cpu_seconds, 0.0, 1e4),
            ("hours-per-month", self.hours_per_month.unwrap_or(1.0), 1e-3, MONTH_HOURS),
            ("accelerator-price", self.accelerator_usd_hour.unwrap_or(1.0), 0.0, 1e5),
            ("data-delay", self.data.delay_ms, 0.0, 1e5),
            ("data-transit", self.data.transit_mb.unwrap_or(1.0), 1e-3, 1e9),
            ("jobs", f64::from(self.jobs), 1.0, 1e4),
            ("checkpoint", self.checkpoint.map_or(0.0, |checkpoint| checkpoint.bytes), 0.0, 1e18),
            ("checkpoint-writes", self.checkpoint.map_or(0.0, |checkpoint| checkpoint.writes), 0.0, 1e9),
            ("losses-per-node-hour", self.losses_per_node_hour, 0.0, 100.0),
            ("zones", f64::from(self.zones), 1.0, 100.0),
        ];
        if let Some((field, value, low, high)) =
            numbers.into_iter().find(|(_, value, low, high)| !(*low..=*high).contains(value))
        {
            return wrong(field, format!("{value} makes no sense here"), &format!("from {low} to {high}"));
        }
        if self.accelerator.trim().is_empty() {
            return wrong("accelerator", "something is missing".into(), "h100, v100, ...");
        }
        if self.sample_bytes > self.dataset_bytes {
            return wrong("dataset", "it is smaller than one of its samples".into(), "at least a sample");
        }
        if self.files > self.dataset_bytes {
            return wrong("files", "there are more files than bytes".into(), "a file has a byte at least");
        }
        if self.jobs > self.accelerators {
            return wrong(
                "jobs",
                "there are more jobs than accelerators".into(),
                "one accelerator for each job at least",
            );
        }
        if let (Some(zone), Some(region)) = (&self.data.zone, &self.data.region)
            && self.data.region() != zone_region(zone)
        {
            return wrong(
                "data-zone",
                format!("{zone} is no zone of {region}"),
                "a zone of the region, or one of both",
            );
        }
        if self.ideal_hours() > 1e9 {
            return wrong("epochs", format!("this trains for {:.0} hours", self.ideal_hours()), "at most 10^9 hours");
        }
        Ok(())
    }
}
