//! A snapshot against a plain model of it: every key once, under one path, in order. Parts: refreshes,
//! generations, damage.

mod damage;
mod generations;
mod refresh;

use super::*;
use crate::namespace::{Attributes, ROOT};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use store::Listed;
use tempfile::TempDir;

pub const STORE: &str = "s3://bucket";

pub fn listed(key: &str, version: &str, size: u64) -> Listed {
    Listed { key: key.into(), version: version.into(), size, modified_ns: 7 }
}

/// Files of one byte below no prefix.
pub fn files(keys: &[&str]) -> Vec<Listed> {
    keys.iter().map(|key| listed(key, "v1", 1)).collect()
}

pub fn build(folder: &TempDir, prefix: &str, listing: &[Listed], previous: Option<&Manifest>) -> Built {
    let mut builder = Builder::new(STORE.into(), prefix).expect("a folder");
    listing.chunks(3).for_each(|page| builder.add(page).expect("keys below the prefix"));
    builder.build(&folder.path().join("names"), 1_000, previous).expect("a snapshot")
}

pub fn scratch() -> TempDir {
    tempfile::tempdir().expect("a scratch folder")
}

/// Everything that lists tell: path to attributes, folders with a slash at their end.
pub fn tree(manifest: &Manifest) -> BTreeMap<String, Attributes> {
    let mut out = BTreeMap::new();
    let mut folders = vec![(ROOT, String::new())];
    while let Some((node, path)) = folders.pop() {
        let mut names = Vec::new();
        assert!(manifest.list(node, 0, &mut |_, name, attributes| {
            let name = String::from_utf8(name.to_vec()).expect("text");
            let path = format!("{path}{name}{}", if attributes.folder { "/" } else { "" });
            if attributes.folder {
                folders.push((attributes.node, path.clone()));
            }
            assert_eq!(out.insert(path, attributes), None, "a path is there once");
            names.push(name);
            true
        }));
        assert!(names.is_sorted(), "{names:?}");
    }
    out
}

/// Keys of segments that meet each other and every kind of oddness.
pub fn keys() -> impl Strategy<Value = BTreeMap<String, (u64, String)>> {
    let segment = prop_oneof![
        10 => "[a-c]{1,2}",
        1 => Just(String::new()),
        1 => "\\.{1,2}|\0|%(odd|cut|end|file|long)=a?",
        1 => "(a|é%){1,2}".prop_map(|text| text.repeat(70)),
        1 => "[ab]".prop_map(|text| text.repeat(253)),
        1 => "[ab]".prop_map(|text| text.repeat(3_100)),
    ];
    let key = proptest::collection::vec(segment, 1..5).prop_map(|segments| segments.join("/"));
    let version = prop_oneof![Just("v1".to_string()), Just("a version that is too long to pack".to_string())];
    proptest::collection::btree_map(key, (0..3u64, version), 0..24)
}

pub fn listing(prefix: &str, keys: &BTreeMap<String, (u64, String)>) -> Vec<Listed> {
    keys.iter().map(|(key, (size, version))| listed(&format!("{prefix}{key}"), version, *size)).collect()
}

fn is_marker(listed: &Listed) -> bool {
    listed.size == 0 && listed.key.ends_with('/')
}

/// All keys, by their files, with version and size.
pub fn objects(manifest: &Manifest) -> BTreeSet<(String, String, u64)> {
    let mut out = BTreeSet::new();
    let mut walk = manifest.walk(ROOT);
    while let Some(file) = walk.advance() {
        let object = manifest.object(file.node).expect("a file has an object");
        assert_eq!(manifest.find(file.path), Some(file.node));
        assert_eq!(manifest.path(file.node).as_deref(), Some(file.path));
        assert_eq!(object.size, file.size);
        assert_eq!(manifest.node_of(&object), Some(file.node), "{object:?}");
        assert_eq!(manifest.node_of(&block::Object { version: "another".into(), ..(*object).clone() }), None);
        assert!(out.insert((object.key.clone(), object.version.clone(), object.size)), "an object is there once");
    }
    out
}

proptest! {
    #[test]
    fn a_snapshot_holds_every_key_once(keys in keys(), order in any::<u64>()) {
        let folder = scratch();
        let mut listing = listing("p/", &keys);
        listing.sort_by_key(|listed| xxhash_rust::xxh3::xxh3_64_with_seed(listed.key.as_bytes(), order));
        let manifest = build(&folder, "p/", &listing, None).manifest;
        let expected = listing.iter().filter(|listed| !is_marker(listed));
        let expected: BTreeSet<_> =
            expected.map(|listed| (listed.key.clone(), listed.version.clone(), listed.size)).collect();
        prop_assert_eq!(&objects(&manifest), &expected);

        let tree = tree(&manifest);
        let folders = tree.values().filter(|attributes| attributes.folder).count();
        prop_assert_eq!(tree.len() - folders, expected.len());
        let totals = manifest.totals();
        prop_assert_eq!((totals.files, totals.folders), (expected.len() as u64, folders as u64));
        prop_assert_eq!(totals.markers, (listing.len() - expected.len()) as u64);
        prop_assert_eq!(totals.bytes, listing.iter().map(|listed| listed.size).sum::<u64>());
        for (path, attributes) in &tree {
            let bare = path.trim_end_matches('/');
            let (parent, name) = bare.rsplit_once('/').unwrap_or(("", bare));
            let parent = manifest.find(parent.as_bytes()).expect("its folder");
            prop_assert_eq!(manifest.lookup(parent, name.as_bytes()), Some(*attributes));
            prop_assert_eq!(manifest.attributes(attributes.node), Some(*attributes));
            prop_assert_eq!(attributes.modified_ns, if attributes.folder { 1_000 } else { 7 }, "a folder has the time of the listing");
            let below = tree.keys().filter_map(|other| other.strip_prefix(path)).filter(|_| attributes.folder);
            let folders = below.filter(|rest| rest.find('/').is_some_and(|at| at + 1 == rest.len()));
            prop_assert_eq!(attributes.folders as usize, folders.count());
        }
        for listed in listing.iter().filter(|listed| is_marker(listed)) {
            let mut path = Vec::new();
            names::place(&listed.key["p/".len()..], 0, &mut path);
            let path: Vec<u8> = path.iter().map(|&byte| if byte == 0 { b'/' } else { byte }).collect();
            let node = manifest.find(&path).unwrap_or_else(|| panic!("{path:?}"));
            prop_assert!(manifest.attributes(node).is_some_and(|attributes| attributes.folder));
        }
    }

    #[test]
    fn the_order_of_the_pages_does_not_matter(keys in keys()) {
        let folder = scratch();
        let mut listing = listing("", &keys);
        let first = build(&folder, "", &listing, None).manifest;
        let bytes = std::fs::read(folder.path().join("names")).expect("the snapshot");
        listing.reverse();
        let second = build(&folder, "", &listing, None).manifest;
        prop_assert_eq!(first.fingerprint(), second.fingerprint());
        prop_assert_eq!(bytes, std::fs::read(folder.path().join("names")).expect("the snapshot"));
    }
}

#[test]
fn an_empty_data_set_is_an_empty_folder() {
    let folder = scratch();
    let manifest = build(&folder, "p/", &[listed("p/", "", 0)], None).manifest;
    assert_eq!(*manifest.totals(), Totals { markers: 1, ..Totals::default() });
    assert!(tree(&manifest).is_empty());
    let attributes = Attributes { node: ROOT, folder: true, size: 0, modified_ns: 1_000, folders: 0 };
    assert_eq!(manifest.attributes(ROOT), Some(attributes));
    assert_eq!((manifest.find(b""), manifest.path(ROOT)), (Some(ROOT), Some(Vec::new())));
}

#[test]
fn odd_keys_are_counted_by_kind() {
    let folder = scratch();
    let long = "n".repeat(300);
    let deep = "d/".repeat(3000) + "d";
    let keys = ["x", "x/y", "a//b", "a/./b", "a\0b", "%cut=", &long, &deep, "plain"];
    let manifest = build(&folder, "", &files(&keys), None).manifest;
    assert_eq!(manifest.totals().odd, [1; 7]);
    assert_eq!(objects(&manifest).len(), keys.len());
    let beside = manifest.lookup(ROOT, b"%file=x").expect("the file beside its folder");
    assert_eq!(manifest.object(beside.node).expect("a file").key, "x");
}

#[test]
fn a_list_goes_on_where_it_stopped() {
    let folder = scratch();
    let manifest = build(&folder, "", &files(&["a", "b", "c/d", "e"]), None).manifest;
    let from = |from| {
        let mut names = String::new();
        assert!(manifest.list(ROOT, from, &mut |position, name, _| {
            names.push_str(&format!("{position}{} ", str::from_utf8(name).expect("text")));
            names.len() < 6
        }));
        names
    };
    assert_eq!([from(0), from(2), from(9), from(u64::MAX)], ["1a 2b ", "3c 4e ", "", ""]);
    let file = manifest.find(b"a").expect("a file");
    assert!(!manifest.list(file, 0, &mut |_, _, _| true), "a file has no list");
    assert!(manifest.walk(file).advance().is_none());
    let mut below = manifest.walk(manifest.find(b"/c/").expect("a folder"));
    assert_eq!(below.advance().map(|file| file.path.to_vec()).as_deref(), Some(b"c/d".as_slice()));
}

#[test]
fn a_key_told_twice_is_there_once_as_it_was_last() {
    let folder = scratch();
    let newer = Listed { modified_ns: 9, version: "v2".into(), ..listed("a", "v1", 1) };
    let manifest = build(&folder, "", &[listed("a", "v1", 1), newer, listed("a", "v0", 3)], None).manifest;
    assert_eq!(objects(&manifest), BTreeSet::from([("a".into(), "v2".into(), 1)]));
}

#[test]
fn what_can_not_be_kept_is_refused() {
    let mut builder = Builder::new(STORE.into(), "p/").expect("a folder");
    assert!(builder.add(&files(&["q/a"])).is_err_and(|error| error.kind == block::Kind::Corrupt));
    let huge = Listed { size: u64::MAX, ..listed("p/a", "v1", 1) };
    assert!(builder.add(&[huge]).is_err_and(|error| error.kind == block::Kind::Invalid));
    assert!(builder.add(&files(&[&("p/".to_string() + &"k".repeat(1 << 16))])).is_err());
    assert!(Builder::new(STORE.into(), "p").is_err());
    assert_eq!(builder.keys(), 0);
}

#[test]
fn a_million_names_take_less_than_200_bytes_each() {
    const NAMES: u32 = 1_000_000;
    let folder = scratch();
    let mut builder = Builder::new(STORE.into(), "imagenet/").expect("a folder");
    // A large odd step visits every number once, far from the order of the names.
    let numbers = (0..NAMES).map(|number| (u64::from(number) * 611_953 % u64::from(NAMES)) as u32);
    for number in numbers {
        let key = format!("imagenet/train/n{:08}/n{:08}_{number}.JPEG", number % 1000, number % 1000);
        let version = format!("\"{:032x}\"", xxhash_rust::xxh3::xxh3_128(key.as_bytes()));
        builder.add(&[listed(&key, &version, 110_000)]).expect("a key below the prefix");
    }
    let manifest = builder.build(&folder.path().join("names"), 1, None).expect("a snapshot").manifest;
    assert_eq!((manifest.totals().files, manifest.totals().folders), (NAMES.into(), 1001));
    assert!(manifest.file_bytes() / u64::from(NAMES) < 200, "{} bytes", manifest.file_bytes());
    let node = manifest.find(b"train/n00000123/n00000123_999123.JPEG").expect("one of them");
    assert_eq!(manifest.attributes(node).map(|attributes| attributes.size), Some(110_000));
}

#[test]
fn names_that_do_not_fit_into_memory_make_the_same_snapshot() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let built = |spills: bool| {
        let mut builder = Builder::new(STORE.into(), "").expect("a folder");
        if spills {
            builder = builder.spill_to(folder.path());
        }
        for number in 0..40_000u32 {
            // Long enough that there are more pieces than are held, with odd ones and texts that don't pack.
            let key = format!("{}/{:05}{}", number % 7, 99_999 - number, "x".repeat(800 + (number % 400) as usize));
            let version = format!("W/\"{number}-of-a-kind-that-is-kept-as-text\"");
            builder.add(&[Listed { key, version, size: u64::from(number), modified_ns: 1 }]).expect("a key");
        }
        builder.add(&[Listed { key: "3".into(), version: "v".into(), size: 1, modified_ns: 1 }]).expect("a key");
        builder.build_nameless(folder.path(), 7).expect("a snapshot")
    };
    let (held, spilled) = (built(false), built(true));
    assert_eq!(held.id(), spilled.id());
    assert_eq!(held.totals().files, 40_001);
    assert!(std::fs::read_dir(folder.path()).expect("the folder").next().is_none(), "nothing is left");
}
