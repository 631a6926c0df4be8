//! Whole nodes that are one cache, in one process: over a network in memory, and read as a mount reads.

#![allow(dead_code, reason = "each test file uses its part")]

use block::Result;
use bytes::Bytes;
use peer::{Roster, Seat, Twin};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stoker_node::fill::When;
use stoker_node::load::Progress;
use stoker_node::namespace::{Namespace, Opening, Reading};
use stoker_node::select::Wanted;
use stoker_node::{DataSet, Home, Membership, Node, Settings, View};
use store::Store;
use tempfile::TempDir;
use tokio::sync::watch;

/// Memory of a node: what came and isn't on its disk stays there.
const MEMORY: u64 = 2 << 30;

/// Longer than a member is in doubt what it missed.
pub const NO_DOUBT: Duration = Duration::from_secs(60);

/// Nodes that are one cache.
pub struct Pool {
    pub nodes: Vec<Arc<Node>>,
    pub views: Vec<Arc<View>>,
    stores: Vec<Arc<dyn Store>>,
    rooms: Vec<u64>,
    twin: Twin,
    servers: Vec<tokio::task::JoinHandle<()>>,
    folders: Vec<TempDir>,
    rosters: Vec<watch::Sender<Arc<Roster>>>,
}

fn seats(weights: &[u32]) -> Vec<Seat> {
    weights.iter().enumerate().map(|(n, weight)| Seat::new(format!("n{n}"), format!("n{n}:1"), *weight)).collect()
}

impl Pool {
    /// Two of them that own as much each.
    pub async fn pair(store: Arc<dyn Store>, room: u64) -> Pool {
        Pool::of(&[1, 1], &[room; 2], vec![store.clone(), store]).await
    }

    /// Each with its weight, room on its disk and store.
    pub async fn of(weights: &[u32], rooms: &[u64], stores: Vec<Arc<dyn Store>>) -> Pool {
        let (nodes, views, servers) = Default::default();
        let folders = rooms.iter().map(|_| tempfile::tempdir().expect("a folder")).collect();
        let roster = |seat: &Seat| watch::channel(Arc::new(Roster::of(seat.id, seats(weights)))).0;
        let rosters = seats(weights).iter().map(roster).collect();
        let (rooms, twin) = (rooms.to_vec(), Twin::default());
        let mut pool = Pool { nodes, views, stores, rooms, twin, servers, folders, rosters };
        for number in 0..pool.rooms.len() {
            let home = Home::take(pool.folders[number].path(), false).expect("a home");
            let (node, server) = pool.start(number, home);
            pool.nodes.push(node);
            pool.servers.push(server);
        }
        for number in 0..pool.rooms.len() {
            pool.views.push(pool.open(number).await);
        }
        pool
    }

    fn start(&self, number: usize, home: Home) -> (Arc<Node>, tokio::task::JoinHandle<()>) {
        let limits =
            cache::disk::Limits { bytes: self.rooms[number], files: 1 << 20, free_bytes_min: 0, free_files_min: 0 };
        let settings = Settings {
            cache: self.folders[number].path().to_owned(),
            limits,
            memory_bytes: MEMORY,
            seed: 1,
            patience: Duration::from_secs(3600),
        };
        let (roster, transport) = (self.rosters[number].subscribe(), Arc::new(self.twin.clone()));
        let membership = Membership { members: "twin".into(), roster, transport, is_encrypted: false };
        let runtime = tokio::runtime::Handle::current();
        let node = Node::start_in(home, settings, [7; 16], runtime, Some(membership)).expect("a node");
        let lines = node.stack().lines().expect("it is a member").clone();
        let listener = self.twin.listen(&format!("n{number}:1"));
        let server = tokio::spawn(peer::serve(Box::new(listener), node.giving(), lines));
        (node, server)
    }

    async fn open(&self, number: usize) -> Arc<View> {
        let (url, store) = ("memory://set".into(), self.stores[number].clone());
        let source = DataSet { url, store, prefix: String::new(), local: None, manifest: None, may_be_empty: false };
        View::open(self.nodes[number].clone(), source, When::Off, |_| ()).await.expect("a view")
    }

    /// One of them ends, and begins anew with what lies in its folder.
    pub async fn restart(&mut self, number: usize) {
        self.servers[number].abort();
        self.twin.cut(&format!("n{number}:1"));
        let (node, view) = (self.nodes.remove(number), self.views.remove(number));
        view.close();
        node.close();
        drop((node, view));
        let mut home = Home::take(self.folders[number].path(), false);
        for _ in 0..600 {
            if home.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            home = Home::take(self.folders[number].path(), false);
        }
        let (node, server) = self.start(number, home.expect("the node of before let go of its folder"));
        self.nodes.insert(number, node);
        self.servers[number] = server;
        let view = self.open(number).await;
        self.views.insert(number, view);
    }

    /// From now on they have these weights.
    pub fn weigh(&self, weights: &[u32]) {
        for (seat, roster) in seats(weights).iter().zip(&self.rosters) {
            roster.send_replace(Arc::new(Roster::of(seat.id, seats(weights))));
        }
    }

    /// Load all of the set on one of them.
    pub async fn load(&self, number: usize, verify: bool) -> Progress {
        let tally = Arc::default();
        self.views[number].load(&Wanted::default(), verify, &tally).await.expect("names that are known");
        let loaded = tally.progress();
        println!("loaded on {number}, verify {verify}: {loaded:?}");
        loaded
    }

    /// The files of the cache of one of them.
    pub fn files(&self, number: usize) -> Vec<PathBuf> {
        let below = |folder: &Path| std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
        let objects = self.folders[number].path().join("blocks/objects");
        below(&objects).flat_map(|near| below(&near).collect::<Vec<_>>()).collect()
    }

    /// Whether one of them reads these bytes.
    pub async fn reads(&self, number: usize, name: &str, expected: &[u8]) -> bool {
        let read = read(&self.views[number], name, expected).await;
        println!("{name} on {number}: {read:?}");
        read.unwrap_or(false)
    }

    /// How many blocks one of them gave to others.
    pub fn served(&self, number: usize) -> u64 {
        self.nodes[number].stack().lines().expect("it is a member").figures().served.get().0
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.servers.iter().for_each(tokio::task::JoinHandle::abort);
        self.views.iter().for_each(|view| view.close());
    }
}

/// As a mount does: a complete file is read by the kernel.
async fn read(view: &View, name: &str, expected: &[u8]) -> Result<bool> {
    let node = view.manifest().find(name.as_bytes()).expect("a file");
    let content = match view.open(node) {
        Opening::Ready(content) => content?,
        Opening::Waiting(content) => content.await?,
    };
    if let Some(file) = content.backing() {
        let file = std::fs::File::from(file.try_clone_to_owned().expect("a descriptor"));
        let mut bytes = vec![0; expected.len()];
        return Ok(file.read_exact_at(&mut bytes, 0).is_ok() && bytes == expected);
    }
    let mut is_right = true;
    for (number, expected) in expected.chunks(1 << 20).enumerate() {
        let pieces = match content.read((number as u64) << 20, expected.len() as u32) {
            Reading::Ready(pieces) => pieces?,
            Reading::Waiting(pieces) => pieces.await?,
        };
        is_right &= pieces.concat() == expected;
    }
    Ok(is_right)
}

/// Bytes of which each stripe and each file has others.
pub fn bytes(seed: u64, size: u64) -> Bytes {
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed << 32;
    let words = (0..size.div_ceil(8)).flat_map(|at| word(at).to_le_bytes());
    words.take(size as usize).collect::<Vec<u8>>().into()
}
