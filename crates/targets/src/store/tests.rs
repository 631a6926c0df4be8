//! A store answers the calls of a target: what was written is listed and read, in one request a read.

use std::sync::Arc;

use block::Kind;
use tokio::runtime::Runtime;

use super::super::{Listed, Target};
use super::*;

fn over_memory(prefix: &str) -> (Runtime, Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let memory = Arc::new(::store::Memory::new("bench"));
    let both: (Arc<dyn ::store::Store>, Arc<dyn Sink>) = (memory.clone(), Arc::new(memory));
    let target = Store::over("memory://bench", prefix, both, runtime.handle().clone(), 1);
    (runtime, target)
}

fn bytes(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

fn write(target: &Store, name: &str, content: &[u8], announced: u64) {
    let mut created = target.writable().unwrap().create(name, announced).unwrap();
    for piece in content.chunks(1_000_003) {
        created.write(piece).unwrap();
    }
    created.finish(true).unwrap();
}

#[test]
fn what_was_written_is_listed_and_read() {
    let (_runtime, target) = over_memory("set/");
    let sizes = [0, 5, PUT_BYTES_MAX, PUT_BYTES_MAX + 1, 3 * PART_BYTES];
    for size in sizes {
        write(&target, &format!("a/{size:09}"), &bytes(size), size);
    }
    write(&target, "b/unannounced", &bytes(PUT_BYTES_MAX * 2 + 7), 0);
    let listed = target.list().unwrap();
    assert_eq!(listed.len(), sizes.len() + 1);
    for file in &listed {
        let mut buffer = vec![0; usize::try_from(file.bytes).unwrap() + 10];
        let mut opened = target.open(file).unwrap();
        let before = target.counters().snapshot();
        let read = opened.read_at(0, &mut buffer).unwrap();
        let after = target.counters().snapshot();
        assert_eq!(read as u64, file.bytes);
        assert!(buffer[..read] == bytes(file.bytes), "{}", file.name);
        assert_eq!(after.gets - before.gets, u64::from(file.bytes > 0), "one request a read");
    }
    let mut part = [0; 100];
    let middle = target.open(&listed[2]).unwrap().read_at(1_000_000, &mut part).unwrap();
    assert_eq!((middle, &part[..]), (100, &bytes(1_000_100)[1_000_000..]));
    assert_eq!(target.stat("a/000000005").unwrap(), Listed { name: "a/000000005".into(), bytes: 5 });
}

#[test]
fn a_file_that_was_not_finished_is_not_there() {
    let (_runtime, target) = over_memory("");
    let mut created = target.writable().unwrap().create("half", PUT_BYTES_MAX * 4).unwrap();
    created.write(&bytes(PUT_BYTES_MAX * 2)).unwrap();
    drop(created);
    assert_eq!(target.list().unwrap(), []);
    assert_eq!(target.stat("half").unwrap_err().kind, Kind::Missing);
}

#[test]
fn a_file_that_changes_under_its_reader_is_an_error() {
    let (_runtime, target) = over_memory("");
    write(&target, "k", b"old", 3);
    let mut opened = target.open(&target.stat("k").unwrap()).unwrap();
    write(&target, "k", b"new", 3);
    assert_eq!(opened.read_at(0, &mut [0; 3]).unwrap_err().kind, Kind::Changed);
    let mut again = [0; 3];
    target.open(&Listed { name: "k".into(), bytes: 3 }).unwrap().read_at(0, &mut again).unwrap();
    assert_eq!(&again, b"new");
    target.writable().unwrap().remove("k").unwrap();
    assert_eq!(target.open(&Listed { name: "k".into(), bytes: 3 }).err().unwrap().kind, Kind::Missing);
}
