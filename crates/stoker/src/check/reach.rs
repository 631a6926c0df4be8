//! Whether a store answers, by whose clock, and what these credentials may do there.
//!
//! From the outside in: what fails ends it, for nothing behind it could be told apart. Invariant: no part of a secret is
//! in any finding.

use super::finding::Finding;
use crate::args::Reach;
use crate::bench::end::End;
use crate::{place, show};
use block::{Error, Kind, Result};
use daemon::reach;
use fleet::pool::found::{SKEW_REFUSED_S, unfit_clock};
use std::time::{Duration, Instant};
use store::{Greeting, Location, S3, Settings, Store as _, Web};
use targets::Listed;
use tokio::runtime::Handle;

/// A clock tells whole seconds; what is less is nothing.
const SKEW_SEEN_S: f64 = 2.0;

/// Credentials that end sooner end within most jobs.
const ENDS_SOON_S: f64 = 3600.0;

/// Names that are listed at most: ten requests.
const NAMES_MAX: usize = 10_000;

/// Answers of a server by which its latency is told: the first opens a connection.
const GREETINGS: usize = 3;

/// What is said of credentials where there are none.
const UNSIGNED: &str = "none: requests are not signed";

/// A store that answers, and files of it.
pub struct Reached {
    pub end: End,
    pub files: Vec<Listed>,
}

/// What was typed of a store, and on what its requests run.
pub struct Way<'a> {
    pub url: &'a str,
    pub typed: &'a Reach,
    pub runtime: &'a Handle,
}

impl Way<'_> {
    /// What is to be said of the store, and the store itself as far as it can be read.
    pub fn look(&self, found: &mut Vec<Finding>) -> Result<Option<Reached>> {
        let location: Location = self.url.parse()?;
        let is_open = match &location {
            Location::S3 { bucket, .. } => self.is_open(bucket, &location, found),
            Location::Google { .. } | Location::Azure { .. } | Location::Hdfs { .. } => {
                self.is_somebody(&location, found)
            }
            Location::Web { server, .. } => self.is_there(server, found) && self.is_somebody(&location, found),
            Location::Folder(_) => true,
        };
        if !is_open {
            return Ok(None);
        }
        if matches!(location, Location::Web { .. }) {
            let said = "a web server tells no names, so nothing of it is read here";
            found.push(Finding::warning("listing", said, "mount it with --manifest FILE"));
            return Ok(None);
        }
        let end = match End::open(self.url, self.typed, self.runtime, 0) {
            Ok(end) => end,
            Err(error) => {
                found.push(Finding::of("store", &error));
                return Ok(None);
            }
        };
        let files = names(self.url, &end, found);
        Ok(files.map(|files| Reached { end, files }))
    }

    fn settings(&self) -> Result<Settings> {
        let Reach { endpoint, region, profile, anonymous } = place::reach(self.typed, self.url)?;
        Ok(reach::settings(endpoint, region, profile, anonymous, place::keys(), place::variables(self.url)))
    }

    /// Whether a web server answers.
    fn is_there(&self, server: &str, found: &mut Vec<Finding>) -> bool {
        let began = Instant::now();
        let greeted = self.settings().and_then(|settings| {
            Web::check(server, &settings.cloud)?;
            self.runtime.block_on(Web::open(server, &settings.cloud)?.greet())
        });
        let is_there = greeted.is_ok();
        found.push(match greeted {
            Ok(greeting) => answered(&greeting, began.elapsed()),
            Err(error) => Finding::of("store", &error),
        });
        is_there
    }

    /// Whether we are somebody to a store of Google's or Azure's, or to HDFS. Whether it answers shows when it is listed.
    fn is_somebody(&self, location: &Location, found: &mut Vec<Finding>) -> bool {
        let who = self.settings().and_then(|settings| {
            self.runtime.block_on(async {
                store::check(location, &settings).await?;
                store::open(location, &settings)?.who().await
            })
        });
        let is_somebody = who.is_ok();
        found.push(match who {
            Ok(who) if who.is_empty() => Finding::ok("credentials", UNSIGNED),
            Ok(who) => Finding::ok("credentials", in_short(&who)).with("principal", in_short(&who)),
            Err(error) => Finding::of("credentials", &error),
        });
        is_somebody
    }

    /// Whether the server of a bucket answers, and we are somebody to it.
    fn is_open(&self, bucket: &str, location: &Location, found: &mut Vec<Finding>) -> bool {
        let mut failed = |about: &str, error: &Error| {
            found.push(Finding::of(about, error));
            false
        };
        let checked = self.settings().and_then(|settings| {
            self.runtime.block_on(store::check(location, &settings))?;
            Ok(settings)
        });
        let settings = match checked {
            Ok(settings) => settings,
            Err(error) => return failed("settings", &error),
        };
        let greeted = S3::open(bucket, settings.s3.clone())
            .and_then(|store| Ok((self.runtime.block_on(greeted(&store))?, store)));
        let ((greeting, took, skew), store) = match greeted {
            Ok(greeted) => greeted,
            Err(error) => return failed("store", &error),
        };
        found.push(answered(&greeting, took));
        found.push(clock(&greeting.host, skew));
        let whom = self.runtime.block_on(whom(&store, location, &settings));
        let is_somebody = whom.is_ok();
        found.push(whom.unwrap_or_else(|error| Finding::of("credentials", &error)));
        is_somebody
    }
}

/// What the server says, how long it takes on a connection that stands, and how far its clock is from ours.
async fn greeted(store: &S3) -> Result<(Greeting, Duration, Option<f64>)> {
    let (mut least, mut last) = (Duration::MAX, None);
    for _ in 0..GREETINGS {
        let (before, began) = (place::now(), Instant::now());
        let greeting = store.greet().await?;
        least = least.min(began.elapsed());
        let skew = greeting.clock.map(|clock| skew(clock as f64, before, place::now()));
        last = Some((greeting, skew));
    }
    let (greeting, skew) = last.expect("it was asked");
    Ok((greeting, least, skew))
}

/// How far a clock that tells whole seconds is from ours at least, where it was asked between two moments; negative if it is
/// behind.
fn skew(theirs: f64, before: f64, after: f64) -> f64 {
    match () {
        () if theirs > after => theirs - after,
        () if theirs + 1.0 < before => theirs + 1.0 - before,
        () => 0.0,
    }
}

fn answered(greeting: &Greeting, took: Duration) -> Finding {
    let Greeting { host, is_secure, .. } = greeting;
    let ms = took.as_secs_f64() * 1e3;
    let said = format!("{host} answers in {ms:.1} ms");
    let is_here = ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own));
    let found = match (is_secure, is_here) {
        (true, _) => Finding::ok("store", format!("{said}, encrypted, by a certificate that is good")),
        (false, true) => Finding::ok("store", format!("{said}, unencrypted, on this machine")),
        (false, false) => Finding::warning(
            "store",
            format!("{said}, unencrypted: who is on the way reads along"),
            "write the endpoint as https://, unless this network is yours alone",
        ),
    };
    found.with("host", host.clone()).with("answer_seconds", took.as_secs_f64()).with("encrypted", *is_secure)
}

fn clock(host: &str, skew: Option<f64>) -> Finding {
    let Some(skew) = skew else {
        return Finding::warning(
            "clock",
            format!("{host} doesn't tell its time"),
            "see that this machine's clock is set",
        );
    };
    let far = skew.abs();
    let side = if skew > 0.0 { "behind" } else { "ahead of" };
    let said = format!("this machine's clock is {far:.0} s {side} that of {host}");
    let cure = unfit_clock(f64::INFINITY).map_or("", |unfit| unfit.cure);
    let found = match () {
        () if far > SKEW_REFUSED_S => {
            Finding::failed("clock", format!("{said}, and S3 refuses signatures that are 15 minutes off"), cure)
        }
        () if far > SKEW_SEEN_S => Finding::warning("clock", said, cure),
        () => Finding::ok("clock", format!("within {SKEW_SEEN_S:.0} s of that of {host}")),
    };
    found.with("skew_seconds", skew)
}

/// Who asks, and until when.
async fn whom(store: &S3, location: &Location, settings: &Settings) -> Result<Finding> {
    let who = store.who().await?;
    if matches!(settings.s3.credentials, store::Credentials::Anonymous) {
        return Ok(Finding::ok("credentials", UNSIGNED));
    }
    let source = store::lender(location, settings).await?.unwrap_or_default();
    Ok(until(in_short(&who), &source, store::lend(&settings.s3).await?.ends, place::now()))
}

/// Letters, of what tells secrets apart, by which people compare principals.
const COMPARED: usize = 6;

/// A principal as it is shown.
fn in_short(who: &str) -> String {
    let tells_secrets_apart = |word: &str| word.len() == 32 && word.bytes().all(|letter| letter.is_ascii_hexdigit());
    let words = who.split(' ').map(|word| if tells_secrets_apart(word) { &word[..COMPARED] } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Sources that give the same keys to the end; all others are asked again before keys run out.
const FIXED: [&str; 2] = ["the environment", "these keys"];

/// Who asks with credentials of this source that end at this time, if they do.
fn until(who: String, source: &str, ends: Option<i64>, now: f64) -> Finding {
    let found = match ends.map(|end| end as f64 - now) {
        None => Finding::ok("credentials", who.clone()),
        Some(left) if left < ENDS_SOON_S && FIXED.contains(&source) => Finding::warning(
            "credentials",
            format!("{who}, which end in {}", show::left(left)),
            "mount with new ones, or by a profile or a role, which renew themselves",
        ),
        Some(left) if left < ENDS_SOON_S => {
            let renewed = format!("{source} gives new ones before they end in {}", show::left(left));
            match who.starts_with("sso ") {
                true => Finding::ok("credentials", format!("{who}; {renewed}, as long as the login lasts")),
                false => Finding::ok("credentials", format!("{who}; {renewed}")),
            }
        }
        Some(left) => Finding::ok("credentials", format!("{who}, which end in {}", show::left(left))),
    };
    found.with("principal", who).with("end_at", ends)
}

/// Files that the store lists, if it does.
fn names(url: &str, end: &End, found: &mut Vec<Finding>) -> Option<Vec<Listed>> {
    let began = Instant::now();
    let listed = match end {
        End::Store(store) => store.some(NAMES_MAX),
        End::Folder(_) => end.target().list().map(|all| (all, true)),
    };
    let (files, is_all) = match listed {
        Ok(listed) => listed,
        Err(error) => {
            found.push(Finding::of("listing", &with_cure(error)));
            return None;
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    let (count, bytes) = (files.len() as u64, files.iter().map(|file| file.bytes).sum::<u64>());
    let of = if is_all { "" } else { "the first " };
    let said = format!("{of}{} with {} in {seconds:.2} s", show::count_of(count, "file"), show::bytes(bytes));
    let finding = match count {
        0 => Finding::failed(
            "listing",
            format!("there is nothing under {url}, which is not mounted"),
            "check the prefix",
        ),
        _ => Finding::ok("listing", said),
    };
    found.push(finding.with("files", count).with("bytes", bytes).with("is_all", is_all).with("seconds", seconds));
    (count > 0).then_some(files)
}

/// A store that says no says it of who asks.
fn with_cure(error: Error) -> Error {
    match error.kind {
        Kind::Missing => error.clone().hint("check the name of the bucket, and the endpoint and region it is in"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;

    #[test]
    fn a_clock_that_tells_whole_seconds_is_off_only_where_it_must_be() {
        assert_eq!(skew(1000.0, 1000.2, 1000.9), 0.0);
        assert!((skew(1010.0, 1000.2, 1000.9) - 9.1).abs() < 1e-9);
        assert!((skew(990.0, 1000.2, 1000.9) + 9.2).abs() < 1e-9);
        for (skew, outcome, word) in [
            (Some(0.4), Outcome::Ok, "within"),
            (Some(30.0), Outcome::Warning, "30 s behind"),
            (Some(-1000.0), Outcome::Failed, "1000 s ahead"),
            (None, Outcome::Warning, "doesn't tell"),
        ] {
            let found = clock("host", skew);
            assert!(found.outcome == outcome && found.said.contains(word), "{found:?}");
        }
    }

    #[test]
    fn of_what_tells_secrets_apart_a_few_letters_are_shown() {
        assert_eq!(in_short("key 0123456789abcdef0123456789abcdef of acc"), "key 012345 of acc");
        assert_eq!(in_short("role arn:aws:iam::1:role/r"), "role arn:aws:iam::1:role/r");
    }

    #[test]
    fn credentials_that_end_within_the_hour_are_told_of_where_nobody_renews_them() {
        const CONTAINER: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        for (who, source, ends, outcome, said) in [
            ("key AKIA", "the environment", None, Outcome::Ok, "key AKIA"),
            ("key AKIA", "the environment", Some(3_601), Outcome::Ok, "key AKIA, which end in "),
            ("key AKIA", "the environment", Some(3_599), Outcome::Warning, "key AKIA, which end in "),
            ("key AKIA", "these keys", Some(0), Outcome::Warning, "key AKIA, which end in "),
            ("key ASIA", CONTAINER, Some(3_599), Outcome::Ok, "key ASIA; AWS_CONTAINER_CREDENTIALS_FULL_URI gives new"),
            ("role r", "this machine's role", Some(3_599), Outcome::Ok, "role r; this machine's role gives new ones"),
            ("role r", "profile a", Some(3_599), Outcome::Ok, "role r; profile a gives new ones before they end in "),
            ("sso 1 r", "profile a", Some(3_599), Outcome::Ok, "sso 1 r; profile a gives new ones before they end in "),
        ] {
            let found = until(who.into(), source, ends.map(|ends| 10_000 + ends), 10_000.0);
            assert!(found.outcome == outcome && found.said.starts_with(said), "{ends:?}: {found:?}");
            assert_eq!(found.cure.is_some(), outcome == Outcome::Warning, "{found:?}");
            assert_eq!(found.said.contains("as long as the login"), who.starts_with("sso"), "{found:?}");
        }
    }

    #[test]
    fn a_server_far_away_is_to_be_encrypted() {
        let of = |host: &str, is_secure| {
            answered(&Greeting { host: host.into(), is_secure, clock: None }, Duration::from_millis(2)).outcome
        };
        assert_eq!(
            [of("minio:9000", false), of("minio", true), of("127.0.0.1:9", false)],
            [Outcome::Warning, Outcome::Ok, Outcome::Ok]
        );
    }
}
