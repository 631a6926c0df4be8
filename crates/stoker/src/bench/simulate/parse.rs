//! What is typed after the flags of `stoker bench simulate`: a list of `name=value`, the first of which may lack its
//! name.
//!
//! It knows no defaults but those of the parts. Invariant: what is not understood is refused with an example.

use ::bench::simulate::cache::Policy;
use ::bench::simulate::latency::Latency;
use ::bench::simulate::{Cache, Nodes, Overhead, Placement, Rule, Store};
use ::emulate::parse::{bandwidth, bytes, duration};
use block::{Error, Result};

/// Values of a curve that is asked for as a range.
const RANGE_POINTS: u64 = 10;
/// Values of a curve at most.
const POINTS_MAX: usize = 200;
/// Accelerators of one point, as of a measured run: more take hours to simulate.
const ACCELERATORS_MAX: u64 = 100_000;

/// A store: `300Gbit/s,latency=20ms,p99=100ms,stream=70MB/s,rps=5500,request=8MB,slow=1%:2s`.
pub fn store(name: &str, fields: &[(String, String)]) -> Result<Store> {
    let mut store = Store { name: name.to_owned(), ..Store::default() };
    let rate = |text: &str| Ok(Some(bandwidth(text)? as f64));
    for (field, value) in fields {
        match field.as_str() {
            "name" => store.name.clone_from(value),
            "" | "bandwidth" if value == "unlimited" => store.bytes_per_second = None,
            "" | "bandwidth" => store.bytes_per_second = rate(value)?,
            "stream" => store.stream_bytes_per_second = rate(value)?,
            "rps" | "iops" => store.requests_per_second = Some(number(field, value)?),
            "request" => store.request_bytes = Some(bytes(value)? as f64),
            _ if is_latency(&mut store.latency, field, value)? => {}
            _ => return Err(unknown(field, "300Gbit/s,latency=20ms,p99=100ms,stream=70MB/s,rps=5500,request=8MB")),
        }
    }
    settle(&mut store.latency);
    Ok(store)
}

/// A cache that holds so much of the set, or in which such shares of each epoch hit:
/// `0.5,policy=lru,place=local,bandwidth=6GB/s,latency=200us` and `25%,100%`.
pub fn cache(text: &str, is_ratio: bool) -> Result<Cache> {
    let (mut cache, mut shares, mut policy) = (Cache::default(), Vec::new(), Policy::default());
    for (field, value) in fields(text) {
        match (field.as_str(), value.to_ascii_lowercase().as_str()) {
            ("", _) => shares.push(share(&value)?),
            ("policy", "never") if is_ratio => policy = Policy::Never,
            ("policy", "lru") if is_ratio => policy = Policy::Lru,
            ("policy", "random") if is_ratio => policy = Policy::Random,
            ("place", "local") => cache.place = Placement::Local,
            ("place", "peers") => cache.place = Placement::Peers,
            ("place", "apart") => cache.place = Placement::Apart,
            ("bandwidth", _) => cache.bytes_per_second = Some(bandwidth(&value)? as f64),
            _ if is_latency(&mut cache.latency, &field, &value)? => {}
            _ if is_ratio => {
                return Err(unknown(&field, "0.5,policy=never|lru|random,place=local|peers|apart,latency=1ms"));
            }
            _ => return Err(unknown(&field, "25%,100%,place=local|peers|apart,bandwidth=6GB/s,latency=1ms")),
        }
    }
    settle(&mut cache.latency);
    cache.rule = match (is_ratio, shares.as_slice()) {
        (true, [ratio]) => Rule::Ratio { ratio: *ratio, policy },
        (false, [_, ..]) => Rule::Rates(shares),
        _ => return Err(unknown(text, "0.5 of the set, or a share of hits for each epoch: 25%,100%")),
    };
    Ok(cache)
}

/// The nodes: `8,25Gbit/s,stragglers=2%x3`.
pub fn nodes(text: &str) -> Result<Nodes> {
    let mut nodes = Nodes::default();
    for (index, (field, value)) in fields(text).into_iter().enumerate() {
        match (field.as_str(), index) {
            ("", 0) => nodes.accelerators = number("accelerators", &value)?,
            ("" | "network", _) => nodes.bytes_per_second = Some(bandwidth(&value)? as f64),
            ("stragglers", _) => {
                let (share_of, times) =
                    value.split_once('x').ok_or_else(|| unknown(&value, "8,25Gbit/s,stragglers=2%x3"))?;
                (nodes.stragglers, nodes.straggling) = (share(share_of)?, number(&field, times)?);
            }
            _ => return Err(unknown(&field, "8,25Gbit/s,stragglers=2%x3")),
        }
    }
    Ok(nodes)
}

/// What a barrier costs and how often there is one: `16ms` or `20ms,every=50`.
pub fn overhead(text: &str) -> Result<Overhead> {
    let mut overhead = Overhead::default();
    for (field, value) in fields(text) {
        match field.as_str() {
            "" => overhead.seconds = duration(&value)?.as_secs_f64(),
            "every" => overhead.every = number(&field, &value)?,
            _ => return Err(unknown(&field, "16ms, or 20ms,every=50")),
        }
    }
    Ok(overhead)
}

/// Numbers of accelerators: `180`, `60,98,180`, `20..200` or `20..200:20`. A range ends at its end, whatever the step.
pub fn counts(text: &str) -> Result<Vec<u64>> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let Some((from, to)) = part.split_once("..") else {
            counts.push(number("accelerators", part)?);
            continue;
        };
        let (to, step) = to.split_once(':').map_or((to, None), |(to, step)| (to, Some(step)));
        let (from, to): (u64, u64) = (number("accelerators", from)?, number("accelerators", to)?);
        if from > to {
            let error = Error::invalid("this range of accelerators runs backwards", format!("--accelerators {text}"));
            return Err(error.hint(format!("write {to}..{from}")));
        }
        let step = step.map(|step| number("accelerators", step)).transpose()?;
        let step = step.unwrap_or(to.saturating_sub(from).div_ceil(RANGE_POINTS)).max(1);
        counts.extend((from..=to).step_by(usize::try_from(step).unwrap_or(usize::MAX)).take(POINTS_MAX + 1));
        counts.push(to);
    }
    counts.sort_unstable();
    counts.dedup();
    if counts.is_empty() || counts.len() > POINTS_MAX || counts.contains(&0) {
        return Err(Error::invalid(format!("a curve has from 1 to {POINTS_MAX} points, each above 0"), text)
            .hint("write 180, or 60,98,180, or 20..200:20"));
    }
    if counts.iter().any(|count| *count > ACCELERATORS_MAX) {
        let what = format!("there are at most {ACCELERATORS_MAX} accelerators");
        return Err(Error::invalid(what, format!("--accelerators {text}")).hint("ask for fewer, such as 1..1000"));
    }
    Ok(counts)
}

/// Epochs, and steps of each: `5` or `5x500`.
pub fn epochs(text: &str) -> Result<(u64, Option<u64>)> {
    match text.split_once('x') {
        Some((epochs, steps)) => Ok((number("epochs", epochs)?, Some(number("steps", steps)?))),
        None => Ok((number("epochs", text)?, None)),
    }
}

/// Seeds: `7`, or one for each repetition, `1..10`.
pub fn seeds(text: &str) -> Result<Vec<u64>> {
    let Some((from, to)) = text.split_once("..") else {
        return Ok(vec![number("seed", text)?]);
    };
    let (from, to): (u64, u64) = (number("seed", from)?, number("seed", to)?);
    if to < from || to - from >= POINTS_MAX as u64 {
        return Err(Error::invalid(format!("from 1 to {POINTS_MAX} repetitions"), text).hint("write 1..10"));
    }
    Ok((from..=to).collect())
}

/// `name=value` by name; the name is empty where there is none.
pub fn fields(text: &str) -> Vec<(String, String)> {
    let parts = text.split(',').map(|part| part.split_once('=').unwrap_or(("", part)));
    parts.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

fn is_latency(latency: &mut Latency, field: &str, value: &str) -> Result<bool> {
    match field {
        "latency" => latency.median = duration(value)?.as_secs_f64(),
        "p99" => latency.p99 = duration(value)?.as_secs_f64(),
        "slow" => {
            let (share_of, time) = value.split_once(':').ok_or_else(|| unknown(value, "slow=1%:2s"))?;
            (latency.slow_share, latency.slow) = (share(share_of)?, duration(time)?.as_secs_f64());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Without a percentile there is no spread.
fn settle(latency: &mut Latency) {
    if latency.p99 == 0.0 {
        latency.p99 = latency.median;
    }
}

/// `0.85` or `85%`.
fn share(text: &str) -> Result<f64> {
    let (digits, scale) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |digits| (digits.trim_end(), 0.01));
    let share = number::<f64>("share", digits)? * scale;
    let wrong = || Error::invalid("a share is from 0 to 1, or from 0% to 100%", text).hint("write 0.85 or 85%");
    (0.0..=1.0).contains(&share).then_some(share).ok_or_else(wrong)
}

fn number<T: std::str::FromStr>(what: &str, text: &str) -> Result<T> {
    let wrong = |_| Error::invalid(format!("{what}: this is no number"), format!("`{text}`"));
    text.trim().parse().map_err(wrong)
}

fn unknown(what: &str, example: &str) -> Error {
    Error::invalid("this was not understood", format!("`{what}`")).hint(format!("write it like {example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_typed_as_it_is_said() {
        let typed = "300Gbit/s,latency=20ms,p99=100ms,stream=70MB/s,rps=5500,request=8MB,slow=1%:2s";
        let store = store("x", &fields(typed)).unwrap();
        assert_eq!((store.bytes_per_second, store.stream_bytes_per_second), (Some(37.5e9), Some(70e6)));
        assert_eq!((store.requests_per_second, store.request_bytes), (Some(5500.0), Some(8e6)));
        assert_eq!(store.latency, Latency { median: 0.02, p99: 0.1, slow_share: 0.01, slow: 2.0 });
    }

    #[test]
    fn caches_nodes_and_curves_are_typed_as_they_are_said() {
        let half = cache("50%,policy=lru,place=local,bandwidth=6GB/s", true).unwrap();
        assert_eq!((half.rule, half.place), (Rule::Ratio { ratio: 0.5, policy: Policy::Lru }, Placement::Local));
        assert_eq!(cache("25%,1", false).unwrap().rule, Rule::Rates(vec![0.25, 1.0]));
        let typed = nodes("8,25Gbit/s,stragglers=2%x3").unwrap();
        assert_eq!((typed.accelerators, typed.bytes_per_second), (8, Some(3.125e9)));
        assert_eq!((typed.stragglers, typed.straggling), (0.02, 3.0));
        assert_eq!(counts("180,60,98").unwrap(), [60, 98, 180]);
        assert_eq!(counts("20..60:20").unwrap(), [20, 40, 60]);
        assert_eq!(counts("10..110").unwrap().len(), 11);
        assert_eq!((counts("1..200").unwrap().last(), counts("1..8:3").unwrap()), (Some(&200), vec![1, 4, 7, 8]));
        assert_eq!((epochs("5x500").unwrap(), epochs("3").unwrap()), ((5, Some(500)), (3, None)));
        assert_eq!((seeds("7").unwrap(), seeds("1..3").unwrap()), (vec![7], vec![1, 2, 3]));
        assert_eq!(overhead("20ms,every=50").unwrap(), Overhead { seconds: 0.02, every: 50 });
    }

    #[test]
    fn what_is_not_understood_is_refused_with_an_example() {
        assert!(store("x", &fields("300Gbit/s,colour=red")).unwrap_err().hint.contains("latency="));
        assert!(cache("0.5,0.6", true).is_err() && cache("110%", false).is_err());
        assert!(cache("0.5,policy=lru", false).is_err(), "shares that are given have no policy");
        let error = counts("1,1000000").unwrap_err();
        assert!(error.on.contains("1000000") && error.hint.contains("fewer"), "{error}");
        assert!(counts("9..1").is_err() && cache("0.5,policy=LRU", true).is_ok());
        assert!(counts("0").is_err() && counts("1..9999:1").is_err() && seeds("9..1").is_err());
        assert!(nodes("8,stragglers=3").is_err() && overhead("20").is_err());
    }
}
