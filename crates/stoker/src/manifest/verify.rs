//! `stoker manifest verify`: whether a store still has what a manifest names.
//!
//! A listing costs a request for a thousand names of the prefix, and how many names that has by now only a listing tells. So it is
//! listed until that has cost as many requests as asking for each object of the manifest would have; then each is asked for. No
//! more than twice the requests of the better way are sent, but for listings that are under way together with the last.

use super::Verify;
use super::diff::{are_comparable, compare, is_same};
use super::set::{self, Names, Pinned};
use super::told::{Difference, Told};
use crate::args::Reach;
use crate::{place, runtime, show};
use block::{Error, Kind, Result};
use daemon::reach;
use futures_util::{StreamExt, stream};
use node::DataSet;
use serde_json::json;
use std::sync::Arc;
use store::{Chance, Hdfs, HdfsSettings, Location, Sink};
use tokio::sync::Notify;

/// Requests of the shortest listing: one finds out that there is no more.
const LISTING_MIN: u64 = 2;

pub fn run(args: &Verify) -> anyhow::Result<bool> {
    let text = open(args)?;
    let (told, store) = (text.head().url.clone(), text.head().store.clone());
    let url = args.url.clone().map_or_else(|| trusted(told, &store, &args.reach), Ok)?;
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let (source, settings) = set::source(&url, &args.reach).await?;
        let (asked, sink) = store::open_to_write(&url.parse()?, &settings)?;
        let mut told = Told::new(args.json);
        let objects = text.head().objects;
        let names = Names::Text(Box::new(text));
        let tells_names = !matches!(url.parse()?, Location::Web { .. });
        let now = match tells_names && objects >= LISTING_MIN {
            true => listed(&source, objects).await?,
            false => Now::Unknown,
        };
        match now {
            Now::Listed(now) => compare(names, Names::from(now), &mut told, &mut |difference, told| {
                if let Difference::Added(_) = difference {
                    told.added += 1;
                    return Ok(());
                }
                told.say(&difference)
            })?,
            Now::Nothing => removed(names, &mut told)?,
            Now::Unknown => one_by_one(names, &source, &*sink, &mut told).await?,
        }
        let (lists, heads) = (source.store.counters().snapshot().lists, asked.counters().snapshot().heads);
        if !args.json {
            note!("asked the store with {} and {}", show::count_of(lists, "LIST"), show::count_of(heads, "HEAD"));
        }
        told.end(false, &json!({ "lists": lists, "heads": heads }))
    });
    runtime.shutdown_background();
    done
}

fn open(args: &Verify) -> anyhow::Result<node::manifest::Text<std::io::BufReader<std::fs::File>>> {
    set::text(&args.file)?.ok_or_else(|| {
        let error = Error::invalid("this is a folder and not a manifest", args.file.display());
        error.hint("name a file that `stoker manifest export` wrote").into()
    })
}

/// The URL of a manifest, which may be anybody's: it must not lead credentials of ours to a server of theirs.
fn trusted(url: String, store: &str, reach: &Reach) -> Result<String> {
    if let Some(server) = elsewhere(&url.parse()?, store, place::reach(reach, &url)?.endpoint.is_some()) {
        let error = Error::invalid(format!("the manifest is of {server}, and no endpoint is named"), &url);
        return Err(error.hint(match server.starts_with("https://") {
            true => format!("name it: --endpoint {server}"),
            false => format!("name it: --endpoint http://{server}, or https://"),
        }));
    }
    let has_token = place::variable(store::WEB_TOKEN).is_some_and(|token| !token.is_empty());
    let hdfs = reach::settings(None, None, None, false, None, place::variables(&url)).hdfs;
    if !is_credited(&url.parse()?, reach, has_token, &hdfs) {
        return Ok(url);
    }
    let error = Error::invalid("credentials are not sent to a server that only the manifest names", &url);
    Err(error.hint("if that server is to get them, type the URL behind the file"))
}

/// The server that a manifest is of, where a bucket of the same name would be asked for elsewhere.
fn elsewhere<'a>(location: &Location, store: &'a str, has_endpoint: bool) -> Option<&'a str> {
    match location {
        Location::S3 { .. } | Location::Google { .. } if !has_endpoint => {
            store.split_once('@').map(|(_, server)| server)
        }
        _ => None,
    }
}

/// Whether a location chooses who gets credentials.
fn is_credited(location: &Location, reach: &Reach, has_token: bool, hdfs: &HdfsSettings) -> bool {
    match location {
        Location::Web { .. } => has_token,
        // Whoever it is hears who asks, with Kerberos by a ticket.
        Location::Hdfs { authority, .. } => !authority.is_empty() && !Hdfs::is_configured(authority, hdfs),
        Location::Azure { host, .. } => host.is_some() && reach.endpoint.is_none() && !reach.anonymous,
        _ => false,
    }
}

/// What a listing told.
enum Now {
    Listed(Pinned),
    Nothing,
    /// It would have taken too many requests.
    Unknown,
}

/// The names that the store has now, unless finding out takes more than so many requests.
async fn listed(source: &DataSet, requests_max: u64) -> Result<Now> {
    let stop = Notify::new();
    let bar = show::spinner(&format!("listing {}", source.url));
    let told = |names| {
        bar.set_message(format!("listing {}: {}", source.url, show::count_of(names, "name")));
        if source.store.counters().snapshot().lists > requests_max {
            stop.notify_one();
        }
    };
    let folder = std::env::temp_dir();
    let names = tokio::select! {
        names = source.names(&folder, told) => Some(names),
        () = stop.notified() => None,
    };
    bar.finish_and_clear();
    match names.transpose() {
        Ok(Some(names)) => Ok(Now::Listed(Pinned { names: Arc::new(names), url: source.url.clone() })),
        Ok(None) => Ok(Now::Unknown),
        Err(error) if error.kind == Kind::Missing => Ok(Now::Nothing),
        Err(error) => Err(error),
    }
}

fn removed(mut names: Names, told: &mut Told) -> anyhow::Result<()> {
    while let Some(before) = names.advance()? {
        told.say(&Difference::Removed(before))?;
    }
    Ok(())
}

/// Ask for each object of the manifest.
async fn one_by_one(mut names: Names, source: &DataSet, sink: &dyn Sink, told: &mut Told) -> anyhow::Result<()> {
    let by_version = are_comparable(names.store(), source.store.identity());
    let (from, prefix, chance) = (names.prefix().len(), &source.prefix, &Chance::new(0));
    let objects = stream::iter(std::iter::from_fn(|| names.advance().transpose()));
    let asked = objects.map(|before| async move {
        let before = before?;
        let key = format!("{prefix}{}", before.key.get(from..).unwrap_or_default());
        match set::find(sink, &key, chance).await {
            Ok(now) if is_same(&before, &now, by_version) => Ok(None),
            Ok(now) => Ok(Some(Difference::Changed(before, now))),
            Err(error) if error.kind == Kind::Missing => Ok(Some(Difference::Removed(before))),
            Err(error) => Err(error),
        }
    });
    let mut answers = asked.buffered(set::AT_ONCE);
    while let Some(answer) = answers.next().await {
        match answer? {
            Some(difference) => told.say(&difference)?,
            None => told.same += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_ones_own_configuration_names_is_not_named_by_the_file_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let property = |name, value| format!("<property><name>{name}</name><value>{value}</value></property>");
        let all = property("fs.defaultFS", "hdfs://usual:9000") + &property("dfs.ha.namenodes.blue", "nn1");
        let written =
            std::fs::write(folder.path().join("core-site.xml"), format!("<configuration>{all}</configuration>"));
        written.expect("it is ours");
        let variables = [("HADOOP_CONF_DIR".to_owned(), folder.path().display().to_string())].into();
        let hdfs = HdfsSettings { variables, ..Default::default() };
        let of = |url: &str| is_credited(&url.parse().expect("a location"), &Reach::default(), false, &hdfs);
        assert!(!of("hdfs://blue/p") && !of("hdfs://USUAL:9000/p") && of("hdfs://usual/p") && of("hdfs://other/p"));
    }

    #[test]
    fn no_file_sends_credentials_to_a_server_of_its_own() {
        let none = HdfsSettings::default();
        let is_credited = |url: &str, reach: &Reach, has_token| {
            is_credited(&url.parse().expect("a location"), reach, has_token, &none)
        };
        let (usual, azure) = (Reach::default(), "abfss://c@acc.dfs.core.windows.net/p");
        assert!(is_credited("https://host.example/p", &usual, true) && is_credited(azure, &usual, false));
        assert!(!is_credited("https://host.example/p", &usual, false));
        assert!(!is_credited(azure, &Reach { anonymous: true, ..Reach::default() }, false));
        assert!(!is_credited(azure, &Reach { endpoint: Some("https://h".into()), ..Reach::default() }, false));
        assert!(is_credited("hdfs://host:8020/p", &usual, false));
        for url in ["s3://bucket/p", "gs://bucket/p", "az://c/p", "/folder", "hdfs:///p"] {
            assert!(!is_credited(url, &usual, true), "{url}");
        }
    }
}
