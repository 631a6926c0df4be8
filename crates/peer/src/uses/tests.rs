//! What is told of uses, to whom, and once.

use super::*;
use crate::{Figures, Roster, Seat, Twin};
use block::{ONE_STRIPE_BYTES_MAX, STRIPE_BLOCKS};
use proptest::prelude::*;
use tokio::sync::watch;

fn opened(object: u128, size: u64) -> Use {
    Use { object: ObjectId(object), size, set_bytes: 1 << 40, is_new: true }
}

#[test]
fn uses_arrive_as_they_were_told() {
    let uses: Vec<Use> = (0..USES_MAX as u128)
        .map(|n| Use { is_new: n % 2 == 0, set_bytes: u64::MAX - n as u64, ..opened(u128::MAX - n, 1 + n as u64) })
        .collect();
    for is_passed_on in [false, true] {
        let told = encode_uses(&uses, is_passed_on);
        assert!(told.len() <= crate::wire::REQUEST_BYTES_MAX as usize);
        assert_eq!(decode_uses(&told), Some((uses.clone(), is_passed_on)));
    }
    assert_eq!(decode_uses(&encode_uses(&[], false)), Some((Vec::new(), false)));
}

#[test]
fn what_nobody_would_say_is_not_understood() {
    let told = encode_uses(&[opened(7, 9), opened(8, 1 << 49)], false);
    assert!(decode_uses(&told).is_some() && decode_uses(&told[..told.len() - 1]).is_none());
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = told.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        decode_uses(&bytes).is_some()
    };
    assert!(changed(0, &[1]) && !changed(0, &[2]), "passed on or not");
    assert!(changed(1, &[0]) && !changed(1, &[2]), "new or not");
    assert!(!changed(18, &[0; 8]), "an empty object is never asked for");
    assert!(!changed(18, &[255; 8]), "no object is as large");
    let many = vec![opened(1, 1); USES_MAX + 1];
    assert_eq!(decode_uses(&encode_uses(&many, false)), None);
    assert_eq!(decode_uses(&[]), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic_and_lead_to_bounded_work(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some((uses, _)) = decode_uses(&bytes) {
            prop_assert!(uses.len() <= bytes.len() / USE);
            prop_assert!(uses.iter().all(|used| blocks_of(used.size).is_some_and(|blocks| blocks > 0)));
        }
    }

    #[test]
    fn a_use_that_was_changed_is_another_or_none(at in 0usize..67, with in any::<u8>()) {
        let mut bytes = encode_uses(&[opened(7, 9), opened(8, 1 << 49)], true);
        bytes[at] = with;
        if let Some((uses, _)) = decode_uses(&bytes) {
            prop_assert_eq!(uses.len(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_size_that_is_a_lie_leads_to_no_more_work_than_a_large_object() {
    let cluster = Cluster::of(2);
    let lie = Use { object: ObjectId(7), size: 1 << 49, set_bytes: SET, is_new: true };
    let counts: Vec<Count> = (0..2).map(|member| cluster.lines[member].heard(lie, false)).collect();
    assert_eq!(counts.iter().map(|count| count.parts.len()).sum::<usize>(), STRIPES_COUNTED_MAX);
}

#[tokio::test(start_paused = true)]
async fn the_uses_of_one_request_lead_to_bounded_work_together_and_honest_ones_are_all_counted() {
    let cluster = Cluster::of(2);
    let uses = |count: usize, size| -> Vec<Use> {
        (0..count as u128).map(|n| Use { object: ObjectId(n), size, set_bytes: SET, is_new: true }).collect()
    };
    let parts = |uses: Vec<Use>| {
        let counts = (0..2).flat_map(|member| cluster.lines[member].heard_all(uses.clone(), false));
        counts.filter(|count| count.is_own).map(|count| count.parts.len()).sum::<usize>()
    };
    assert_eq!(parts(uses(USES_MAX, 1 << 49)), STRIPES_HEARD_MAX, "the sizes are lies");
    let mut mixed = uses(9, 1 << 49);
    mixed.extend(uses(100, 1000).iter().map(|used| Use { object: ObjectId(used.object.0 + 1000), ..*used }));
    assert_eq!(parts(mixed), STRIPES_HEARD_MAX, "there is no room for more");
    for size in [1000, 128 << 20] {
        let counted = cluster.lines[0].heard_all(uses(USES_MAX, size), false).len();
        assert_eq!(counted, USES_MAX, "objects of {size} bytes");
    }
    assert_eq!(cluster.lines[0].heard_all(uses(USES_MAX, 1 << 49), true).len(), 8, "also of what is passed on");
}

/// Members that say nothing but this to each other, and what each was told to count.
struct Cluster {
    lines: Vec<Lines>,
    counted: Vec<Arc<Mutex<Vec<Count>>>>,
    servers: Vec<tokio::task::JoinHandle<()>>,
    twin: Twin,
}

/// Counts what it is told, and has nothing.
struct Counting(Arc<Mutex<Vec<Count>>>);

impl crate::Giver for Counting {
    fn fetch(&self, _run: block::Run) -> Option<block::Blocks> {
        None
    }

    fn shared(&self, _run: block::Run) -> Option<block::Blocks> {
        None
    }

    fn open(&self, _run: &block::Run) -> Option<Arc<dyn crate::Opened>> {
        None
    }

    fn given_bytes(&self) -> u64 {
        1 << 20
    }

    fn course(&self, _manner: crate::Manner) -> block::Course {
        block::Course::default()
    }

    fn held(&self, _run: block::Run) -> Option<block::Blocks> {
        None
    }

    fn lent(&self, _run: block::Run, _ticket: u64) -> Option<block::Blocks> {
        None
    }

    fn checksum(&self, _object: &Arc<block::Object>) -> Option<block::Waiting<Option<block::Checksum>>> {
        None
    }

    fn bring(&self, _address: block::Address, _manner: crate::Manner) -> Option<block::Waiting<crate::Brought>> {
        None
    }

    fn room(&self, _address: &block::Address, _asker: crate::For) -> crate::Room {
        crate::Room::Free
    }

    fn used(&self, uses: Vec<Count>) {
        self.0.lock().expect("nobody panicked").extend(uses);
    }

    fn stale_bytes(&self) -> u64 {
        0
    }

    fn room_bytes(&self) -> (u64, u64) {
        (0, 0)
    }

    fn names(&self, _set: u128) -> crate::Names {
        crate::Names::default()
    }

    fn piece(&self, _set: u128, _id: u128, _offset: u64) -> futures_util::future::BoxFuture<'static, bytes::Bytes> {
        Box::pin(std::future::ready(bytes::Bytes::new()))
    }

    fn news(&self, _set: u128) {}
}

impl Cluster {
    fn of(count: usize) -> Cluster {
        let seats: Vec<Seat> = (0..count).map(|n| Seat::new(format!("n{n}"), format!("n{n}:1"), 1)).collect();
        let mut cluster = Cluster { lines: vec![], counted: vec![], servers: vec![], twin: Twin::default() };
        for seat in &seats {
            let (_, roster) = watch::channel(Arc::new(Roster::of(seat.id, seats.clone())));
            let lines =
                Lines::new(roster, Arc::new(cluster.twin.clone()), Duration::MAX, tokio::runtime::Handle::current());
            let counted: Arc<Mutex<Vec<Count>>> = Arc::default();
            let (listener, giver) = (cluster.twin.listen(&seat.address), Arc::new(Counting(counted.clone())));
            cluster.servers.push(tokio::spawn(crate::serve(Box::new(listener), giver, lines.clone())));
            cluster.lines.push(lines);
            cluster.counted.push(counted);
        }
        cluster
    }

    /// What a member was told since this was asked, as objects and whether it owns them.
    fn told(&self, member: usize) -> Vec<(u128, bool)> {
        let counts = std::mem::take(&mut *self.counted[member].lock().expect("nobody panicked"));
        counts.iter().map(|count| (count.used.object.0, count.is_own)).collect()
    }

    /// The first object from here on that a member owns.
    fn owned_by(&self, member: usize, from: u128) -> u128 {
        let owner = |object| self.lines[0].roster().owner(&Stripe { object: ObjectId(object), index: 0 });
        (from..).find(|object| owner(*object) == Some(self.lines[member].roster().me())).expect("about a quarter")
    }

    fn figures(&self) -> Vec<Arc<Figures>> {
        self.lines.iter().map(|lines| lines.figures().clone()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.servers.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

const SET: u64 = 1 << 40;

#[tokio::test(start_paused = true)]
async fn owners_hear_of_opens_within_ten_seconds_and_once() {
    let cluster = Cluster::of(4);
    let objects: Vec<u128> = (0..4).map(|member| cluster.owned_by(member, 100)).collect();
    for (member, object) in objects.iter().enumerate() {
        let count = cluster.lines[1].opened(ObjectId(*object), 5, SET);
        assert_eq!(
            (count.is_own, count.parts, count.set_bytes),
            (member == 1, std::iter::once(0..1).collect(), SET / 4)
        );
    }
    tokio::time::sleep(TOLD_EVERY + Duration::from_secs(1)).await;
    for (member, object) in objects.iter().enumerate() {
        let told = if member == 1 { vec![] } else { vec![(*object, true)] };
        assert_eq!(cluster.told(member), told);
    }
    tokio::time::sleep(3 * TOLD_EVERY).await;
    assert!((0..4).all(|member| cluster.told(member).is_empty()), "nobody opened anything since");
    assert!(cluster.figures().iter().all(|figures| figures.broken.load(std::sync::atomic::Ordering::Relaxed) == 0));
}

#[tokio::test(start_paused = true)]
async fn an_open_that_a_request_tells_of_is_not_told_again() {
    let cluster = Cluster::of(2);
    let object = ObjectId(cluster.owned_by(0, 0));
    cluster.lines[1].opened(object, 5, SET);
    assert_eq!(cluster.lines[1].uses().take(object).map(|used| used.set_bytes), Some(SET));
    assert_eq!(cluster.lines[1].uses().take(object), None);
    tokio::time::sleep(2 * TOLD_EVERY).await;
    assert!(cluster.told(0).is_empty());
}

#[tokio::test(start_paused = true)]
async fn where_much_of_a_set_is_opened_owners_hear_of_it_soon_and_in_order() {
    let cluster = Cluster::of(2);
    let objects: Vec<u128> = (0..200).map(|n| cluster.owned_by(0, n * 50)).collect();
    for object in &objects {
        cluster.lines[1].opened(ObjectId(*object), 1_000, 400_000);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let told: Vec<u128> = cluster.told(0).into_iter().map(|(object, _)| object).collect();
    assert!(told.len() > 150 && told == objects[..told.len()], "{} of 200 in 2 s", told.len());
}

#[tokio::test(start_paused = true)]
async fn who_keeps_something_in_its_owner_s_stead_hears_of_its_opens_from_the_owner_and_tells_nobody() {
    let cluster = Cluster::of(3);
    let object = cluster.owned_by(0, 0);
    let stripe = Stripe { object: ObjectId(object), index: 0 };
    let keeper = cluster.lines[2].roster().me();
    cluster.lines[0].keeps(keeper, &[stripe]);
    cluster.lines[1].opened(ObjectId(object), 5, SET);
    let count = cluster.lines[0].opened(ObjectId(object), 5, SET);
    assert!(!count.is_own, "for the owner it is no reason to take it back");
    tokio::time::sleep(5 * TOLD_EVERY).await;
    assert!(cluster.told(0).iter().all(|(_, is_own)| !is_own));
    let told = cluster.told(2);
    assert!((1..=2).contains(&told.len()) && told.iter().all(|told| *told == (object, false)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_who_keep_the_same_the_first_does_unless_it_is_away() {
    for is_away in [false, true] {
        let cluster = Cluster::of(3);
        let (lines, [first, second]) = (&cluster.lines[0], [1, 2].map(|number| cluster.lines[number].roster().me()));
        let stripe = Stripe { object: ObjectId(cluster.owned_by(0, 0)), index: 0 };
        lines.keeps(first, &[stripe]);
        if is_away {
            let contact = lines.contact(&lines.roster(), first).expect("a member");
            contact.lost(&crate::link::Lost::Broken(block::Error::unavailable("no way", "n1")));
        }
        lines.keeps(second, &[stripe]);
        assert_eq!(lines.keeper_of(&stripe), Some(if is_away { second } else { first }));
        // Who need not keep it any more.
        let spared = tokio::time::timeout(Duration::from_secs(12), cluster.lines[2].spared()).await;
        assert_eq!(spared.is_ok(), !is_away, "away: {is_away}");
    }
}

#[tokio::test(start_paused = true)]
async fn opens_of_a_large_object_count_for_each_owner_of_its_stripes() {
    let cluster = Cluster::of(3);
    let size = 2 * ONE_STRIPE_BYTES_MAX + 1;
    let count = cluster.lines[1].opened(ObjectId(9), size, SET);
    tokio::time::sleep(2 * TOLD_EVERY).await;
    let mut parts = count.parts;
    for member in [0, 2] {
        let told = std::mem::take(&mut *cluster.counted[member].lock().expect("nobody panicked"));
        assert!(told.len() == 1 && told[0].is_own && told[0].parts.len() > 1);
        parts.extend(told[0].parts.clone());
    }
    parts.sort_unstable_by_key(|part| part.start);
    let stripes: Vec<_> = Stripe::all(ObjectId(9), size).map(|(_, blocks)| blocks).collect();
    assert!(parts == stripes && stripes.len() == 33 && stripes[0] == (0..STRIPE_BLOCKS), "each stripe once");
}

#[tokio::test(start_paused = true)]
async fn who_keeps_stripes_of_a_large_object_hears_that_their_owner_reads_it() {
    let cluster = Cluster::of(3);
    let (size, me) = (2 * ONE_STRIPE_BYTES_MAX, cluster.lines[0].roster().me());
    let stripes: Vec<_> = Stripe::all(ObjectId(9), size).map(|(stripe, _)| stripe).collect();
    let mine: Vec<_> =
        stripes.into_iter().filter(|stripe| cluster.lines[0].roster().owner(stripe) == Some(me)).collect();
    cluster.lines[0].keeps(cluster.lines[2].roster().me(), &mine);
    let reading = cluster.lines[0].reads(ObjectId(9), size);
    tokio::time::sleep(3 * TOLD_EVERY).await;
    let told = std::mem::take(&mut *cluster.counted[2].lock().expect("nobody panicked"));
    let all = 0..blocks_of(size).expect("a size");
    assert!(told.iter().any(|count| !count.used.is_new && count.parts == [all.clone()]), "{told:?}");
    drop(reading);
}

/// Where an owner is away, who stands in for it keeps what it reads by the same evidence.
#[tokio::test(start_paused = true)]
async fn who_stands_in_for_an_owner_that_is_away_hears_of_opens() {
    let cluster = Cluster::of(3);
    let roster = cluster.lines[1].roster();
    let line = |object: u128| roster.order(&Stripe { object: ObjectId(object), index: 0 });
    let seats = [0, 1, 2].map(|number: usize| cluster.lines[number].roster().me());
    let object = (0..).find(|object| line(*object) == [seats[0], seats[2], seats[1]]).expect("one of six");
    cluster.twin.cut("n0:1");
    // Until it is found out.
    tokio::time::sleep(2 * TOLD_EVERY).await;
    cluster.lines[1].opened(ObjectId(object), 5, SET);
    tokio::time::sleep(2 * TOLD_EVERY).await;
    assert_eq!(cluster.told(2), [(object, true)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_open_is_told_again_and_again_until_it_is_not() {
    let cluster = Cluster::of(2);
    let object = cluster.owned_by(0, 0);
    let reading = [(); 2].map(|()| cluster.lines[1].reads(ObjectId(object), 5).expect("room"));
    tokio::time::sleep(3 * TOLD_EVERY).await;
    let told = std::mem::take(&mut *cluster.counted[0].lock().expect("nobody panicked"));
    assert!((2..=3).contains(&told.len()) && told.iter().all(|count| !count.used.is_new), "{told:?}");
    drop(reading);
    tokio::time::sleep(TOLD_EVERY).await;
    cluster.told(0);
    tokio::time::sleep(3 * TOLD_EVERY).await;
    assert!(cluster.told(0).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_gathered_for_a_member_that_is_away_is_bounded_and_dropped() {
    let cluster = Cluster::of(2);
    cluster.servers[0].abort();
    cluster.twin.cut("n0:1");
    let lines = &cluster.lines[1];
    for object in 0..4 * UNTOLD_MAX as u128 {
        lines.opened(ObjectId(object), 5, u64::MAX);
    }
    assert_eq!(lines.uses().untold().opened.len(), UNTOLD_MAX);
    let open: Vec<_> = (0..2 * UNTOLD_MAX as u128).map(|object| lines.reads(ObjectId(object), 5)).collect();
    assert_eq!(open.iter().flatten().count(), UNTOLD_MAX);
    tokio::time::sleep(2 * TOLD_EVERY).await;
    let untold = lines.uses().untold();
    assert_eq!((untold.opened.len(), untold.bytes), (0, 0));
    drop(untold);
    drop(open);
    assert!(lines.uses().untold().open.is_empty());
}

/// Between two times that owners are told what is open, a refresh may come.
#[tokio::test(start_paused = true)]
async fn what_is_opened_and_stays_open_is_told_with_the_open() {
    let cluster = Cluster::of(2);
    let lines = &cluster.lines[1];
    tokio::time::sleep(TOLD_EVERY + Duration::from_secs(1)).await;
    let (object, closed) = (ObjectId(cluster.owned_by(0, 0)), ObjectId(cluster.owned_by(0, 1 << 60)));
    let reading = lines.reads(object, 5);
    drop(lines.reads(closed, 5));
    // As much of the set as is told soon.
    lines.opened(object, 5, 5);
    lines.opened(closed, 5, 5);
    tokio::time::sleep(3 * TOLD_AT_MOST_EVERY).await;
    let told = std::mem::take(&mut *cluster.counted[0].lock().expect("nobody panicked"));
    let told: Vec<_> = told.iter().map(|count| (count.used.object, count.used.is_new)).collect();
    assert_eq!(told, [(object, true), (closed, true), (object, false)]);
    drop(reading);
}

#[tokio::test]
async fn what_a_reader_waits_for_counts_as_open_where_it_is_asked() {
    let cluster = Cluster::of(1);
    let object = |blocks: u64| {
        let size = blocks * block::BLOCK;
        Arc::new(block::Object { store: "s".into(), key: "key".into(), version: "v".into(), size })
    };
    let wish = |blocks, is_urgent, opened| Wish {
        run: block::Run::new(object(blocks), (blocks as u32 - 1).min(1)..(blocks as u32).min(2)),
        manner: crate::Manner { is_urgent, opened, ..crate::Manner::default() },
    };
    let asked = |wish: &Wish| {
        let counts = cluster.lines[0].asked(wish);
        counts.into_iter().map(|count| (count.used.is_new, count.parts)).collect::<Vec<_>>()
    };
    let stripe = |blocks| std::iter::once(blocks).collect::<Vec<Range<u32>>>();
    assert_eq!(asked(&wish(20, true, None)), [(false, stripe(0..20))]);
    assert_eq!(asked(&wish(2000, true, None)), [(false, stripe(0..STRIPE_BLOCKS))], "of a large one what lies there");
    assert_eq!(asked(&wish(20, false, None)), [], "nobody waits for it");
    assert_eq!(asked(&wish(20, true, Some(5))), [(true, stripe(0..20)), (false, stripe(0..20))]);
    assert_eq!(asked(&wish(1, true, None)), [], "all of it comes at once");
}
