//! `stoker plan` as a whole: what it prints and writes, what it refuses, and the trial that it proposes.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn plan(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
    command.current_dir(folder).arg("plan").args(words).output().expect("it starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const JOB: [&str; 8] =
    ["--workload", "cosmoflow-hpc", "--accelerator", "v100", "--accelerators", "32", "--node", "azure.ND40rs_v2"];

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&JOB[..], more].concat()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("it was written")).expect("JSON")
}

#[test]
fn a_plan_is_a_table_a_document_and_a_page_that_say_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = plan(folder.path(), &words(&["--epochs", "48", "--json", "plan.json", "--report", "plan.html"]));
    assert!(output.status.success(), "{}", text(&output));
    let document = read(&folder.path().join("plan.json"));
    let first = document["offers"][0]["id"].as_str().expect("an offer");
    assert!(
        text(&output).contains(first) && text(&output).contains("break-even") && text(&output).contains("oldest price")
    );
    assert!(text(&output).contains("can't be ranked") && text(&output).contains("because"));
    let page = std::fs::read_to_string(folder.path().join("plan.html")).expect("a page");
    assert!(page.contains(first) && page.contains("<svg"));
}

#[test]
fn a_contract_and_an_imported_list_are_layers_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = r#"{"Items": [{"currencyCode": "USD", "tierMinimumUnits": 0, "retailPrice": 0.5, "armRegionName": "westus", "productName": "General Block Blob v2", "skuName": "Hot LRS", "meterName": "Hot LRS Data Stored", "meterId": "m", "serviceName": "Storage", "unitOfMeasure": "1 GB/Month", "type": "Consumption", "effectiveStartDate": "2026-09-01T00:00:00Z"}]}"#;
    std::fs::write(folder.path().join("list.json"), list).expect("a list");
    let imported = plan(folder.path(), &["catalog", "import", "azure", "list.json", "--out", "new.toml"]);
    assert!(imported.status.success(), "{}", text(&imported));
    let shown = plan(folder.path(), &["catalog", "show", "azure.blob.hot", "--catalog", "refreshed=new.toml"]);
    assert!(text(&shown).contains("refreshed") && text(&shown).contains("2026-09-01"), "{}", text(&shown));
    let usd = |more: &[&str]| {
        assert!(plan(folder.path(), &words(&[&["--json", "plan.json"], more].concat())).status.success());
        let offers = read(&folder.path().join("plan.json"))["offers"].clone();
        let found =
            offers.as_array().expect("offers").iter().find(|offer| offer["id"] == "azure.blob.hot/blobfuse").cloned();
        found.expect("it is ranked")["capacity_usd"].as_f64().expect("a number")
    };
    assert!(usd(&["--catalog", "refreshed=new.toml"]) > 10.0 * usd(&[]));
}

#[test]
fn a_trial_is_commands_that_this_program_knows() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = plan(folder.path(), &[&["try"], &words(&["--offer", "azure.blob.hot/blobfuse"])[..]].concat());
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    for command in ["stoker emulate FOLDER", "stoker bench train --workload cosmoflow-hpc", "stoker bench simulate"] {
        assert!(said.contains(command), "{command} in {said}");
    }
}

#[test]
fn what_can_t_be_meant_ends_with_2_and_names_the_field() {
    let folder = tempfile::tempdir().expect("a folder");
    for (more, field) in [
        (&["--region", "atlantis"][..], "region"),
        (&["--hours-per-month", "800"], "hours-per-month"),
        (&["--epochs", "0"], "epochs"),
        (&["--files", "1e30"], "files"),
        (&["--needs", "love"], "needs"),
        (&["--catalog", "none.toml"], "none.toml"),
        (&["--dataset", "1B"], "dataset"),
    ] {
        let output = plan(folder.path(), &words(more));
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", text(&output));
        assert!(text(&output).contains(field), "{more:?}: {}", text(&output));
    }
    let unknown = plan(folder.path(), &["catalog", "show", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", text(&unknown));
}
