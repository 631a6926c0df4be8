//! Generations against a plain model of the kernel: whatever it holds a lookup on stays what it was.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// The set now has these files of these versions.
    Refresh(BTreeMap<u8, u8>),
    Lookup(u8),
    /// Give back what is held on the n-th node.
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => proptest::collection::btree_map(0..6u8, 0..3u8, 0..6).prop_map(Step::Refresh),
        3 => (0..6u8).prop_map(Step::Lookup),
        2 => any::<usize>().prop_map(Step::Forget),
    ]
}

fn key(file: u8) -> String {
    format!("f{}/x{file}", file % 2)
}

fn listing(files: &BTreeMap<u8, u8>) -> Vec<Listed> {
    files.iter().map(|(file, version)| listed(&key(*file), &version.to_string(), 1)).collect()
}

proptest! {
    #[test]
    fn a_node_that_is_held_never_changes(steps in proptest::collection::vec(step(), 1..60)) {
        let folder = scratch();
        let names = Generations::new(build(&folder, "", &[], None).manifest);
        let mut files = BTreeMap::new();
        let mut held: BTreeMap<u64, (String, String, i64)> = BTreeMap::new();
        let mut refreshes = 0;
        for step in steps {
            match step {
                Step::Refresh(next) => {
                    // Beyond the limit a node may be forgotten: another test.
                    refreshes += 1;
                    if refreshes < RETAINED_MAX {
                        let built = build(&folder, "", &listing(&next), Some(&names.current()));
                        prop_assert!(names.replace(built.manifest));
                        files = next;
                    }
                }
                Step::Lookup(file) => {
                    let path = key(file);
                    let found = names.current().find(&path.as_bytes()[..2]);
                    let found = found.and_then(|parent| names.lookup(parent, &path.as_bytes()[3..]));
                    prop_assert_eq!(found.is_some(), files.contains_key(&file));
                    if let Some(found) = found {
                        held.entry(found.node).or_insert((path, files[&file].to_string(), 0)).2 += 1;
                    }
                }
                Step::Forget(number) => {
                    if let Some(node) = held.keys().nth(number % held.len().max(1)).copied() {
                        names.remember(node, -held.remove(&node).expect("it is held").2);
                    }
                }
            }
            for (node, (path, version, _)) in &held {
                let object = names.object(*node).expect("its object is known");
                prop_assert_eq!((&object.key, &object.version), (path, version));
                prop_assert_eq!(names.path(*node), Some(path.as_bytes().to_vec()));
                prop_assert_eq!(names.attributes(*node).map(|attributes| (attributes.node, attributes.size)), Some((*node, 1)));
            }
        }
        for (node, (_, _, lookups)) in held {
            names.remember(node, -lookups);
        }
        prop_assert_eq!(names.kept(), 1, "what nobody holds is let go");
    }
}

#[test]
fn a_node_from_before_a_restart_is_known_after_a_refresh() {
    let folder = scratch();
    let first = build(&folder, "", &files(&["a", "b"]), None).manifest;
    build(&folder, "", &files(&["a", "c"]), Some(&first));
    let names = Generations::new(Manifest::open(&folder.path().join("names")).expect("the second snapshot"));
    let inherited = names.lookup(ROOT, b"a").expect("a file").node;
    assert_eq!(Some(inherited), first.find(b"a"));
    assert!(names.replace(build(&folder, "", &files(&["c"]), Some(&names.current())).manifest));
    assert_eq!(names.lookup(ROOT, b"a"), None, "the name is gone");
    assert_eq!(names.object(inherited).expect("the node is not").key, "a");
    names.remember(inherited, -1);
    assert_eq!((names.kept(), names.attributes(inherited)), (1, None));
}

#[test]
fn names_that_a_listing_goes_on_with_are_kept_and_all_later_ones() {
    let folder = scratch();
    let names = Generations::new(build(&folder, "", &files(&["a"]), None).manifest);
    let next = |name: &str| {
        let built = build(&folder, "", &files(&[name]), Some(&names.current()));
        assert!(names.replace(built.manifest));
    };
    next("b");
    let listing = names.current();
    next("c");
    next("d");
    assert_eq!((names.kept(), names.of(listing.generation()).is_some()), (3, true));
    drop(listing);
    next("e");
    assert_eq!(names.kept(), 1);
}

#[test]
fn more_snapshots_than_the_limit_are_not_kept() {
    let folder = scratch();
    let names = Generations::new(build(&folder, "", &files(&["a", "stays"]), None).manifest);
    let (gone, stays) = (names.lookup(ROOT, b"a").expect("a"), names.lookup(ROOT, b"stays").expect("stays"));
    // As many as docs/semantics.md says, with the current one.
    const VIEWS: usize = 17;
    for number in 0..2 * VIEWS {
        let name = format!("b{number}");
        let built = build(&folder, "", &files(&[&name, "stays"]), Some(&names.current()));
        assert!(names.replace(built.manifest));
        names.lookup(ROOT, name.as_bytes()).expect("a new file");
        assert_eq!(names.kept(), VIEWS.min(number + 2));
    }
    assert_eq!(names.attributes(gone.node), None, "it vanished too long ago");
    assert_eq!(names.attributes(stays.node), Some(stays));
}

#[test]
fn a_snapshot_that_does_not_follow_is_refused() {
    let folder = scratch();
    let names = Generations::new(build(&folder, "", &files(&["a"]), None).manifest);
    assert!(!names.replace(build(&folder, "", &files(&["b"]), None).manifest));
    assert!(names.lookup(ROOT, b"a").is_some());
    names.remember(names.current().find(b"a").expect("a"), -99);
    names.remember(u64::MAX, 5);
    assert_eq!(names.attributes(u64::MAX), None);
}
