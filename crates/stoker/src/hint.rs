//! `stoker hint`: tell the node of a mount what a job will read, and in which order.

use crate::mount::node_of;
use crate::show;
use block::Error;
use client::messages::{HintRequest, Hinted, Sampler};
use hyper::Method;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
Files are those below DIR in the order of their names, as ImageFolder numbers them, or a list's.
A wrong order costs speed, never content.

Examples:
  stoker hint /data/train --rank 3 --world 8 --epochs 90          as DistributedSampler deals
  stoker hint /data/train --files order.txt                       paths, one a line
  stoker hint /data/train --include '*.jpg' --numbers - < order   numbers, one a line
  stoker hint /data/train --forget";

/// The name of an order that was given none.
const NAME: &str = "order";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A mount point, or a folder below it
    dir: PathBuf,
    /// What the order is called: it takes the place of the one of that name. One for each process that reads; by default
    /// `rank N` with --rank
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Forget the order of this name
    #[arg(long, conflicts_with_all = ["files", "numbers", "rank"])]
    forget: bool,
    /// Only files whose path below the mount point matches; may be given again
    #[arg(long, value_name = "GLOB", conflicts_with = "files")]
    include: Vec<String>,
    /// Not files that match; may be given again
    #[arg(long, value_name = "GLOB", conflicts_with = "files")]
    exclude: Vec<String>,
    /// The files, as paths below DIR, one a line; - is standard input
    #[arg(long, value_name = "FILE")]
    files: Option<PathBuf>,
    /// Of the files these, by number from 0, one a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "rank")]
    numbers: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    // Last: what follows a group with a heading falls under it.
    #[command(flatten)]
    sampler: Dealt,
}

/// What PyTorch's DistributedSampler deals to a rank.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "DistributedSampler")]
struct Dealt {
    /// The rank that reads here
    #[arg(long, value_name = "NUMBER", requires = "world")]
    rank: Option<u64>,
    /// Ranks in all
    #[arg(long, value_name = "NUMBER", requires = "rank", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    world: Option<u64>,
    /// Its seed
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "rank")]
    seed: u64,
    /// The epoch that begins now, as it is told by set_epoch
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "rank")]
    epoch: u64,
    /// Epochs from that one on
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "rank", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// It was made with shuffle=False
    #[arg(long, requires = "rank")]
    no_shuffle: bool,
    /// It was made with drop_last=True
    #[arg(long, requires = "rank")]
    drop_last: bool,
}

impl Dealt {
    fn sampler(&self) -> Result<Option<Sampler>, Error> {
        let Some((rank, world)) = self.rank.zip(self.world) else { return Ok(None) };
        if rank >= world {
            let error = Error::invalid(format!("there is no rank {rank} of {world}"), format!("--rank {rank}"));
            return Err(error.hint("ranks are counted from 0"));
        }
        let Dealt { seed, epoch, epochs, no_shuffle, drop_last, .. } = *self;
        Ok(Some(Sampler { seed, epoch, epochs, rank, world, shuffle: !no_shuffle, drop_last }))
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let sampler = args.sampler.sampler()?;
    let ranked = sampler.as_ref().map(|sampler| format!("rank {}", sampler.rank));
    let name = args.name.clone().or(ranked).unwrap_or_else(|| NAME.into());
    if args.files == args.numbers && args.files.as_deref() == Some(Path::new("-")) {
        let error = Error::invalid("files and numbers can't both come by standard input", "--files - --numbers -");
        return Err(error.hint("write one of them to a file").into());
    }
    let list = args.files.as_deref().map(lines).transpose()?;
    let numbers = args.numbers.as_deref().map(numbers).transpose()?;
    let (client, _, path) = node_of(&args.dir)?;
    let (include, exclude) = (args.include.clone(), args.exclude.clone());
    let path = path.to_string_lossy().into_owned();
    let (name, forget) = (name.clone(), args.forget);
    let more = HintRequest::default();
    let request = HintRequest { path, name: name.clone(), forget, include, exclude, list, numbers, sampler, ..more };
    let hinted: Hinted = client.ask(Method::POST, "/v1/hint", &request).map_err(show::refused)?;
    if args.json {
        say!("{}", serde_json::to_string(&hinted)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = show::line(&name);
    match (args.forget, hinted.replaced) {
        (true, true) => say!("`{name}` is forgotten")?,
        (true, false) => say!("there was no order `{name}`")?,
        (false, _) => {
            let epochs = request.sampler.map_or(1, |sampler| sampler.epochs);
            let epochs = if epochs > 1 { format!(" in the first of {epochs} epochs") } else { String::new() };
            say!("`{name}`: {}{epochs}", show::count_of(hinted.files, "file"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of a file, or of standard input, that say something.
fn lines(path: &Path) -> anyhow::Result<Vec<String>> {
    let read = match path == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin().lock()),
        false => std::fs::read_to_string(path),
    };
    let text = read.map_err(|error| {
        Error::invalid(format!("the order can't be read: {error}"), path.display())
            .hint("name a file of text, one file or number a line; - is standard input")
    })?;
    let lines: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    if lines.is_empty() {
        return Err(Error::invalid("the order is empty", path.display()).hint("write one file a line").into());
    }
    Ok(lines)
}

fn numbers(path: &Path) -> anyhow::Result<Vec<u32>> {
    let number = |(at, line): (usize, &String)| {
        let wrong =
            || Error::invalid(format!("`{}` is no number", show::line(line)), format!("{}:{}", path.display(), at + 1));
        line.trim().parse().map_err(|_| wrong().hint("write one number a line, counted from 0"))
    };
    Ok(lines(path)?.iter().enumerate().map(number).collect::<Result<_, _>>()?)
}
