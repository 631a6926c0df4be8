//! `stoker manifest` by command: names that are kept as a file, mounted by, compared, and made of what others listed.

#[path = "names/parts.rs"]
mod parts;
mod support;

use emulate::Operation;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Output, Stdio};
use support::content::{compare, noise};
use support::{BUCKET, Bed, Daemon, eventually, finished, refused, refused_as_typed, text};

/// Pages that are asked for at once at most.
const LISTED_AT_ONCE: u64 = 16;

/// A bucket of some small files.
fn filled() -> Option<Bed> {
    let bed = Bed::new()?;
    for (number, name) in ["train/a/1", "train/a/2", "train/a-b", "train/b/3", "val/4", "one"].into_iter().enumerate() {
        bed.put(name, &noise(1_000 + number, number as u64));
    }
    Some(bed)
}

/// `stoker manifest` of the bucket's store.
fn manifest(bed: &Bed, words: &[&str]) -> Output {
    finished(bed.stoker(["manifest"]).args(words).args(bed.reach()))
}

fn at(bed: &Bed, name: &str) -> String {
    bed.path(name).to_str().expect("a path").to_owned()
}

fn export(bed: &Bed, what: &str, out: &str) -> Vec<Value> {
    let path = at(bed, out);
    let done = manifest(bed, &["export", what, "-o", &path]);
    assert!(done.status.success(), "{}", text(&done));
    lines(&fs::read(path).expect("a manifest"))
}

fn lines(text: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(text.to_vec()).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Some totals of what `--json` said.
fn totals<const N: usize>(done: &Output, names: [&str; N]) -> [u64; N] {
    let all = lines(&done.stdout).pop().unwrap_or_else(|| panic!("no totals: {}", text(done)));
    names.map(|name| all[name].as_u64().expect(name))
}

/// A manifest of some objects of another.
fn some(bed: &Bed, all: &[Value], keys: &[&str], out: &str) -> String {
    let objects = all[1..].iter().filter(|line| keys.contains(&line["key"].as_str().expect("a key")));
    let objects: Vec<&Value> = objects.collect();
    let bytes: u64 = objects.iter().map(|line| line["size"].as_u64().expect("a size")).sum();
    let [url, store, prefix, listed] = ["url", "store", "prefix", "listed"].map(|name| &all[0][name]);
    let mut text = format!(
        "{{\"stoker_manifest\":1,\"url\":{url},\"store\":{store},\"prefix\":{prefix},\"listed\":{listed},\
         \"objects\":{},\"bytes\":{bytes}}}\n",
        objects.len()
    );
    objects.iter().for_each(|line| text += &format!("{line}\n"));
    fs::write(bed.path(out), text).expect("a manifest");
    at(bed, out)
}

fn lists(bed: &Bed) -> u64 {
    bed.counters().of(emulate::Operation::List).requests
}

fn url() -> String {
    format!("s3://{BUCKET}")
}

#[test]
fn a_mount_by_a_manifest_lists_nothing_and_reads_the_same_bytes_or_none() {
    let Some(bed) = filled() else { return };
    let all = export(&bed, &url(), "names.jsonl");
    assert_eq!(all[0]["objects"], 6);
    let keys: Vec<&str> = all[1..].iter().map(|line| line["key"].as_str().expect("a key")).collect();
    assert_eq!(keys, ["one", "train/a-b", "train/a/1", "train/a/2", "train/b/3", "val/4"]);
    let listed = lists(&bed);
    let path = at(&bed, "names.jsonl");
    let daemon = bed.mount(&["--manifest", &path]);
    compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.status()["mounts"][0]["manifest"], path.as_str());
    assert_eq!(lists(&bed), listed, "nothing is listed");
    let refresh = finished(bed.stoker(["refresh"]).arg(bed.path("mnt")));
    refused_as_typed(&refresh, &["manifest", "without --manifest"]);
    assert_eq!(export(&bed, &at(&bed, "mnt"), "again.jsonl"), all, "what a mount goes by is what it was given");
    daemon.end();
    bed.put("train/a/2", &noise(1_001, 77));
    bed.put("new", &noise(10, 1));
    fs::remove_file(bed.data("train/b/3")).expect("it was there");
    // Of a folder of the set, without what an earlier mount kept.
    let daemon = Daemon::start(
        &mut bed.mounting(&format!("{}/train", url()), "mnt", &["--manifest", &path, "--cache", &at(&bed, "cache2")]),
        &bed.path("mnt"),
        &bed.path("mnt.log"),
    );
    assert_eq!(fs::read(bed.mounted("a/1")).expect("it is as it was"), noise(1_000, 0));
    let changed = fs::File::open(bed.mounted("a/2")).and_then(|file| file.read_exact_at(&mut [0; 10], 0));
    assert_eq!(changed.expect_err("it has changed").raw_os_error(), Some(libc::ESTALE));
    assert!(fs::read_dir(bed.mounted("b")).expect("a folder").any(|entry| entry.expect("a name").file_name() == "3"));
    let gone = fs::File::open(bed.mounted("b/3")).expect_err("it is gone");
    assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
    assert!(!bed.mounted("../new").exists() && !bed.mounted("new").exists());
    assert_eq!(lists(&bed), listed, "nothing is listed");
    daemon.end();
}

#[test]
fn names_are_compared_as_diff_does_it() {
    let Some(bed) = filled() else { return };
    export(&bed, &url(), "before.jsonl");
    let before = at(&bed, "before.jsonl");
    let same = manifest(&bed, &["diff", &before, &url()]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same));
    bed.put("train/a/1", &noise(500, 9));
    bed.put("zz", &noise(5, 9));
    fs::remove_file(bed.data("val/4")).expect("it was there");
    let differ = manifest(&bed, &["diff", &before, &url(), "--json"]);
    assert_eq!(differ.status.code(), Some(1), "{}", text(&differ));
    let said = lines(&differ.stdout);
    let found: Vec<_> = said[..3].iter().map(|line| (line["difference"].as_str(), line["key"].as_str())).collect();
    assert_eq!(
        found,
        [(Some("changed"), Some("train/a/1")), (Some("removed"), Some("val/4")), (Some("added"), Some("zz"))]
    );
    assert_eq!((&said[3]["same"], &said[3]["added"]), (&4.into(), &1.into()));
    let daemon = bed.mount(&[]);
    assert_eq!(manifest(&bed, &["diff", &at(&bed, "mnt"), &url()]).status.code(), Some(0));
    daemon.end();
    let kept = manifest(&bed, &["export", &url(), "--kept", "--cache", &at(&bed, "cache")]);
    assert_eq!(lines(&kept.stdout).len(), 7, "{}", text(&kept));
    let trouble = manifest(&bed, &["diff", &before, &at(&bed, "data/absent")]);
    assert_eq!(trouble.status.code(), Some(2), "{}", text(&trouble));
}

#[test]
fn a_manifest_is_compared_with_what_the_store_has_by_the_fewer_requests() {
    let Some(bed) = filled() else { return };
    let all = export(&bed, &url(), "names.jsonl");
    let path = at(&bed, "names.jsonl");
    let sound = manifest(&bed, &["verify", &path, "--json"]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound));
    assert_eq!(totals(&sound, ["lists", "heads", "same"]), [1, 0, 6]);
    bed.put("one", &noise(700, 3));
    fs::remove_file(bed.data("train/b/3")).expect("it was there");
    let differ = manifest(&bed, &["verify", &path, &url(), "--json"]);
    assert_eq!(differ.status.code(), Some(1), "{}", text(&differ));
    assert_eq!(totals(&differ, ["changed", "removed", "same"]), [1, 1, 4]);
    // One object of many is asked for by itself, and so are two.
    let one = manifest(&bed, &["verify", &some(&bed, &all, &["one"], "one.jsonl"), "--json"]);
    assert_eq!(one.status.code(), Some(1), "{}", text(&one));
    assert_eq!(totals(&one, ["lists", "heads", "changed"]), [0, 1, 1]);
    (0..5_000).for_each(|number| bed.put(&format!("many/{number}"), b"x"));
    let before = bed.counters();
    let two = manifest(&bed, &["verify", &some(&bed, &all, &["train/a-b", "val/4"], "two.jsonl"), "--json"]);
    assert_eq!(two.status.code(), Some(0), "{}", text(&two));
    assert_eq!(totals(&two, ["heads", "same"]), [2, 2]);
    let asked = |kind| bed.counters().of(kind).requests - before.of(kind).requests;
    let [lists, heads] = totals(&two, ["lists", "heads"]);
    // Pages that are on their way when it is seen that two HEADs are the better way may never have arrived.
    assert!((1..=lists).contains(&asked(Operation::List)) && asked(Operation::Head) == heads, "as the server counts");
    assert!(lists <= 2 + LISTED_AT_ONCE, "{lists} listings, where two HEADs did");
    refused_as_trouble(&manifest(&bed, &["verify", &at(&bed, "absent")]));
}

#[test]
fn a_mirror_of_another_kind_is_compared_by_sizes_however_it_is_asked() {
    let Some(bed) = filled() else { return };
    let mut all = export(&bed, &url(), "names.jsonl");
    all[0]["store"] = "gs://bucket".into();
    all[1..].iter_mut().for_each(|line| line["version"] = "17".into());
    for keys in [&["one"][..], &["one", "train/a-b", "val/4"]] {
        let path = some(&bed, &all, keys, "mirrored.jsonl");
        let done = manifest(&bed, &["verify", &path, &url(), "--json"]);
        assert!(done.status.success() && text(&done).contains("only sizes are compared"), "{}", text(&done));
        assert_eq!(totals(&done, ["same"]), [keys.len() as u64]);
    }
    bed.put("one", &noise(5, 5));
    let done = manifest(&bed, &["verify", &some(&bed, &all, &["one"], "mirrored.jsonl"), &url(), "--json"]);
    assert_eq!((done.status.code(), totals(&done, ["changed"])), (Some(1), [1]));
}

#[test]
fn a_folder_is_compared_by_what_lies_there_and_by_versions_that_have_settled() {
    let Some(bed) = Bed::new() else { return };
    let (set, path) = (at(&bed, "set"), at(&bed, "set.jsonl"));
    fs::create_dir(&set).expect("a folder");
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| fs::write(bed.path("set").join(name), name).expect("a file"));
    let run = |words: &[&str]| finished(bed.stoker(["manifest"]).args(words));
    let done = run(&["export", &set, "-o", &path]);
    assert!(done.status.success(), "{}", text(&done));
    let all = lines(&fs::read(&path).expect("a manifest"));
    let version = |line: &Value| line["version"].as_str().expect("a version").to_owned();
    assert!(all[1..].iter().all(|line| !version(line).starts_with('~')), "they have settled: {all:?}");
    let verified = |path: &str| {
        let done = run(&["verify", path, "--json"]);
        (done.status.code(), totals(&done, ["removed", "changed", "same"]))
    };
    assert_eq!(verified(&path), (Some(0), [0, 0, 3]));
    // As earlier versions wrote them, and as they are when they can't be waited for.
    let mut marked = all.clone();
    marked[1..].iter_mut().for_each(|line| line["version"] = format!("~{}", version(line)).into());
    let marked = some(&bed, &marked, &names, "marked.jsonl");
    assert_eq!(verified(&marked), (Some(0), [0, 0, 3]));
    assert_eq!(run(&["diff", &marked, &set]).status.code(), Some(0));
    let imported = run(&["import", &marked, &set]);
    assert_eq!(lines(&imported.stdout)[1..], all[1..], "{}", text(&imported));
    let one = some(&bed, &all, &["a"], "one.jsonl");
    assert_eq!(verified(&one), (Some(0), [0, 0, 1]));
    fs::write(bed.path("set/a"), "other bytes").expect("a file");
    assert_eq!(verified(&one), (Some(1), [0, 1, 0]));
    // What a mount saw is not listed anew: it is said that it has not settled.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3_600);
    fs::File::options()
        .write(true)
        .open(bed.path("set/a"))
        .and_then(|file| file.set_modified(later))
        .expect("its time");
    let daemon = bed.mount_at(&set, "mnt", &[]);
    let done = run(&["export", &at(&bed, "mnt")]);
    assert!(text(&done).contains("never keeps it") && text(&done).contains("stoker refresh"), "{}", text(&done));
    daemon.end();
    names.iter().for_each(|name| fs::remove_file(bed.path("set").join(name)).expect("it was there"));
    assert_eq!(verified(&one), (Some(1), [1, 0, 0]));
    assert_eq!(verified(&path), (Some(1), [3, 0, 0]));
}

fn refused_as_trouble(done: &Output) {
    assert_eq!(done.status.code(), Some(2), "{}", text(done));
    assert!(text(done).contains("try:"), "{}", text(done));
}

#[test]
fn a_list_of_keys_becomes_a_manifest_without_a_listing() {
    let Some(bed) = filled() else { return };
    let all = export(&bed, &url(), "listed.jsonl");
    let listed = lists(&bed);
    let keys: Vec<String> = all[1..].iter().rev().map(|line| line["key"].as_str().expect("a key").to_owned()).collect();
    let import = |name: &str, list: &[u8], url: &str| {
        fs::write(bed.path(name), list).expect("a list");
        manifest(&bed, &["import", &at(&bed, name), url, "-o", &at(&bed, "made.jsonl")])
    };
    let sized: Vec<String> =
        keys.iter().map(|key| format!("{key}\t{}", bed.data(key).metadata().expect("a file").len())).collect();
    for (name, list) in [("keys", keys.join("\n")), ("sized", sized.join("\r\n") + "\r\n")] {
        let done = import(name, list.as_bytes(), &url());
        assert!(done.status.success(), "{}", text(&done));
        assert!(text(&done).contains("asked the store for 6 objects"), "{}", text(&done));
        let same = manifest(&bed, &["diff", &at(&bed, "listed.jsonl"), &at(&bed, "made.jsonl")]);
        assert_eq!(same.status.code(), Some(0), "{}", text(&same));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(list.as_bytes()).expect("memory");
        let packed = packed.finish().expect("memory");
        assert!(import("packed.gz", &packed, &url()).status.success());
        refused_as_typed(&import("cut.gz", &packed[..packed.len() / 2], &url()), &["ends too early", "line"]);
    }
    let below = import("below", keys.join("\n").as_bytes(), &format!("{}/train", url()));
    assert!(below.status.success() && text(&below).contains("left out: 2 keys"), "{}", text(&below));
    assert_eq!(lists(&bed), listed, "nothing is listed");
    refused_as_typed(&import("double", b"one\none\n", &url()), &["come again"]);
    refused_as_typed(&import("wrong", b"one\nval/4\tmany\n", &url()), &["line 2", "no number of bytes"]);
    refused(&import("gone", b"one\nabsent\n", &url()), &["absent"]);
    refused(&import("other", b"one\ntrain/a/1\t5\n", &url()), &["1000 bytes where the list says 5"]);
    refused(&import("none", b"elsewhere/x\n", &format!("{}/train", url())), &["none of its 1 key is under"]);
}

#[test]
fn an_inventory_of_s3_becomes_a_manifest_without_a_request() {
    let Some(bed) = filled() else { return };
    let all = export(&bed, &url(), "listed.jsonl");
    let asked = bed.requests();
    let folder = bed.path("inventory");
    fs::create_dir_all(folder.join("data")).expect("a folder");
    let mut csv = String::new();
    for line in &all[1..] {
        let key = line["key"].as_str().expect("a key").replace('/', "%2F");
        let (size, etag, time) = (&line["size"], &line["version"], &line["modified"]);
        csv += &format!("\"{BUCKET}\",\"{key}\",\"v\",\"true\",\"false\",\"{size}\",{time},{etag}\n");
        csv += &format!("\"{BUCKET}\",\"{key}\",\"older\",\"false\",\"false\",\"1\",{time},\"old\"\n");
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(csv.as_bytes()).expect("memory");
    fs::write(folder.join("data/x.csv.gz"), packed.finish().expect("memory")).expect("a file");
    let schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag";
    let described = |format: &str, file: &str| {
        let text = serde_json::json!({
            "sourceBucket": BUCKET, "destinationBucket": "arn:aws:s3:::other", "version": "2016-11-30",
            "fileFormat": format, "fileSchema": schema, "files": [{ "key": format!("inv/data/{file}") }],
        });
        fs::write(folder.join("manifest.json"), text.to_string()).expect("a file");
        manifest(&bed, &["import", &at(&bed, "inventory/manifest.json"), &url(), "-o", &at(&bed, "made.jsonl")])
    };
    let same = || {
        let same = manifest(&bed, &["diff", &at(&bed, "listed.jsonl"), &at(&bed, "made.jsonl")]);
        assert_eq!(same.status.code(), Some(0), "{}", text(&same));
    };
    let done = described("CSV", "x.csv.gz");
    assert!(done.status.success(), "{}", text(&done));
    same();
    write_parquet(&folder.join("data/x.parquet"), &all[1..]);
    let done = described("Parquet", "x.parquet");
    assert!(done.status.success(), "{}", text(&done));
    same();
    assert_eq!(bed.requests(), asked, "the store is not asked");
    let whole = fs::read(folder.join("data/x.parquet")).expect("a file");
    let mut chance = support::content::Chance::printed("bytes of Parquet that are damaged");
    for _ in 0..200 {
        let mut damaged = whole.clone();
        for _ in 0..=chance.below(3) {
            let at = chance.below(damaged.len() as u64) as usize;
            damaged[at] = chance.next() as u8;
        }
        damaged.truncate(damaged.len() - chance.below(8) as usize);
        fs::write(folder.join("data/x.parquet"), damaged).expect("a file");
        let done = described("Parquet", "x.parquet");
        assert!(matches!(done.status.code(), Some(0..=2)), "{}", text(&done));
    }
    refused(&described("ORC", "x.orc"), &["data file x.orc is not there"]);
    fs::write(folder.join("data/x.orc"), b"ORC").expect("a file");
    refused_as_typed(&described("ORC", "x.orc"), &["ORC", "Parquet or CSV"]);
    refused_as_typed(&described("CSV", "../../etc/.."), &["names a data file"]);
}

#[test]
fn an_inventory_leaves_out_what_is_deleted_and_is_refused_where_a_version_has_changed() {
    let Some(bed) = filled() else { return };
    bed.put("a b+%c", &noise(10, 5));
    let all = export(&bed, &url(), "listed.jsonl");
    let import = |schema: &str, csv: &str| {
        fs::write(bed.path("x.csv"), csv).expect("a file");
        let text = serde_json::json!({
            "sourceBucket": BUCKET, "fileFormat": "CSV", "fileSchema": schema, "files": [{ "key": "inv/data/x.csv" }],
        });
        fs::write(bed.path("manifest.json"), text.to_string()).expect("a file");
        manifest(&bed, &["import", &at(&bed, "manifest.json"), &url(), "-o", &at(&bed, "made.jsonl")])
    };
    for space in ["+", "%20"] {
        let mut csv = format!("\u{feff}\"{BUCKET}\",\"val%2F4\",\"true\",\"true\",\"\",\"\"\n");
        for line in all[1..].iter().filter(|line| line["key"] != "val/4") {
            let key = line["key"].as_str().expect("a key").replace('%', "%25").replace('+', "%2B");
            let key = key.replace('/', "%2F").replace(' ', space);
            csv += &format!("\"{BUCKET}\",\"{key}\",\"true\",\"false\",\"{}\",{}\n", line["size"], line["version"]);
        }
        let done = import("Bucket, Key, IsLatest, IsDeleteMarker, Size, ETag", &csv);
        assert!(done.status.success(), "{}", text(&done));
        let differ = manifest(&bed, &["diff", &at(&bed, "listed.jsonl"), &at(&bed, "made.jsonl"), "--json"]);
        assert_eq!(totals(&differ, ["removed", "added", "changed", "same"]), [1, 0, 0, 6], "{}", text(&differ));
    }
    let version = all.iter().find(|line| line["key"] == "one").expect("it is there")["version"].clone();
    let of_one = |etag: &str| import("Bucket, Key, ETag", &format!("\"{BUCKET}\",\"one\",\"{etag}\"\n"));
    assert!(of_one(version.as_str().expect("a version")).status.success());
    refused(&of_one("another"), &["where the list says another", "make the list anew"]);
}

/// The objects as an inventory's Parquet has them.
fn write_parquet(path: &Path, objects: &[Value]) {
    use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    let schema = "message schema { required binary bucket (UTF8); required binary key (UTF8); optional boolean is_latest; \
                  optional int64 size; optional int64 last_modified_date (TIMESTAMP_MILLIS); optional binary e_tag (UTF8); }";
    let schema = parse_message_type(schema).expect("a schema").into();
    let properties = WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY).build();
    let file = fs::File::create(path).expect("a file");
    let mut writer = SerializedFileWriter::new(file, schema, properties.into()).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let texts = |name: &str| -> Vec<ByteArray> {
        objects.iter().map(|object| ByteArray::from(object[name].as_str().expect("text"))).collect()
    };
    let there = vec![1i16; objects.len()];
    let mut number = 0;
    while let Some(mut column) = group.next_column().expect("a column") {
        let definition = (number >= 2).then_some(&there[..]);
        let written = match number {
            0 => column.typed::<ByteArrayType>().write_batch(&vec![ByteArray::from(BUCKET); objects.len()], None, None),
            1 => column.typed::<ByteArrayType>().write_batch(&texts("key"), None, None),
            2 => column.typed::<BoolType>().write_batch(&vec![true; objects.len()], definition, None),
            3 => {
                let sizes: Vec<i64> = objects.iter().map(|object| object["size"].as_i64().expect("a number")).collect();
                column.typed::<Int64Type>().write_batch(&sizes, definition, None)
            }
            4 => column.typed::<Int64Type>().write_batch(&vec![1_772_366_400_000; objects.len()], definition, None),
            _ => column.typed::<ByteArrayType>().write_batch(&texts("version"), definition, None),
        };
        written.expect("values");
        column.close().expect("a column");
        number += 1;
    }
    group.close().expect("a group");
    writer.close().expect("a file");
}

#[test]
fn a_manifest_that_is_wrong_is_refused_with_the_line_before_anything_is_mounted() {
    let Some(bed) = filled() else { return };
    export(&bed, &url(), "names.jsonl");
    let sound = fs::read_to_string(bed.path("names.jsonl")).expect("a manifest");
    let mount = |manifest: &[u8]| {
        fs::write(bed.path("wrong.jsonl"), manifest).expect("a manifest");
        let done =
            finished(bed.mounting(&url(), "mnt", &["--manifest", &at(&bed, "wrong.jsonl")]).stdout(Stdio::null()));
        assert!(!done.status.success() && text(&done).contains("try:"), "{}", text(&done));
        text(&done)
    };
    assert!(mount(sound.replacen("train/a/1", "one", 1).as_bytes()).contains("line 4"));
    assert!(mount(&sound.as_bytes()[..sound.len() - 20]).contains("line 7"));
    assert!(mount(b"").contains("it is empty"));
    let done =
        finished(&mut bed.mounting(&format!("{}/absent", url()), "mnt", &["--manifest", &at(&bed, "names.jsonl")]));
    refused(&done, &["no object under this URL"]);
    let done = finished(&mut bed.mounting(&url(), "mnt", &["--manifest", &at(&bed, "absent.jsonl")]));
    refused(&done, &["absent.jsonl", "stoker manifest export"]);
    assert_eq!(support::mounts(&bed), 0);
}

#[test]
fn a_mount_that_follows_its_bucket_waits_for_the_first_file_and_outlives_the_last() {
    let Some(bed) = Bed::new() else { return };
    fs::create_dir_all(bed.path("data")).expect("a bucket");
    let done = finished(&mut bed.mounting(&url(), "mnt", &[]));
    refused(&done, &["there is nothing under this URL", "--refresh"]);
    let daemon = bed.mount(&["--refresh", "1s"]);
    let names = || fs::read_dir(bed.path("mnt")).expect("a folder").count();
    assert_eq!(names(), 0);
    bed.put("first", &noise(1_000, 1));
    eventually("it came", || names() == 1);
    compare(&bed.path("mnt"), &bed.path("data"));
    fs::remove_file(bed.path("data").join("first")).expect("it is there");
    eventually("it went", || names() == 0);
    daemon.end();
}
