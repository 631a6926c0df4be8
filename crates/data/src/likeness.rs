//! The shape of a real folder: how many files of which sizes, and of which format.
//!
//! It reads no content. Invariant: the made set has as many files, and each size that was found (of very many, every
//! so-many-th), which formats made of pieces meet to the nearest piece.

use block::{Error, Result};
use targets::{Listed, Target};
use workload::{Files, Format};

use super::shape::{Shape, Sizes};

/// Sizes that are kept; those of more files are sampled evenly.
const SIZES_MAX: usize = 100_000;

/// The shape of what lies in a target. A workload says what the samples in packed files are.
pub fn of(target: &dyn Target, samples: Option<&Files>) -> Result<Shape> {
    let found = target.list()?;
    if found.is_empty() {
        return Err(Error::missing("there is no file to take sizes from", target.url()).hint("name a folder with data"));
    }
    let format = format(&found);
    let count = found.len() as u64;
    let mean = found.iter().map(|file| u128::from(file.bytes)).sum::<u128>() / u128::from(count);
    let packed = samples.filter(|files| files.format == format && files.samples_per_file > 1);
    if let Some(files) = packed {
        // Files of records: as many records of the workload's size as a file of the folder holds.
        let samples_per_file = (mean as f64 / files.sample_bytes).round().max(1.0) as u64;
        return Ok(Shape { samples_per_file, ..Shape::of(files, count) });
    }
    let format = if matches!(format, Format::Tfrecord | Format::Tar | Format::Parquet) { Format::Raw } else { format };
    let every = found.len().div_ceil(SIZES_MAX);
    let sizes = Sizes::Like(found.iter().step_by(every).map(|file| file.bytes).collect());
    let shape = Shape::plain(format, count, 1, sizes);
    // Pictures outside of what can be painted: the sizes count, not what is in the files.
    Ok(if format == Format::Jpeg && !shape.has_pictures() { Shape { format: Format::Raw, ..shape } } else { shape })
}

/// The format of most files, by their names.
fn format(found: &[Listed]) -> Format {
    let by_name = |file: &Listed| match file.name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" => Format::Jpeg,
        "npz" => Format::Npz,
        "npy" => Format::Npy,
        "tfrecord" | "tfrecords" => Format::Tfrecord,
        "tar" => Format::Tar,
        "parquet" => Format::Parquet,
        _ => Format::Raw,
    };
    let all = [Format::Jpeg, Format::Npz, Format::Npy, Format::Tfrecord, Format::Tar, Format::Parquet, Format::Raw];
    let votes = |format: &Format| found.iter().filter(|file| by_name(file) == *format).count();
    all.into_iter().max_by_key(votes).expect("there are seven")
}
