//! `stoker debug bundle` holds what explains a trouble and no secret; `stoker config` says where each value came from.

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::{ACCESS, BUCKET, Bed, Daemon, SECRET, finished, refused_as_typed, text};

/// What is put where it must not be found again.
const PLANTS: [&str; 8] = [
    SECRET,
    "plantedtoken1",
    "plantedfile22",
    "plantedurl333",
    "plantedetcd44",
    "plantedsign55",
    "plantedlog666",
    "plantednode77",
];

/// All files of a tar file, one behind the other, and their names.
fn unpacked(tar: &Path) -> (String, Vec<String>) {
    let list = finished(Command::new("tar").arg("-tf").arg(tar));
    let names = String::from_utf8_lossy(&list.stdout).lines().map(str::to_owned).collect();
    let done = finished(Command::new("tar").arg("-xOf").arg(tar));
    assert!(done.status.success(), "{}", text(&done));
    (String::from_utf8_lossy(&done.stdout).into_owned(), names)
}

#[test]
fn a_bundle_tells_what_happened_and_no_secret() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", b"bytes");
    fs::create_dir_all(bed.path("home/.aws")).expect("a folder");
    let profile = "[default]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = plantedfile22\n";
    fs::write(bed.path("home/.aws/credentials"), profile).expect("written");
    // A secret that only the node knows.
    let mut mounting = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &[]);
    let daemon = Daemon::start(mounting.env("ITS_PASSWORD", "plantednode77"), &bed.path("mnt"), &bed.path("mnt.log"));
    let log = bed.nodes()[0]["log"]["path"].as_str().expect("a log").to_owned();
    let before = fs::read_to_string(&log).unwrap_or_default();
    let planted = "WARN of me\nGET /k?X-Amz-Credential=AKIA&X-Amz-Signature=plantedsign55 by http://a:plantedurl333@host/\n\
                   {\"password\": \"plantedlog666\"} and plantedtoken1 and plantedfile22 and plantednode77\n";
    fs::write(&log, format!("{before}{planted}")).expect("written");
    let endpoint = bed.endpoint().replace("http://", "http://me:plantedurl333@");
    let file = bed.path("bundle.tar");
    let mut command = bed.stoker(["debug", "bundle", "--url", &format!("s3://{BUCKET}"), "--endpoint", &endpoint]);
    command.arg(&file).env("AWS_SESSION_TOKEN", "plantedtoken1").env("ETCDCTL_USER", "root:plantedetcd44");
    command
        .env("AWS_ENDPOINT_URL", &endpoint)
        .env("ETCDCTL_PASSWORD", "plantedetcd44")
        .env("STOKER_CACHE", bed.path("cache"));
    let done = finished(&mut command);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o600);
    let (all, names) = unpacked(&file);
    for plant in PLANTS {
        assert!(!all.contains(plant) && !text(&done).contains(plant), "{plant} is in it");
    }
    let process = format!("processes/{}.txt", daemon.node());
    for name in ["versions.json", "config.json", "status.json", "check.json", "machine/limits", &process] {
        assert!(names.contains(&format!("stoker-debug/{name}")), "{name}: {names:?}");
    }
    assert!(names.iter().any(|name| name.contains("logs/node-") && name.ends_with(".log")), "{names:?}");
    for word in ["WARN of me", &format!("s3://{BUCKET}"), "[removed]", "passthrough", "Max open files"] {
        assert!(all.contains(word), "{word} is not in it");
    }
    // What is there is left alone.
    refused_as_typed(&finished(&mut command), &["already"]);
    drop(daemon);
}

/// Secrets of other stores, as their variables and files have them: a key in a connection string, a signature, a token, and the line
/// of a private key.
const OTHERS: [&str; 5] = ["cGxhbnRlZDEx", "plantedsign22", "plantedtoken33", "MIIplantedfile44", "MIIplantedkey55"];

/// What whoever asks other stores has in the environment; the key of Google lies in a file.
fn others(bed: &Bed) -> Vec<(&'static str, String)> {
    let [key, signature, token, file, pem] = OTHERS;
    let private = |line: &str| format!("-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n");
    let account = serde_json::json!({ "type": "service_account", "client_email": "me@project", "private_key": private(file),
        "token_uri": "http://127.0.0.1:1/token" });
    fs::write(bed.path("account.json"), account.to_string()).expect("written");
    let endpoint = "BlobEndpoint=http://127.0.0.1:1/account";
    vec![
        ("AZURE_STORAGE_CONNECTION_STRING", format!("AccountName=account;AccountKey={key};{endpoint}")),
        ("AZURE_STORAGE_SAS_TOKEN", format!("sv=2024-08-04&sp=rl&sig={signature}")),
        ("STOKER_BEARER_TOKEN", token.to_owned()),
        ("GOOGLE_APPLICATION_CREDENTIALS", bed.path("account.json").display().to_string()),
        ("SERVICE_PRIVATE_KEY", private(pem)),
    ]
}

#[test]
fn a_bundle_has_no_secret_of_another_store_that_a_node_or_the_command_knows() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", b"bytes");
    let variables = others(&bed);
    let account = fs::read_to_string(bed.path("account.json")).expect("a file");
    for is_node in [true, false] {
        let mut mounting = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &[]);
        if is_node {
            mounting.envs(variables.iter().cloned());
        }
        let daemon = Daemon::start(&mut mounting, &bed.path("mnt"), &bed.path("mnt.log"));
        let log = bed.nodes()[0]["log"]["path"].as_str().expect("a log").to_owned();
        let values: String = variables.iter().map(|(name, value)| format!("{name} is {value}\n")).collect();
        let planted =
            format!("WARN of me\n{}\n{values}{account}\n", OTHERS.map(|plant| format!("by {plant}")).join("\n"));
        fs::write(&log, planted).expect("written");
        let urls = ["gs://bucket/set", "az://container", "https://127.0.0.1:1/set"];
        // Without any credentials a machine of Azure would be asked for some.
        for (number, url) in urls.iter().take(if is_node { 1 } else { urls.len() }).enumerate() {
            let file = bed.path(&format!("{is_node}{number}.tar"));
            let mut command = bed.stoker(["debug", "bundle", "--url", url]);
            command.arg(&file).env("STOKER_CACHE", bed.path("cache"));
            if !is_node {
                command.envs(variables.iter().cloned());
            }
            let done = finished(&mut command);
            assert!(done.status.success(), "{}", text(&done));
            let (all, _) = unpacked(&file);
            assert!(all.contains("WARN of me\nby [removed]\n"), "{all}");
            for plant in OTHERS {
                assert!(!all.contains(plant) && !text(&done).contains(plant), "{url}: {plant} is in it: {all}");
            }
        }
        daemon.end();
        support::eventually("the node has ended", || support::pids(&bed.path("run")).is_empty());
    }
}

#[test]
fn a_bundle_tells_of_nodes_that_hang_and_of_those_that_were_killed() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", b"bytes");
    let daemon = bed.mount(&[]);
    let log = bed.nodes()[0]["log"]["path"].as_str().expect("a log").to_owned();
    fs::write(&log, "WARN the last word of a node\n").expect("written");
    let bundle = |name: &str| {
        let done = finished(bed.stoker(["debug", "bundle"]).arg(bed.path(name)).env("STOKER_CACHE", bed.path("cache")));
        assert!(done.status.success(), "{}", text(&done));
        unpacked(&bed.path(name))
    };
    let node = daemon.node();
    support::signal(node, "STOP");
    let (all, names) = bundle("hangs.tar");
    support::signal(node, "CONT");
    assert!(all.contains("does not answer") && all.contains("T (stopped)"), "{all}");
    assert!(names.contains(&format!("stoker-debug/processes/{node}.txt")), "{names:?}");
    assert!(all.contains("the last word of a node"));
    daemon.kill_and_detach();
    let (all, names) = bundle("killed.tar");
    assert!(
        names.iter().any(|name| name.contains("logs/left-")) && all.contains("the last word of a node"),
        "{names:?}"
    );
}

#[test]
fn a_profile_of_a_file_is_told_as_what_a_mount_would_be() {
    let Some(bed) = Bed::new() else { return };
    fs::create_dir_all(bed.path("home/.aws")).expect("a folder");
    let profile = "[train]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = plantedfile22\n";
    fs::write(bed.path("home/.aws/credentials"), profile).expect("written");
    let said = text(&bed.run(["config", "--profile", "train"]));
    let line = said.lines().find(|line| line.starts_with("credentials ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("profile train") && line.ends_with("file ~/.aws/credentials, ~/.aws/config"), "{line}");
    assert!(!said.contains("planted") && !said.contains("AKIAOTHER"), "{said}");
    let said = text(&bed.run(["config", "--profile", "absent", "--refresh", "10m", "--fill", "auto"]));
    assert!(said.lines().any(|line| line.contains("there is no profile absent")), "{said}");
    assert!(said.lines().any(|line| line.starts_with("fill ") && line.ends_with("flag --fill")), "{said}");
}

#[test]
fn a_store_of_another_kind_is_told_of_by_the_variables_of_its_own_tools() {
    let Some(bed) = Bed::new() else { return };
    let user = r#"{"type":"authorized_user","client_id":"me","client_secret":"planted1","refresh_token":"planted2"}"#;
    fs::write(bed.path("user.json"), user).expect("written");
    let user = bed.path("user.json").display().to_string();
    let account = ("AZURE_STORAGE_ACCOUNT", "acc");
    for (url, variables, wanted) in [
        ("gs://bucket", vec![("GOOGLE_APPLICATION_CREDENTIALS", &*user)], "environment GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://bucket", vec![], "default"),
        ("az://bucket", vec![account, ("AZURE_STORAGE_KEY", "cGxhbnRlZA==")], "environment AZURE_STORAGE_KEY"),
        (
            "az://bucket",
            vec![account, ("AZURE_STORAGE_SAS_TOKEN", "sig=planted")],
            "environment AZURE_STORAGE_SAS_TOKEN",
        ),
        ("hdfs://name:9000/set", vec![("HADOOP_USER_NAME", "someone")], "environment HADOOP_USER_NAME"),
        ("hdfs://name:9000/set", vec![], "default"),
        ("https://host/set", vec![], "default"),
    ] {
        let said = text(&finished(bed.stoker(["config", url]).envs(variables)));
        let line = said.lines().find(|line| line.starts_with("credentials ")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.ends_with(wanted), "{url}: {line}");
        assert!(!said.contains("planted") && !said.contains("cGxhbn"), "{said}");
        assert!(!said.lines().any(|line| line.starts_with("region ")), "it is S3's alone: {said}");
    }
    let said = text(&finished(bed.stoker(["config", "gs://bucket"]).env("STORAGE_EMULATOR_HOST", "here:4443")));
    let line = said.lines().find(|line| line.starts_with("endpoint ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("here:4443") && line.ends_with("environment STORAGE_EMULATOR_HOST"), "{said}");
    refused_as_typed(&bed.run(["config", "s4://bucket"]), &["unknown"]);
}

#[test]
fn each_value_says_where_it_came_from() {
    let Some(bed) = Bed::new() else { return };
    let mut command = bed.stoker(["config", "--effective", "--json", "--region", "eu-west-1"]);
    command.env("STOKER_CACHE", bed.path("cache")).env("AWS_ENDPOINT_URL_S3", "http://a:plantedurl333@minio:9000");
    command.env("AWS_REGION", "us-east-1").env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", SECRET);
    let done = finished(&mut command);
    let said = text(&done);
    assert!(done.status.success() && !said.contains(SECRET) && !said.contains("planted"), "{said}");
    let found: Value = serde_json::from_str(&said).expect("JSON");
    let of = |name: &str| {
        let values = found["values"].as_array().expect("values");
        let value = values.iter().find(|value| value["name"] == name).unwrap_or_else(|| panic!("{name}: {said}"));
        ["value", "from", "by"].map(|part| value[part].as_str().unwrap_or_default().to_owned())
    };
    let cache = bed.path("cache").display().to_string();
    assert_eq!(of("cache"), [&cache, "environment", "STOKER_CACHE"]);
    assert_eq!(of("region"), ["eu-west-1", "flag", "--region"]);
    assert_eq!(of("endpoint"), ["http://minio:9000", "environment", "AWS_ENDPOINT_URL_S3"]);
    assert_eq!(of("patience"), ["60s", "default", ""]);
    assert_eq!(of("credentials")[1..], ["environment", "AWS_ACCESS_KEY_ID"]);
    let lines = bed.run(["config"]);
    assert!(
        text(&lines).lines().any(|line| line.starts_with("memory ") && line.ends_with("default")),
        "{}",
        text(&lines)
    );
}
