//! The store against Hadoop's own servers, over loopback ([`hadoop`]).

use super::*;
use crate::Sink;
use crate::contract::{self, Fixture, find, listed, pattern};
use block::Kind;
use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use hadoop::{Hadoop, OWNER};

#[path = "../../../../tests/support/hadoop.rs"]
#[allow(dead_code, reason = "tests of the command use the rest")]
mod hadoop;

fn settings() -> Settings {
    let variables = [("HADOOP_USER_NAME".to_owned(), OWNER.to_owned())].into();
    Settings { variables, list_budget: Duration::from_secs(1), ..Settings::default() }
}

fn authority(hadoop: &Hadoop) -> String {
    hadoop.url("").trim_start_matches("hdfs://").trim_end_matches('/').to_owned()
}

fn hdfs(hadoop: &Hadoop) -> Hdfs {
    Hdfs::open(&authority(hadoop), &settings()).expect("a cluster")
}

/// A folder of a cluster as if it were all of it, for a suite that wants an empty store for each test.
struct Rooted {
    hdfs: Hdfs,
    root: String,
    store: Arc<dyn Store>,
}

impl Rooted {
    fn at(hdfs: &Hdfs, root: &str) -> Rooted {
        let (hdfs, root) = (hdfs.clone(), format!("{root}/"));
        let store = Arc::new(Below { hdfs: hdfs.clone(), root: root.clone() });
        Rooted { hdfs, root, store }
    }
}

impl Fixture for Rooted {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, bool> {
        let key = format!("{}{key}", self.root);
        Box::pin(async move {
            match self.hdfs.put(&key, content).await {
                Ok(()) => true,
                Err(error) if error.kind == Kind::Invalid => false,
                Err(error) => panic!("{key:?}: {error}"),
            }
        })
    }
}

struct Below {
    hdfs: Hdfs,
    root: String,
}

impl Below {
    fn whole(&self, object: &Object) -> Arc<Object> {
        Arc::new(Object { key: format!("{}{}", self.root, object.key), ..object.clone() })
    }
}

impl Store for Below {
    fn identity(&self) -> &Arc<str> {
        self.hdfs.identity()
    }

    fn list(&self, prefix: &str) -> Pages {
        let root = self.root.clone();
        let all = self.hdfs.list(&format!("{root}{prefix}"));
        let cut = move |page: Vec<Listed>| -> Vec<Listed> {
            let cut = |one: Listed| Listed { key: one.key[root.len()..].to_owned(), ..one };
            page.into_iter().map(cut).collect()
        };
        all.map_ok(cut).boxed()
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        self.hdfs.get(&self.whole(object), range)
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        self.hdfs.checksum(&self.whole(object))
    }

    fn counters(&self) -> &Arc<Counters> {
        self.hdfs.counters()
    }
}

/// Each promise in a folder of its own.
macro_rules! kept {
    ($hdfs:expr; $($promise:ident)*) => { $(
        let place = Rooted::at($hdfs, stringify!($promise));
        eprintln!("{}", stringify!($promise));
        contract::$promise(&place).await;
    )* };
}

#[tokio::test]
async fn a_cluster_of_hdfs_keeps_what_every_store_promises() {
    let Some(hadoop) = Hadoop::start(1, 1) else { return };
    let hdfs = hdfs(&hadoop);
    crate::promises!([kept] &hdfs;);
    what_is_written_is_found_and_removed(&hdfs).await;
    a_file_that_grew_has_changed(&hadoop, &hdfs).await;
    a_file_costs_its_questions(&hadoop, &hdfs).await;
    who_may_not_read_is_told(&hadoop).await;
    a_long_folder_is_listed_to_its_end_though_its_name_node_restarts(hadoop, &hdfs).await;
}

async fn content(store: &dyn Store, object: &Arc<Object>) -> Result<Bytes> {
    let body = store.get(object, 0..object.size).await?;
    Ok(body.bytes.try_collect::<Vec<_>>().await?.concat().into())
}

async fn what_is_written_is_found_and_removed(hdfs: &Hdfs) {
    hdfs.put("written/k", pattern(1000, 1)).await.expect("it is written");
    let (told, listed) = (hdfs.find("written/k").await.expect("it is there"), find(hdfs, "written/k").await);
    assert_eq!((&told.version, told.size), (&listed.version, 1000));
    assert_eq!(content(hdfs, &listed).await.expect("bytes"), pattern(1000, 1));
    for _ in 0..2 {
        hdfs.delete("written/k").await.expect("it is gone");
    }
    assert_eq!(hdfs.find("written/k").await.expect_err("it is gone").kind, Kind::Missing);
    assert_eq!(listed_under(hdfs, "written/").await, Vec::<String>::new(), "nothing is left of it");
}

async fn listed_under(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut keys: Vec<_> = listed(store, prefix).await.iter().map(|object| object.key.clone()).collect();
    keys.sort();
    keys
}

async fn a_file_that_grew_has_changed(hadoop: &Hadoop, hdfs: &Hdfs) {
    hadoop.put("grown", &pattern(100_000, 1));
    let before = find(hdfs, "grown").await;
    hadoop.append("grown", b"more");
    assert_eq!(content(hdfs, &before).await.expect_err("it grew").kind, Kind::Changed);
    assert_eq!(content(hdfs, &find(hdfs, "grown").await).await.expect("bytes").len(), 100_004);
    // Of the same size, in the middle of a body: while its data node still has all of its blocks, and when it has none.
    for pause in [Duration::ZERO, Duration::from_secs(8)] {
        let size = 12 << 20;
        hadoop.put("replaced", &pattern(size, 1));
        let before = find(hdfs, "replaced").await;
        let mut body = hdfs.get(&before, 0..size).await.expect("a body").bytes;
        let first = body.next().await.expect("a piece").expect("bytes");
        assert_eq!(first, pattern(size, 1)[..first.len()]);
        hadoop.put("replaced", &pattern(size, 2));
        tokio::time::sleep(pause).await;
        let rest: Result<Vec<_>> = body.try_collect().await;
        assert_eq!(rest.expect_err("it is another").kind, Kind::Changed);
    }
}

async fn a_file_costs_its_questions(hadoop: &Hadoop, hdfs: &Hdfs) {
    hadoop.put("cost/small", &pattern(100_000, 1));
    hadoop.put("cost/large", &pattern(9 << 20, 1));
    for (key, questions) in [("cost/small", 1), ("cost/large", 2)] {
        let found = find(hdfs, key).await;
        let before = hdfs.counters().snapshot();
        assert!(content(hdfs, &found).await.expect("bytes") == pattern(found.size, 1));
        let after = hdfs.counters().snapshot();
        assert_eq!((after.gets - before.gets, after.heads - before.heads), (1, questions), "{key}");
    }
}

async fn who_may_not_read_is_told(hadoop: &Hadoop) {
    hadoop.put("secret/file", b"x");
    hadoop.ask("PUT", "secret?op=SETPERMISSION&permission=700", b"");
    let variables = [("HADOOP_USER_NAME".to_owned(), "stranger".to_owned())].into();
    let stranger = Hdfs::open(&authority(hadoop), &Settings { variables, ..settings() }).expect("a cluster");
    assert_eq!(stranger.who().await.expect("somebody"), "user stranger");
    let refused = stranger.list("secret/").try_collect::<Vec<_>>().await.expect_err("it is refused");
    assert_eq!(refused.kind, Kind::Denied, "{refused}");
    assert!(refused.what.contains("Permission denied") && refused.hint.contains("HADOOP_USER_NAME"), "{refused}");
}

async fn a_long_folder_is_listed_to_its_end_though_its_name_node_restarts(mut hadoop: Hadoop, hdfs: &Hdfs) {
    let names: Vec<String> = (0..2100).map(|number| format!("long/{number:05}é")).collect();
    let write = |name: String| async move { hdfs.put(&name, Bytes::new()).await.expect("it is written") };
    stream::iter(names.clone()).map(write).buffer_unordered(32).collect::<Vec<_>>().await;
    let before = hdfs.counters().snapshot().lists;
    assert_eq!(listed_under(hdfs, "long/").await, names);
    assert!((3..=4).contains(&(hdfs.counters().snapshot().lists - before)));

    let patient =
        Hdfs::open(&authority(&hadoop), &Settings { list_budget: Settings::default().list_budget, ..settings() });
    let mut pages = patient.expect("a cluster").list("long/");
    let mut found = pages.try_next().await.expect("a page").expect("there are names");
    hadoop.stop_name_node(0);
    let starting = tokio::task::spawn_blocking(move || {
        hadoop.start_name_node(0);
        hadoop
    });
    let (rest, hadoop) = tokio::join!(pages.try_collect::<Vec<_>>(), starting);
    found.extend(rest.expect("the other pages").concat());
    found.sort_by(|one, other| one.key.cmp(&other.key));
    assert!(found.iter().map(|one| &one.key).eq(&names), "{} of {} names", found.len(), names.len());
    drop(hadoop);
}

#[tokio::test]
async fn a_name_node_that_nobody_runs_is_said_at_once() {
    let nobody = Hdfs::open("127.0.0.1:1", &settings()).expect("a cluster");
    let error = nobody.list("").try_collect::<Vec<_>>().await.expect_err("nobody listens");
    assert!(error.is_unreachable() && error.hint.contains("port"), "{error}");
}

#[tokio::test]
async fn a_port_where_no_name_node_listens_is_told_with_the_one_that_is_meant() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        // Web pages answer so to what is no request for one.
        for mut socket in listener.incoming().flatten() {
            let _ = socket.read(&mut [0; 1]);
            let _ = socket.write_all(b"HTTP/1.1 400 Illegal character CNTL=0x9\r\nConnection: close\r\n\r\n");
        }
    });
    let pages = Hdfs::open(&address, &settings()).expect("a cluster");
    let error = pages.list("").try_collect::<Vec<_>>().await.expect_err("no name node");
    assert!(error.what.contains(&address) && error.hint.contains("8020 or 9000"), "{error}");
}
