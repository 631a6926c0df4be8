//! A user's own folder, many times over: copies under new names, or all of them packed into shards.
//!
//! It changes nothing of the folder, and shares its blocks where the file system can (reflink). Invariant: a copy has
//! the bytes that the file had when it was listed, or the run fails.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use block::{Error, Result};
use serde::{Deserialize, Serialize};
use targets::{Folder, Target};
use workload::Format;

use super::stream::Stream;
use super::{IMAGES, shard, tfrecord};

/// Bytes of a file that are read at once.
const PIECE: usize = 1 << 20;

/// What to copy how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub from: PathBuf,
    pub copies: u64,
    /// Files of this number that all copies are packed into, as [`Format::Tar`] or [`Format::Tfrecord`].
    pub shards: Option<(u64, Format)>,
    sources: Vec<Original>,
}

/// A file of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Original {
    name: String,
    bytes: u64,
    modified_ns: i64,
}

impl Replica {
    pub fn of(from: &Path, copies: u64, shards: Option<(u64, Format)>) -> Result<Replica> {
        let folder = Folder::at(from)?;
        let from = PathBuf::from(folder.url());
        let sources = folder.list()?.into_iter().map(|listed| {
            let path = from.join(&*listed.name);
            let found = path.metadata().map_err(|error| Error::io("cannot stat a file", path.display(), &error))?;
            let modified_ns = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
            Ok(Original { name: listed.name.to_string(), bytes: listed.bytes, modified_ns })
        });
        let replica = Replica { copies, shards, sources: sources.collect::<Result<_>>()?, from };
        replica.validate()?;
        Ok(replica)
    }

    fn validate(&self) -> Result<()> {
        let on = self.from.display();
        let wrong = |what: &str, hint: &str| Err(Error::invalid(what, on).hint(hint));
        if self.sources.is_empty() {
            return wrong("there is no file in the folder", "name a folder with data in it");
        }
        match self.shards {
            _ if self.copies == 0 => wrong("no copy is wanted", "ask for one or more"),
            Some((shards, _)) if shards == 0 || shards > self.copies * self.groups().len() as u64 => {
                wrong("each shard needs a file", "ask for one shard up to one for each copy of each file")
            }
            Some((_, format)) if !matches!(format, Format::Tar | Format::Tfrecord) => {
                wrong("shards are tar or TFRecord files", "take a workload of one of these formats, or none: tar")
            }
            _ => Ok(()),
        }
    }

    /// Files that will be made.
    pub fn files(&self) -> u64 {
        self.shards.map_or(self.copies * self.sources.len() as u64, |(shards, _)| shards)
    }

    pub fn path(&self, number: u64) -> String {
        match self.shards {
            Some((shards, Format::Tfrecord)) => format!("{IMAGES}/train-{number:05}-of-{shards:05}.tfrecord"),
            Some(_) => format!("{IMAGES}/shard-{number:06}.tar"),
            None => {
                let (copy, source) = self.split(number);
                format!("{IMAGES}/copy_{copy:04}/{}", source.name)
            }
        }
    }

    pub fn bytes(&self, number: u64) -> u64 {
        let Some((shards, format)) = self.shards else { return self.split(number).1.bytes };
        let size = |source: &Original| match format {
            Format::Tfrecord => tfrecord::framed(source.bytes),
            _ => shard::member(source.bytes),
        };
        let packed: u64 = self.dealt(number, shards).flat_map(|(_, group)| &self.sources[group]).map(size).sum();
        packed + if format == Format::Tar { shard::END_BYTES } else { 0 }
    }

    pub fn samples(&self, number: u64) -> u64 {
        self.shards.map_or(1, |(shards, _)| self.dealt(number, shards).count() as u64)
    }

    /// The file of the user that a copy has the bytes of.
    pub fn original(&self, number: u64) -> Option<PathBuf> {
        self.shards.is_none().then(|| self.from.join(&self.split(number).1.name))
    }

    pub fn compose(&self, number: u64, stream: &mut Stream<'_, '_>) -> Result<()> {
        let Some((shards, format)) = self.shards else { return self.give(self.split(number).1, stream) };
        for (copy, group) in self.dealt(number, shards) {
            if format == Format::Tfrecord {
                let source = &self.sources[group.start];
                tfrecord::Frame::around(source.bytes).compose(stream, 0, &mut |stream| self.give(source, stream))?;
                continue;
            }
            stream.begin_record();
            for source in &self.sources[group] {
                let name = format!("copy_{copy:04}/{}", source.name);
                shard::compose(stream, &name, source.bytes, &mut |stream| self.give(source, stream))?;
            }
            stream.end_record();
        }
        if format == Format::Tar { shard::end(stream) } else { Ok(()) }
    }

    fn split(&self, number: u64) -> (u64, &Original) {
        let each = self.sources.len() as u64;
        (number / each, &self.sources[(number % each) as usize])
    }

    /// Copies of samples that are dealt to a shard, in turn.
    fn dealt(&self, shard: u64, shards: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
        let groups = self.groups();
        let each = groups.len() as u64;
        (shard..self.copies * each)
            .step_by(usize::try_from(shards).unwrap_or(usize::MAX))
            .map(move |place| (place / each, groups[(place % each) as usize].clone()))
    }

    /// Files that are one sample: in a tar file those that share their name before the first dot.
    fn groups(&self) -> Vec<Range<usize>> {
        let alone = !matches!(self.shards, Some((_, Format::Tar)));
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (place, source) in self.sources.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if !alone && stem(&self.sources[group.start].name) == stem(&source.name) => {
                    group.end = place + 1;
                }
                _ => groups.push(place..place + 1),
            }
        }
        groups
    }

    fn give(&self, source: &Original, stream: &mut Stream<'_, '_>) -> Result<()> {
        let path = self.from.join(&source.name);
        let failed = |error: std::io::Error| Error::io("cannot read a file", path.display(), &error);
        let mut file = File::open(&path).map_err(failed)?;
        let mut buffer = vec![0; PIECE];
        let mut left = source.bytes;
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            if count as u64 > left || count == 0 && left > 0 {
                let error = Error::changed("a file has another size than when it was listed", path.display());
                return Err(error.hint("leave the folder alone while it is copied, then run it again"));
            }
            if count == 0 {
                return Ok(());
            }
            stream.bytes(&buffer[..count])?;
            left -= count as u64;
        }
    }
}

/// The name before the first dot of its last part.
fn stem(name: &str) -> &str {
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    name[last..].find('.').map_or(name, |dot| &name[..last + dot])
}
