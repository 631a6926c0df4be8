//! Nodes through refreshes: what is the same keeps its number, what differs is listed.

use super::*;

/// What a refresh has to tell: the names in folders of both snapshots whose node differs.
fn expected(before: &BTreeMap<String, Attributes>, after: &BTreeMap<String, Attributes>) -> BTreeSet<(u64, Vec<u8>)> {
    let mut out = BTreeSet::new();
    let bare = |path: &String| path.trim_end_matches('/').to_string();
    let node = |tree: &BTreeMap<String, Attributes>, path: &str| {
        tree.get(path).or_else(|| tree.get(&format!("{path}/"))).map(|attributes| attributes.node)
    };
    for path in before.keys().chain(after.keys()).map(bare) {
        if node(before, &path) == node(after, &path) {
            continue;
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let folder = |tree: &BTreeMap<String, Attributes>| match parent {
            "" => Some(ROOT),
            _ => tree.get(&format!("{parent}/")).map(|attributes| attributes.node),
        };
        if let (Some(was), Some(is)) = (folder(before), folder(after)) {
            assert_eq!(was, is, "a folder that stays keeps its node");
            out.insert((is, name.as_bytes().to_vec()));
        }
    }
    out
}

fn version(manifest: &Manifest, attributes: &Attributes) -> Option<String> {
    Some(manifest.object(attributes.node)?.version.clone())
}

proptest! {
    #[test]
    fn a_refresh_inherits_what_is_the_same_and_tells_what_is_not(sets in proptest::collection::vec(keys(), 2..5)) {
        let folder = scratch();
        let mut previous: Option<Manifest> = None;
        let mut meanings = BTreeMap::new();
        for keys in sets {
            let built = build(&folder, "", &listing("", &keys), previous.as_ref());
            let after = tree(&built.manifest);
            for (path, attributes) in &after {
                let meaning = (path.clone(), attributes.size, version(&built.manifest, attributes));
                let known = meanings.entry(attributes.node).or_insert_with(|| meaning.clone());
                prop_assert_eq!(known, &meaning, "a node never changes");
                prop_assert!(built.manifest.path(attributes.node).is_some());
            }
            if let Some(previous) = &previous {
                let before = tree(previous);
                for (path, is) in &after {
                    let same = before.get(path).is_some_and(|was| {
                        was.size == is.size && version(previous, was) == version(&built.manifest, is)
                    });
                    prop_assert_eq!(before.get(path).is_some_and(|was| was.node == is.node), same, "{}", path);
                }
                let stale: Vec<_> = built.stale;
                let names: BTreeSet<_> = stale.iter().cloned().collect();
                prop_assert_eq!(names.len(), stale.len());
                prop_assert_eq!(names, expected(&before, &after));
            } else {
                prop_assert!(built.stale.is_empty());
            }
            previous = Some(built.manifest);
        }
    }
}

#[test]
fn another_time_is_another_node() {
    let folder = scratch();
    let first = build(&folder, "", &files(&["a", "b"]), None).manifest;
    let touched = Listed { modified_ns: 8, ..listed("a", "v1", 1) };
    let second = build(&folder, "", &[touched, listed("b", "v1", 1)], Some(&first));
    assert_eq!(second.stale, vec![(ROOT, b"a".to_vec())]);
    assert_eq!(second.manifest.fingerprint(), first.fingerprint(), "the content is the same");
}

#[test]
fn another_store_or_prefix_inherits_nothing() {
    let folder = scratch();
    let first = build(&folder, "p/", &files(&["p/a"]), None).manifest;
    let second = build(&folder, "p/q/", &files(&["p/q/a"]), Some(&first));
    assert_eq!(second.manifest.generation(), 2);
    assert_ne!(second.manifest.find(b"a"), first.find(b"a"));
    assert_eq!(second.stale, vec![(ROOT, b"a".to_vec())]);
}

#[test]
fn a_snapshot_outlives_its_file() {
    let folder = scratch();
    let first = build(&folder, "", &files(&["a"]), None).manifest;
    let second = build(&folder, "", &files(&["b"]), Some(&first)).manifest;
    assert!(first.verify().is_ok() && first.find(b"a").is_some());
    std::fs::remove_file(folder.path().join("names")).expect("the second snapshot");
    assert!(second.verify().is_ok() && second.find(b"b").is_some());
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "no draft is left");
}

#[test]
fn snapshots_that_are_built_at_once_never_touch_one_another() {
    let folder = scratch();
    let path = folder.path().join("names");
    let listing = |count: usize| -> Vec<Listed> {
        (0..count).map(|number| listed(&format!("{number:06}"), "v1", number as u64)).collect()
    };
    // Lists of different lengths, so that whoever wrote into another's file would cut it short or draw it out.
    let one = |count: usize| {
        let mut builder = Builder::new(STORE.into(), "").expect("a folder");
        builder.add(&listing(count)).expect("keys");
        let manifest = builder.build(&path, 1, None).expect("a snapshot").manifest;
        (manifest, count)
    };
    let built: Vec<(Manifest, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..25).map(|count| scope.spawn(move || one(count * 400))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it was built")).collect()
    });
    for (manifest, count) in &built {
        manifest.verify().expect("it is whole");
        assert!(!manifest.is_damaged() && manifest.totals().files == *count as u64);
    }
    let last = Manifest::open(&path).expect("one of them").fingerprint();
    assert!(built.iter().any(|(manifest, _)| manifest.fingerprint() == last));
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1, "no draft is left");
}

#[test]
fn a_snapshot_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = scratch();
    let path = folder.path().join("names");
    std::fs::write(&path, b"of an earlier version").expect("room");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    build(&folder, "", &files(&["a"]), None);
    assert_eq!(path.metadata().expect("the snapshot").permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_snapshot_without_a_name_leaves_nothing_behind() {
    let folder = scratch();
    let mut builder = Builder::new(STORE.into(), "").expect("a folder");
    builder.add(&files(&["a"])).expect("a key");
    let manifest = builder.build_nameless(folder.path(), 1).expect("a snapshot");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    assert!(manifest.verify().is_ok() && manifest.find(b"a").is_some());
}
