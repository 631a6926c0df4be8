//! Numbers as they are typed after the flags of `stoker plan`.
//!
//! Invariant: what could be meant in two ways is refused with an example; nothing of a text is ignored.

use ::emulate::parse;
use block::{Error, Result};

/// Beyond this, a rate of samples is a slip.
const RATE_MAX: f64 = 1e12;
/// What samples are called by those who ask for a rate of them.
const SAMPLES: [&str; 16] = [
    "",
    "sample",
    "samples",
    "image",
    "images",
    "img",
    "imgs",
    "record",
    "records",
    "item",
    "items",
    "sequence",
    "sequences",
    "file",
    "files",
    "volumes",
];
/// What a number is short for.
const PREFIXES: [(&str, f64); 4] = [("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6)];

/// A number that stands at the beginning of a text, and the rest.
fn number_and_rest(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let digits = |text: &str| text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let whole = digits(text);
    let fraction = text[whole..].strip_prefix('.').map_or(0, |rest| match digits(rest) {
        0 => 0,
        count => count + 1,
    });
    let end = whole + fraction;
    let power = text[end..].strip_prefix(['e', 'E']).map_or(0, |rest| {
        let sign = usize::from(rest.starts_with(['+', '-']));
        match digits(&rest[sign..]) {
            0 => 0,
            count => 1 + sign + count,
        }
    });
    let number: f64 = text[..end + power].parse().ok()?;
    (whole > 0 && number.is_finite()).then(|| (number, text[end + power..].trim()))
}

/// A number within bounds.
fn number(text: &str, low: f64, high: f64, example: &str) -> Result<f64> {
    let hint = format!("a number from {low} to {high}, written like {example}");
    let refused = |what: &str| Err(Error::invalid(what, format!("`{text}`")).hint(hint.clone()));
    match number_and_rest(text) {
        Some((number, "")) if (low..=high).contains(&number) => Ok(number),
        Some((_, "")) => refused("this is out of bounds"),
        Some((_, rest)) if rest.starts_with(',') => refused("a number is written without separators"),
        _ if text.trim().starts_with('-') => refused("this is below zero"),
        _ if text.trim().is_empty() => refused("there is no number"),
        _ => refused("this is no number"),
    }
}

fn whole(text: &str, low: f64, high: f64, example: &str) -> Result<f64> {
    let number = number(text, low, high, example)?;
    match number.fract() == 0.0 {
        true => Ok(number),
        false => {
            Err(Error::invalid("this is no whole number", format!("`{text}`")).hint(format!("write it like {example}")))
        }
    }
}

pub fn files(text: &str) -> Result<f64> {
    whole(text, 1.0, 1e13, "500000")
}

pub fn epochs(text: &str) -> Result<f64> {
    whole(text, 1.0, 1e6, "48")
}

pub fn hours_per_month(text: &str) -> Result<f64> {
    number(text, 0.001, 730.0, "200")
}

pub fn usd(text: &str) -> Result<f64> {
    number(text, 0.0, 1e5, "1.90")
}

pub fn losses(text: &str) -> Result<f64> {
    number(text, 0.0, 100.0, "0.001")
}

pub fn jobs(text: &str) -> Result<u32> {
    Ok(whole(text, 1.0, 1e4, "2")? as u32)
}

pub fn zones(text: &str) -> Result<u32> {
    Ok(whole(text, 1.0, 100.0, "3")? as u32)
}

pub fn top(text: &str) -> Result<usize> {
    Ok(whole(text, 1.0, 1e4, "10")? as usize)
}

pub fn scale(text: &str) -> Result<f64> {
    number(text, 1.0, 1e9, "32")
}

/// A number of accelerators.
pub fn accelerators(text: &str) -> Result<u32> {
    Ok(whole(text, 1.0, 1e6, "32, or 8,64, or 1..512")? as u32)
}

/// Samples a second: `4200images/s`, `4.2k images/s`, `1e4/s`.
pub fn rate(text: &str) -> Result<f64> {
    let refused = |what: String, hint: &str| Error::invalid(what, format!("`{text}`")).hint(hint);
    let example = "write it like 4200images/s";
    let Some((number, rest)) = number_and_rest(text) else {
        return Err(refused("this is no rate".into(), example));
    };
    if rest.starts_with([',', '.', '_']) {
        return Err(refused("a number is written without separators".into(), example));
    }
    let Some(what) = rest.strip_suffix("/s").map(str::trim) else {
        return Err(refused("a rate is of something in a second".into(), example));
    };
    if parse::bandwidth(&format!("1{what}/s")).is_ok_and(|_| !PREFIXES.iter().any(|(prefix, _)| *prefix == what)) {
        let hint = "samples a second: these bytes over those of a sample, as 4200images/s";
        return Err(refused("this is a rate of bytes, and one of samples is wanted".into(), hint));
    }
    let factor = PREFIXES.iter().find_map(|(prefix, factor)| {
        let word = what.strip_prefix(prefix)?;
        SAMPLES.contains(&word.trim()).then_some(factor)
    });
    let factor = factor.ok_or_else(|| {
        let hint = format!("{example}; one of: {}", SAMPLES[1..].join(", "));
        refused(format!("it is not known what `{what}` are"), &hint)
    })?;
    match number * factor {
        rate if rate > 0.0 && rate <= RATE_MAX => Ok(rate),
        _ => Err(refused("this is out of bounds".into(), "above 0, up to 10^12 samples a second")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_a_person_means() {
        for (text, rate_of) in [
            ("4200images/s", 4200.0),
            ("4.2kimages/s", 4200.0),
            ("4.2k images/s", 4200.0),
            ("4.2k/s", 4200.0),
            ("1e4images/s", 1e4),
            ("1.5e+4 samples/s", 1.5e4),
            ("2Msamples/s", 2e6),
            (" 600/s ", 600.0),
        ] {
            assert!((rate(text).unwrap() / rate_of - 1.0).abs() < 1e-12, "{text}");
        }
        for (text, said) in [
            ("4,200images/s", "separators"),
            ("4_200images/s", "separators"),
            ("4200MB/s", "bytes"),
            ("5Gbit/s", "bytes"),
            ("4.2GiB/s", "bytes"),
            ("4200images", "in a second"),
            ("4200", "in a second"),
            ("4200images/h", "in a second"),
            ("4200kernels/s", "kernels"),
            ("fast/s", "no rate"),
            ("-5images/s", "no rate"),
            ("nanimages/s", "no rate"),
            ("0images/s", "bounds"),
            ("1e400images/s", "no rate"),
            ("1e30images/s", "bounds"),
            ("", "no rate"),
        ] {
            let error = rate(text).unwrap_err();
            assert!(error.what.contains(said) && error.hint.contains("s"), "{text}: {error}");
        }
    }

    #[test]
    fn a_number_is_all_of_what_was_typed() {
        assert_eq!((epochs("48").unwrap(), files("5e5").unwrap(), usd("1.90").unwrap()), (48.0, 5e5, 1.9));
        for text in ["1.5", "", " ", "-1", "nan", "inf", "1e400", "0", "1e7", "48x", "4,8", "0x10", "1.", ".5", "--1"] {
            let error = epochs(text).unwrap_err();
            assert!(error.hint.contains("48"), "{text}: {error}");
        }
        for text in ["1e30", "nan", "-3", "1 2"] {
            assert!(files(text).is_err() && hours_per_month(text).is_err() && zones(text).is_err(), "{text}");
        }
    }
}
