//! JPEG images at the speed of copying: a few painted pictures, cut into rows that are valid on their own.
//!
//! JPEG allows a restart marker between rows of blocks; what lies between two of them decodes alone. So the rows of
//! sixteen pictures, encoded once, combine into any number of true and different images without another encoding.
//! It doesn't paint anything worth looking at, and knows nothing of folders.
//! Invariant: an image depends on the seed, the mean size and its index alone, and no two images are alike: each
//! has its seed and index in a comment, and its own sequence of rows.

use block::{Error, Result, crc64};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::noise::{Chance, Noise};
use super::stream::fill;
use super::{Put, crew};

/// Pictures to take rows from; they are all held in memory.
const PICTURES: u64 = 16;
/// Height of a row in pixels: one row of blocks at 4:2:0.
const ROW: u64 = 16;
/// A usual quality for photographs.
const QUALITY: u8 = 90;
/// What the painted noise costs at that quality, in bits a pixel times a hundred; ImageNet has about 4.7 bits.
const PIXEL_BITS_X100: u64 = 418;
/// Sizes are spread evenly over this share of the mean, in percent.
const SPREAD_PERCENT: (u64, u64) = (75, 125);
/// Rows go on with the next picture with a chance of one in so many.
const SWITCH: u64 = 4;

/// Streams of chance, apart from each other.
const PAINT: u64 = 1 << 62;
const COMPOSE: u64 = 2 << 62;
const PADDING: u64 = 7 << 60;

const MARKER: u8 = 0xff;
const FRAME: u8 = 0xc0;
const SCAN: u8 = 0xda;
const END: u8 = 0xd9;
const COMMENT: u8 = 0xfe;
const RESTART: u8 = 0xd0;
/// Restart markers count to eight and begin anew.
const RESTARTS: usize = 8;

pub struct Palette {
    seed: u64,
    mean_bytes: u64,
    head: Head,
    /// Row by row of each picture, as encoded.
    pictures: Vec<Vec<Vec<u8>>>,
}

/// What precedes the rows; the same for all pictures but for the height.
#[derive(PartialEq, Eq)]
struct Head {
    bytes: Vec<u8>,
    height_at: usize,
}

impl Palette {
    /// Paints and encodes the pictures.
    pub fn paint(seed: u64, mean_bytes: u64, threads: usize) -> Result<Palette> {
        let (width, rows) = dimensions(mean_bytes);
        let encoded = crew::share(threads, PICTURES, &|number| {
            let pixels = pixels(&mut Chance::of(seed, PAINT | number), width, rows * ROW);
            encode(&pixels, width, rows * ROW)
        })?;
        let (mut heads, pictures): (Vec<Head>, Vec<_>) = encoded.into_iter().unzip();
        heads.dedup();
        assert_eq!(heads.len(), 1, "pictures of one size and quality have one head");
        Ok(Palette { seed, mean_bytes, head: heads.remove(0), pictures })
    }

    /// Size of the file of an image. It is `aim` wherever a picture has that size.
    pub fn bytes(&self, index: u64, aim: Option<u64>) -> u64 {
        let (rows, padding) = self.rows(index, aim);
        self.size(&rows) + padding
    }

    /// Gives the file of an image to `put` and returns its checksum.
    pub fn compose(&self, index: u64, aim: Option<u64>, put: &mut Put<'_>) -> Result<u64> {
        let file = self.file(index, aim);
        put(0, &file)?;
        Ok(crc64::of(&file))
    }

    /// The file of an image.
    pub fn file(&self, index: u64, aim: Option<u64>) -> Vec<u8> {
        let (rows, padding) = self.rows(index, aim);
        let bytes = self.size(&rows) + padding;
        let mut file = Vec::with_capacity(usize::try_from(bytes).expect("an image fits in memory"));
        let (start, rest) = self.head.bytes.split_at(START);
        file.extend_from_slice(start);
        file.extend_from_slice(&comment(self.seed, index, padding));
        let height_at = file.len() + self.head.height_at - START;
        file.extend_from_slice(rest);
        let height = u16::try_from(rows.len() as u64 * ROW).expect("sizes are limited so that heights fit");
        file[height_at..height_at + 2].copy_from_slice(&height.to_be_bytes());
        for (place, row) in rows.iter().enumerate() {
            if place > 0 {
                file.extend_from_slice(&[MARKER, RESTART + ((place - 1) % RESTARTS) as u8]);
            }
            file.extend_from_slice(row);
        }
        file.extend_from_slice(&[MARKER, END]);
        file
    }

    /// The rows of an image: some of one picture, some of the next, until the size is met; to the nearest row, or if a
    /// size was asked for, with so many bytes of padding left.
    fn rows(&self, index: u64, asked: Option<u64>) -> (Vec<&[u8]>, u64) {
        let mut chance = Chance::of(self.seed, COMPOSE | index);
        let (least, most) = SPREAD_PERCENT;
        let spread = self.mean_bytes * least / 100 + chance.below(self.mean_bytes * (most - least) / 100 + 1);
        let aim = asked.unwrap_or(spread);
        let mut picture = &self.pictures[0];
        let mut first = 0;
        let mut rows: Vec<&[u8]> = Vec::new();
        let mut size = self.size(&rows);
        loop {
            if rows.is_empty() || chance.below(SWITCH) == 0 {
                picture = &self.pictures[choose(&mut chance, self.pictures.len())];
                first = choose(&mut chance, picture.len());
            }
            let row = &picture[(first + rows.len()) % picture.len()];
            let cost = row.len() as u64 + 2;
            let over = if asked.is_some() { cost } else { cost / 2 };
            if !rows.is_empty() && (size + over > aim || rows.len() == ROWS_MAX) {
                let padding = if asked.is_some() { self.padding(aim, &rows) } else { 0 };
                return (rows, padding);
            }
            size += cost;
            rows.push(row);
        }
    }

    fn padding(&self, aim: u64, rows: &[&[u8]]) -> u64 {
        aim.saturating_sub(self.size(rows)).min(PADDING_MAX)
    }

    fn size(&self, rows: &[&[u8]]) -> u64 {
        let restarts = rows.len().saturating_sub(1) * 2;
        let rows: usize = rows.iter().map(|row| row.len()).sum();
        (self.head.bytes.len() + COMMENT_BYTES + rows + restarts + 2) as u64
    }
}

/// The start marker of a file and its JFIF segment; a comment may follow.
const START: usize = 2 + 18;

/// A comment segment: marker, length and a text of fixed length.
const COMMENT_BYTES: usize = 4 + 54;

/// What a segment holds beyond that, for its length has sixteen bits.
const PADDING_MAX: u64 = u16::MAX as u64 + 2 - COMMENT_BYTES as u64;

/// Rows of the highest picture: its height has sixteen bits, too.
const ROWS_MAX: usize = u16::MAX as usize / ROW as usize;

fn comment(seed: u64, index: u64, padding: u64) -> Vec<u8> {
    let text = format!("stoker seed {seed:020} image {index:015}");
    let length = u16::try_from(COMMENT_BYTES as u64 - 2 + padding).expect("padding is limited so that it fits");
    let mut segment = vec![MARKER, COMMENT];
    segment.extend_from_slice(&length.to_be_bytes());
    segment.extend_from_slice(text.as_bytes());
    assert_eq!(segment.len(), COMMENT_BYTES, "sizes are known before the comment is written");
    segment.resize(usize::from(length) + 2, 0);
    // Noise, which no storage can shrink.
    fill(&mut Noise::of(&mut Chance::of(seed, PADDING | index)), &mut segment[COMMENT_BYTES..]);
    segment
}

fn choose(chance: &mut Chance, among: usize) -> usize {
    usize::try_from(chance.below(among as u64)).expect("below the length of a list")
}

/// Width in pixels and height in rows of an image of so many bytes, about 4:3.
fn dimensions(mean_bytes: u64) -> (u64, u64) {
    let pixels = mean_bytes * 800 / PIXEL_BITS_X100;
    let width = (pixels * 4 / 3).isqrt().next_multiple_of(ROW);
    (width, (pixels / width).div_ceil(ROW))
}

/// Encodes a picture and cuts it at its restart markers.
fn encode(pixels: &[u8], width: u64, height: u64) -> Result<(Head, Vec<Vec<u8>>)> {
    let narrow = |size: u64| u16::try_from(size).expect("sizes are limited so that pictures fit");
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, QUALITY);
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    encoder.set_restart_interval(narrow(width / ROW));
    encoder.encode(pixels, narrow(width), narrow(height), ColorType::Rgb).map_err(|error| {
        Error::invalid(format!("encoding a picture: {error}"), format!("{width} x {height} pixels"))
    })?;
    Ok(cut(&file))
}

/// Takes a file of our encoder apart: its head, and its rows without the markers between them.
fn cut(file: &[u8]) -> (Head, Vec<Vec<u8>>) {
    let mut at = 2;
    let mut height_at = 0;
    loop {
        let (kind, length) = (file[at + 1], usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]])));
        if kind == FRAME {
            // Marker, length and precision precede the height.
            height_at = at + 5;
        }
        at += 2 + length;
        if kind == SCAN {
            break;
        }
    }
    let head = Head { bytes: file[..at].to_vec(), height_at };
    let mut rows = Vec::new();
    let mut from = at;
    while at < file.len() {
        let marked = file[at] == MARKER && file[at + 1] != 0;
        if marked {
            rows.push(file[from..at].to_vec());
            from = at + 2;
        }
        at += if file[at] == MARKER { 2 } else { 1 };
    }
    (head, rows)
}

/// Paints waves bent by waves, with grain on top: it costs about as many bits as a photograph.
fn pixels(chance: &mut Chance, width: u64, height: u64) -> Vec<u8> {
    let mut waves: [Wave; 3] = std::array::from_fn(|_| Wave::of(chance, width));
    waves[2].phase = chance.below(1 << 16) as u32;
    let base: [i32; 3] = std::array::from_fn(|_| 90 + chance.below(76) as i32);
    let depth: [[i32; 2]; 3] = std::array::from_fn(|_| std::array::from_fn(|_| chance.below(80) as i32 - 40));
    let grain = GRAIN - 2 + chance.below(5) as i32;
    let mut noise = Noise::of(chance);
    let mut pixels = Vec::with_capacity(usize::try_from(width * height * 3).expect("a picture fits in memory"));
    for y in 0..height as u32 {
        let mut speck = noise.draw();
        for x in 0..width as u32 {
            let lane = x as usize % speck.len();
            if lane == 0 {
                speck = noise.draw();
            }
            let bend = (waves[2].at(x, y, 0) + 128) as u32 * BEND;
            let (first, second) = (waves[0].at(x, y, bend), waves[1].at(x, y, bend));
            let speck = (((speck[lane] >> 16) as i32 * (2 * grain + 1)) >> 16) - grain;
            for channel in 0..3 {
                let [near, far] = depth[channel];
                let shade = base[channel] + ((first * near + second * far) >> 7) + speck;
                pixels.push(shade.clamp(0, 255) as u8);
            }
        }
    }
    pixels
}

/// Largest change of a pixel by grain, give or take two.
const GRAIN: i32 = 21;
/// How far the third wave bends the others: at most a full turn.
const BEND: u32 = 256;

/// A wave across the picture, in integers so that every machine paints the same. A full turn is 65,536.
struct Wave {
    across: u32,
    down: u32,
    phase: u32,
}

impl Wave {
    /// One to four turns over the width of the picture.
    fn of(chance: &mut Chance, width: u64) -> Wave {
        let mut step = || ((1 << 16) + chance.below(3 << 16)) as u32 / width as u32;
        Wave { across: step(), down: step(), phase: 0 }
    }

    /// Height of the wave at a place, from -128 to 128: a parabola for each half turn, close to a sine.
    #[inline]
    fn at(&self, x: u32, y: u32, bend: u32) -> i32 {
        let turn = (x * self.across).wrapping_add(y * self.down).wrapping_add(self.phase).wrapping_add(bend);
        let half = i32::from(turn as u16 as i16);
        (half * (32_768 - half.abs())) >> 21
    }
}
