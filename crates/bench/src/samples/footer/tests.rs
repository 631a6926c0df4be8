//! Footers of others and of nobody: files of another writer, random bytes, bytes that were changed.

// One range of bytes is one column, not a list of bytes.
#![allow(clippy::single_range_in_vec_init)]

use std::sync::Arc;

use ::parquet::basic::Compression;
use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use bytes::Bytes;
use data::noise::Chance;

use super::*;

struct Held(Vec<u8>);

impl Opened for Held {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

fn of(bytes: &[u8], share: f64) -> Result<Vec<Group>> {
    let listed = Listed { name: "a.parquet".into(), bytes: bytes.len() as u64 };
    groups(&listed, &mut Held(bytes.to_vec()), &Wanted::Share(share))
}

/// A file of another writer, with dictionaries, nested names, statistics and indexes of pages.
fn another(groups: usize, rows: usize) -> Vec<u8> {
    let message = "message m { required int64 number; required binary text (UTF8);
        required group inside { optional int64 depth; } }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    for group in 0..groups {
        let numbers: Vec<i64> = (0..rows as i64).map(|row| row * 7 + group as i64).collect();
        let texts: Vec<ByteArray> =
            (0..rows).map(|row| ByteArray::from(format!("text {}", row % 5).as_str())).collect();
        let mut into = writer.next_row_group().unwrap();
        for column in 0..3 {
            let mut next = into.next_column().unwrap().unwrap();
            match column {
                1 => next.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap(),
                0 => next.typed::<Int64Type>().write_batch(&numbers, None, None).unwrap(),
                _ => next.typed::<Int64Type>().write_batch(&numbers, Some(&vec![1; rows]), None).unwrap(),
            };
            next.close().unwrap();
        }
        into.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

#[test]
fn columns_lie_where_another_reader_finds_them() {
    for (count, rows) in [(1, 3), (4, 1000), (900, 2)] {
        let bytes = another(count, rows);
        let reader = SerializedFileReader::new(Bytes::from(bytes.clone())).unwrap();
        let groups = of(&bytes, 1.0).unwrap();
        assert_eq!(groups.len(), count);
        for (number, (group, about)) in groups.iter().zip(reader.metadata().row_groups()).enumerate() {
            assert_eq!(group.rows, (number * rows) as u64..((number + 1) * rows) as u64);
            let whole: u64 = group.ranges.iter().map(|range| range.end - range.start).sum();
            let (start, _) = about.column(0).byte_range();
            assert_eq!((group.ranges[0].start, whole), (start, about.compressed_size() as u64));
        }
        let first: u64 = reader.metadata().row_groups().iter().map(|about| about.column(0).byte_range().1).sum();
        let whole: i64 = reader.metadata().row_groups().iter().map(|about| about.compressed_size()).sum();
        let groups = of(&bytes, first as f64 / whole as f64).unwrap();
        for (group, about) in groups.iter().zip(reader.metadata().row_groups()) {
            let (start, length) = about.column(0).byte_range();
            assert_eq!(group.ranges, [start..start + length], "the first column is what is wanted");
        }
    }
}

#[test]
fn columns_are_chosen_by_name_where_they_lie() {
    let bytes = another(3, 50);
    let listed = Listed { name: "a.parquet".into(), bytes: bytes.len() as u64 };
    let reader = SerializedFileReader::new(Bytes::from(bytes.clone())).unwrap();
    let of = |names: &[&str]| {
        let wanted = Wanted::Named(names.iter().map(|name| (*name).to_owned()).collect());
        groups(&listed, &mut Held(bytes.clone()), &wanted)
    };
    let placed = |places: &[usize]| -> Vec<Vec<Range<u64>>> {
        let range = |about: &::parquet::file::metadata::RowGroupMetaData, place: usize| {
            let (start, length) = about.column(place).byte_range();
            start..start + length
        };
        reader
            .metadata()
            .row_groups()
            .iter()
            .map(|about| places.iter().map(|place| range(about, *place)).collect())
            .collect()
    };
    let ranges =
        |groups: Vec<Group>| -> Vec<Vec<Range<u64>>> { groups.into_iter().map(|group| group.ranges).collect() };
    // A nested column by what it is in; two that don't touch are two ranges, and two that do are one.
    assert_eq!(ranges(of(&["inside"]).unwrap()), placed(&[2]));
    assert_eq!(ranges(of(&["inside", "number"]).unwrap()), placed(&[0, 2]));
    let whole = of(&["text", "inside"]).unwrap();
    for (group, apart) in whole.iter().zip(placed(&[1, 2])) {
        assert_eq!(group.ranges, [apart[0].start..apart[1].end]);
    }
    let error = of(&["number", "depth"]).unwrap_err();
    assert!(error.what.contains("no column `depth`") && error.kind == block::Kind::Missing, "{error}");
}

/// Whatever is found lies in the file, in order of its rows.
fn judged(bytes: &[u8], found: Result<Vec<Group>>) -> bool {
    let Ok(found) = found else { return false };
    let mut next = 0;
    for group in &found {
        assert_eq!(group.rows.start, next);
        next = group.rows.end;
        assert!(group.rows.end > group.rows.start && !group.ranges.is_empty());
        assert!(group.ranges.iter().all(|range| range.start < range.end && range.end <= bytes.len() as u64 - 8));
    }
    true
}

fn framed(footer: &[u8]) -> Vec<u8> {
    let length = (footer.len() as u32).to_le_bytes();
    [&b"PAR1"[..], &[0; 100], footer, &length, b"PAR1"].concat()
}

#[test]
fn footers_of_random_bytes_are_refused_or_make_sense() {
    let seed = 11;
    let mut chance = Chance::of(seed, 0);
    for _ in 0..50_000 {
        let mut footer: Vec<u8> = (0..chance.below(200)).map(|_| chance.draw() as u8).collect();
        // Half of them begin like one, so that they come further.
        if chance.below(2) == 0 {
            footer.splice(0..0, [0x49, 0x1c, 0x19, 0x1c, 0x26]);
        }
        let bytes = framed(&footer);
        judged(&bytes, of(&bytes, 0.5));
        judged(&footer, of(&footer, 0.5));
    }
}

#[test]
fn footers_that_were_changed_are_refused_or_make_sense() {
    let whole = another(3, 50);
    let mut chance = Chance::of(12, 0);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..50_000 {
        let mut bytes = whole.clone();
        for _ in 0..=chance.below(3) {
            let from_end = 1 + chance.below(1200.min(bytes.len() as u64));
            let place = bytes.len() - from_end as usize;
            bytes[place] = chance.draw() as u8;
        }
        *(if judged(&bytes, of(&bytes, 0.4)) { &mut good } else { &mut bad }) += 1;
    }
    assert!(good > 1000 && bad > 1000, "{good} and {bad}");
    for length in 0..whole.len() {
        assert!(of(&whole[..length], 1.0).is_err(), "cut at {length}");
    }
}

#[test]
fn hostile_footers_end_soon() {
    let refused = |footer: &[u8], what: &str| {
        let error = of(&framed(footer), 1.0).unwrap_err();
        assert_eq!(error.kind, block::Kind::Corrupt);
        assert!(error.what.contains(what), "{error}");
    };
    // Lists of 2^63 elements, of row groups and of something unknown; lists nested without an end.
    refused(&[0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "no sense");
    refused(&[0x79, 0xf1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "no sense");
    refused(&[&[0x79][..], &[0x19; 5_000_000]].concat(), "no sense");
    refused(&[&[0x7c][..], &[0x1c; 5_000_000]].concat(), "no sense");
    // A number without an end, a text longer than all, no row group, one without columns.
    refused(&[&[0x15][..], &[0xff; 20]].concat(), "no sense");
    refused(&[0x18, 0xff, 0xff, 0xff, 0xff, 0x0f], "no sense");
    refused(&[0], "no rows");
    refused(&[0x49, 0x1c, 0x36, 2, 0, 0], "no bytes");
    // One column of 10 bytes at byte 4; the same past the end of what the file has, and of 2^33 rows.
    let group = |start: &[u8], rows: &[u8]| {
        [&[0x49, 0x1c, 0x19, 0x1c, 0x3c, 0x76, 20, 0x26][..], start, &[0, 0, 0x26], rows, &[0, 0]].concat()
    };
    let found = of(&framed(&group(&[8], &[6])), 1.0).unwrap();
    assert_eq!(found, [Group { rows: 0..3, ranges: Vec::from([4..14]) }]);
    refused(&group(&[0xd0, 0x01], &[6]), "outside");
    refused(&group(&[2], &[6]), "outside");
    refused(&group(&[7], &[6]), "no sense");
    refused(&group(&[8], &[0x80, 0x80, 0x80, 0x80, 0x40]), "too many rows");
    let mut long = framed(&[0]);
    let end = long.len();
    long[end - 8..end - 4].copy_from_slice(&200_u32.to_le_bytes());
    assert!(of(&long, 1.0).unwrap_err().what.contains("so long"));
    long[end - 4..].copy_from_slice(b"PARE");
    assert!(of(&long, 1.0).unwrap_err().what.contains("encrypted"));
}
