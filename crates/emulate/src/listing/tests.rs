//! Pages of listings against a sorted map, for random keys, prefixes, delimiters and starts.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

/// What S3 would answer, worked out from all keys at once.
fn model(keys: &BTreeSet<String>, query: &Query<'_>) -> Vec<String> {
    let mut items = BTreeSet::new();
    for key in keys.iter().filter(|key| key.starts_with(query.prefix)) {
        let cut = if query.delimiter.is_empty() { None } else { key[query.prefix.len()..].find(query.delimiter) };
        let item = cut.map_or(key.clone(), |at| key[..query.prefix.len() + at + query.delimiter.len()].to_string());
        items.insert(item);
    }
    items.into_iter().filter(|item| item.as_str() > query.after).collect()
}

fn name(item: &Item) -> String {
    match item {
        Item::Object { key, .. } => key.clone(),
        Item::Common(prefix) => prefix.clone(),
    }
}

fn all_pages(folder: &Folder, query: Query<'_>, now: i64) -> Vec<String> {
    let mut after = query.after.to_string();
    let mut names = Vec::new();
    loop {
        let page = folder.list(Query { after: &after, ..query }, now).expect("a page");
        assert!(page.items.len() <= query.limit);
        names.extend(page.items.iter().map(name));
        match page.next {
            Some(next) => after = next,
            None => return names,
        }
    }
}

fn write(root: &Path, key: &str) {
    let path = root.join("bucket").join(&*keys::object_path(key));
    std::fs::create_dir_all(path.parent().expect("a bucket")).expect("folders");
    // A key that is also a folder lies beside it under its escaped name.
    let path = if path.is_dir() { root.join("bucket").join(keys::escaped_object_path(key)) } else { path };
    std::fs::write(path, key.as_bytes()).expect("a file");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn pages_are_those_of_a_sorted_map(
        keys in proptest::collection::btree_set("[a-c/.0-]{1,7}", 1..30),
        prefix in "[a-c/]{0,2}", after in "[a-c/]{0,3}", delimiter in "[/b]?|/a", limit in 1usize..5,
    ) {
        let root = tempfile::tempdir().unwrap();
        // Longer keys first, so that folders exist before an object of the same name.
        let mut ordered: Vec<&String> = keys.iter().collect();
        ordered.sort_by_key(|key| std::cmp::Reverse(key.split('/').count()));
        ordered.iter().for_each(|key| write(root.path(), key));
        std::fs::create_dir_all(root.path().join("bucket/b/empty")).unwrap_or(());
        let folder = Folder::open(root.path(), None).unwrap();
        let query = Query { bucket: "bucket", prefix: &prefix, delimiter: &delimiter, after: &after, limit };
        // Far in the future, so that names are kept and the second pass is served from them.
        for _ in 0..2 {
            prop_assert_eq!(all_pages(&folder, query, i64::MAX), model(&keys, &query));
        }
    }
}

#[test]
fn a_change_by_others_is_seen() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a/1");
    let folder = Folder::open(root.path(), None).unwrap();
    let query = Query { bucket: "bucket", limit: 10, ..Query::default() };
    let names = |now| all_pages(&folder, query, now);
    assert_eq!(names(0), ["a/1"], "a clock that says `just changed` keeps nothing");
    write(root.path(), "a/2");
    assert_eq!(names(0), ["a/1", "a/2"]);
    std::fs::remove_file(root.path().join("bucket/a/1")).unwrap();
    assert_eq!(names(0), ["a/2"]);
    std::fs::write(root.path().join("bucket/a/2"), b"longer than before").unwrap();
    let page = folder.list(query, i64::MAX).unwrap();
    assert!(matches!(&page.items[..], [Item::Object { version, .. }] if version.size == 18));
}

#[test]
fn links_within_are_listed_and_links_out_are_not() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "data/x");
    let link =
        |target: &str, name: &str| std::os::unix::fs::symlink(target, root.path().join("bucket").join(name)).unwrap();
    link("data/x", "file");
    link("data", "folder");
    link("/etc/passwd", "out");
    link(".", "circle");
    let folder = Folder::open(root.path(), None).unwrap();
    let query = Query { bucket: "bucket", limit: 10, ..Query::default() };
    assert_eq!(all_pages(&folder, query, 0), ["data/x", "file"]);
}
