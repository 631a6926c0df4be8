//! Manifests as text: what is written comes back, and what is wrong is told with its line.

use super::*;
use crate::manifest::Builder;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A snapshot of these keys.
fn snapshot(prefix: &str, keys: &[(&str, u64)]) -> Arc<Manifest> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut builder = Builder::new("s3://b".into(), prefix).expect("a prefix");
    for (number, (key, size)) in keys.iter().enumerate() {
        let key = format!("{prefix}{key}");
        let listed = Listed { key, version: format!("v{number}"), size: *size, modified_ns: number as i64 };
        builder.add(&[listed]).expect("a key");
    }
    Arc::new(builder.build_nameless(folder.path(), 7_000_000_000).expect("a snapshot"))
}

fn written(manifest: &Arc<Manifest>) -> Vec<u8> {
    let mut out = Vec::new();
    write(manifest, "s3://b/p", "s3://b", &mut out).expect("it is written");
    out
}

fn read(text: &[u8]) -> Result<Vec<Listed>> {
    let mut text = Text::open(text, "m.jsonl")?;
    std::iter::from_fn(|| text.advance().transpose()).collect()
}

#[test]
fn keys_come_in_their_order_with_odd_ones_and_empty_folders_among_them() {
    let keys = [
        ("a/x", 1),
        ("a-b", 2),
        ("a.c/y", 3),
        ("a", 4),
        ("a//z", 5),
        ("..", 6),
        ("c\0d", 7),
        ("e/", 0),
        ("f//", 0),
        ("a/%odd=q", 8),
        ("z/../y", 9),
        ("m", 0),
        ("a0/b", 1),
    ];
    let manifest = snapshot("p/", &keys);
    let found = read(&written(&manifest)).expect("it is read");
    let mut expected: BTreeMap<String, u64> = keys.iter().map(|(key, size)| (format!("p/{key}"), *size)).collect();
    assert_eq!(found.len(), expected.len());
    assert!(found.is_sorted_by(|left, right| left.key < right.key));
    for listed in &found {
        assert_eq!(expected.remove(&listed.key), Some(listed.size), "{}", listed.key);
    }
    assert!(expected.is_empty(), "{expected:?}");
    let again = snapshot_of(&found);
    assert_eq!(written(&again), written(&manifest), "a snapshot of what was read writes the same text");
}

#[test]
fn an_empty_folder_whose_key_no_path_tells_is_left_out() {
    let manifest = snapshot("p/", &[("a", 1), (&"/".repeat(700), 0), (&"b/".repeat(2_000), 3)]);
    assert_eq!(manifest.totals().markers, 1);
    let found: Vec<_> = read(&written(&manifest)).expect("it is read").into_iter().map(|listed| listed.size).collect();
    assert_eq!(found, [1, 3]);
}

fn snapshot_of(listed: &[Listed]) -> Arc<Manifest> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut builder = Builder::new("s3://b".into(), "p/").expect("a prefix");
    builder.add(listed).expect("keys");
    Arc::new(builder.build_nameless(folder.path(), 7_000_000_000).expect("a snapshot"))
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let text = String::from_utf8(written(&snapshot("", &[("a", 1), ("b", 2), ("c", 3)]))).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let replaced = |number: usize, line: &str| {
        let mut lines = lines.clone();
        lines[number] = line;
        lines.join("\n").into_bytes()
    };
    let huge = format!("{{\"key\":\"c\",\"size\":3,\"version\":\"{}\"}}", "v".repeat(LINE_BYTES_MAX));
    for (text, line, what) in [
        (Vec::new(), 1, "empty"),
        (b"key\n".to_vec(), 1, "no manifest of Stoker"),
        (text.replacen(":1,", ":2,", 1).into_bytes(), 1, "format"),
        (text.as_bytes()[..text.len() - lines[3].len() - 1].to_vec(), 4, "ends after 2 of 3"),
        (text.as_bytes()[..text.len() - 5].to_vec(), 4, "byte"),
        (replaced(2, lines[1]), 3, "same key"),
        (replaced(3, &lines[1].replace("\"a\"", "\"A\"")), 4, "comes before"),
        (replaced(2, "{\"key\":\"b\",\"size\":-2,\"version\":\"v\"}"), 3, "invalid value"),
        (replaced(2, "{\"key\":\"b\",\"size\":18446744073709551615,\"version\":\"v\"}"), 3, "at most"),
        (replaced(2, "{\"key\":\"b\",\"size\":2}"), 3, "no version"),
        (replaced(2, "{\"key\":\"b\",\"size\":3,\"version\":\"v\"}"), 5, "bytes and not"),
        (replaced(2, "{\"key\":\"b\",\"size\":2,\"version\":\"v\",\"modified\":\"now\"}"), 3, "no time"),
        (replaced(2, "\u{0}"), 3, "expected value"),
        (replaced(3, &huge), 4, "more than"),
    ] {
        let error = read(&text).expect_err(what);
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.to_string().contains(&format!("m.jsonl, line {line}")), "{error}");
        assert!(!error.hint.is_empty(), "{error}");
    }
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(bytes: Vec<u8>, at in 0usize..2000, cut in 0usize..2000) {
        let _ = read(&bytes);
        let mut text = written(&snapshot("", &[("a/b", 1), ("b", 2), ("c\0", 3)]));
        let at = at % text.len();
        text.splice(at..(at + 1).min(text.len()), bytes.iter().copied().take(3));
        let _ = read(&text);
        text.truncate(cut % text.len());
        prop_assert!(read(&text).is_err(), "what is cut short is no manifest");
    }
}
