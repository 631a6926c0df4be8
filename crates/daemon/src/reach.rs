//! From what was asked for to a store: how it is reached, and what of it is meant.

use block::Result;
use client::messages::{Keys, MountRequest};
use node::DataSet;
use std::sync::Arc;
use store::{Credentials, FileSystem, Folder, Location};

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
