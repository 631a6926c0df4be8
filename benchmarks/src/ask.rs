//! Asks a member for what it keeps, as fast as it gives, and says how much came: by the bare protocol of
//! docs/format.md, or as members do (`--as-member`), who compare what comes with its checksums.
//!
//! What to ask for is told by a snapshot of the names of a set, as a node keeps it in its cache folder. Nothing is
//! measured here of whoever answers: its processor time is its own business.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use block::{Fixed, Object, RUN_BLOCKS_MAX, Run, SUM, Source, crc64};
use futures_util::StreamExt;
use node::manifest::Manifest;
use peer::{Lines, Own, Owners, Room, Roster, Seat, Tcp};
use rustix::net::RecvFlags;
use serde::Serialize;

use crate::read::own_cpu;

const GREETING: usize = 40;
const HEADER: usize = 16;
/// Of a block, and of the end of an answer (docs/format.md).
const BLOCK: u32 = 16;
const DONE: u32 = 17;
/// What is read at once.
const BUFFER: usize = 1 << 20;
/// How long a member that asks waits for a block.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, clap::Args)]
pub struct Order {
    /// Where the member listens, such as 127.0.0.1:7865.
    #[arg(long)]
    pub member: String,
    /// Its name among the members.
    #[arg(long)]
    pub name: String,
    /// A snapshot of the names of the set, out of its cache folder.
    #[arg(long)]
    pub snapshot: PathBuf,
    /// Blocks of one request; fewer where an object has fewer.
    #[arg(long, default_value_t = 16)]
    pub blocks: u32,
    /// Requests that are under way on a connection.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Compare blocks with the checksums that come with them.
    #[arg(long)]
    pub verify: bool,
    /// Have the kernel throw the bytes of blocks away in place of copying them to nobody.
    #[arg(long, conflicts_with = "verify")]
    pub discard: bool,
    /// Ask as members do, over as many connections as they take.
    #[arg(long)]
    pub as_member: bool,
}

/// What came.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Came {
    pub seconds: f64,
    pub requests: u64,
    pub blocks: u64,
    pub bytes: u64,
    pub requests_per_second: f64,
    pub bytes_per_second: f64,
    /// Of this process alone.
    pub cpu_seconds: f64,
}

pub fn ask(order: &Order) -> Result<Came> {
    let runs = runs(order)?;
    ensure!(!runs.is_empty(), "the set is empty");
    let began = (Instant::now(), own_cpu());
    let came = if order.as_member { as_member(order, &runs)? } else { barely(order, &runs)? };
    let seconds = began.0.elapsed().as_secs_f64();
    Ok(Came {
        seconds,
        requests_per_second: came.requests as f64 / seconds,
        bytes_per_second: came.bytes as f64 / seconds,
        cpu_seconds: (own_cpu() - began.1).as_secs_f64(),
        ..came
    })
}

/// All of the set, by requests.
fn runs(order: &Order) -> Result<Vec<Run>> {
    let manifest = Manifest::open(&order.snapshot)?;
    let (mut walk, mut runs) = (manifest.walk(node::namespace::ROOT), Vec::new());
    let mut nodes = Vec::new();
    while let Some(file) = walk.advance() {
        nodes.push(file.node);
    }
    for object in nodes.into_iter().filter_map(|node| manifest.object(node)) {
        let each = order.blocks.clamp(1, RUN_BLOCKS_MAX);
        let starts = (0..object.blocks()).step_by(each as usize);
        runs.extend(starts.map(|start| Run::new(object.clone(), start..object.blocks().min(start + each))));
    }
    Ok(runs)
}

/// By the bare protocol, a thread a connection.
fn barely(order: &Order, runs: &[Run]) -> Result<Came> {
    let asked: Vec<Vec<u8>> = runs.iter().map(encode).collect();
    let until = Instant::now() + Duration::from_secs(order.seconds);
    let sums = thread::scope(|scope| {
        let one = |number: usize| {
            let (asked, first) = (&asked, number * runs.len() / order.connections);
            scope.spawn(move || Asker::greet(order)?.ask(order, asked, first, until))
        };
        let all: Vec<_> = (0..order.connections).map(one).collect();
        all.into_iter().map(|one| one.join().expect("it doesn't panic")).collect::<Result<Vec<_>>>()
    })?;
    Ok(sums.into_iter().fold(Came::default(), |all, one| Came {
        requests: all.requests + one.requests,
        blocks: all.blocks + one.blocks,
        bytes: all.bytes + one.bytes,
        ..all
    }))
}

/// A request without its number.
fn encode(run: &Run) -> Vec<u8> {
    let Object { store, key, version, size } = &*run.object;
    // A reader waits for it; nobody was named before, and nobody knows when it is due.
    let mut out = vec![1];
    out.extend(u32::MAX.to_le_bytes());
    out.extend([0; 32]);
    out.extend(run.blocks.start.to_le_bytes());
    out.extend(run.blocks.end.to_le_bytes());
    out.extend(size.to_le_bytes());
    for text in [&**store, key, version] {
        out.extend((text.len() as u16).to_le_bytes());
        out.extend(text.as_bytes());
    }
    let head = [1, out.len() as u32, 0, 0].map(u32::to_le_bytes).concat();
    [head, out].concat()
}

/// One connection.
struct Asker {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// Bytes that are read beyond what is looked for: of what is thrown away, few.
    ahead: usize,
    /// What of the buffer was not looked at yet.
    from: usize,
    until: usize,
}

impl Asker {
    fn greet(order: &Order) -> Result<Asker> {
        let socket = TcpStream::connect(&order.member).with_context(|| format!("asking {}", order.member))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut asker = Asker {
            socket,
            buffer: vec![0; BUFFER],
            ahead: if order.discard { 4 << 10 } else { BUFFER },
            from: 0,
            until: 0,
        };
        let (me, member) = (Seat::new("generator", "", 0).id, Seat::new(&order.name, "", 0).id);
        asker.socket.write_all(&[&b"stoker\x00\x03"[..], &me.to_le_bytes(), &member.to_le_bytes()].concat())?;
        let mut answer = [0; GREETING];
        asker.socket.read_exact(&mut answer)?;
        ensure!(answer[8..24] == member.to_le_bytes(), "another member answers there");
        Ok(asker)
    }

    fn ask(&mut self, order: &Order, asked: &[Vec<u8>], first: usize, until: Instant) -> Result<Came> {
        let (mut came, mut next, mut number, mut out) = (Came::default(), first, 0u32, Vec::new());
        let (mut open, mut done) = (0, 0);
        while Instant::now() < until {
            // Those that were answered are replaced together, as a reader of many would.
            for _ in open..order.depth {
                number = number.wrapping_add(1);
                let place = out.len();
                out.extend(&asked[next]);
                out[place + 8..place + 12].copy_from_slice(&number.to_le_bytes());
                next = (next + 1) % asked.len();
            }
            open = order.depth;
            self.socket.write_all(&out)?;
            out.clear();
            while open > order.depth / 2 {
                let (word, length) = self.header()?;
                match word {
                    BLOCK => {
                        let bytes = self.block(order, length)?;
                        (came.blocks, came.bytes) = (came.blocks + 1, came.bytes + bytes);
                    }
                    DONE => (open, done) = (open - 1, done + 1),
                    // A beat.
                    20 => {}
                    word => bail!("the member says {word} in place of a block"),
                }
            }
        }
        Ok(Came { requests: done, ..came })
    }

    fn header(&mut self) -> Result<(u32, usize)> {
        let head: [u8; HEADER] = self.take(HEADER)?.try_into().expect("as many as were taken");
        let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        Ok((field(0), field(4) as usize))
    }

    /// The payload of a block; its bytes without their checksums.
    fn block(&mut self, order: &Order, length: usize) -> Result<u64> {
        // So many checksums of 8 bytes as there are pieces.
        let sums = length.div_ceil(SUM as usize + 8);
        let bytes = length - 8 * sums;
        if order.discard {
            self.take(8 * sums)?;
            self.skip(bytes)?;
            return Ok(bytes as u64);
        }
        let payload = self.take(length)?;
        if order.verify {
            let (told, content) = payload.split_at(8 * sums);
            let told = told.chunks_exact(8).map(|sum| u64::from_le_bytes(sum.try_into().expect("eight bytes")));
            ensure!(content.chunks(SUM as usize).map(crc64::of).eq(told), "a block is damaged");
        }
        Ok(bytes as u64)
    }

    /// The next bytes, all in one place.
    fn take(&mut self, bytes: usize) -> Result<&[u8]> {
        if self.buffer.len() - self.from < bytes.max(BUFFER / 2) {
            self.buffer.copy_within(self.from..self.until, 0);
            (self.from, self.until) = (0, self.until - self.from);
            let most = self.buffer.len().max(2 * bytes);
            self.buffer.resize(most, 0);
        }
        while self.until - self.from < bytes {
            let most = self.from + bytes.max(self.ahead);
            let end = self.buffer.len().min(most);
            let got = self.socket.read(&mut self.buffer[self.until..end])?;
            ensure!(got > 0, "the member hung up");
            self.until += got;
        }
        let taken = self.from..self.from + bytes;
        self.from = taken.end;
        Ok(&self.buffer[taken])
    }

    /// Throw the next bytes away.
    fn skip(&mut self, bytes: usize) -> Result<()> {
        let here = bytes.min(self.until - self.from);
        self.from += here;
        let mut left = bytes - here;
        while left > 0 {
            // The kernel moves nothing into this with the flag, however much it is told to.
            let (_, got) = rustix::net::recv(&self.socket, &mut self.buffer[..left.min(BUFFER)], RecvFlags::TRUNC)?;
            ensure!(got > 0, "the member hung up");
            left -= got;
        }
        Ok(())
    }
}

/// As members do: over the tier that asks them. What none gives would be missing.
fn as_member(order: &Order, runs: &[Run]) -> Result<Came> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (me, other) = (Seat::new("generator", "127.0.0.1:1", 0), Seat::new(&order.name, &order.member, 1));
    let roster = tokio::sync::watch::channel(Arc::new(Roster::of(me.id, [me, other]))).1;
    let lines = Lines::new(roster, Arc::new(Tcp), PATIENCE, runtime.handle().clone());
    let missing: Arc<dyn Source> = Arc::new(Fixed::default());
    let own = Own { inner: missing.clone(), shared: missing, room: Arc::new(|_, _| Room::Full) };
    let owners = Owners::over(own, lines);
    let until = Instant::now() + Duration::from_secs(order.seconds);
    runtime.block_on(async {
        let mut readers = tokio::task::JoinSet::new();
        let each = order.depth * order.connections;
        for reader in 0..each {
            let (owners, runs) = (owners.clone(), runs.to_vec());
            readers.spawn(async move {
                let (mut came, mut next) = (Came::default(), reader * runs.len() / each);
                while Instant::now() < until {
                    let mut blocks = owners.fetch(runs[next].clone());
                    while let Some(block) = blocks.next().await {
                        (came.blocks, came.bytes) = (came.blocks + 1, came.bytes + block?.len() as u64);
                    }
                    came.requests += 1;
                    next = (next + 1) % runs.len();
                }
                Ok::<_, block::Error>(came)
            });
        }
        let mut all = Came::default();
        while let Some(one) = readers.join_next().await {
            let one = one.context("a reader ended")??;
            all.requests += one.requests;
            all.blocks += one.blocks;
            all.bytes += one.bytes;
        }
        Ok(all)
    })
}
