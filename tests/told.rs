//! What a command is told by variables, profiles and URLs, and what it says where that can't be right.

mod support;

use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::hung::Hung;
use support::{BUCKET, Bed, finished, is_root, text};

/// A server that gives everybody the same answer, and how often it was asked.
fn always(answer: String) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            // Who speaks TLS sends no line.
            let is_text = |head: &[u8]| head.first().is_none_or(u8::is_ascii_uppercase);
            while is_text(&head) && !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
                head.push(byte[0]);
            }
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, count)
}

fn answer(status: &str, more: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n{body}", body.len())
}

/// `stoker config --json`: a value by name.
fn value(mut command: Command, name: &str) -> Value {
    let done = finished(&mut command);
    let all: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&done)));
    let values = all["values"].as_array().expect("values");
    values.iter().find(|value| value["name"] == name).unwrap_or_else(|| panic!("no {name}: {all}")).clone()
}

#[test]
fn a_profile_tells_where_its_store_is() {
    let Some(bed) = Bed::new() else { return };
    bed.put("train/one", b"content");
    fs::create_dir(bed.path("home/.aws")).expect("a folder");
    let config = format!(
        "[default]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:1\n\
         [profile inside]\nservices = ours\nregion = us-east-1\n[services ours]\ns3 =\n  endpoint_url = {}\n",
        bed.endpoint()
    );
    fs::write(bed.path("home/.aws/config"), config).expect("a file");
    let list = |name: &str, set: &str| {
        let mut command = bed.stoker(["manifest", "export", &format!("s3://{BUCKET}/train"), "--anonymous"]);
        finished(command.env(name, set))
    };
    let done = list("AWS_PROFILE", "inside");
    assert!(done.status.success() && text(&done).contains("one"), "{}", text(&done));
    let done = list("AWS_ENDPOINT_URL", bed.endpoint());
    assert!(done.status.success(), "a variable goes before the profile: {}", text(&done));
    assert!(!list("AWS_REGION", "us-east-1").status.success(), "nobody listens where the default profile leads");

    let shown = |name: &str| {
        let mut command = bed.stoker(["config", "--json", "--anonymous"]);
        command.env("AWS_PROFILE", "inside").env("AWS_DEFAULT_REGION", "eu-south-1");
        value(command, name)
    };
    let endpoint = shown("endpoint");
    assert_eq!((&endpoint["value"], &endpoint["from"]), (&bed.endpoint().into(), &"file".into()), "{endpoint}");
    assert!(endpoint["by"].as_str().is_some_and(|by| by.ends_with("/.aws/config, [services ours]")), "{endpoint}");
    let region = shown("region");
    assert_eq!((&region["value"], &region["by"]), (&"eu-south-1".into(), &"AWS_DEFAULT_REGION".into()), "{region}");
}

#[test]
fn a_file_of_profiles_that_cant_be_looked_at_is_named_and_no_other_store_is_asked() {
    let Some(bed) = Bed::new() else { return };
    bed.put("train/one", b"content");
    let circle = bed.path("circle");
    std::os::unix::fs::symlink(&circle, &circle).expect("a link");
    let list = |file: &Path, more: &[(&str, &str)]| {
        let url = format!("s3://{BUCKET}/train");
        let mut command = bed.stoker(["manifest", "export", &url, "--anonymous", "--region", "us-east-1"]);
        let done = finished(command.env("AWS_CONFIG_FILE", file).envs(more.iter().copied()));
        (done.status.success(), text(&done))
    };
    fs::create_dir(bed.path("hung")).expect("a folder");
    let long = Path::new("/").join("n".repeat(300));
    let hung = Hung::over(bed.path("hung"));
    let in_hung = hung.as_ref().map(|hung| hung.0.join("config"));
    for file in [Some(circle.clone()), Some(long), in_hung].into_iter().flatten() {
        let (done, said) = list(&file, &[]);
        assert!(!done && said.contains("can't read") && said.contains(&*file.to_string_lossy()), "{said}");
    }
    // AWS's own tools go on by these.
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_ENDPOINT_URL", bed.endpoint())];
    let (done, said) = list(&circle, &keys);
    let at = circle.display().to_string();
    assert!(done && said.contains("one") && said.contains("WARN") && said.contains(&at), "{said}");
}

#[test]
fn a_home_that_nobody_named_is_that_of_the_user() {
    let Some(bed) = Bed::new() else { return };
    let shown = |home: Option<&str>| {
        let mut command = bed.stoker(["config", "--json", "--profile", "of-nobody"]);
        command.env_remove("HOME");
        command.envs(home.map(|home| ("HOME", home)));
        value(command, "credentials")["value"].as_str().unwrap_or_default().to_owned()
    };
    for home in [None, Some("")] {
        let said = shown(home);
        assert!(said.contains("there is no profile of-nobody in /") && !said.contains('~'), "{home:?}: {said}");
    }
}

#[test]
fn a_variable_that_is_empty_is_not_set_and_one_that_is_wrong_is_named() {
    let Some(bed) = Bed::new() else { return };
    let with = |name: &str, set: &str, words: &[&str]| finished(bed.stoker(words).env(name, set));
    for name in ["STOKER_CACHE", "STOKER_LOG_FORMAT", "STOKER_RUNTIME_DIR"] {
        let done = with(name, "", &["config"]);
        assert!(done.status.success() && !text(&done).contains(name), "{}", text(&done));
    }
    let done = with("STOKER_LOG_FORMAT", "xml", &["config"]);
    let said = text(&done);
    assert!(done.status.code() == Some(2) && said.contains("STOKER_LOG_FORMAT=xml") && said.contains("json"), "{said}");
    let usage = |name: &str| text(&with(name, "/elsewhere", &["mount"]));
    assert_eq!(usage("STOKER_CACHE"), usage("STOKER_OTHER"), "what is typed wrong is told as it was typed");
}

#[test]
fn a_web_server_that_is_not_there_stands_in_the_way_and_one_of_s3_is_offered() {
    let Some(bed) = Bed::new() else { return };
    let done = bed.run(["check", "http://127.0.0.1:1/x", "--quick"]);
    assert!(done.status.code() == Some(1) && text(&done).contains("can't connect"), "{}", text(&done));
    let (url, asked) = always(answer("404 Not Found", "", ""));
    let done = bed.run(["check", &format!("{url}/x"), "--quick"]);
    let said = text(&done);
    assert!(asked.load(Ordering::Relaxed) > 0 && said.contains("credentials  none"), "{said}");
    let secure = url.replace("http:", "https:");
    let done = bed.run(["check", &format!("{secure}/x"), "--quick"]);
    assert!(done.status.code() == Some(1) && text(&done).contains("does not speak TLS"), "{}", text(&done));
    let done = bed.run(["mount", &format!("{url}/train"), "/mnt"]);
    assert!(text(&done).contains(&format!("s3://train --endpoint {url}")), "{}", text(&done));
}

#[test]
fn a_server_that_is_no_s3_or_of_another_region_says_what_to_type() {
    let Some(bed) = Bed::new() else { return };
    let list = |url: &str| {
        let words = ["manifest", "export", "s3://b", "--anonymous", "--region", "us-east-1", "--endpoint", url];
        let done = bed.run(words);
        assert!(!done.status.success(), "{}", text(&done));
        text(&done)
    };
    for status in ["200 OK", "404 Not Found"] {
        let page = "<!DOCTYPE html>\n<html><body>Console</body></html>";
        let (url, asked) = always(answer(status, "Content-Type: text/html\r\n", page));
        let said = list(&url);
        assert!(said.contains("is it the right port") && asked.load(Ordering::Relaxed) == 1, "{said}");
    }
    let malformed = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is malformed; the \
                     region 'us-east-1' is wrong; expecting 'eu-central-1'</Message></Error>";
    for answer in [
        answer("400 Bad Request", "", malformed),
        answer("301 Moved Permanently", "x-amz-bucket-region: eu-central-1\r\n", ""),
    ] {
        let said = list(&always(answer).0);
        assert!(said.contains("--region eu-central-1"), "{said}");
    }
}

#[test]
fn a_mount_point_is_looked_at_before_a_bucket_is_listed() {
    let Some(bed) = Bed::new() else { return };
    bed.put("one", b"content");
    fs::write(bed.path("file"), "").expect("a file");
    fs::create_dir_all(bed.path("full/of")).expect("a folder");
    for (at, word) in [("absent", "does not exist"), ("file", "not a folder"), ("full", "not empty")] {
        let done = finished(&mut bed.mounting(&format!("s3://{BUCKET}"), at, &[]));
        assert!(!done.status.success() && text(&done).contains(word), "{}", text(&done));
        assert_eq!(bed.requests(), 0, "nothing is listed for {at}");
    }
}

#[test]
fn a_cache_that_holds_nothing_of_use_is_told_of_when_it_is_mounted() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        eprintln!("SKIPPED: only root may mount a small disk");
        return;
    }
    bed.put("one", b"content");
    fs::create_dir(bed.path("small")).expect("a folder");
    let small = Command::new("mount").args(["-t", "tmpfs", "-o", "size=600k", "none"]).arg(bed.path("small")).status();
    assert!(small.is_ok_and(|done| done.success()), "a small disk");
    let cache = bed.path("small/cache");
    let done =
        finished(&mut bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["-d", "--cache", &cache.to_string_lossy()]));
    assert!(done.status.success() && text(&done).contains("nothing of use"), "{}", text(&done));
    assert!(bed.run(["umount".into(), bed.path("mnt")]).status.success());
}

#[test]
fn a_folder_in_a_mount_is_not_taken_for_a_folder_of_its_own_and_lists_may_name_it() {
    let Some(bed) = Bed::new() else { return };
    bed.put("train/one", b"content");
    bed.put("train/two", b"content");
    let daemon = bed.mount(&["--fill", "off"]);
    let done = finished(bed.stoker(["manifest", "export"]).arg(bed.mounted("train")));
    assert!(!done.status.success() && text(&done).contains(&format!("s3://{BUCKET}/train")), "{}", text(&done));
    let mut listed = bed.stoker(["load", "--stdin", "--json"]);
    let mut child =
        listed.arg(bed.path("mnt")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    // As find(1) names them, folders too.
    let list = ["", "train", "train/one"].map(|name| format!("{}\n", bed.mounted(name).display())).concat();
    child.stdin.take().expect("its input").write_all(list.as_bytes()).expect("a list");
    let done = child.wait_with_output().expect("it ends");
    let loaded: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&done)));
    assert!(done.status.success() && loaded["files"] == 1, "{}", text(&done));
    daemon.end();
}
