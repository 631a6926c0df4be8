//! `stoker emulate`: serve a folder as an S3 endpoint until told to stop, then say what was asked of it.

use crate::print;
use anyhow::Result;
use emulate::{Faults, Keys, Latency, Limits, Log, Server, Settings, Throttle};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Keys for clients come from STOKER_EMULATE_ACCESS_KEY and STOKER_EMULATE_SECRET_KEY; without them any
/// client is let in, signed or not.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Folder to serve; its first-level folders are the buckets
    dir: PathBuf,
    /// Where to listen; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address)]
    listen: SocketAddr,
    /// Serve the folder itself as one bucket of this name
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
    /// Bandwidth of all connections together, each way, such as 200MB/s or 25Gbit/s
    #[arg(long, value_name = "RATE", value_parser = bandwidth)]
    bandwidth: Option<u64>,
    /// Time until the first byte: 20ms, `20ms,p99=100ms` or `uniform(10ms,30ms)`
    #[arg(long, value_name = "TIME", value_parser = advised::<Latency>)]
    latency: Option<Latency>,
    /// Requests per second of the whole endpoint
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_second: Option<u32>,
    /// Above that: `queue`, `503` or `503,retry-after=1s`
    #[arg(long, value_name = "HOW", default_value = "queue", value_parser = advised::<Throttle>)]
    throttle: Throttle,
    /// What goes wrong: name=share, name@N (every Nth) or name#N (the Nth), such as truncate=0.01,reset@100
    #[arg(long, value_name = "LIST", value_parser = advised::<Faults>)]
    faults: Option<Faults>,
    /// Makes latencies and spoiled bytes the same again; faults take theirs from the list
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print each request
    #[arg(long)]
    log: bool,
    #[arg(long, hide = true, env = "STOKER_EMULATE_ACCESS_KEY", hide_env_values = true)]
    access_key: Option<String>,
    #[arg(long, hide = true, env = "STOKER_EMULATE_SECRET_KEY", hide_env_values = true)]
    secret_key: Option<String>,
}

/// An error of ours on one line, as clap prints it.
fn on_one_line(error: &block::Error) -> String {
    format!("{}; {}", error.what, error.hint)
}

fn address(text: &str) -> Result<SocketAddr, block::Error> {
    let wrong = |_| block::Error::invalid("this is no address with a port", format!("`{text}`"));
    text.parse().map_err(|error| wrong(error).hint("write it like 127.0.0.1:9000, or [::1]:9000"))
}

fn bandwidth(text: &str) -> Result<u64, String> {
    emulate::parse::bandwidth(text).map_err(|error| on_one_line(&error))
}

fn advised<T: std::str::FromStr<Err = block::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| on_one_line(&error))
}

pub async fn run(args: Args) -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    if args.access_key.is_some() != args.secret_key.is_some() {
        let error = block::Error::invalid("one key was given without the other", "the environment");
        return Err(error.hint("set both STOKER_EMULATE_ACCESS_KEY and STOKER_EMULATE_SECRET_KEY, or neither").into());
    }
    // Of connections that it takes at a time, each may have a file open.
    crate::node::raise_descriptors();
    let signed = args.access_key.is_some();
    let bucket = args.bucket.clone().unwrap_or_else(|| "BUCKET".into());
    let server = Server::start(settings(args)).await.map_err(crate::bench::named)?;
    let endpoint = server.endpoint();
    let how = if signed { "" } else { " --anonymous" };
    say!(
        "{endpoint}\n  mount it:  stoker mount s3://{bucket} /mnt --endpoint {endpoint}{how}\n  \
         counters:  {endpoint}/-/counters"
    )?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let counters = server.counters();
    server.stop().await;
    print::out(format_args!("\n{counters}"))
}

fn settings(args: Args) -> Settings {
    // Requests are served whether anybody reads of them or not.
    let log = Log(Arc::new(|line| drop(say!("{line}"))));
    Settings {
        bucket: args.bucket,
        listen: args.listen,
        keys: args.access_key.zip(args.secret_key).map(|(access, secret)| Keys { access, secret }),
        limits: Limits {
            bandwidth: args.bandwidth,
            latency: args.latency.unwrap_or_default(),
            requests_per_second: args.requests_per_second,
            throttle: args.throttle,
        },
        faults: args.faults.unwrap_or_default(),
        seed: args.seed,
        log: args.log.then_some(log),
        ..Settings::of(args.dir)
    }
}
