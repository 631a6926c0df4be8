//! Reports as one table of comma-separated values, for spreadsheets and data frames.
//!
//! It leaves nothing out but settings and environment, and rounds nothing. Invariants: each row is one record of one
//! report and says of which kind; a column is a field of the JSON document, by the same name and in the same unit; a
//! text that a spreadsheet would take for a formula begins with an apostrophe.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Report;

/// What each row begins with.
const HEAD: [&str; 9] =
    ["report", "record", "kind", "command", "workload", "accelerator", "accelerators", "target", "seed"];

/// A row for each epoch, process, point, cell, second and record of a section. `names` are of the reports, in order.
pub fn csv(reports: &[Report], names: &[String]) -> String {
    let mut columns: Vec<String> = HEAD.map(str::to_owned).to_vec();
    let mut rows: Vec<BTreeMap<String, String>> = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        let name = names.get(index).cloned().unwrap_or_else(|| (index + 1).to_string());
        for (record, fields) in records(report) {
            let mut row = head(report, &name, &record);
            for (field, value) in fields {
                // What a record has in common with its report stands in the record.
                if !columns.contains(&field) {
                    columns.push(field.clone());
                }
                row.insert(field, value);
            }
            rows.push(row);
        }
    }
    let line = |cells: Vec<&str>| cells.into_iter().map(quoted).collect::<Vec<_>>().join(",") + "\r\n";
    let mut text = line(columns.iter().map(String::as_str).collect());
    for row in &rows {
        text += &line(columns.iter().map(|column| row.get(column).map_or("", String::as_str)).collect());
    }
    text
}

fn head(report: &Report, name: &str, record: &str) -> BTreeMap<String, String> {
    let accelerators = report.accelerators.map(|count| count.to_string()).unwrap_or_default();
    let texts = [
        name,
        record,
        report.kind.name(),
        &report.command,
        report.workload.as_deref().unwrap_or_default(),
        report.accelerator.as_deref().unwrap_or_default(),
        &accelerators,
        &report.target,
    ];
    let mut row: BTreeMap<String, String> =
        HEAD.iter().zip(texts).map(|(column, text)| ((*column).to_owned(), guarded(text))).collect();
    row.insert("seed".to_owned(), report.seed.to_string());
    row
}

/// Fields of a record, by dotted names.
type Fields = Vec<(String, String)>;

/// The records of a report, each with its kind.
fn records(report: &Report) -> Vec<(String, Fields)> {
    let document = serde_json::to_value(report).expect("a report has no keys but strings");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for mut epoch in list(&document["epochs"]) {
        let mut parts = |name: &str| epoch.as_object_mut().and_then(|epoch| epoch.remove(name)).unwrap_or_default();
        let parts = [("process", parts("processes")), ("node", parts("nodes"))];
        found.push(("epoch".to_owned(), flat(&epoch)));
        for (record, rows) in &parts {
            for mut row in list(rows) {
                row["repetition"] = epoch["repetition"].clone();
                if *record == "node" {
                    row["epoch"] = epoch["epoch"].clone();
                }
                found.push(((*record).to_owned(), flat(&row)));
            }
        }
    }
    for (record, name) in [("point", "points"), ("cell", "cells"), ("second", "timeline")] {
        found.extend(list(&document[name]).iter().map(|value| (record.to_owned(), flat(value))));
    }
    for (name, section) in &report.sections {
        let records = if section.is_array() { list(section) } else { vec![section.clone()] };
        found.extend(records.iter().map(|value| (name.clone(), flat(value))));
    }
    found
}

/// The fields of a value, those of values in it by dotted names.
fn flat(value: &Value) -> Fields {
    let mut fields = Vec::new();
    spread("", value, &mut fields);
    fields
}

fn spread(name: &str, value: &Value, fields: &mut Fields) {
    let below = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| spread(&below(key), value, fields)),
        // One cell: lists differ in length, and a column for each place would say nothing.
        Value::Array(_) => fields.push((below_or_value(name), value.to_string())),
        Value::Null => {}
        Value::String(text) => fields.push((below_or_value(name), guarded(text))),
        other => fields.push((below_or_value(name), other.to_string())),
    }
}

/// A record may be a bare value.
fn below_or_value(name: &str) -> String {
    if name.is_empty() { "value".to_owned() } else { name.to_owned() }
}

/// Reports come from others: a spreadsheet must not compute what they say.
fn guarded(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Epoch, Kind, SCHEMA, Second};

    fn report() -> Report {
        let wait = BTreeMap::from([("store".to_owned(), 1.5)]);
        let epoch = Epoch { repetition: 1, epoch: 1, cold: true, wait_seconds_by_cause: wait, ..Epoch::default() };
        Report {
            schema: SCHEMA,
            kind: Kind::Measured,
            command: "train".into(),
            finished: true,
            started: 0.0,
            environment: Environment::default(),
            settings: Value::Null,
            target: "=HYPERLINK(\"x\"), \"quoted\"".into(),
            seed: 7,
            workload: None,
            accelerator: None,
            accelerators: Some(4),
            epochs: vec![epoch],
            summary: None,
            points: Vec::new(),
            cells: vec![serde_json::json!({"phase": "read", "latency_seconds": {"p99.9": 0.25}})],
            timeline: vec![Second { second: 1.0, requests: 5, ..Second::default() }],
            sections: BTreeMap::from([("sync".to_owned(), serde_json::json!([{"store": "s3", "seconds": 2.0}]))]),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn every_record_is_a_row_and_every_field_a_column() {
        let text = csv(&[report()], &["a".to_owned()]);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        let columns: Vec<&str> = lines[0].split(',').collect();
        for column in ["report", "record", "wait_seconds_by_cause.store", "latency_seconds.p99.9", "requests", "store"]
        {
            assert!(columns.contains(&column), "{column} is missing in {columns:?}");
        }
        assert_eq!(lines.len(), 5, "a head, an epoch, a cell, a second and a sync");
        assert!(lines.iter().any(|line| line.starts_with("a,cell,measured,train,,,4,") && line.contains("0.25")));
    }

    #[test]
    fn a_text_is_neither_a_formula_nor_more_than_one_cell() {
        let text = csv(&[report()], &["a".to_owned()]);
        assert!(text.contains("\"'=HYPERLINK(\"\"x\"\"), \"\"quoted\"\"\""), "{text}");
    }
}
