//! Medians and ratios over the rounds of a record. Pure: numbers in, numbers out.

use super::{Cell, NATIVE, value};
use crate::record::{Record, Sample};
use crate::server::Counters;
use crate::workload::{Phase, WORKLOADS, Workload};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    /// Of so many rounds.
    pub rounds: usize,
}

/// The sound samples of a record, by cell and round. A sample with an error or a wrong byte gives
/// no figure: it is listed among the failures instead.
pub struct View<'a> {
    record: &'a Record,
}

impl<'a> View<'a> {
    pub fn new(record: &'a Record) -> View<'a> {
        View { record }
    }

    /// Those that were measured at all, in the order of the tables.
    pub fn targets(&self) -> Vec<&'a str> {
        let measured = |name: &str| self.record.samples.iter().any(|sample| sample.target == name);
        let names = self.record.targets.iter().map(|subject| subject.name.as_str());
        names.filter(|name| measured(name)).collect()
    }

    pub fn rows(&self) -> impl Iterator<Item = (Workload, Phase)> {
        let known = WORKLOADS.into_iter();
        let all = known.flat_map(|one| one.phases().iter().map(move |phase| (one, *phase)));
        all.filter(|(workload, phase)| {
            let samples = &self.record.samples;
            samples.iter().any(|sample| sample.workload == *workload && sample.phase == *phase)
        })
    }

    pub fn values(&self, cell: Cell) -> Option<Spread> {
        spread(self.sound(cell).map(value).collect())
    }

    pub fn median(&self, cell: Cell, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        spread(self.sound(cell).map(of).collect()).map(|spread| spread.median)
    }

    pub fn most(&self, cell: Cell, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        spread(self.sound(cell).map(of).collect()).map(|spread| spread.most)
    }

    /// Value over native's of the same round; none for native itself.
    pub fn ratio(&self, cell: Cell) -> Option<Spread> {
        self.against(cell, NATIVE, |own, native| value(own) / value(native))
    }

    pub fn cpu_ratio(&self, cell: Cell) -> Option<Spread> {
        self.against(cell, NATIVE, |own, native| {
            native.reader_cpu_seconds / (own.reader_cpu_seconds + own.daemon_cpu_seconds)
        })
    }

    /// A cell beside that of another target in the same round; rounds that lack one of them don't count.
    pub fn against(&self, cell: Cell, other: &str, of: impl Fn(&Sample, &Sample) -> f64) -> Option<Spread> {
        if cell.target == other {
            return None;
        }
        let others = Cell { target: other, ..cell };
        let pairs = self.sound(cell).filter_map(|own| {
            let same_round = self.sound(others).find(|other| other.round == own.round);
            same_round.map(|other| of(own, other))
        });
        spread(pairs.collect())
    }

    /// Says of how many rounds a figure is, where that is not all that were measured.
    pub fn of_rounds(&self, spread: &Spread) -> String {
        let all = self.record.samples.iter().map(|sample| sample.round).max().unwrap_or(0);
        if spread.rounds == all as usize { String::new() } else { format!(" n={}", spread.rounds) }
    }

    /// CPU seconds a second of all but the reader, the daemon and the server, most first.
    pub fn of_others(&self) -> Vec<(f64, &'a Sample)> {
        let measured = self.record.samples.iter().filter(|sample| sample.failure.is_none());
        let mut shares: Vec<_> = measured.map(|sample| (others(sample), sample)).collect();
        shares.sort_by(|one, other| other.0.total_cmp(&one.0));
        shares
    }

    /// The most requests of each kind in any round, as words; what the mount asked apart.
    pub fn requests(&self, cell: Cell) -> Option<String> {
        self.sound(cell).next()?;
        let reading = most(self.sound(cell).map(|sample| &sample.requests));
        let mounting = most(self.sound(cell).map(|sample| &sample.mount_requests));
        let words = if reading.is_empty() { "0".to_owned() } else { spelled(reading) };
        let before = if mounting.is_empty() { String::new() } else { format!("; mount: {}", spelled(mounting)) };
        Some(words + &before)
    }

    pub fn sound(&self, cell: Cell<'a>) -> impl Iterator<Item = &'a Sample> {
        let samples = self.record.samples.iter();
        samples.filter(move |one| one.is(cell.target, cell.workload, cell.phase) && one.sound())
    }

    /// Whether a cell was tried and gave an error, a wrong byte or nothing in some round.
    pub fn failed(&self, cell: Cell) -> bool {
        let mut samples = self.record.samples.iter();
        samples.any(|one| one.is(cell.target, cell.workload, cell.phase) && !one.sound())
    }
}

fn others(sample: &Sample) -> f64 {
    let known = sample.reader_cpu_seconds + sample.daemon_cpu_seconds + sample.server_cpu_seconds;
    (sample.machine_cpu_seconds - known) / (sample.seconds + sample.rest_seconds)
}

fn most<'a>(counts: impl Iterator<Item = &'a Counters>) -> Counters {
    let mut most = Counters::new();
    for (kind, count) in counts.flatten() {
        let known = most.entry(kind.clone()).or_default();
        *known = (*known).max(*count);
    }
    most
}

fn spelled(mut counts: Counters) -> String {
    let bytes = counts.remove("bytes");
    let words: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let megabytes = bytes.map(|bytes| format!(" ({:.0} MB)", bytes as f64 / 1e6));
    words.join(" + ") + &megabytes.unwrap_or_default()
}

pub fn spread(mut numbers: Vec<f64>) -> Option<Spread> {
    numbers.sort_by(f64::total_cmp);
    let (least, most) = (*numbers.first()?, *numbers.last()?);
    let half = numbers.len() / 2;
    let median = match numbers.len() % 2 {
        1 => numbers[half],
        _ => f64::midpoint(numbers[half - 1], numbers[half]),
    };
    Some(Spread { median, least, most, rounds: numbers.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Scale;
    use crate::record::Settings;
    use crate::server::Kind;

    fn sample(round: u32, target: &str, seconds: f64) -> Sample {
        let mut sample = Sample::blank(round, target, Workload::Small, Phase::Kept);
        sample.items = 1000;
        sample.seconds = seconds;
        sample.reader_cpu_seconds = seconds;
        sample.daemon_cpu_seconds = seconds;
        sample
    }

    fn record(samples: Vec<Sample>) -> Record {
        let mut record = Record::new(Settings {
            scale: Scale::Quick,
            server: Kind::Emulate,
            server_extra: vec![],
            workloads: vec![],
            rounds: 3,
        });
        record.samples = samples;
        record
    }

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert_eq!(spread(vec![4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(spread(vec![]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine is three times slower in the second round; the ratio is not.
        let record = record(vec![
            sample(1, NATIVE, 1.0),
            sample(1, "peer", 2.0),
            sample(2, NATIVE, 3.0),
            sample(2, "peer", 6.0),
            sample(3, "peer", 1.0),
        ]);
        let view = View::new(&record);
        let cell = Cell { target: "peer", workload: Workload::Small, phase: Phase::Kept };
        let ratio = view.ratio(cell).unwrap();
        assert_eq!((ratio.median, ratio.rounds), (0.5, 2), "there is no native of the third round");
        assert_eq!(view.of_rounds(&ratio), " n=2");
        assert_eq!(view.cpu_ratio(cell).unwrap().median, 0.25);
        assert_eq!(view.ratio(Cell { target: NATIVE, ..cell }), None);
    }

    #[test]
    fn what_others_took_is_what_nobody_measured_answers_for() {
        let mut busy = sample(1, "peer", 1.5);
        (busy.rest_seconds, busy.server_cpu_seconds, busy.machine_cpu_seconds) = (0.5, 1.0, 5.0);
        let mut quiet = busy.clone();
        quiet.machine_cpu_seconds = 4.0;
        let record = record(vec![quiet, busy]);
        let shares: Vec<f64> = View::new(&record).of_others().into_iter().map(|(share, _)| share).collect();
        assert_eq!(shares, [0.5, 0.0]);
    }

    #[test]
    fn a_sample_with_a_wrong_byte_gives_no_figure() {
        let mut wrong = sample(1, "peer", 1.0);
        wrong.wrong_tags = 1;
        let record = record(vec![wrong]);
        let view = View::new(&record);
        let cell = Cell { target: "peer", workload: Workload::Small, phase: Phase::Kept };
        assert_eq!(view.values(cell), None);
        assert!(view.failed(cell));
    }
}
