//! Reports as files: what `stoker bench compare` prints and writes of them, that a browser draws each chart, and that
//! `docs/report.md` describes every field.
//!
//! It judges no look: `make look` makes pictures of the pages for people. The reports are made by arithmetic.

#[path = "report/examples.rs"]
mod examples;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use report::Report;
use serde_json::Value;

/// Pages by name, each of one report or of several, and the charts that they have: those, and no others.
fn pages() -> Vec<(&'static str, Vec<Report>, &'static str)> {
    let store = || examples::train("s3://training/unet3d", 1.0, 1);
    let mount = || examples::train("/mnt/stoker/unet3d", 1.24, 1);
    let other = || examples::train("/mnt/s3fs/unet3d", 0.51, 2);
    let sweep = || examples::sweep("/mnt/lustre", 1.0);
    let nodes = |nodes: u64| examples::processes("/mnt/stoker", 400.0 - 9.0 * nodes as f64, nodes);
    let swept = "heat-write heat-stat heat-read heat-delete latency-write latency-stat latency-read latency-delete regimes sync";
    vec![
        ("train", vec![store()], "busy waits rates requests disk"),
        ("processes", vec![examples::processes("/mnt/alluxio", 410.0, 2)], "busy waits rates processes"),
        ("find-max", vec![examples::find_max()], "utilisation"),
        ("simulated", vec![examples::simulated()], "utilisation nodes"),
        ("nodes", vec![examples::nodes()], "utilisation nodes"),
        ("sweep", vec![sweep()], swept),
        ("compare", vec![store(), mount(), other()], "compared busy waits rates requests disk"),
        ("compare-sweep", vec![sweep(), examples::sweep("/mnt/local", 2.4)], swept),
        ("compare-nodes", vec![nodes(1), nodes(2), nodes(4)], "utilisation compared busy waits rates nodes-samples"),
    ]
}

fn stoker(arguments: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
    command.args(["bench", "compare"]).args(arguments).env("LC_ALL", "C.UTF-8").output().expect("stoker runs")
}

fn saved(reports: &[Report], folder: &Path, name: &str) -> Vec<PathBuf> {
    let save = |(index, report): (usize, &Report)| {
        let path = folder.join(format!("{name}-{}.json", index + 1));
        report.save(&path).expect("a folder to write in");
        path
    };
    reports.iter().enumerate().map(save).collect()
}

/// The pages, written by the command. They stay below `target/`, for people to look at.
fn written(folder: &Path) -> Vec<(PathBuf, &'static str)> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect("a folder below target/");
    let write = |(name, reports, charts): (&str, Vec<Report>, &'static str)| {
        let page = folder.join(format!("{name}.html"));
        let paths = saved(&reports, folder, name);
        let mut arguments: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        arguments.extend([Path::new("--report"), &page]);
        let done = stoker(&arguments);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        (page, charts)
    };
    pages().into_iter().map(write).collect()
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn a_browser_draws_every_chart_that_there_are_figures_for() {
    let pages = written(&scratch("report"));
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|done| done.status.success()));
    let Some(browser) = browser else {
        return println!("SKIPPED: there is no Chromium to draw the pages of reports");
    };
    let first = fs::read_to_string(&pages[0].0).expect("a page");
    if first.contains("No charts") {
        return println!("SKIPPED: the page of reports was not built (make web)");
    }
    let profile = tempfile::tempdir().expect("a folder");
    for (page, charts) in pages {
        let folder = format!("--user-data-dir={}", profile.path().display());
        let flags =
            ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom", &folder];
        let done = Command::new(browser).args(flags).arg(&page).output().expect("the browser runs");
        let dom = String::from_utf8_lossy(&done.stdout);
        assert!(
            dom.contains("data-state=\"drawn\""),
            "{} failed:\n{}",
            page.display(),
            String::from_utf8_lossy(&done.stderr)
        );
        let drawn = dom.split("data-chart=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
        let (drawn, wanted): (BTreeSet<&str>, BTreeSet<&str>) = (drawn.collect(), charts.split(' ').collect());
        assert_eq!(drawn, wanted, "{}", page.display());
        let kinds = dom.matches("data-chart=").count();
        let badges = dom.matches(">measured</span>").count() + dom.matches(">simulated</span>").count();
        assert!(badges >= kinds, "each chart says whether it was measured");
    }
}

#[test]
fn reports_are_compared_with_intervals_and_written_in_three_forms() {
    let folder = tempfile::tempdir().expect("a folder");
    let reports = [examples::train("s3://slow", 0.5, 1), examples::train("/mnt/fast", 1.0, 2)];
    let paths = saved(&reports, folder.path(), "run");
    let [json, csv, html] = ["out.json", "out.csv", "out.html"].map(|name| folder.path().join(name));
    let done = stoker(&[
        &paths[0],
        &paths[1],
        Path::new("--save"),
        &json,
        Path::new("--csv"),
        &csv,
        Path::new("--report"),
        &html,
    ]);
    let (out, said) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}");
    assert!(out.contains("utilisation, cold") && out.contains("samples per second, warm"), "{out}");
    assert!(said.contains("the seed differs: 1, 2"), "{said}");
    let found: Value = serde_json::from_slice(&fs::read(&json).expect("the JSON")).expect("JSON");
    let rows = found["comparison"]["rows"].as_array().expect("rows");
    let cold = rows.iter().find(|row| row["measure"] == "utilisation, cold").expect("a row");
    let ratio = &cold["entries"][1]["ratio"];
    let at = |name: &str| ratio[name].as_f64().expect("a number");
    assert!(at("low") < at("ratio") && at("ratio") < at("high"), "{ratio}");
    assert!(at("low") < 2.0 && 2.0 < at("high"), "twice the speed is twice the utilisation: {ratio}");
    let rows = fs::read_to_string(&csv).expect("the CSV");
    assert_eq!(rows.matches(",epoch,measured,").count(), 18);
    assert_eq!(rows.matches(",second,measured,").count(), 360);
    assert!(fs::read_to_string(&html).expect("the page").contains("s3://slow"));
}

#[test]
fn what_is_no_report_or_of_another_schema_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("out.html");
    let mut newer = serde_json::to_value(examples::find_max()).expect("JSON");
    newer["schema"] = 99.into();
    newer["kind"] = "guessed".into();
    for (text, words) in
        [(newer.to_string(), "schema 99"), ("{\"a\": 1}".into(), "no report"), ("not JSON".into(), "no report")]
    {
        let path = folder.path().join("in.json");
        fs::write(&path, text).expect("written");
        let done = stoker(&[&path, Path::new("--report"), &page]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(words) && said.contains("in.json") && said.contains("try:"), "{said}");
        assert!(!page.exists());
    }
    let done = stoker(&[&folder.path().join("absent.json")]);
    assert!(String::from_utf8_lossy(&done.stderr).contains("absent.json"));
}

#[test]
fn the_document_describes_every_field_of_a_report() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/report.md");
    let described = fs::read_to_string(path).expect("docs/report.md");
    let mut names = BTreeSet::new();
    for (_, reports, _) in pages() {
        reports.iter().for_each(|report| keys(&serde_json::to_value(report).expect("JSON"), &mut names));
    }
    let missing: Vec<&String> = names.iter().filter(|name| !described.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/report.md says nothing of {missing:?}");
    assert!(names.len() > 60, "the examples have few fields: {names:?}");
}

/// Names of all fields; settings are of each command's own.
fn keys(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            if name != "settings" {
                keys(value, names);
            }
        }),
        Value::Array(members) => members.iter().for_each(|value| keys(value, names)),
        _ => {}
    }
}

#[test]
fn no_result_takes_the_place_of_what_is_none_or_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = &saved(&[examples::train("s3://training/unet3d", 1.0, 1)], folder.path(), "read")[0];
    let data = folder.path().join("train-0.tfrecord");
    fs::write(&data, b"precious").expect("written");
    let (page, both) = (folder.path().join("page.html"), folder.path().join("both"));
    let [save, html, csv] = ["--save", "--report", "--csv"].map(Path::new);
    let as_it_was = fs::read(report).expect("a report");
    for wrong in [
        &[report, save, report][..],
        &[report, html, report],
        &[report, csv, report],
        &[report, save, &data],
        &[report, html, &data],
        &[report, csv, &data],
        &[report, save, &both, html, &both],
    ] {
        let done = stoker(wrong);
        assert_eq!(done.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(fs::read(report).expect("a report"), as_it_was);
    assert_eq!(fs::read(&data).expect("data"), b"precious");
    assert!(!both.exists());
    for _ in 0..2 {
        assert!(stoker(&[report, html, &page]).status.success(), "an earlier result gives way");
    }
}
