//! Multipart uploads: parts wait in a hidden folder of their bucket until they are joined.
//!
//! Invariant: parts are never listed as objects; an upload that was completed or aborted leaves nothing.

use crate::body::Content;
use crate::copy::{append, source_conditions};
use crate::draft::{Draft, ObjectName};
use crate::folder::{Opened, Refusal};
use crate::metadata::{Metadata, metadata_of};
use crate::read::signed;
use crate::service::Service;
use crate::version::Version;
use crate::write::{Incoming, Trailers, claims_of, permitted};
use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

/// Uploads under way, within their bucket and so on its file system.
const UPLOADS: &str = ".stoker/uploads";

/// The file that holds the key of an upload, and as attributes its metadata.
const KEY: &str = "key";

/// Parts of an upload, and the least length of all but the last, as S3 has them.
const PARTS_MAX: i32 = 10_000;
const PART_BYTES_MIN: u64 = 5 << 20;

/// An upload as a client names it.
struct Upload<'a> {
    bucket: &'a str,
    key: &'a str,
    id: &'a str,
}

impl Upload<'_> {
    fn path(&self, name: &str) -> String {
        format!("{UPLOADS}/{}/{name}", self.id)
    }
}

fn no_upload() -> S3Error {
    s3_error!(
        NoSuchUpload,
        "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
    )
}

fn part_name(number: i32) -> S3Result<String> {
    if (1..=PARTS_MAX).contains(&number) {
        Ok(format!("{number:05}"))
    } else {
        Err(s3_error!(InvalidArgument, "part numbers are from 1 to 10000"))
    }
}

impl Service {
    pub fn create_upload(
        &self,
        mut input: CreateMultipartUploadInput,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let metadata = metadata_of!(input);
        let mut draft = self.folder.draft(&input.bucket)?;
        draft.write(input.key.as_bytes()).map_err(Refusal::from)?;
        metadata.save(&draft.file)?;
        let id = format!("{:x}-{}", self.clock.wall(), draft.name());
        let folder = self.folder.make_folders(&input.bucket, &format!("{UPLOADS}/{id}"))?;
        draft.move_to(&folder, KEY)?;
        let output = CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }

    /// The metadata of an upload, if there is one with this id for this key.
    fn upload(&self, upload: &Upload<'_>) -> S3Result<Metadata> {
        self.require_bucket(upload.bucket)?;
        if upload.id.is_empty() || !upload.id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err(no_upload());
        }
        let opened =
            self.folder.open_file(&self.folder.path(upload.bucket, &upload.path(KEY))?).map_err(|_| no_upload())?;
        let metadata = Metadata::load(&opened.file);
        let key = std::io::read_to_string(std::fs::File::from(opened.file)).map_err(crate::read::failed)?;
        if key == upload.key { Ok(metadata) } else { Err(no_upload()) }
    }

    fn part(&self, upload: &Upload<'_>, number: i32) -> S3Result<Opened> {
        let path = self.folder.path(upload.bucket, &upload.path(&part_name(number)?))?;
        self.folder
            .open_file(&path)
            .map_err(|_| s3_error!(InvalidPart, "One or more of the specified parts could not be found."))
    }

    fn keep_part(&self, upload: &Upload<'_>, number: i32, draft: Draft) -> S3Result<Version> {
        let name = part_name(number)?;
        let folder = self
            .folder
            .open_folder(&self.folder.path(upload.bucket, &format!("{UPLOADS}/{}", upload.id))?)
            .map_err(|_| no_upload())?;
        self.folder.stamp(&draft.file, self.clock.wall())?;
        let version = Version::of(&rustix::fs::fstat(&draft.file).map_err(Refusal::from)?);
        draft.move_to(&folder, &name)?;
        Ok(version)
    }

    pub async fn put_part(&self, mut request: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let trailers = Trailers::of(&request);
        let input = &mut request.input;
        let incoming = Incoming { claims: claims_of!(input), trailers, body: input.body.take() };
        let upload = Upload { bucket: &input.bucket, key: &input.key, id: &input.upload_id };
        self.upload(&upload)?;
        part_name(input.part_number)?;
        let received = self.receive(upload.bucket, incoming).await?;
        let version = self.keep_part(&upload, input.part_number, received.draft)?;
        self.checksums.keep(version, received.checksum);
        let checksum = Some(crate::checksums::base64(received.checksum));
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(version.etag())),
            checksum_crc64nvme: checksum,
            ..Default::default()
        }))
    }

    pub async fn copy_part(&self, mut input: UploadPartCopyInput) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let conditions = source_conditions!(input);
        let upload = Upload { bucket: &input.bucket, key: &input.key, id: &input.upload_id };
        self.upload(&upload)?;
        let opened = self.source(&input.copy_source, &conditions)?;
        let invalid = |_| s3_error!(InvalidRange, "the range of the source is not satisfiable");
        let range = match input.copy_source_range.as_deref() {
            None => 0..opened.version.size,
            Some(text) => Range::parse(text)
                .map_err(|_| s3_error!(InvalidArgument, "x-amz-copy-source-range"))?
                .check(opened.version.size)
                .map_err(invalid)?,
        };
        let draft = append(self.folder.draft(upload.bucket)?, opened, range).await?;
        let version = self.keep_part(&upload, input.part_number, draft)?;
        let result = CopyPartResult {
            e_tag: Some(ETag::Strong(version.etag())),
            last_modified: Some(version.modified_at().into()),
            ..Default::default()
        };
        Ok(S3Response::new(UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() }))
    }

    pub async fn complete(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let upload = Upload { bucket: &input.bucket, key: &input.key, id: &input.upload_id };
        let metadata = self.upload(&upload)?;
        let named = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let parts = self.chosen(&upload, &named)?;
        let mut draft = self.folder.draft(upload.bucket)?;
        for part in parts {
            let range = 0..part.version.size;
            draft = append(draft, part, range).await?;
        }
        if let Some(claimed) = &input.checksum_crc64nvme {
            self.check_whole(&draft, claimed).await?;
        }
        let place = ObjectName { bucket: upload.bucket, key: upload.key };
        let allowed =
            |current: Option<Version>| permitted(input.if_match.as_ref(), input.if_none_match.as_ref(), current);
        let version = self.folder.place(draft, place, &metadata, self.clock.wall(), allowed)?;
        self.forget(&upload);
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket.clone()),
            e_tag: Some(ETag::Strong(version.etag())),
            key: Some(input.key.clone()),
            ..Default::default()
        }))
    }

    /// The parts that a client wants joined, if they are there and in order.
    fn chosen(&self, upload: &Upload<'_>, named: &[CompletedPart]) -> S3Result<Vec<Opened>> {
        if named.is_empty() {
            return Err(s3_error!(MalformedXML, "an upload has at least one part"));
        }
        let numbers: Vec<i32> = named.iter().map(|part| part.part_number.unwrap_or(0)).collect();
        if !numbers.is_sorted_by(|left, right| left < right) {
            return Err(s3_error!(InvalidPartOrder, "The list of parts was not in ascending order."));
        }
        let mut parts = Vec::with_capacity(named.len());
        for (index, (named, number)) in named.iter().zip(numbers).enumerate() {
            let part = self.part(upload, number)?;
            if named.e_tag.as_ref().is_none_or(|etag| etag.value() != part.version.etag()) {
                return Err(s3_error!(InvalidPart, "the etag of part {number} is not that of the part"));
            }
            if index > 0 && parts.last().is_some_and(|before: &Opened| before.version.size < PART_BYTES_MIN) {
                return Err(s3_error!(EntityTooSmall, "Your proposed upload is smaller than the minimum allowed size"));
            }
            parts.push(part);
        }
        Ok(parts)
    }

    async fn check_whole(&self, draft: &Draft, claimed: &str) -> S3Result<()> {
        let file = draft.file.try_clone().map_err(crate::read::failed)?;
        let version = Version::of(&rustix::fs::fstat(&file).map_err(Refusal::from)?);
        let content = Content::new(Opened { file: file.into(), version }, 0..version.size, self.pool.clone());
        let found = crate::checksums::base64(content.checksum().await.map_err(crate::read::failed)?);
        if found == claimed {
            Ok(())
        } else {
            Err(s3_error!(BadDigest, "the checksum of the whole object did not match"))
        }
    }

    pub fn abort(&self, input: &AbortMultipartUploadInput) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let upload = Upload { bucket: &input.bucket, key: &input.key, id: &input.upload_id };
        self.upload(&upload)?;
        self.forget(&upload);
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    pub fn list_parts_of(&self, input: ListPartsInput) -> S3Result<S3Response<ListPartsOutput>> {
        let upload = Upload { bucket: &input.bucket, key: &input.key, id: &input.upload_id };
        self.upload(&upload)?;
        let after = input.part_number_marker.unwrap_or(0);
        let limit = usize::try_from(input.max_parts.unwrap_or(1000)).unwrap_or(0).min(1000);
        let path = self.folder.path(upload.bucket, &format!("{UPLOADS}/{}", upload.id))?;
        let names = self.folder.entries(&path, self.clock.wall())?;
        let numbers = names.iter().filter_map(|entry| entry.part.parse::<i32>().ok()).filter(|number| *number > after);
        let mut parts: Vec<Part> = numbers
            .take(limit + 1)
            .filter_map(|number| Some(described(number, self.part(&upload, number).ok()?.version)))
            .collect();
        let more = parts.len() > limit;
        parts.truncate(limit);
        Ok(S3Response::new(ListPartsOutput {
            next_part_number_marker: parts.last().and_then(|part| part.part_number),
            parts: (!parts.is_empty()).then_some(parts),
            is_truncated: Some(more),
            max_parts: Some(limit as i32),
            part_number_marker: Some(after),
            bucket: Some(input.bucket.clone()),
            key: Some(input.key.clone()),
            upload_id: Some(input.upload_id.clone()),
            ..Default::default()
        }))
    }

    /// Whoever aborts twice finds nothing; a file that cannot be removed is only space lost.
    fn forget(&self, upload: &Upload<'_>) {
        use rustix::fs::{AtFlags, unlinkat};
        let path = |within: &str| self.folder.path(upload.bucket, within);
        let Ok(above) = path(UPLOADS).and_then(|path| self.folder.open_folder(&path)) else { return };
        let Ok(folder) = path(&format!("{UPLOADS}/{}", upload.id)).and_then(|path| self.folder.open_folder(&path))
        else {
            return;
        };
        let _ = unlinkat(&folder, KEY, AtFlags::empty());
        for entry in rustix::fs::Dir::read_from(&folder).into_iter().flatten().flatten() {
            let _ = unlinkat(&folder, entry.file_name(), AtFlags::empty());
        }
        let _ = unlinkat(&above, upload.id, AtFlags::REMOVEDIR);
    }
}

fn described(number: i32, version: Version) -> Part {
    Part {
        part_number: Some(number),
        e_tag: Some(ETag::Strong(version.etag())),
        size: Some(signed(version.size)),
        last_modified: Some(version.modified_at().into()),
        ..Default::default()
    }
}
