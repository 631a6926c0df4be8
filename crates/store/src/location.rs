//! From what a user types to a store: `s3://bucket/prefix`, `file:///path` or a plain path.
//!
//! Invariant: what can't be opened is refused with the spelling that could.

use crate::{Folder, FolderSettings, S3, S3Settings, Store};
use block::{Error, Result};
use percent_encoding::percent_decode_str;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Where a dataset lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A bucket, and what the keys begin with.
    S3 { bucket: String, prefix: String },
    /// A folder.
    Folder(PathBuf),
}

/// How to open the store at a location.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub s3: S3Settings,
    pub folder: FolderSettings,
}

impl Location {
    /// What the keys begin with; listings are asked for it.
    pub fn prefix(&self) -> &str {
        match self {
            Location::S3 { prefix, .. } => prefix,
            Location::Folder(_) => "",
        }
    }
}

/// The store at a location. Nothing is sent to a bucket until something is asked of it.
pub fn open(location: &Location, settings: &Settings) -> Result<Arc<dyn Store>> {
    Ok(match location {
        Location::S3 { bucket, .. } => Arc::new(S3::open(bucket, settings.s3.clone())?),
        Location::Folder(path) => Arc::new(Folder::at(path, settings.folder)?),
    })
}

/// Refuse an endpoint, a bucket or a profile that can't be meant. Nothing is sent.
pub async fn check(location: &Location, settings: &Settings) -> Result<()> {
    match location {
        Location::S3 { bucket, .. } => S3::check(bucket, &settings.s3).await,
        Location::Folder(_) => Ok(()),
    }
}

impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Location> {
        let wrong = |what: &str, hint: &str| Err(Error::invalid(what, text).hint(hint));
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text {
                "" => wrong("the location is empty", "write s3://bucket/prefix or a path"),
                _ if is_like_a_url(text) => {
                    wrong("the location has one slash too few", "write s3://bucket/prefix or file:///path")
                }
                path => Ok(Location::Folder(path.into())),
            };
        };
        match scheme.to_ascii_lowercase().as_str() {
            "s3" | "s3a" | "s3n" => s3(text, rest),
            "file" => file(text, rest),
            "gs" | "gcs" | "az" | "abfs" | "abfss" | "hdfs" => {
                wrong("this kind of store can't be opened yet", "its S3 interface may do: s3://bucket with --endpoint")
            }
            "http" | "https" => wrong(
                "this is the address of a web server and not of a bucket",
                "write s3://bucket/prefix, and name your own server by --endpoint",
            ),
            _ => wrong("this kind of store is unknown", "write s3://bucket/prefix, file:///path or a path"),
        }
    }
}

/// A key is what it says, letter for letter: nothing is decoded, as AWS's own tools have it.
fn s3(text: &str, rest: &str) -> Result<Location> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() || bucket.contains(['@', ':', '?', '#']) {
        let error = Error::invalid("this names no bucket", text);
        return Err(error.hint("write s3://bucket/prefix; an endpoint is a setting of its own (--endpoint)"));
    }
    Ok(Location::S3 { bucket: bucket.into(), prefix: prefix.into() })
}

fn file(text: &str, rest: &str) -> Result<Location> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(
            Error::invalid("this names a file on another machine", text).hint("write file:///path, with three slashes")
        );
    }
    let path = percent_decode_str(path).decode_utf8().map_err(|_| Error::invalid("the path is not UTF-8", text))?;
    Ok(Location::Folder(Path::new(path.as_ref()).to_owned()))
}

/// `s3:/bucket` is a slip, not a folder named `s3:`.
fn is_like_a_url(text: &str) -> bool {
    ["s3:", "file:", "http:", "https:", "gs:", "hdfs:"].iter().any(|scheme| text.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_what_was_typed() {
        let s3 = |bucket: &str, prefix: &str| Location::S3 { bucket: bucket.into(), prefix: prefix.into() };
        let folder = |path: &str| Location::Folder(path.into());
        for (text, expected) in [
            ("s3://bucket", s3("bucket", "")),
            ("s3://bucket/", s3("bucket", "")),
            ("s3://bucket/train/a%20b/", s3("bucket", "train/a%20b/")),
            ("S3://bucket//odd", s3("bucket", "/odd")),
            ("file:///data/a%20b", folder("/data/a b")),
            ("file://localhost/data", folder("/data")),
            ("/data/a%20b", folder("/data/a%20b")),
            ("relative/path", folder("relative/path")),
        ] {
            assert_eq!(text.parse::<Location>().expect(text), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_location_says_how_to_write_it() {
        let s3 = ["s3:/bucket", "s3://", "s3:///key", "s3://host:9000/bucket"];
        for text in s3.into_iter().chain(["", "file://server/path", "gs://b", "ftp://h/p", "https://h/p"]) {
            let error = text.parse::<Location>().expect_err(text);
            assert!(error.hint.starts_with("write") || error.hint.contains("s3://"), "{text}: {error}");
        }
    }
}
