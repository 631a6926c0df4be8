//! Where tokens and keys come from, whichever service they are for.
//!
//! A library keeps tokens and renews them five minutes, or four, before they run out. Laid over it here: one asks for
//! all, the others go on with what there is, and who hands out tokens may be away until the last of them has run out.
//!
//! Invariant: a source that was named and fails is an error that names it; one that is only tried because nothing else
//! was named is nobody's failure until it has given something.

use crate::s3::wire::{causes, finds};
use block::{Error, Result};
use object_store::client::HttpError;
use object_store::{CredentialProvider, RetryConfig};
use std::fmt::Display;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// For how long a token is good that the library has just given: it renews those that have less than four minutes left.
const GOOD_FOR: Duration = Duration::from_secs(225);

/// How long who hands out tokens is left alone after it failed, while there is one that is good.
const PAUSE: Duration = Duration::from_secs(5);

/// What is refused and was asked for in this time is refused for another reason than its age.
const YOUNG: Duration = Duration::from_secs(30);

/// Whoever hands out tokens is asked once: patience is laid over the request that needs one.
pub fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

pub type Provider<C> = Arc<dyn CredentialProvider<Credential = C>>;

/// Makes a provider that has no token yet.
type Make<C> = Box<dyn Fn() -> Option<Provider<C>> + Send + Sync>;

/// The source that is meant.
pub struct Source<C> {
    make: Make<C>,
    /// As an error names it: `GOOGLE_APPLICATION_CREDENTIALS`.
    pub name: String,
    /// The machine's own identity, which it may not have: what to say and to try then.
    nobody: Option<(&'static str, &'static str)>,
    asked: Mutex<Asked<C>>,
    last: RwLock<Option<Last<C>>>,
}

/// Held while the library is asked.
struct Asked<C> {
    provider: Provider<C>,
    made: Instant,
    /// When it failed last, and how.
    failed: Option<(Instant, Error)>,
}

/// What the library gave last, and until when it is good without another look.
struct Last<C> {
    credential: Arc<C>,
    good_until: Instant,
}

impl<C> Source<C> {
    pub fn new(
        name: impl Into<String>,
        provider: Provider<C>,
        make: impl Fn() -> Option<Provider<C>> + Send + Sync + 'static,
    ) -> Source<C> {
        let asked = Asked { provider, made: Instant::now(), failed: None };
        let (asked, last) = (Mutex::new(asked), RwLock::default());
        Source { make: Box::new(make), name: name.into(), nobody: None, asked, last }
    }

    /// Tried because nothing else was named.
    pub fn last_resort(self, what: &'static str, hint: &'static str) -> Source<C> {
        Source { nobody: Some((what, hint)), ..self }
    }

    /// What requests are asked with now.
    pub async fn get(&self, on: &(dyn Display + Sync)) -> Result<Arc<C>> {
        let began = Instant::now();
        let mut asked = match (self.asked.try_lock(), self.good()) {
            (Ok(asked), _) => asked,
            (Err(_), Some(good)) => return Ok(good),
            (Err(_), None) => self.asked.lock().await,
        };
        match (&asked.failed, self.good()) {
            (Some((when, _)), Some(good)) if when.elapsed() < PAUSE => return Ok(good),
            // Who waited for another's answer has it.
            (Some((when, error)), None) if *when > began => {
                let mut error = error.clone();
                error.on = on.to_string();
                return Err(error);
            }
            _ => {}
        }
        let error = match asked.provider.get_credential().await {
            Ok(credential) => {
                asked.failed = None;
                let last = Last { credential: credential.clone(), good_until: Instant::now() + GOOD_FOR };
                *self.last.write().unwrap_or_else(PoisonError::into_inner) = Some(last);
                return Ok(credential);
            }
            Err(error) => self.failed(&error, on),
        };
        asked.failed = Some((Instant::now(), error.clone()));
        match self.good() {
            Some(good) => {
                tracing::warn!(%error, "credentials can't be renewed yet");
                Ok(good)
            }
            None => Err(error),
        }
    }

    /// Have what a server no longer takes asked for anew, unless that was done since. False if that leads nowhere.
    pub async fn renew(&self, since: Instant) -> bool {
        let mut asked: MutexGuard<'_, _> = self.asked.lock().await;
        if asked.made >= since {
            return true;
        }
        if asked.made.elapsed() < YOUNG {
            return false;
        }
        let Some(provider) = (self.make)() else { return false };
        *asked = Asked { provider, made: Instant::now(), failed: None };
        if let Some(last) = &mut *self.last.write().unwrap_or_else(PoisonError::into_inner) {
            last.good_until = asked.made;
        }
        true
    }

    /// What was given last, while it is good.
    fn good(&self) -> Option<Arc<C>> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|last| Instant::now() < last.good_until).map(|last| last.credential.clone())
    }

    fn was_had(&self) -> bool {
        self.last.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn failed(&self, error: &object_store::Error, on: &(dyn Display + Sync)) -> Error {
        if let Some((what, hint)) = self.nobody.filter(|_| !self.was_had()) {
            tracing::debug!(%error, "there are no credentials");
            return Error::denied(what, on).hint(hint);
        }
        let what = format!("the credentials of {} can't be had: {}", self.name, causes(error));
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    /// Hands out numbers, each as often as it is asked, unless it is away.
    #[derive(Debug, Default)]
    struct Desk {
        asked: AtomicUsize,
        made: AtomicUsize,
        is_away: AtomicBool,
    }

    #[derive(Debug)]
    struct Provides(Arc<Desk>);

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

    fn source() -> (Arc<Desk>, Source<usize>) {
        let desk = Arc::<Desk>::default();
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
        assert!((1 + 80 / 6..1 + 80 / 4).contains(&desk.asked.load(Relaxed)), "{desk:?}");
        tokio::time::advance(GOOD_FOR).await;
        let error = source.get(&"o").await.expect_err("it ran out");
        assert!(error.passes() && error.what.contains("a desk"), "{error}");
        desk.is_away.store(false, Relaxed);
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
