//! Keys of objects as paths of a folder, and back. Pure text; the file system is not asked.
//!
//! A key is its path wherever a folder can hold it. What it cannot hold is escaped, one name at a time:
//!
//! | on disk                      | means                                                     |
//! | ---                          | ---                                                       |
//! | `.stoker-object~NAME`        | an object whose last part is NAME: empty (`a/`), `.`, `..`, or the name of a folder beside it (`x` and `x/y`) |
//! | `.stoker-folder~NAME/`       | a part NAME in the middle of keys: empty (`a//b`), `.`, `..` |
//! | `%00` and `%25` in either    | NUL and `%`                                               |
//! | `.stoker-data.json`, `.stoker-index/` | themselves: manifest and indexes of a set of `stoker bench data` |
//! | any other `.stoker*`         | ours, never listed (`.stoker/` holds uploads)             |
//!
//! Other parts that begin with `.stoker` are escaped as well, so that no key reaches what is ours.
//!
//! Invariant: no path made here has an empty, `.` or `..` part, and decoding a name gives back its part.

use std::borrow::Cow;

const OURS: &str = ".stoker";
/// What `stoker bench data` keeps beside its files, which a set that is served in place needs to be verified.
const OF_SETS: [&str; 2] = [".stoker-data.json", ".stoker-index"];
const OBJECT: &str = ".stoker-object~";
const FOLDER: &str = ".stoker-folder~";

/// What a name on disk stands for.
#[derive(Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// Itself: an object if it is a file, a part of keys if it is a folder.
    Plain(&'a str),
    /// An object with this last part.
    Object(String),
    /// A folder with this part.
    Folder(String),
    /// Nothing that has a key.
    Hidden,
}

/// The path of an object, its last part as itself if it can be.
pub fn object_path(key: &str) -> Cow<'_, str> {
    if key.split('/').all(is_plain) {
        return Cow::Borrowed(key);
    }
    let (folders, last) = key.rsplit_once('/').map_or((None, key), |(folders, last)| (Some(folders), last));
    let last = if is_plain(last) { Cow::Borrowed(last) } else { escape(OBJECT, last).into() };
    Cow::Owned(join(folders, &last))
}

/// The path of an object whose plain path is taken by a folder.
pub fn escaped_object_path(key: &str) -> String {
    let (folders, last) = key.rsplit_once('/').map_or((None, key), |(folders, last)| (Some(folders), last));
    join(folders, &escape(OBJECT, last))
}

/// The escaped name of an object, for one that has to give way to a folder.
pub fn escaped_object_name(part: &str) -> String {
    escape(OBJECT, part)
}

/// The path of the folder that holds the keys beginning with `prefix`, which ends with a slash or is empty.
pub fn folder_path(prefix: &str) -> String {
    prefix.strip_suffix('/').map_or(String::new(), folders_path)
}

/// What a name on disk stands for.
pub fn name(on_disk: &str) -> Name<'_> {
    if !is_ours(on_disk) {
        return Name::Plain(on_disk);
    }
    let unescaped = |prefix: &str| on_disk.strip_prefix(prefix).and_then(unescape);
    match (unescaped(OBJECT), unescaped(FOLDER)) {
        (Some(part), _) => Name::Object(part),
        (None, Some(part)) => Name::Folder(part),
        (None, None) => Name::Hidden,
    }
}

fn join(folders: Option<&str>, last: &str) -> String {
    folders.map_or_else(|| last.to_string(), |folders| format!("{}/{last}", folders_path(folders)))
}

fn folders_path(folders: &str) -> String {
    let parts =
        folders.split('/').map(|part| if is_plain(part) { Cow::Borrowed(part) } else { escape(FOLDER, part).into() });
    parts.collect::<Vec<Cow<'_, str>>>().join("/")
}

fn is_ours(part: &str) -> bool {
    part.starts_with(OURS) && !OF_SETS.contains(&part)
}

fn is_plain(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".." && !is_ours(part) && !part.contains('\0')
}

fn escape(prefix: &str, part: &str) -> String {
    format!("{prefix}{}", part.replace('%', "%25").replace('\0', "%00"))
}

/// The part that was escaped, unless it would have been escaped otherwise: a part has one spelling.
fn unescape(escaped: &str) -> Option<String> {
    let part = escaped.replace("%00", "\0").replace("%25", "%");
    (escape("", &part) == escaped).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_keys_are_their_paths() {
        for key in ["a", "a/b/c.jpg", "100%.txt", ".hidden/x", "a b/ü", ".stoker-data.json", "a/.stoker-index/b"] {
            assert!(matches!(object_path(key), Cow::Borrowed(path) if path == key), "{key}");
        }
    }

    #[test]
    fn odd_keys_are_escaped_part_by_part() {
        assert_eq!(object_path("a//b"), "a/.stoker-folder~/b");
        assert_eq!(object_path("a/"), "a/.stoker-object~");
        assert_eq!(object_path("../../etc/passwd"), ".stoker-folder~../.stoker-folder~../etc/passwd");
        assert_eq!(object_path("/etc/passwd"), ".stoker-folder~/etc/passwd");
        assert_eq!(object_path(".."), ".stoker-object~..");
        assert_eq!(object_path("nul\0%"), ".stoker-object~nul%00%25");
        assert_eq!(object_path(".stoker/uploads/1"), ".stoker-folder~.stoker/uploads/1");
        assert_eq!(escaped_object_path("a/x"), "a/.stoker-object~x");
        assert_eq!(folder_path("a//"), "a/.stoker-folder~");
        assert_eq!(folder_path(""), "");
    }

    #[test]
    fn names_that_are_ours_have_no_key() {
        assert_eq!(name(".stoker"), Name::Hidden);
        assert_eq!(name(".stoker-drafts"), Name::Hidden, "of a set that is being made");
        assert_eq!(name(".stoker-object~%41"), Name::Hidden, "not how an `A` is spelled");
        assert_eq!(name(".stoker-object~"), Name::Object(String::new()));
        assert_eq!(name(".stoker-folder~.."), Name::Folder("..".into()));
    }

    proptest! {
        #[test]
        fn every_key_comes_back(parts in proptest::collection::vec("[ab.%~\0]{0,3}|\\.\\.|\\.stoker(-object~)?[a%]?", 1..5)) {
            let key = parts.join("/");
            for path in [object_path(&key).into_owned(), escaped_object_path(&key)] {
                let names: Vec<&str> = path.split('/').collect();
                prop_assert!(names.iter().all(|name| !matches!(*name, "" | "." | "..") && !name.contains('\0')));
                let back: Vec<String> = names.iter().map(|on_disk| match name(on_disk) {
                    Name::Plain(part) => part.to_string(),
                    Name::Object(part) | Name::Folder(part) => part,
                    Name::Hidden => "hidden".into(),
                }).collect();
                prop_assert_eq!(back.join("/"), key.clone());
            }
        }
    }
}
