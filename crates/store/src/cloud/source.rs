//! Where tokens and keys come from, whichever service they are for.
//!
//! A library keeps tokens and renews them five minutes, or four, before they run out. Laid over it here: one task asks for
//! all, who go on with what there is, and who hands out tokens may be away, or hang, until the last of them has run out.
//!
//! Invariant: a source that was named and fails is an error that names it; one that is only tried because nothing else
//! was named is nobody's failure until it has given something.

use crate::renewed::{Giver, Renewed};
use crate::s3::wire::{discreet, finds};
use block::{Error, Result};
use futures_util::future::BoxFuture;
use object_store::client::HttpError;
use object_store::{CredentialProvider, RetryConfig};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// For how long a token is good that the library has just given: it renews those that have less than four minutes left.
const GOOD_FOR: Duration = Duration::from_secs(225);

/// What is refused and was asked for in this time is refused for another reason than its age.
const YOUNG: Duration = Duration::from_secs(30);

/// Whoever hands out tokens is asked once: patience is laid over the request that needs one.
pub fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

pub type Provider<C> = Arc<dyn CredentialProvider<Credential = C>>;

/// Makes a provider that has no token yet.
type Make<C> = Arc<dyn Fn() -> Option<Provider<C>> + Send + Sync>;

/// The source that is meant.
pub struct Source<C: Send + Sync + 'static> {
    /// As an error names it: `GOOGLE_APPLICATION_CREDENTIALS`.
    pub name: String,
    last: Renewed<Desk<C>>,
}

/// Asks the library.
struct Desk<C> {
    name: String,
    make: Make<C>,
    made: Mutex<Made<C>>,
    /// The machine's own identity, which it may not have: what to say and to try then.
    nobody: Option<(&'static str, &'static str)>,
    was_had: AtomicBool,
}

struct Made<C> {
    provider: Provider<C>,
    since: Instant,
}

impl<C: Send + Sync + 'static> Source<C> {
    pub fn new(
        name: impl Into<String>,
        provider: Provider<C>,
        make: impl Fn() -> Option<Provider<C>> + Send + Sync + 'static,
    ) -> Source<C> {
        Source::or_nobody(name, provider, make, None)
    }

    /// Tried because nothing else was named. `nobody`: what to say, and to try, of a machine that has no identity.
    pub fn or_nobody(
        name: impl Into<String>,
        provider: Provider<C>,
        make: impl Fn() -> Option<Provider<C>> + Send + Sync + 'static,
        nobody: Option<(&'static str, &'static str)>,
    ) -> Source<C> {
        let (name, made) = (name.into(), Mutex::new(Made { provider, since: Instant::now() }));
        let was_had = AtomicBool::new(false);
        let desk = Desk { name: name.clone(), make: Arc::new(make), made, nobody, was_had };
        Source { name, last: Renewed::of(desk) }
    }

    /// What requests are asked with now.
    pub async fn get(&self, on: &(dyn Display + Sync)) -> Result<Arc<C>> {
        self.last.get(on).await
    }

    /// Have what a server no longer takes asked for anew, unless that was done since. False if that leads nowhere.
    pub async fn renew(&self, since: Instant) -> bool {
        let desk = self.last.giver();
        let mut made = desk.made.lock().await;
        if made.since >= since {
            return true;
        }
        if made.since.elapsed() < YOUNG {
            return false;
        }
        // It may read a file.
        let make = desk.make.clone();
        let Ok(Some(provider)) = tokio::task::spawn_blocking(move || make()).await else { return false };
        *made = Made { provider, since: Instant::now() };
        self.last.forget(|_| true)
    }
}

impl<C: Send + Sync + 'static> Giver for Desk<C> {
    type Given = Arc<C>;

    fn give<'a>(&'a self, on: &'a str) -> BoxFuture<'a, Result<Arc<C>>> {
        Box::pin(async move {
            let provider = self.made.lock().await.provider.clone();
            let given = provider.get_credential().await.map_err(|error| self.failed(&error, on))?;
            self.was_had.store(true, Relaxed);
            Ok(given)
        })
    }

    fn is_good(&self, _: &Arc<C>, age: Duration) -> bool {
        age < GOOD_FOR
    }

    /// The library knows, and has it at hand until then.
    fn is_due(&self, _: &Arc<C>) -> bool {
        true
    }
}

impl<C> Desk<C> {
    fn failed(&self, error: &object_store::Error, on: &str) -> Error {
        if let Some((what, hint)) = self.nobody.filter(|_| !self.was_had.load(Relaxed)) {
            tracing::debug!(error = discreet(error), "there are no credentials");
            return Error::denied(what, on).hint(hint);
        }
        let what = format!("the credentials of {} can't be had: {}", self.name, discreet(error));
        match finds(error, |_: &HttpError| true) {
            true => Error::unavailable(what, on),
            false => Error::denied(what, on).hint("renew them, or name others"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use block::Kind;
    use object_store::client::HttpErrorKind;
    use std::sync::atomic::AtomicUsize;

    /// Hands out numbers, each as often as it is asked, unless it is away.
    #[derive(Debug, Default)]
    struct Numbers {
        asked: AtomicUsize,
        made: AtomicUsize,
        is_away: AtomicBool,
    }

    #[derive(Debug)]
    struct Provides(Arc<Numbers>);

    #[async_trait]
    impl CredentialProvider for Provides {
        type Credential = usize;

        async fn get_credential(&self) -> object_store::Result<Arc<usize>> {
            self.0.asked.fetch_add(1, Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
            if self.0.is_away.load(Relaxed) {
                let away = HttpError::new(HttpErrorKind::Interrupted, std::io::Error::other("away"));
                return Err(object_store::Error::Generic { store: "desk", source: Box::new(away) });
            }
            Ok(Arc::new(self.0.made.load(Relaxed)))
        }
    }

    fn source() -> (Arc<Numbers>, Source<usize>) {
        let desk = Arc::<Numbers>::default();
        let make = {
            let desk = desk.clone();
            move || {
                desk.made.fetch_add(1, Relaxed);
                Arc::new(Provides(desk.clone()))
            }
        };
        (desk.clone(), Source::new("a desk", make(), move || Some(make())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_cant_be_renewed_is_used_until_it_runs_out() {
        let (desk, source) = source();
        assert_eq!(*source.get(&"o").await.expect("a token"), 1);
        desk.is_away.store(true, Relaxed);
        for _ in 0..40 {
            tokio::time::advance(Duration::from_secs(2)).await;
            for _ in 0..10 {
                assert_eq!(*source.get(&"o").await.expect("it is good"), 1);
            }
        }
        assert!((1 + 80 / 12..1 + 80 / 4).contains(&desk.asked.load(Relaxed)), "{desk:?}");
        tokio::time::advance(GOOD_FOR).await;
        let error = source.get(&"o").await.expect_err("it ran out");
        assert!(error.passes() && error.what.contains("a desk"), "{error}");
        desk.is_away.store(false, Relaxed);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(*source.get(&"o").await.expect("it is back"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_for_a_token_have_one_answer() {
        let (desk, source) = source();
        desk.is_away.store(true, Relaxed);
        let (first, second) = tokio::join!(source.get(&"a"), source.get(&"b"));
        let (first, second) = (first.expect_err("away"), second.expect_err("away"));
        assert_eq!((first.on.as_str(), second.on.as_str(), desk.asked.load(Relaxed)), ("a", "b", 1));
        assert!(matches!(second.kind, Kind::Unavailable { .. }), "{second}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_refused_is_asked_for_anew_once() {
        let (desk, source) = source();
        source.get(&"o").await.expect("a token");
        assert!(!source.renew(Instant::now()).await, "it is young: another would be refused as well");
        tokio::time::advance(YOUNG).await;
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(source.renew(began).await && source.renew(began).await, "the second had it done already");
        assert_eq!((*source.get(&"o").await.expect("a token"), desk.made.load(Relaxed)), (2, 2));
    }
}
