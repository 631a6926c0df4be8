//! Epochs on a cluster of whole nodes in one process: what sets that are read in one way or another ask of the store,
//! against what one node of the same capacity would.

use block::Result;
use futures_util::future::join_all;
use peer::{Roster, Seat, Twin};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stoker_node::fill::When;
use stoker_node::namespace::{Namespace, Opening, Reading};
use stoker_node::select::Wanted;
use stoker_node::{DataSet, Home, Membership, Node, Settings, View};
use store::Store;
use tempfile::TempDir;
use tokio::sync::watch;

const MEMBERS: usize = 4;

/// Files of a set, and bytes of one.
const FILES: u64 = 200;
const BYTES: u64 = 100_000;
const SET: u64 = FILES * BYTES;

/// Memory of a node: no more than a few files at a time, so that each epoch asks the disks.
const MEMORY: u64 = (32 << 20) + (800 << 10);

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Nodes that are one cache, each of which mounts both sets.
struct Pool {
    store: Arc<store::Memory>,
    /// Of each set, a view on each node.
    views: [Vec<Arc<View>>; 2],
    servers: Vec<tokio::task::JoinHandle<()>>,
    chance: RefCell<Chance>,
    folders: Vec<TempDir>,
}

/// How a pool is played.
#[derive(Clone, Copy)]
struct Play {
    /// Room on all disks together, in sets.
    room: f64,
    fill: When,
    /// How long an epoch takes.
    epoch: Duration,
}

const PLAIN: Play = Play { room: 1.0, fill: When::Off, epoch: Duration::from_secs(120) };

impl Pool {
    async fn of(play: Play) -> Pool {
        let store = Arc::new(store::Memory::new("sets"));
        for set in ["a", "b"] {
            for file in 0..FILES {
                store.put(&format!("{set}/{file:04}"), vec![file as u8; BYTES as usize]);
            }
        }
        let (twin, runtime) = (Twin::default(), tokio::runtime::Handle::current());
        let seats: Vec<Seat> = (0..MEMBERS).map(|n| Seat::new(format!("n{n}"), format!("n{n}:1"), 1)).collect();
        let (mut nodes, mut servers, mut folders) = (vec![], vec![], vec![]);
        for seat in &seats {
            let (_, roster) = watch::channel(Arc::new(Roster::of(seat.id, seats.clone())));
            let folder = tempfile::tempdir().expect("a folder");
            let settings = Settings {
                cache: folder.path().to_owned(),
                limits: cache::disk::Limits {
                    bytes: (play.room * SET as f64) as u64 / MEMBERS as u64,
                    files: 1 << 20,
                    free_bytes_min: 0,
                    free_files_min: 0,
                },
                memory_bytes: MEMORY,
                seed: 1,
                patience: Duration::from_secs(3600),
            };
            let membership =
                Membership { members: "twin".into(), roster, transport: Arc::new(twin.clone()), is_encrypted: false };
            let home = Home::take(folder.path(), false).expect("a home");
            let node = Node::start_in(home, settings, [7; 16], runtime.clone(), Some(membership)).expect("a node");
            let lines = node.stack().lines().expect("it is a member").clone();
            servers.push(tokio::spawn(peer::serve(Box::new(twin.listen(&seat.address)), node.giving(), lines)));
            nodes.push(node);
            folders.push(folder);
        }
        let mut views = [vec![], vec![]];
        for (set, views) in ["a/", "b/"].iter().zip(&mut views) {
            for node in &nodes {
                let url = format!("memory://sets/{set}");
                let source = DataSet {
                    url,
                    store: store.clone(),
                    prefix: (*set).to_owned(),
                    local: None,
                    manifest: None,
                    may_be_empty: false,
                };
                views.push(View::open(node.clone(), source, play.fill, |_| ()).await.expect("a view"));
            }
        }
        Pool { store, views, servers, chance: RefCell::new(Chance(7)), folders }
    }

    /// The files of what lies on all disks, each of which has a name of its own.
    fn kept(&self) -> HashSet<PathBuf> {
        let below =
            |folder: &Path| std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path());
        let objects = self.folders.iter().flat_map(|folder| below(&folder.path().join("blocks/objects")));
        objects.flat_map(|near| below(&near).collect::<Vec<_>>()).collect()
    }

    /// Bytes that left the store so far, by its own count: each file is one request.
    fn sent(&self) -> u64 {
        self.store.counters().snapshot().gets * BYTES
    }

    /// Each file of a set is read once, by any of the members, in an order of its own. What of it did not leave the store.
    async fn epoch(&self, sets: &[usize], play: Play) -> f64 {
        let before = self.sent();
        let mut parts: Vec<Vec<(usize, u64)>> = vec![vec![]; MEMBERS];
        let mut all: Vec<(usize, u64)> = sets.iter().flat_map(|set| (0..FILES).map(|file| (*set, file))).collect();
        for end in (1..all.len()).rev() {
            all.swap(end, self.chance.borrow_mut().below(end + 1));
        }
        for (number, file) in all.iter().enumerate() {
            parts[number % MEMBERS].push(*file);
        }
        let pause = play.epoch / (all.len() / MEMBERS) as u32;
        join_all(parts.iter().enumerate().map(|(member, part)| async move {
            for (set, file) in part {
                tokio::time::sleep(pause).await;
                read(&self.views[*set][member], *file).await.expect("bytes");
            }
        }))
        .await;
        1.0 - (self.sent() - before) as f64 / (sets.len() as u64 * SET) as f64
    }

    async fn epochs(&self, count: usize, sets: &[usize], play: Play) -> Vec<f64> {
        let mut hits = vec![];
        for _ in 0..count {
            hits.push(self.epoch(sets, play).await);
        }
        hits
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.servers.iter().for_each(tokio::task::JoinHandle::abort);
        self.views.iter().flatten().for_each(|view| view.close());
    }
}

/// As a mount does: a complete file is read by the kernel.
async fn read(view: &View, file: u64) -> Result<()> {
    let manifest = view.manifest();
    let node = manifest.find(format!("{file:04}").as_bytes()).expect("a file");
    let content = match view.open(node) {
        Opening::Ready(content) => content?,
        Opening::Waiting(content) => content.await?,
    };
    if content.backing().is_none() {
        let pieces = match content.read(0, BYTES as u32) {
            Reading::Ready(pieces) => pieces?,
            Reading::Waiting(pieces) => pieces.await?,
        };
        let bytes: Vec<u8> = pieces.concat();
        assert!(bytes.len() == BYTES as usize && bytes.iter().all(|byte| *byte == file as u8));
    }
    Ok(())
}

/// Seconds of an epoch, and files that may give way to others in twelve of those though each file is read once an epoch. Short
/// epochs are over before members have told each other what they opened, and memory hides some of it: a few trades show that
/// trades are bad.
const PACES: [(u64, usize); 2] = [(5, 24), (120, 2)];

fn mean(hits: &[f64]) -> f64 {
    hits.iter().sum::<f64>() / hits.len() as f64
}

#[tokio::test(start_paused = true)]
async fn one_set_hits_what_there_is_room_for_at_any_pace() {
    for room in [0.5, 0.9] {
        for (seconds, left_max) in PACES {
            let play = Play { room, epoch: Duration::from_secs(seconds), ..PLAIN };
            let pool = Pool::of(play).await;
            pool.epoch(&[0], play).await;
            let before = pool.kept();
            let hits = pool.epochs(12, &[0], play).await;
            let after = pool.kept();
            let left = before.difference(&after).count();
            println!("room {room}, {seconds} s: {hits:.3?}, of {} files {left} left", before.len());
            assert!(mean(&hits) >= room - 0.005, "room {room}, {seconds} s: {hits:.3?}");
            assert!(left <= left_max, "room {room}, {seconds} s: {left} of {} files left", before.len());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_read_no_more_gives_way_to_another() {
    for (fill, room) in [(When::Off, 1.0), (When::Auto, 1.3)] {
        for seconds in [5, 120] {
            let play = Play { room, fill, epoch: Duration::from_secs(seconds) };
            let pool = Pool::of(play).await;
            let before = pool.epochs(5, &[0], play).await;
            let hits = pool.epochs(12, &[1], play).await;
            println!("room {room}, {seconds} s: {before:.3?}, then {hits:.3?}: {:.3}", mean(&hits));
            assert!(hits[6..].iter().all(|hit| *hit > 0.9), "{hits:.3?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_sets_side_by_side_share_the_room() {
    let pool = Pool::of(PLAIN).await;
    let hits = pool.epochs(13, &[0, 1], PLAIN).await;
    println!("side by side: {hits:.3?}");
    assert!(mean(&hits[1..]) >= 0.49, "{hits:.3?}");
}

#[tokio::test(start_paused = true)]
async fn a_load_brings_all_where_there_is_just_room() {
    let pool = Pool::of(Play { room: 1.02, ..PLAIN }).await;
    let tally = Arc::default();
    pool.views[0][0].load(&Wanted::default(), false, &tally).await.expect("names that are known");
    let loaded = tally.progress();
    println!("{} of the set left the store, {} files left out", pool.sent() as f64 / SET as f64, loaded.files_unkept);
    assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (FILES, 0, 0));
    assert_eq!(pool.sent(), SET);
}
