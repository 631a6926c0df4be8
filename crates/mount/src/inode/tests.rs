//! The state machine of an inode, step by step.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

fn inodes(kept_max: usize) -> Inodes {
    Inodes::over(Arc::new(Ledger::new(1).expect("memory")), kept_max)
}

/// The backing file that is to be closed, its line erased.
fn closed(inodes: &Inodes, retired: impl IntoIterator<Item = Retired>) -> Option<BackingId> {
    let mut ids = retired.into_iter().map(|Retired { id, line }| {
        line.into_iter().for_each(|line| inodes.ledger.erase(line));
        id
    });
    let id = ids.next();
    assert_eq!(ids.next(), None, "one at a time");
    id
}

fn start(inodes: &Inodes, node: u64) -> Start {
    inodes.start(node, 0).0
}

fn settle(inodes: &Inodes, node: u64, asked: Asked, offer: Option<Backing>) -> Settled {
    inodes.settle(node, 0, asked, offer).0
}

fn release(inodes: &Inodes, node: u64) -> Option<Retired> {
    inodes.release_through(node, inodes.ledger.closing(0, node))
}

/// Open a file whose content has this backing file.
fn open(inodes: &Inodes, node: u64, backing: Option<u32>) -> Settled {
    match start(inodes, node) {
        Start::Through(id) => Settled { way: Way::Through(id), close: None },
        Start::Ask(asked) => settle(inodes, node, asked, backing.map(file)),
    }
}

fn file(id: u32) -> Backing {
    Backing { id: BackingId(id), ahead: None }
}

fn through(id: u32) -> Settled {
    Settled { way: Way::Through(BackingId(id)), close: None }
}

fn served(small_reads: bool) -> Settled {
    Settled { way: Way::Served { small_reads }, close: None }
}

#[test]
fn a_complete_file_passes_through_and_is_kept_after_its_close() {
    let inodes = inodes(KEPT_MAX);
    assert_eq!(open(&inodes, 7, Some(1)), through(1));
    assert_eq!(closed(&inodes, release(&inodes, 7)), None);
    assert_eq!(start(&inodes, 7), Start::Through(BackingId(1)));
}

#[test]
fn while_a_served_open_lives_further_opens_are_served_too() {
    let inodes = inodes(KEPT_MAX);
    assert_eq!(open(&inodes, 7, None), served(false));
    let offered = open(&inodes, 7, Some(1));
    assert_eq!(offered.way, Way::Served { small_reads: false });
    assert_eq!(closed(&inodes, offered.close), Some(BackingId(1)));
    inodes.release_served(7, false, inodes.ledger.closing(0, 7));
    assert!(matches!(start(&inodes, 7), Start::Ask(Asked { served: true, .. })));
    inodes.release_served(7, false, inodes.ledger.closing(0, 7));
    assert_eq!(open(&inodes, 7, Some(2)), through(2));
}

#[test]
fn of_two_opens_that_race_one_backing_file_wins() {
    let inodes = inodes(KEPT_MAX);
    let (Start::Ask(first), Start::Ask(second)) = (start(&inodes, 7), start(&inodes, 7)) else {
        panic!("nothing is kept yet")
    };
    assert_eq!(settle(&inodes, 7, first, Some(file(1))), through(1));
    let late = settle(&inodes, 7, second, Some(file(2)));
    assert_eq!((late.way, closed(&inodes, late.close)), (Way::Through(BackingId(1)), Some(BackingId(2))));
}

#[test]
fn an_open_without_backing_joins_those_that_pass_through() {
    let inodes = inodes(KEPT_MAX);
    let Start::Ask(early) = start(&inodes, 7) else { panic!("nothing is kept yet") };
    assert_eq!(open(&inodes, 7, Some(1)), through(1));
    assert_eq!(settle(&inodes, 7, early, None), through(1));
}

#[test]
fn small_reads_are_remembered_for_the_next_open() {
    let inodes = inodes(KEPT_MAX);
    open(&inodes, 7, None);
    inodes.release_served(7, true, inodes.ledger.closing(0, 7));
    assert_eq!(open(&inodes, 7, None), served(true));
    inodes.release_served(7, false, inodes.ledger.closing(0, 7));
    inodes.forget(7, true);
    assert_eq!(open(&inodes, 7, None), served(false));
}

#[test]
fn a_revoked_backing_file_goes_with_the_last_close() {
    let inodes = inodes(KEPT_MAX);
    open(&inodes, 7, Some(1));
    assert_eq!(closed(&inodes, inodes.revoke(7)), None);
    assert_eq!(open(&inodes, 7, Some(2)), through(1), "the kernel allows one backing file at a time");
    assert_eq!(closed(&inodes, release(&inodes, 7)), None);
    assert_eq!(closed(&inodes, release(&inodes, 7)), Some(BackingId(1)));
    open(&inodes, 7, Some(3));
    closed(&inodes, release(&inodes, 7));
    assert_eq!(closed(&inodes, inodes.revoke(7)), Some(BackingId(3)));
}

#[test]
fn content_asked_for_before_a_revocation_is_not_kept_after_it() {
    let inodes = inodes(KEPT_MAX);
    let Start::Ask(asked) = start(&inodes, 7) else { panic!("nothing is kept yet") };
    closed(&inodes, inodes.revoke(7));
    assert_eq!(settle(&inodes, 7, asked, Some(file(1))), through(1));
    assert_eq!(closed(&inodes, release(&inodes, 7)), Some(BackingId(1)));
}

#[test]
fn an_open_file_is_not_forgotten() {
    let inodes = inodes(KEPT_MAX);
    open(&inodes, 7, Some(1));
    assert_eq!(closed(&inodes, inodes.forget(7, false)), None);
    closed(&inodes, release(&inodes, 7));
    assert_eq!(closed(&inodes, inodes.forget(7, false)), Some(BackingId(1)));
    assert_eq!(closed(&inodes, inodes.forget(7, false)), None);
}

#[test]
fn what_the_kernel_forgets_for_want_of_memory_is_kept_for_the_next_epoch_unless_its_name_has_gone() {
    let inodes = inodes(KEPT_MAX);
    for node in [7, 8, 9] {
        open(&inodes, node, Some(node as u32));
    }
    assert_eq!([7, 8].map(|node| release(&inodes, node)), [None, None]);
    assert_eq!(closed(&inodes, inodes.forget(7, true)), None);
    assert_eq!(open(&inodes, 7, Some(1)), through(7), "nothing is opened anew");
    closed(&inodes, release(&inodes, 7));
    assert_eq!(closed(&inodes, inodes.unlisted(|node| node == 7)), Some(BackingId(8)), "9 is open");
    closed(&inodes, release(&inodes, 9));
    assert_eq!(closed(&inodes, inodes.forget(9, false)), Some(BackingId(9)));
}

#[test]
fn the_file_not_opened_again_gives_way() {
    let inodes = inodes(2 * SHARDS);
    let node = |index: u64| index * SHARDS as u64;
    for index in [1, 2] {
        open(&inodes, node(index), Some(index as u32));
        closed(&inodes, release(&inodes, node(index)));
    }
    open(&inodes, node(1), None);
    closed(&inodes, release(&inodes, node(1)));
    let third = open(&inodes, node(3), Some(3));
    assert_eq!((third.way, closed(&inodes, third.close)), (Way::Through(BackingId(3)), Some(BackingId(2))));
}

#[test]
fn when_all_kept_files_are_open_a_further_one_is_not_kept() {
    let inodes = inodes(SHARDS);
    let node = |index: u64| index * SHARDS as u64;
    open(&inodes, node(1), Some(1));
    assert_eq!(open(&inodes, node(2), Some(2)), through(2));
    assert_eq!(closed(&inodes, release(&inodes, node(2))), Some(BackingId(2)));
}

/// What the kernel holds for one inode.
#[derive(Default)]
struct Kernel {
    through: Vec<BackingId>,
    served: usize,
}

proptest! {
    #[test]
    fn whatever_happens_ways_never_mix_and_each_backing_file_is_closed_once(
        steps in proptest::collection::vec((1_u64..4, 0_u8..7), 1..300)
    ) {
        let inodes = inodes(SHARDS);
        let mut kernel: HashMap<u64, Kernel> = HashMap::new();
        let (mut next, mut registered) = (0, HashSet::new());
        for (node, step) in steps {
            let node = node * SHARDS as u64;
            let inode = kernel.entry(node).or_default();
            let close = match step {
                0 | 1 => {
                    next += u32::from(step);
                    let before = start(&inodes, node);
                    let settled = match before {
                        Start::Through(id) => Settled { way: Way::Through(id), close: None },
                        Start::Ask(asked) => {
                            let offer = (step == 1 && !asked.served).then_some(BackingId(next));
                            registered.extend(offer);
                            settle(&inodes, node, asked, offer.map(|BackingId(id)| file(id)))
                        }
                    };
                    match settled.way {
                        Way::Through(id) => {
                            prop_assert!(registered.contains(&id), "closed before it was used");
                            prop_assert!(inode.through.iter().all(|&other| other == id));
                            inode.through.push(id);
                        }
                        Way::Served { .. } => inode.served += 1,
                    }
                    prop_assert!(inode.served == 0 || inode.through.is_empty(), "ways mixed");
                    settled.close
                }
                2 if inode.through.pop().is_some() => release(&inodes, node),
                3 if inode.served > 0 => {
                    inode.served -= 1;
                    inodes.release_served(node, false, inodes.ledger.closing(0, node));
                    None
                }
                4 => inodes.forget(node, false),
                6 => inodes.forget(node, true),
                5 => inodes.revoke(node),
                _ => None,
            };
            if let Some(id) = closed(&inodes, close) {
                prop_assert!(registered.remove(&id), "closed twice");
                prop_assert!(kernel.values().all(|inode| !inode.through.contains(&id)), "closed while open");
            }
            let kept: usize = inodes.shards.iter().map(|shard| shard.lock().expect("no panic").kept.len()).sum();
            prop_assert!(kept <= 1);
            let told: BTreeMap<_, _> = inodes.ledger.entries().filter(|entry| entry.opens > 0).map(|entry| {
                (entry.node, (entry.backing, entry.opens as usize))
            }).collect();
            let open: BTreeMap<_, _> = kernel.iter().filter_map(|(node, inode)| {
                let opens = inode.through.len() + inode.served;
                (opens > 0).then(|| (*node, (inode.through.first().copied(), opens)))
            }).collect();
            prop_assert_eq!(told, open, "the ledger says what is open");
        }
    }
}

#[test]
fn where_no_backing_file_gives_its_bytes_none_is_kept_beyond_the_opens_that_are_alive() {
    let inodes = inodes(KEPT_MAX);
    for (node, id) in [(7, 1), (8, 2), (9, 3)] {
        assert_eq!(open(&inodes, node, Some(id)), through(id));
    }
    assert_eq!(closed(&inodes, release(&inodes, 7)), None);
    let Start::Ask(asked) = start(&inodes, 10) else { panic!("nothing is known of it") };
    assert_eq!(closed(&inodes, inodes.revoke_all()), Some(BackingId(1)));
    assert!(matches!(start(&inodes, 7), Start::Ask(Asked { served: false, .. })));
    assert_eq!(open(&inodes, 8, None), through(2), "of those the kernel takes no other way");
    let twice = [(); 2].map(|()| closed(&inodes, release(&inodes, 8)));
    assert_eq!(twice, [None, Some(BackingId(2))]);
    assert_eq!(settle(&inodes, 10, asked, Some(file(4))).way, Way::Through(BackingId(4)));
    assert_eq!(closed(&inodes, release(&inodes, 10)), Some(BackingId(4)), "what was asked for before is not kept");
    assert_eq!(closed(&inodes, inodes.revoke_all()), None);
}
