//! ListObjectsV2 and ListObjects: pages of `listing` in the words of S3.
//!
//! Invariant: a continuation token is the last item shown, so that a page can be asked for again.

use crate::listing::{Item, PAGE_MAX, Page, Query};
use crate::read::signed;
use crate::service::Service;
use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};
use std::fmt::Write;

/// What both versions of listing ask for.
struct Ask {
    bucket: String,
    prefix: String,
    delimiter: String,
    after: String,
    limit: usize,
}

/// Keys are written percent-encoded if the client asks for that.
struct Spelling {
    encoded: bool,
}

impl Spelling {
    fn of(kind: Option<&EncodingType>) -> Spelling {
        Spelling { encoded: kind.is_some_and(|kind| kind.as_str() == EncodingType::URL) }
    }

    fn write(&self, key: String) -> String {
        if !self.encoded {
            return key;
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~*/".contains(&byte);
        key.bytes().fold(String::with_capacity(key.len()), |mut text, byte| {
            if plain(byte) {
                text.push(char::from(byte));
            } else {
                let _ = write!(text, "%{byte:02X}");
            }
            text
        })
    }

    fn split(&self, items: Vec<Item>) -> (Vec<Object>, Vec<CommonPrefix>) {
        let (mut objects, mut prefixes) = (Vec::with_capacity(items.len()), Vec::new());
        for item in items {
            match item {
                Item::Common(prefix) => prefixes.push(CommonPrefix { prefix: Some(self.write(prefix)) }),
                Item::Object { key, version } => objects.push(Object {
                    key: Some(self.write(key)),
                    e_tag: Some(ETag::Strong(version.etag())),
                    last_modified: Some(version.modified_at().into()),
                    size: Some(signed(version.size)),
                    storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
                    ..Default::default()
                }),
            }
        }
        (objects, prefixes)
    }
}

impl Service {
    pub async fn list_second(&self, input: ListObjectsV2Input) -> S3Result<S3Response<ListObjectsV2Output>> {
        let spelling = Spelling::of(input.encoding_type.as_ref());
        let limit = limit(input.max_keys)?;
        let after =
            input.continuation_token.as_deref().map(from_token).transpose()?.or_else(|| input.start_after.clone());
        let ask = Ask {
            bucket: input.bucket.clone(),
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after: after.unwrap_or_default(),
            limit,
        };
        let page = self.page(ask).await?;
        let count = page.items.len();
        let (objects, prefixes) = spelling.split(page.items);
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix.map(|prefix| spelling.write(prefix)),
            delimiter: input.delimiter.map(|delimiter| spelling.write(delimiter)),
            start_after: input.start_after.map(|after| spelling.write(after)),
            encoding_type: input.encoding_type,
            continuation_token: input.continuation_token,
            max_keys: Some(limit as i32),
            key_count: Some(count as i32),
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.as_deref().map(to_token),
            contents: (!objects.is_empty()).then_some(objects),
            common_prefixes: (!prefixes.is_empty()).then_some(prefixes),
            ..Default::default()
        }))
    }

    pub async fn list_first(&self, input: ListObjectsInput) -> S3Result<S3Response<ListObjectsOutput>> {
        let spelling = Spelling::of(input.encoding_type.as_ref());
        let limit = limit(input.max_keys)?;
        let ask = Ask {
            bucket: input.bucket.clone(),
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after: input.marker.clone().unwrap_or_default(),
            limit,
        };
        let page = self.page(ask).await?;
        let (objects, prefixes) = spelling.split(page.items);
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(spelling.write(input.prefix.unwrap_or_default())),
            marker: Some(spelling.write(input.marker.unwrap_or_default())),
            delimiter: input.delimiter.map(|delimiter| spelling.write(delimiter)),
            encoding_type: input.encoding_type,
            max_keys: Some(limit as i32),
            is_truncated: Some(page.next.is_some()),
            // S3 gives it only with a delimiter; giving it always spares clients a rule.
            next_marker: page.next.map(|next| spelling.write(next)),
            contents: (!objects.is_empty()).then_some(objects),
            common_prefixes: (!prefixes.is_empty()).then_some(prefixes),
            ..Default::default()
        }))
    }

    /// A page walks folders, which may wait for the disk.
    async fn page(&self, ask: Ask) -> S3Result<Page> {
        let (folder, now) = (self.folder.clone(), self.clock.wall());
        let walk = move || {
            let query = Query {
                bucket: &ask.bucket,
                prefix: &ask.prefix,
                delimiter: &ask.delimiter,
                after: &ask.after,
                limit: ask.limit,
            };
            folder.list(query, now)
        };
        let page = tokio::task::spawn_blocking(walk)
            .await
            .map_err(|error| s3_error!(error, InternalError, "the listing was given up"))?;
        Ok(page?)
    }
}

fn limit(asked: Option<i32>) -> S3Result<usize> {
    let asked = usize::try_from(asked.unwrap_or(PAGE_MAX as i32))
        .map_err(|_| s3_error!(InvalidArgument, "max-keys must not be negative"))?;
    Ok(asked.min(PAGE_MAX))
}

/// Hexadecimal: any key survives it, and nobody takes it for a key.
fn to_token(key: &str) -> String {
    key.bytes().fold(String::with_capacity(2 * key.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_token(token: &str) -> S3Result<String> {
    let bad = || s3_error!(InvalidArgument, "The continuation token provided is incorrect");
    let byte = |at: usize| token.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or_else(bad);
    let bytes: Vec<u8> = (0..token.len()).step_by(2).map(byte).collect::<S3Result<_>>()?;
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_carry_any_key() {
        for key in ["", "a/b", "ü\0%", "..//"] {
            assert_eq!(from_token(&to_token(key)).unwrap(), key);
        }
        for token in ["a", "zz", "ü", "ff"] {
            assert!(from_token(token).is_err(), "{token}");
        }
        assert_eq!(Spelling { encoded: true }.write("a b/ü+*".into()), "a%20b/%C3%BC%2B*");
    }
}
