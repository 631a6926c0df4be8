//! `stoker load`: fetch a mounted data set ahead, or copy one to a folder.

use crate::args::Load;
use crate::mount::{ask_of, node_of};
use crate::{ends, place, runtime, show};
use block::Error;
use client::Failure;
use client::messages::{LoadRequest, Loaded};
use daemon::{control, reach};
use hyper::Method;
use node::DataSet;
use node::load::Loading;
use node::select::Wanted;
use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Not all files fitted into the cache.
pub const EXIT_UNKEPT: u8 = 3;

/// Some files failed.
pub const EXIT_FAILED: u8 = 4;

/// Between two looks at the progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub fn run(args: Load) -> anyhow::Result<ExitCode> {
    let list = if args.stdin { Some(listed()?) } else { None };
    let wanted = Wanted { include: args.include.clone(), exclude: args.exclude.clone(), ..Wanted::default() };
    wanted.selection()?;
    let began = Instant::now();
    let interrupted = Error::unavailable("the load was interrupted", &args.what);
    ends::exit_if_told(interrupted.hint("the same command again: it goes on where it stopped"))?;
    let loaded = match args.to.clone() {
        Some(folder) => copy(&args, &folder, list)?,
        None => preload(&args, list)?,
    };
    if let Some(problem) = &loaded.error {
        return Err(show::of_node(problem).into());
    }
    let is_choice = !args.include.is_empty() || !args.exclude.is_empty();
    if loaded.files == 0 && args.stdin && !is_choice {
        let error = Error::missing("none of the listed files lies there", &args.what);
        return Err(error.hint("give the mount point; the list names files below that").into());
    }
    if loaded.files == 0 && is_choice {
        let patterns = args.include.iter().map(|glob| format!("--include {glob}"));
        let patterns = patterns.chain(args.exclude.iter().map(|glob| format!("--exclude {glob}"))).collect::<Vec<_>>();
        let error = Error::missing("no file is chosen by these patterns", patterns.join(" "));
        return Err(error.hint("patterns are matched with the whole path below the mount point: \"**/*.jpg\"").into());
    }
    report(&args, &loaded, began.elapsed())?;
    Ok(match (loaded.files_failed, loaded.files_unkept) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(EXIT_UNKEPT),
        _ => ExitCode::from(EXIT_FAILED),
    })
}

/// The files that standard input names, one a line.
fn listed() -> anyhow::Result<Vec<String>> {
    let mut names = std::io::stdin().lock().lines().collect::<Result<Vec<_>, _>>().map_err(|error| {
        let what = format!("the list of files can't be read: {error}");
        Error::invalid(what, "standard input").hint("give names in UTF-8, one a line")
    })?;
    names.retain(|name| !name.trim().is_empty());
    match names.is_empty() {
        true => {
            let error = Error::invalid("no file is named", "standard input");
            Err(error.hint("give names of files, one a line, or leave --stdin out to load everything").into())
        }
        false => Ok(names),
    }
}

/// Into the cache of the node that has it mounted.
fn preload(args: &Load, list: Option<Vec<String>>) -> anyhow::Result<Loaded> {
    if args.what.contains("://") {
        return Err(Error::invalid("a URL is loaded to a folder; a cache is loaded through its mount", &args.what)
            .hint("give the mount point, or add --to FOLDER")
            .into());
    }
    let crate::args::Reach { endpoint, region, profile, anonymous } = &args.reach;
    if *anonymous || [endpoint, region, profile].iter().any(|option| option.is_some()) {
        let error = Error::invalid("a mount is reached as it was mounted", &args.what);
        return Err(error.hint("leave out --endpoint, --region, --profile and --anonymous").into());
    }
    let list = match list {
        Some(list) if list.iter().any(|name| name.starts_with('/')) => Some(below_mount(&args.what, list)?),
        list => list,
    };
    let (bar, mut told) = (show::bar("load"), Ok(()));
    let last = ask_of(Path::new(&args.what), |client, path| {
        let (include, exclude, list) = (args.include.clone(), args.exclude.clone(), list.clone());
        let request =
            LoadRequest { path: path.to_string_lossy().into_owned(), include, exclude, list, verify: args.verify };
        let mut last = Loaded::default();
        client.lines(Method::POST, "/v1/load", &request, &mut |loaded: Loaded| {
            show::advance(&bar, &loaded);
            if args.tell {
                told = std::mem::replace(&mut told, Ok(()))
                    .and(serde_json::to_string(&loaded).map_err(Into::into).and_then(|line| say!("{line}")));
            }
            last = loaded;
        })?;
        if last.over { Ok(last) } else { Err(Failure::Gone) }
    })?;
    bar.finish_and_clear();
    told?;
    Ok(last)
}

/// Names from the top on, as find(1) gives them, as they lie below the mount point; however that was spelled.
fn below_mount(what: &str, list: Vec<String>) -> anyhow::Result<Vec<String>> {
    let (_, status, path) = node_of(Path::new(what))?;
    let mounts = status.mounts.iter().map(|mount| Path::new(&mount.path));
    let mount = mounts.filter(|mount| path.starts_with(mount)).max_by_key(|mount| mount.components().count());
    let typed = place::absolute(Path::new(what))?;
    let within = mount.and_then(|mount| path.strip_prefix(mount).ok()).unwrap_or(Path::new(""));
    // The folder above one that is bound elsewhere is none of the mount.
    let is_here = typed.ends_with(within);
    let tops = [typed.ancestors().nth(within.components().count()).filter(|_| is_here), mount];
    let below = |name: String| {
        // What is named may be a folder of it that is bound elsewhere.
        let here = Path::new(&name).strip_prefix(&typed).map(|rest| within.join(rest));
        let rest = || tops.iter().flatten().find_map(|top| Path::new(&name).strip_prefix(top).ok().map(Path::to_owned));
        here.ok().or_else(rest).map(|rest| rest.to_string_lossy().into_owned()).unwrap_or(name)
    };
    Ok(list.into_iter().map(below).collect())
}

/// To a folder, without a node.
fn copy(args: &Load, folder: &Path, list: Option<Vec<String>>) -> anyhow::Result<Loaded> {
    let crate::args::Reach { endpoint, region, profile, anonymous } = place::reach(&args.reach, &args.what)?;
    let settings = reach::settings(endpoint, region, profile, anonymous, place::keys(), place::variables(&args.what));
    let runtime = runtime()?;
    let copied = runtime.block_on(async {
        store::check(&args.what.parse()?, &settings).await?;
        let source = reach::source_in_time(&args.what, &settings).await?;
        copied(&source, args, folder, list).await
    });
    // Whoever waits for a folder that hangs is not waited for.
    runtime.shutdown_background();
    copied
}

async fn copied(source: &DataSet, args: &Load, folder: &Path, list: Option<Vec<String>>) -> anyhow::Result<Loaded> {
    let wanted = Wanted { under: String::new(), include: args.include.clone(), exclude: args.exclude.clone(), list };
    let (bar, tally) = (show::bar("copy"), Arc::new(Loading::default()));
    let copying = node::copy::copy(source, folder, &wanted, args.verify, &tally);
    tokio::pin!(copying);
    loop {
        tokio::select! {
            done = &mut copying => break done?,
            () = tokio::time::sleep(LOOK_EVERY) => show::advance(&bar, &control::loaded(&tally, 0)),
        }
    }
    bar.finish_and_clear();
    let counts = source.store.counters().snapshot();
    let mut loaded = control::loaded(&tally, counts.gets + counts.heads + counts.lists);
    loaded.over = true;
    Ok(loaded)
}

fn report(args: &Load, loaded: &Loaded, took: Duration) -> anyhow::Result<()> {
    let seconds = took.as_secs_f64();
    let fetched = loaded.bytes_done - loaded.bytes_present;
    let rate = fetched as f64 / seconds / 1e9;
    if args.json {
        let mut value = serde_json::to_value(loaded).unwrap_or_default();
        value["seconds"] = seconds.into();
        value["bytes_fetched"] = fetched.into();
        value["gigabytes_per_second"] = rate.into();
        return say!("{value}");
    }
    let (files, bytes) = (show::count_of(loaded.files_done, "file"), show::bytes(loaded.bytes_done));
    let verified = if args.verify { format!("; verified {files}, {bytes}") } else { String::new() };
    say!(
        "{files}, {bytes} in {seconds:.2} s: {} fetched at {rate:.3} GB/s with {}; {} were there already or on their way{verified}",
        show::bytes(fetched),
        show::count_of(loaded.requests, "request"),
        show::bytes(loaded.bytes_present)
    )?;
    if loaded.files_unkept > 0 {
        note!(
            "not kept, and read from the store each time: {}, which did not fit into the cache or had been \
             written less than 2 s before the listing\n  try: a larger --cache-size or disk; `stoker refresh` for \
             files that had just been written",
            show::count_of(loaded.files_unkept, "file")
        );
    }
    if loaded.files_failed > 0 {
        note!("{} failed:", show::count_of(loaded.files_failed, "file"));
        loaded.failures.iter().for_each(|failure| note!("  {failure}"));
        note!(
            "  try: the same command again; what is there is not fetched again. Files that changed in the store need \
             `stoker refresh` first"
        );
    }
    Ok(())
}
