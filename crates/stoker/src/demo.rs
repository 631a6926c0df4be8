//! `stoker demo`: the main job, on a small real data set behind a slow store of its own. Two shuffled epochs
//! straight from the store, two through Stoker; every byte checked; one table and its picture.

use crate::chart::{Bar, Chart, Column, Mark, Style, Table, Tone};
use crate::ends::Ends;
use crate::node::INTERRUPTED;
use crate::{place, runtime, show};
use block::{Error, Source as _};
use client::messages::MountRequest;
use daemon::{Host, Journal, Life, reach};
use data::{ImageSpec, Manifest, Set, VolumeSpec, generate};
use emulate::parse::{bandwidth, duration};
use emulate::{Latency, Limits, Server};
use futures_util::{StreamExt, TryStreamExt};
use node::namespace::{Namespace, Opening, Reading};
use node::{Node, View};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The data set: 150 MB of images and 80 MB of volumes, so that latency and bandwidth both count.
const SET: Set = Set {
    images: ImageSpec { count: 1_500, classes: 10, mean_bytes: 100_000 },
    volumes: VolumeSpec { count: 4, bytes: 20_000_000 },
    seed: 7,
    shape: None,
    replica: None,
};

/// Readers, as the workers of a data loader would be.
const READERS: usize = 8;

const BUCKET: &str = "demo";

/// What one epoch took.
struct Epoch {
    source: &'static str,
    number: u64,
    seconds: f64,
    images: u64,
    bytes: u64,
    requests: u64,
    store_bytes: u64,
}

/// Folders that are made for the time of the demo, beside the data.
const MADE: [&str; 2] = ["cache", "mnt"];

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where to make the data set; by default a folder that is removed afterwards
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Bandwidth of the emulated store
    #[arg(long, value_name = "RATE", default_value = "60MB/s", value_parser = bandwidth)]
    bandwidth: u64,
    /// First-byte latency of the emulated store
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    latency: Duration,
    /// Write the picture to this file
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    place::can_be_written(&[(args.picture.as_deref(), place::PICTURE)], [])?;
    let scratch = args.dir.is_none();
    let folder =
        args.dir.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("stoker-demo-{}", std::process::id())));
    // They are removed at the end, so they must be the demo's own.
    for made in MADE.map(|name| folder.join(name)) {
        if made.symlink_metadata().is_ok() {
            let error = Error::invalid("the demo would remove at its end what is there already", made.display());
            return Err(error.hint("name an empty folder with --dir, or remove that yourself").into());
        }
    }
    let runtime = runtime()?;
    // Before there is anything that an interrupt would leave behind.
    let mut ends = runtime.block_on(async { Ends::new() });
    std::fs::create_dir_all(folder.join("data")).map_err(|error| {
        Error::io("cannot make a folder for the demo", folder.display(), &error).hint("give --dir DIR")
    })?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = demo(args, &folder) => Some(done),
            _ = ends.next() => None,
        }
    });
    // A thread may read from the mount that ends here.
    runtime.shutdown_background();
    let made = if scratch { vec![folder.clone()] } else { MADE.map(|name| folder.join(name)).to_vec() };
    let Some(done) = done else {
        let _ = mount::unmount(&folder.join("mnt"), true);
        made.iter().for_each(|folder| remove(folder));
        match scratch {
            true => note!("stoker: interrupted; what the demo made is removed"),
            false => note!("stoker: interrupted; the data stays in {}, for the same command", folder.display()),
        }
        return Ok(ExitCode::from(INTERRUPTED));
    };
    made.iter().for_each(|folder| remove(folder));
    let (chart, way) = done?;
    let terminal = std::io::stdout().is_terminal();
    let style = Style { colour: place::colour(terminal), unicode: place::unicode(), width: 100 };
    say!("\n{}\n  {way}", chart.text(&style))?;
    if let Some(picture) = &args.picture {
        std::fs::write(picture, chart.svg())
            .map_err(|error| Error::io("cannot write the picture", picture.display(), &error))?;
        say!("  the picture: {}", picture.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Remove a folder, also while threads that were not heard yet make files in it.
fn remove(folder: &Path) {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => return,
        }
    }
    tracing::warn!("{} could not be removed", folder.display());
}

async fn demo(args: &Args, folder: &Path) -> anyhow::Result<(Chart, String)> {
    let data = make(folder.join("data")).await?;
    let limits = Limits { bandwidth: Some(args.bandwidth), latency: Latency::Fixed(args.latency), ..Limits::default() };
    let settings =
        emulate::Settings { bucket: Some(BUCKET.into()), limits, ..emulate::Settings::of(folder.join("data")) };
    let server = Server::start(settings).await?;
    let mut epochs = Vec::new();
    let reach =
        reach::settings(Some(server.endpoint()), Some("us-east-1".into()), None, true, None, Default::default());
    let source = reach::source(&format!("s3://{BUCKET}"), &reach)?;
    note!(
        "serving it as s3://{BUCKET} with {}/s and {:?} to the first byte",
        show::bytes(args.bandwidth),
        args.latency
    );
    let bucket = Arc::new(Bucket::list(&source).await?);
    for number in 1..=2 {
        let reader = |path: String| read_bucket(bucket.clone(), path);
        epochs.push(epoch(&data, number, "the bucket, as it is", &server, reader).await?);
    }
    let way = through_stoker(folder, &server, &data, &mut epochs).await?;
    server.stop().await;
    Ok((chart(&epochs, args), way))
}

/// Generate the data set.
async fn make(folder: PathBuf) -> anyhow::Result<Arc<Manifest>> {
    note!("making {} JPEG images and {} npz volumes", show::count(SET.images.count), SET.volumes.count);
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get());
    let bar = show::bar("make");
    let made = tokio::task::spawn_blocking(move || {
        let made = generate(&SET, &folder, threads, &|progress| {
            bar.set_length(progress.bytes_total);
            bar.set_position(progress.bytes);
        });
        bar.finish_and_clear();
        made
    });
    Ok(Arc::new(made.await??))
}

/// Two epochs through Stoker: through the kernel if there is FUSE, else from the node in this process.
async fn through_stoker(
    folder: &Path,
    server: &Server,
    data: &Arc<Manifest>,
    epochs: &mut Vec<Epoch>,
) -> anyhow::Result<String> {
    let cache = place::cache(Some(&folder.join("cache")))?;
    let limits = place::limits(&cache, None)?;
    let settings = node::Settings {
        limits,
        cache,
        memory_bytes: place::memory(None)?,
        seed: 1,
        patience: Duration::from_secs(60),
    };
    let node = Node::start(settings, place::boot(), tokio::runtime::Handle::current())?;
    let (url, point) = (format!("s3://{BUCKET}"), folder.join("mnt"));
    std::fs::create_dir_all(&point)?;
    let journal = Journal::open(None, tracing::Level::WARN, place::now)?;
    let host = Host::new(node.clone(), Arc::new(journal), Life::Asked, None);
    let request = MountRequest {
        url: url.clone(),
        path: point.to_string_lossy().into_owned(),
        endpoint: Some(server.endpoint()),
        region: Some("us-east-1".into()),
        anonymous: true,
        ..MountRequest::default()
    };
    let mounted = match host.mount(request, |_| ()).await {
        Ok(mounted) => mounted,
        Err(error) if Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root() => {
            return Err(error.into());
        }
        Err(error) => {
            let reach = reach::settings(
                Some(server.endpoint()),
                Some("us-east-1".into()),
                None,
                true,
                None,
                Default::default(),
            );
            let view = View::open(node, reach::source(&url, &reach)?, Default::default(), |_| ()).await?;
            for number in 1..=2 {
                let reader = |path: String| read_node(view.clone(), path);
                epochs.push(epoch(data, number, "Stoker, in process", server, reader).await?);
            }
            return Ok(format!("Without FUSE ({}), the node was used in this process.", error.what));
        }
    };
    for number in 1..=2 {
        let reader = |path: String| read_file(point.join(path));
        epochs.push(epoch(data, number, "Stoker", server, reader).await?);
    }
    let passthrough =
        daemon::status::status(&host).mounts.first().map_or_else(String::new, |mount| mount.passthrough.clone());
    mounted.leave()?;
    mounted.ended().await;
    Ok(format!("Through a FUSE mount; kernel passthrough to the cache is {passthrough}."))
}

/// Read every file once, in an order of the epoch's own, and check every byte.
async fn epoch<Reading>(
    data: &Arc<Manifest>,
    number: u64,
    source: &'static str,
    server: &Server,
    read: impl Fn(String) -> Reading,
) -> anyhow::Result<Epoch>
where
    Reading: Future<Output = anyhow::Result<Vec<u8>>> + Send + 'static,
{
    let before = server.counters();
    let mut order: Vec<usize> = (0..data.files.len()).collect();
    shuffle(&mut order, number);
    let bar = show::bar(&format!("{source}, epoch {number}"));
    bar.set_length(data.bytes());
    let began = Instant::now();
    let reads = order.into_iter().map(|index| {
        let (data, reading) = (data.clone(), read(data.files[index].path.clone()));
        tokio::spawn(async move {
            let bytes = reading.await?;
            data.files[index].check(&bytes)?;
            anyhow::Ok(bytes.len() as u64)
        })
    });
    let mut reads = futures_util::stream::iter(reads).buffer_unordered(READERS);
    while let Some(read) = reads.next().await {
        bar.inc(read??);
    }
    let seconds = began.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let after = server.counters();
    let (requests, store_bytes) = (after.requests() - before.requests(), after.bytes_out() - before.bytes_out());
    Ok(Epoch { source, number, seconds, images: SET.images.count, bytes: data.bytes(), requests, store_bytes })
}

/// Fisher and Yates, with the generator of SplitMix64: the order depends on the epoch alone.
fn shuffle(order: &mut [usize], seed: u64) {
    let mut state = seed;
    for last in (1..order.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(last, ((mixed ^ mixed >> 31) % (last as u64 + 1)) as usize);
    }
}

/// The bucket as a loader without Stoker sees it: a request for each file, when it is wanted.
struct Bucket {
    origin: store::Origin,
    objects: std::collections::HashMap<String, Arc<block::Object>>,
}

impl Bucket {
    async fn list(source: &node::DataSet) -> anyhow::Result<Bucket> {
        let pages: Vec<_> = source.store.list("").try_collect().await?;
        let listed = pages.iter().flatten();
        let objects = listed.map(|listed| (listed.key.clone(), store::object(&*source.store, listed))).collect();
        Ok(Bucket { origin: store::Origin::new(source.store.clone(), Default::default()), objects })
    }
}

async fn read_bucket(bucket: Arc<Bucket>, path: String) -> anyhow::Result<Vec<u8>> {
    let object = bucket.objects.get(&path).ok_or_else(|| Error::missing("the bucket lost a file", &path))?;
    let mut bytes = Vec::with_capacity(object.size as usize);
    for start in (0..object.blocks()).step_by(block::RUN_BLOCKS_MAX as usize) {
        let end = object.blocks().min(start + block::RUN_BLOCKS_MAX);
        let mut blocks = bucket.origin.fetch(block::Run::new(object.clone(), start..end));
        while let Some(block) = blocks.next().await {
            block?.pieces().iter().for_each(|piece| bytes.extend_from_slice(piece));
        }
    }
    Ok(bytes)
}

async fn read_file(path: PathBuf) -> anyhow::Result<Vec<u8>> {
    Ok(tokio::task::spawn_blocking(move || std::fs::read(path)).await??)
}

async fn read_node(view: Arc<View>, path: String) -> anyhow::Result<Vec<u8>> {
    let node =
        view.manifest().find(path.as_bytes()).ok_or_else(|| Error::missing("the data set lost a file", &path))?;
    let content = match view.open(node) {
        Opening::Ready(content) => content?,
        Opening::Waiting(content) => content.await?,
    };
    let mut bytes = Vec::new();
    loop {
        let pieces = match content.read(bytes.len() as u64, block::BLOCK as u32) {
            Reading::Ready(pieces) => pieces?,
            Reading::Waiting(pieces) => pieces.await?,
        };
        if pieces.is_empty() {
            return Ok(bytes);
        }
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    }
}

/// The results as a table and bars.
fn chart(epochs: &[Epoch], args: &Args) -> Chart {
    let limit = args.bandwidth as f64;
    let rate = |epoch: &Epoch| epoch.bytes as f64 / epoch.seconds;
    let right = ["images/s", "MB/s", "store requests", "store bytes", "share of wire limit"].map(Column::right);
    let columns = [Column::left("source"), Column::right("epoch")].into_iter().chain(right).collect();
    let rows = epochs.iter().map(|epoch| {
        let images = show::count((epoch.images as f64 / epoch.seconds) as u64);
        let megabytes = show::count((rate(epoch) / 1e6) as u64);
        let share = format!("{:.0} %", rate(epoch) * 100.0 / limit);
        let (requests, bytes) = (show::count(epoch.requests), show::bytes(epoch.store_bytes));
        vec![epoch.source.into(), epoch.number.to_string(), images, megabytes, requests, bytes, share]
    });
    let bars = epochs.iter().map(|epoch| Bar {
        label: format!("{}, epoch {}", epoch.source, epoch.number),
        value: rate(epoch) / 1e6,
        text: show::count((rate(epoch) / 1e6) as u64),
        tone: if epoch.source.starts_with("Stoker") { Tone::Accent } else { Tone::Plain },
    });
    let set = format!(
        "{} JPEG images and {} npz volumes, {}",
        show::count(SET.images.count),
        SET.volumes.count,
        show::bytes(epochs[0].bytes)
    );
    Chart {
        title: "Two shuffled epochs, from the bucket and through Stoker".into(),
        subtitle: format!("{set}; {READERS} readers; the store gives {}/s after {:?}. Every byte was checked.", show::bytes(args.bandwidth), args.latency),
        table: Table { columns, rows: rows.collect() },
        unit: "MB/s".into(),
        bars: bars.collect(),
        mark: Some(Mark { label: format!("wire limit {} MB/s", (limit / 1e6) as u64), value: limit / 1e6 }),
        note: "The second epoch through Stoker comes from the local disk (and the page cache): it asks the store for nothing.".into(),
    }
}
