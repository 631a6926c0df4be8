//! Data files of an inventory as CSV: each value in quotes, keys encoded as in URLs.

use super::list::{Lines, unpacked};
use super::{Row, Rows};
use block::{Error, Result};
use node::manifest::parse_moment;
use percent_encoding::percent_decode_str;
use std::path::Path;

/// Which column holds what. None of them has more than a byte can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    key: usize,
    size: Option<usize>,
    etag: Option<usize>,
    modified: Option<usize>,
    is_latest: Option<usize>,
    is_gone: Option<usize>,
}

impl Columns {
    /// From a schema such as `Bucket, Key, Size, ETag`.
    pub fn of(schema: &str) -> Option<Columns> {
        let at = |wanted: &str| schema.split(',').position(|name| name.trim().eq_ignore_ascii_case(wanted));
        Some(Columns {
            key: at("Key")?,
            size: at("Size"),
            etag: at("ETag"),
            modified: at("LastModifiedDate"),
            is_latest: at("IsLatest"),
            is_gone: at("IsDeleteMarker"),
        })
    }
}

pub fn rows(path: &Path, columns: Columns) -> Result<Rows> {
    let file = std::fs::File::open(path);
    let file = file.map_err(|error| Error::io("the data file can't be read", path.display(), &error))?;
    let mut lines = Lines::of(unpacked(file, path)?, path);
    Ok(Box::new(std::iter::from_fn(move || {
        loop {
            let row = match lines.advance() {
                Ok(None) => return None,
                Ok(Some(line)) if line.is_empty() => continue,
                Ok(Some(line)) => row(&line, columns, &lines),
                Err(error) => Err(error),
            };
            if let Some(row) = row.transpose() {
                return Some(row);
            }
        }
    })))
}

/// One object; none if the line is about a version that is not the current one.
fn row(line: &str, columns: Columns, lines: &Lines) -> Result<Option<Row>> {
    let wrong = |what: &str| {
        lines.wrong(what, "have the inventory written anew; its columns are those of fileSchema in manifest.json")
    };
    let values = values(line).ok_or_else(|| wrong("a value has no end, or something behind it"))?;
    let value = |column: Option<usize>| {
        column.and_then(|column| values.get(column)).map(String::as_str).filter(|text| !text.is_empty())
    };
    if value(columns.is_latest).is_some_and(|text| !text.eq_ignore_ascii_case("true"))
        || value(columns.is_gone).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    {
        return Ok(None);
    }
    let key = value(Some(columns.key)).ok_or_else(|| wrong("a line has no key"))?.replace('+', " ");
    let key = percent_decode_str(&key).decode_utf8().map_err(|_| wrong("a key is not UTF-8"))?.into_owned();
    let size =
        value(columns.size).map(|size| size.parse().map_err(|_| wrong(&format!("{size:?} is no number of bytes"))));
    let modified =
        value(columns.modified).map(|text| parse_moment(text).ok_or_else(|| wrong(&format!("{text:?} is no time"))));
    let version = value(columns.etag).map(|etag| etag.trim_matches('"').to_owned());
    Ok(Some(Row { key, size: size.transpose()?, version, modified_ns: modified.transpose()? }))
}

/// The values of a line; `None` if quotes don't match.
fn values(line: &str) -> Option<Vec<String>> {
    let (mut out, mut rest) = (Vec::new(), line);
    loop {
        let mut value = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (text, behind) = quoted.split_once('"')?;
                value.push_str(text);
                match behind.strip_prefix('"') {
                    Some(more) => {
                        value.push('"');
                        quoted = more;
                    }
                    None => {
                        rest = behind;
                        break;
                    }
                }
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            value.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        out.push(value);
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return rest.is_empty().then_some(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_taken_out_of_their_quotes() {
        let text = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(values(r#""b","a%2Fb","",3"#), text(&["b", "a%2Fb", "", "3"]));
        assert_eq!(values(r#""say ""so""",x,"#), text(&["say \"so\"", "x", ""]));
        assert_eq!(values(r#""open"#), None);
        assert_eq!(values(r#""b"x,"y""#), None);
    }

    proptest! {
        #[test]
        fn no_line_harms(line in "[\",a+%0-9é]{0,60}") {
            values(&line);
        }
    }
}
