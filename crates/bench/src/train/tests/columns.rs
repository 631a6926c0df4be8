//! Parquet sets through the whole loop: what is read are the columns that are wanted, and all of it is checked.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use data::{Manifest, Record};

/// One accelerator with one stream, so that no row group is read by two.
fn job(files: &Files, batch: u64, order: Order) -> Job {
    let mut job = super::job(1, 0.0005);
    job.workload.files = files.clone();
    let read = &mut job.workload.read;
    (read.batch, read.threads, read.prefetch_batches, read.order) = (batch, 1, 2, order);
    job
}

fn files(samples_per_file: u64, sample_bytes: u64, read: Option<u64>) -> Files {
    Files {
        format: Format::Parquet,
        count: 2,
        samples_per_file,
        sample_bytes: sample_bytes as f64,
        sample_bytes_stdev: 0.0,
        sample_bytes_read: read.map(|read| read as f64),
        ..Files::default()
    }
}

/// A set of that shape, and its columns: of each file, of each row group.
fn made(files: &Files, folder: &Path, columns: usize) -> Vec<Vec<Vec<Record>>> {
    let set = data::Set::shaped(data::Shape::of(files, files.count), 7);
    let manifest = data::generate(&set, folder, 2, &|_| ()).unwrap();
    let target = Folder::at(folder).unwrap();
    let groups = |entry: &data::Entry| -> Vec<Vec<Record>> {
        manifest.records(&target, entry).unwrap().chunks(columns).map(<[Record]>::to_vec).collect()
    };
    manifest.files.iter().map(groups).collect()
}

fn epoch(job: &Job, folder: &Path) -> Result<Epoch> {
    let target = Folder::at(folder)?;
    let set = Set::of(&target, &job.workload.files, 2)?;
    let checks = Manifest::read(&target)?.map(|manifest| Checks::of(&manifest, &target, &set, 2)).transpose()?;
    with_outside(|outside| {
        let checks = checks.unwrap_or_default();
        let bench = Bench { job, target: &target, set: &set, checks: &checks, outside, probe: None };
        Ok(bench.epoch(0, false, "a test")?.expect("the only rank is rank 0").0)
    })
}

fn flip(folder: &Path, at: u64) {
    let path = folder.join("train/part-00001.parquet");
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn wanted_columns_are_read_once_and_all_verified() {
    // Rows of DLRM, of which 40 of 190 columns are read, in batches that end inside of row groups; one column; and rows
    // of Flux, of which all is read.
    for (files, batch, columns, wanted) in [
        (files(20_000, 761, Some(160)), 2_000, 190, 40),
        (files(20_000, 761, Some(1)), 10_000, 190, 1),
        (files(40, 2_164_832, None), 8, 8, 8),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let records = made(&files, folder.path(), columns);
        let sum: u64 = records.iter().flatten().flat_map(|group| &group[..wanted]).map(|record| record.bytes).sum();
        for order in [Order::Shards, Order::Sequential] {
            let epoch = epoch(&job(&files, batch, order), folder.path()).unwrap();
            assert_eq!(epoch.samples, 2 * files.samples_per_file);
            assert_eq!((epoch.bytes["asked"], epoch.bytes["verified"]), (sum, sum), "{files:?} {order:?}");
        }
        // In an order by chance all that is wanted of a row group is read for a row, and the bound knows it.
        let mut by_chance = job(&files, 5, Order::Shuffled);
        by_chance.workload.read.steps_max = Some(16);
        let found = epoch(&by_chance, folder.path()).unwrap();
        assert_eq!(found.bytes["asked"], found.bytes["verified"]);
        let set = Set::of(&Folder::at(folder.path()).unwrap(), &files, 2).unwrap();
        let demanded = found.samples as f64 * by_chance.demand(&set).sample_bytes;
        assert!((0.85..1.15).contains(&(found.bytes["asked"] as f64 / demanded)), "{demanded} of {found:?}");
    }
}

#[test]
fn a_changed_byte_is_found_in_a_wanted_column_and_not_read_in_another() {
    let files = files(20_000, 761, Some(160));
    let folder = tempfile::tempdir().unwrap();
    let records = made(&files, folder.path(), 190);
    let last = records[1].last().unwrap();
    let job = job(&files, 4_000, Order::Shards);
    flip(folder.path(), last[40].offset);
    epoch(&job, folder.path()).unwrap();
    flip(folder.path(), last[39].offset + last[39].bytes - 1);
    let error = epoch(&job, folder.path()).unwrap_err();
    assert_eq!((error.kind, error.on.as_str()), (block::Kind::Corrupt, "train/part-00001.parquet"), "{error}");
    assert!(error.what.contains(&last[0].offset.to_string()), "{error}");
}

#[test]
fn a_footer_that_contradicts_the_manifest_is_refused() {
    let files = files(100, 400, Some(40));
    let folder = tempfile::tempdir().unwrap();
    let records = made(&files, folder.path(), 100);
    let job = job(&files, 10, Order::Shards);
    let target = Folder::at(folder.path()).unwrap();
    let end = target.stat("train/part-00001.parquet").unwrap().bytes;
    let footer = records[1][0].last().unwrap();
    let (mut refused, mut harmless) = (0, 0);
    for at in (footer.offset + footer.bytes..end).step_by(41) {
        flip(folder.path(), at);
        match epoch(&job, folder.path()) {
            Err(error) => refused += u64::from(error.kind == block::Kind::Corrupt),
            // Names, types and numbers of values say nothing of where bytes lie.
            Ok(epoch) => harmless += u64::from(epoch.bytes["asked"] == epoch.bytes["verified"]),
        }
        flip(folder.path(), at);
    }
    assert!(refused > 10 && harmless > 10, "{refused} and {harmless}");
    assert_eq!(refused + harmless, (end - footer.offset - footer.bytes).div_ceil(41));
}

/// Rows as MLPerf Storage has them for DLRM.
fn dlrm(samples_per_file: u64, group_rows: u64) -> Files {
    let files = workload::shipped("dlrm").unwrap().files;
    Files { count: 2, samples_per_file, group_rows: Some(group_rows), ..files }
}

#[test]
fn scattered_columns_are_read_where_they_lie_and_verified() {
    let files = dlrm(5_000, 2_048);
    let folder = tempfile::tempdir().unwrap();
    let records = made(&files, folder.path(), 200);
    let named = files.named_columns();
    let is_wanted = |place: &usize| named[*place].is_read;
    let wanted = |group: &Vec<Record>| -> u64 { (0..200).filter(is_wanted).map(|place| group[place].bytes).sum() };
    let sum: u64 = records.iter().flatten().map(wanted).sum();
    let mut job = job(&files, 1_000, Order::Shards);
    let found = epoch(&job, folder.path()).unwrap();
    assert_eq!((found.bytes["asked"], found.bytes["verified"]), (sum, sum));
    // Three row groups a file, of 29 ranges each: columns that lie side by side are one, and no gap is read.
    let mut set = Set::of(&Folder::at(folder.path()).unwrap(), &files, 2).unwrap();
    assert_eq!(set.groups.map(|groups| (groups.groups, groups.ranges)), Some((6, 6 * 29)));
    assert_eq!(files.ranges_of_row().len(), 29);
    // Of a store a stream reads a row group again that another had before it; of a folder too, and the kernel keeps it.
    (set.piece, job.workload.read.threads, job.workload.read.prefetch_batches) = (REQUEST, 4, 4);
    for order in [Order::Shards, Order::Sequential] {
        job.workload.read.order = order;
        let asked = epoch(&job, folder.path()).unwrap().bytes["asked"] as f64;
        let times = job.demand(&set).sample_bytes / set.sample_bytes();
        assert!((times / (asked / sum as f64) - 1.0).abs() < 0.1, "{order:?}: {times} for {}", asked / sum as f64);
    }
    // A changed byte is found in a column that is read, and in none beside it.
    let last = records[1].last().unwrap();
    let read = (0..200).find(is_wanted).unwrap();
    flip(folder.path(), last[read - 1].offset + last[read - 1].bytes - 1);
    flip(folder.path(), last[read + 1].offset);
    epoch(&super::columns::job(&files, 1_000, Order::Shards), folder.path()).unwrap();
    flip(folder.path(), last[read].offset);
    let error = epoch(&super::columns::job(&files, 1_000, Order::Shards), folder.path()).unwrap_err();
    assert_eq!((error.kind, error.on.as_str()), (block::Kind::Corrupt, "train/part-00001.parquet"), "{error}");
}

#[test]
fn a_set_without_the_columns_of_a_workload_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    made(&files(100, 761, None), folder.path(), 190);
    let error = Set::of(&Folder::at(folder.path()).unwrap(), &dlrm(100, 10), 2).err().unwrap();
    assert!(error.what.contains("no column `feature_011`") && error.on.starts_with("train/part-"), "{error}");
}

#[test]
fn a_set_without_a_manifest_is_read_by_its_footers() {
    let files = files(20_000, 761, Some(160));
    let folder = tempfile::tempdir().unwrap();
    let records = made(&files, folder.path(), 190);
    fs::remove_file(folder.path().join(data::MANIFEST)).unwrap();
    let sum: u64 = records.iter().flatten().flat_map(|group| &group[..40]).map(|record| record.bytes).sum();
    let epoch = epoch(&job(&files, 4_000, Order::Shards), folder.path()).unwrap();
    assert_eq!((epoch.bytes["asked"], epoch.bytes["verified"]), (sum, 0));
}
