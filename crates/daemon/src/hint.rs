//! What a job says of the order in which it will read, from the control socket to the data set.

use crate::Host;
use block::{Error, Result};
use client::messages::{HintRequest, Hinted, MountPath};
use node::View;
use node::prefetch::{Deal, Declaration, Expected, Sampler, Source};
use node::process::Process;
use node::select::Wanted;
use std::sync::Arc;

/// Bytes of the name of an order.
const NAME_MAX: usize = 255;

/// `process` is that of whoever asks.
pub async fn hint(host: &Arc<Host>, request: HintRequest, process: Option<u32>) -> Result<Hinted> {
    let (mounted, rest) = host.find(&MountPath { path: request.path.clone(), ..MountPath::default() }).await?;
    let process = process.filter(|_| request.while_it_runs).and_then(Process::of);
    declare(&mounted.view, rest.to_string_lossy().into_owned(), request, process).await
}

/// The same of a data set that was found, and a folder in it; what is declared is forgotten when the process has ended.
pub async fn declare(
    view: &Arc<View>,
    under: String,
    request: HintRequest,
    process: Option<Process>,
) -> Result<Hinted> {
    let name = request.name.clone();
    if name.len() > NAME_MAX || name.chars().any(char::is_control) {
        let error = Error::invalid("this is no name of an order", &request.path);
        return Err(error.hint(format!("choose up to {NAME_MAX} letters that can be shown")));
    }
    if request.forget {
        return Ok(Hinted { files: 0, replaced: view.prefetch().forget(&name) });
    }
    let source = match request.source.as_deref() {
        None | Some("declared") => Source::Declared,
        Some("peeked") => Source::Peeked,
        Some(other) => {
            let error = Error::invalid(format!("an order is declared or peeked at, not `{other}`"), &request.path);
            return Err(error.hint("leave its source out"));
        }
    };
    let deal = deal(&request)?;
    let expected = request.expected.map(|expected| {
        let names = expected.names.into_iter().map(|one| (one.number, one.name.into_bytes())).collect();
        Expected { files: expected.files, names }
    });
    let wanted = Wanted { under, include: request.include, exclude: request.exclude, list: request.list };
    // There may be millions of files.
    let view = view.clone();
    let declaration = Declaration { wanted, deal, source, process, expected, read: Vec::new() };
    let declaring = move || view.declare(&name, declaration);
    let declared = tokio::task::spawn_blocking(declaring).await;
    let (files, replaced) = declared.map_err(|_| Error::unavailable("the node is stopping", &request.path))??;
    Ok(Hinted { files, replaced })
}

fn deal(request: &HintRequest) -> Result<Deal> {
    Ok(match (&request.numbers, &request.sampler) {
        (None, None) => Deal::All,
        (Some(numbers), None) => Deal::Numbers(numbers.clone()),
        (None, Some(one)) if one.rank < one.world && one.epochs > 0 => Deal::Sampler {
            sampler: Sampler {
                seed: one.seed,
                rank: one.rank,
                world: one.world,
                shuffle: one.shuffle,
                drop_last: one.drop_last,
            },
            epoch: one.epoch,
            until: one.epoch.saturating_add(one.epochs),
        },
        (None, Some(one)) => {
            let what = format!("no sampler deals to rank {} of {} for {} epochs", one.rank, one.world, one.epochs);
            return Err(
                Error::invalid(what, &request.path).hint("ranks are counted from 0, and there is an epoch at least")
            );
        }
        (Some(_), Some(_)) => {
            let error = Error::invalid("an order is of numbers or of a sampler, not of both", &request.path);
            return Err(error.hint("leave one of them out"));
        }
    })
}
