//! What was typed, as reports tell it: without what may be secret.
//!
//! Invariant: no command that drops caches and no `user:password@` of a URL is in any report, wherever it was typed.

use report::Report;
use serde_json::Value;

/// In place of a command.
pub const GIVEN: &str = "given";

const COMMAND: &str = "--drop-command";

/// The arguments of this process.
pub fn arguments() -> Value {
    told(std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()))
}

/// Those of any process of this program.
pub fn told(arguments: impl Iterator<Item = String>) -> Value {
    let mut is_command = false;
    let each = arguments.map(|argument| {
        if std::mem::replace(&mut is_command, argument == COMMAND) {
            return GIVEN.to_owned();
        }
        match argument.strip_prefix(COMMAND).filter(|rest| rest.starts_with('=')) {
            Some(_) => format!("{COMMAND}={GIVEN}"),
            None => without_user(&argument),
        }
    });
    each.collect()
}

/// Take users and passwords out of all URLs in a report.
pub fn cleaned(report: &Report) -> Report {
    let mut report = report.clone();
    report.target = without_user(&report.target);
    report.warnings.iter_mut().for_each(|warning| *warning = without_user(warning));
    let values = report.sections.values_mut().chain(&mut report.cells).chain([&mut report.settings]);
    values.for_each(clean);
    report
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("://") => *text = without_user(text),
        Value::Array(values) => values.iter_mut().for_each(clean),
        Value::Object(members) => members.values_mut().for_each(clean),
        _ => {}
    }
}

/// `http://user:password@host/path` as `http://host/path`; of all URLs in a text.
pub fn without_user(text: &str) -> String {
    let mut pieces = text.split("://");
    let mut clean = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|found: char| found == '/' || found == '?' || found == '#' || found.is_whitespace());
        let (host, rest) = piece.split_at(end.unwrap_or(piece.len()));
        clean += "://";
        clean += host.rsplit_once('@').map_or(host, |(_, host)| host);
        clean += rest;
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_were_typed_are_not_told() {
        let typed = [
            "stoker",
            "bench",
            "train",
            "s3://me:SECRET@bucket/set",
            "--endpoint",
            "http://me:SECRET@host:9000/?a=1",
            "--drop-command",
            "curl -H 'Token: SECRET' http://host",
            "--drop-command=ssh SECRET",
            "--set",
            "threads=4",
            "--endpoint=https://SECRET@host",
        ];
        let found = told(typed.iter().map(|&argument| argument.to_owned()));
        assert!(!found.to_string().contains("SECRET"), "{found}");
        for kept in ["s3://bucket/set", "http://host:9000/?a=1", "threads=4", "--endpoint=https://host"] {
            assert!(found.as_array().unwrap().contains(&kept.into()), "{kept}: {found}");
        }
        assert_eq!(found.as_array().unwrap().len(), typed.len());
    }

    #[test]
    fn no_url_of_a_document_names_a_user() {
        let mut document = serde_json::json!({
            "target": "s3://me:SECRET@bucket", "steps": [{ "from": "copied from http://me:SECRET@a/b to s3://c@d" }],
            "mail": "me@host", "folder": "/mnt/a@b", "at": "http://host/a@b",
        });
        clean(&mut document);
        assert_eq!(
            document,
            serde_json::json!({
                "target": "s3://bucket", "steps": [{ "from": "copied from http://a/b to s3://d" }],
                "mail": "me@host", "folder": "/mnt/a@b", "at": "http://host/a@b",
            })
        );
    }
}
