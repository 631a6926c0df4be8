//! What a client says about an object besides its bytes: content type and `x-amz-meta-*`.
//! Kept in one extended attribute of the file, so that it moves and dies with it.
//!
//! Invariant: a file without the attribute, or on a file system without any, is an object without metadata.

use crate::folder::Refusal;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::AsFd;

const ATTRIBUTE: &str = "user.stoker.metadata";

/// Bytes of metadata. S3 allows 2 KB, ext4 keeps some 4 KB in an inode's attribute block.
const BYTES_MAX: usize = 3500;

/// What an object without a content type is given, as by S3.
pub const CONTENT_TYPE: &str = "binary/octet-stream";

/// Metadata of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub content_disposition: Option<String>,
    pub content_language: Option<String>,
    pub cache_control: Option<String>,
    pub user: HashMap<String, String>,
}

impl Metadata {
    /// What was kept with a file.
    pub fn load(file: impl AsFd) -> Metadata {
        let mut space = [0u8; BYTES_MAX];
        let Ok(length) = fgetxattr(file, ATTRIBUTE, &mut space[..]) else { return Metadata::default() };
        let text = std::str::from_utf8(&space[..length]).unwrap_or("");
        let mut metadata = Metadata::default();
        let mut fields = text.split('\0');
        while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
            match metadata.field(name) {
                Some(field) => *field = Some(value.to_string()),
                None => drop(metadata.user.insert(name.to_string(), value.to_string())),
            }
        }
        metadata
    }

    /// Keep it with a file. A file system without attributes drops it: the object is still readable.
    pub fn save(&self, file: impl AsFd) -> Result<(), Refusal> {
        let text = self.text();
        if text.is_empty() {
            return Ok(());
        }
        if text.len() > BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        match fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => {
                tracing::warn!("the file system keeps no extended attributes: metadata of objects is dropped");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn text(&self) -> String {
        let mut copy = self.clone();
        let mut text = String::new();
        let mut add = |name: &str, value: &str| text.extend([name, "\0", value, "\0"]);
        for name in HEADERS {
            if let Some(value) = copy.field(name).and_then(|field| field.take()) {
                add(name, &value.replace('\0', ""));
            }
        }
        self.user.iter().for_each(|(name, value)| add(&name.replace('\0', ""), &value.replace('\0', "")));
        text
    }

    fn field(&mut self, name: &str) -> Option<&mut Option<String>> {
        Some(match name {
            ":content-type" => &mut self.content_type,
            ":content-encoding" => &mut self.content_encoding,
            ":content-disposition" => &mut self.content_disposition,
            ":content-language" => &mut self.content_language,
            ":cache-control" => &mut self.cache_control,
            _ => return None,
        })
    }
}

/// The colon keeps them apart from names that users choose: no header has one.
const HEADERS: [&str; 5] =
    [":content-type", ":content-encoding", ":content-disposition", ":content-language", ":cache-control"];

/// The encoding of the object itself: `aws-chunked` is that of the request that brought it.
pub fn of_the_object(encoding: String) -> Option<String> {
    let kept: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "aws-chunked").collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// Take the metadata out of the input of a request that carries it.
macro_rules! metadata_of {
    ($input:expr) => {
        $crate::metadata::Metadata {
            content_type: $input.content_type.take(),
            content_encoding: $input.content_encoding.take().and_then($crate::metadata::of_the_object),
            content_disposition: $input.content_disposition.take(),
            content_language: $input.content_language.take(),
            cache_control: $input.cache_control.take(),
            user: $input.metadata.take().unwrap_or_default(),
        }
    };
}

/// Put the metadata into the output of an answer that carries it.
macro_rules! describe {
    ($output:expr, $metadata:expr) => {{
        let metadata = $metadata;
        $output.content_type = Some(metadata.content_type.unwrap_or_else(|| $crate::metadata::CONTENT_TYPE.into()));
        $output.content_encoding = metadata.content_encoding;
        $output.content_disposition = metadata.content_disposition;
        $output.content_language = metadata.content_language;
        $output.cache_control = metadata.cache_control;
        $output.metadata = (!metadata.user.is_empty()).then_some(metadata.user);
    }};
}

pub(crate) use {describe, metadata_of};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_stays_with_its_file() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Metadata::load(&file), Metadata::default());
        let user = HashMap::from([("mode".to_string(), "33188".to_string()), ("name".into(), "ü=1".into())]);
        let metadata = Metadata { content_type: Some("image/jpeg".into()), user, ..Metadata::default() };
        metadata.save(&file).unwrap();
        // Some file systems have no attributes; then there is nothing to compare.
        if fgetxattr(&file, ATTRIBUTE, &mut [0u8; BYTES_MAX][..]).is_ok() {
            assert_eq!(Metadata::load(&file), metadata);
        }
        let long = Metadata { content_type: Some("x".repeat(BYTES_MAX)), ..Metadata::default() };
        assert_eq!(long.save(&file), Err(Refusal::TooLong));
    }
}
