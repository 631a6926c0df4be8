//! A store that goes on being asked by whom it was mounted for. Whoever goes on with a mount of another process finds credentials
//! anew, and where they lie there may be others' by now.
//!
//! Invariant: nothing is asked of a store before it is known that it is the same store, asked by the same principal.

use super::open::Identity;
use crate::cluster;
use block::{Checksum, Error, Object, Result, Waiting};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use store::{Body, Counters, Pages, Store};
use tokio::sync::OnceCell;

/// How AWS's own keys begin that are lent for some hours. Whoever has them renewed stays the same, and does so beside us.
const LENT: &str = "key ASIA";

/// What becomes of a store that was asked for something by somebody.
pub struct Principal(Arc<Bound>);

/// Those of mounts that go on. Mounts that ask one store in the same way are one: they share its connections, and are refused together.
#[derive(Default)]
pub struct Resumed(Mutex<Vec<Weak<Principal>>>);

impl Resumed {
    /// That of a mount which goes on: it is asked who asks before it is asked for anything. One that is `lost` is asked nothing.
    pub fn of(
        &self,
        store: Arc<dyn Store>,
        before: &Identity,
        in_cluster: bool,
        lost: Option<Error>,
    ) -> Arc<Principal> {
        let one = Principal::of(store, before, in_cluster, true);
        if let Some(Error { what, on, .. }) = lost {
            one.0.refused.get_or_init(|| format!("{on}: {what}"));
            return one;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        let is_known = |known: &Arc<Principal>| known.reach() == one.reach() && known.identity() == one.identity();
        if let Some(known) = all.iter().filter_map(Weak::upgrade).find(is_known) {
            return known;
        }
        all.push(Arc::downgrade(&one));
        one
    }
}

struct Bound {
    store: Arc<dyn Store>,
    /// How it was named when it was mounted, and by whom it was asked; not known of a mount of an earlier version.
    before: Identity,
    in_cluster: bool,
    is_resumed: bool,
    is_same: OnceCell<()>,
    refused: OnceLock<String>,
}

impl Principal {
    /// That of a mount that is made now.
    pub fn known(store: Arc<dyn Store>, now: &Identity) -> Arc<Principal> {
        Principal::of(store, now, false, false)
    }

    fn of(store: Arc<dyn Store>, before: &Identity, in_cluster: bool, is_resumed: bool) -> Arc<Principal> {
        let is_same = if is_resumed { OnceCell::new() } else { OnceCell::new_with(Some(())) };
        let (before, refused) = (before.clone(), OnceLock::new());
        let bound = Bound { store, before, in_cluster, is_resumed, is_same, refused };
        bound.compare_stores();
        Arc::new(Principal(Arc::new(bound)))
    }

    /// Why nothing is asked of the store, if so.
    pub fn refused(&self) -> Option<&str> {
        self.0.refused.get().map(String::as_str)
    }
}

impl Bound {
    /// In a cluster, the name of a store says too who asks it.
    fn compare_stores(&self) {
        let (now, before) = (self.store.identity(), &self.before.store);
        if self.is_resumed && !self.in_cluster && !self.was_named(|named| **before == *named) {
            self.refused.get_or_init(|| format!("it was mounted from {before}, which would be {now} by now"));
        }
    }

    /// Whether the store is known by a name, or was to an earlier version.
    fn was_named(&self, is_it: impl Fn(&str) -> bool) -> bool {
        let now = self.store.identity();
        is_it(now) || is_it(&store::named_before(now))
    }

    async fn check(&self) -> Result<()> {
        let compared = async {
            if self.refused.get().is_none() {
                self.compare(&self.store.who().await?);
            }
            let Some(why) = self.refused.get() else { return Ok(()) };
            let error = Error::denied(why, &self.before.store);
            Err(error
                .hint("give it back what it was mounted with and call `stoker restart`, or unmount and mount again"))
        };
        self.is_same.get_or_try_init(|| compared).await.map(drop)
    }

    fn compare(&self, now: &str) {
        // Mounts of versions that noted nobody are believed.
        let Some(before) = self.before.who.as_deref() else { return };
        if !are_one(before, now) {
            self.refused.get_or_init(|| format!("it was mounted by {before}, and would be read by {now}"));
        } else if self.in_cluster && !self.was_named(|named| cluster::store_name(named, before) == self.before.store) {
            let now = self.store.identity();
            self.refused
                .get_or_init(|| format!("it was mounted from elsewhere or by somebody else, and is {now} by now"));
        }
    }
}

/// Whether two principals are one.
fn are_one(before: &str, now: &str) -> bool {
    before == now || before.starts_with(LENT) && now.starts_with(LENT)
}

impl Store for Principal {
    fn identity(&self) -> &Arc<str> {
        self.0.store.identity()
    }

    /// Stands in for none that is asked by others, and, until it is known who asks, for none that was mounted since.
    fn reach(&self) -> u64 {
        let mut hash = std::hash::DefaultHasher::new();
        (self.0.store.reach(), &self.0.before.who, &self.0.before.store, self.0.is_resumed).hash(&mut hash);
        hash.finish()
    }

    fn who(&self) -> Waiting<String> {
        self.0.store.who()
    }

    fn list(&self, prefix: &str) -> Pages {
        let (bound, prefix) = (self.0.clone(), prefix.to_owned());
        let pages = async move { bound.check().await.map(|()| bound.store.list(&prefix)) };
        stream::once(pages).try_flatten().boxed()
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        let (bound, object) = (self.0.clone(), object.clone());
        Box::pin(async move {
            bound.check().await?;
            bound.store.get(&object, range).await
        })
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        let (bound, object) = (self.0.clone(), object.clone());
        Box::pin(async move {
            bound.check().await?;
            bound.store.checksum(&object).await
        })
    }

    fn counters(&self) -> &Arc<Counters> {
        self.0.store.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Kind;

    /// Who asked for what is told of one store as it was, and as it is by now.
    async fn asked_as(before: (&str, Option<&str>), in_cluster: bool) -> (Result<Body>, Option<String>) {
        let memory = store::Memory::new("bucket");
        let object = memory.put("key", "content");
        let before = Identity { store: before.0.into(), set: 0, who: before.1.map(Into::into) };
        let store = Resumed::default().of(Arc::new(memory), &before, in_cluster, None);
        let body = store.get(&object, 0..7).await;
        (body, store.refused().map(str::to_owned))
    }

    #[tokio::test]
    async fn a_store_is_asked_by_whom_it_was_mounted_for_and_where_it_was_or_not_at_all() {
        // Who asks it is nobody, in as many words.
        let of_cluster = cluster::store_name("memory://bucket", "");
        for (before, in_cluster) in [
            (("memory://bucket", Some("")), false),
            (("memory://bucket", None), false),
            ((&*of_cluster, Some("")), true),
            ((&*of_cluster, None), true),
        ] {
            let (body, refused) = asked_as(before, in_cluster).await;
            assert!(body.is_ok() && refused.is_none(), "{before:?}: {refused:?}");
        }
        for (before, in_cluster, why) in [
            (("memory://other", None), false, "mounted from memory://other"),
            (("memory://bucket", Some("key ONE")), false, "mounted by key ONE"),
            (("memory://bucket@elsewhere", Some("")), true, "from elsewhere or by somebody else"),
        ] {
            let (body, refused) = asked_as(before, in_cluster).await;
            assert_eq!(body.err().map(|error| error.kind), Some(Kind::Denied), "{before:?}");
            assert!(refused.as_ref().is_some_and(|said| said.contains(why)), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn a_mount_of_an_earlier_version_goes_on_with_the_names_that_it_has() {
        for (before, in_cluster, goes_on) in [
            ("memory://b@host:9000".into(), false, true),
            (cluster::store_name("memory://b@host:9000", ""), true, true),
            ("memory://b@other:9000".into(), false, false),
            (cluster::store_name("memory://b@other:9000", ""), true, false),
        ] {
            let memory = store::Memory::new("b@https://host:9000");
            let object = memory.put("key", "content");
            let before = Identity { store: before, set: 0, who: Some("".into()) };
            let store = Resumed::default().of(Arc::new(memory), &before, in_cluster, None);
            assert_eq!(store.get(&object, 0..7).await.is_ok(), goes_on, "{before:?}");
        }
    }

    #[tokio::test]
    async fn mounts_that_ask_one_store_in_one_way_are_refused_together() {
        let (resumed, memory) = (Resumed::default(), store::Memory::new("bucket"));
        let object = memory.put("key", "content");
        let memory: Arc<dyn Store> = Arc::new(memory);
        let of = |who: &str| {
            let before = Identity { store: memory.identity().clone(), set: 0, who: Some(who.into()) };
            resumed.of(memory.clone(), &before, false, None)
        };
        let [first, second, own] = ["key ONE", "key ONE", ""].map(of);
        assert!(first.get(&object, 0..7).await.is_err());
        assert!(first.refused().is_some() && first.refused() == second.refused() && own.refused().is_none());
        assert!(own.get(&object, 0..7).await.is_ok());
    }

    #[test]
    fn keys_that_are_lent_may_be_renewed_and_others_are_another_principal() {
        assert!(are_one("key ASIAONE", "key ASIATWO") && are_one("role train", "role train"));
        for (before, now) in [("key AKIAONE", "key AKIATWO"), ("key ASIAONE", "key AKIAONE"), ("role a", "role b")] {
            assert!(!are_one(before, now), "{before} and {now}");
        }
    }
}
