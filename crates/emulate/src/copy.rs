//! CopyObject, DeleteObject and DeleteObjects: what needs no body.
//!
//! Invariant: a copy is of one version of its source, the one that its conditions were checked against.

use crate::draft::{Draft, ObjectName};
use crate::folder::Opened;
use crate::metadata::{Metadata, metadata_of};
use crate::read::{Conditions, failed};
use crate::service::Service;
use crate::write::permitted;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result, s3_error};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

/// Conditions that a copy sets on its source.
macro_rules! source_conditions {
    ($input:expr) => {
        $crate::read::Conditions {
            matches: $input.copy_source_if_match.take(),
            none_match: $input.copy_source_if_none_match.take(),
            modified_since: $input.copy_source_if_modified_since.take(),
            unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}
pub(crate) use source_conditions;

impl Service {
    /// Open the source of a copy, if its conditions hold.
    pub fn source(&self, source: &CopySource, conditions: &Conditions) -> S3Result<Opened> {
        let CopySource::Bucket { bucket, key, .. } = source else {
            return Err(s3_error!(NotImplemented, "a copy is taken from a bucket, not from an access point"));
        };
        let opened = self.folder.object(bucket, key)?;
        // For a copy a version that is not wanted is a failure, never `not modified`.
        conditions.check(&opened.version).map_err(|error| match error.code() {
            S3ErrorCode::NotModified => S3Error::new(S3ErrorCode::PreconditionFailed),
            _ => error,
        })?;
        Ok(opened)
    }

    pub async fn copy(&self, mut input: CopyObjectInput) -> S3Result<S3Response<CopyObjectOutput>> {
        let opened = self.source(&input.copy_source, &source_conditions!(input))?;
        let replaces =
            input.metadata_directive.as_ref().is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        let metadata = if replaces { metadata_of!(input) } else { Metadata::load(&opened.file) };
        let known = self.checksums.get(opened.version);
        let draft = self.folder.draft(&input.bucket)?;
        let range = 0..opened.version.size;
        let draft = append(draft, opened, range).await?;
        let place = ObjectName { bucket: &input.bucket, key: &input.key };
        let version =
            self.folder.place(draft, place, &metadata, self.clock.wall(), |current| permitted(None, None, current))?;
        if let Some(known) = known {
            self.checksums.keep(version, known);
        }
        let result = CopyObjectResult {
            e_tag: Some(ETag::Strong(version.etag())),
            last_modified: Some(version.modified_at().into()),
            ..Default::default()
        };
        Ok(S3Response::new(CopyObjectOutput { copy_object_result: Some(result), ..Default::default() }))
    }

    pub fn delete(&self, input: DeleteObjectInput) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.folder.remove(ObjectName { bucket: &input.bucket, key: &input.key })?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    pub fn delete_many(&self, input: DeleteObjectsInput) -> S3Result<S3Response<DeleteObjectsOutput>> {
        self.require_bucket(&input.bucket)?;
        let quiet = input.delete.quiet.unwrap_or(false);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for object in input.delete.objects {
            match self.folder.remove(ObjectName { bucket: &input.bucket, key: &object.key }) {
                Ok(()) if quiet => {}
                Ok(()) => deleted.push(DeletedObject { key: Some(object.key), ..Default::default() }),
                Err(refusal) => {
                    let error = S3Error::from(refusal);
                    let message = error.message().map(String::from);
                    errors.push(Error {
                        code: Some(error.code().as_str().into()),
                        key: Some(object.key),
                        message,
                        version_id: None,
                    });
                }
            }
        }
        let output = DeleteObjectsOutput {
            deleted: (!deleted.is_empty()).then_some(deleted),
            errors: (!errors.is_empty()).then_some(errors),
            request_charged: None,
        };
        Ok(S3Response::new(output))
    }
}

/// Append a range of a file to a draft, within the kernel where it can.
pub async fn append(mut draft: Draft, opened: Opened, range: Range<u64>) -> S3Result<Draft> {
    let copy = move || {
        let mut from = File::from(opened.file);
        from.seek(SeekFrom::Start(range.start))?;
        let length = range.end - range.start;
        let copied = std::io::copy(&mut from.take(length), &mut draft.file)?;
        if copied == length {
            Ok(draft)
        } else {
            Err(std::io::Error::other("the source became shorter while it was copied"))
        }
    };
    tokio::task::spawn_blocking(copy).await.map_err(|error| s3_error!(error, InternalError))?.map_err(failed)
}
