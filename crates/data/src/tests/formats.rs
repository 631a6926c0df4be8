//! What sets of a workload promise: formats that other readers open, the asked sizes, records that check by themselves.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use block::Kind;
use crc_fast::{CrcAlgorithm, checksum};
use targets::{Folder, Store, Target};
use workload::Format;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

use super::super::*;
use super::{THREADS, made, scratch};

fn shape(format: Format, count: u64, samples_per_file: u64, (mean_bytes, stdev_bytes): (u64, u64)) -> Set {
    Set::shaped(Shape::plain(format, count, samples_per_file, Sizes::Normal { mean_bytes, stdev_bytes }), 5)
}

/// Makes a set, checks each record by itself, and that records are all of a file but what the format puts around them.
fn checked(set: &Set, folder: &Path, around: u64) -> Manifest {
    let manifest = made(set, folder);
    let target = Folder::at(folder).unwrap();
    assert_eq!(Manifest::read(&target).unwrap().as_ref(), Some(&manifest));
    for entry in &manifest.files {
        let bytes = fs::read(folder.join(&entry.path)).unwrap();
        entry.check(&bytes).unwrap();
        let records = manifest.records(&target, entry).unwrap();
        for record in &records {
            let at = record.offset as usize;
            assert!(record.check(&bytes[at..at + record.bytes as usize]), "{record:?} of {}", entry.path);
        }
        let last = records.last().unwrap();
        let ends = records[0].offset + (entry.bytes - last.offset - last.bytes);
        assert!(ends == around || around == u64::MAX, "{ends} bytes around the records of {}", entry.path);
    }
    manifest
}

fn masked(bytes: &[u8]) -> u32 {
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[test]
fn tfrecords_have_their_lengths_and_both_checksums() {
    for (sizes, count) in [((2_500, 0), 700), ((300_000, 120_000), 9)] {
        let folder = scratch();
        let manifest = checked(&shape(Format::Tfrecord, 2, count, sizes), folder.path(), 0);
        let file = fs::read(folder.path().join(&manifest.files[1].path)).unwrap();
        let mut rest = &file[..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(u32::from_le_bytes(rest[8..12].try_into().unwrap()), masked(&rest[..8]));
            let example = &rest[12..12 + length];
            assert_eq!(u32::from_le_bytes(rest[12 + length..16 + length].try_into().unwrap()), masked(example));
            assert_eq!(example[0], 0x0a, "features of an example");
            assert!(example.windows(7).take(60).any(|at| at == b"\x0a\x05image"));
            found.push(length as u64 + 16);
            rest = &rest[16 + length..];
        }
        assert_eq!((found.len() as u64, manifest.files[1].samples), (count, count));
        let asked: Vec<u64> =
            shape(Format::Tfrecord, 2, count, sizes).shape.unwrap().sizes(5, 1).map(tfrecord::size).collect();
        assert_eq!(found, asked);
    }
}

#[test]
fn parquet_opens_with_another_reader() {
    for (rows, row_bytes, columns) in [(7_000, 761, 190), (40, 2_000_003, 8), (3, 5, 1)] {
        let folder = scratch();
        let manifest = checked(&shape(Format::Parquet, 1, rows, (row_bytes, 0)), folder.path(), u64::MAX);
        let entry = &manifest.files[0];
        let reader = SerializedFileReader::new(fs::File::open(folder.path().join(&entry.path)).unwrap()).unwrap();
        let about = reader.metadata();
        assert_eq!(about.file_metadata().num_rows(), rows.cast_signed());
        assert_eq!(about.file_metadata().schema_descr().num_columns(), columns);
        assert_eq!(entry.records, (about.num_row_groups() * columns) as u64);
        let target = Folder::at(folder.path()).unwrap();
        let mut records = manifest.records(&target, entry).unwrap().into_iter();
        for group in about.row_groups() {
            for chunk in group.columns() {
                let record = records.next().unwrap();
                assert_eq!(chunk.byte_range(), (record.offset, record.bytes));
            }
        }
        let mut count = 0;
        for row in reader.get_row_iter(None).unwrap() {
            let width = |field: &Field| match field {
                Field::Int(_) => 4,
                Field::Bytes(bytes) => bytes.len() as u64,
                other => panic!("{other:?}"),
            };
            assert_eq!(row.unwrap().get_column_iter().map(|(_, field)| width(field)).sum::<u64>(), row_bytes);
            count += 1;
        }
        assert_eq!(count, rows);
    }
}

#[test]
fn arrays_are_npy_files_of_the_asked_sizes() {
    let folder = scratch();
    let set = shape(Format::Npy, 5, 1, (90_000, 30_000));
    let manifest = made(&set, folder.path());
    let asked = |file: usize| set.shape.as_ref().unwrap().sizes(5, file as u64).next().unwrap();
    for (number, entry) in manifest.files.iter().enumerate() {
        let bytes = fs::read(folder.path().join(&entry.path)).unwrap();
        entry.check(&bytes).unwrap();
        assert_eq!((bytes.len() as u64, entry.records), (asked(number), 0), "{}", entry.path);
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let head = std::str::from_utf8(&bytes[10..128]).unwrap();
        let right = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}", bytes.len() - 128);
        assert_eq!((head.trim_end(), head.ends_with('\n')), (&*right, true));
        assert!(entry.path.ends_with(&format!("array_{number:05}.npy")));
    }
    assert_eq!(manifest.files.len(), 5);
}

#[test]
fn named_columns_have_their_names_widths_and_row_groups() {
    let mut files = workload::shipped("dlrm").unwrap().files;
    (files.count, files.samples_per_file, files.group_rows) = (1, 70, Some(32));
    let folder = scratch();
    let manifest = checked(&Set::shaped(Shape::of(&files, 1), 5), folder.path(), u64::MAX);
    let path = folder.path().join(&manifest.files[0].path);
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let rows: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(rows, [32, 32, 6]);
    let width = |field: &Field| match field {
        Field::Int(_) => 4,
        Field::Bytes(bytes) => bytes.len() as u64,
        other => panic!("{other:?}"),
    };
    let wanted: Vec<(String, u64)> =
        files.named_columns().into_iter().map(|column| (column.name, column.bytes)).collect();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let found: Vec<(String, u64)> =
            row.get_column_iter().map(|(name, field)| (name.clone(), width(field))).collect();
        assert_eq!(found, wanted);
    }
    // Which of them are read changes nothing of what is made.
    let mut all = files.clone();
    all.columns[0].read = None;
    assert_eq!(Shape::of(&all, 1), Shape::of(&files, 1));
}

#[test]
fn shards_are_tar_files_of_samples_and_their_pictures_decode() {
    let folder = scratch();
    let manifest = checked(&shape(Format::Tar, 2, 12, (60_000, 20_000)), folder.path(), 1_024);
    let mut shard = ::tar::Archive::new(fs::File::open(folder.path().join(&manifest.files[1].path)).unwrap());
    let mut names = Vec::new();
    for member in shard.entries().unwrap() {
        let mut member = member.unwrap();
        let name = member.path().unwrap().to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut member, &mut bytes).unwrap();
        if name.ends_with(".jpg") {
            JpegDecoder::new(ZCursor::new(&bytes)).decode().unwrap();
        }
        names.push(name);
    }
    assert_eq!(names.len(), 24);
    assert_eq!(names[..2], ["000000012.jpg", "000000012.cls"]);
    assert!((40_000..80_000).contains(&(manifest.bytes() / 24)), "{}", manifest.bytes());
}

#[test]
fn pictures_and_raw_files_have_exactly_the_asked_sizes() {
    let folder = scratch();
    let set = shape(Format::Jpeg, 40, 1, (100_000, 40_000));
    let manifest = checked(&set, folder.path(), 0);
    for file in 0..40 {
        let asked = set.shape.as_ref().unwrap().sizes(5, file).next().unwrap();
        let path = set.shape.as_ref().unwrap().path(file);
        let bytes = fs::read(folder.path().join(&path)).unwrap();
        assert!(bytes.len() as u64 == asked || asked < 10_000, "{path}: {} instead of {asked}", bytes.len());
        JpegDecoder::new(ZCursor::new(&bytes)).decode().unwrap();
    }
    assert_eq!(manifest.files.len(), 40);
    let folder = scratch();
    let sizes = shape(Format::Raw, 2, 3, (5_000, 2_000));
    let manifest = checked(&sizes, folder.path(), 0);
    assert_eq!(manifest.files[0].bytes, sizes.shape.unwrap().sizes(5, 0).sum::<u64>());
}

#[test]
fn volumes_of_a_workload_vary_in_size() {
    let folder = scratch();
    let manifest = checked(&shape(Format::Npz, 6, 1, (500_000, 200_000)), folder.path(), 0);
    let sizes: std::collections::HashSet<u64> = manifest.files.iter().map(|file| file.bytes).collect();
    assert!(sizes.len() > 3, "{sizes:?}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_of_a_workload_for_ever() {
    let found = [
        shape(Format::Tfrecord, 1, 30, (2_500, 500)),
        shape(Format::Parquet, 1, 300, (761, 0)),
        shape(Format::Raw, 1, 2, (300_000, 100)),
        shape(Format::Tar, 1, 3, (20_000, 5_000)),
    ]
    .map(|set| {
        let (one, other) = (scratch(), scratch());
        let manifest = made(&set, one.path());
        assert_eq!(generate(&set, other.path(), 1, &|_| ()).unwrap(), manifest);
        format!("{:016x}", manifest.files[0].crc64)
    });
    // Whoever changes these raises `FORMAT` in `manifest`.
    assert_eq!(found, ["94069d16de826a84", "c89d0c39618a3fa3", "9e3480dce31107c0", "a322d1a12cddfba0"]);
}

#[test]
fn a_lost_file_and_its_index_are_made_again() {
    let folder = scratch();
    let set = shape(Format::Tfrecord, 3, 20, (3_000, 900));
    let manifest = made(&set, folder.path());
    fs::remove_file(folder.path().join(&manifest.files[1].path)).unwrap();
    fs::remove_dir_all(folder.path().join(INDEXES)).unwrap();
    assert_eq!(checked(&set, folder.path(), 0), manifest);
}

#[test]
fn a_likeness_has_the_sizes_of_the_real_folder() {
    let (real, alike) = (scratch(), scratch());
    for (name, bytes) in [("a.JPG", 20_000), ("b/c.jpg", 33_333), ("d.txt", 70_001)] {
        fs::create_dir_all(real.path().join("b")).unwrap();
        fs::write(real.path().join(name), vec![1; bytes]).unwrap();
    }
    let shape = likeness::of(&Folder::at(real.path()).unwrap(), None).unwrap();
    assert_eq!((shape.format, shape.count), (Format::Jpeg, 3));
    let manifest = made(&Set::shaped(shape, 1), alike.path());
    let mut sizes: Vec<u64> = manifest.files.iter().map(|file| file.bytes).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [20_000, 33_333, 70_001]);
    let empty = scratch();
    assert_eq!(likeness::of(&Folder::at(empty.path()).unwrap(), None).unwrap_err().kind, Kind::Missing);
}

#[test]
fn copies_have_new_names_and_the_same_bytes() {
    let (own, copies) = (scratch(), scratch());
    fs::create_dir(own.path().join("x")).unwrap();
    for (name, text) in [("x/1.jpg", "one"), ("x/1.cls", "7"), ("x/2.jpg", "two"), ("x/empty.jpg", "")] {
        fs::write(own.path().join(name), text).unwrap();
    }
    let set = Set::replicated(Replica::of(own.path(), 3, None).unwrap());
    let manifest = checked(&set, copies.path(), 0);
    assert_eq!(manifest.files.len(), 12);
    assert_eq!(fs::read(copies.path().join("train/copy_0002/x/1.jpg")).unwrap(), b"one");

    let shards = scratch();
    let set = Set::replicated(Replica::of(own.path(), 3, Some((2, Format::Tar))).unwrap());
    let manifest = checked(&set, shards.path(), 1_024);
    assert_eq!(manifest.files.iter().map(|file| file.samples).sum::<u64>(), 9, "1.cls and 1.jpg are one sample");
    let records = scratch();
    let set = Set::replicated(Replica::of(own.path(), 3, Some((2, Format::Tfrecord))).unwrap());
    let manifest = checked(&set, records.path(), 0);
    assert_eq!(manifest.files.iter().map(|file| file.samples).sum::<u64>(), 12);

    fs::write(own.path().join("x/2.jpg"), "longer").unwrap();
    let error = generate(&set, scratch().path(), THREADS, &|_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Changed, "{error}");
    assert!(Replica::of(own.path(), 1, Some((5, Format::Tar))).is_err(), "more shards than samples");
}

#[test]
fn a_set_goes_to_a_store_and_back_and_every_byte_is_compared() {
    let (folder, back) = (scratch(), scratch());
    let set = shape(Format::Tfrecord, 3, 50, (3_000, 900));
    let manifest = made(&set, folder.path());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let memory = Arc::new(store::Memory::new("sync"));
    let both: (Arc<dyn store::Store>, Arc<dyn store::Sink>) = (memory.clone(), Arc::new(memory.clone()));
    let target = Store::over("memory://sync", "set/", both, runtime.handle().clone(), 1);
    let (from, to) = (Folder::at(folder.path()).unwrap(), Folder::at(back.path()).unwrap());
    copy(&manifest, &from, target.writable().unwrap(), THREADS, &|_| ()).unwrap();
    assert_eq!(target.list().unwrap().len(), 3, "manifest and indexes are no data");
    assert_eq!(Manifest::read(&target).unwrap().as_ref(), Some(&manifest));
    assert!(verify(&manifest, &target, THREADS, &|_| ()).unwrap().is_empty());
    copy(&manifest, &target, to.writable().unwrap(), THREADS, &|_| ()).unwrap();
    assert_eq!(made(&set, back.path()), manifest, "it counts as made there");
    let spoilt = format!("set/{}", manifest.files[1].path);
    memory.put(&spoilt, vec![0; manifest.files[1].bytes as usize]);
    assert_eq!(verify(&manifest, &target, THREADS, &|_| ()).unwrap().len(), 1);
    let error = copy(&manifest, &target, to.writable().unwrap(), THREADS, &|_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Corrupt, "{error}");
    assert_eq!(Manifest::read(&to).unwrap_err().kind, Kind::Missing, "what is not whole is not finished");
}

#[test]
fn shapes_that_make_no_sense_are_refused() {
    for set in [
        shape(Format::Tar, 0, 1, (1, 0)),
        shape(Format::Jpeg, 1, 2, (100_000, 0)),
        shape(Format::Jpeg, 1, 1, (100, 0)),
        shape(Format::Npz, 1, 1, (1 << 33, 0)),
        shape(Format::Parquet, 1, 1, (100, 5)),
        shape(Format::Npy, 1, 2, (1_000, 0)),
    ] {
        let error = generate(&set, Path::new("/"), THREADS, &|_| ()).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{set:?}");
    }
}
