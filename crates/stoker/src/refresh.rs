//! `stoker refresh`: list a mounted data set again.

use crate::args::Refresh;
use crate::mount::ask_of;
use crate::show;
use client::messages::{MountPath, Refreshed};
use hyper::Method;
use std::process::ExitCode;

pub fn run(args: &Refresh) -> anyhow::Result<ExitCode> {
    let done: Refreshed = ask_of(&args.dir, |client, path| {
        let place = MountPath { path: path.to_string_lossy().into_owned(), ..MountPath::default() };
        client.ask(Method::POST, "/v1/refresh", &place)
    })?;
    let (files, bytes) = (show::count_of(done.objects, "file"), show::bytes(done.bytes));
    say!("{files}, {bytes}; {} changed", show::count_of(done.changed, "name"))?;
    Ok(ExitCode::SUCCESS)
}
