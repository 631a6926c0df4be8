//! Reports as files: what `stoker bench compare` prints and writes of them, that a browser draws each chart, and that
//! `docs/report.md` describes every field.
//!
//! It judges no look: `make look` makes pictures of the pages for people. The reports are made by arithmetic.

#[path = "report/examples.rs"]
mod examples;
#[path = "report/said.rs"]
mod said;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use report::Report;
use serde_json::Value;

/// A page, of one report or of several.
struct Page {
    name: &'static str,
    reports: Vec<Report>,
    title: &'static str,
    /// Those, and no others.
    charts: &'static str,
    /// What else it says, of what is drawn in the words for who can't see it.
    says: Vec<&'static str>,
}

fn page(name: &'static str, reports: Vec<Report>, title: &'static str, charts: &'static str) -> Page {
    Page { name, reports, title, charts, says: Vec::new() }
}

impl Page {
    fn saying(self, says: &[&'static str]) -> Page {
        Page { says: says.to_vec(), ..self }
    }
}

fn pages() -> Vec<Page> {
    [runs(), curves(), sweeps(), several()].into_iter().flatten().collect()
}

fn store() -> Report {
    examples::train("s3://training/unet3d", 1.0, 1)
}

/// Of training loops, each at one number of accelerators, and of checkpoints.
fn runs() -> Vec<Page> {
    vec![
        page(
            "train",
            vec![store()],
            "unet3d on 8 × V100: 77.2 % busy in its worst epoch, cold",
            "busy waits rates requests disk",
        )
        .saying(&[
            "18.1 of 23.5/s",
            "what the accelerators could take",
            "passes at 90 %",
            "limit 5,500/s",
            "limit 16,000 IOPS",
            "begins: epoch 1.1, 1.2",
            "start<b",
        ]),
        page("invalid", vec![examples::invalid()], "unet3d on 8 × V100: no verdict", "waits rates requests disk"),
        page(
            "processes",
            vec![examples::processes("/mnt/alluxio", 410.0, 2)],
            "imagenet-folder on 8 × fixed-0.5s: 52.0 % busy in its worst epoch, cold",
            "busy waits rates tiers processes closed",
        )
        .saying(&["slowest: rank 2 on node-2"]),
        page(
            "checkpoint",
            vec![examples::checkpoint("/mnt/lustre", 1.0)],
            "checkpoint-llama3-8b: written in 47.7 s, read in 33.9 s",
            "checkpoint",
        )
        .saying(&[
            "durable, 105 GB in 43.8 s",
            "not cold: maybe of memory",
            "mean of the processes, times their number",
        ]),
    ]
}

/// Over numbers of accelerators.
fn curves() -> Vec<Page> {
    vec![
        page("find-max", vec![examples::find_max()], "unet3d keeps 14 × H100 busy", "utilisation").saying(&[
            "accelerators (linear)",
            "passes at 90 %",
            "target full at 13.3",
            "keeps 14 busy",
            "15 reach 88.3 %",
            "with a band",
        ]),
        page(
            "simulated",
            vec![examples::simulated()],
            "resnet50 keeps 64 to at least 1,024 × A100 busy, by its hits",
            "utilisation",
        )
        .saying(&["accelerators (logarithmic)", "passes at 90 %"]),
        page("epochs", vec![examples::cold_and_warm()], "unet3d on H100: 8 cold, 16 warm kept busy", "utilisation")
            .saying(&["Kept busy, cold", "Kept busy, warm"]),
        page("nodes", vec![examples::nodes()], "unet3d keeps 96 × H100 busy", "utilisation nodes").saying(&[
            "hits in the cache",
            "with a band",
            "target full at",
        ]),
    ]
}

const SWEPT: &str = "heat-write heat-stat heat-read heat-delete latency-write latency-stat latency-read \
    latency-delete threads-write threads-stat threads-read threads-delete regimes sync";
const TWO_SWEPT: &str = "heat-write heat-stat heat-read heat-delete latency-write latency-stat latency-read \
    latency-delete threads-write threads-stat threads-read threads-delete regimes sync \
    ratio-write ratio-stat ratio-read ratio-delete";

fn sweeps() -> Vec<Page> {
    let sweep = || examples::sweep("/mnt/lustre", 1.0);
    let both = vec![sweep(), examples::sweep("/mnt/local", 2.4)];
    let warm = "A warm sweep: its reads may come from memory";
    vec![
        page("sweep", vec![sweep()], "Reads at up to 1.9 GB/s, cold", SWEPT).saying(&[
            "cold<",
            "no more from 64 on",
            "knee 1.62 MiB",
            "1.62 MiB (1.24 MiB to 2.1 MiB)",
            "Means of 2 repetitions",
        ]),
        page("warm-sweep", vec![examples::warm_sweep()], warm, SWEPT).saying(&[
            "not cold",
            "over in less than 0.1 s",
            "maybe of memory",
        ]),
        page("compare-sweep", both, "2 runs of sweep: cold reads at up to 1.9 GB/s to 4.48 GB/s", TWO_SWEPT).saying(&[
            "×2.36",
            "compare-sweep-2 against",
            "no more from",
        ]),
    ]
}

fn several() -> Vec<Page> {
    let mount = examples::train("/mnt/stoker/unet3d", 1.24, 1);
    let other = examples::train("/mnt/s3fs/unet3d", 0.51, 2);
    let nodes = |nodes: u64| examples::processes("/mnt/stoker", 400.0 - 9.0 * nodes as f64, nodes);
    vec![
        page(
            "compare",
            vec![store(), mount, other],
            "3 runs of unet3d: 39.3 % to 95.5 % busy",
            "feeds compared busy waits rates requests disk",
        )
        // The third run has the same colour in bars, and before its name.
        .saying(&["✗ 77.2 %", "✓ 95.5 %", "var(--series-3)"]),
        page(
            "compare-nodes",
            vec![nodes(1), nodes(2), nodes(4)],
            "3 runs of imagenet-folder: 52.0 % busy",
            "feeds utilisation compared busy waits rates tiers closed nodes-samples",
        )
        .saying(&["ideal: 2,"]),
        page(
            "compare-checkpoints",
            vec![examples::checkpoint("/mnt/lustre", 1.0), examples::checkpoint("/mnt/nfs", 0.6)],
            "2 runs of checkpoint-llama3-8b, compared",
            "checkpoint",
        ),
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
fn written(folder: &Path) -> Vec<(PathBuf, Page)> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect("a folder below target/");
    let write = |page: Page| {
        let path = folder.join(format!("{}.html", page.name));
        let paths = saved(&page.reports, folder, page.name);
        let mut arguments: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        arguments.extend([Path::new("--report"), &path]);
        let done = stoker(&arguments);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        (path, page)
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
    for (path, page) in pages {
        let folder = format!("--user-data-dir={}", profile.path().display());
        let flags =
            ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom", &folder];
        let done = Command::new(browser).args(flags).arg(&path).output().expect("the browser runs");
        let dom = String::from_utf8_lossy(&done.stdout);
        assert!(
            dom.contains("data-state=\"drawn\""),
            "{} failed:\n{}",
            page.name,
            String::from_utf8_lossy(&done.stderr)
        );
        let drawn = dom.split("data-chart=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
        let (drawn, wanted): (BTreeSet<&str>, BTreeSet<&str>) =
            (drawn.collect(), page.charts.split_whitespace().collect());
        assert_eq!(drawn, wanted, "{}", page.name);
        // The program of the page holds markup too: what it made stands in `main`.
        let made = dom.rsplit("<main").next().unwrap_or_default();
        assert_eq!(title(made), page.title, "{}", page.name);
        let plain = made.replace("&nbsp;", " ");
        for words in &page.says {
            assert!(plain.contains(words), "{} doesn't say {words:?}", page.name);
        }
        let is_invalid = page.name == "invalid";
        assert_eq!(made.contains("data-why"), is_invalid, "{}: a run that doesn't tell says why", page.name);
        assert!(!is_invalid || !made.contains("<dt"), "nor has it a figure in large type");
        let kinds = dom.matches("data-chart=").count();
        let badges = dom.matches(">measured</span>").count() + dom.matches(">simulated</span>").count();
        assert!(badges >= kinds, "each chart says whether it was measured");
    }
}

/// What stands in the largest type, with plain spaces.
fn title(made: &str) -> String {
    let text = made.split("<h1").nth(1).and_then(|rest| rest.split_once('>')?.1.split("</h1>").next());
    text.unwrap_or_default().replace("&nbsp;", " ")
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
    assert!(out.contains("utilisation, first epoch") && out.contains("samples per second, later epochs"), "{out}");
    assert!(said.contains("the seed differs: 1, 2"), "{said}");
    let found: Value = serde_json::from_slice(&fs::read(&json).expect("the JSON")).expect("JSON");
    let rows = found["comparison"]["rows"].as_array().expect("rows");
    let cold = rows.iter().find(|row| row["measure"] == "utilisation, first epoch").expect("a row");
    let ratio = &cold["entries"][1]["ratio"];
    let at = |name: &str| ratio[name].as_f64().expect("a number");
    assert!(at("low") < at("ratio") && at("ratio") < at("high"), "{ratio}");
    assert!(at("low") < 2.0 && 2.0 < at("high"), "twice the speed is twice the utilisation: {ratio}");
    let rows = fs::read_to_string(&csv).expect("the CSV");
    assert_eq!(rows.matches(",epoch,measured,").count(), 18);
    let seconds: usize = reports.iter().map(|report| report.timeline.len()).sum();
    assert_eq!(rows.matches(",second,measured,").count(), seconds);
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
    for Page { reports, .. } in pages() {
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
