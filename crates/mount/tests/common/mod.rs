//! What the tests mount: a data set in memory, whose files answer in every manner that the trait allows,
//! and a mount of it that is gone when the test is.

#![allow(dead_code, reason = "each test file uses its part")]

use block::Error;
use bytes::Bytes;
use node::namespace::{Attributes, Content, Names, Namespace, Opening, ROOT, Reading, Use};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stoker_mount::{Options, Session};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How a file answers.
#[derive(Clone)]
pub enum Body {
    /// At once, from memory.
    Bytes(Bytes),
    /// From memory, after a while, both at OPEN and at READ.
    Later(Bytes),
    /// OPEN never ends.
    HangsAtOpen,
    /// READ never ends; so many bytes long.
    HangsAtRead(u64),
    /// OPEN fails.
    Fails(Error),
    /// READ fails.
    FailsAtRead(Error),
    /// READ panics.
    Panics,
    /// READ panics after a while.
    PanicsLater,
    /// READ gives one byte less than it should.
    Short(u64),
    /// From memory, which may change under whoever has it open.
    Changing(Arc<Mutex<Bytes>>),
    /// Complete in a local file.
    Backed(Arc<File>, Bytes),
}

impl Body {
    fn size(&self) -> u64 {
        match self {
            Body::Bytes(bytes) | Body::Later(bytes) | Body::Backed(_, bytes) => bytes.len() as u64,
            Body::Changing(bytes) => bytes.lock().unwrap().len() as u64,
            Body::HangsAtRead(size) | Body::Short(size) => *size,
            Body::HangsAtOpen | Body::Fails(_) | Body::FailsAtRead(_) | Body::Panics | Body::PanicsLater => 10,
        }
    }
}

/// A data set in memory.
#[derive(Default)]
pub struct Tree {
    inside: Mutex<Inside>,
    pub opens: AtomicU64,
    pub lookups: AtomicU64,
    /// Opens that were reported afterwards.
    /// What was used; and what was asked for, each with how much had been used before.
    pub used: Mutex<Vec<Use>>,
    pub asked: Mutex<Vec<(usize, u64)>>,
    /// The process dies while it is asked for attributes.
    pub dies: AtomicBool,
    /// The names as of the last [`Tree::pin`].
    pinned: Mutex<Option<Arc<Pinned>>>,
}

/// Names of one moment.
struct Pinned {
    generation: u32,
    folders: HashMap<u64, Vec<(Vec<u8>, Attributes)>>,
}

impl Names for Pinned {
    fn generation(&self) -> u32 {
        self.generation
    }

    fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        let Some(children) = self.folders.get(&folder) else { return false };
        let mut rest = children.iter().enumerate().skip(from as usize);
        rest.all(|(index, (name, attributes))| each(index as u64 + 1, name, *attributes));
        true
    }
}

#[derive(Default)]
struct Inside {
    /// Node number = index + 1.
    nodes: Vec<Node>,
    counts: HashMap<u64, i64>,
}

#[derive(Default)]
struct Node {
    children: Option<Vec<(Vec<u8>, u64)>>,
    body: Option<Body>,
}

impl Tree {
    pub fn new() -> Arc<Tree> {
        let tree = Tree::default();
        tree.inside.lock().unwrap().nodes.push(Node { children: Some(Vec::new()), body: None });
        Arc::new(tree)
    }

    pub fn folder(&self, parent: u64, name: &str) -> u64 {
        self.add(parent, name, Node { children: Some(Vec::new()), body: None })
    }

    pub fn file(&self, parent: u64, name: &str, body: Body) -> u64 {
        self.add(parent, name, Node { children: None, body: Some(body) })
    }

    /// The download of this node is complete.
    pub fn complete(&self, node: u64, body: Body) {
        self.inside.lock().unwrap().nodes[node as usize - 1].body = Some(body);
    }

    /// A name is gone, as after a refresh; its node stays readable.
    pub fn remove(&self, parent: u64, name: &str) {
        let mut inside = self.inside.lock().unwrap();
        let children = inside.nodes[parent as usize - 1].children.as_mut().unwrap();
        children.retain(|(child, _)| child != name.as_bytes());
    }

    /// From now on names are listed as they are now, until this is called again.
    pub fn pin(&self) {
        let inside = self.inside.lock().unwrap();
        let listed = |children: &Vec<(Vec<u8>, u64)>| {
            children.iter().map(|(name, child)| (name.clone(), inside.attributes(*child).unwrap())).collect()
        };
        let nodes = inside.nodes.iter().zip(1..);
        let folders = nodes.filter_map(|(node, number)| Some((number, listed(node.children.as_ref()?)))).collect();
        let mut pinned = self.pinned.lock().unwrap();
        let generation = pinned.as_ref().map_or(1, |pinned| pinned.generation + 1);
        *pinned = Some(Arc::new(Pinned { generation, folders }));
    }

    /// Lookups that the kernel has not given back.
    pub fn count(&self, node: u64) -> i64 {
        self.inside.lock().unwrap().counts.get(&node).copied().unwrap_or(0)
    }

    fn add(&self, parent: u64, name: &str, node: Node) -> u64 {
        let mut inside = self.inside.lock().unwrap();
        inside.nodes.push(node);
        let number = inside.nodes.len() as u64;
        inside.nodes[parent as usize - 1].children.as_mut().unwrap().push((name.into(), number));
        number
    }
}

impl Inside {
    fn attributes(&self, node: u64) -> Option<Attributes> {
        let found = self.nodes.get(node as usize - 1)?;
        let is_folder = |child: u64| self.nodes[child as usize - 1].children.is_some();
        let folders = found.children.iter().flatten().filter(|(_, child)| is_folder(*child)).count() as u32;
        let size = found.body.as_ref().map_or(0, Body::size);
        Some(Attributes { node, folder: found.children.is_some(), size, modified_ns: modified_ns(node), folders })
    }
}

/// When a node was changed: no two at once.
pub fn modified_ns(node: u64) -> i64 {
    1_500_000_000_000_000_001 + node as i64 * 1_000_000_001
}

impl Namespace for Tree {
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<Attributes> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let mut inside = self.inside.lock().unwrap();
        let children = inside.nodes.get(parent as usize - 1)?.children.as_ref()?;
        let node = children.iter().find(|(child, _)| child == name)?.1;
        *inside.counts.entry(node).or_default() += 1;
        inside.attributes(node)
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        if self.dies.load(Ordering::Relaxed) {
            std::process::abort();
        }
        self.inside.lock().unwrap().attributes(node)
    }

    fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        let inside = self.inside.lock().unwrap();
        let Some(children) = inside.nodes.get(folder as usize - 1).and_then(|node| node.children.as_ref()) else {
            return false;
        };
        for (index, (name, node)) in children.iter().enumerate().skip(from as usize) {
            if !each(index as u64 + 1, name, inside.attributes(*node).unwrap()) {
                break;
            }
        }
        true
    }

    fn names(&self) -> Option<Arc<dyn Names>> {
        let pinned = self.pinned.lock().unwrap();
        pinned.clone().map(|pinned| pinned as Arc<dyn Names>)
    }

    fn used(&self, uses: &[Use]) {
        self.used.lock().unwrap().extend(uses);
    }

    fn remember(&self, node: u64, lookups: i64) {
        let mut inside = self.inside.lock().unwrap();
        let count = inside.counts.entry(node).or_default();
        *count += lookups;
        assert!(node == ROOT || *count >= 0, "more lookups on node {node} were given back than counted");
    }

    fn open_by(&self, node: u64, _thread: u32) -> Opening {
        self.asked.lock().unwrap().push((self.used.lock().unwrap().len(), node));
        self.open(node)
    }

    fn open(&self, node: u64) -> Opening {
        self.opens.fetch_add(1, Ordering::Relaxed);
        let body = self.inside.lock().unwrap().nodes[node as usize - 1].body.clone().expect("only files are opened");
        match body {
            Body::Fails(error) => Opening::Ready(Err(error)),
            Body::HangsAtOpen => Opening::Waiting(Box::pin(std::future::pending())),
            Body::Later(_) => Opening::Waiting(Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(Arc::new(Opened(body)) as Arc<dyn Content>)
            })),
            body => Opening::Ready(Ok(Arc::new(Opened(body)))),
        }
    }
}

struct Opened(Body);

impl Content for Opened {
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Body::Backed(file, _) => Some(file.as_fd()),
            _ => None,
        }
    }

    fn read(&self, offset: u64, length: u32) -> Reading {
        match &self.0 {
            Body::Changing(bytes) => Reading::Ready(Ok(pieces(&bytes.lock().unwrap(), offset, length))),
            Body::Bytes(bytes) | Body::Backed(_, bytes) => Reading::Ready(Ok(pieces(bytes, offset, length))),
            Body::Later(bytes) => {
                let pieces = pieces(bytes, offset, length);
                Reading::Waiting(Box::pin(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok(pieces)
                }))
            }
            Body::FailsAtRead(error) => Reading::Ready(Err(error.clone())),
            Body::Panics => panic!("as the test wants it"),
            Body::PanicsLater => Reading::Waiting(Box::pin(async { panic!("as the test wants it") })),
            Body::Short(_) => Reading::Ready(Ok(pieces(&noise(length as usize - 1, 1), 0, length))),
            _ => Reading::Waiting(Box::pin(std::future::pending())),
        }
    }
}

/// In pieces of odd length, and for short ones more than fit one system call.
fn pieces(bytes: &Bytes, offset: u64, length: u32) -> Vec<Bytes> {
    let start = (offset as usize).min(bytes.len());
    let end = (start + length as usize).min(bytes.len());
    let step = if offset.is_multiple_of(3) { 97 } else { 70_001 };
    (start..end).step_by(step).map(|at| bytes.slice(at..(at + step).min(end))).collect()
}

/// A data set, mounted.
pub struct Mounted {
    pub session: Session,
    pub tree: Arc<Tree>,
    scratch: TempDir,
    runtime: Option<Runtime>,
}

impl Mounted {
    /// `None`, and said so, on a machine without FUSE.
    pub fn new(tree: &Arc<Tree>, change: impl FnOnce(&mut Options)) -> Option<Mounted> {
        let scratch = scratch()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut options = Options::new(scratch.path().join("mnt"), "memory:test, with a comma");
        change(&mut options);
        let session = stoker_mount::attach(&options, tree.clone(), runtime.handle().clone()).unwrap();
        Some(Mounted { session, tree: tree.clone(), scratch, runtime: Some(runtime) })
    }

    /// Whether the kernel reads complete files by itself; not so, and said so, on a machine where it can't.
    pub fn passes_through(&self) -> bool {
        if let stoker_mount::Passthrough::Off { reason } = self.session.passthrough() {
            eprintln!("SKIPPED: no passthrough here: {reason}");
            return false;
        }
        true
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.session.mount_point().join(name)
    }

    /// End the runtime that waiting answers come from.
    pub fn stop_runtime(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }

    /// Where local files lie.
    pub fn local_folder(&self) -> &std::path::Path {
        self.scratch.path()
    }

    /// A local file beside the mount point.
    pub fn local(&self, content: &[u8]) -> Arc<File> {
        local(self.scratch.path(), content)
    }
}

/// A folder with an empty `mnt` in it; `None`, and said so, on a machine without FUSE.
pub fn scratch() -> Option<TempDir> {
    if !std::path::Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: there is no /dev/fuse here, so nothing can be mounted");
        return None;
    }
    let scratch = tempfile::tempdir().unwrap();
    std::fs::create_dir(scratch.path().join("mnt")).unwrap();
    Some(scratch)
}

/// A read-only descriptor of a new local file; its name does not matter.
pub fn local(folder: &std::path::Path, content: &[u8]) -> Arc<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let path = folder.join(format!("local-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    std::fs::write(&path, content).unwrap();
    Arc::new(File::open(&path).unwrap())
}

/// Bytes that differ everywhere, and from those of any other seed.
pub fn noise(length: usize, seed: u64) -> Bytes {
    // Spread over all bits, for neighbours begin alike; never zero, from which nothing follows.
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Wait until something holds; releases and forgets reach the daemon a little after the fact.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A Python program run to its end; its output.
pub fn python(program: &str, argument: &std::path::Path) -> String {
    let done = std::process::Command::new("python3").arg("-c").arg(program).arg(argument).output().unwrap();
    let failed = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "python failed: {failed}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

pub fn failing(what: &str) -> Error {
    Error::unavailable(what, "memory:test")
}
