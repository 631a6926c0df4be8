//! How keys become paths. A key of an object store is any text; a path is not. Most keys are taken as
//! they are; the others get a safe, visible and reversible name, and are counted, never lost.
//!
//! Pure functions of the key; the one question that needs all keys (is `x` also a folder?) is asked by
//! the builder, which then uses [`beside_folder`].
//!
//! | key, below the prefix | path | kind |
//! | --- | --- | --- |
//! | `a/b.jpg` | `a/b.jpg` | |
//! | `a/` of 0 bytes | the folder `a`, no file | marker |
//! | `a/` of 3 bytes | `a/%odd=` | [`Odd::Empty`] |
//! | `a//b`, `/b` | `a/%odd=/b`, `%odd=/b` | [`Odd::Empty`] |
//! | `./b`, `a/..` | `%odd=%2E/b`, `a/%odd=%2E%2E` | [`Odd::Dot`] |
//! | `a<NUL>50%` | `%odd=a%0050%25` | [`Odd::Nul`] |
//! | `%odd=b` | `%odd=%25odd=b` | [`Odd::Reserved`] |
//! | a name of 600 bytes | `%cut=<250>/%cut=<250>/%end=<100>` | [`Odd::LongName`] |
//! | `x` where `x/y` exists too | `%file=x` beside the folder `x` | [`Odd::Both`] |
//! | its path is over 3,072 bytes | `%long=<32 hex digits>` in the top folder | [`Odd::LongPath`] |
//!
//! Invariant: different keys have different paths, because a name that begins like one of ours is itself
//! escaped; [`key`] gives the key back for every path except `%long=`, whose key the snapshot keeps.

use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a name: the limit of the kernel and of every file system that a copy may land on.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of a path below the mount. The kernel takes 4,096 in one call; a quarter is left to the folder
/// that the data set is mounted on and to the program's own.
pub const PATH_BYTES_MAX: usize = 3072;

/// Between the names of a path in the builder: the smallest byte, and none of any name, so that paths
/// compared as bytes come in the order of their folders. At the end it marks an empty folder.
pub const SEPARATOR: u8 = 0;

const ODD: &str = "%odd=";
const CUT: &str = "%cut=";
const END: &str = "%end=";
const FILE: &str = "%file=";
const LONG: &str = "%long=";
const RESERVED: [&str; 5] = [ODD, CUT, END, FILE, LONG];

/// Bytes of a long name in each piece, beside `%cut=`.
const PIECE_BYTES: usize = NAME_BYTES_MAX - CUT.len();

/// Why a key could not be a path as it is. A key that has several reasons is counted under the first met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// A slash at the start, at the end of a key with content, or doubled.
    Empty,
    /// A name `.` or `..`.
    Dot,
    /// A NUL in a name.
    Nul,
    /// A name that begins like an escaped one.
    Reserved,
    /// A name over [`NAME_BYTES_MAX`].
    LongName,
    /// A path over [`PATH_BYTES_MAX`].
    LongPath,
    /// A file where a folder of the same name is.
    Both,
}

impl Odd {
    /// All kinds, in the order of their counts in a snapshot.
    pub const ALL: [Odd; 7] = [Odd::Empty, Odd::Dot, Odd::Nul, Odd::Reserved, Odd::LongName, Odd::LongPath, Odd::Both];

    /// For people: "7 keys with ...".
    pub fn text(self) -> &'static str {
        match self {
            Odd::Empty => "an empty name between slashes",
            Odd::Dot => "a name `.` or `..`",
            Odd::Nul => "a NUL in a name",
            Odd::Reserved => "a name that begins with a reserved word",
            Odd::LongName => "a name over 255 bytes",
            Odd::LongPath => "a path over 3,072 bytes",
            Odd::Both => "a folder of the same name",
        }
    }
}

/// Whether a name was put in the place of a part of a key that could not be a name.
pub fn is_reserved(name: &[u8]) -> bool {
    RESERVED.iter().any(|reserved| name.starts_with(reserved.as_bytes()))
}

/// Whether a name is a hash, which doesn't tell its key.
pub fn is_hashed(name: &[u8]) -> bool {
    name.starts_with(LONG.as_bytes())
}

/// Where a key is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub odd: Option<Odd>,
    /// The path doesn't tell the key: it has to be kept beside it.
    pub keyed: bool,
}

/// Write the path of a key below the prefix into `path`: names with [`SEPARATOR`] between them, and one at
/// the end for a folder marker. The path of the marker of the top folder is empty.
pub fn place(key: &str, size: u64, path: &mut Vec<u8>) -> Placed {
    path.clear();
    let marker = size == 0 && (key.is_empty() || key.ends_with('/'));
    if marker && key.is_empty() {
        return Placed { odd: None, keyed: false };
    }
    let names = if marker { &key[..key.len() - 1] } else { key };
    let mut odd = None;
    for name in names.split('/') {
        let reason = reason(name);
        match reason {
            None => path.extend_from_slice(name.as_bytes()),
            Some(_) => push_escaped(name, path),
        }
        path.push(SEPARATOR);
        odd = odd.or(reason);
    }
    path.pop();
    let keyed = path.len() > PATH_BYTES_MAX;
    if keyed {
        path.clear();
        push_hash(key, path);
        odd = Some(Odd::LongPath);
    }
    if marker {
        path.push(SEPARATOR);
    }
    Placed { odd, keyed }
}

/// The name of a file where a folder has its name; the second value says that the name doesn't tell the
/// key. `key` is the key below the prefix.
pub fn beside_folder(name: &[u8], key: &str) -> (Vec<u8>, bool) {
    let mut out = FILE.as_bytes().to_vec();
    let keyed = FILE.len() + name.len() > NAME_BYTES_MAX;
    if keyed {
        out.clear();
        push_hash(key, &mut out);
    } else {
        out.extend_from_slice(name);
    }
    (out, keyed)
}

/// The key below the prefix, from the names of its path. `None` if the path doesn't tell it.
pub fn key<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let mut out = Vec::new();
    let mut slash = false;
    for name in names {
        if slash {
            out.push(b'/');
        }
        slash = true;
        let name = name.strip_prefix(FILE.as_bytes()).unwrap_or(name);
        if is_hashed(name) {
            return None;
        } else if let Some(text) = name.strip_prefix(CUT.as_bytes()) {
            push_plain(text, &mut out)?;
            slash = false;
        } else if let Some(text) = name.strip_prefix(ODD.as_bytes()).or(name.strip_prefix(END.as_bytes())) {
            push_plain(text, &mut out)?;
        } else {
            out.extend_from_slice(name);
        }
    }
    String::from_utf8(out).ok()
}

/// Why this name can't stand in a path as it is.
fn reason(name: &str) -> Option<Odd> {
    match name {
        "" => Some(Odd::Empty),
        "." | ".." => Some(Odd::Dot),
        _ if name.contains('\0') => Some(Odd::Nul),
        _ if RESERVED.iter().any(|reserved| name.starts_with(reserved)) => Some(Odd::Reserved),
        _ if name.len() > NAME_BYTES_MAX => Some(Odd::LongName),
        _ => None,
    }
}

fn push_hash(key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{LONG}{:032x}", xxh3_128(key.as_bytes())).as_bytes());
}

/// `%odd=` and the escaped name; where that is too long, several names that are put together again.
fn push_escaped(name: &str, out: &mut Vec<u8>) {
    let text = escaped(name);
    if text.len() <= PIECE_BYTES {
        out.extend_from_slice(ODD.as_bytes());
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut rest = text.as_str();
    while rest.len() > PIECE_BYTES {
        let (piece, tail) = rest.split_at(piece_end(rest));
        out.extend_from_slice(CUT.as_bytes());
        out.extend_from_slice(piece.as_bytes());
        out.push(SEPARATOR);
        rest = tail;
    }
    out.extend_from_slice(END.as_bytes());
    out.extend_from_slice(rest.as_bytes());
}

/// The longest piece that splits neither a character nor an escape.
fn piece_end(text: &str) -> usize {
    let mut end = PIECE_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match text.as_bytes()[..end].iter().rposition(|&byte| byte == b'%') {
        Some(escape) if escape + 3 > end => escape,
        _ => end,
    }
}

fn escaped(name: &str) -> String {
    if name == "." || name == ".." {
        return "%2E".repeat(name.len());
    }
    name.replace('%', "%25").replace('\0', "%00")
}

/// Undo [`escaped`]. `None` for an escape that it doesn't write.
fn push_plain(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        out.extend_from_slice(&rest[..at]);
        out.push(match rest.get(at + 1..at + 3)? {
            b"25" => b'%',
            b"00" => 0,
            b"2E" => b'.',
            _ => return None,
        });
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placed(key: &str, size: u64) -> (String, Option<Odd>) {
        let mut path = Vec::new();
        let placed = place(key, size, &mut path);
        (String::from_utf8(path).expect("text").replace('\0', "/"), placed.odd)
    }

    #[test]
    fn keys_are_placed_as_documented() {
        for (key, size, path, odd) in [
            ("a/b.jpg", 1, "a/b.jpg", None),
            ("100%/x", 1, "100%/x", None),
            ("", 0, "", None),
            ("a/", 0, "a/", None),
            ("a/", 3, "a/%odd=", Some(Odd::Empty)),
            ("", 3, "%odd=", Some(Odd::Empty)),
            ("/", 0, "%odd=/", Some(Odd::Empty)),
            ("a//b", 1, "a/%odd=/b", Some(Odd::Empty)),
            ("/b", 1, "%odd=/b", Some(Odd::Empty)),
            ("./b", 1, "%odd=%2E/b", Some(Odd::Dot)),
            ("a/..", 1, "a/%odd=%2E%2E", Some(Odd::Dot)),
            ("a\x0050%", 1, "%odd=a%0050%25", Some(Odd::Nul)),
            ("%odd=b", 1, "%odd=%25odd=b", Some(Odd::Reserved)),
        ] {
            assert_eq!(placed(key, size), (path.into(), odd), "{key:?}");
        }
    }

    #[test]
    fn long_names_are_cut_and_long_paths_are_hashed() {
        let (path, odd) = placed(&format!("a/{}/b", "n".repeat(600)), 1);
        let lengths: Vec<usize> = path.split('/').map(str::len).collect();
        assert_eq!((lengths, odd), (vec![1, 255, 255, 105, 1], Some(Odd::LongName)));
        let (path, odd) = placed(&"deep/".repeat(1000), 0);
        assert!(path.starts_with(LONG) && path.len() == LONG.len() + 33, "{path}");
        assert_eq!(odd, Some(Odd::LongPath));
    }

    #[test]
    fn a_file_beside_its_folder_tells_its_key() {
        let (name, keyed) = beside_folder(b"x", "a/x");
        assert_eq!((name.as_slice(), keyed), (b"%file=x".as_slice(), false));
        assert_eq!(key([b"a".as_slice(), &name]).as_deref(), Some("a/x"));
        let long = "n".repeat(NAME_BYTES_MAX);
        let (name, keyed) = beside_folder(long.as_bytes(), &long);
        assert!(keyed && name.starts_with(LONG.as_bytes()));
    }

    proptest! {
        #[test]
        fn a_path_tells_its_key(text in "(/|\\.|\0|%|%odd=|%cut=|%end=|%file=|%long=|a|é|[a-c%]{240,300}){0,12}") {
            let mut path = Vec::new();
            let placed = place(&text, 1, &mut path);
            prop_assert!(path.len() <= PATH_BYTES_MAX);
            for name in path.split(|&byte| byte == SEPARATOR) {
                prop_assert!((1..=NAME_BYTES_MAX).contains(&name.len()));
                prop_assert!(std::str::from_utf8(name).is_ok() && name != b"." && name != b"..");
            }
            let back = key(path.split(|&byte| byte == SEPARATOR));
            prop_assert_eq!(back, (!placed.keyed).then_some(text));
        }
    }
}
