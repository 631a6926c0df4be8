//! Who answers at the address of a bucket, asked without a name: nobody's credentials matter here, and nothing of the
//! bucket is read.
//!
//! Invariant: whatever the server thinks of the question, that it answered is what counts.

use super::{S3, answer};
use block::{Error, Result};
use http::{Method, Request, header};
use http_body_util::Full;

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Host, and port unless it is the scheme's own.
    pub host: String,
    /// Encrypted, by a certificate that was verified.
    pub is_secure: bool,
    /// Seconds since 1970 by its clock, if it tells.
    pub clock: Option<i64>,
}

impl S3 {
    /// Ask the server of this bucket for nothing but an answer.
    pub async fn greet(&self) -> Result<Greeting> {
        let (bucket, route) = (&self.0, self.0.route());
        let request = Request::builder().method(Method::HEAD).uri(route.object("")).body(Full::default());
        let request =
            request.map_err(|error| Error::invalid(format!("the name makes no URL: {error}"), &bucket.identity))?;
        let answer = bucket.wire.send(request, &bucket.counters, &route.authority, &bucket.identity).await?;
        let told = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok());
        Ok(Greeting {
            host: route.authority.clone(),
            is_secure: route.is_secure(),
            clock: told.and_then(answer::second),
        })
    }
}
