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

const JOB: [&str; 10] = [
    "--workload",
    "cosmoflow-hpc",
    "--accelerator",
    "v100",
    "--accelerators",
    "32",
    "--node",
    "azure.ND40rs_v2",
    "--accelerator-price",
    "3.30475",
];

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
    // The same figures: of each offer that the table shows its rank, its share of time and its cost, in the page and in the document.
    let said = text(&output);
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    for offer in document["offers"].as_array().expect("offers").iter().take(10) {
        let (id, au) = (offer["id"].as_str().expect("an id"), offer["au_percent"].as_f64().expect("a number"));
        let au = format!("{au:.1}");
        let row = rows.iter().find(|row| row.len() > 4 && row[1] == id).unwrap_or_else(|| panic!("{id} in {said}"));
        let rank = row[0].trim_start_matches('=').parse::<u64>();
        assert!(rank.is_ok_and(|rank| offer["rank"] == rank) && row[2] == au, "{row:?} {offer}");
        let (hours, usd) = (row[3], row[4]);
        assert!((usd.parse::<f64>().expect("a number") / offer["total_usd"].as_f64().expect("USD") - 1.0).abs() < 0.01);
        let cells =
            format!(">{id}</td><td class=\"n\">{au}</td><td class=\"n\">{hours}</td><td class=\"n\">{usd}</td>");
        assert!(page.contains(&cells), "{cells}");
    }
    let embedded = page.split("application/json\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let embedded: Value = serde_json::from_str(embedded.expect("a document")).expect("JSON");
    assert_eq!(embedded["offers"], document["offers"]);
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
    // USD of a GiB-month that are shipped: 5.5 TB lie below the second tier.
    let shipped = 0.0208;
    let usd = |more: &[&str]| {
        assert!(plan(folder.path(), &words(&[&["--json", "plan.json"], more].concat())).status.success());
        let offers = read(&folder.path().join("plan.json"))["offers"].clone();
        let found =
            offers.as_array().expect("offers").iter().find(|offer| offer["id"] == "azure.blob.hot/blobfuse").cloned();
        found.expect("it is ranked")["capacity_usd"].as_f64().expect("a number")
    };
    let ratio = usd(&["--catalog", "refreshed=new.toml"]) / usd(&[]);
    assert!((ratio - 0.5 / shipped).abs() < 1e-6 * ratio, "{ratio} {shipped}");
    // A contract replaces the list in turn, whatever stands first.
    let contract = "provider = \"azure\"\nversion = \"1\"\ncurrency = \"USD\"\nregion = \"westus\"\n[[source]]\nid = \"s\"\ntitle = \"ours\"\n[[service]]\nid = \"azure.blob.hot\"\nprices = [{ of = \"capacity\", unit = \"GiB-month\", value = 0.25, source = \"s\", confidence = \"high\" }]\n";
    std::fs::write(folder.path().join("contract.toml"), contract).expect("a contract");
    let both = usd(&["--catalog", "site=contract.toml", "--catalog", "refreshed=new.toml"]) / usd(&[]);
    assert!((both - 0.25 / shipped).abs() < 1e-6 * both, "{both}");
}

#[test]
fn a_list_of_which_nothing_is_of_use_writes_no_layer() {
    let folder = tempfile::tempdir().expect("a folder");
    let item = |region: &str| {
        format!(
            r#"{{"Items": [{{"currencyCode": "USD", "retailPrice": 0.5, "armRegionName": "{region}", "productName": "General Block Blob v2", "skuName": "Hot LRS", "meterName": "Hot LRS Data Stored", "meterId": "m", "unitOfMeasure": "1 GB/Month", "type": "Consumption"}}]}}"#
        )
    };
    for (list, why) in [
        ("{\"Items\": []}".to_owned(), "no price in it"),
        (item(""), "1 price of no region"),
        (item("us(1)"), "no region"),
    ] {
        std::fs::write(folder.path().join("list.json"), list).expect("a list");
        let output = plan(folder.path(), &["catalog", "import", "azure", "list.json", "--out", "new.toml"]);
        assert!(output.status.code() == Some(2) && text(&output).contains(why), "{}", text(&output));
        assert!(!folder.path().join("new.toml").exists(), "{why}");
    }
    let shown = text(&plan(folder.path(), &["catalog", "show", "aws.s3.ia"]));
    for fact in ["charged: capacity, read", "30 days at least", "a file below 128 KiB", "at least"] {
        assert!(shown.contains(fact), "{fact}: {shown}");
    }
    let shown = text(&plan(folder.path(), &["catalog", "show", "aws.ebs.st1"]));
    assert!(shown.contains("a TiB, credit of") && shown.contains("up to") && !shown.contains("0000000"), "{shown}");
}

#[test]
fn a_number_that_can_t_be_meant_names_its_flag_and_what_to_try() {
    let folder = tempfile::tempdir().expect("a folder");
    for (flag, value) in [
        ("--target-rate", "4,200images/s"),
        ("--target-rate", "4200MB/s"),
        ("--target-rate", "4200"),
        ("--target-rate", "-1images/s"),
        ("--epochs", "1.5"),
        ("--epochs", ""),
        ("--epochs", "-1"),
        ("--files", "nan"),
        ("--files", "1e400"),
        ("--jobs", "0"),
        ("--jobs", "-2"),
        ("--zones", "1e9"),
        ("--hours-per-month", "inf"),
        ("--accelerator-price", "-1"),
        ("--losses-per-node-hour", "often"),
        ("--accelerators", "-8"),
        ("--accelerators", "8..1e300"),
        ("--dataset", "5,5TB"),
        ("--dataset", "-5TB"),
        ("--checkpoint", "5x5"),
        ("--cpu-per-sample", "8"),
        ("--data-way", "-1ms"),
        ("--top", "0"),
        ("--simulate", "0"),
    ] {
        // The last of a flag counts.
        let kept = JOB.chunks(2).filter(|pair| pair[0] != flag);
        let words: Vec<&str> = kept.flatten().copied().collect();
        let typed = format!("{flag}={value}");
        let output = plan(folder.path(), &[&words[..], &[&typed]].concat());
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{typed}: {said}");
        assert!(said.contains(flag), "{typed}: {said}");
        assert!(said.contains("try: ") || value.is_empty(), "{typed}: {said}");
    }
    // As a person means it.
    let said = |rate: &str| text(&plan(folder.path(), &words(&["--target-rate", rate])));
    let of = |rate: &str| said(rate).lines().find(|line| line.contains("ask for")).expect("a line").to_owned();
    assert_eq!(of("1e4images/s"), of("10000images/s"));
    assert_eq!(of("4.2kimages/s"), of("4200images/s"));
    assert_ne!(of("4.2kimages/s"), of("4.2images/s"));
}

#[test]
fn where_nothing_is_priced_the_end_is_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = plan(folder.path(), &words(&["--region", "southcentralus"]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("nothing can be ranked in southcentralus") && said.contains("of storage in"), "{said}");
    assert!(said.contains("westus") && said.contains("us-east-1"), "{said}");
}

#[test]
fn a_hint_leads_to_what_is_lacking() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |words: &[&str]| text(&plan(folder.path(), words));
    let last =
        |said: &str, from: &str| said[said.rfind(from).unwrap_or_else(|| panic!("{from} in {said}"))..].to_owned();
    let job = ["--workload", "resnet50", "--accelerators", "8", "--accelerator"];
    // Its speed is told by a rate; then its network is missing, and no price.
    let said = of(&[&job[..], &["b200"]].concat());
    assert!(said.contains("a100") && said.contains("--target-rate"), "{said}");
    let said = of(&[&job[..], &["b200", "--target-rate", "4000images/s"]].concat());
    let end = last(&said, "nothing can be ranked");
    assert!(
        end.contains("network limit of aws.p6-b200") && end.contains("--catalog") && !end.contains("--region"),
        "{end}"
    );
    // Other regions' services lack more than these nodes do.
    let said = of(&[&job[..], &["v100", "--region", "westus"]].concat());
    let end = last(&said, "nothing can be ranked");
    assert!(end.contains("network limit of azure.NC") && end.contains("--catalog"), "{end}");
    // Prices of nodes and storage in one region are missing; the price of the nodes is one way out.
    let said = of(&[&job[..], &["v100", "--node", "azure.ND40rs_v2"]].concat());
    let end = last(&said, "nothing can be ranked");
    assert!(end.contains("no region has prices of both") && end.contains("--accelerator-price"), "{end}");
    assert!(
        plan(folder.path(), &[&job[..], &["v100", "--node", "azure.ND40rs_v2", "--accelerator-price", "3"]].concat())
            .status
            .success()
    );
    // What is named can be typed as it stands.
    let said = of(&[&job[..], &["v100", "--node", "aws.p4d.24xlarge"]].concat());
    assert!(said.contains("try: --accelerator A100, or another node"), "{said}");
    assert!(plan(folder.path(), &[&job[..], &["A100", "--node", "aws.p4d.24xlarge"]].concat()).status.success());
    let said = of(&[&["try"], &job[..], &["v100", "--offer", "9999"]].concat());
    assert!(said.contains("a rank from 1 to "), "{said}");
    let said = of(&[&["try"], &job[..], &["v100", "--offer", "aws.s3.express/rest"]].concat());
    assert!(said.contains("can't be ranked") && said.contains("because the limit of first-byte"), "{said}");
}

#[test]
fn files_are_read_within_bounds_and_runs_that_tell_nothing_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let local = r#"{"schema": 1, "kind": "measured", "command": "train", "finished": true, "started": 0, "environment": {"version": "0", "kernel": "6", "processors": 2, "memory_bytes": 1, "ranks": 1}, "settings": {}, "target": "/data", "seed": 1, "accelerators": 1, "epochs": [{"repetition": 1, "epoch": 1, "cold": true, "seconds": 1, "steps": 1, "samples": 8, "au_percent": 50, "au_dlio_percent": 50, "ceiling_percent": 100, "samples_per_second": 8, "bytes_per_second": 8e6, "wait_seconds_by_cause": {}, "bytes": {"asked": 8000000, "network": 0}, "step_seconds": {}}]}"#;
    std::fs::write(folder.path().join("local.json"), local).expect("a report");
    let far = local.replace("\"network\": 0", "\"network\": 8000000");
    std::fs::write(folder.path().join("far.json"), far).expect("a report");
    std::fs::write(folder.path().join("odd.toml"), b"provider = \"\xff\"").expect("a file");
    // Who opens a pipe that nobody writes to waits without end.
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().expect("it runs").success());
    let red = "provider = \"x\"\nversion = \"1\"\ncurrency = \"USD\"\n\"\\u001b[31m\" = 1\n";
    std::fs::write(folder.path().join("red.toml"), red).expect("a file");
    let red = local.replace("\"kind\": \"measured\"", "\"kind\": \"\\u001b[31m\"");
    std::fs::write(folder.path().join("red.json"), red).expect("a file");
    for (more, said) in [
        (&["--catalog", "/dev/zero"][..], "no regular file"),
        (&["--catalog", "pipe"], "no regular file"),
        (&["--catalog", "red.toml"], "\\u{1b}[31m"),
        (&["--measured", "red.json"], "\\u{1b}[31m"),
        (&["--measured", "/dev/zero"], "no regular file"),
        (&["--measured", "pipe"], "no regular file"),
        (&["--supply", "azure.blob.hot/blobfuse=/dev/zero"], "no regular file"),
        (&["--supply", "azure.blob.hot/blobfuse=local.json"], "over a network"),
        (&["--supply", "azure.blob.hot/lustre=far.json"], "no client `lustre` reads azure.blob.hot"),
        (&["--catalog", "odd.toml"], "byte 12"),
        (&["--data-region", "mars"], "data-region"),
        (&["--data-zone", "mars"], "data-zone"),
    ] {
        // A measurement stands for a workload.
        let job = if more[0] == "--measured" { &JOB[2..] } else { &JOB[..] };
        let output = plan(folder.path(), &[job, more].concat());
        assert!(text(&output).contains(said) && !text(&output).contains('\u{1b}'), "{more:?}: {}", text(&output));
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", text(&output));
    }
    let many = vec!["10TB"; 513].join(",");
    let output = plan(folder.path(), &words(&["--dataset", &many]));
    assert!(output.status.code() == Some(2) && text(&output).contains("too many"), "{}", text(&output));
}

#[test]
fn the_best_offers_are_simulated_where_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = plan(folder.path(), &words(&["--simulate", "180", "--json", "plan.json", "--report", "plan.html"]));
    assert!(output.status.success() && text(&output).contains("The best offers, simulated"), "{}", text(&output));
    let rows = read(&folder.path().join("plan.json"))["simulated"].clone();
    let rows = rows.as_array().expect("rows");
    assert!(rows.len() >= 3 && rows.iter().all(|row| row["accelerators"] == 180));
    for row in rows.iter().filter(|row| row["cold"] == true) {
        let of = |name: &str| row[name].as_f64().expect("a number");
        assert!((of("au_percent") - of("bound_percent")).abs() < 1.0, "{row}");
    }
    let page = std::fs::read_to_string(folder.path().join("plan.html")).expect("a page");
    assert!(page.contains("The best offers, simulated"));
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
    // By a rate: 4,000 samples a second of 32 accelerators, one in a batch, are a step of 8 ms.
    let output = plan(
        folder.path(),
        &[&["try"], &words(&["--target-rate", "4000/s", "--offer", "azure.blob.hot/blobfuse"])[..]].concat(),
    );
    assert!(text(&output).contains("--workload cosmoflow-hpc --set step=8000us"), "{}", text(&output));
    assert!(text(&output).contains("--workload cosmoflow-hpc --accelerator 8000us"), "{}", text(&output));
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

#[test]
fn files_are_written_though_nobody_reads_the_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
    command.current_dir(folder.path()).arg("plan").args(words(&["--json", "plan.json", "--report", "plan.html"]));
    let status = command.stdout(writer).status().expect("it starts");
    assert_eq!(status.code(), Some(141), "its output was closed");
    assert!(read(&folder.path().join("plan.json"))["offers"][0]["id"].is_string());
    assert!(std::fs::read_to_string(folder.path().join("plan.html")).expect("a page").ends_with("</html>\n"));
}
