//! What the page says of reports, by its own program in Node: titles, figures and charts. It needs no browser.

use super::{Page, examples, pages};
use report::{Report, Verdict};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The title, tiles and charts of each of these; nothing where the program of the page isn't installed.
fn said(all: &[&[Report]]) -> Option<Vec<Value>> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    if !web.join("node_modules/vite").exists() {
        println!("SKIPPED: the program of the page of reports is not installed (make web)");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("node");
    command.arg("say.mjs").current_dir(&web);
    for (number, reports) in all.iter().enumerate() {
        let path = folder.path().join(format!("{number}.json"));
        let named =
            reports.iter().enumerate().map(|(at, report)| json!({"name": format!("run-{}", at + 1), "report": report}));
        fs::write(&path, Value::from_iter(named).to_string()).expect("written");
        command.arg(path);
    }
    let done = command.output().expect("node runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(serde_json::from_slice(&done.stdout).expect("what it says is JSON"))
}

fn title(reports: &[Report]) -> Option<String> {
    Some(said(&[reports])?[0]["title"].as_str().expect("a title").to_owned())
}

/// Everything that one report is said to be.
fn whole(report: Report) -> Option<String> {
    Some(said(&[&[report]])?[0].to_string())
}

#[test]
fn each_page_has_its_title_and_charts() {
    let pages = pages();
    let all: Vec<&[Report]> = pages.iter().map(|page| page.reports.as_slice()).collect();
    for (said, Page { name, title, charts, .. }) in said(&all).into_iter().flatten().zip(&pages) {
        assert_eq!(said["title"], *title, "{name}");
        let drawn = said["charts"].as_array().expect("charts").iter().filter_map(|chart| chart["id"].as_str());
        let (mut drawn, mut wanted): (Vec<&str>, Vec<&str>) = (drawn.collect(), charts.split_whitespace().collect());
        drawn.sort_unstable();
        drawn.dedup();
        wanted.sort_unstable();
        assert_eq!(drawn, wanted, "{name}");
    }
}

#[test]
fn a_title_tells_how_the_job_was_otherwise_than_the_workload() {
    let mut changed = examples::train("/mnt/a", 1.0, 1);
    changed.settings["changes"] = json!(["batch 40", "step 0.5ms"]);
    let Some(alone) = title(&[changed.clone()]) else { return };
    assert!(alone.starts_with("unet3d (batch 40, step 0.5ms) on 8 × V100: "), "{alone}");
    let both = title(&[changed, examples::train("/mnt/b", 1.0, 1)]).expect("it said something");
    assert!(both.starts_with("2 runs of unet3d (batch 40, step 0.5ms), unet3d: "), "{both}");
}

#[test]
fn nothing_that_was_read_from_nowhere_passes() {
    let mut null = examples::train("null:", 2.0, 1);
    let summary = null.summary.as_mut().expect("a summary");
    (summary.passed, summary.verdict) = (false, Some(Verdict::Ceiling));
    let Some(said) = title(&[null]) else { return };
    assert!(said.starts_with("The ceiling of this machine, with nothing to read: unet3d on 8 × V100, "), "{said}");
}

#[test]
fn cells_that_were_over_too_soon_are_in_no_title() {
    let swept = |short: &dyn Fn(&Value) -> bool| {
        let mut sweep = examples::sweep("/mnt/lustre", 1.0);
        for cell in sweep.cells.iter_mut().filter(|cell| cell["phase"] == "read" && short(cell)) {
            cell["seconds"] = 0.05.into();
            cell["bytes_per_second"] = 9e12.into();
        }
        sweep
    };
    let Some(some) = title(&[swept(&|cell| cell["file_bytes"] == 1 << 20)]) else { return };
    assert_eq!(some, "Reads at up to 1.9 GB/s, cold");
    assert_eq!(title(&[swept(&|_| true)]).as_deref(), Some("A sweep whose reads were over too soon to tell"));
}

#[test]
fn only_runs_that_differ_by_the_number_of_accelerators_are_one_curve() {
    let run = |accelerators: u64, batch: u64| {
        let mut run = examples::train("/mnt/a", 0.5, 1);
        run.accelerators = Some(accelerators);
        (run.settings["accelerators"], run.settings["workload"]["read"]["batch"]) = (accelerators.into(), batch.into());
        run
    };
    let curves = |reports: &[Report]| {
        let said = said(&[reports])?;
        let chart = said[0]["charts"].as_array()?.iter().find(|chart| chart["id"] == "utilisation").cloned();
        Some(chart.map_or(0, |chart| {
            let lines = chart["panels"][0]["lines"].as_array().cloned().unwrap_or_default();
            lines.iter().filter(|line| !line["dashed"].as_bool().unwrap_or(false)).count()
        }))
    };
    let Some(one) = curves(&[run(2, 4), run(8, 4)]) else { return };
    assert_eq!(one, 1);
    assert_eq!(curves(&[run(2, 4), run(8, 5)]), Some(0), "other jobs");
    assert_eq!(curves(&[run(2, 4), run(8, 4), run(2, 5), run(8, 5)]), Some(2), "two jobs, a curve each");
}

#[test]
fn what_a_probe_got_is_no_limit_of_the_target() {
    let mut probed = examples::train("/mnt/a", 1.0, 1);
    probed.sections.remove("limits");
    let supply = json!({"requests_per_second": 900.0, "bytes_per_second": 2e8});
    probed.sections.insert("probe".into(), json!({"supply": supply, "streams": 4}));
    let Some(said) = whole(probed) else { return };
    assert!(said.contains("probe, 4 streams: 900/s") && !said.contains("\"limit "), "{said}");
}

#[test]
fn the_largest_number_that_was_tried_is_a_least() {
    let mut found = examples::find_max();
    found.points.retain(|point| point.accelerators <= 14);
    assert_eq!(
        title(&[found]).unwrap_or_else(|| "unet3d keeps at least 14 × H100 busy".into()),
        "unet3d keeps at least 14 × H100 busy"
    );
}

#[test]
fn a_set_that_was_made_has_a_page() {
    let mut made = examples::train("/data", 1.0, 1);
    (made.command, made.accelerator, made.accelerators) = ("data".into(), None, None);
    (made.epochs, made.summary, made.timeline) = (Vec::new(), None, Vec::new());
    let step =
        json!({"step": "make", "target": "/data", "seconds": 2.0, "bytes": 4e9, "files": 20, "bytes_per_second": 2e9});
    made.sections = [("steps".to_owned(), json!([step]))].into();
    let Some(said) = said(&[&[made]]) else { return };
    assert_eq!(said[0]["title"], "unet3d: 4 GB in 20 files made in 2 s");
    assert!(said[0]["charts"].to_string().contains("What was done"), "{}", said[0]);
}
