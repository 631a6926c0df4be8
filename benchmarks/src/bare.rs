//! The bare program: what it costs to bring the large files here at all. It asks a server for the same ranges, with so
//! many requests in flight, sums what comes (CRC-64/NVME of each 64 KiB) and writes it into files, and does nothing else: no
//! names, no reader. With `--mount` it also answers the reads of a mount, as soon as their bytes are here, with
//! zeros that lie in memory: the least that FUSE costs. What Stoker takes beside that is Stoker's own.

mod null;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};

use crate::dataset::{Member, Scale};
use crate::read::{Counts, Outcome, together};
use crate::workload::Workload;

/// What Stoker asks for in one request ahead of a reader.
const RANGE: u64 = 8 << 20;
/// What is summed, and written, at once.
const SUMMED: usize = 64 << 10;
const WRITTEN: usize = 256 << 10;

#[derive(Clone, Debug, clap::Args)]
pub struct Order {
    /// Where the server listens, such as 127.0.0.1:9000.
    #[arg(long)]
    pub server: String,
    #[arg(long)]
    pub bucket: String,
    /// An empty folder for the files.
    #[arg(long)]
    pub into: PathBuf,
    #[arg(long)]
    pub in_flight: usize,
    #[arg(long, default_value = "full")]
    pub scale: Scale,
    /// Mount the files here, begin at the first read, and end when it is unmounted.
    #[arg(long)]
    pub mount: Option<PathBuf>,
}

/// A range of one of the files.
struct Piece<'a> {
    file: &'a File,
    member: &'a Member,
    at: u64,
    length: u64,
}

pub fn run(order: &Order) -> Result<Outcome> {
    let members = order.scale.large();
    let files = members.iter().map(|member| {
        let path = order.into.join(member.name.replace('/', "-"));
        let file = File::create_new(&path).with_context(|| format!("making {}", path.display()))?;
        file.set_len(member.size)?;
        Ok(file)
    });
    let files = files.collect::<Result<Vec<_>>>()?;
    // Side by side, as many readers as the workload has read them.
    let together_read = members.iter().zip(&files).collect::<Vec<_>>();
    let pieces = together_read.chunks(Workload::Large4.threads()).flat_map(|files| {
        let size = files[0].0.size;
        let at = (0..size).step_by(RANGE as usize);
        at.flat_map(move |at| {
            files.iter().map(move |(member, file)| Piece { file, member, at, length: RANGE.min(size - at) })
        })
    });
    let pieces: Vec<Piece<'_>> = pieces.collect();
    let next = AtomicUsize::new(0);
    let mounted = order.mount.as_deref().map(|at| null::Mounted::begin(at, &members)).transpose()?;
    let (counts, took) = together(order.in_flight, WRITTEN, |_, buffer| {
        let mut counts = Counts::default();
        let mut bring = || -> Result<()> {
            let mut connection = BufReader::with_capacity(WRITTEN, TcpStream::connect(&order.server)?);
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                bring_one(order, piece, &mut connection, buffer, &mut counts)?;
                mounted.iter().for_each(|mounted| mounted.brought(piece.member, piece.at + piece.length));
            }
            Ok(())
        };
        if let Err(error) = bring() {
            counts.error("a range", &format!("{error:#}"));
        }
        counts
    });
    mounted.iter().for_each(null::Mounted::wait);
    Ok(counts.outcome(took, 1))
}

fn bring_one(
    order: &Order,
    piece: &Piece<'_>,
    connection: &mut BufReader<TcpStream>,
    buffer: &mut [u8],
    counts: &mut Counts,
) -> Result<()> {
    let Piece { file, member, at, length } = piece;
    let (last, bucket, name) = (at + length - 1, &order.bucket, &member.name);
    let asked = format!("GET /{bucket}/{name} HTTP/1.1\r\nHost: {}\r\nRange: bytes={at}-{last}\r\n\r\n", order.server);
    connection.get_mut().write_all(asked.as_bytes())?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    ensure!(line.starts_with("HTTP/1.1 206"), "the server says {line}");
    let mut bytes = None;
    while line.trim_end() != "" || bytes.is_none() {
        line.clear();
        ensure!(connection.read_line(&mut line)? > 0, "the headers end early");
        if let Some((name, value)) =
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            bytes = Some(value.trim().parse::<u64>().with_context(|| name.to_owned())?);
        }
    }
    ensure!(bytes == Some(*length), "{bytes:?} bytes were sent instead of {length}");
    let mut done = 0;
    while done < *length {
        let wanted = buffer.len().min((length - done) as usize);
        connection.read_exact(&mut buffer[..wanted])?;
        for summed in buffer[..wanted].chunks(SUMMED) {
            std::hint::black_box(block::crc64::of(summed));
        }
        file.write_all_at(&buffer[..wanted], at + done)?;
        counts.wrong_tags += member.wrong_tags(&buffer[..wanted], at + done);
        counts.bytes += wanted as u64;
        done += wanted as u64;
    }
    counts.items += 1;
    Ok(())
}
