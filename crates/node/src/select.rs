//! Which files of a data set are meant: a folder within it, patterns, or a list. Pure.

use block::{Error, Result};
use globset::{Glob, GlobSet, GlobSetBuilder};
use std::collections::HashSet;

/// What a user asks for. Empty, it is everything.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// A folder within the data set, without slashes at its ends.
    pub under: String,
    /// Patterns of paths within the data set; a file matches if any does. None means all.
    pub include: Vec<String>,
    /// Patterns of paths to leave out, even if included.
    pub exclude: Vec<String>,
    /// Exactly these paths.
    pub list: Option<Vec<String>>,
}

/// The same, ready to be asked.
pub struct Selection {
    include: Option<GlobSet>,
    exclude: GlobSet,
    list: Option<HashSet<Vec<u8>>>,
}

impl Wanted {
    pub fn selection(&self) -> Result<Selection> {
        let include = (!self.include.is_empty()).then(|| patterns(&self.include)).transpose()?;
        let list = self.list.as_ref().map(|list| list.iter().map(|path| tidy(path).as_bytes().to_vec()).collect());
        Ok(Selection { include, exclude: patterns(&self.exclude)?, list })
    }
}

impl Selection {
    /// Whether a file is meant, by its path within the data set.
    pub fn takes(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::OsStr::from_bytes(path);
        self.list.as_ref().is_none_or(|list| list.contains(path))
            && self.include.as_ref().is_none_or(|include| include.is_match(name))
            && !self.exclude.is_match(name)
    }

    /// Paths of the list that are not among these.
    pub fn unknown(&self, known: impl Fn(&[u8]) -> bool) -> Vec<String> {
        let list = self.list.iter().flatten().filter(|path| !known(path));
        list.map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }
}

fn tidy(path: &str) -> &str {
    path.trim_end_matches('\r').trim_start_matches("./").trim_matches('/')
}

fn patterns(patterns: &[String]) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = Glob::new(pattern).map_err(|error| {
            Error::invalid(format!("not a pattern: {error}"), pattern).hint("write patterns as in \"train/**/*.jpg\"")
        })?;
        set.add(glob);
    }
    set.build().map_err(|error| Error::invalid(format!("patterns do not go together: {error}"), patterns.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(wanted: &Wanted) -> Vec<&'static str> {
        let selection = wanted.selection().expect("patterns");
        let all = ["a.jpg", "train/b.jpg", "train/c.txt", "val/d.jpg"];
        all.into_iter().filter(|path| selection.takes(path.as_bytes())).collect()
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn everything_is_meant_unless_something_is_said() {
        assert_eq!(taken(&Wanted::default()).len(), 4);
        let jpeg = Wanted { include: words(&["**/*.jpg"]), exclude: words(&["val/**"]), ..Wanted::default() };
        assert_eq!(taken(&jpeg), ["a.jpg", "train/b.jpg"]);
        let list = Wanted { list: Some(words(&["./train/c.txt", "gone"])), ..Wanted::default() };
        assert_eq!(taken(&list), ["train/c.txt"]);
        assert_eq!(list.selection().expect("patterns").unknown(|path| path == b"train/c.txt"), ["gone"]);
    }

    #[test]
    fn a_pattern_that_is_none_is_refused_with_advice() {
        let wrong = Wanted { include: words(&["a[b"]), ..Wanted::default() };
        assert!(wrong.selection().is_err_and(|error| error.hint.contains("train/**")));
    }
}
