//! A history as it happens: one program after another on one disk, and what is under way in the current one.
//!
//! Nothing runs by itself: what is under way goes on when a step says so, on one thread, in simulated time.

mod task;

use super::chance::Chance;
use super::forgetful::{Forgetful, Process};
use super::oracle::{self, Dropped, Held, OBJECTS, STRAY, Verdict};
use super::step::{Act, End, Scene, Step};
use super::truth::{Mood, Store, Truth};
use super::weather::Trouble;
use crate::disk::segment::Residency;
use crate::disk::{Disk, Hold, Limits, Settings, Standing};
use block::{Door, RUN_BLOCKS_MAX, Result, Run, Source};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use task::Task;

/// The folder of the cache on the simulated disk.
const CACHE: &str = "/cache";

/// Longer than anything in the tier waits.
const LONG: Duration = Duration::from_secs(60);

pub struct World {
    scene: Scene,
    forgetful: Arc<Forgetful>,
    store: Store,
    truths: Vec<Truth>,
    /// The current version of each key.
    current: Vec<usize>,
    boot: u8,
    /// What the next program may keep.
    bytes_max: u64,
    process: Arc<Process>,
    disk: Option<Disk>,
    tasks: Vec<Task>,
    held: Vec<Held>,
    dropped: Dropped,
    /// Whether somebody damaged what lies on the disk.
    has_damage: bool,
    /// How the program ends if it dies in the middle of something.
    dying: End,
    /// What will be wrong with the disk while the next program starts.
    at_start: Option<(Trouble, u64)>,
    /// Complete files that lay on the disk with all that tells of them when the kernel had written everything.
    durable: Vec<(Truth, Residency)>,
    /// Whether files may have got lost that the index knows of.
    has_losses: bool,
    /// What happened, if somebody wants to read it.
    pub story: Option<Vec<String>>,
    pub blocks: u64,
}

fn simulated_time() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

impl World {
    pub fn new(scene: &Scene, is_recorded: bool) -> World {
        let forgetful = Arc::new(Forgetful::default());
        {
            let mut state = forgetful.state();
            (state.bytes_max, state.files_max) = (scene.disk_bytes, scene.disk_files);
            state.free_bytes_min = scene.free_bytes_min;
            state.story = is_recorded.then(Vec::new);
            state.weather.is_short = scene.has_short_calls;
        }
        let store = Store::default();
        let truths: Vec<Truth> = (0..)
            .zip(&scene.sizes)
            .zip(&scene.tells)
            .map(|((n, size), tells)| Truth::new(n, n, *size, *tells))
            .collect();
        truths.iter().for_each(|truth| store.add(truth.clone()));
        let process = Process::new(&forgetful);
        let (disk, tasks, held, dropped) = Default::default();
        let (current, story) = ((0..truths.len()).collect(), is_recorded.then(Vec::new));
        World {
            scene: scene.clone(),
            forgetful,
            store,
            truths,
            current,
            boot: 1,
            bytes_max: scene.bytes_max,
            process,
            disk,
            tasks,
            held,
            dropped,
            story,
            has_losses: false,
            has_damage: false,
            dying: End::Killed,
            at_start: None,
            durable: vec![],
            blocks: 0,
        }
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    /// What happened to names on the disk since this was asked last.
    pub fn tell_names(&mut self) {
        let mut state = self.forgetful.state();
        let names = state.story.as_mut().map(std::mem::take).unwrap_or_default();
        drop(state);
        if let Some(story) = &mut self.story {
            story.extend(names.into_iter().map(|name| format!("        {name}")));
        }
    }

    fn disk(&self) -> Disk {
        self.disk.clone().expect("a program runs between two steps")
    }

    /// A program is started on the disk. Where the weather forbids it, it clears up.
    pub fn start(&mut self) -> Verdict {
        self.process = Process::new(&self.forgetful);
        self.scene.bytes_max = self.bytes_max;
        self.store.state().fetched.clear();
        let usual = self.change_weather();
        let opened = self.open();
        if let Some((trouble, one_in)) = usual {
            let weather = &mut self.forgetful.state().weather;
            (weather.trouble, weather.one_in) = (trouble, one_in);
        }
        let disk = opened.or_else(|error| {
            self.tell(|| format!("    it does not start: {}; the weather clears up", error.what));
            self.fair();
            self.process = Process::new(&self.forgetful);
            self.open()
        });
        let disk = disk.map_err(|error| format!("a disk in order can not be used: {error}"))?;
        let dropped = self.dropped.clone();
        disk.tell_dropped(move |object| dropped.lock().unwrap_or_else(PoisonError::into_inner).push(object.id()));
        self.disk = Some(disk);
        Ok(())
    }

    /// Trouble that strikes at this start alone. What was usual before comes back.
    fn change_weather(&mut self) -> Option<(Option<Trouble>, u64)> {
        let (trouble, one_in) = self.at_start.take()?;
        let weather = &mut self.forgetful.state().weather;
        let usual = (weather.trouble, weather.one_in);
        (weather.trouble, weather.one_in) = (Some(trouble), one_in);
        Some(usual)
    }

    fn open(&self) -> Result<Disk> {
        let limits = Limits {
            bytes: self.scene.bytes_max,
            files: self.scene.files_max,
            free_bytes_min: self.scene.free_bytes_min,
            free_files_min: 0,
        };
        let settings = Settings {
            folder: Path::new(CACHE).to_owned(),
            limits,
            boot: [self.boot; 16],
            keeps: |_| true,
            medium: self.process.clone(),
            clock: simulated_time,
            hold: Arc::new(|| Ok(Hold::Same)),
            first: 1,
        };
        Disk::over(Arc::new(self.store.clone()), settings, tokio::runtime::Handle::current())
    }

    /// The program ends.
    fn end(&mut self, end: End, chance: &mut Chance) {
        match end {
            End::Closed => self.disk().close(),
            End::Dropped => {}
            End::Killed | End::PowerLost { .. } | End::Remounted { .. } => self.process.kill(),
        }
        self.tasks.clear();
        self.held.clear();
        self.disk = None;
        let mut state = self.forgetful.state();
        state.weather.calls_left = None;
        state.unlinked.clear();
        match end {
            End::PowerLost { kept_one_in } => {
                state.lose(chance, kept_one_in);
                self.boot += 1;
            }
            End::Remounted { kept_one_in } => state.lose(chance, kept_one_in),
            End::Closed | End::Dropped | End::Killed => {}
        }
        // Also of files whose names came back.
        for (_, inode) in state.files("") {
            inode.is_given_out.store(false, std::sync::atomic::Ordering::Relaxed);
            inode.pages().forget_seen();
        }
    }

    fn fair(&mut self) {
        self.at_start = None;
        let mut state = self.forgetful.state();
        (state.weather.trouble, state.weather.calls_left, state.others_bytes) = (None, None, 0);
    }

    /// One step, and what must hold after it.
    pub async fn step(&mut self, step: &Step) -> Verdict {
        let mut chance = Chance::of(step.seed);
        {
            let weather = &mut self.forgetful.state().weather;
            (weather.chance, weather.calls) = (Chance::of(step.seed ^ 1), 0);
        }
        self.store.state().chance = Chance::of(step.seed ^ 2);
        self.tell_names();
        self.tell(|| step.act.to_string());
        self.has_damage |= matches!(&step.act, Act::TakeAway { .. } | Act::Rot { .. });
        // A program that dies between two calls leaves a word in the index of a file that it has unlinked.
        self.has_losses |= match &step.act {
            Act::TakeAway { .. } | Act::Rot { .. } | Act::EndSoon { .. } => true,
            Act::Trouble { .. } | Act::TroubleAtStart { .. } => true,
            Act::End(end) => matches!(end, End::PowerLost { .. } | End::Remounted { .. }),
            _ => false,
        };
        let complete = self.complete();
        if matches!(&step.act, Act::TroubleAtStart { .. } | Act::Trouble { .. }) || !self.is_in_order(|_| false) {
            self.durable.clear();
        }
        let verdict = self.act(&step.act, &mut chance).await;
        tokio::task::yield_now().await;
        if !self.process.is_alive() {
            // What a dying program said, nobody heard.
            let end = self.dying;
            self.tell(|| format!("    the program ends in the middle of it ({end:?}), and the next one starts"));
            self.end(end, &mut chance);
            self.start()?;
            if !matches!(&step.act, Act::Compact { .. } | Act::Wait { .. } | Act::Find { .. }) {
                self.durable.clear();
            }
            return self.still_told();
        }
        verdict?;
        match &step.act {
            Act::End(_) => self.still_told()?,
            // Where the next start may fail, nothing is recorded of it at once.
            Act::WriteBack { one_in: 1 } if self.at_start.is_none() => self.durable = self.on_disk(),
            _ => {
                let disk = self.disk();
                self.durable.retain(|(truth, residency)| oracle::residency(&disk, truth) == Some(*residency));
            }
        }
        self.nothing_good_is_gone(&complete, &step.act)?;
        self.judge()
    }

    fn judge(&mut self) -> Verdict {
        let disk = self.disk();
        oracle::always(&disk, &self.forgetful, &mut self.held, &self.scene, &self.dropped)?;
        oracle::distinct(&disk, &self.store)?;
        oracle::descriptors(self.process.handles(), self.held.len(), self.tasks.len())
    }

    /// Whether a file that is right has no reason to go, as far as trouble is none.
    fn is_in_order(&self, is_none: fn(Trouble) -> bool) -> bool {
        let state = self.forgetful.state();
        let is_fair = state.others_bytes == 0 && state.weather.trouble.is_none_or(is_none);
        is_fair && self.scene.is_ample() && !self.has_damage
    }

    /// Complete files, all of which the kernel has written by now.
    fn on_disk(&self) -> Vec<(Truth, Residency)> {
        // What is written while the log is compacted moves to the new one and may be its tail.
        if self.tasks.iter().any(|task| matches!(task, Task::Compact(_))) {
            return vec![];
        }
        let disk = self.disk();
        let all = self.truths.iter().filter_map(|truth| Some((truth.clone(), oracle::residency(&disk, truth)?)));
        all.filter(|_| self.is_in_order(|_| false)).collect()
    }

    /// What lay on the disk with all that names it is named still, whatever became of the machine.
    fn still_told(&self) -> Verdict {
        let disk = self.disk();
        let mut durable = self.durable.iter().filter(|_| self.is_in_order(|_| false));
        match durable.find(|(truth, residency)| oracle::residency(&disk, truth) != Some(*residency)) {
            Some((truth, _)) => Err(format!("{} lay on the disk, and no record tells of it any more", truth.object)),
            None => Ok(()),
        }
    }

    /// Objects that are complete, where there is no reason why one should stop to be so.
    fn complete(&self) -> Vec<Truth> {
        if !self.is_in_order(Trouble::is_harmless) {
            return vec![];
        }
        let disk = self.disk();
        self.truths.iter().filter(|truth| disk.is_complete(&truth.object)).cloned().collect()
    }

    /// What this process lacks for a moment is no reason to throw a good file away.
    fn nothing_good_is_gone(&self, complete: &[Truth], act: &Act) -> Verdict {
        let unlinked = std::mem::take(&mut self.forgetful.state().unlinked);
        if matches!(act, Act::End(_) | Act::TakeAway { .. } | Act::Trouble { .. }) {
            return Ok(());
        }
        let disk = self.disk();
        let is_good = |truth: &Truth| {
            unlinked.iter().any(|(path, inode)| {
                let is_of_it = path.contains(&truth.object.id().to_string());
                is_of_it && oracle::raw(inode) == truth.bytes
            })
        };
        match complete.iter().find(|truth| !disk.is_complete(&truth.object) && is_good(truth)) {
            Some(truth) => Err(format!("the good file of {} was thrown away without a reason", truth.object)),
            None => Ok(()),
        }
    }

    fn truth(&self, number: u64) -> Truth {
        self.truths[(number % self.truths.len() as u64) as usize].clone()
    }

    /// The same, recorded.
    fn named(&mut self, number: u64) -> Truth {
        let truth = self.truth(number);
        self.tell(|| format!("    {} {}", truth.object, truth.object.version));
        truth
    }

    async fn act(&mut self, act: &Act, chance: &mut Chance) -> Verdict {
        match *act {
            Act::Read { object, from, blocks, takes } => self.read(object, from, blocks, takes)?,
            Act::Go { task, polls } => self.go(task, polls)?,
            Act::Abandon { task } if !self.tasks.is_empty() => {
                drop(self.tasks.swap_remove((task % self.tasks.len() as u64) as usize));
            }
            Act::LetGo { whole } if !self.held.is_empty() => {
                drop(self.held.swap_remove((whole % self.held.len() as u64) as usize));
            }
            Act::Find { .. } | Act::Check { .. } | Act::Verify { .. } | Act::Settle { .. } | Act::Ask { .. } => {
                self.inquire(act)?;
            }
            Act::Refresh { object } => self.refresh(object),
            Act::Wait { seconds } => tokio::time::sleep(Duration::from_secs(seconds)).await,
            Act::End(end) => {
                self.end(end, chance);
                self.start()?;
            }
            Act::Compact { polls } => self.compact(polls)?,
            Act::TroubleAtStart { trouble, one_in } => self.at_start = Some((trouble, one_in)),
            Act::Limit { share } => self.bytes_max = self.scene.sizes.iter().sum::<u64>() / share,
            Act::Abandon { .. } | Act::LetGo { .. } => {}
            Act::EndSoon { calls, end } => {
                self.dying = end;
                self.forgetful.state().weather.calls_left = Some(calls);
            }
            _ => self.disturb(act, chance),
        }
        Ok(())
    }

    /// What somebody does to the disk or the store.
    fn disturb(&mut self, act: &Act, chance: &mut Chance) {
        let forgetful = self.forgetful.clone();
        let mut state = forgetful.state();
        let mut damage = None;
        match *act {
            Act::Trouble { trouble, one_in } => (state.weather.trouble, state.weather.one_in) = (Some(trouble), one_in),
            Act::Fair => state.weather.trouble = None,
            Act::Mood(mood) => self.store.state().mood = mood,
            Act::Others { free_bytes } => {
                state.others_bytes = state.bytes_max.saturating_sub(free_bytes);
                // Others can take what nobody has seen them take yet.
                state.free_bytes_min = 0;
            }
            Act::WriteBack { one_in } => state.write_back(chance, one_in),
            Act::Rot { file, at } => {
                let files = state.files(CACHE);
                if let Some((path, inode)) = files.get((file % files.len().max(1) as u64) as usize) {
                    let mut pages = inode.pages();
                    let at = at % pages.size().max(1);
                    pages.rot(at);
                    damage = Some(format!("    byte {at} of {path}"));
                }
            }
            Act::TakeAway { what } => {
                let mut paths: Vec<String> = state.files(CACHE).into_iter().map(|(path, _)| path).collect();
                paths.extend([CACHE.to_owned(), OBJECTS.trim_end_matches('/').to_owned()]);
                let path = &paths[(what % paths.len() as u64) as usize];
                state.take_away(path);
                damage = Some(format!("    {path}"));
            }
            Act::Stray { what } => {
                let files = state.files(OBJECTS);
                if let Some((path, _)) = files.get((what % files.len().max(1) as u64) as usize) {
                    state.put(&format!("{path}{STRAY}"), b"stray");
                }
            }
            _ => unreachable!("it is somebody else's act"),
        }
        drop(state);
        damage.into_iter().for_each(|line| self.tell(|| line));
    }

    fn refresh(&mut self, key: u64) {
        let key = (key % self.current.len() as u64) as usize;
        let old = self.truths[self.current[key]].clone();
        let number = self.truths.len() as u64;
        let truth = Truth::new(key as u64, number, self.scene.sizes[key], self.scene.tells[key]);
        self.tell(|| format!("    {} {}", truth.object, truth.object.version));
        self.store.add(truth.clone());
        self.current[key] = self.truths.len();
        self.truths.push(truth);
        self.disk().release([&old.object].into_iter());
    }

    /// The end of every history: the weather is fair and the store true, everything comes to its end, and all is read
    /// once more. Where there is room for everything, all of it is kept.
    pub async fn epilogue(&mut self) -> Verdict {
        self.tell(|| "the weather is fair, the store is true, all is read to its end".into());
        self.fair();
        self.store.state().mood = Mood::default();
        // Whoever looks at the index may call the disk, which may have been the last call.
        if !self.process.is_alive() {
            self.end(self.dying, &mut Chance::of(0));
            self.start()?;
        }
        self.drain().await?;
        tokio::time::sleep(LONG).await;
        for at in self.current.clone() {
            let truth = self.truths[at].clone();
            self.read_all(&truth).await?;
        }
        self.judge()?;
        self.tell(|| "it is closed in order and started again".into());
        self.held.clear();
        self.end(End::Closed, &mut Chance::of(0));
        self.start()?;
        tokio::task::yield_now().await;
        self.judge()?;
        oracle::accounts(&self.disk(), &self.forgetful, self.has_losses)
    }

    async fn read_all(&mut self, truth: &Truth) -> Verdict {
        let blocks = truth.object.blocks();
        // The store may have lied before, so what was kept may be found out now, and is then read again.
        for _ in 0..4 {
            for from in (0..blocks).step_by(RUN_BLOCKS_MAX as usize) {
                let until = blocks.min(from + RUN_BLOCKS_MAX);
                let stream = self.disk().fetch(Run::new(truth.object.clone(), from..until));
                self.tasks.push(Task::Reader { truth: truth.clone(), next: from, end: until, blocks: stream });
                self.drain().await?;
            }
            let standing = match self.disk().settled(&truth.object, Door::default()).await {
                Standing::Unchecked(_) => self.disk().check(&truth.object).await.ok().flatten().map(Standing::Complete),
                standing => Some(standing),
            };
            let is_complete = matches!(standing, Some(Standing::Complete(_) | Standing::Cut));
            self.hold(truth, standing.unwrap_or(Standing::Absent))?;
            if is_complete || !self.scene.is_ample() || blocks == 0 {
                return Ok(());
            }
        }
        Err(format!("there is room for everything and {} is not kept", truth.object))
    }
}
