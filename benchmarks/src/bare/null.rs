//! A mount of files of zeros, which answers a read once somebody says that its bytes were brought.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use node::namespace::{Attributes, Content, Namespace, Opening, ROOT, Reading};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::RANGE;
use crate::dataset::Member;

/// The folder that all of the files lie in.
const FOLDER: u64 = ROOT + 1;
/// More than a read asks for.
static ZEROS: [u8; 4 << 20] = [0; 4 << 20];

/// One file: which of its ranges were brought.
struct Zeros {
    attributes: Attributes,
    brought: Vec<watch::Sender<bool>>,
}

struct Tree {
    names: HashMap<Vec<u8>, u64>,
    files: HashMap<u64, Arc<Zeros>>,
    opened: watch::Sender<bool>,
}

pub struct Mounted {
    session: mount::Session,
    tree: Arc<Tree>,
    runtime: Runtime,
}

impl Mounted {
    /// Mount, and wait for the first file to be opened.
    pub fn begin(at: &Path, members: &[Member]) -> Result<Mounted> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let name = |member: &Member| member.name.rsplit('/').next().expect("it has a last part").as_bytes().to_vec();
        let node = |member: &Member| u64::from(member.number) + FOLDER;
        let file = |member: &Member| {
            let attributes =
                Attributes { node: node(member), folder: false, size: member.size, modified_ns: 0, folders: 0 };
            let brought = (0..member.size.div_ceil(RANGE)).map(|_| watch::channel(false).0).collect();
            Arc::new(Zeros { attributes, brought })
        };
        let tree = Arc::new(Tree {
            names: members.iter().map(|member| (name(member), node(member))).collect(),
            files: members.iter().map(|member| (node(member), file(member))).collect(),
            opened: watch::channel(false).0,
        });
        let options = mount::Options::new(at, "null:");
        let session = mount::attach(&options, tree.clone(), runtime.handle().clone())?;
        let mut opened = tree.opened.subscribe();
        runtime.block_on(opened.wait_for(|is_opened| *is_opened))?;
        Ok(Mounted { session, tree, runtime })
    }

    /// The range of a file that ends here was brought.
    pub fn brought(&self, member: &Member, end: u64) {
        let file = &self.tree.files[&(u64::from(member.number) + FOLDER)];
        file.brought[((end - 1) / RANGE) as usize].send_replace(true);
    }

    /// Wait until somebody unmounts it.
    pub fn wait(&self) {
        self.session.wait();
        let _ = &self.runtime;
    }
}

impl Namespace for Tree {
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<Attributes> {
        match parent {
            ROOT if name == b"large" => self.attributes(FOLDER),
            FOLDER => self.attributes(*self.names.get(name)?),
            _ => None,
        }
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        match node {
            ROOT | FOLDER => Some(Attributes { node, folder: true, size: 0, modified_ns: 0, folders: 1 }),
            _ => self.files.get(&node).map(|file| file.attributes),
        }
    }

    fn list(&self, _folder: u64, _from: u64, _each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        true
    }

    fn remember(&self, _node: u64, _lookups: i64) {}

    fn open(&self, node: u64) -> Opening {
        self.opened.send_replace(true);
        Opening::Ready(Ok(self.files[&node].clone()))
    }
}

impl Content for Zeros {
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read(&self, offset: u64, length: u32) -> Reading {
        let length = u64::from(length).min(self.attributes.size.saturating_sub(offset));
        if length == 0 {
            return Reading::Ready(Ok(vec![]));
        }
        let ranges = offset / RANGE..=(offset + length - 1) / RANGE;
        let brought: Vec<_> = ranges.map(|range| self.brought[range as usize].subscribe()).collect();
        Reading::Waiting(Box::pin(async move {
            for mut range in brought {
                let _ = range.wait_for(|is_brought| *is_brought).await;
            }
            Ok(vec![Bytes::from_static(&ZEROS[..length as usize])])
        }))
    }
}
