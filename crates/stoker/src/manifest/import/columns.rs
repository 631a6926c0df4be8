//! Data files of an inventory as Parquet.
//!
//! The file is a stranger's, and the library that reads it may give up with a panic on one that contradicts itself: that is an error
//! like others here.

use super::{Row, Rows};
use block::{Error, Result};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, reader::RowIter};
use parquet::schema::types::Type;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const MILLISECOND_NS: i64 = 1_000_000;
const MICROSECOND_NS: i64 = 1_000;

/// Columns that are read; an inventory may have many more.
const COLUMNS: [&str; 6] = ["key", "size", "e_tag", "last_modified_date", "is_latest", "is_delete_marker"];

pub fn rows(path: &Path) -> Result<Rows> {
    let on = path.display().to_string();
    let wrong = move |what: &str, row: u64| {
        let place = if row == 0 { on.clone() } else { format!("{on}, row {row}") };
        Error::invalid(format!("the data file can't be read: {what}"), place)
            .hint("copy it again, or have the inventory written anew")
    };
    let file =
        std::fs::File::open(path).map_err(|error| Error::io("the data file can't be read", path.display(), &error))?;
    let begin = || -> std::result::Result<RowIter<'static>, String> {
        let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
        let schema = reader.metadata().file_metadata().schema().clone();
        let fields = schema.get_fields().iter().filter(|field| COLUMNS.contains(&field.name())).cloned().collect();
        let wanted =
            Type::group_type_builder(schema.name()).with_fields(fields).build().map_err(|error| error.to_string())?;
        RowIter::from_file_into(Box::new(reader)).project(Some(wanted)).map_err(|error| error.to_string())
    };
    let mut rows = caught(begin).and_then(|rows| rows).map_err(|what| wrong(&what, 0))?;
    let (mut number, mut is_over) = (0, false);
    Ok(Box::new(std::iter::from_fn(move || {
        while !is_over {
            number += 1;
            let next =
                caught(AssertUnwindSafe(|| rows.next())).map(|row| row.transpose().map_err(|error| error.to_string()));
            let row = match next.and_then(|row| row) {
                Ok(Some(row)) => taken(&row),
                Ok(None) => return None,
                Err(what) => Err(what),
            };
            is_over = row.is_err();
            match row {
                Ok(None) => {}
                Ok(Some(row)) => return Some(Ok(row)),
                Err(what) => return Some(Err(wrong(&what, number))),
            }
        }
        None
    })))
}

fn caught<T>(work: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "it contradicts itself".to_owned())
}

/// One object; none if the row is about a version that is not the current one.
fn taken(row: &parquet::record::Row) -> std::result::Result<Option<Row>, String> {
    let mut out = Row { key: String::new(), size: None, version: None, modified_ns: None };
    for (name, field) in row.get_column_iter() {
        match (name.as_str(), field) {
            (_, Field::Null) => {}
            ("key", Field::Str(key)) => out.key.clone_from(key),
            ("key", Field::Bytes(bytes)) => {
                out.key = String::from_utf8(bytes.data().to_vec()).map_err(|_| "a key is not UTF-8")?
            }
            ("size", Field::Long(size)) => {
                out.size = Some(u64::try_from(*size).map_err(|_| format!("{size} is no number of bytes"))?)
            }
            ("size", Field::Int(size)) => {
                out.size = Some(u64::try_from(*size).map_err(|_| format!("{size} is no number of bytes"))?)
            }
            ("e_tag", Field::Str(etag)) => out.version = Some(etag.trim_matches('"').to_owned()),
            ("last_modified_date", Field::TimestampMillis(ms)) => out.modified_ns = ms.checked_mul(MILLISECOND_NS),
            ("last_modified_date", Field::TimestampMicros(us)) => out.modified_ns = us.checked_mul(MICROSECOND_NS),
            ("is_latest", Field::Bool(false)) | ("is_delete_marker", Field::Bool(true)) => return Ok(None),
            ("is_latest" | "is_delete_marker", Field::Bool(_)) => {}
            (name, _) => return Err(format!("its column {name} has another type than an inventory's")),
        }
    }
    if out.key.is_empty() { Err("a row has no key".into()) } else { Ok(Some(out)) }
}
