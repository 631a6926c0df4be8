//! What a store, or a file of its user, may say, as bytes that mean harm: each function reads them in all ways in which they are
//! read here. For `make fuzz`; what it found is read again by the tests below.
//!
//! Invariant: none of these panics or takes long, whatever the bytes.

use crate::cloud::{azure, google, refusal};
use crate::s3::credentials::profiles::Profiles;
use crate::s3::{answer, page};
use block::Object;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Bodies of S3: a page of names, a refusal, the words of an upload.
pub fn s3(bytes: &[u8]) {
    for given in [None, Some(0), Some(i64::MAX)] {
        let _ = page::parse(bytes, given, &"o");
    }
    let refusal = page::refusal(bytes);
    let _ = (answer::brief(&refusal.message), answer::plain(bytes), page::upload(bytes), page::is_completed(bytes));
}

/// Bodies of Google: a page of names in JSON, a refusal.
pub fn google(bytes: &[u8]) {
    let _ = (google::page::parse(bytes, "o"), refusal::said(bytes));
}

/// Bodies of Azure: a page of names in XML, a refusal.
pub fn azure(bytes: &[u8]) {
    let _ = (azure::page::parse(bytes, "o"), refusal::said(bytes));
}

/// Heads of answers: a line each, `name: value`; the first one is the status.
pub fn heads(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let status = lines.next().and_then(|line| StatusCode::from_bytes(line).ok()).unwrap_or(StatusCode::PARTIAL_CONTENT);
    let header = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let value = line[colon + 1..].trim_ascii();
        Some((HeaderName::from_bytes(&line[..colon]).ok()?, HeaderValue::from_bytes(value).ok()?))
    };
    let headers: HeaderMap = lines.filter_map(header).collect();
    let object = Object { store: "s3://b".into(), key: "k".into(), version: "time:5".into(), size: 1 << 30 };
    for range in [0..1 << 30, 5..1_000] {
        let _ = answer::check_range(status, &headers, &object, &range);
    }
    let _ = (answer::check_version(&headers, &object), answer::checksum(&headers), answer::listed(&headers, "k"));
    let _ = answer::retry_after(&headers);
}

/// AWS's two files of profiles, with a NUL between them.
pub fn profiles(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (config, credentials) = text.split_once('\0').unwrap_or((&text, ""));
    let Ok(profiles) = Profiles::of(config, credentials) else { return };
    for name in ["default", "a", ""] {
        let Some(profile) = profiles.profile(name) else { continue };
        let _ = (profile.has_keys(), profile.get("region"), profile.get("credential_process"));
    }
}

/// A file of credentials of Google.
pub fn key_file(bytes: &[u8]) {
    let _ = google::adc::key_file(String::from_utf8_lossy(bytes).into_owned());
}

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::corpus::each_is_borne;

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        each_is_borne("s3", super::s3);
        each_is_borne("google", super::google);
        each_is_borne("azure", super::azure);
        each_is_borne("heads", super::heads);
        each_is_borne("profiles", super::profiles);
        each_is_borne("key_file", super::key_file);
    }
}
