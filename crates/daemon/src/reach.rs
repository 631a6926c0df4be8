//! From what was asked for to a store: how it is reached, and what of it is meant.

use block::{Error, Result};
use client::messages::{Keys, MountRequest};
use node::DataSet;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use store::{Credentials, FOLDER_ANSWERS_WITHIN, FileSystem, Folder, Location};
use tokio::sync::Semaphore;

/// Folders that are looked for at a time, those that were given up among them: each keeps its thread while it hangs.
const LOOKED_FOR_MAX: usize = 8;

/// Folders that are being looked for.
type Looks = BTreeMap<String, Arc<tokio::sync::Mutex<()>>>;

/// How a request wants its store reached.
pub fn reach(request: &MountRequest) -> store::Settings {
    settings(
        request.endpoint.clone(),
        request.region.clone(),
        request.profile.clone(),
        request.anonymous,
        request.keys.clone(),
    )
}

/// Settings of a store from what was typed.
pub fn settings(
    endpoint: Option<String>,
    region: Option<String>,
    profile: Option<String>,
    anonymous: bool,
    keys: Option<Keys>,
) -> store::Settings {
    let credentials = match (anonymous, keys) {
        (true, _) => Credentials::Anonymous,
        (false, Some(keys)) if profile.is_none() => {
            Credentials::Keys { id: keys.access_key, secret: keys.secret_key, token: keys.session_token }
        }
        _ => Credentials::Found { profile },
    };
    let s3 = store::S3Settings { endpoint, region, credentials, ..Default::default() };
    store::Settings { s3, ..Default::default() }
}

/// Open the store of a URL, without waiting for ever for a folder, and never on a thread that serves others.
pub async fn source_in_time(url: &str, settings: &store::Settings) -> Result<DataSet> {
    static TURNS: Semaphore = Semaphore::const_new(LOOKED_FOR_MAX);
    static LOOKS: Mutex<Looks> = Mutex::new(BTreeMap::new());
    if !matches!(url.parse()?, Location::Folder(_)) {
        return source(url, settings);
    }
    let (owned, settings) = (url.to_owned(), settings.clone());
    let looking = async {
        // One look at each: who asks for a folder again that hangs takes no further turn.
        let one = {
            let mut looks = LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
            looks.retain(|_, look| Arc::strong_count(look) > 1);
            looks.entry(owned.clone()).or_default().clone()
        };
        let one = one.lock_owned().await;
        let turn = TURNS.acquire().await.expect("it is never closed");
        let look = move || {
            let _turns = (one, turn);
            source(&owned, &settings)
        };
        tokio::task::spawn_blocking(look).await.map_err(|_| Error::unavailable("the node is stopping", url))?
    };
    tokio::time::timeout(FOLDER_ANSWERS_WITHIN, looking).await.unwrap_or_else(|_| {
        let hint = "see whether `ls` of it answers, and mount again when its file system does";
        Err(Error::unavailable(format!("the folder did not answer within {FOLDER_ANSWERS_WITHIN:?}"), url).hint(hint))
    })
}

/// Open the store of a URL. A prefix names a folder: `s3://bucket/train` is everything under `train/`.
pub fn source(url: &str, settings: &store::Settings) -> Result<DataSet> {
    let location: Location = url.parse()?;
    if let Location::Folder(path) = &location {
        let folder = Arc::new(Folder::at(path, settings.folder)?);
        let local = (folder.system() == FileSystem::Local).then(|| folder.clone());
        return Ok(DataSet { url: url.into(), store: folder, prefix: String::new(), local });
    }
    let prefix = match location.prefix() {
        "" => String::new(),
        prefix => format!("{}/", prefix.trim_end_matches('/')),
    };
    Ok(DataSet { url: url.into(), store: store::open(&location, settings)?, prefix, local: None })
}
