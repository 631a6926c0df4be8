//! HeadObject and GetObject: conditions, ranges and checksums.
//!
//! Invariant: the version that the conditions were checked against is the version whose bytes are sent.

use crate::body::Content;
use crate::checksums;
use crate::metadata::{Metadata, describe};
use crate::pool::BUFFER;
use crate::reply::{Parcel, Payload};
use crate::service::Service;
use crate::version::Version;
use hyper::HeaderMap;
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use std::ops;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Conditions that a request for an object may set.
#[derive(Default)]
pub struct Conditions {
    pub matches: Option<ETagCondition>,
    pub none_match: Option<ETagCondition>,
    pub modified_since: Option<Timestamp>,
    pub unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Whether this version may be sent; in the order of RFC 9110, section 13.2.2.
    pub fn check(&self, version: &Version) -> S3Result<()> {
        let modified = Timestamp::from(whole_seconds(version.modified_at()));
        let unmodified = || self.unmodified_since.as_ref().is_none_or(|since| modified <= *since);
        if !self.matches.as_ref().map_or_else(unmodified, |condition| meets(condition, version)) {
            return Err(s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold"));
        }
        let changed = || self.modified_since.as_ref().is_none_or(|since| modified > *since);
        if self.none_match.as_ref().map_or_else(changed, |condition| !meets(condition, version)) {
            return Ok(());
        }
        let mut error = S3Error::new(S3ErrorCode::NotModified);
        let quoted = HeaderValue::from_str(&format!("\"{}\"", version.etag())).expect("an etag is plain text");
        error.set_headers(HeaderMap::from_iter([(ETAG, quoted)]));
        Err(error)
    }
}

/// Whether a version is the one that a condition names.
pub fn meets(condition: &ETagCondition, version: &Version) -> bool {
    condition.as_etag().is_none_or(|etag| etag.value() == version.etag())
}

/// HTTP dates have no fractions.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn satisfiable(range: Option<Range>, size: u64) -> S3Result<ops::Range<u64>> {
    let Some(range) = range else { return Ok(0..size) };
    match range.check(size) {
        Ok(range) if !range.is_empty() => Ok(range),
        _ => {
            let mut error = s3_error!(InvalidRange, "The requested range is not satisfiable");
            let size = HeaderValue::from_str(&format!("bytes */{size}")).expect("digits");
            error.set_headers(HeaderMap::from_iter([
                (CONTENT_RANGE, size),
                (CONTENT_TYPE, HeaderValue::from_static("application/xml")),
            ]));
            Err(error)
        }
    }
}

impl Service {
    pub async fn head(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let opened = self.folder.object(&input.bucket, &input.key)?;
        let version = opened.version;
        let conditions = Conditions {
            matches: input.if_match,
            none_match: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
        conditions.check(&version)?;
        let range = satisfiable(input.range, version.size)?;
        let mut output = HeadObjectOutput {
            accept_ranges: Some("bytes".into()),
            content_length: Some(signed(range.end - range.start)),
            content_range: input.range.is_some().then(|| content_range(&range, version.size)),
            e_tag: Some(ETag::Strong(version.etag())),
            last_modified: Some(version.modified_at().into()),
            ..Default::default()
        };
        describe!(output, Metadata::load(&opened.file));
        if wants_checksum(input.checksum_mode.as_ref()) && input.range.is_none() {
            let content = Content::new(opened, range, self.pool.clone());
            output.checksum_crc64nvme = Some(checksums::base64(self.checksum(version, &content).await?));
            output.checksum_type = Some(ChecksumType::from_static(ChecksumType::FULL_OBJECT));
        }
        Ok(S3Response::new(output))
    }

    pub async fn get(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let opened = self.folder.object(&input.bucket, &input.key)?;
        let version = opened.version;
        let conditions = Conditions {
            matches: input.if_match,
            none_match: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
        conditions.check(&version)?;
        let range = satisfiable(input.range, version.size)?;
        let mut output = GetObjectOutput {
            accept_ranges: Some("bytes".into()),
            content_length: Some(signed(range.end - range.start)),
            content_range: input.range.is_some().then(|| content_range(&range, version.size)),
            e_tag: Some(ETag::Strong(version.etag())),
            last_modified: Some(version.modified_at().into()),
            ..Default::default()
        };
        describe!(output, Metadata::load(&opened.file));
        let summed = wants_checksum(input.checksum_mode.as_ref()) && input.range.is_none();
        let content = Content::new(opened, range, self.pool.clone());
        let (source, checksum) = self.load(version, content, summed).await?;
        if let Some(checksum) = checksum {
            output.checksum_crc64nvme = Some(checksums::base64(checksum));
            output.checksum_type = Some(ChecksumType::from_static(ChecksumType::FULL_OBJECT));
        }
        let mut response = S3Response::new(output);
        response.extensions.insert(Parcel(Arc::new(Mutex::new(Some(source)))));
        Ok(response)
    }

    /// The bytes, at once where they fit a buffer, and their checksum if it is asked for.
    async fn load(&self, version: Version, mut content: Content, summed: bool) -> S3Result<(Payload, Option<u64>)> {
        if content.left() > BUFFER as u64 {
            let checksum = if summed { Some(self.checksum(version, &content).await?) } else { None };
            return Ok((Payload::File(content), checksum));
        }
        let bytes = content.whole().await.map_err(failed)?;
        let checksum = summed.then(|| self.checksums.get(version).unwrap_or_else(|| block::crc64::of(&bytes)));
        if let Some(checksum) = checksum {
            self.checksums.keep(version, checksum);
        }
        Ok((Payload::Whole(bytes), checksum))
    }

    async fn checksum(&self, version: Version, content: &Content) -> S3Result<u64> {
        if let Some(kept) = self.checksums.get(version) {
            return Ok(kept);
        }
        let checksum = content.checksum().await.map_err(failed)?;
        self.checksums.keep(version, checksum);
        Ok(checksum)
    }
}

fn wants_checksum(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

fn content_range(range: &ops::Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// Sizes are signed in the words of S3.
pub fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("no file has more than 8 EiB")
}

/// A failed read or write of a file.
pub fn failed(error: std::io::Error) -> S3Error {
    s3_error!(InternalError, "a file could not be read or written: {error}")
}
