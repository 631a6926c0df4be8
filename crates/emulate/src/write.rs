//! PutObject: the body into a draft, every checksum that came with it verified, then into place.
//!
//! Invariant: an object appears only if its body was complete and everything said about it was true.

use crate::checksums;
use crate::draft::{Draft, ObjectName};
use crate::folder::Refusal;
use crate::metadata::metadata_of;
use crate::read::meets;
use crate::service::Service;
use crate::version::Version;
use futures_util::StreamExt;
use hyper::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// What a client said about a body; checked when it is complete.
#[derive(Default)]
pub struct Claims {
    pub md5: Option<String>,
    pub crc32: Option<String>,
    pub crc32c: Option<String>,
    pub crc64nvme: Option<String>,
    pub sha1: Option<String>,
    pub sha256: Option<String>,
}

/// Take the claims out of the input of a request that carries them.
macro_rules! claims_of {
    ($input:expr) => {
        $crate::write::Claims {
            md5: $input.content_md5.take(),
            crc32: $input.checksum_crc32.take(),
            crc32c: $input.checksum_crc32c.take(),
            crc64nvme: $input.checksum_crc64nvme.take(),
            sha1: $input.checksum_sha1.take(),
            sha256: $input.checksum_sha256.take(),
        }
    };
}
pub(crate) use claims_of;

/// A body on its way to the disk.
pub struct Incoming {
    pub claims: Claims,
    /// Announced with `x-amz-trailer`: the claims that come after the body.
    pub trailers: Trailers,
    pub body: Option<StreamingBlob>,
}

/// Headers after the body, as far as they have come.
pub struct Trailers {
    announced: String,
    signed: Option<s3s::TrailingHeaders>,
    plain: Option<crate::chunked::Trailers>,
}

impl Trailers {
    pub fn of<T>(request: &S3Request<T>) -> Trailers {
        let announced = request.headers.get("x-amz-trailer").and_then(|value| value.to_str().ok()).unwrap_or("");
        Trailers {
            announced: announced.to_ascii_lowercase(),
            signed: request.trailing_headers.clone(),
            plain: request.extensions.get::<crate::chunked::Trailers>().cloned(),
        }
    }

    fn names(&self, name: &str) -> bool {
        self.announced.contains(name)
    }

    fn take(&self) -> HeaderMap {
        let signed = self.signed.as_ref().and_then(s3s::TrailingHeaders::take);
        signed.or_else(|| self.plain.as_ref().map(crate::chunked::Trailers::take)).unwrap_or_default()
    }
}

/// A draft that is complete, and its checksum.
pub struct Received {
    pub draft: Draft,
    pub checksum: u64,
}

impl Service {
    pub async fn put(&self, mut request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let trailers = Trailers::of(&request);
        let input = &mut request.input;
        let metadata = metadata_of!(input);
        let incoming = Incoming { claims: claims_of!(input), trailers, body: input.body.take() };
        let received = self.receive(&input.bucket, incoming).await?;
        let place = ObjectName { bucket: &input.bucket, key: &input.key };
        let allowed =
            |current: Option<Version>| permitted(input.if_match.as_ref(), input.if_none_match.as_ref(), current);
        let version = self.folder.place(received.draft, place, &metadata, self.clock.wall(), allowed)?;
        self.checksums.keep(version, received.checksum);
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(ETag::Strong(version.etag())),
            checksum_crc64nvme: Some(checksums::base64(received.checksum)),
            checksum_type: Some(ChecksumType::from_static(ChecksumType::FULL_OBJECT)),
            ..Default::default()
        }))
    }

    /// Write a body into a draft and check what was said about it.
    pub async fn receive(&self, bucket: &str, incoming: Incoming) -> S3Result<Received> {
        let Incoming { mut claims, trailers, body } = incoming;
        let mut draft = self.folder.draft(bucket)?;
        let wanted = |claim: &Option<String>, trailer: &str| claim.is_some() || trailers.names(trailer);
        let mut hasher = ChecksumHasher {
            crc32: wanted(&claims.crc32, "x-amz-checksum-crc32").then(Crc32::new),
            crc32c: wanted(&claims.crc32c, "x-amz-checksum-crc32c").then(Crc32c::new),
            sha1: wanted(&claims.sha1, "x-amz-checksum-sha1").then(Sha1::new),
            sha256: wanted(&claims.sha256, "x-amz-checksum-sha256").then(Sha256::new),
            crc64nvme: Some(Crc64Nvme::new()),
        };
        let mut md5 = claims.md5.is_some().then(Md5::new);
        if let Some(mut body) = body {
            while let Some(bytes) = body.next().await {
                let bytes = bytes.map_err(|error| {
                    s3_error!(IncompleteBody, "the body ended early or was not well formed: {error}")
                })?;
                draft.write(&bytes).map_err(Refusal::from)?;
                hasher.update(&bytes);
                if let Some(md5) = &mut md5 {
                    md5.update(&bytes);
                }
            }
        }
        claims.add(&trailers.take());
        let checksum = claims.check(hasher, md5)?;
        Ok(Received { draft, checksum })
    }
}

impl Claims {
    fn add(&mut self, trailers: &HeaderMap) {
        let take = |claim: &mut Option<String>, name: &str| {
            if let Some(value) = trailers.get(name).and_then(|value| value.to_str().ok()) {
                *claim = Some(value.to_string());
            }
        };
        take(&mut self.crc32, "x-amz-checksum-crc32");
        take(&mut self.crc32c, "x-amz-checksum-crc32c");
        take(&mut self.crc64nvme, "x-amz-checksum-crc64nvme");
        take(&mut self.sha1, "x-amz-checksum-sha1");
        take(&mut self.sha256, "x-amz-checksum-sha256");
    }

    /// The CRC-64/NVME of the body, if all that was claimed is true.
    fn check(&self, mut hasher: ChecksumHasher, md5: Option<Md5>) -> S3Result<u64> {
        let crc64 = hasher.crc64nvme.take().map_or(0, |crc64| u64::from_be_bytes(crc64.finalize()));
        let found = hasher.finalize();
        let md5 = md5.map(|md5| base64_of(md5.finalize().as_ref()));
        let pairs = [
            (&self.crc32, &found.checksum_crc32),
            (&self.crc32c, &found.checksum_crc32c),
            (&self.crc64nvme, &Some(checksums::base64(crc64))),
            (&self.sha1, &found.checksum_sha1),
            (&self.sha256, &found.checksum_sha256),
            (&self.md5, &md5),
        ];
        for (claimed, found) in pairs {
            if claimed.is_some() && claimed != found {
                return Err(s3_error!(BadDigest, "a checksum that you specified did not match what we received"));
            }
        }
        Ok(crc64)
    }
}

fn base64_of(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for triple in bytes.chunks(3) {
        let value = triple.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - triple.len()));
        (0..4).for_each(|index| {
            let letter = char::from(LETTERS[(value >> (18 - 6 * index)) as usize & 63]);
            text.push(if index <= triple.len() { letter } else { '=' });
        });
    }
    text
}

/// The conditions of a write: If-Match needs that version, If-None-Match: * needs that there is none.
pub fn permitted(
    matches: Option<&ETagCondition>,
    none_match: Option<&ETagCondition>,
    current: Option<Version>,
) -> S3Result<()> {
    let denied = || Err(s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold"));
    if let Some(condition) = matches {
        return match current {
            None => Err(s3_error!(NoSuchKey, "The specified key does not exist.")),
            Some(version) if meets(condition, &version) => Ok(()),
            Some(_) => denied(),
        };
    }
    match (none_match, current) {
        (Some(condition), Some(version)) if meets(condition, &version) => denied(),
        _ => Ok(()),
    }
}
