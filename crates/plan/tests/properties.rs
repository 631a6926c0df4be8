//! What holds for all catalogues and demands, drawn at random.

use proptest::prelude::*;
use stoker_plan::catalog::Catalog;
use stoker_plan::catalog::layers::Source;
use stoker_plan::catalog::shipped::SHIPPED;
use stoker_plan::date::Date;
use stoker_plan::demand::{Checkpoint, Demand};
use stoker_plan::figure::Layer;
use stoker_plan::plan::{Offer, Plan};

fn today() -> Date {
    Date::parse("2026-11-24").unwrap()
}

/// Two stores that differ in id alone, a disk, a file system, nodes with disks and nodes that only store.
const BASE: &str = r#"
provider = "x"
version = "1"
currency = "USD"
region = "here"
[[source]]
id = "s"
title = "drawn"
date = "2026"
[[node]]
id = "x.train"
accelerators = 8
accelerator = "X1"
cores = 96
prices = [{ of = "hour", unit = "hour", value = 10, source = "s", confidence = "high" }]
limits = [
  { of = "network", scope = "node", unit = "MB/s", value = NETWORK, source = "s", confidence = "high" },
  { of = "local-size", scope = "node", unit = "GB", value = ROOM, source = "s", confidence = "high" },
  { of = "local-bandwidth", scope = "node", unit = "MB/s", value = 3000, source = "s", confidence = "high" },
  { of = "disk-bandwidth", scope = "node", unit = "MB/s", value = 2000, source = "s", confidence = "high" },
  { of = "disk-requests", scope = "node", unit = "1/s", value = 40000, source = "s", confidence = "high" },
]
[[service]]
id = "x.store"
class = "object"
charges = ["capacity", "read", "write", "list"]
prices = [
  { of = "capacity", unit = "GiB-month", value = CAPACITY, source = "s", confidence = "high" },
  { of = "read", unit = "1k", value = READ, source = "s", confidence = "high" },
  { of = "write", unit = "1k", value = 0.005, source = "s", confidence = "high" },
  { of = "list", unit = "1k", value = 0.005, source = "s", confidence = "high" },
  { of = "cross-zone", unit = "GiB", value = 0.01, source = "s", confidence = "high" },
  { of = "capacity", unit = "GiB-month", value = 0.03, region = "there", source = "s", confidence = "high" },
  { of = "read", unit = "1k", value = 0.0005, region = "there", source = "s", confidence = "high" },
  { of = "write", unit = "1k", value = 0.006, region = "there", source = "s", confidence = "high" },
  { of = "list", unit = "1k", value = 0.006, region = "there", source = "s", confidence = "high" },
  { of = "egress", unit = "GiB", value = 0.02, region = "there", source = "s", confidence = "high" },
]
limits = [
  { of = "bandwidth", unit = "MB/s", value = SPEED, source = "s", confidence = "high" },
  { of = "first-byte", scope = "connection", unit = "ms", value = 20, source = "s", confidence = "high" },
]
[[service]]
id = "x.files"
class = "file"
charges = ["capacity"]
min-gib = 1024
step-gib = 1024
prices = [{ of = "capacity", unit = "GiB-month", value = 0.2, source = "s", confidence = "high" }]
limits = [
  { of = "bandwidth", unit = "MB/s", value = 0, slope = SLOPE, per = "TiB", source = "s", confidence = "high" },
  { of = "first-byte", scope = "connection", unit = "ms", value = 1, source = "s", confidence = "high" },
]
[[client]]
id = "plain"
method = "rest"
services = ["x.store", "x.twin"]
[[client]]
id = "copy"
method = "copy"
services = ["x.store", "x.twin"]
[[client]]
id = "mount"
method = "nfs"
services = ["x.files"]
[[client]]
id = "stoker"
method = "stoker"
services = ["x.store", "x.twin"]
[[client]]
id = "ondemand"
method = "ondemand"
services = []
"#;

/// A store like the other, at its own price.
fn twin(text: &str, factor: f64, drawn: &Drawn) -> String {
    let start = text.find("[[service]]").unwrap();
    let end = text.find("[[service]]\nid = \"x.files\"").unwrap();
    let twin = text[start..end].replace("x.store", "x.twin");
    let price = |value: f64| format!("value = {value}, source");
    let twin = twin
        .replace(&price(drawn.capacity), &price(drawn.capacity * factor))
        .replace(&price(drawn.read), &price(drawn.read * factor));
    format!("{text}\n{twin}")
}

#[derive(Clone, Debug)]
struct Drawn {
    network: f64,
    room: f64,
    capacity: f64,
    read: f64,
    speed: f64,
    slope: f64,
    demand: Demand,
}

impl Drawn {
    fn text(&self) -> String {
        BASE.replace("NETWORK", &self.network.to_string())
            .replace("ROOM", &self.room.to_string())
            .replace("CAPACITY", &self.capacity.to_string())
            .replace("READ", &self.read.to_string())
            .replace("SPEED", &self.speed.to_string())
            .replace("SLOPE", &self.slope.to_string())
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let figures = (50.0..5e4, 10.0..1e5, 0.001..0.5, 1e-5..0.01, 10.0..1e5, 5.0..2e3);
    let demand = (1_u32..200, 0.1..1e4, 1e3..1e8, 1e2..1e6, 1.0..100.0, 1.0..64.0);
    (figures, demand).prop_map(
        |((network, room, capacity, read, speed, slope), (count, rate, bytes, samples, epochs, streams))| {
            let mut demand = Demand::new("X1", count, rate, bytes, samples);
            (demand.epochs, demand.streams) = (epochs, streams);
            Drawn { network, room, capacity, read, speed, slope, demand }
        },
    )
}

fn plan(text: &str, demand: &Demand) -> Plan {
    let source = Source { layer: Layer::Shipped, place: "drawn.toml", text };
    let catalog = Catalog::of(&[source]).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    Plan::of(&catalog, demand, today()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn by_id<'a>(plan: &'a Plan, id: &str) -> Option<&'a Offer> {
    plan.offers.iter().find(|offer| offer.id == id)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_bandwidth_never_lowers_au(drawn in drawn(), factor in 1.0..20.0) {
        let slow = plan(&drawn.text(), &drawn.demand);
        for faster in [
            Drawn { speed: drawn.speed * factor, ..drawn.clone() },
            Drawn { network: drawn.network * factor, ..drawn.clone() },
            Drawn { slope: drawn.slope * factor, ..drawn.clone() },
        ] {
            let fast = plan(&faster.text(), &drawn.demand);
            let (before, after) = (by_id(&slow, "x.store/plain").unwrap(), by_id(&fast, "x.store/plain").unwrap());
            // What held it back is wider: it is faster by as much, until something else holds it.
            let is_wider = faster.speed > drawn.speed && before.binding_limit == "service bandwidth";
            let wider: f64 = before.au_percent * factor;
            let next = before.limits.get(1).map_or(100.0, |next| next.of_demand * 100.0);
            let expected = wider.min(100.0).min(next);
            prop_assert!(!is_wider || after.au_percent >= expected * (1.0 - 1e-6), "{} to {}", before.au_percent, after.au_percent);
            // A file system that is bought for its speed is bought smaller when it is faster: the same AU, but for the step.
            for offer in slow.offers.iter().filter(|offer| !offer.id.contains("sized-for-speed")) {
                if let Some(after) = by_id(&fast, &offer.id) {
                    prop_assert!(after.au_percent >= offer.au_percent - 1e-6, "{}: {} to {}", offer.id, offer.au_percent, after.au_percent);
                }
            }
        }
    }

    #[test]
    fn a_price_rise_never_improves_an_offers_own_rank(drawn in drawn(), factor in 1.0..20.0) {
        let above = |text: &str| {
            let plan = plan(text, &drawn.demand);
            let twin = by_id(&plan, "x.twin/plain").unwrap().total_usd.likely;
            // Among those that don't pay the price.
            plan.offers.iter().filter(|offer| !offer.service.contains("twin") && offer.total_usd.likely < twin).count()
        };
        let (before, after) = (twin(&drawn.text(), 1.0, &drawn), twin(&drawn.text(), factor, &drawn));
        prop_assert!(above(&after) >= above(&before));
    }

    #[test]
    fn doubling_everything_doubles_the_cost(drawn in drawn()) {
        // No tiers and no smallest size: objects, straight, with twice the accounts and whole nodes.
        let mut one = drawn.demand.clone();
        one.accelerators = one.accelerators.div_ceil(8) * 8;
        let mut two = one.clone();
        (two.accelerators, two.dataset_bytes, two.files) = (one.accelerators * 2, one.dataset_bytes * 2.0, one.files * 2.0);
        let scene = |demand: &Demand, id: &str| {
            let text = drawn.text();
            let source = Source { layer: Layer::Shipped, place: "drawn.toml", text: &text };
            let catalog = Catalog::of(&[source]).unwrap();
            let scene = stoker_plan::outcome::Scene { catalog: &catalog, demand, evidence: Default::default() };
            let candidates = stoker_plan::candidate::all(&catalog, demand);
            let candidate = candidates.iter().find(|candidate| candidate.id() == id).unwrap();
            stoker_plan::outcome::evaluate(scene, candidate, Default::default()).unwrap().money.total()
        };
        let (usd, twice) = (scene(&one, "x.store/plain"), scene(&two, "x.storex2/plain"));
        prop_assert!((twice / usd / 2.0 - 1.0).abs() < 1e-9, "{usd} {twice}");
    }

    #[test]
    fn units_change_nothing(drawn in drawn()) {
        let text = drawn.text();
        let speed = format!("unit = \"MB/s\", value = {}, source", drawn.speed);
        let bits = format!("unit = \"Gbit/s\", value = {}, source", drawn.speed / 125.0);
        let read = format!("unit = \"1k\", value = {}, source", drawn.read);
        let million = format!("unit = \"1M\", value = {}, source", drawn.read * 1e3);
        prop_assert!(text.contains(&speed) && text.contains(&read), "the units are written as they stand there");
        let (before, after) = (plan(&text, &drawn.demand), plan(&text.replace(&speed, &bits).replace(&read, &million), &drawn.demand));
        prop_assert!(by_id(&before, "x.store/plain").is_some() && by_id(&after, "x.store/plain").is_some());
        for offer in &before.offers {
            let after = by_id(&after, &offer.id);
            let same = |left: f64, right: f64| (left - right).abs() <= 1e-6 * left.abs().max(1e-6);
            if let Some(after) = after {
                prop_assert!(same(offer.total_usd.likely, after.total_usd.likely) && same(offer.au_percent, after.au_percent));
            }
        }
    }
}

/// A sequence that is the same in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.next() as usize % all.len()]
    }

    fn number(&mut self) -> f64 {
        self.of(&[
            0.0,
            1e-12,
            0.001,
            0.5,
            1.0,
            3.0,
            100.0,
            12_345.6,
            1e9,
            1e14,
            1e16,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::MAX,
        ])
    }

    /// Mostly what makes sense.
    fn figure(&mut self) -> f64 {
        if self.next().is_multiple_of(60) {
            self.number()
        } else {
            self.of(&[0.01, 0.5, 1.0, 8.0, 50.0, 900.0, 6000.0])
        }
    }
}

fn wild_catalog(dice: &mut Dice) -> String {
    let toml = |value: f64| {
        if value.is_nan() {
            "nan".to_owned()
        } else if value.is_infinite() {
            "inf".to_owned()
        } else {
            format!("{value:?}")
        }
    };
    let mut text = BASE.to_owned();
    for key in ["NETWORK", "ROOM", "CAPACITY", "READ", "SPEED", "SLOPE"] {
        text = text.replace(key, &toml(dice.figure()));
    }
    if dice.next().is_multiple_of(3) {
        text += &format!(
            "[[service]]\nid = \"x.disk\"\nclass = \"disk\"\ncharges = [\"capacity\"{}]\nmin-gib = {}\nmax-gib = {}\nstep-gib = {}\nprices = [{{ of = \"capacity\", unit = \"GiB-month\", value = {}, source = \"s\", confidence = \"{}\" }}]\nlimits = [{{ of = \"bandwidth\", unit = \"MB/s\", value = {}, slope = {}, burst-slope = {}, credit-gib-per-gib = {}, per = \"GiB\", source = \"s\", confidence = \"high\", bought = {} }}, {{ of = \"requests\", unit = \"1/s\", value = 900, source = \"s\", confidence = \"high\" }}]\n[[client]]\nid = \"disk\"\nmethod = \"disk\"\nservices = [\"x.disk\"]\n",
            dice.of(&["", ", \"iops\"", ", \"throughput\""]),
            toml(dice.figure()),
            toml(dice.figure() * 1e3),
            toml(dice.figure()),
            toml(dice.figure()),
            dice.of(&["high", "low", "unverified"]),
            toml(dice.figure()),
            toml(dice.figure()),
            toml(dice.figure()),
            toml(dice.figure()),
            dice.of(&["true", "false"]),
        );
    }
    // Now and then a key or a quote is lost.
    if dice.next().is_multiple_of(10) {
        let at = dice.next() as usize % text.len();
        text.replace_range(at..at + 1, dice.of(&["", "\"", "]", "x", "\n", "9"]));
    }
    text
}

fn wild_demand(dice: &mut Dice) -> Demand {
    let counts = [1, 8, 9, 1000, 16, 33, 64, 0, u32::MAX];
    let mut demand = Demand::new(
        dice.of(&["X1", "x1", "X1", "X1", "X1", "", "Y"]),
        dice.of(&counts),
        dice.figure(),
        dice.figure() * 1e4,
        1.0 + dice.figure() * 1e3,
    );
    demand.epochs = 1.0 + dice.figure();
    demand.streams = 1.0 + dice.figure();
    demand.cpu_seconds = dice.figure() / 1e4;
    demand.read_bytes = 1.0 + dice.figure() * 1e4;
    demand.jobs = dice.of(&[1, 1, 1, 1, 1, 2, 0]);
    demand.hours_per_month = dice.of(&[None, None, None, Some(100.0), Some(100.0), Some(0.0)]);
    demand.losses_per_node_hour = dice.of(&[0.0, 0.0, 0.0, 0.1, 0.1, f64::NAN]);
    demand.zones = dice.of(&[1, 1, 3]);
    demand.unverified = dice.next().is_multiple_of(2);
    demand.data.region = dice.next().is_multiple_of(8).then(|| dice.of(&["here", "there"]).to_owned());
    demand.data.transit_mb = dice.of(&[None, Some(100.0), Some(1e4)]);
    demand.checkpoint =
        dice.next().is_multiple_of(4).then(|| Checkpoint { bytes: dice.figure() * 1e9, writes: dice.figure() });
    demand
}

#[test]
fn ten_thousand_random_catalogues_and_demands_end_in_a_plan_or_a_clear_error() {
    let (mut plans, mut refused, mut offers) = (0, 0, 0);
    for seed in 0..10_000 {
        let mut dice = Dice(seed);
        let (text, demand) = (wild_catalog(&mut dice), wild_demand(&mut dice));
        let source = Source { layer: Layer::Shipped, place: "wild.toml", text: &text };
        let plan = Catalog::of(&[source]).and_then(|catalog| Plan::of(&catalog, &demand, today()));
        match plan {
            Err(wrong) => {
                refused += 1;
                assert!(!wrong.what.is_empty() && !wrong.place.is_empty(), "{seed}: {wrong}");
                assert!(!wrong.field.is_empty() || wrong.what.contains("TOML"), "{seed}: {wrong}");
            }
            Ok(plan) => {
                plans += 1;
                offers += plan.offers.len();
                for offer in &plan.offers {
                    let numbers = [
                        offer.au_percent,
                        offer.hours.likely,
                        offer.total_usd.low,
                        offer.total_usd.high,
                        offer.usd_per_epoch,
                        offer.mb_per_s_per_usd_hour,
                    ];
                    assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{seed}: {offer:?}");
                    assert!(offer.au_percent <= 100.0 + 1e-9, "{seed}: {offer:?}");
                }
                assert!(plan.offers.windows(2).all(|pair| pair[0].total_usd.likely <= pair[1].total_usd.likely));
            }
        }
    }
    assert!(plans > 1000 && refused > 1000 && offers > 5000, "{plans} {refused} {offers}");
}

#[test]
fn a_shipped_text_with_a_lost_letter_is_read_or_refused_by_name() {
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let mut sources = SHIPPED.to_vec();
        let which = dice.next() as usize % sources.len();
        let mut text = sources[which].text.to_owned();
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let at = places[dice.next() as usize % places.len()];
        text.remove(at);
        sources[which].text = &text;
        if let Err(wrong) = Catalog::of(&sources) {
            assert!(wrong.place.contains(".toml"), "{seed}: {wrong}");
        }
    }
}
