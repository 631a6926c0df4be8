//! Parquet: uncompressed columns of one fixed width, plain, one page a column of a row group, and the footer in
//! Thrift's compact protocol (`docs/decisions/0011-parquet.md` says why by hand).
//!
//! Columns are those that the workload names. Where it names none, narrow rows (up to 4 KiB) are columns of four bytes, so
//! that a reader can take the first of them; wide rows are eight columns; a last one takes what is left. What takes four
//! bytes is INT32, all else FIXED_LEN_BYTE_ARRAY. Nothing is null, nested or encoded.
//! Invariant: where each byte lies follows from the shape alone.

use block::Result;
use workload::columns;

use super::Shape;
use super::noise::Noise;
use super::stream::Stream;

/// Rows up to this size are columns of four bytes.
const NARROW_BYTES_MAX: u64 = 4 << 10;
const WIDE_COLUMNS: u64 = 8;

const MAGIC: &[u8; 4] = b"PAR1";

/// Physical types, an encoding, and "required", by their numbers in `parquet.thrift`.
const INT32: i64 = 1;
const FIXED_LEN_BYTE_ARRAY: i64 = 7;
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const REQUIRED: i64 = 0;

/// Rows and columns of one file.
#[derive(Clone, Debug)]
pub struct Table {
    rows: u64,
    names: Vec<String>,
    /// Width of each column in bytes.
    widths: Vec<u64>,
    group_rows: u64,
    footer: Vec<u8>,
}

impl Table {
    pub fn of(shape: &Shape) -> Table {
        let (rows, row_bytes) = (shape.samples_per_file, shape.mean_bytes());
        let group_rows = columns::rows_of_group(shape.group_rows, rows, row_bytes);
        let named = columns::all(&shape.columns).into_iter().map(|column| (column.name, column.bytes));
        let (mut names, mut widths): (Vec<String>, Vec<u64>) = named.unzip();
        if widths.is_empty() {
            widths = Table::usual(row_bytes);
            names = (0..widths.len()).map(|column| format!("column_{column:03}")).collect();
        }
        let mut table = Table { rows, names, widths, group_rows, footer: Vec::new() };
        table.footer = table.footer();
        table
    }

    /// Widths of columns that nobody named.
    fn usual(row_bytes: u64) -> Vec<u64> {
        let width = if row_bytes <= NARROW_BYTES_MAX { 4 } else { row_bytes / WIDE_COLUMNS };
        let columns = (row_bytes / width).max(1);
        let mut widths = vec![width.min(row_bytes); usize::try_from(columns).expect("at most a thousand")];
        *widths.last_mut().expect("at least one") += row_bytes.saturating_sub(width * columns);
        widths
    }

    pub fn columns(&self) -> u64 {
        self.widths.len() as u64
    }

    pub fn records(&self) -> u64 {
        self.rows.div_ceil(self.group_rows) * self.columns()
    }

    pub fn bytes(&self) -> u64 {
        let groups: u64 = self.groups().map(|rows| self.group_bytes(rows)).sum();
        MAGIC.len() as u64 + groups + self.footer.len() as u64 + 4 + MAGIC.len() as u64
    }

    /// Gives the file; each column of a row group is a record, row group by row group.
    pub fn compose(&self, stream: &mut Stream<'_, '_>, noise: &mut Noise) -> Result<()> {
        stream.bytes(MAGIC)?;
        for rows in self.groups() {
            for &width in &self.widths {
                stream.begin_record();
                stream.bytes(&page(rows, rows * width))?;
                stream.noise(noise, rows * width)?;
                stream.end_record();
            }
        }
        stream.bytes(&self.footer)?;
        stream.bytes(&u32::try_from(self.footer.len()).expect("a footer is megabytes at most").to_le_bytes())?;
        stream.bytes(MAGIC)
    }

    /// Rows of each row group.
    fn groups(&self) -> impl Iterator<Item = u64> {
        let (rows, each) = (self.rows, self.group_rows);
        (0..rows.div_ceil(each)).map(move |group| each.min(rows - group * each))
    }

    fn group_bytes(&self, rows: u64) -> u64 {
        self.widths.iter().map(|width| rows * width + page(rows, rows * width).len() as u64).sum()
    }

    /// `FileMetaData`.
    fn footer(&self) -> Vec<u8> {
        let mut out = Thrift::default();
        out.number(1, Thrift::I32, 1);
        out.list(2, Thrift::STRUCT, self.widths.len() + 1);
        out.within(|root| {
            root.text(4, "schema");
            root.number(5, Thrift::I32, self.widths.len() as i64);
        });
        for (column, &width) in self.widths.iter().enumerate() {
            out.within(|element| {
                element.number(1, Thrift::I32, physical(width));
                if physical(width) == FIXED_LEN_BYTE_ARRAY {
                    element.number(2, Thrift::I32, width.cast_signed());
                }
                element.number(3, Thrift::I32, REQUIRED);
                element.text(4, &self.names[column]);
            });
        }
        out.number(3, Thrift::I64, self.rows.cast_signed());
        out.list(4, Thrift::STRUCT, self.groups().count());
        let mut at = MAGIC.len() as u64;
        for rows in self.groups() {
            let total = self.group_bytes(rows);
            out.within(|group| {
                group.list(1, Thrift::STRUCT, self.widths.len());
                for (column, &width) in self.widths.iter().enumerate() {
                    let bytes = rows * width + page(rows, rows * width).len() as u64;
                    group.within(|chunk| self.chunk(chunk, column, rows, at..at + bytes));
                    at += bytes;
                }
                group.number(2, Thrift::I64, total.cast_signed());
                group.number(3, Thrift::I64, rows.cast_signed());
            });
        }
        out.text(6, "stoker bench data");
        out.stop();
        out.bytes
    }

    /// `ColumnChunk`.
    fn chunk(&self, chunk: &mut Thrift, column: usize, rows: u64, range: std::ops::Range<u64>) {
        let bytes = (range.end - range.start).cast_signed();
        chunk.number(2, Thrift::I64, range.start.cast_signed());
        chunk.field(3, Thrift::STRUCT);
        chunk.within(|meta| {
            meta.number(1, Thrift::I32, physical(self.widths[column]));
            meta.list(2, Thrift::I32, 2);
            meta.zigzag(PLAIN);
            meta.zigzag(RLE);
            meta.list(3, Thrift::BINARY, 1);
            meta.string(&self.names[column]);
            meta.number(4, Thrift::I32, 0);
            meta.number(5, Thrift::I64, rows.cast_signed());
            meta.number(6, Thrift::I64, bytes);
            meta.number(7, Thrift::I64, bytes);
            meta.number(9, Thrift::I64, range.start.cast_signed());
        });
    }
}

fn physical(width: u64) -> i64 {
    if width == 4 { INT32 } else { FIXED_LEN_BYTE_ARRAY }
}

/// `PageHeader` of a data page.
fn page(rows: u64, bytes: u64) -> Vec<u8> {
    let mut out = Thrift::default();
    out.number(1, Thrift::I32, 0);
    out.number(2, Thrift::I32, bytes.cast_signed());
    out.number(3, Thrift::I32, bytes.cast_signed());
    out.field(5, Thrift::STRUCT);
    out.within(|head| {
        head.number(1, Thrift::I32, rows.cast_signed());
        head.number(2, Thrift::I32, PLAIN);
        head.number(3, Thrift::I32, RLE);
        head.number(4, Thrift::I32, RLE);
    });
    out.stop();
    out.bytes
}

/// Thrift's compact protocol, as far as it is needed here.
#[derive(Default)]
struct Thrift {
    bytes: Vec<u8>,
    /// Number of the last field of the struct that is being written; fields are named by their distance.
    last: u8,
}

impl Thrift {
    const I32: u8 = 5;
    const I64: u8 = 6;
    const BINARY: u8 = 8;
    const LIST: u8 = 9;
    const STRUCT: u8 = 12;

    fn field(&mut self, number: u8, kind: u8) {
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
    }

    fn number(&mut self, number: u8, kind: u8, value: i64) {
        self.field(number, kind);
        self.zigzag(value);
    }

    fn text(&mut self, number: u8, text: &str) {
        self.field(number, Thrift::BINARY);
        self.string(text);
    }

    /// The head of a list; its elements follow.
    fn list(&mut self, number: u8, kind: u8, length: usize) {
        self.field(number, Thrift::LIST);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            self.varint(length as u64);
        }
    }

    /// A struct, its end included.
    fn within(&mut self, write: impl FnOnce(&mut Thrift)) {
        let outer = std::mem::take(&mut self.last);
        write(self);
        self.stop();
        self.last = outer;
    }

    fn stop(&mut self) {
        self.bytes.push(0);
    }

    fn string(&mut self, text: &str) {
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn zigzag(&mut self, value: i64) {
        self.varint((value << 1 ^ value >> 63).cast_unsigned());
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
