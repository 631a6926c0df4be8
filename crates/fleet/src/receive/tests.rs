//! What a host may send, and what it must not.

use super::*;
use proptest::prelude::*;
use tar::{Builder, Header};

struct Sent(Builder<Vec<u8>>);

impl Sent {
    fn new() -> Sent {
        Sent(Builder::new(Vec::new()))
    }

    /// An entry with exactly this name, whatever the library thinks of it.
    fn entry(mut self, name: &str, kind: EntryType, link: &str, body: &[u8]) -> Sent {
        let mut header = Header::new_gnu();
        let fields = header.as_gnu_mut().expect("a GNU header");
        fields.name[..name.len()].copy_from_slice(name.as_bytes());
        fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o6755);
        header.set_size(body.len() as u64);
        header.set_mtime(1_000_000_000);
        header.set_cksum();
        self.0.append(&header, body).expect("an entry");
        self
    }

    fn file(self, name: &str, body: &[u8]) -> Sent {
        self.entry(name, EntryType::Regular, "", body)
    }

    fn received(self) -> (tempfile::TempDir, Result<Received, Failure>) {
        taken(&self.0.into_inner().expect("an archive"))
    }
}

fn taken(bytes: &[u8]) -> (tempfile::TempDir, Result<Received, Failure>) {
    let scratch = tempfile::tempdir().expect("a folder");
    let into = scratch.path().join("into");
    fs::create_dir(&into).expect("a folder");
    let limits = Limits { bytes: 1_000, names: &["a".into(), "b".into()] };
    let done = receive(&mut &*bytes, &into, &limits, &|_| {});
    (scratch, done)
}

/// What lies in a folder, with the ends of links.
fn lying(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn files_folders_and_hard_links_come_with_their_permissions() {
    let sent = Sent::new().entry("./a/", EntryType::Directory, "", b"").file("./a/one", b"1").file("./a/d/two", b"22");
    let sent =
        sent.entry("./a/same", EntryType::Link, "./a/one", b"").entry("./a/link", EntryType::Symlink, "/etc", b"");
    let (scratch, done) = sent.entry("./b", EntryType::Fifo, "", b"").received();
    assert_eq!(done, Ok(Received { files: 3, bytes: 3, left_out: 2 }));
    let into = scratch.path().join("into");
    assert_eq!(
        (lying(&into), lying(&into.join("a"))),
        (vec!["a".to_owned()], ["d", "one", "same"].map(String::from).to_vec())
    );
    let found = fs::metadata(into.join("a/one")).expect("a file");
    assert_eq!(found.permissions().mode() & 0o7777, 0o755, "nobody gets the rights of an owner");
    assert_eq!(found.modified().expect("a time"), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
}

#[test]
fn long_names_and_several_archives_are_read() {
    let long = format!("a/{}", "x".repeat(200));
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    builder.append_data(&mut header, &long, &b"1"[..]).expect("an entry");
    let mut bytes = builder.into_inner().expect("an archive");
    bytes.extend(Sent::new().file("b", b"2").0.into_inner().expect("an archive"));
    let (scratch, done) = taken(&bytes);
    assert_eq!(done.map(|received| received.files), Ok(2));
    assert!(scratch.path().join("into").join(long).exists());
}

#[test]
fn nothing_leads_out_of_the_folder() {
    let escapes = ["../out", "/tmp/out", "a/../../out", "a/b/../../../out", "..", "c", "", "./"];
    for name in escapes {
        for kind in [EntryType::Regular, EntryType::Directory, EntryType::Symlink, EntryType::Link] {
            let (scratch, done) = Sent::new().entry(name, kind, "a", b"").received();
            assert_eq!(done.map_err(|failure| failure.name()), Err("hostile"), "{name} {kind:?}");
            assert_eq!(lying(scratch.path()), ["into"]);
        }
    }
    // Through a link, which is never made; over a file; twice; from elsewhere.
    let through = Sent::new().entry("a", EntryType::Symlink, "..", b"").file("a/out", b"1").received();
    assert_eq!(
        (through.1.map(|received| received.left_out), lying(through.0.path())),
        (Ok(1), vec!["into".to_owned()])
    );
    for (first, second) in [("a", "a/x"), ("a", "a"), ("a/x", "a")] {
        let (_scratch, done) = Sent::new().file(first, b"1").file(second, b"2").received();
        assert_eq!(done.map_err(|failure| failure.name()), Err("hostile"), "{first} {second}");
    }
    for target in ["/etc/passwd", "../x", "a/../../x"] {
        let (_scratch, done) = Sent::new().entry("a", EntryType::Link, target, b"").received();
        assert_eq!(done.map_err(|failure| failure.name()), Err("hostile"), "{target}");
    }
}

#[test]
fn what_is_too_much_is_refused_and_what_ends_too_early_is_not_whole() {
    let (_scratch, done) = Sent::new().file("a", &[0; 600]).file("b", &[0; 600]).received();
    assert_eq!(done.map_err(|failure| failure.name()), Err("hostile"));
    let (_scratch, done) = Sent::new().entry("x", EntryType::GNULongName, "", &[b'a'; 70_000]).received();
    assert_eq!(done.map_err(|failure| failure.name()), Err("hostile"));
    let bytes = Sent::new().file("a", &[0; 600]).0.into_inner().expect("an archive");
    for end in [100, 700, 1_000] {
        assert_eq!(taken(&bytes[..end]).1.map_err(|failure| failure.name()), Err("lost"), "{end}");
    }
}

#[test]
fn what_was_here_and_was_not_sent_stays_and_no_link_is_followed() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    for (folder, file) in [(&from, "d/new"), (&from, "both"), (&to, "d/old"), (&to, "both")] {
        fs::create_dir_all(folder.join("d")).and_then(|()| fs::write(folder.join(file), file)).expect("a file");
    }
    place(&from, &to).expect("it is placed");
    assert_eq!(
        (lying(&to), lying(&to.join("d"))),
        (vec!["both".to_owned(), "d".into()], vec!["new".to_owned(), "old".into()])
    );
    fs::create_dir_all(from.join("d")).and_then(|()| fs::write(from.join("d/x"), "x")).expect("a file");
    fs::rename(to.join("d"), scratch.path().join("elsewhere")).expect("a move");
    std::os::unix::fs::symlink("../elsewhere", to.join("d")).expect("a link");
    assert!(place(&from, &to).is_err());
    assert_eq!(lying(&scratch.path().join("elsewhere")), ["new", "old"]);
}

proptest! {
    #[test]
    fn no_bytes_make_anything_outside(bytes in proptest::collection::vec(any::<u8>(), 0..3_000), names in proptest::collection::vec("[ab./]{1,12}", 0..6)) {
        let sent = names.iter().fold(Sent::new(), |sent, name| sent.file(name, name.as_bytes()));
        let mut stream = sent.0.into_inner().expect("an archive");
        stream.truncate(stream.len().saturating_sub(1_024));
        stream.extend(bytes);
        let (scratch, _done) = taken(&stream);
        prop_assert_eq!(lying(scratch.path()), ["into"]);
        for name in lying(&scratch.path().join("into")) {
            prop_assert!(name == "a" || name == "b", "{}", name);
        }
    }
}
