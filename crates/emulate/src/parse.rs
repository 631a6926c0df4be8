//! What a person types, read as numbers: sizes, rates and times. Knows units, knows no defaults.
//!
//! Invariant: a unit is required where leaving it out would be ambiguous, and every refusal shows an example.

use block::{Error, Result};
use std::time::Duration;

/// Units of bytes; decimal as networks and services count, binary where the `i` says so.
const BYTES: [(&str, u64); 17] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
];

/// The most bytes that are believed to be meant: an exabyte.
const BYTES_MAX: f64 = 1e18;

/// Units of bits, as contracts for networks state them.
const BITS: [(&str, u64); 9] = [
    ("bit", 1),
    ("kbit", 1_000),
    ("Mbit", 1_000_000),
    ("Gbit", 1_000_000_000),
    ("Tbit", 1_000_000_000_000),
    ("kb", 1_000),
    ("Mb", 1_000_000),
    ("Gb", 1_000_000_000),
    ("Tb", 1_000_000_000_000),
];

/// Bytes: `4096`, `1.5GB`, `256 KiB`.
pub fn bytes(text: &str) -> Result<u64> {
    let (number, unit) = number_and_unit(text).ok_or_else(|| bad_bytes(text))?;
    let scale = match unit {
        "" => 1,
        unit => scale(&BYTES, unit).ok_or_else(|| bad_bytes(text))?,
    };
    let bytes = (number * scale as f64).round();
    if bytes > BYTES_MAX {
        let error = Error::invalid("a size of more than an exabyte is a slip", format!("`{text}`"));
        return Err(error.hint("write it like 100GB or 1.5TiB"));
    }
    Ok(bytes as u64)
}

/// An amount of bytes that a limit is set to: a bare number is a unit that was forgotten.
pub fn size(text: &str) -> Result<u64> {
    match number_and_unit(text) {
        Some((_, "")) => Err(Error::invalid("a size needs a unit", format!("`{text}`")).hint(format!(
            "write it like {}GB or {}GiB",
            text.trim(),
            text.trim()
        ))),
        _ => bytes(text),
    }
}

/// Bytes per second: `200MB/s`, `25Gbit/s`, `25Gbps`, `1.2 GiB/s`. Without `/s` the same is meant.
pub fn bandwidth(text: &str) -> Result<u64> {
    let bad = || {
        Error::invalid("a bandwidth was not understood", format!("`{text}`"))
            .hint("write it like 200MB/s, 25Gbit/s or 25Gbps; leave it out for no limit")
    };
    let amount = text.trim().trim_end_matches("/s").trim_end_matches("ps");
    let (number, unit) = number_and_unit(amount).ok_or_else(bad)?;
    let per_second = match (scale(&BITS, unit), scale(&BYTES, unit)) {
        (Some(bits), _) => number * bits as f64 / 8.0,
        (None, Some(bytes)) => number * bytes as f64,
        (None, None) => return Err(bad()),
    };
    if per_second < 1.0 {
        return Err(bad());
    }
    Ok(per_second.round() as u64)
}

/// A time: `250us`, `20ms`, `1.5s`, `2m`, `1h`.
pub fn duration(text: &str) -> Result<Duration> {
    let bad =
        || Error::invalid("a time was not understood", format!("`{text}`")).hint("write it like 250us, 20ms or 1.5s");
    let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "" => {
            let error = Error::invalid("a time needs a unit", format!("`{text}`"));
            return Err(error.hint(format!("write it like {0}s or {0}ms", text.trim())));
        }
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

fn scale(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

fn bad_bytes(text: &str) -> Error {
    Error::invalid("a size was not understood", format!("`{text}`")).hint("write it like 100KB, 64MiB or 1.5GB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_have_units() {
        assert_eq!(bytes("4096").unwrap(), 4096);
        assert_eq!(bytes("1.5GB").unwrap(), 1_500_000_000);
        assert_eq!(bytes("256 KiB").unwrap(), 262_144);
        assert_eq!(bandwidth("200MB/s").unwrap(), 200_000_000);
        assert_eq!(bandwidth("25Gbit/s").unwrap(), 3_125_000_000);
        assert_eq!(bandwidth("25Gbps").unwrap(), 3_125_000_000);
        assert_eq!(bandwidth("200MBps").unwrap(), 200_000_000);
        assert_eq!(bandwidth("1GiB").unwrap(), 1 << 30);
        assert_eq!(size("10GB").unwrap(), 10_000_000_000);
        assert_eq!(duration("20ms").unwrap(), Duration::from_millis(20));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
    }

    #[test]
    fn a_refusal_shows_an_example() {
        for text in ["", "fast", "200", "200parsecs", "-1MB/s", "0MB/s"] {
            let error = bandwidth(text).unwrap_err();
            assert!(error.hint.contains("200MB/s"), "{text}");
        }
        assert!(size("10").unwrap_err().hint.contains("10GB"));
        assert!(bytes("many").unwrap_err().hint.contains("64MiB"));
        assert!(bytes("999999PB").unwrap_err().what.contains("exabyte"));
        assert!(duration("20").unwrap_err().hint.contains("20ms"));
        assert!(duration("99999999999999999999s").is_err());
    }
}
