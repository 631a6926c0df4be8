//! Times as text, in UTC to the nanosecond: `2026-03-01T12:00:00.5Z`, as RFC 3339 has it.
//!
//! Invariant: what was written is read back as the same number.

const SECOND_NS: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Days from the first of March of the year 0 to the beginning of 1970.
const EPOCH_DAYS: i64 = 719_468;

/// Days of four hundred years.
const ERA_DAYS: i64 = 146_097;

/// Nanoseconds since 1970 as text, with as many digits behind the second as it needs.
pub fn text(ns: i64) -> String {
    let (seconds, fraction) = (ns.div_euclid(SECOND_NS), ns.rem_euclid(SECOND_NS));
    let (days, rest) = (seconds.div_euclid(DAY_SECONDS) + EPOCH_DAYS, seconds.rem_euclid(DAY_SECONDS));
    // Days of the civil calendar, whose years begin in March (Howard Hinnant).
    let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let digits = match fraction {
        0 => String::new(),
        _ => format!(".{fraction:09}").trim_end_matches('0').to_owned(),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{digits}Z")
}

/// The number that a text says; `None` if it is no such time, or not within three centuries of 1970.
pub fn parse(text: &str) -> Option<i64> {
    let (whole, fraction) = match text.strip_suffix('Z')?.split_once('.') {
        Some((whole, digits)) => (whole, nanoseconds(digits)?),
        None => (text.strip_suffix('Z')?, 0),
    };
    let bytes: &[u8; 19] = whole.as_bytes().try_into().ok()?;
    if [bytes[4], bytes[7], bytes[10], bytes[13], bytes[16]] != *b"--T::" {
        return None;
    }
    let number = |from: usize, to: usize| digits(&bytes[from..to]);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let shifted_year = year - i64::from(month <= 2);
    let (era, year_of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let seconds = (era * ERA_DAYS + day_of_era - EPOCH_DAYS) * DAY_SECONDS + hour * 3_600 + minute * 60 + second;
    seconds.checked_mul(SECOND_NS)?.checked_add(fraction)
}

fn nanoseconds(text: &str) -> Option<i64> {
    let places = u32::try_from(text.len()).ok().filter(|places| (1..=9).contains(places))?;
    Some(digits(text.as_bytes())? * 10i64.pow(9 - places))
}

fn digits(text: &[u8]) -> Option<i64> {
    let digit = |sum: i64, byte: &u8| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'));
    text.iter().try_fold(0, digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (ns, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400_500_000_000, "2000-02-29T00:00:00.5Z"),
            (1_772_366_400_000_000_000, "2026-03-01T12:00:00Z"),
        ] {
            assert_eq!(text(ns), expected);
            assert_eq!(parse(expected), Some(ns));
        }
        for wrong in [
            "",
            "Z",
            "2026-03-01 12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-03-01T12:00:00+01:00",
            "9999-03-01T12:00:00Z",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_moment_comes_back(ns: i64) {
            // The greatest years have no room for what is between a day and its end.
            let ns = ns / 2;
            prop_assert_eq!(parse(&text(ns)), Some(ns));
        }

        #[test]
        fn no_text_harms(text in "\\PC{0,40}") {
            parse(&text);
        }
    }
}
