//! A set file by file: what each is called, how long it is, and how its bytes come about.
//!
//! It decides no sizes (`shape`) and knows no format's inside. Invariant: a file's name and length are known before it
//! is made, and are those that it has afterwards.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use block::Result;
use workload::Format;

use super::draft::{self, Draft};
use super::manifest::Entry;
use super::noise::{Chance, Noise};
use super::parquet::Table;
use super::picture::Palette;
use super::replica::Replica;
use super::shape::Shape;
use super::stream::{Made, Stream};
use super::volume::Volume;
use super::{IMAGES, Progress, Put, Set, VOLUMES, index, npy, shard, tfrecord};

/// Streams of chance of packed files, apart from all others.
const CONTENT: u64 = 6 << 60;

/// Classes of samples in shards.
const CLASSES: u64 = 1_000;

/// One file to be made.
pub struct Item {
    pub path: String,
    pub bytes: u64,
    samples: u64,
    /// Records beyond a single one, which have an index.
    records: u64,
    content: Content,
}

enum Content {
    /// Of a size around the mean, or of this one.
    Picture {
        index: u64,
        aim: Option<u64>,
    },
    Volume(Volume),
    Packed {
        file: u64,
    },
    Copied {
        number: u64,
    },
}

impl Item {
    pub fn stands(&self, folder: &Path) -> bool {
        fs::symlink_metadata(folder.join(&self.path)).is_ok_and(|found| found.is_file() && found.len() == self.bytes)
    }

    /// Bytes that the file and its index take.
    pub fn room(&self) -> u64 {
        self.bytes + if self.records > 0 { index::bytes(self.records) } else { 0 }
    }
}

/// A set with all that its files are made from.
pub struct Plan<'a> {
    set: &'a Set,
    palette: Option<Palette>,
    table: Option<Table>,
}

impl Plan<'_> {
    pub fn of(set: &Set, threads: usize) -> Result<Plan<'_>> {
        let pictures = set.shape.as_ref().filter(|shape| shape.has_pictures()).map(Shape::mean_bytes);
        let mean_bytes = pictures.or((set.images.count > 0).then_some(set.images.mean_bytes));
        let palette = mean_bytes.map(|mean_bytes| Palette::paint(set.seed, mean_bytes, threads)).transpose()?;
        let table = set.shape.as_ref().filter(|shape| shape.format == Format::Parquet);
        let table = table.map(Table::of);
        Ok(Plan { set, palette, table })
    }

    pub fn files(&self) -> u64 {
        let Set { images, volumes, shape, replica, .. } = self.set;
        let shaped = shape.as_ref().map_or(0, |shape| shape.count);
        volumes.count + images.count + shaped + replica.as_ref().map_or(0, Replica::files)
    }

    fn palette(&self) -> &Palette {
        self.palette.as_ref().expect("painted whenever there are images")
    }

    /// Volumes come first, so that the last files to be made are small and all threads end together.
    pub fn item(&self, number: u64) -> Item {
        let Set { images, volumes, seed, shape, replica } = self.set;
        let single = |path, bytes, content| Item { path, bytes, samples: 1, records: 0, content };
        if let Some(shape) = shape {
            return self.shaped(shape, number);
        }
        if let Some(replica) = replica {
            let (path, bytes, samples) = (replica.path(number), replica.bytes(number), replica.samples(number));
            let records = if samples > 1 || replica.shards.is_some() { samples } else { 0 };
            return Item { path, bytes, samples, records, content: Content::Copied { number } };
        }
        if number < volumes.count {
            let volume = Volume::of(*seed, number, volumes.bytes);
            return single(format!("{VOLUMES}/case_{number:05}.npz"), volume.bytes(), Content::Volume(volume));
        }
        let index = number - volumes.count;
        let (class, place) = (index % images.classes + 1, index / images.classes + 1);
        let path = format!("{IMAGES}/n{class:08}/n{class:08}_{place:06}.JPEG");
        single(path, self.palette().bytes(index, None), Content::Picture { index, aim: None })
    }

    fn shaped(&self, shape: &Shape, file: u64) -> Item {
        let seed = self.set.seed;
        let (path, samples) = (shape.path(file), shape.samples_per_file);
        let mut sizes = shape.sizes(seed, file);
        let mut only = || sizes.next().expect("a file has a sample");
        let (bytes, records, content) = match shape.format {
            Format::Jpeg => {
                let aim = Some(only());
                (self.palette().bytes(file, aim), 0, Content::Picture { index: file, aim })
            }
            Format::Npz => {
                let volume = Volume::of(seed, file, only());
                (volume.bytes(), 0, Content::Volume(volume))
            }
            Format::Npy => (only(), 0, Content::Packed { file }),
            Format::Parquet => {
                let table = self.table.as_ref().expect("laid out whenever there are Parquet files");
                (table.bytes(), table.records(), Content::Packed { file })
            }
            Format::Tfrecord if shape.is_even() => {
                (samples * tfrecord::size(only()), samples, Content::Packed { file })
            }
            Format::Tfrecord => (sizes.map(tfrecord::size).sum(), samples, Content::Packed { file }),
            Format::Raw => (sizes.sum(), samples, Content::Packed { file }),
            Format::Tar => {
                let first = file * samples;
                let sample = |(place, size)| self.sample_bytes(shape, first + place, size);
                ((0..).zip(sizes).map(sample).sum::<u64>() + shard::END_BYTES, samples, Content::Packed { file })
            }
        };
        let records = if records == 1 && matches!(shape.format, Format::Tfrecord | Format::Raw) { 0 } else { records };
        Item { path, bytes, samples, records, content }
    }

    /// Bytes of a sample in a shard that is to have so many.
    fn sample_bytes(&self, shape: &Shape, index: u64, asked: u64) -> u64 {
        shard::member(self.picture_bytes(shape, index, asked))
            + shard::member((index % CLASSES).to_string().len() as u64)
    }

    fn picture_bytes(&self, shape: &Shape, index: u64, asked: u64) -> u64 {
        let aim = asked.saturating_sub(shard::SAMPLE_BYTES).max(1);
        if shape.has_pictures() { self.palette().bytes(index, Some(aim)) } else { aim }
    }

    pub fn folders(&self, folder: &Path, items: &[Item]) -> Result<()> {
        let mut last = None;
        for item in items {
            let parent = Path::new(&item.path).parent();
            if last != parent {
                let path = folder.join(parent.expect("names are below the folder of the set"));
                fs::create_dir_all(&path).map_err(|error| draft::failed("creating a folder", &path, &error))?;
                last = parent;
            }
        }
        Ok(())
    }

    /// Writes the file unless it stands already; then only its checksums are worked out.
    pub fn make(&self, item: &Item, folder: &Path, meter: &Meter<'_>) -> Result<Entry> {
        let unwritten = |_: u64, bytes: &[u8]| {
            meter.passed(bytes.len());
            Ok(())
        };
        let made = if item.stands(folder) {
            self.compose(item, &mut { unwritten })?
        } else {
            let draft = Draft::begin(folder, &item.path)?;
            let made = if self.is_shared(item, &draft) {
                self.compose(item, &mut { unwritten })?
            } else {
                self.compose(item, &mut |offset, bytes| {
                    draft.put(offset, bytes)?;
                    meter.passed(bytes.len());
                    Ok(())
                })?
            };
            draft.finish(item.bytes)?;
            made
        };
        if !made.records.is_empty() {
            let name = index::name(&item.path);
            let path = folder.join(&name);
            let parent = path.parent().expect("an index is below the folder of the set");
            fs::create_dir_all(parent).map_err(|error| draft::failed("creating a folder", parent, &error))?;
            let draft = Draft::begin(folder, &name)?;
            let bytes = index::encode(&made.records);
            draft.put(0, &bytes)?;
            draft.finish(bytes.len() as u64)?;
        }
        meter.finished();
        let records = made.records.len() as u64;
        Ok(Entry { path: item.path.clone(), bytes: item.bytes, crc64: made.crc64, samples: item.samples, records })
    }

    /// Whether the draft has got the blocks of the user's own file, without a copy.
    fn is_shared(&self, item: &Item, draft: &Draft) -> bool {
        let Content::Copied { number } = item.content else { return false };
        let original = self.set.replica.as_ref().and_then(|replica| replica.original(number));
        original.is_some_and(|original| draft.share(&original))
    }

    /// Gives the bytes of a file to `put` and returns what they are.
    fn compose(&self, item: &Item, put: &mut Put<'_>) -> Result<Made> {
        let single = |crc64| Made { crc64, records: Vec::new() };
        match &item.content {
            Content::Picture { index, aim } => self.palette().compose(*index, *aim, put).map(single),
            Content::Volume(volume) => volume.compose(put).map(single),
            Content::Packed { file } => {
                let mut stream = Stream::into(put);
                let shape = self.set.shape.as_ref().expect("packed files have a shape");
                self.pack(shape, *file, &mut stream)?;
                stream.finish()
            }
            Content::Copied { number } => {
                let mut stream = Stream::into(put);
                self.set.replica.as_ref().expect("copies have originals").compose(*number, &mut stream)?;
                stream.finish()
            }
        }
    }

    fn pack(&self, shape: &Shape, file: u64, stream: &mut Stream<'_, '_>) -> Result<()> {
        let mut chance = Chance::of(self.set.seed, CONTENT | file);
        let mut noise = Noise::of(&mut chance);
        if let Some(table) = &self.table {
            return table.compose(stream, &mut noise);
        }
        let mut frame = None;
        for (place, asked) in shape.sizes(self.set.seed, file).enumerate() {
            let index = file * shape.samples_per_file + place as u64;
            match shape.format {
                Format::Tfrecord => tfrecord::compose(stream, asked, &mut frame, &mut chance, &mut noise)?,
                Format::Tar => self.sample(shape, index, asked, stream, &mut noise)?,
                _ => {
                    stream.begin_record();
                    let head = if shape.format == Format::Npy { npy::bytes_head(asked) } else { Vec::new() };
                    stream.bytes(&head)?;
                    let asked = asked - head.len() as u64;
                    stream.noise(&mut noise, asked)?;
                    stream.end_record();
                }
            }
        }
        if shape.format == Format::Tar { shard::end(stream) } else { Ok(()) }
    }

    fn sample(
        &self,
        shape: &Shape,
        index: u64,
        asked: u64,
        stream: &mut Stream<'_, '_>,
        noise: &mut Noise,
    ) -> Result<()> {
        let name = format!("{index:09}");
        stream.begin_record();
        if shape.has_pictures() {
            let picture = self.palette().file(index, Some(asked.saturating_sub(shard::SAMPLE_BYTES).max(1)));
            let bytes = picture.len() as u64;
            shard::compose(stream, &format!("{name}.jpg"), bytes, &mut |stream| stream.bytes(&picture))?;
        } else {
            let bytes = self.picture_bytes(shape, index, asked);
            shard::compose(stream, &format!("{name}.bin"), bytes, &mut |stream| stream.noise(noise, bytes))?;
        }
        shard::class(stream, &name, index % CLASSES)?;
        stream.end_record();
        Ok(())
    }
}

/// Counts what passes and tells the caller.
pub struct Meter<'a> {
    bytes: AtomicU64,
    bytes_total: u64,
    files: AtomicU64,
    files_total: u64,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl<'a> Meter<'a> {
    pub fn over(bytes_total: u64, files_total: u64, progress: &'a (dyn Fn(Progress) + Sync)) -> Meter<'a> {
        Meter { bytes: AtomicU64::new(0), bytes_total, files: AtomicU64::new(0), files_total, progress }
    }

    pub fn passed(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.tell();
    }

    pub fn finished(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        let (bytes, files) = (self.bytes.load(Ordering::Relaxed), self.files.load(Ordering::Relaxed));
        (self.progress)(Progress { bytes, bytes_total: self.bytes_total, files, files_total: self.files_total });
    }
}
