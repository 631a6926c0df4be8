//! What a server means that says no: from the status and the words of its answer to what the caller does next.
//!
//! Invariant: a service that is asked too much is told from one that is ill, and both from one that will never answer.

use crate::s3::answer::{REFUSAL_MAX, brief, plain, retry_after, text};
use crate::s3::page;
use block::{Error, Kind};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use std::fmt::Display;
use std::time::Duration;

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Google,
    Azure,
    /// Anybody's web server.
    Web,
}

impl Service {
    /// Its word for what holds objects.
    pub fn bucket(self) -> &'static str {
        match self {
            Service::Google => "bucket",
            Service::Azure => "container",
            Service::Web => "file",
        }
    }

    /// What to try where a request is sent elsewhere.
    fn elsewhere(self) -> &'static str {
        match self {
            Service::Google | Service::Azure => "set the endpoint of the account or the bucket",
            Service::Web => "give the URL that it leads to; redirects are not followed",
        }
    }

    /// What to try where it lets nobody in.
    fn advice(self) -> &'static str {
        match self {
            Service::Google => {
                "check that these credentials may list the bucket and get its objects (Storage Object Viewer), and that \
                 GOOGLE_APPLICATION_CREDENTIALS names the right file"
            }
            Service::Azure => {
                "check that these credentials may list the container and read its blobs (Storage Blob Data Reader), and \
                 the variables that begin with AZURE_STORAGE_"
            }
            Service::Web => {
                "check that the file may be read; STOKER_BEARER_TOKEN is the token that is sent, if one is wanted"
            }
        }
    }
}

/// A refusal.
pub struct Refusal {
    status: StatusCode,
    /// The service's word for it, if it gave one: `rateLimitExceeded`, `AuthenticationFailed`.
    code: String,
    message: String,
    retry_after: Option<Duration>,
}

/// Words of Google for too many requests, which come with 403, too.
const SLOWER: [&str; 3] = ["rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"];

/// Words of Azure that are about who asks, whatever their status.
const DENIALS: [&str; 3] = ["InvalidAuthenticationInfo", "NoAuthenticationInformation", "PublicAccessNotPermitted"];

impl Refusal {
    /// Read what was said; a body that can't be read is no further loss.
    pub async fn read(answer: Response<Incoming>, idle: Duration) -> Refusal {
        let (head, body) = answer.into_parts();
        let body = tokio::time::timeout(idle, Limited::new(body, REFUSAL_MAX).collect()).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        let (code, message) = said(&body);
        // An answer to a question for a head has no body.
        let code =
            if code.is_empty() { text(&head.headers, "x-ms-error-code").unwrap_or_default().into() } else { code };
        Refusal { status: head.status, code, message, retry_after: retry_after(&head.headers) }
    }

    pub fn is_throttling(&self) -> bool {
        matches!(self.status.as_u16(), 429 | 503) || SLOWER.contains(&self.code.as_str())
    }

    /// What it means for the caller.
    pub fn error(&self, service: Service, host: &str, on: &(dyn Display + Sync)) -> Error {
        let (status, code) = (self.status.as_u16(), self.code.as_str());
        let unavailable = || {
            let kind = Kind::Unavailable { retry_after: self.retry_after };
            Error::new(kind, format!("{host} answered {}", self.words()), on)
        };
        let error = match (status, code) {
            (403, code) if SLOWER.contains(&code) => unavailable(),
            (409, "BlobArchived" | "BlobBeingRehydrated") | (403, "BlobAccessTierNotSupportedForAccountType") => {
                Error::denied(format!("{host} keeps the object in an archive ({})", self.words()), on)
                    .hint("rehydrate it first, or leave it out")
            }
            (status, code) if matches!(status, 401 | 403) || DENIALS.contains(&code) => {
                Error::denied(format!("{host} refuses access ({})", self.words()), on).hint(service.advice())
            }
            (404 | 410, _) => Error::missing(format!("there is no such object ({})", self.words()), on),
            (412 | 416, _) => Error::changed(format!("the object has another version by now ({})", self.words()), on),
            (301 | 302 | 307 | 308, _) => {
                Error::invalid(format!("{host} sends this request elsewhere ({})", self.words()), on)
                    .hint(service.elsewhere())
            }
            (408 | 429 | 500 | 502..=504 | 509 | 520..=530 | 598 | 599, _) => unavailable(),
            _ => Error::invalid(format!("{host} refused the request: {}", self.words()), on)
                .hint("check the endpoint and its log"),
        };
        tracing::debug!(status, code, message = self.message, "refused");
        error
    }

    /// The server's own words, on one line.
    fn words(&self) -> String {
        let status = match self.code.as_str() {
            "" => self.status.to_string(),
            code => format!("{} {code}", self.status.as_u16()),
        };
        if self.message.is_empty() { status } else { format!("{status}: {}", self.message) }
    }
}

/// The code and the message of a refusal: XML of Azure, JSON or plain text of Google.
pub fn said(body: &[u8]) -> (String, String) {
    if let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) {
        let error = &json["error"];
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        return (word(&error["errors"][0]["reason"]), brief(&word(&error["message"])));
    }
    let body = body.strip_prefix(BOM).unwrap_or(body);
    let page::Refusal { code, message, .. } = page::refusal(body);
    // Below the first line Azure repeats its name for the request, and the time.
    let message = if code.is_empty() { plain(body) } else { brief(message.lines().next().unwrap_or_default()) };
    (code, message)
}

/// What Azure writes before its XML.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> Refusal {
        let (code, message) = said(body.as_bytes());
        let status = StatusCode::from_u16(status).expect("a status");
        Refusal { status, code, message, retry_after: Some(Duration::from_secs(3)) }
    }

    fn kind(status: u16, body: &str) -> Kind {
        refusal(status, body).error(Service::Google, "host", &"o").kind
    }

    #[test]
    fn a_refusal_of_google_or_azure_says_what_to_do() {
        let later = Kind::Unavailable { retry_after: Some(Duration::from_secs(3)) };
        let slower = r#"{"error": {"code": 403, "message": "too fast", "errors": [{"reason": "rateLimitExceeded"}]}}"#;
        let failed = "\u{feff}<?xml version=\"1.0\"?><Error><Code>AuthenticationFailed</Code>\
                      <Message>No.\nRequestId:1</Message></Error>";
        for (status, body, expected) in [
            (403, slower, later),
            (429, "", later),
            (503, "<Error><Code>ServerBusy</Code></Error>", later),
            (500, "", later),
            (403, failed, Kind::Denied),
            (401, "", Kind::Denied),
            (400, "<Error><Code>InvalidAuthenticationInfo</Code></Error>", Kind::Denied),
            (409, "<Error><Code>BlobArchived</Code></Error>", Kind::Denied),
            (404, "No such object: b/k", Kind::Missing),
            (412, "", Kind::Changed),
            (416, "", Kind::Changed),
            (400, "", Kind::Invalid),
        ] {
            assert_eq!(kind(status, body), expected, "{status} {body}");
        }
        assert!(refusal(403, slower).is_throttling() && refusal(429, "").is_throttling());
        assert!(!refusal(403, failed).is_throttling() && !refusal(500, "").is_throttling());
        assert_eq!(refusal(403, failed).words(), "403 AuthenticationFailed: No.");
        assert_eq!(refusal(403, slower).words(), "403 rateLimitExceeded: too fast");
    }
}
