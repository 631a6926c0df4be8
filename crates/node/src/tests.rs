//! A whole node over a store in memory: what a mount would ask of it, without a kernel.

use crate::fill::When;
use crate::load::{self, Tally};
use crate::node::{Node, Settings};
use crate::select::Wanted;
use crate::view::{Source, View};
use block::{Run, SMALL, Source as _};
use cache::disk::Limits;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A node, the store that its data set lies in, and the folder of its cache.
pub struct Ground {
    pub store: Arc<store::Memory>,
    pub node: Arc<Node>,
    pub _folder: TempDir,
}

pub fn content(size: u64) -> Vec<u8> {
    (0..size).map(|at| (at * 131 + at / 251 + size) as u8).collect()
}

pub fn ground(limit_bytes: u64, files: &[(&str, u64)]) -> Ground {
    let store = Arc::new(store::Memory::new("set"));
    for (key, size) in files {
        store.put(key, content(*size));
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let node = start(&folder, limit_bytes, [7; 16]);
    Ground { store, node, _folder: folder }
}

pub fn start(folder: &TempDir, limit_bytes: u64, boot: [u8; 16]) -> Arc<Node> {
    let settings = Settings {
        cache: folder.path().to_owned(),
        limits: Limits { bytes: limit_bytes, files: 1 << 20, free_bytes_min: 0, free_files_min: 0 },
        memory_bytes: 256 << 20,
        seed: 1,
        patience: Duration::from_secs(1),
    };
    Node::start(settings, boot, tokio::runtime::Handle::current()).expect("a node")
}

impl Ground {
    pub async fn view(&self, fill: When) -> Arc<View> {
        let url = "memory://set".to_string();
        let source = Source { url, store: self.store.clone(), prefix: String::new(), local: None };
        View::open(self.node.clone(), source, fill, |_| ()).await.expect("a view")
    }

    /// Bytes that came from the store.
    pub fn sent(&self) -> u64 {
        self.node.figures().origin.1
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_goes_on_counts_what_it_fetched_and_what_it_found() {
    let ground = ground(1 << 30, &[("half", 8 << 20), ("new", 3 << 20), ("small", 1000), ("there", SMALL)]);
    let view = ground.view(When::Off).await;
    let object = |name: &str| {
        let manifest = view.manifest();
        manifest.find(name.as_bytes()).and_then(|node| manifest.object(node)).expect("a file")
    };
    for (name, blocks) in [("half", 0..16), ("there", 0..1)] {
        let mut blocks = ground.node.disk.fetch(Run::new(object(name), blocks).via(view.door()));
        while let Some(block) = blocks.next().await {
            block.expect("a block");
        }
    }
    let (before, tally) = (ground.sent(), Arc::new(Tally::default()));
    load::load(&view, &Wanted::default(), false, &tally).await.expect("a load");
    let progress = tally.progress();
    assert_eq!((progress.files_done, progress.bytes_done), (4, (12 << 20) + 1000));
    assert_eq!((progress.files_present, progress.bytes_present), (1, (4 << 20) + SMALL));
    assert_eq!(ground.sent() - before, progress.bytes_done - progress.bytes_present);
}
