//! A training loop without the training: loaders fill batches, a step takes a fixed time.
//!
//! As in the usual data loader, batch i belongs to loader i modulo their number, each loader works
//! at most two batches ahead, and the batches are taken in order. 10,000 files make 40 steps of
//! 50 ms, so no target can exceed 5,000 images a second.

use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::files::Named;
use super::{Clock, Counts, Order, Outcome, open_folder, touched};
use crate::dataset::{mixed, shuffle};

const BATCH: usize = 256;
const STEP: Duration = Duration::from_millis(50);
/// Finished batches that wait in a loader's channel; with the one being filled that makes two.
const WAITING_MAX: usize = 1;
const BUFFER: usize = 256 << 10;

pub fn train(order: &Order) -> Result<Outcome> {
    let root = open_folder(&order.root)?;
    let mut files = Named::all(order.scale.small());
    shuffle(&mut files, mixed(order.seed, 0));
    let loaders = order.workload.threads();
    let batches: Vec<&[Named]> = files.chunks(BATCH).collect();
    let buffers: Vec<_> = (0..loaders).map(|_| touched(BUFFER)).collect();
    let clock = Clock::start();
    let tally = thread::scope(|scope| {
        let ready: Vec<Receiver<Counts>> = buffers
            .into_iter()
            .enumerate()
            .map(|(loader, mut buffer)| {
                let (send, receive) = sync_channel(WAITING_MAX);
                let (batches, root) = (&batches, &root);
                scope.spawn(move || {
                    let own = batches.iter().skip(loader).step_by(loaders);
                    load(own.copied(), root, &mut buffer, &send);
                });
                receive
            })
            .collect();
        let mut sum = Counts::default();
        for index in 0..batches.len() {
            sum.add(ready[index % loaders].recv().expect("a loader sends all of its batches"));
            thread::sleep(STEP);
        }
        sum
    });
    Ok(tally.outcome(clock.took(), 1))
}

fn load<'a>(
    batches: impl Iterator<Item = &'a [Named]>,
    root: &rustix::fd::OwnedFd,
    buffer: &mut [u8],
    send: &SyncSender<Counts>,
) {
    for batch in batches {
        let mut tally = Counts::default();
        for file in batch {
            file.whole(root.as_fd(), buffer, &mut tally);
        }
        if send.send(tally).is_err() {
            return;
        }
    }
}
