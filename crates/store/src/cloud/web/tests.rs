//! What every store promises, of files that nginx serves. A web server tells no names: the fixture knows what it has written.

use super::*;
use crate::contract::Fixture;
use servers::Served;
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

#[path = "../../../../../tests/support/web.rs"]
#[allow(dead_code, reason = "tests of the command use the rest")]
mod servers;

/// A server and the folder that it serves.
struct Place {
    store: Arc<Named>,
    files: TempDir,
    _scratch: TempDir,
    _served: Served,
}

/// A web server whose names are known.
struct Named {
    web: Web,
    keys: Arc<Mutex<BTreeSet<String>>>,
}

impl Place {
    fn nginx() -> Option<Place> {
        let (files, scratch) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        // Its workers may be of another user than this test.
        std::fs::set_permissions(files.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("rights");
        let served = Served::nginx(files.path(), scratch.path())?;
        let web = Web::open(served.url("").trim_end_matches('/'), &Settings::default()).expect("a server");
        let store = Arc::new(Named { web, keys: Arc::default() });
        Some(Place { store, files, _scratch: scratch, _served: served })
    }
}

impl Fixture for Place {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, bool> {
        let fits = key.split('/').all(|step| !matches!(step, "" | "." | ".."));
        if fits {
            let path = self.files.path().join(key);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, content).expect("a file");
            let mut keys = self.store.keys.lock().unwrap_or_else(PoisonError::into_inner);
            // The ETag of nginx is the time of change, to the second, and the size.
            let age = Duration::from_secs(if keys.insert(key.to_owned()) { 7_200 } else { 3_600 });
            let file = File::options().write(true).open(&path).expect("the file");
            file.set_modified(SystemTime::now() - age).expect("its time");
        }
        Box::pin(std::future::ready(fits))
    }
}

impl Store for Named {
    fn identity(&self) -> &Arc<str> {
        self.web.identity()
    }

    fn list(&self, prefix: &str) -> Pages {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
        let web = self.web.clone();
        let find = move |key: String| {
            let web = web.clone();
            async move { Ok(vec![web.find(&key).await?]) }
        };
        stream::iter(keys).map(find).buffered(16).boxed()
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        self.web.get(object, range)
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        self.web.checksum(object)
    }

    fn counters(&self) -> &Arc<Counters> {
        self.web.counters()
    }
}

crate::contract!(promises, Place::nginx());

#[tokio::test]
async fn a_token_is_told_from_others_by_what_nobody_finds_it_by() {
    let who = async |token: &str| {
        let variables = [(TOKEN.to_owned(), token.to_owned())].into();
        Web::open("http://127.0.0.1:9", &Settings { variables, ..Settings::default() }).expect("a server").who().await
    };
    let [one, other] = [who("one").await.expect("somebody"), who("other").await.expect("somebody")];
    let hash = one.strip_prefix("bearer ").expect("its kind");
    assert!(hash.len() == 32 && one != other && Ok(one.clone()) == who("one").await.map_err(|_| ()), "{one} {other}");
}
