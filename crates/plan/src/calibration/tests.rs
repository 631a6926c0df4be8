//! The ten cases, each a test of its own.

use super::*;

fn rows(case: &str) -> Vec<Row> {
    let rows: Vec<Row> = all().rows.into_iter().filter(|row| row.case == case).collect();
    assert!(!rows.is_empty());
    rows
}

#[test] fn show() { println!("{}", all().markdown()); }
