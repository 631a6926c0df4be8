//! What whole epochs ask of the store, over the real disk tier on a disk that costs nothing, against what a cache of
//! that size allows. `make hits` plays the whole grid and prints it; `cargo test` plays a part of it.

#[path = "hits/zeros.rs"]
mod zeros;

use block::{Address, Object, RUN_BLOCKS_MAX, Run, Source};
use futures_util::StreamExt;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use stoker_cache::disk::{Disk, Hold, Limits, Settings, Standing};
use zeros::Store;

/// Epochs after the first.
const EPOCHS: usize = 8;

const READERS: usize = 4;

/// Of the orders.
const SEED: u64 = 7;

/// How far an epoch may be from what whole objects allow.
const TOLERANCE: f64 = 0.02;

/// What the first epoch may ask for, in sets.
const COLD_MAX: f64 = 1.005;

/// What readers read: equal files in a fresh order each epoch, and a cache for a share of them.
#[derive(Clone, Copy, Debug)]
struct Cell {
    bytes: u64,
    files: u32,
    ratio: f64,
    fills: bool,
}

impl Cell {
    fn set(&self) -> u64 {
        self.bytes * u64::from(self.files)
    }

    fn capacity(&self) -> u64 {
        (self.set() as f64 * self.ratio) as u64
    }

    /// The largest share of the set that files of the cache can hold.
    fn allowed(&self) -> f64 {
        let is_cut = self.bytes > self.capacity() / 4 && self.bytes > 16 << 20;
        let piece = if is_cut { 16 << 20 } else { self.bytes };
        ((self.capacity() / piece * piece) as f64 / self.set() as f64).min(1.0)
    }
}

/// What an epoch asked for, in sets.
type Asked = Vec<f64>;

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn shuffled(&mut self, objects: &[Arc<Object>]) -> Vec<Arc<Object>> {
        let mut all = objects.to_vec();
        (1..all.len()).rev().for_each(|end| all.swap(end, self.below(end + 1)));
        all
    }
}

/// Fetch one run after the other for as long as it is of use, while others take turns.
async fn fetch(disk: &Disk, object: &Arc<Object>, is_of_use: impl Fn(u32) -> bool) {
    for start in (0..object.blocks()).step_by(RUN_BLOCKS_MAX as usize) {
        let mut blocks = disk.fetch(Run::new(object.clone(), start..object.blocks().min(start + RUN_BLOCKS_MAX)));
        while let Some(block) = blocks.next().await {
            block.expect("the store never fails");
        }
        tokio::task::yield_now().await;
        if !is_of_use(start) {
            return;
        }
    }
}

/// One reader's part of an epoch. A complete file is read by the kernel.
async fn read(disk: Disk, set: u64, order: Rc<RefCell<Vec<Arc<Object>>>>) {
    loop {
        let Some(object) = order.borrow_mut().pop() else { return };
        disk.opened(&object, set);
        if !matches!(disk.find(&object), Standing::Complete(_)) {
            fetch(&disk, &object, |_| true).await;
        }
        tokio::task::yield_now().await;
    }
}

/// What background fill does (node::fill): in the order of the names, what there is free room for, as long as it is kept.
async fn fill(disk: Disk, objects: Vec<Arc<Object>>) {
    for object in &objects {
        let (used, limits) = disk.usage();
        let is_wanted = !disk.is_complete(object) && disk.has_room(object);
        if is_wanted && limits.bytes.saturating_sub(used.bytes) >= object.size {
            fetch(&disk, object, |index| disk.holds(&Address { object: object.clone(), index })).await;
        }
    }
}

fn play(cell: Cell) -> Asked {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, epochs(cell))
}

fn disk(cell: Cell, store: &Arc<Store>) -> Disk {
    let settings = Settings {
        folder: Path::new("/cache").to_owned(),
        limits: Limits { bytes: cell.capacity(), files: u64::MAX >> 1, free_bytes_min: 0, free_files_min: 0 },
        boot: [1; 16],
        keeps: |_| true,
        medium: Arc::new(zeros::Disk::default()),
        clock: || tokio::time::Instant::now().into_std(),
        hold: Arc::new(|| Ok(Hold::Same)),
        first: 1,
    };
    Disk::over(store.clone(), settings, tokio::runtime::Handle::current()).expect("a disk tier")
}

fn objects(cell: Cell, folder: &str) -> Vec<Arc<Object>> {
    let object =
        |n| Object { store: "memory:".into(), key: format!("{folder}/{n:06}"), version: "1".into(), size: cell.bytes };
    (0..cell.files).map(|n| Arc::new(object(n))).collect()
}

async fn epochs(cell: Cell) -> Asked {
    let objects = objects(cell, "folder");
    let store = Arc::new(Store::default());
    let disk = disk(cell, &store);
    let mut chance = Chance(SEED);
    let mut asked = Asked::new();
    for epoch in 0..=EPOCHS {
        let before = store.0.load(Relaxed);
        let order = Rc::new(RefCell::new(chance.shuffled(&objects)));
        let readers = (0..READERS).map(|_| tokio::task::spawn_local(read(disk.clone(), cell.set(), order.clone())));
        let mut tasks: Vec<_> = readers.collect();
        if cell.fills && epoch == 0 {
            tasks.push(tokio::task::spawn_local(fill(disk.clone(), objects.clone())));
        }
        for task in tasks {
            task.await.expect("it ends in order");
        }
        asked.push((store.0.load(Relaxed) - before) as f64 / cell.set() as f64);
    }
    asked
}

/// One set for five epochs, then another one for twelve: what each of these hits, by one reader.
async fn turns(cell: Cell) -> Vec<f64> {
    let (store, mut chance, mut hits) = (Arc::new(Store::default()), Chance(SEED), Vec::new());
    let disk = disk(cell, &store);
    for (folder, count) in [("first", 5), ("second", 12)] {
        let objects = objects(cell, folder);
        for _ in 0..count {
            let before = store.0.load(Relaxed);
            read(disk.clone(), cell.set(), Rc::new(RefCell::new(chance.shuffled(&objects)))).await;
            hits.push(1.0 - (store.0.load(Relaxed) - before) as f64 / cell.set() as f64);
        }
    }
    hits.split_off(5)
}

#[test]
fn a_set_gives_way_to_another_whether_its_files_are_kept_whole_or_in_pieces() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    for (bytes, files) in [(4_000_000, 50), (64_000_000, 3)] {
        let cell = Cell { bytes, files, ratio: 1.0, fills: false };
        let hits = runtime.block_on(turns(cell));
        println!("{files} files of {bytes}, after another set: {hits:.3?}");
        assert!(hits[6..].iter().all(|hit| *hit >= cell.allowed() - TOLERANCE), "{cell:?}: {hits:.3?}");
    }
}

/// The line of a cell in the table, and whether it is as promised.
fn judge(cell: Cell) -> (String, bool) {
    let asked = play(cell);
    let hits: Vec<f64> = asked[1..].iter().map(|asked| 1.0 - asked).collect();
    let (least, most) = hits.iter().fold((f64::MAX, 0f64), |(least, most), hit| (least.min(*hit), most.max(*hit)));
    let (fill, cold, allowed) = (if cell.fills { "auto" } else { "off" }, asked[0], cell.allowed());
    let Cell { bytes, files, ratio, .. } = cell;
    let line = format!("| {bytes} | {files} | {ratio} | {fill} | {cold:.3} | {allowed:.3} | {least:.3} to {most:.3} |");
    let is_right = cold <= COLD_MAX && least >= allowed - TOLERANCE && most <= allowed + TOLERANCE;
    (line, is_right)
}

/// Bytes of a file. The quick ones are on either side of a small object, of a stripe, and of a quarter of the cache.
const QUICK: &[u64] = &[100_000, 4_000_000, 17_000_000, 64_000_000];
const ALL: &[u64] =
    &[100_000, 1_000_000, 4_000_000, 16_000_000, 17_000_000, 20_000_000, 64_000_000, 200_000_000, 1_000_000_000];

#[test]
fn each_epoch_hits_what_whole_objects_allow() {
    let sizes = if std::env::var_os("STOKER_ALL_HITS").is_some() { ALL } else { QUICK };
    println!(
        "| bytes of a file | files | cache / set | fill | the first epoch asks, sets | allowed | hits of later epochs |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut wrong = vec![];
    let ratios = [0.1, 0.3, 0.5, 0.7, 0.9, 1.0];
    let of_many = sizes.iter().flat_map(|bytes| ratios.map(|ratio| (*bytes, 50, ratio)));
    // Of these few, none fits in whole.
    let of_few = sizes.iter().filter(|bytes| **bytes > 16 << 20).map(|bytes| (*bytes, 3, 0.3));
    for (bytes, files, ratio) in of_many.chain(of_few) {
        for fills in [false, true] {
            let (line, is_right) = judge(Cell { bytes, files, ratio, fills });
            println!("{line}");
            wrong.extend((!is_right).then_some(line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
