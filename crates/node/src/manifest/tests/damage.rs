//! Snapshots of any bytes: nothing panics, loops or reads outside.

use super::*;
use xxhash_rust::xxh3::xxh3_64;

/// A snapshot with every section filled, as bytes.
fn sound(folder: &TempDir) -> (Manifest, Vec<u8>) {
    let long = "n".repeat(255);
    let keys = ["a/b/c", "a/b/d", "a/e", "f", "x", "x/y", "g//h", &long, &format!("{long}/z")];
    let mut listing = files(&keys);
    listing.push(listed("t", "a version that is too long to pack", 9));
    let first = build(folder, "", &listing[1..], None).manifest;
    let manifest = build(folder, "", &listing, Some(&first)).manifest;
    assert!(manifest.header.sections.iter().all(|section| section.bytes > 0));
    (manifest, std::fs::read(folder.path().join("names")).expect("the snapshot"))
}

/// Make the header's checksum right again, as somebody hostile would.
fn seal(bytes: &mut [u8]) {
    let length = bytes.get(12..16).map_or(0, |length| u32::from_le_bytes(length.try_into().expect("four bytes")));
    if let Some(header) = bytes.get(24..length as usize) {
        let checksum = xxh3_64(header);
        bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Ask everything. The answers may be wrong, but each entry comes up at most once and it ends.
fn exercise(manifest: &Manifest, entries: u32, sound: &Manifest, folder: &TempDir) {
    let mut folders = vec![ROOT];
    let mut seen = 0;
    while let Some(node) = folders.pop() {
        manifest.list(node, 0, &mut |_, name, attributes| {
            seen += 1;
            manifest.lookup(node, name);
            if attributes.folder && attributes.node != node && seen <= entries {
                folders.push(attributes.node);
            }
            true
        });
    }
    let mut walk = manifest.walk(ROOT);
    let mut files = 0;
    while walk.advance().is_some() {
        files += 1;
    }
    assert!(files <= entries, "{files} of {entries}");
    for generation in 0..4 {
        for index in 0..entries + 2 {
            let node = layout::node(generation, index);
            let _ = (manifest.attributes(node), manifest.object(node));
            let _ = (manifest.path(node), manifest.lookup(node, b"b"));
        }
    }
    let _ = (manifest.find(b"a/b/c"), manifest.verify(), stale(sound, manifest), stale(manifest, sound));
    let mut builder = Builder::new(STORE.into(), "").expect("a folder");
    builder.add(&self::files(&["a/b/c", "a/e", "x", "x/y"])).expect("keys");
    let _ = builder.build(&folder.path().join("next"), 1, Some(manifest));
}

/// Overwrite bytes at a place, as often as it says.
fn damage() -> impl Strategy<Value = Vec<(prop::sample::Index, Vec<u8>)>> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..9),
        proptest::collection::vec(Just(0xff), 1..9),
        (0..32u32).prop_map(|number| number.to_le_bytes().to_vec()),
    ];
    proptest::collection::vec((any::<prop::sample::Index>(), bytes), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn damaged_bytes_do_no_harm(
        damage in damage(),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        sealed: bool,
    ) {
        let folder = scratch();
        let (sound, mut bytes) = sound(&folder);
        let whole = bytes.clone();
        for (place, new) in damage {
            let at = place.index(bytes.len());
            let end = (at + new.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
        if let Some(cut) = cut.filter(|_| !sealed) {
            bytes.truncate(cut.index(bytes.len()));
        }
        if sealed {
            seal(&mut bytes);
        }
        let path = folder.path().join("damaged");
        std::fs::write(&path, &bytes).expect("room");
        if let Ok(manifest) = Manifest::open(&path) {
            prop_assert!(sealed || bytes == whole || manifest.verify().is_err(), "the damage is found");
            let entries = u32::try_from(manifest.section(ENTRIES).len() / ENTRY).expect("few");
            exercise(&manifest, entries, &sound, &folder);
        }
    }
}

#[test]
fn every_single_flip_is_found() {
    let folder = scratch();
    let (_, bytes) = sound(&folder);
    let path = folder.path().join("damaged");
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x20;
        std::fs::write(&path, &bytes).expect("room");
        assert!(Manifest::open(&path).and_then(|manifest| manifest.verify()).is_err(), "byte {at}");
    }
}

#[test]
fn what_is_no_snapshot_is_refused_with_advice() {
    let folder = scratch();
    let path = folder.path().join("other");
    for bytes in [b"".to_vec(), b"short".to_vec(), vec![0; 4096]] {
        std::fs::write(&path, &bytes).expect("room");
        let error = Manifest::open(&path).err().expect("it is refused");
        assert_eq!(error.kind, block::Kind::Corrupt, "{error}");
    }
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("made");
    let error = Manifest::open(&pipe).err().expect("it is not waited for");
    assert_eq!(error.kind, block::Kind::Corrupt, "{error}");
    let missing = Manifest::open(&folder.path().join("none")).err().expect("there is none");
    assert_eq!(missing.kind, block::Kind::Missing);
}

#[test]
fn a_snapshot_that_is_cut_short_while_it_is_open_loses_names_and_not_the_process() {
    let folder = scratch();
    let keys: Vec<String> = (0..5_000).map(|number| format!("folder{}/file-{number}", number % 7)).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let manifest = build(&folder, "", &files(&keys), None).manifest;
    let other = build(&folder, "", &files(&keys), Some(&manifest)).manifest;
    let file = std::fs::File::options().write(true).open(folder.path().join("names")).expect("the snapshot");
    file.set_len(100_000).expect("it is cut");
    assert!(!other.is_damaged(), "nobody has read what was lost");
    exercise(&other, 5_008, &manifest, &folder);
    assert!(other.is_damaged() && other.verify().is_err());
    assert!(!manifest.is_damaged(), "it has a file of its own");
}
