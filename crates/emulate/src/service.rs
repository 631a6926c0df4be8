//! The operations of S3 over a folder, each handed to the file that does it.
//!
//! Invariant: nothing here decides; refusals become S3's error codes in one place.

use crate::checksums::Checksums;
use crate::clock::Clock;
use crate::folder::{Folder, Refusal, is_bucket_name};
use crate::pool::Pool;
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;

/// A folder, spoken to in S3.
#[derive(Clone)]
pub struct Service {
    pub folder: Arc<Folder>,
    pub checksums: Arc<Checksums>,
    pub pool: Arc<Pool>,
    pub clock: Clock,
}

/// The names that folders have, where S3 would allow fewer.
pub struct BucketNames;

impl s3s::validation::NameValidation for BucketNames {
    fn validate_bucket_name(&self, name: &str) -> bool {
        is_bucket_name(name)
    }
}

impl From<Refusal> for S3Error {
    fn from(refusal: Refusal) -> S3Error {
        match refusal {
            Refusal::NoBucket => s3_error!(NoSuchBucket, "The specified bucket does not exist"),
            Refusal::NoObject => s3_error!(NoSuchKey, "The specified key does not exist."),
            Refusal::Denied => {
                s3_error!(AccessDenied, "the file may not be read, or is a link that leads out of the folder")
            }
            Refusal::TooLong => s3_error!(KeyTooLongError, "the folder cannot hold a name or metadata of this length"),
            Refusal::NoSpace => s3_error!(InternalError, "the disk of the folder is full"),
            Refusal::Failed(errno) => s3_error!(InternalError, "the file system failed: {errno}"),
        }
    }
}

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for Service {
    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        self.get(request).await
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        self.head(request).await
    }

    async fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        self.list_second(request.input).await
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        self.list_first(request.input).await
    }

    async fn list_buckets(&self, _request: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let bucket =
            |name: String| Bucket { name: Some(name), creation_date: Some(Timestamp::default()), bucket_region: None };
        let buckets = self.folder.buckets().into_iter().map(bucket).collect();
        Ok(S3Response::new(ListBucketsOutput { buckets: Some(buckets), ..Default::default() }))
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.require_bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(REGION.into()), ..Default::default() }))
    }

    async fn get_bucket_location(&self, request: S3Request<GetBucketLocationInput>) -> Answer<GetBucketLocationOutput> {
        self.require_bucket(&request.input.bucket)?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        self.require_bucket(&request.input.bucket)?;
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }

    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        let bucket = request.input.bucket;
        if !self.folder.make_bucket(&bucket)? {
            return Err(s3_error!(BucketAlreadyOwnedByYou, "the bucket exists"));
        }
        Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{bucket}")) }))
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        self.put(request).await
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        self.copy(request.input).await
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        self.delete(request.input)
    }

    async fn delete_objects(&self, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        self.delete_many(request.input)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        self.create_upload(request.input)
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        self.put_part(request).await
    }

    async fn upload_part_copy(&self, request: S3Request<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        self.copy_part(request.input).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        self.complete(request.input).await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        self.abort(&request.input)
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        self.list_parts_of(request.input)
    }
}

/// The region that everything is in: the one that S3 leaves unnamed.
const REGION: &str = "us-east-1";

impl Service {
    pub fn require_bucket(&self, bucket: &str) -> S3Result<()> {
        if self.folder.has_bucket(bucket) { Ok(()) } else { Err(Refusal::NoBucket.into()) }
    }
}
