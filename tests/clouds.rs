//! Google Cloud Storage and Azure Blob by command: mounts of servers that speak their interfaces and are not ours.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use support::clouds::{Cloud, EXPIRED, KEY, SIGNATURE};
use support::content::{compare, noise, same};
use support::{Bed, Daemon, finished, refused, refused_as_typed, text};

const MIB: usize = 1 << 20;

/// Files of each kind, and how many requests each costs at most: an empty one none, a small one one, and a reader of a
/// large one is fetched ahead for in ever longer runs.
const FILES: [(&str, usize, u64); 5] =
    [("empty", 0, 0), ("small", 1000, 1), ("folder/mib", MIB, 1), ("folder/more", 3 * MIB, 4), ("large", 40 * MIB, 12)];

/// GETs for all of these: by a load, of which each takes 8 MiB, and by one to a folder, of which each takes 16.
const LOADED: u64 = 8;
const COPIED: u64 = 6;

/// A server, and how a command asks it.
struct Reach {
    cloud: Cloud,
    variables: Vec<(&'static str, &'static str)>,
    words: Vec<String>,
}

impl Reach {
    fn of(cloud: Cloud, variables: &[(&'static str, &'static str)]) -> Reach {
        let mut words = vec!["--endpoint".to_owned(), cloud.endpoint()];
        if variables.is_empty() {
            words.push("--anonymous".into());
        }
        Reach { cloud, variables: variables.to_vec(), words }
    }

    fn all() -> Vec<Reach> {
        let google = Cloud::google().map(|cloud| Reach::of(cloud, &[]));
        let azure = Cloud::azure().map(|cloud| Reach::of(cloud, &[("AZURE_STORAGE_KEY", KEY)]));
        google.into_iter().chain(azure).collect()
    }

    fn asking(&self, mut command: Command) -> Command {
        command.args(&self.words).envs(self.variables.iter().copied());
        command
    }

    fn mount(&self, bed: &Bed, at: &str, more: &[&str]) -> Daemon {
        let _ = fs::create_dir(bed.path(at));
        let mut command = self.asking(bed.mounting(&self.cloud.url("set"), at, more));
        Daemon::start(&mut command, &bed.path(at), &bed.path(&format!("{at}.log")))
    }

    /// Put an object, and what it holds beside it to compare with.
    fn put(&self, bed: &Bed, name: &str, content: &[u8]) {
        self.cloud.put(&format!("set/{name}"), content);
        bed.put(name, content);
    }

    fn fill(&self, bed: &Bed) {
        FILES.iter().zip(1..).for_each(|((name, size, _), seed)| self.put(bed, name, &noise(*size, seed)));
    }
}

/// What a node asked of its store: GETs, HEADs, listings.
fn asked(status: &serde_json::Value) -> [u64; 3] {
    ["gets", "heads", "lists"].map(|kind| status["store"][kind].as_u64().expect("a count"))
}

#[test]
fn a_file_of_google_or_azure_costs_gets_alone_and_a_small_one_a_single_one() {
    let Some(bed) = Bed::new() else { return };
    for (number, reach) in Reach::all().into_iter().enumerate() {
        let (at, cache) = (format!("m{number}"), bed.path(&format!("cache{number}")));
        let _ = fs::remove_dir_all(bed.path("data"));
        reach.fill(&bed);
        let before = reach.cloud.reads();
        let daemon = reach.mount(&bed, &at, &["--fill", "off", "--cache", cache.to_str().expect("a path")]);
        let [gets, heads, lists] = asked(&bed.status());
        let most = if reach.cloud.url("").starts_with("gs:") { 1 } else { 6 };
        assert!((gets, heads) == (0, 0) && lists <= most, "{:?}", asked(&bed.status()));
        for (name, size, due) in FILES {
            let before = asked(&bed.status())[0];
            let content = fs::read(bed.path(&at).join(name)).expect("it is read");
            same(&content, &fs::read(bed.data(name)).expect("the original"), &name);
            let gets = asked(&bed.status())[0] - before;
            assert!(gets <= due && (gets == due || size > MIB), "{}: {gets} GETs", reach.cloud.url(name));
        }
        let after = asked(&bed.status());
        compare(&bed.path(&at), &bed.path("data"));
        assert_eq!(asked(&bed.status()), after, "a second time");
        assert_eq!(after[1..], [0, lists]);
        let told = after.iter().sum::<u64>() + bed.status()["store"]["retries"].as_u64().expect("a count");
        support::eventually("the server was asked what the node says", || reach.cloud.reads() - before == told);
        daemon.end();
        let checked = finished(&mut reach.asking(bed.stoker(["check", &reach.cloud.url("set"), "--quick"])));
        assert!(text(&checked).contains("5 files") && text(&checked).contains("credentials"), "{}", text(&checked));
        let copy = bed.path(&format!("copy{number}"));
        let words = ["load", &reach.cloud.url("set"), "--json", "--to", copy.to_str().expect("a path")];
        let done = finished(&mut reach.asking(bed.stoker(words)));
        assert!(done.status.success(), "{}", text(&done));
        let told: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert_eq!(told["requests"], COPIED + lists, "{told}");
        compare(&copy, &bed.path("data"));
    }
}

#[test]
fn a_load_of_google_or_azure_takes_8_mib_by_each_get() {
    let Some(bed) = Bed::new() else { return };
    for (number, reach) in Reach::all().into_iter().enumerate() {
        let (at, cache) = (format!("m{number}"), bed.path(&format!("cache{number}")));
        let _ = fs::remove_dir_all(bed.path("data"));
        reach.fill(&bed);
        let daemon = reach.mount(&bed, &at, &["--fill", "off", "--cache", cache.to_str().expect("a path")]);
        let done = bed.run(["load".as_ref(), bed.path(&at).as_os_str()]);
        assert!(done.status.success(), "{}", text(&done));
        assert_eq!(asked(&bed.status())[..2], [LOADED, 0], "{}", bed.status());
        compare(&bed.path(&at), &bed.path("data"));
        assert_eq!(asked(&bed.status())[0], LOADED, "what was loaded is asked for again");
        daemon.end();
    }
}

#[test]
fn an_object_of_google_or_azure_that_changes_under_a_reader_is_read_as_it_was_or_not_at_all() {
    let Some(bed) = Bed::new() else { return };
    for (number, reach) in Reach::all().into_iter().enumerate() {
        let (at, old, new) = (format!("m{number}"), noise(40 * MIB, 1), noise(40 * MIB, 2));
        reach.put(&bed, "changing", &old);
        let cache = bed.path(&format!("cache{number}"));
        let daemon = reach.mount(&bed, &at, &["--fill", "off", "--cache", cache.to_str().expect("a path")]);
        let file = File::open(bed.path(&at).join("changing")).expect("it is there");
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, 0).expect("it is read");
        same(&bytes, &old[..4096], &"the beginning");
        reach.put(&bed, "changing", &new);
        match file.read_exact_at(&mut bytes, 39 << 20) {
            Ok(()) => same(&bytes, &old[39 * MIB..39 * MIB + 4096], &"what was fetched in time"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}"),
        }
        let refreshed = bed.run(["refresh".as_ref(), bed.path(&at).as_os_str()]);
        assert!(refreshed.status.success(), "{}", text(&refreshed));
        same(&fs::read(bed.path(&at).join("changing")).expect("it is read"), &new, &"the new version");
        daemon.end();
    }
}

#[test]
fn whoever_is_not_let_in_by_google_or_azure_is_told_why() {
    let Some(bed) = Bed::new() else { return };
    let at = bed.path("mnt");
    let mount = |url: &str, words: &[String], variables: &[(&str, &str)]| {
        let mut command = bed.stoker(["mount", url]);
        command.arg(&at).arg("--cache").arg(bed.path("cache")).args(words).envs(variables.iter().copied());
        finished(&mut command)
    };
    if let Some(google) = Cloud::google() {
        let words = ["--endpoint".into(), google.endpoint()];
        let anonymous = [&words[..], &["--anonymous".into()]].concat();
        refused(&mount("gs://absent", &anonymous, &[]), &["there is no bucket absent"]);
        refused(&mount(&google.url(""), &words, &[]), &["no credentials of Google Cloud", "gcloud auth"]);
        let file = ("GOOGLE_APPLICATION_CREDENTIALS", "/absent.json");
        refused(&mount(&google.url(""), &words, &[file]), &["can't be read", "/absent.json"]);
    }
    if let Some(azure) = Cloud::azure() {
        let words = ["--endpoint".into(), azure.endpoint()];
        refused(&mount("az://absent", &words, &[("AZURE_STORAGE_KEY", KEY)]), &["there is no container absent"]);
        let other = ("AZURE_STORAGE_KEY", "bm90IHRoZSBrZXk=");
        refused(&mount(&azure.url(""), &words, &[other]), &["refuses access", "AZURE_STORAGE_"]);
        refused(&mount(&azure.url(""), &words, &[("AZURE_STORAGE_SAS_TOKEN", EXPIRED)]), &["refuses access"]);
        let nowhere = ("AZURE_MSI_ENDPOINT", "http://127.0.0.1:1/token");
        refused(&mount(&azure.url(""), &words, &[nowhere]), &["no credentials of Azure", "AZURE_STORAGE_KEY"]);
        refused_as_typed(&mount("az://bucket", &[], &[]), &["no account is named", "AZURE_STORAGE_ACCOUNT"]);
    }
}

#[test]
fn a_container_is_read_by_a_signature_and_by_a_connection_string() {
    let (Some(bed), Some(azure)) = (Bed::new(), Cloud::azure()) else { return };
    azure.put("set/small", &noise(1000, 1));
    let text = format!("AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={}", azure.endpoint());
    let (url, endpoint) = (azure.url("set"), azure.endpoint());
    for (number, (name, value, words)) in [
        ("AZURE_STORAGE_SAS_TOKEN", SIGNATURE, vec!["--endpoint", &endpoint]),
        ("AZURE_STORAGE_CONNECTION_STRING", &text, vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let at = format!("m{number}");
        fs::create_dir(bed.path(&at)).expect("a folder");
        let mut command = bed.mounting(&url, &at, &words);
        let daemon = Daemon::start(command.env(name, value), &bed.path(&at), &bed.path("log"));
        same(&fs::read(bed.path(&at).join("small")).expect("it is read"), &noise(1000, 1), &name);
        daemon.end();
    }
}

#[test]
fn each_byte_leaves_a_bucket_of_google_once_for_two_nodes() {
    let (Some(bed), Some(cloud)) = (Bed::new(), Cloud::google()) else { return };
    let reach = Reach::of(cloud, &[]);
    reach.fill(&bed);
    let hosts = bed.path("hosts");
    let lines = [0, 1].map(|number| format!("127.0.0.1:{} name=n{number}\n", support::engines::free_port()));
    fs::write(&hosts, lines.concat()).expect("written");
    let daemons = [0, 1].map(|number| {
        let (cache, name) = (bed.path(&format!("cache{number}")), format!("n{number}"));
        let words = ["--fill", "off", "--plaintext", "--cache", cache.to_str().expect("a path"), "--listen", &name];
        let members = ["--members", hosts.to_str().expect("a path")];
        reach.mount(&bed, &format!("m{number}"), &[&words[..], &members].concat())
    });
    support::eventually("both answer each other", || {
        let members = |status: &serde_json::Value| status["cluster"]["members"].as_array().cloned().unwrap_or_default();
        let nodes = bed.nodes();
        nodes.len() == 2 && nodes.iter().flat_map(members).all(|member| member["answering"] == true)
    });
    (0..2).for_each(|number| compare(&bed.path(&format!("m{number}")), &bed.path("data")));
    let bytes = |status: &serde_json::Value| status["tiers"]["origin"]["bytes"].as_u64().expect("bytes");
    let total: usize = FILES.iter().map(|(_, size, _)| size).sum();
    assert_eq!(bed.nodes().iter().map(bytes).sum::<u64>(), total as u64, "{:?}", bed.nodes());
    let asked: u64 = bed.nodes().iter().map(|status| status["store"]["gets"].as_u64().expect("a count")).sum();
    support::eventually("the server was asked no more often than they say", || reach.cloud.gets() == asked);
    daemons.into_iter().for_each(Daemon::end);
}
