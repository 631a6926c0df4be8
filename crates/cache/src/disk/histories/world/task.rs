//! What is under way in a history: readers, checks, and those who wait. Each goes on only when it is asked to.

use super::World;
use crate::disk::histories::forgetful::Inode;
use crate::disk::histories::oracle::{self, Held, Verdict};
use crate::disk::histories::step::Act;
use crate::disk::histories::truth::Truth;
use crate::disk::index::{Compaction, Written};
use crate::disk::{Standing, Whole};
use block::{Address, Blocks, Door, RUN_BLOCKS_MAX, Result, Run, Source};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;

/// What may be under way at once, and what may be held.
const TASKS_MAX: usize = 8;
const HELD_MAX: usize = 8;

/// Times that something under way is asked at the end of a history. More than that is for ever.
const POLLS_MAX: usize = 2_000;

/// Something under way.
pub enum Task {
    Reader {
        truth: Truth,
        next: u32,
        end: u32,
        blocks: Blocks,
    },
    Check {
        truth: Truth,
        answer: BoxFuture<'static, Result<Option<Arc<Whole>>>>,
    },
    /// `wrong`: the files of the object that held anything else when it began.
    Verify {
        truth: Truth,
        wrong: Vec<Arc<Inode>>,
        answer: BoxFuture<'static, Result<bool>>,
    },
    Settle {
        truth: Truth,
        answer: BoxFuture<'static, Standing>,
    },
    Compact(Stage),
}

/// How far a compaction is.
pub enum Stage {
    Begun(Compaction),
    Written(Written),
    Over,
}

impl World {
    pub fn read(&mut self, object: u64, from: u64, blocks: u64, takes: u64) -> Verdict {
        let truth = self.truth(object);
        let count = u64::from(truth.object.blocks());
        if count == 0 || self.tasks.len() >= TASKS_MAX {
            return Ok(());
        }
        let from = from % count;
        let end = count.min(from + blocks.min(u64::from(RUN_BLOCKS_MAX))) as u32;
        let from = from as u32;
        self.tell(|| format!("    blocks {from}..{end} of the {count} of {} {}", truth.object, truth.object.version));
        self.disk().opened(&truth.object, self.scene.sizes.iter().sum());
        let blocks = self.disk().fetch(Run::new(truth.object.clone(), from..end));
        self.tasks.push(Task::Reader { truth, next: from, end, blocks });
        self.go(self.tasks.len() as u64 - 1, takes)
    }

    pub fn inquire(&mut self, act: &Act) -> Verdict {
        let disk = self.disk();
        match *act {
            Act::Find { object } => {
                let truth = self.named(object);
                disk.opened(&truth.object, self.scene.sizes.iter().sum());
                self.hold(&truth, disk.find(&truth.object))?;
            }
            Act::Ask { object } => {
                let truth = self.named(object);
                disk.has_room(&truth.object);
                for index in 0..truth.object.blocks() {
                    disk.holds(&Address { object: truth.object.clone(), index });
                }
            }
            _ if self.tasks.len() >= TASKS_MAX => {}
            Act::Check { object } => {
                let truth = self.named(object);
                let object = truth.object.clone();
                let answer = async move { disk.check(&object).await }.boxed();
                self.begin(Task::Check { truth, answer })?;
            }
            Act::Verify { object } => {
                let truth = self.named(object);
                let (object, wrong) = (truth.object.clone(), oracle::wrong_files(&truth, &disk, &self.forgetful));
                let answer = async move { disk.verify(&object, Door::default()).await }.boxed();
                self.begin(Task::Verify { truth, wrong, answer })?;
            }
            Act::Settle { object } => {
                let truth = self.named(object);
                let object = truth.object.clone();
                let answer = async move { disk.settled(&object, Door::default()).await }.boxed();
                self.begin(Task::Settle { truth, answer })?;
            }
            _ => unreachable!("it is somebody else's act"),
        }
        Ok(())
    }

    fn begin(&mut self, task: Task) -> Verdict {
        self.tasks.push(task);
        self.go(self.tasks.len() as u64 - 1, 1)
    }

    pub fn compact(&mut self, polls: u64) -> Verdict {
        // One at a time.
        if self.tasks.len() >= TASKS_MAX || self.tasks.iter().any(|task| matches!(task, Task::Compact(_))) {
            return Ok(());
        }
        let begun = self.disk().index().begin_compaction();
        self.tasks.push(Task::Compact(Stage::Begun(begun)));
        self.go(self.tasks.len() as u64 - 1, polls)
    }

    /// A file is handed out.
    pub fn hold(&mut self, truth: &Truth, standing: Standing) -> Verdict {
        if let Standing::Complete(whole) = standing {
            self.tell(|| format!("    {} {} is complete", truth.object, truth.object.version));
            let held = Held::new(whole, truth, &self.dropped)?;
            self.held.truncate(HELD_MAX - 1);
            self.held.push(held);
        }
        Ok(())
    }

    /// Let something under way go on; true if it is over.
    pub fn go(&mut self, task: u64, polls: u64) -> Verdict {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let at = (task % self.tasks.len() as u64) as usize;
        for _ in 0..polls {
            if self.poll(at)? {
                drop(self.tasks.swap_remove(at));
                break;
            }
        }
        Ok(())
    }

    fn poll(&mut self, at: usize) -> Result<bool, String> {
        match &mut self.tasks[at] {
            Task::Reader { truth, next, end, blocks } => {
                let got = tokio::task::unconstrained(blocks.next()).now_or_never();
                let (truth, due) = (truth.clone(), *next..*end);
                match got {
                    None => return Ok(false),
                    Some(Some(Ok(block))) => {
                        if block.address.index != due.start || due.is_empty() {
                            return Err(format!(
                                "a reader of {} got block {} out of turn",
                                truth.object, block.address.index
                            ));
                        }
                        *next += 1;
                        self.blocks += 1;
                        oracle::block(&truth, &block, &self.store)?;
                        return Ok(false);
                    }
                    Some(Some(Err(error))) => oracle::error(&truth, &error, &self.store)?,
                    Some(None) if due.is_empty() => {}
                    Some(None) => {
                        return Err(format!("a reader of {} got nothing from block {} on", truth.object, due.start));
                    }
                }
            }
            Task::Check { truth, answer } => {
                let Some(got) = tokio::task::unconstrained(answer).now_or_never() else { return Ok(false) };
                let truth = truth.clone();
                if let Ok(Some(whole)) = got {
                    self.hold(&truth, Standing::Complete(whole))?;
                }
            }
            Task::Verify { truth, wrong, answer } => {
                let Some(got) = tokio::task::unconstrained(answer).now_or_never() else { return Ok(false) };
                if got.is_ok_and(|is_right| is_right) {
                    let (truth, wrong) = (truth.clone(), wrong.clone());
                    oracle::verified(&truth, &wrong, &self.disk(), &self.forgetful)?;
                }
            }
            Task::Compact(stage) => {
                let written = match std::mem::replace(stage, Stage::Over) {
                    Stage::Begun(begun) => begun.write().ok().map(Stage::Written),
                    Stage::Written(written) => {
                        let _ = self.disk.as_ref().map(|disk| disk.index().end_compaction(&written));
                        None
                    }
                    Stage::Over => None,
                };
                let Some(written) = written else { return Ok(true) };
                *stage = written;
                return Ok(false);
            }
            Task::Settle { truth, answer } => {
                let Some(standing) = tokio::task::unconstrained(answer).now_or_never() else { return Ok(false) };
                let truth = truth.clone();
                self.hold(&truth, standing)?;
            }
        }
        Ok(true)
    }

    pub async fn drain(&mut self) -> Verdict {
        for _ in 0..POLLS_MAX {
            if self.tasks.is_empty() {
                return Ok(());
            }
            for task in (0..self.tasks.len() as u64).rev() {
                self.go(task, 64)?;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Err("something under way never ends".into())
    }
}
