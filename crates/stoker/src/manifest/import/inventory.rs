//! An inventory of Amazon S3: `manifest.json` names the data files and their columns.
//!
//! Of a bucket with versions the current ones are taken. Invariant: no file outside the inventory's own folders is read.

use super::csv::{self, Columns};
use super::{Rows, columns};
use block::{Error, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use store::Location;

/// Bytes of a manifest.json: some ten thousand data files of a hundred million objects.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inventory {
    source_bucket: String,
    file_format: String,
    #[serde(default)]
    file_schema: String,
    files: Vec<DataFile>,
}

#[derive(Deserialize)]
struct DataFile {
    key: String,
    #[serde(default)]
    size: Option<u64>,
}

pub fn rows(path: &Path, url: &str) -> Result<Rows> {
    let wrong = |what: String| {
        let error = Error::invalid(what, path.display());
        error.hint("name the manifest.json of an S3 Inventory, a list of keys, or a manifest of Stoker")
    };
    let length = std::fs::metadata(path).map_or(0, |about| about.len());
    if length > MANIFEST_BYTES_MAX {
        return Err(wrong(format!(
            "it has {length} bytes: manifest.json of an inventory has at most {MANIFEST_BYTES_MAX}"
        )));
    }
    let text = std::fs::read(path).map_err(|error| Error::io("the inventory can't be read", path.display(), &error))?;
    let inventory: Inventory = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("it is no manifest.json of an inventory: {error}")))?;
    match url.parse()? {
        Location::S3 { bucket, .. } if bucket == inventory.source_bucket => {}
        Location::S3 { .. } => note!("the inventory is of the bucket {}", inventory.source_bucket),
        _ => return Err(wrong(format!("it is of a bucket of S3, {}", inventory.source_bucket))),
    }
    let files = inventory.files.iter().map(|file| found(path, file)).collect::<Result<Vec<_>>>()?;
    match inventory.file_format.to_ascii_uppercase().as_str() {
        "CSV" => {
            let columns =
                Columns::of(&inventory.file_schema).ok_or_else(|| wrong("its fileSchema has no Key".into()))?;
            Ok(Box::new(files.into_iter().flat_map(move |file| csv::rows(&file, columns).unwrap_or_else(failed))))
        }
        "PARQUET" => Ok(Box::new(files.into_iter().flat_map(|file| columns::rows(&file).unwrap_or_else(failed)))),
        other => {
            let error = Error::invalid(format!("its data files are {other}, which is not read"), path.display());
            Err(error.hint("have the inventory written as Parquet or CSV, or give a list of keys"))
        }
    }
}

fn failed(error: Error) -> Rows {
    Box::new(std::iter::once(Err(error)))
}

/// A data file, where tools that copy an inventory put it: beside its manifest.json, or in the folder `data` next to that.
fn found(manifest: &Path, file: &DataFile) -> Result<PathBuf> {
    let name = file.key.rsplit('/').next().filter(|name| !matches!(*name, "" | "." | "..") && !name.contains('\0'));
    let name =
        name.ok_or_else(|| Error::invalid(format!("it names a data file {:?}", file.key), manifest.display()))?;
    let folder = manifest.parent().unwrap_or(Path::new(""));
    let places = [folder.join(name), folder.join("data").join(name), folder.join("../data").join(name)];
    let Some(path) = places.into_iter().find(|path| path.is_file()) else {
        let error = Error::missing(format!("the data file {name} is not there"), manifest.display());
        let hint = format!("copy {} of the inventory's bucket beside manifest.json, or into a folder `data`", file.key);
        return Err(error.hint(hint));
    };
    let bytes = path.metadata().map_or(0, |about| about.len());
    match file.size {
        Some(size) if size != bytes => {
            let error = Error::corrupt(
                format!("the data file has {bytes} bytes, and manifest.json says {size}"),
                path.display(),
            );
            Err(error.hint("copy it again"))
        }
        _ => Ok(path),
    }
}
