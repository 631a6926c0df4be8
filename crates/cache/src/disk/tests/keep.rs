//! What is kept, and by whom it was compared before it is called complete.

use super::trust::{Moody, large, moody, run};
use super::*;
use block::{Block, Proof};
use rustix::io::Errno;

/// Two readers of the whole at once, who take turns to be first: each keeps half of it.
async fn two_flows(disk: &Disk, object: &Arc<Object>) {
    let mut flows = [0; 2].map(|_| disk.fetch(object.whole().expect("one run")));
    for index in 0..=object.blocks() {
        let order = if index % 2 == 0 { [0, 1] } else { [1, 0] };
        for flow in order {
            assert!(flows[flow].next().await.is_none_or(|got| got.is_ok()));
        }
    }
}

#[tokio::test]
async fn what_two_flows_kept_is_compared_with_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(2);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    two_flows(&disk, &object).await;
    complete(&disk, &object).await;
    assert_eq!(store.sums.load(Relaxed), 1, "neither answer is all of what lies there");
}

#[tokio::test]
async fn a_block_that_one_flow_could_not_write_and_another_did_is_compared_with_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(2);
    let medium = Moody::new();
    let disk = moody(&store, folder.path(), 1, &medium, PLENTY);
    let mut first = disk.fetch(object.whole().expect("one run"));
    assert!(first.next().await.is_some_and(|got| got.is_ok()));
    medium.write_fails.lock().expect("errnos").push_back(Errno::ACCESS.raw_os_error());
    assert!(first.next().await.is_some_and(|got| got.is_ok()), "served all the same");
    run(&disk, &object, 0..1).await;
    assert!(first.all(|got| std::future::ready(got.is_ok())).await);
    complete(&disk, &object).await;
    assert_eq!(store.sums.load(Relaxed), 1);
}

#[tokio::test]
async fn one_answer_that_was_kept_whole_is_compared_on_the_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(2);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    run(&disk, &object, 0..8).await;
    complete(&disk, &object).await;
    assert_eq!(store.sums.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_turns_out_full_is_left_alone_for_a_while() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut store, medium) = (Store::default(), Moody::new());
    let [small, other] = ["a", "b"].map(|key| store.below.add(key, content(1, 1_000)));
    let large = store.below.add("c", content(2, 2 * SMALL));
    let disk = moody(&Arc::new(store), folder.path(), 1, &medium, PLENTY);
    for object in [&small, &large] {
        medium.write_fails.lock().expect("errnos").push_back(Errno::NOSPC.raw_os_error());
        let got: Vec<_> = disk.fetch(object.whole().expect("one run")).collect().await;
        assert!(!got[0].as_ref().expect("served all the same").is_kept());
        assert!(medium.write_fails.lock().expect("errnos").is_empty(), "it was tried");
        // Nothing is written until somebody looked again.
        run(&disk, &other, 0..1).await;
        assert!(!disk.is_complete(&other), "after {object}");
        assert!(disk.usage().0.bytes <= large.size, "{:?}", disk.usage().0);
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
    }
    run(&disk, &other, 0..1).await;
    assert!(disk.is_complete(&other), "there is room again");
}

#[tokio::test]
async fn a_whole_that_is_wrong_is_reported_to_those_who_opened_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(2);
    store.checksums.lock().expect("checksums").insert(object.key.clone(), Checksum::Crc64Nvme(1));
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    let drops = Arc::new(AtomicU64::new(0));
    let counter = drops.clone();
    disk.tell_dropped(move |_| _ = counter.fetch_add(1, Relaxed));
    run(&disk, &object, 2..3).await;
    let all: Vec<_> = disk.fetch(object.whole().expect("one run")).collect().await;
    assert!(all.last().is_some_and(|end| end.is_err()));
    assert_eq!(drops.load(Relaxed), 1);
}

#[tokio::test]
async fn a_half_file_that_rots_before_it_is_compared_is_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(2);
    // A checksum that does not combine: every block is read again for it.
    let mut digest = Checksum::Crc32C(0).digest();
    digest.update(&bytes);
    let checksum = Checksum::Crc32C(digest.value() as u32);
    store.checksums.lock().expect("checksums").insert(object.key.clone(), checksum);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    run(&disk, &object, 0..4).await;
    flip(&path(folder.path(), &object), 5);
    run(&disk, &object, 4..8).await;
    assert_eq!(disk.usage().0.bytes, 0, "its log would vouch for it after a restart");
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
}

#[tokio::test]
async fn a_stripe_gives_no_bytes_of_others() {
    const STRIPE: u64 = 16 * SMALL;
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(40);
    let limits = Limits { bytes: 3 * STRIPE, ..PLENTY };
    let disk = moody(&store, folder.path(), 1, &Moody::new(), limits);
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    let second = Segment::stripe(&object, 64);
    let found = disk.index().known(&second);
    let Found::Complete(held) = found else { panic!("the second stripe is here") };
    let stripe = disk.open(held).expect("opened").expect("it is here");
    let at = |offset: u64| stripe.read(offset, 10).expect("verified").to_vec();
    for offset in [0, 5, STRIPE - 10, STRIPE - 1, 2 * STRIPE, 2 * STRIPE + 1, u64::MAX] {
        assert!(at(offset).is_empty(), "byte {offset} lies in another one");
    }
    for offset in [STRIPE, 2 * STRIPE - 10] {
        assert_eq!(at(offset), bytes[offset as usize..offset as usize + 10]);
    }
    assert_eq!(at(2 * STRIPE - 3).len(), 3);
}

#[tokio::test]
async fn what_is_not_here_whole_is_not_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(40);
    let limits = Limits { bytes: 48 * SMALL, ..PLENTY };
    let disk = moody(&store, folder.path(), 1, &Moody::new(), limits);
    assert!(!disk.verify(&object, Door::NONE).await.expect("compared"), "nothing is here");
    run(&disk, &object, 0..64).await;
    assert!(!disk.verify(&object, Door::NONE).await.expect("compared"), "one stripe of three is here");
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    assert!(disk.verify(&object, Door::NONE).await.expect("compared"));
}

#[tokio::test]
async fn what_the_log_must_keep_is_counted_and_goes_with_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(2);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    let live = || disk.index().live_bytes;
    let empty = live();
    run(&disk, &object, 0..4).await;
    let half = live();
    run(&disk, &object, 4..8).await;
    let whole = live();
    assert!(empty < half && empty < whole, "{empty}, {half}, {whole}");
    let residency = complete(&disk, &object).await.residency;
    disk.index().drop_segment(residency, &object);
    assert_eq!(live(), empty, "nothing of it has to be kept");
    run(&disk, &object, 0..4).await;
    assert_eq!(live(), half);
    let found = disk.index().known(&Segment::whole(&object));
    let Found::Filling(filling) = found else { panic!("it is here in part") };
    disk.index().drop_segment(filling.residency, &object);
    assert_eq!(live(), empty);
    run(&disk, &object, 0..4).await;
    drop(disk);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    assert_eq!(disk.index().live_bytes, half, "after a restart");
    run(&disk, &object, 4..8).await;
    let residency = complete(&disk, &object).await.residency;
    assert_eq!(disk.index().live_bytes, whole);
    disk.index().drop_segment(residency, &object);
    assert_eq!(disk.index().live_bytes, empty);
}

#[tokio::test]
async fn the_log_stays_near_what_it_tells_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, medium) = (Arc::new(Store::default()), Moody::new());
    let _ = medium.before_read.set(Arc::new(Box::new(|_| {})));
    let disk = moody(&store, folder.path(), 1, &medium, PLENTY);
    let name = "a name that is long ".repeat(1_500);
    for n in 0..1_300u32 {
        let object = Arc::new(Object { store: "m".into(), key: format!("{name}{n}"), version: "1".into(), size: 10 });
        let block =
            Block::verified(Address { object: object.clone(), index: 0 }, vec![vec![7; 10].into()], Proof::Store);
        let mut index = disk.index();
        let segment = Segment::whole(&object);
        let residency = index.admit(&segment, 10, Class::Owned).expect("there is room");
        drop(index);
        assert!(disk.keep_small(&segment, residency, &block.expect("a block"), vec![7]));
        disk.index().drop_segment(residency, &object);
    }
    let length = || std::fs::metadata(folder.path().join("index")).expect("the log").len();
    // On a thread of its own, since such a disk takes its time.
    for _ in 0..2_000 {
        if length() < 16 << 20 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{} bytes of log tell of nothing", length());
}

#[tokio::test]
async fn blocks_that_are_here_are_sent_from_their_file_also_while_others_are_missing() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(40);
    let of = |start, end| Run::new(object.clone(), start..end);
    let is_right = |lying: Lying, run: Run| {
        let file = std::fs::File::from(lying.descriptor().expect("a real file").try_clone_to_owned().expect("a copy"));
        for address in run.addresses() {
            let mut got = vec![0; address.len()];
            file.read_exact_at(&mut got, lying.place(&address)).expect("all of it");
            let range = address.range();
            assert!(got == bytes[range.start as usize..range.end as usize]);
            assert_eq!(lying.sums(&address), block::sums(&[got.into()]));
        }
    };
    for limits in [PLENTY, Limits { bytes: 48 * SMALL, ..PLENTY }] {
        let disk = moody(&store, &folder.path().join(limits.bytes.to_string()), 1, &Moody::new(), limits);
        assert!(disk.open_file(&of(64, 100)).is_none());
        run(&disk, &object, 64..100).await;
        for (start, end) in [(64, 100), (99, 100)] {
            is_right(disk.open_file(&of(start, end)).expect("all are here"), of(start, end));
        }
        assert!(disk.open_file(&of(64, 101)).is_none() && disk.open_file(&of(63, 64)).is_none());
    }
}

/// Sends the last block of each run as wrong, as a store does whose whole answer does not match its checksum.
struct WrongAtTheEnd(Fixed);

impl Source for WrongAtTheEnd {
    fn fetch(&self, run: Run) -> Blocks {
        let (object, last) = (run.object.clone(), run.blocks.end - run.blocks.start);
        let blocks = self.0.fetch(run).enumerate().map(move |(nth, got)| {
            if nth + 1 == last as usize { Err(Error::corrupt("another checksum", &object)) } else { got }
        });
        blocks.boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}

#[tokio::test]
async fn what_an_answer_brought_before_it_was_found_wrong_is_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Fixed::default();
    let object = store.add("a", content(1, 2 * SMALL));
    let settings = settings(folder.path(), PLENTY, 1);
    let disk = Disk::over(Arc::new(WrongAtTheEnd(store)), settings, tokio::runtime::Handle::current()).expect("a tier");
    let got: Vec<_> = disk.fetch(object.whole().expect("one run")).collect().await;
    assert!(got.len() as u32 == object.blocks() && got.last().is_some_and(|end| end.is_err()));
    assert_eq!(disk.usage().0.bytes, 0, "any block of it may be the wrong one");
}

#[tokio::test]
async fn what_goes_on_aside_goes_on_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = disk(&Arc::default(), folder.path(), 1);
    let begin = || Alone::begin(&disk, |parts| &parts.is_compacting);
    let first = begin();
    assert!(first.is_some() && begin().is_none());
    drop(first);
    assert!(begin().is_some(), "the next one, after the first has ended");
}

/// Whoever answers for other members gives blocks that nobody compared as a whole yet; so may an elder, below what is owned.
#[tokio::test(flavor = "multi_thread")]
async fn what_other_members_give_is_called_complete_only_if_the_whole_agrees() {
    for is_copy in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = Store::default();
        let object = store.below.add("large", content(3, 3 * SMALL));
        store.checksums.lock().expect("checksums").insert(object.key.clone(), Checksum::Crc64Nvme(1));
        let below: Arc<dyn Source> = Arc::new(Elsewhere(Arc::new(store)));
        let disk = moody(&Arc::new(Store::default()), folder.path(), 1, &Moody::new(), PLENTY);
        let disk = if is_copy {
            disk.of_copies(below)
        } else {
            Disk(disk.0.clone(), Below { source: below, ..disk.1.clone() })
        };
        let got: Vec<_> = disk.fetch(Run::new(object.clone(), 0..object.blocks())).collect().await;
        assert!(got.last().is_some_and(Result::is_err), "who reads hears of it");
        assert!(!disk.is_complete(&object) && disk.held_bytes(&object) == 0);
    }
}

/// Gives what it has as another member does.
struct Elsewhere(Arc<Store>);

impl Source for Elsewhere {
    fn fetch(&self, run: Run) -> Blocks {
        let as_a_member = |got: Result<Block>| {
            got.and_then(|block| Block::verified(block.address.clone(), block.pieces().to_vec(), block::Proof::Peer))
        };
        self.0.fetch(run).map(as_a_member).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}
