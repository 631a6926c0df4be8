//! A sweep while it runs: one line with the phase, its rate and the time left.

use super::rate;
use crate::show;
use ::bench::sweep::{Live, Step};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Between two looks at the counters.
const LOOK: Duration = Duration::from_millis(200);

pub struct Progress {
    bar: ProgressBar,
    step: Mutex<Option<(Step, Instant)>>,
}

impl Progress {
    pub fn start() -> Progress {
        let style = "{prefix} {bar:20} {pos}/{len} phases  {eta} left  {msg}";
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix("sweep");
        Progress { bar, step: Mutex::new(None) }
    }

    pub fn began(&self, step: &Step) {
        self.bar.set_length(step.of);
        self.bar.set_position(step.number);
        *self.step.lock().expect("no thread panics while it holds the step") = Some((*step, Instant::now()));
    }

    /// Show what moves until the answer is dropped.
    pub fn show<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, live: &'scope Live) -> SyncSender<()> {
        let (end, is_over) = sync_channel(1);
        scope.spawn(move || {
            while is_over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                self.look(live);
            }
            self.bar.finish_and_clear();
        });
        end
    }

    fn look(&self, live: &Live) {
        let Some((step, since)) = *self.step.lock().expect("no thread panics while it holds the step") else { return };
        let seconds = since.elapsed().as_secs_f64().max(LOOK.as_secs_f64());
        let per_second = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64 / seconds;
        let (files, bytes) = (per_second(&live.files), per_second(&live.bytes));
        let moved = if step.phase.moves_bytes() { format!("{}, ", rate(bytes)) } else { String::new() };
        let size = super::table::size(step.file_bytes);
        let (phase, threads) = (step.phase.name(), step.threads);
        let files = show::count(files as u64);
        self.bar.set_message(format!("{phase} {size} x {threads} threads: {moved}{files} files/s"));
    }
}
