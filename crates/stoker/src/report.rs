//! Reports as a page that is complete in itself, and as comma-separated values.
//!
//! `web/` draws the page; here reports are put into it. It measures and computes nothing. Invariants: what a report
//! says never becomes markup; a page refers to nothing outside itself; a page without charts says so; a file is
//! replaced whole or not at all.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use block::Result;
use report::Report;
use report::compare::{Comparison, compare};

#[cfg(test)]
mod tests;

/// The page that Node built; empty if it was not there (`build.rs`).
const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/report.html"));

/// Where the reports go; `build.rs` has made sure that the page has it once.
const SLOT: &str = "<script id=\"reports\" type=\"application/json\"></script>";

/// What is said once a plain page was written.
pub const PLAIN: &str = "this stoker was built without Node, so that its reports are plain tables with their JSON";

/// Whether pages have charts.
pub fn has_charts() -> bool {
    !PAGE.is_empty()
}

/// Write a page of one report, or of several over each other. They are named by their targets.
pub fn write(reports: &[Report], path: &Path) -> Result<()> {
    write_named(reports, &names(reports), path)
}

/// The same, with the names that the reports go by.
pub fn write_named(reports: &[Report], names: &[String], path: &Path) -> Result<()> {
    replace(path, &page(PAGE, reports, names, &compare(reports)))
}

/// Write reports as comma-separated values: a row for each epoch, cell, point and second.
pub fn csv(reports: &[Report], path: &Path) -> Result<()> {
    csv_named(reports, &names(reports), path)
}

/// The same, with the names that the reports go by.
pub fn csv_named(reports: &[Report], names: &[String], path: &Path) -> Result<()> {
    replace(path, &report::csv::csv(reports, names))
}

/// Whoever reads the file sees the last whole one.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    report::whole::write(path, text.as_bytes()).map_err(|error| error.hint("name a file in a folder that exists"))
}

/// Targets, numbered where they are the same.
fn names(reports: &[Report]) -> Vec<String> {
    let targets: HashSet<&str> = reports.iter().map(|report| report.target.as_str()).collect();
    let is_clear = targets.len() == reports.len();
    let name = |(index, report): (usize, &Report)| {
        if is_clear { report.target.clone() } else { format!("{} ({})", report.target, index + 1) }
    };
    reports.iter().enumerate().map(name).collect()
}

/// The page: `template` with the reports in it, or a plain one.
fn page(template: &str, reports: &[Report], names: &[String], comparison: &Comparison) -> String {
    let named = names.iter().zip(reports);
    let named: Vec<_> = named.map(|(name, report)| serde_json::json!({"name": name, "report": report})).collect();
    let comparison = (reports.len() > 1).then_some(comparison);
    let document = serde_json::json!({"reports": named, "comparison": comparison});
    let slot = format!("<script id=\"reports\" type=\"application/json\">{}</script>", inert(&document));
    match template.split_once(SLOT) {
        Some((before, after)) => {
            let tables = format!("<noscript><style>{LOOK}</style>{}</noscript>", tables(&named));
            [before, &tables, &slot, after].concat()
        }
        None => plain(&named, &slot),
    }
}

/// JSON that can't end the element that it stands in, nor begin a comment there.
fn inert(document: &serde_json::Value) -> String {
    document.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

const LOOK: &str = "\
:root { color-scheme: light dark } body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 60rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } th { text-align: left; font-weight: 500 }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); padding: .25rem 1rem .25rem 0; vertical-align: top }
td { overflow-wrap: anywhere } .note { opacity: .75 }";

/// The page of a build without Node.
fn plain(named: &[serde_json::Value], slot: &str) -> String {
    let body = format!("<p class=\"note\">No charts: {}.</p>\n{}", escaped(PLAIN), tables(named));
    let head =
        "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Stoker report</title>";
    let policy =
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";
    format!(
        "<!doctype html>\n<html lang=\"en\"><head>{head}{policy}<style>{LOOK}</style></head>\n<body><h1>Stoker report</h1>\n\
         {body}{slot}\n</body></html>\n"
    )
}

/// Every figure of the reports.
fn tables(named: &[serde_json::Value]) -> String {
    let mut body = String::new();
    for report in named {
        let name = report["name"].as_str().unwrap_or_default();
        let kind = report["report"]["kind"].as_str().unwrap_or_default();
        let _ = writeln!(body, "<h2>{} ({})</h2>\n<table>", escaped(name), escaped(kind));
        rows("", &report["report"], &mut body);
        body += "</table>\n";
    }
    body
}

/// A row for each field, those of fields within it by dotted names.
fn rows(name: &str, value: &serde_json::Value, body: &mut String) {
    let below = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        serde_json::Value::Object(members) => members.iter().for_each(|(key, value)| rows(&below(key), value, body)),
        serde_json::Value::Array(members) => {
            members.iter().enumerate().for_each(|(at, value)| rows(&below(&(at + 1).to_string()), value, body));
        }
        other => {
            let text = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
            let _ = writeln!(body, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(&text));
        }
    }
}
