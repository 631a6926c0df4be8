//! The suite that every store passes: what the words of [`Store`] promise, asked of a real one.
//!
//! `contract!(memory, Some(InMemory::new()))` makes one test of each promise. The expression is evaluated
//! for each test and may await; `None` skips, after it has said why.
//!
//! Invariant: the suite knows nothing of any store but what [`Fixture`] tells.

use crate::{Memory, Origin, OriginSettings, Store, object};
use block::{BLOCK, Kind, Object, RUN_BLOCKS_MAX, Run, SMALL, Source};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// An empty store that can be written to.
pub trait Fixture: Send + Sync {
    fn store(&self) -> Arc<dyn Store>;

    /// Write an object. False if there can be no such key in this kind of store.
    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, bool>;
}

/// [`Memory`] as one.
pub struct InMemory(Arc<Memory>);

impl InMemory {
    pub fn new() -> InMemory {
        InMemory(Arc::new(Memory::new("contract")))
    }
}

impl Default for InMemory {
    fn default() -> InMemory {
        InMemory::new()
    }
}

impl Fixture for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, bool> {
        self.0.put(key, content);
        Box::pin(std::future::ready(true))
    }
}

/// All promises by name, handed to a macro behind what else it takes.
#[macro_export]
macro_rules! promises {
    ([$($then:tt)*] $($before:tt)*) => {
        $($then)*! { $($before)*
            a_listing_holds_every_key_once
            a_prefix_lists_what_begins_with_it
            odd_names_come_back_letter_for_letter
            a_range_is_exactly_what_was_asked_for
            an_empty_object_has_an_empty_body
            blocks_meet_at_their_edges
            an_overwritten_object_has_changed
            an_absent_object_is_missing
            a_checksum_is_that_of_all_bytes
            a_dropped_body_leaves_nothing_behind
        }
    };
}

/// One test for each promise, in a module of the given name.
#[macro_export]
macro_rules! contract {
    ($name:ident, $place:expr) => {
        $crate::promises!([$crate::contract] @each $name, $place;);
    };
    (@each $name:ident, $place:expr; $($promise:ident)*) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[tokio::test]
                async fn $promise() {
                    if let Some(place) = $place {
                        $crate::contract::$promise(&place).await;
                    }
                }
            )*
        }
    };
}

/// Bytes that differ at each place and for each seed.
pub fn pattern(length: u64, seed: u64) -> Bytes {
    (0..length).map(|at| ((at ^ (at >> 8) ^ (at >> 16)).wrapping_mul(31).wrapping_add(seed) % 251) as u8).collect()
}

/// Everything under a prefix.
pub async fn listed(store: &dyn Store, prefix: &str) -> Vec<Arc<Object>> {
    let pages: Vec<_> = store.list(prefix).try_collect().await.expect("a listing");
    pages.concat().iter().map(|listed| object(store, listed)).collect()
}

/// The object that a listing has under this key.
pub async fn find(store: &dyn Store, key: &str) -> Arc<Object> {
    let all = listed(store, key).await;
    all.into_iter().find(|object| object.key == key).unwrap_or_else(|| panic!("{key:?} is not listed"))
}

async fn body(store: &dyn Store, object: &Arc<Object>, range: std::ops::Range<u64>) -> block::Result<Bytes> {
    let pieces: Vec<Bytes> = store.get(object, range).await?.bytes.try_collect().await?;
    Ok(pieces.concat().into())
}

/// Write many small objects at once; those that can't be are left out.
async fn put_all(place: &dyn Fixture, keys: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let write = |key: String| async move {
        let content = Bytes::copy_from_slice(key.as_bytes());
        place.put(&key, content).await.then_some(key)
    };
    stream::iter(keys).map(write).buffer_unordered(16).filter_map(std::future::ready).collect().await
}

pub async fn a_listing_holds_every_key_once(place: &dyn Fixture) {
    let flat = (0..1100).map(|n| format!("flat/{n:05}"));
    let deep = (0..40).flat_map(|folder| (0..5).map(move |file| format!("deep/{folder}/x/{file}")));
    let expected = put_all(place, flat.chain(deep).chain(["top".into(), "deep.txt".into()])).await;
    let store = place.store();
    let found = listed(&*store, "").await;
    let keys: BTreeSet<_> = found.iter().map(|object| object.key.clone()).collect();
    assert_eq!(keys, expected);
    assert_eq!(found.len(), expected.len(), "each key once");
    for object in found {
        assert_eq!(object.size, object.key.len() as u64, "{object}");
        assert_eq!(object.store, *store.identity());
        assert!(!object.version.is_empty(), "{object}");
    }
}

pub async fn a_prefix_lists_what_begins_with_it(place: &dyn Fixture) {
    let all = put_all(place, ["a/1", "a/2", "a/b/3", "ab", "abc/4", "b"].map(String::from)).await;
    for prefix in ["", "a", "a/", "a/b", "ab", "abc/4", "c", "a/b/3/"] {
        let found: BTreeSet<_> =
            listed(&*place.store(), prefix).await.iter().map(|object| object.key.clone()).collect();
        let expected: BTreeSet<_> = all.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
        assert_eq!(found, expected, "under {prefix:?}");
    }
}

/// Names that have broken some client or other.
const ODD: [&str; 16] = [
    "a b",
    "a+b",
    "a%20b",
    "a%2Fb",
    "ü/日本/🦀",
    "q?x=1&y=2",
    "#hash",
    "semi;colon:at@",
    "quote'\"<>&amp;",
    "tilde~star*",
    "a//b",
    "/lead",
    "dots/../up",
    "./here",
    "back\\slash",
    "new\nline",
];

pub async fn odd_names_come_back_letter_for_letter(place: &dyn Fixture) {
    let expected = put_all(place, ODD.map(String::from)).await;
    assert!(expected.len() >= 9, "a store has to take most names: {expected:?}");
    let store = place.store();
    let found = listed(&*store, "").await;
    let keys: BTreeSet<_> = found.iter().map(|object| object.key.clone()).collect();
    assert_eq!(keys, expected);
    for object in found {
        let content =
            body(&*store, &object, 0..object.size).await.unwrap_or_else(|error| panic!("{:?}: {error}", object.key));
        assert_eq!(content, object.key.as_bytes(), "{:?}", object.key);
        store.checksum(&object).await.unwrap_or_else(|error| panic!("{:?}: {error}", object.key));
    }
}

pub async fn a_range_is_exactly_what_was_asked_for(place: &dyn Fixture) {
    let size = 2 * SMALL + 17;
    let content = pattern(size, 1);
    assert!(place.put("ranges", content.clone()).await);
    let store = place.store();
    let object = find(&*store, "ranges").await;
    let edges = [0, 1, 4095, SMALL - 1, SMALL, SMALL + 1, size - 1, size];
    for (start, end) in edges.iter().flat_map(|&start| edges.iter().map(move |&end| (start, end))) {
        if start < end {
            let got = body(&*store, &object, start..end).await.expect("a body");
            assert!(got == content[start as usize..end as usize], "{start}..{end}");
        }
    }
}

pub async fn an_empty_object_has_an_empty_body(place: &dyn Fixture) {
    assert!(place.put("empty", Bytes::new()).await);
    let store = place.store();
    let object = find(&*store, "empty").await;
    assert_eq!(object.size, 0);
    assert_eq!(body(&*store, &object, 0..0).await.expect("a body"), "");
}

pub async fn blocks_meet_at_their_edges(place: &dyn Fixture) {
    let store = place.store();
    let origin = Origin::new(store.clone(), OriginSettings::default());
    for size in [1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL, (u64::from(RUN_BLOCKS_MAX) + 1) * BLOCK + 1] {
        let content = pattern(size, size);
        let key = format!("blocks/{size}");
        assert!(place.put(&key, content.clone()).await);
        let object = find(&*store, &key).await;
        let mut got = Vec::new();
        for start in (0..object.blocks()).step_by(RUN_BLOCKS_MAX as usize) {
            let run = Run::new(object.clone(), start..(start + RUN_BLOCKS_MAX).min(object.blocks()));
            let blocks: Vec<_> = origin.fetch(run.clone()).try_collect().await.expect("blocks");
            assert!(blocks.iter().map(|block| block.address.clone()).eq(run.addresses()));
            blocks.iter().for_each(|block| got.extend(block.pieces().concat()));
        }
        assert!(got == content, "{size} bytes");
    }
}

pub async fn an_overwritten_object_has_changed(place: &dyn Fixture) {
    assert!(place.put("over", pattern(3000, 1)).await);
    let store = place.store();
    let old = find(&*store, "over").await;
    assert!(place.put("over", pattern(3000, 2)).await);
    for range in [0..3000, 100..200] {
        let answer = body(&*store, &old, range.clone()).await;
        assert_eq!(answer.expect_err("the version is gone").kind, Kind::Changed, "{range:?}");
    }
    let answer = store.checksum(&old).await;
    assert!(matches!(&answer, Ok(None)) || answer.is_err_and(|error| error.kind == Kind::Changed));
    assert!(place.put("over", pattern(3001, 2)).await);
    assert_eq!(body(&*store, &old, 100..200).await.expect_err("the version is gone").kind, Kind::Changed);
    let new = find(&*store, "over").await;
    assert_ne!(new.version, old.version);
    assert_eq!(body(&*store, &new, 0..3001).await.expect("the new version"), pattern(3001, 2));
}

pub async fn an_absent_object_is_missing(place: &dyn Fixture) {
    assert!(place.put("there", Bytes::from_static(b"x")).await);
    let store = place.store();
    let there = find(&*store, "there").await;
    for key in ["absent", "there/below", "absent/below"] {
        let absent = Arc::new(Object { key: key.into(), ..(*there).clone() });
        let answer = body(&*store, &absent, 0..1).await;
        assert_eq!(answer.expect_err(key).kind, Kind::Missing, "{key}");
    }
}

pub async fn a_checksum_is_that_of_all_bytes(place: &dyn Fixture) {
    let content = pattern(SMALL + 5, 3);
    assert!(place.put("checked", content.clone()).await);
    let store = place.store();
    let object = find(&*store, "checked").await;
    let whole = store.get(&object, 0..object.size).await.expect("a body").checksum;
    let part = store.get(&object, 1..object.size).await.expect("a body").checksum;
    assert_eq!(part, None, "a part says nothing about the whole");
    for checksum in [whole, store.checksum(&object).await.expect("an answer")].into_iter().flatten() {
        let mut digest = checksum.digest();
        digest.update(&content);
        assert!(digest.matches(checksum), "{checksum:?}");
    }
}

pub async fn a_dropped_body_leaves_nothing_behind(place: &dyn Fixture) {
    let content = pattern(4 * SMALL, 4);
    assert!(place.put("dropped", content.clone()).await);
    let store = place.store();
    let object = find(&*store, "dropped").await;
    for _ in 0..50 {
        let mut begun = store.get(&object, 0..object.size).await.expect("a body").bytes;
        begun.next().await.expect("a piece").expect("bytes");
    }
    for _ in 0..100 {
        if store.counters().snapshot().in_flight == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.counters().snapshot().in_flight, 0);
    assert!(body(&*store, &object, 0..object.size).await.expect("a body") == content);
}
