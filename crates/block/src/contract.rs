//! What every source promises, as a suite that each one runs.
//!
//! `make` lays the source to be tried over a [`Fixed`] one; it may return a guard that lives as long as the test.

use crate::{BLOCK, Door, Fixed, Kind, Object, RUN_BLOCKS_MAX, Run, SMALL, Source};
use futures_util::StreamExt;
use std::sync::Arc;

/// An object and what it holds.
pub type Sample = (Arc<Object>, Vec<u8>);

/// Objects of every shape.
pub fn objects() -> (Fixed, Vec<Sample>) {
    let mut fixed = Fixed::default();
    let small = [1, 65_535, 65_536, 65_537, BLOCK - 1, BLOCK, BLOCK + 1, SMALL - 1, SMALL];
    let large = [SMALL + 1, SMALL + BLOCK, 16 * SMALL, 17 * SMALL + 3];
    let objects = [&small[..], &large].concat().into_iter().enumerate().map(|(seed, size)| {
        let content: Vec<u8> = (0..size).map(|at| (at * 131 + at / 251 + seed as u64 * 17) as u8).collect();
        (fixed.add(&format!("folder/{seed}"), content.clone()), content)
    });
    let objects = objects.collect();
    (fixed, objects)
}

/// The whole suite. `make` may be called often.
pub async fn run<Guard>(make: impl Fn(Fixed) -> (Arc<dyn Source>, Guard)) {
    gives_every_run_in_order(&make).await;
    gives_the_same_again_and_to_many_at_once(&make).await;
    survives_streams_that_are_given_up(&make).await;
    tells_what_is_missing(&make).await;
    passes_the_checksum_on(&make).await;
}

async fn gives_every_run_in_order<Guard>(make: &impl Fn(Fixed) -> (Arc<dyn Source>, Guard)) {
    let (fixed, objects) = objects();
    let (source, _guard) = make(fixed);
    for (object, content) in &objects {
        for length in [1, 3, RUN_BLOCKS_MAX] {
            for start in (0..object.blocks()).rev().step_by(5) {
                let run = Run::new(object.clone(), start..object.blocks().min(start + length));
                let range = run.range();
                let expected = &content[range.start as usize..range.end as usize];
                assert_eq!(read(&*source, run).await.expect("blocks"), expected, "{object} from {start}");
            }
        }
    }
}

async fn gives_the_same_again_and_to_many_at_once<Guard>(make: &impl Fn(Fixed) -> (Arc<dyn Source>, Guard)) {
    let (fixed, objects) = objects();
    let (source, _guard) = make(fixed);
    let readers = (0..32).flat_map(|turn| objects.iter().map(move |object| (turn, object)));
    let reads = readers.map(|(turn, (object, content))| {
        let start = turn % object.blocks();
        let run = Run::new(object.clone(), start..object.blocks().min(start + RUN_BLOCKS_MAX));
        let range = run.range();
        let source = source.clone();
        async move {
            let expected = &content[range.start as usize..range.end as usize];
            assert!(read(&*source, run).await.expect("blocks") == expected, "{object}");
        }
    });
    futures_util::stream::iter(reads).for_each_concurrent(24, |read| read).await;
}

async fn survives_streams_that_are_given_up<Guard>(make: &impl Fn(Fixed) -> (Arc<dyn Source>, Guard)) {
    let (fixed, objects) = objects();
    let (source, _guard) = make(fixed);
    let (object, content) = objects.last().expect("a large object");
    for taken in 0..4 {
        let mut blocks = source.fetch(Run::new(object.clone(), 0..8));
        for _ in 0..taken {
            blocks.next().await.expect("a block").expect("its bytes");
        }
    }
    let run = Run::new(object.clone(), 0..16);
    assert!(read(&*source, run).await.expect("blocks") == content[..16 * BLOCK as usize]);
}

async fn tells_what_is_missing<Guard>(make: &impl Fn(Fixed) -> (Arc<dyn Source>, Guard)) {
    let (fixed, objects) = objects();
    let (source, _guard) = make(fixed);
    for object in [&objects[3].0, &objects[objects.len() - 1].0] {
        let gone = Arc::new(Object { version: "another".into(), ..(**object).clone() });
        let failed = read(&*source, Run::new(gone, 0..1)).await.expect_err("there is no such version");
        assert_eq!(failed.kind, Kind::Missing, "{failed}");
    }
}

async fn passes_the_checksum_on<Guard>(make: &impl Fn(Fixed) -> (Arc<dyn Source>, Guard)) {
    let (fixed, objects) = objects();
    let (source, _guard) = make(fixed);
    for (object, content) in &objects {
        let expected = source.checksum(object, Door::NONE).await.expect("an answer").expect("a checksum");
        let mut digest = expected.digest();
        digest.update(content);
        assert!(digest.matches(expected), "{object}");
    }
}

async fn read(source: &dyn Source, run: Run) -> crate::Result<Vec<u8>> {
    let mut addresses = run.addresses();
    let (mut blocks, mut bytes) = (source.fetch(run), Vec::new());
    while let Some(block) = blocks.next().await {
        let block = block?;
        assert_eq!(Some(&block.address), addresses.next().as_ref(), "blocks come in order");
        bytes.extend(block.pieces().concat());
    }
    assert_eq!(addresses.next(), None, "every block comes");
    Ok(bytes)
}
