//! From what was asked for to a store: how it is reached, and what of it is meant.

use block::{Error, Kind, Result};
use client::messages::{Keys, MountRequest, Variables};
use mount::Number;
use node::DataSet;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use store::{Credentials, FOLDER_ANSWERS_WITHIN, FileSystem, Folder, Location, Lost, Store};
use tokio::sync::Semaphore;

/// Locations of one kind that are looked for at a time, those that were given up among them: each keeps its thread while it hangs.
const LOOKED_FOR_MAX: usize = 8;

/// How a request wants its store reached.
pub fn reach(request: &MountRequest) -> store::Settings {
    settings(
        request.endpoint.clone(),
        request.region.clone(),
        request.profile.clone(),
        request.anonymous,
        request.keys.clone(),
        request.variables.clone(),
    )
}

/// Settings of a store from what was typed.
pub fn settings(
    endpoint: Option<String>,
    region: Option<String>,
    profile: Option<String>,
    anonymous: bool,
    keys: Option<Keys>,
    mut variables: Variables,
) -> store::Settings {
    let refused = [
        ("--endpoint", endpoint.is_some()),
        ("--region", region.is_some()),
        ("--profile", profile.is_some()),
        ("--anonymous", anonymous),
    ];
    let refused = refused.into_iter().find_map(|(flag, is_typed)| is_typed.then_some(flag));
    let hdfs = store::HdfsSettings { variables: variables.0.clone(), refused, ..Default::default() };
    let cloud = store::CloudSettings {
        endpoint: endpoint.clone(),
        variables: variables.0.clone(),
        is_anonymous: anonymous,
        has_profile: profile.is_some(),
        ..Default::default()
    };
    // A profile may say that its role is assumed by the keys of the environment.
    if let Some(keys) = keys.as_ref().filter(|_| profile.is_some() && !variables.0.is_empty()) {
        let token = keys.session_token.iter().map(|token| ("AWS_SESSION_TOKEN", token));
        let all = [("AWS_ACCESS_KEY_ID", &keys.access_key), ("AWS_SECRET_ACCESS_KEY", &keys.secret_key)];
        variables.0.extend(all.into_iter().chain(token).map(|(name, value)| (name.to_owned(), value.clone())));
    }
    let credentials = match (anonymous, keys) {
        (true, _) => Credentials::Anonymous,
        (false, Some(keys)) if profile.is_none() => {
            Credentials::Keys { id: keys.access_key, secret: keys.secret_key, token: keys.session_token }
        }
        _ => Credentials::Found { profile },
    };
    let s3 = store::S3Settings { endpoint, region, credentials, variables: variables.0, ..Default::default() };
    store::Settings { s3, cloud, hdfs, ..Default::default() }
}

/// Open the store of a URL, without waiting for ever for a folder or a file of a configuration, and never on a thread that serves
/// others.
pub async fn source_in_time(url: &str, settings: &store::Settings) -> Result<DataSet> {
    static FOLDERS: Looks = Looks::new("folders", store::folder_is_silent);
    static CLUSTERS: Looks = Looks::new("configurations of Hadoop", conf_is_silent);
    static OTHERS: Looks = Looks::new("configurations", conf_is_silent);
    let (location, owned, settings) = (url.parse::<Location>()?, url.to_owned(), settings.clone());
    let (looks, place) = match &location {
        Location::Folder(path) => (&FOLDERS, Where::System(mount::system_of(path))),
        Location::Hdfs { .. } => (&CLUSTERS, Where::by(&settings.hdfs.variables)),
        _ => (&OTHERS, Where::by(&settings.s3.variables)),
    };
    looks.look(url, place, move || source(&owned, &settings)).await
}

/// That what a configuration or credentials are read from did not answer in time.
fn conf_is_silent(url: &str) -> Error {
    let what = format!("a file of its configuration or credentials did not answer within {FOLDER_ANSWERS_WITHIN:?}");
    Error::unavailable(what, url)
        .hint("see whether `cat` of these files answers (HADOOP_CONF_DIR, for one), and try again")
}

/// What a look depends on beside the URL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Where {
    /// The file system that a folder lies in.
    System(Option<Number>),
    /// A hash of the variables by which files are found.
    Variables(u64),
}

impl Where {
    fn by(variables: &BTreeMap<String, String>) -> Where {
        let mut hash = std::hash::DefaultHasher::new();
        variables.hash(&mut hash);
        Where::Variables(hash.finish())
    }
}

/// A URL, and what else decides where it leads.
type Place = (String, Where);

/// Locations of one kind that are looked for. A look that hangs is given up, and goes on.
struct Looks {
    /// What others of them are called.
    others: &'static str,
    silent: fn(&str) -> Error,
    turns: Semaphore,
    /// One look at each, until another file system is mounted there: who asks again for a folder that hangs takes no
    /// further turn.
    one: Mutex<BTreeMap<Place, Arc<tokio::sync::Mutex<()>>>>,
}

impl Looks {
    const fn new(others: &'static str, silent: fn(&str) -> Error) -> Looks {
        Looks { others, silent, turns: Semaphore::const_new(LOOKED_FOR_MAX), one: Mutex::new(BTreeMap::new()) }
    }

    /// Look at one of them.
    async fn look<T: Send + 'static>(
        &'static self,
        url: &str,
        place: Where,
        look: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let waits = AtomicBool::new(false);
        let looking = async {
            let one = {
                let mut looks = self.one.lock().unwrap_or_else(PoisonError::into_inner);
                looks.retain(|_, look| Arc::strong_count(look) > 1);
                looks.entry((url.to_owned(), place)).or_default().clone()
            };
            let one = one.lock_owned().await;
            waits.store(true, Relaxed);
            let turn = self.turns.acquire().await.expect("it is never closed");
            waits.store(false, Relaxed);
            let counted = move || {
                let _turns = (one, turn);
                look()
            };
            let stopped = |_| Error::unavailable("the node is stopping", url);
            tokio::task::spawn_blocking(counted).await.map_err(stopped)?
        };
        tokio::time::timeout(FOLDER_ANSWERS_WITHIN, looking).await.unwrap_or_else(|_| match waits.load(Relaxed) {
            true => {
                let what =
                    format!("{LOOKED_FOR_MAX} other {} don't answer, and this one waits for its turn", self.others);
                Err(Error::unavailable(what, url).hint("unmount file systems that hang, and try again"))
            }
            false => Err((self.silent)(url)),
        })
    }
}

/// Open the store of a URL. A prefix names a folder: `s3://bucket/train` is everything under `train/`.
pub fn source(url: &str, settings: &store::Settings) -> Result<DataSet> {
    let location: Location = url.parse()?;
    if let Location::Folder(path) = &location {
        let folder = Arc::new(Folder::at(path, settings.folder)?);
        let local = (folder.system() == FileSystem::Local).then(|| folder.clone());
        return Ok(DataSet {
            url: url.into(),
            store: folder,
            prefix: String::new(),
            local,
            manifest: None,
            may_be_empty: false,
        });
    }
    Ok(remote(url, &location, store::open(&location, settings)?))
}

/// A data set in a store.
fn remote(url: &str, location: &Location, store: Arc<dyn Store>) -> DataSet {
    let prefix = match location.prefix() {
        "" => String::new(),
        prefix => format!("{}/", prefix.trim_end_matches('/')),
    };
    DataSet { url: url.into(), store, prefix, local: None, manifest: None, may_be_empty: false }
}

/// The data set of a request where its store, which went by this name, can't be had any more, as when its certificates are gone.
/// A folder that is gone is waited for, and one that doesn't answer may yet.
pub fn without_store(request: &MountRequest, name: &str, why: &Error) -> Option<DataSet> {
    let location = request.url.parse::<Location>().ok()?;
    let may_come = matches!(location, Location::Folder(_)) || matches!(why.kind, Kind::Unavailable { .. });
    let lost = || as_asked(request, remote(&request.url, &location, Arc::new(Lost::new(name.into(), why.clone()))));
    (!may_come).then(lost)
}

/// A data set with what else was asked for.
pub fn as_asked(request: &MountRequest, source: DataSet) -> DataSet {
    let manifest = request.manifest.as_ref().map(PathBuf::from);
    DataSet { manifest, may_be_empty: request.refresh_seconds.is_some(), ..source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::mpsc;

    fn system(minor: u32) -> Where {
        Where::System(Some(Number { major: 0, minor }))
    }

    #[test]
    fn keys_of_the_environment_are_there_for_a_profile_that_names_them_and_stand_for_nobody_by_themselves() {
        let keys = Keys { access_key: "id".into(), secret_key: "secret".into(), session_token: None };
        let variables = Variables([("HOME".into(), "/me".into())].into());
        let reached = |profile: Option<&str>| {
            settings(None, None, profile.map(Into::into), false, Some(keys.clone()), variables.clone()).s3
        };
        let named = reached(Some("p"));
        assert!(matches!(named.credentials, Credentials::Found { profile: Some(_) }), "{named:?}");
        assert_eq!(named.variables.get("AWS_SECRET_ACCESS_KEY").map(String::as_str), Some("secret"));
        let bare = reached(None);
        assert!(matches!(bare.credentials, Credentials::Keys { .. }) && bare.variables.len() == 1, "{bare:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_that_hangs_is_looked_at_once_and_one_that_waits_for_others_says_so() {
        static LOOKS: Looks = Looks::new("folders", store::folder_is_silent);
        let (hang, hung) = mpsc::sync_channel::<()>(0);
        let hung = Arc::new(Mutex::new(hung));
        let hangs = || {
            let hung = hung.clone();
            move || Ok(hung.lock().is_ok_and(|hung| hung.recv().is_ok()))
        };
        let again = || async {
            let looking = LOOKS.look("one", system(1), || Ok(true));
            let (found, ()) = tokio::join!(looking, tokio::time::advance(FOLDER_ANSWERS_WITHIN));
            found.expect_err("the first look hangs").to_string()
        };
        assert!(LOOKS.look("one", system(1), hangs()).now_or_never().is_none(), "it hangs, and is given up");
        for _ in 0..2 * LOOKED_FOR_MAX {
            assert!(again().await.contains("did not answer"));
        }
        assert!(LOOKS.look("one", system(2), || Ok(true)).await.expect("another is mounted there"));
        for other in 1..LOOKED_FOR_MAX {
            assert!(LOOKS.look(&other.to_string(), Where::System(None), hangs()).now_or_never().is_none());
        }
        let healthy = LOOKS.look("healthy", Where::System(None), || Ok(true));
        let (found, ()) = tokio::join!(healthy, tokio::time::advance(FOLDER_ANSWERS_WITHIN));
        let said = found.expect_err("no turn is left").to_string();
        assert!(said.contains("other folders") && !said.contains("did not answer"), "{said}");
        drop(hang);
        assert!(LOOKS.look("healthy", Where::System(None), || Ok(true)).await.expect("they answer again"));
    }
}
