//! From what a user types to a store: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`,
//! `hdfs://namenode/path`, `file:///path` or a plain path.
//!
//! Invariant: what can't be opened is refused with the spelling that could.

use crate::cloud::azure_host;
use crate::{
    Azure, CloudSettings, Folder, FolderSettings, Google, Hdfs, HdfsSettings, S3, S3Settings, Store, WEB_TOKEN, Web, s3,
};
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
    /// A bucket of Google's.
    Google { bucket: String, prefix: String },
    /// A container of Azure's, and the host of its account, if it was typed.
    Azure { container: String, host: Option<String>, prefix: String },
    /// A web server by scheme, host and port, and what the paths of its files begin with.
    Web { server: String, prefix: String },
    /// A cluster of HDFS: a name service, `host:port`, or the usual one of its configuration if none is named.
    Hdfs { authority: String, prefix: String },
    /// A folder.
    Folder(PathBuf),
}

/// How to open the store at a location.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub s3: S3Settings,
    pub cloud: CloudSettings,
    pub hdfs: HdfsSettings,
    pub folder: FolderSettings,
}

impl Location {
    /// What the keys begin with; listings are asked for it.
    pub fn prefix(&self) -> &str {
        match self {
            Location::S3 { prefix, .. }
            | Location::Google { prefix, .. }
            | Location::Azure { prefix, .. }
            | Location::Hdfs { prefix, .. }
            | Location::Web { prefix, .. } => prefix,
            Location::Folder(_) => "",
        }
    }
}

/// The store at a location. Nothing is sent to a bucket until something is asked of it.
pub fn open(location: &Location, settings: &Settings) -> Result<Arc<dyn Store>> {
    Ok(match location {
        Location::S3 { bucket, .. } => Arc::new(S3::open(bucket, settings.s3.clone())?),
        Location::Google { bucket, .. } => Arc::new(Google::open(bucket, &settings.cloud)?),
        Location::Azure { container, host, .. } => Arc::new(Azure::open(container, host.as_deref(), &settings.cloud)?),
        Location::Web { server, .. } => Arc::new(Web::open(server, &settings.cloud)?),
        Location::Hdfs { authority, .. } => Arc::new(Hdfs::open(authority, &settings.hdfs)?),
        Location::Folder(path) => Arc::new(Folder::at(path, settings.folder)?),
    })
}

/// Refuse an endpoint, a bucket or a profile that can't be meant. Nothing is sent.
pub async fn check(location: &Location, settings: &Settings) -> Result<()> {
    match location {
        Location::S3 { bucket, .. } => S3::check(bucket, &settings.s3).await,
        Location::Google { bucket, .. } => Google::check(bucket, &settings.cloud).await,
        Location::Azure { container, host, .. } => Azure::check(container, host.as_deref(), &settings.cloud).await,
        Location::Web { server, .. } => Web::check(server, &settings.cloud),
        Location::Hdfs { authority, .. } => Hdfs::open(authority, &settings.hdfs).map(drop),
        Location::Folder(_) => Ok(()),
    }
}

/// Where credentials would be had from, by name, such as `profile train` or `GOOGLE_APPLICATION_CREDENTIALS`, or who asks where
/// that needs no proof; none where nothing is signed. Nobody is asked for any.
pub async fn lender(location: &Location, settings: &Settings) -> Result<Option<String>> {
    match location {
        Location::S3 { .. } => s3::lender(&settings.s3).await,
        Location::Google { bucket, .. } => Google::open(bucket, &settings.cloud)?.lender().await,
        Location::Azure { container, host, .. } => {
            Azure::open(container, host.as_deref(), &settings.cloud)?.lender().await
        }
        Location::Web { .. } => Ok(settings.cloud.variable(WEB_TOKEN).map(|_| WEB_TOKEN.to_owned())),
        Location::Hdfs { authority, .. } => Hdfs::open(authority, &settings.hdfs)?.who().await.map(Some),
        Location::Folder(_) => Ok(None),
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
            "gs" | "gcs" => {
                let (bucket, prefix) = named(text, rest, "bucket", "write gs://bucket/prefix")?;
                Ok(Location::Google { bucket, prefix })
            }
            "az" | "azure" | "abfs" | "abfss" | "wasb" | "wasbs" => azure(text, rest),
            "hdfs" => hdfs(text, rest),
            scheme @ ("http" | "https") => web(text, scheme, rest),
            _ => wrong(
                "this kind of store is unknown",
                "write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://namenode/path, file:///path or a path",
            ),
        }
    }
}

/// A key is what it says, letter for letter: nothing is decoded, as AWS's own tools have it.
fn s3(text: &str, rest: &str) -> Result<Location> {
    let (bucket, prefix) = named(text, rest, "bucket", "write s3://bucket/prefix")?;
    Ok(Location::S3 { bucket, prefix })
}

/// `az://container/prefix`, where the account is found elsewhere, or `abfss://container@account.dfs.core.windows.net/prefix`
/// as Spark and Hadoop write it.
fn azure(text: &str, rest: &str) -> Result<Location> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let advice = "write az://container/prefix, or abfss://container@account.dfs.core.windows.net/prefix";
    let (authority, host) = match authority.split_once('@') {
        Some((container, host)) if host.contains('.') && !host.contains(['@', ':', '?', '#']) => {
            (container, Some(azure_host(host)))
        }
        Some(_) => return Err(Error::invalid("this names no account of Azure", text).hint(advice)),
        None => (authority, None),
    };
    let (container, prefix) = named(text, &format!("{authority}/{path}"), "container", advice)?;
    Ok(Location::Azure { container, host, prefix })
}

/// `https://host/prefix`. A key is what the path says once its escapes are undone.
fn web(text: &str, scheme: &str, rest: &str) -> Result<Location> {
    const WRITTEN: &str =
        "write https://host/prefix, without a query; a bucket is s3://bucket/prefix, and its server --endpoint";
    let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if let Some((_, host)) = host.rsplit_once('@') {
        let error = Error::invalid("user and password don't belong into the URL of a web server", host);
        return Err(error.hint(format!("write {scheme}://{host}/..., and give a token by {WEB_TOKEN} if it wants one")));
    }
    if host.is_empty() || rest.contains(['@', '?', '#']) {
        return Err(Error::invalid("this names no folder of a web server", scheme).hint(WRITTEN));
    }
    let prefix = percent_decode_str(prefix).decode_utf8();
    let prefix = prefix.map_err(|_| Error::invalid("the path is not UTF-8", text).hint(WRITTEN))?.into_owned();
    Ok(Location::Web { server: format!("{scheme}://{}", host.to_ascii_lowercase()), prefix })
}

/// What holds the objects, and what their keys begin with.
fn named(text: &str, rest: &str, what: &str, advice: &str) -> Result<(String, String)> {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if name.is_empty() || name.contains(['@', ':', '?', '#']) {
        let error = Error::invalid(format!("this names no {what}"), text);
        return Err(error.hint(format!("{advice}; an endpoint is a setting of its own (--endpoint)")));
    }
    Ok((name.into(), prefix.into()))
}

/// `hdfs://namenode:port/path`, `hdfs://nameservice/path`, or `hdfs:///path`. A path is what it says, letter for letter, as
/// Hadoop's own tools have it.
fn hdfs(text: &str, rest: &str) -> Result<Location> {
    let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "0"));
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let is_meant = authority.is_empty() && rest.starts_with('/') || !host.is_empty();
    if !is_meant || !host.chars().all(is_fine) || port.parse::<u16>().is_err() {
        let error = Error::invalid("this names no name node", text);
        return Err(error.hint("write hdfs://namenode:port/path, or hdfs://nameservice/path with HADOOP_CONF_DIR"));
    }
    if prefix.split('/').any(|step| matches!(step, "." | "..")) || prefix.contains("//") || prefix.starts_with('/') {
        return Err(
            Error::invalid("this path is no path of HDFS", text).hint("write it without `.`, `..` and empty steps")
        );
    }
    Ok(Location::Hdfs { authority: authority.into(), prefix: prefix.into() })
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
    ["s3:", "file:", "http:", "https:", "gs:", "az:", "abfs:", "abfss:", "hdfs:"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_what_was_typed() {
        let s3 = |bucket: &str, prefix: &str| Location::S3 { bucket: bucket.into(), prefix: prefix.into() };
        let folder = |path: &str| Location::Folder(path.into());
        let hdfs =
            |authority: &str, prefix: &str| Location::Hdfs { authority: authority.into(), prefix: prefix.into() };
        let azure = |host: Option<&str>| Location::Azure {
            container: "c".into(),
            host: host.map(Into::into),
            prefix: "train".into(),
        };
        for (text, expected) in [
            ("s3://bucket", s3("bucket", "")),
            ("s3://bucket/", s3("bucket", "")),
            ("s3://bucket/train/a%20b/", s3("bucket", "train/a%20b/")),
            ("S3://bucket//odd", s3("bucket", "/odd")),
            ("gs://bucket/train/a%20b/", Location::Google { bucket: "bucket".into(), prefix: "train/a%20b/".into() }),
            ("az://c/train", azure(None)),
            ("abfss://c@Acc.dfs.core.windows.net/train", azure(Some("acc.blob.core.windows.net"))),
            ("wasbs://c@acc.blob.core.windows.net/train", azure(Some("acc.blob.core.windows.net"))),
            ("https://Host:8443/a%20b/c", Location::Web { server: "https://host:8443".into(), prefix: "a b/c".into() }),
            ("hdfs://nn:9000/train/a%20b", hdfs("nn:9000", "train/a%20b")),
            ("hdfs://service", hdfs("service", "")),
            ("hdfs:///train", hdfs("", "train")),
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
        let others = ["", "file://server/path", "gs://", "gs:b", "az://c@a/p", "ftp://h/p"];
        let web = ["https://u:p@h/p", "http:///p", "https://h/p?q"];
        let hdfs = ["hdfs://", "hdfs://nana@nn/x", "hdfs://nn:x/y", "hdfs://nn/../up", "hdfs://nn//x"];
        for text in s3.into_iter().chain(others).chain(web).chain(hdfs) {
            let error = text.parse::<Location>().expect_err(text);
            assert!(error.hint.starts_with("write") || error.hint.contains("s3://"), "{text}: {error}");
        }
        let error = "https://bob:s3cr3t@host/x".parse::<Location>().expect_err("a password").to_string();
        assert!(
            error.contains("password don't belong") && !error.contains("s3cr3t") && !error.contains("bob"),
            "{error}"
        );
    }
}
