//! How large a service is bought, and how fast where speed is bought.
//!
//! It is decided before anybody knows how figures turn out, and so by likely ones alone. Invariant: no more speed is bought than
//! the rest of the way carries.

use super::Case;
use crate::candidate::{Size, Way};
use crate::catalog::quantity::{GIB, Of, Scope};
use crate::catalog::{Attach, Class, Limit};
use crate::luck::Luck;
use crate::nodes::trusted;
use crate::supply::Reader;

impl Case<'_> {
    /// GiB of one unit of the service, as it is sold.
    pub(super) fn gib(&self) -> Result<f64, String> {
        let service = self.candidate.service;
        let data = self.scene.demand.dataset_bytes / GIB / f64::from(self.candidate.units);
        let wanted = match self.candidate.size {
            Size::Data => data,
            Size::Speed => data.max(self.gib_for_speed()),
            Size::Cap => data.max(self.gib_at_cap()),
        };
        if matches!(service.class, Class::Object) {
            return Ok(wanted);
        }
        // The least, or a multiple of the step: FSx sells 1200 GiB, 2400, 4800.
        let steps = (wanted / service.step_gib - 1e-9).ceil().max(0.0);
        let is_least = wanted <= service.min_gib * (1.0 + 1e-9);
        let stepped = if is_least { service.min_gib } else { (steps * service.step_gib).max(service.min_gib) };
        match service.max_gib {
            Some(most) if data > most => {
                Err(format!("{} holds at most {most:.0} GiB, and {data:.0} are needed", service.id))
            }
            Some(most) => Ok(stepped.min(most)),
            None => Ok(stepped),
        }
    }

    fn likely(&self) -> Reader<'_> {
        let reader = self.reader(self.candidate.service, self.candidate.client, f64::from(self.candidate.units), 0.0);
        Reader { luck: Luck::LIKELY, ..reader }
    }

    /// MB/s that are to be listed of each unit, so that no accelerator waits, or so that something else is the limit.
    fn wanted_of_unit(&self) -> f64 {
        let demand = self.scene.demand;
        // Volumes are read where they are: the way to the data is that of the copy before.
        let is_straight = matches!(self.candidate.way, Way::Straight);
        let transit = demand.transit_mb(self.store(), self.nodes.home).filter(|_| is_straight);
        let asked = [self.cpu_mb(), transit].into_iter().flatten().fold(demand.mb(), f64::min);
        let (likely, service) = (self.likely(), self.candidate.service);
        let measured = likely.measured();
        let share = match measured {
            Some(_) => 1.0,
            None => self.share_at(Luck::LIKELY, &service.id, self.candidate.client),
        };
        let beside = likely.beside().into_iter().chain(measured).fold(f64::INFINITY, |least, cap| least.min(cap.mb));
        let copies = match (self.candidate.way, service.attach) {
            (Way::Disks { .. }, Attach::One) => self.nodes.count,
            _ => 1.0,
        };
        (asked / share).min(beside) / f64::from(self.candidate.units) / copies
    }

    fn limit_of_unit(&self, of: Of) -> Option<&Limit> {
        let limit = self.candidate.service.limit(of, Scope::Service, &self.candidate.client.id);
        trusted(limit, self.scene.demand)
    }

    fn gib_for_speed(&self) -> f64 {
        let wanted = self.wanted_of_unit();
        let of = |of: Of, wanted: f64| {
            let limit = self.limit_of_unit(of).filter(|limit| limit.slope > 0.0);
            limit.map_or(0.0, |limit| {
                let most = limit.cap.map_or(wanted, |cap| wanted.min(cap));
                (most - limit.figure.value.likely) / limit.slope
            })
        };
        of(Of::Bandwidth, wanted).max(of(Of::Requests, wanted / self.likely().request_mb())).max(0.0)
    }

    fn gib_at_cap(&self) -> f64 {
        let limit = self.limit_of_unit(Of::Bandwidth).filter(|limit| limit.slope > 0.0);
        let at_cap = limit.and_then(|limit| Some((limit.cap? - limit.figure.value.likely) / limit.slope));
        at_cap.or(self.candidate.service.max_gib).unwrap_or(0.0)
    }

    /// MB/s and operations a second that are bought of each unit.
    pub(super) fn bought(&self) -> (f64, f64) {
        let of = |of: Of, wanted: f64| {
            self.limit_of_unit(of).filter(|limit| limit.is_bought).map_or(0.0, |limit| {
                let most = limit.figure.value.likely;
                match self.candidate.size {
                    Size::Data => limit.floor.min(most),
                    Size::Speed => wanted.clamp(limit.floor.min(most), most),
                    Size::Cap => most,
                }
            })
        };
        let wanted = self.wanted_of_unit();
        (of(Of::Bandwidth, wanted), of(Of::Requests, wanted / self.likely().request_mb()))
    }
}
