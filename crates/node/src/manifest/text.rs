//! A manifest as text: JSON Lines, one line about the set and one for each object, in the order of the keys. It is made to be
//! kept with an experiment, compared, and read by other programs; `docs/format.md` has each field.
//!
//! Doesn't ask a store. Layout: `moment` (times as text).
//!
//! Invariants: the same names make the same bytes, but for the time of the listing; any bytes can be read without a panic, in the
//! memory of a line, and what is wrong with them is told with the number of the line.

mod moment;
#[cfg(test)]
mod tests;

pub use moment::parse as parse_moment;

use super::{Keys, Manifest, OBJECT_BYTES_MAX, listing::TEXT_BYTES_MAX};
use block::{Error, Result};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use store::Listed;

/// The format that is written, and the only one that is read.
const FORMAT: u32 = 1;

/// Bytes of a line: a key and a version of the greatest length, each byte escaped as six, and what is around them.
const LINE_BYTES_MAX: usize = 2 * 6 * TEXT_BYTES_MAX + 4096;

/// What the first bytes of such a text are.
pub const TEXT_MARK: &str = "{\"stoker_manifest\":";

/// The first line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// As the user wrote it.
    pub url: String,
    /// The identity of the store that was listed.
    pub store: String,
    /// What all keys begin with: empty, or ends with a slash.
    pub prefix: String,
    /// When it was listed, nanoseconds since 1970.
    pub listed_ns: i64,
    /// Lines that follow.
    pub objects: u64,
    /// Bytes of all objects.
    pub bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct HeadLine<'a> {
    stoker_manifest: u32,
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow)]
    store: Cow<'a, str>,
    #[serde(borrow)]
    prefix: Cow<'a, str>,
    #[serde(borrow)]
    listed: Cow<'a, str>,
    objects: u64,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct ObjectLine<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    size: u64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    modified: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    version: Cow<'a, str>,
}

/// Write the names of a snapshot that was listed at a URL. `store`: the identity of its store.
pub fn write(manifest: &Arc<Manifest>, url: &str, store: &str, out: &mut dyn Write) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("cannot write the manifest", url, &error);
    let cut = || {
        let error = Error::corrupt("the snapshot lost names while it was read", url);
        error.hint("run `stoker refresh` on the mount point, or list the URL instead")
    };
    let objects = Keys::count(manifest);
    let head = HeadLine {
        stoker_manifest: FORMAT,
        url: url.into(),
        store: store.into(),
        prefix: manifest.prefix().into(),
        listed: moment::text(manifest.listed_ns()).into(),
        objects,
        bytes: manifest.totals().bytes,
    };
    put(&head, out).map_err(failed)?;
    let (mut keys, mut written) = (Keys::of(manifest.clone()), 0);
    while let Some(Listed { key, version, size, modified_ns }) = keys.advance() {
        let modified = (modified_ns != 0).then(|| moment::text(modified_ns).into());
        let line = ObjectLine { key: key.into(), size, modified, version: version.into() };
        put(&line, out).map_err(failed)?;
        written += 1;
    }
    if written != objects || manifest.is_damaged() { Err(cut()) } else { out.flush().map_err(failed) }
}

fn put(line: &impl Serialize, out: &mut dyn Write) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// A text that is read line by line.
pub struct Text<R> {
    from: R,
    on: String,
    head: Head,
    line: u64,
    buffer: Vec<u8>,
    last: Option<String>,
    objects: u64,
    bytes: u64,
}

impl<R: BufRead> Text<R> {
    /// Read the first line. `on` names the text in errors.
    pub fn open(from: R, on: &str) -> Result<Text<R>> {
        let buffer = Vec::new();
        let mut text =
            Text { from, on: on.into(), head: Head::default(), line: 0, buffer, last: None, objects: 0, bytes: 0 };
        if !text.fill()? {
            return Err(text.wrong("it is empty"));
        }
        if !text.buffer.starts_with(TEXT_MARK.as_bytes()) {
            let error = text.wrong("it is no manifest of Stoker");
            return Err(error
                .hint("`stoker manifest export` writes one, and `stoker manifest import` makes one of other lists"));
        }
        // Of another format only the number can be relied on.
        let format: String = text.buffer[TEXT_MARK.len()..]
            .iter()
            .skip_while(|byte| **byte == b' ')
            .take(10)
            .take_while(|byte| byte.is_ascii_digit())
            .map(|byte| char::from(*byte))
            .collect();
        if format != FORMAT.to_string() {
            let error = text.wrong(&format!("it has format {format:?}, and this Stoker reads format {FORMAT}"));
            return Err(error.hint("export it again with this version, or read it with the one that wrote it"));
        }
        let head: HeadLine<'_> = serde_json::from_slice(&text.buffer).map_err(|error| text.wrong(&reason(&error)))?;
        let listed_ns = moment::parse(&head.listed).ok_or_else(|| text.wrong("its time of listing can't be read"))?;
        let HeadLine { objects, bytes, .. } = head;
        let (url, store, prefix) = (head.url.into_owned(), head.store.into_owned(), head.prefix.into_owned());
        if !(prefix.is_empty() || prefix.ends_with('/')) {
            return Err(text.wrong("its prefix has no slash at its end"));
        }
        text.head = Head { url, store, prefix, listed_ns, objects, bytes };
        Ok(text)
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What it was read from.
    pub fn into_inner(self) -> R {
        self.from
    }

    /// The next object; `None` after the last.
    pub fn advance(&mut self) -> Result<Option<Listed>> {
        if !self.fill()? {
            return match (self.objects == self.head.objects, self.bytes == self.head.bytes) {
                (true, true) => Ok(None),
                (false, _) => {
                    Err(self.wrong(&format!("it ends after {} of {} objects", self.objects, self.head.objects)))
                }
                (true, false) => {
                    Err(self.wrong(&format!("its objects have {} bytes and not {}", self.bytes, self.head.bytes)))
                }
            };
        }
        let line: ObjectLine<'_> = serde_json::from_slice(&self.buffer).map_err(|error| self.wrong(&reason(&error)))?;
        let modified_ns = match &line.modified {
            Some(text) => moment::parse(text)
                .ok_or_else(|| self.wrong(&format!("{text:?} is no time like 2026-03-01T12:00:00Z")))?,
            None => 0,
        };
        let listed =
            Listed { key: line.key.into_owned(), version: line.version.into_owned(), size: line.size, modified_ns };
        self.check(&listed)?;
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(listed.size);
        self.last = Some(listed.key.clone());
        Ok(Some(listed))
    }

    fn check(&self, listed: &Listed) -> Result<()> {
        let is_marker = listed.size == 0 && listed.key.ends_with('/');
        if listed.key.len().max(listed.version.len()) >= TEXT_BYTES_MAX {
            return Err(self.wrong(&format!("a key or a version has {TEXT_BYTES_MAX} bytes or more")));
        }
        if listed.version.chars().any(char::is_control) {
            return Err(self.wrong("a version has control characters"));
        }
        if listed.size > OBJECT_BYTES_MAX {
            return Err(
                self.wrong(&format!("an object has {} bytes: at most {OBJECT_BYTES_MAX} can be read", listed.size))
            );
        }
        if listed.version.is_empty() && !is_marker {
            let error = self.wrong("an object has no version, by which its bytes are known");
            return Err(error.hint("`stoker manifest import` looks up what a list lacks"));
        }
        if !listed.key.starts_with(&self.head.prefix) {
            return Err(self.wrong(&format!("a key does not begin with {:?}", self.head.prefix)));
        }
        match &self.last {
            Some(last) if *last == listed.key => Err(self.wrong("the same key was on the line before")),
            Some(last) if *last > listed.key => {
                let error = self.wrong("its key comes before that of the line before: keys ascend, byte by byte");
                Err(error.hint("`stoker manifest import` brings them into order"))
            }
            _ => Ok(()),
        }
    }

    /// Read a line into the buffer, without its end. False behind the last.
    fn fill(&mut self) -> Result<bool> {
        self.buffer.clear();
        let mut limited = (&mut self.from).take(LINE_BYTES_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|error| Error::io("the manifest can't be read", &self.on, &error))?;
        self.line += 1;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if self.buffer.len() > LINE_BYTES_MAX {
            return Err(self.wrong(&format!("a line has more than {LINE_BYTES_MAX} bytes")));
        }
        Ok(read > 0)
    }

    fn wrong(&self, what: &str) -> Error {
        let error =
            Error::invalid(format!("the manifest can't be used: {what}"), format!("{}, line {}", self.on, self.line));
        error.hint("export it again, or mend that line")
    }
}

/// What the parser found, without its own place.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    format!("{what}, at byte {} of the line", error.column())
}
