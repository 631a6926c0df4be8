//! Dates of prices, as exact as their sources are: a day, a month or a year.
//!
//! Invariant: of a month or a year, the earliest day counts, so that nothing looks newer than it is.

use serde::{Serialize, Serializer};
use std::fmt;

/// A day, or the month or year that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: u16,
    /// 0 where it is unknown.
    month: u8,
    day: u8,
}

/// Nothing in a catalogue is older than this, or of a later year.
const YEARS: std::ops::RangeInclusive<u16> = 2000..=2199;

impl Date {
    /// `2024-07-01`, `2024-07` or `2024`.
    pub fn parse(text: &str) -> Option<Date> {
        let mut parts = text.split('-');
        let mut part = |digits: usize| match parts.next() {
            None => Some(0),
            Some(part) if part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()) => part.parse().ok(),
            Some(_) => None,
        };
        let (year, month, day): (u16, u16, u16) = (part(4)?, part(2)?, part(2)?);
        let is_given = |place: usize| text.split('-').count() > place;
        let is_date = YEARS.contains(&year)
            && text.split('-').count() <= 3
            && (!is_given(1) || (1..=12).contains(&month))
            && (!is_given(2) || (1..=days_of(year, month)).contains(&day));
        is_date.then_some(Date { year, month: month as u8, day: day as u8 })
    }

    /// The day of a moment that is written as `2024-07-01T00:00:00Z`, or as a day.
    pub fn of_moment(text: &str) -> Option<Date> {
        Date::parse(text.get(..10).unwrap_or(text))
    }

    /// Days since the year 0 began, with months of 30.4 and years of 365.25 days: for the age of prices.
    pub fn days(self) -> f64 {
        let (month, day) = (f64::from(self.month.max(1)), f64::from(self.day.max(1)));
        f64::from(self.year) * 365.25 + (month - 1.0) * 30.4375 + day - 1.0
    }
}

fn days_of(year: u16, month: u16) -> u16 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u16::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.month, self.day) {
            (0, _) => write!(out, "{:04}", self.year),
            (month, 0) => write!(out, "{:04}-{month:02}", self.year),
            (month, day) => write!(out, "{:04}-{month:02}-{day:02}", self.year),
        }
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_as_exact_as_it_is_written() {
        for text in ["2024-07-01", "2024-07", "2024", "2024-02-29", "2000-02-29", "2025-12-31"] {
            assert_eq!(Date::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "24", "2024-13", "2024-00-01", "2024-7-1", "2024-07-01-02", "1999", "2024-07-", "20é4"]
            .into_iter()
            .chain(["2024-02-30", "2025-02-29", "2100-02-29", "2024-04-31", "2024-00-31", "2024-07-32", "2024-07-00"])
        {
            assert_eq!(Date::parse(text), None, "{text}");
        }
        assert_eq!(Date::of_moment("2024-07-01T00:00:00Z"), Date::parse("2024-07-01"));
    }

    #[test]
    fn of_a_year_the_earliest_day_counts() {
        let date = |text| Date::parse(text).unwrap();
        assert!(date("2024") < date("2024-01") && date("2024-01") < date("2024-01-01"));
        assert!(date("2023-12-31") < date("2024") && date("2024").days() == date("2024-01-01").days());
    }
}
