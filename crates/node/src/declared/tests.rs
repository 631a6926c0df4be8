//! Orders as plain numbers: opens in, what is asked for out.

use super::*;

/// Ask for all that may be; the nodes, in order.
fn ask_all(orders: &mut Orders, asked_max: u64, now: Instant) -> Vec<u64> {
    let mut asked = Vec::new();
    while let Some(next) = orders.next(asked_max, now) {
        orders.asked(&next, 10, 10);
        asked.push(next.node);
    }
    asked
}

#[test]
fn files_are_asked_for_in_their_order_as_far_as_there_is_room_and_further_as_they_are_opened() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    orders.begin("a", Source::Declared, vec![5, 3, 9, 3, 7], false, now);
    assert_eq!(ask_all(&mut orders, 25, now), [5, 3, 9]);
    orders.opened(3, 0, now);
    assert_eq!(ask_all(&mut orders, 25, now), [3], "the second time that it is to be opened");
    assert!(orders.all()[0].left() == 5 && orders.all()[0].opened == 1, "the first one is still to come");
    orders.opened(5, 0, now);
    orders.opened(9, 0, now);
    assert_eq!((ask_all(&mut orders, 25, now), orders.all()[0].left()), (vec![7], 2));
    orders.opened(3, 0, now);
    orders.opened(7, 0, now);
    let order = &orders.all()[0];
    assert_eq!((order.left(), order.opened, order.skipped, order.asked_bytes, order.places.len()), (0, 5, 0, 0, 0));
    assert_eq!(orders.next(25, now), None);
}

#[test]
fn of_several_orders_the_one_that_is_read_faster_is_asked_for_further() {
    let (mut orders, mut now) = (Orders::default(), Instant::now());
    orders.begin("fast", Source::Declared, (0..10_000).collect(), false, now);
    orders.begin("slow", Source::Declared, (10_000..20_000).collect(), false, now);
    ask_all(&mut orders, 2_000, now);
    for step in 0..400 {
        now += Duration::from_millis(10);
        orders.opened(step, 0, now);
        if step % 4 == 0 {
            orders.opened(10_000 + step / 4, 0, now);
        }
        ask_all(&mut orders, 2_000, now);
    }
    let [fast, slow] = orders.all() else { panic!("two") };
    assert_eq!(fast.asked_bytes + slow.asked_bytes, 2_000);
    let share = fast.asked_bytes as f64 / slow.asked_bytes as f64;
    assert!((3.0..5.0).contains(&share), "four times as fast, and asked for {share} times as far");
    let due = orders.next(u64::MAX, now).expect("more").due - now;
    assert!((1.0..2.0).contains(&due.as_secs_f64()), "1,600 bytes at 1,000 a second: {due:?}");
}

#[test]
fn an_order_that_nobody_follows_rests_until_somebody_does() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    orders.begin("wrong", Source::Declared, (0..1_000).collect(), false, now);
    orders.begin("right", Source::Declared, (5_000..5_200).collect(), false, now);
    ask_all(&mut orders, 100, now);
    for number in 0..200 {
        orders.opened(5_000 + number, 0, now);
        ask_all(&mut orders, 100, now);
    }
    assert!(!orders.all()[0].rests(), "what others read as they said says little of this one");
    (0..STRAYS_MAX.into()).for_each(|number| _ = orders.opened(9_000 + number, 0, now));
    assert!(orders.all().iter().all(Order::rests) && orders.next(u64::MAX, now).is_none());
    assert!(!orders.take_let_go().is_empty() && orders.all()[0].asked_bytes == 0);
    // Another one has all the room.
    orders.begin("new", Source::Declared, (20_000..20_100).collect(), false, now);
    assert_eq!(ask_all(&mut orders, 100, now).len(), 10);
    orders.opened(2, 0, now);
    assert!(!orders.all()[0].rests() && orders.next(u64::MAX, now).is_some());
}

#[test]
fn files_that_are_left_out_are_passed_and_readers_may_be_ahead_of_whoever_asks() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    orders.begin("a", Source::Declared, (0..10_000).collect(), true, now);
    assert_eq!(orders.runs_out(), Some(1));
    ask_all(&mut orders, 50_000, now);
    (0..4_000).filter(|node| node % 2 == 0).for_each(|node| _ = orders.opened(node, 0, now));
    let order = &orders.all()[0];
    let passed = 3_998 - OUT_OF_ORDER as u64 + 1;
    assert_eq!((order.opened, order.left(), order.skipped), (2_000, 10_000 - passed, passed / 2));
    // Behind all that was asked for.
    (4_000..5_000).for_each(|node| _ = orders.opened(node, 0, now));
    orders.opened(5_500, 0, now);
    orders.opened(5_499, 0, now);
    assert_eq!((orders.all()[0].opened, orders.next(u64::MAX, now).map(|next| next.node)), (3_002, Some(5_501)));
    assert!(orders.go_on(1, (0..20_000).collect(), false) && !orders.go_on(2, Vec::new(), false));
    assert_eq!(orders.runs_out(), None);
    assert!(orders.forget("a") && !orders.forget("a") && !orders.has(1));
}

#[test]
fn readers_of_the_same_files_don_t_drive_each_other_s_orders_nor_does_a_file_that_is_opened_again() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    // Two ranks that change halves with each epoch, on a disk that has all: nothing is asked for.
    let half = |number: u64| number % 2 * 2_000..number % 2 * 2_000 + 2_000;
    let epochs = |first: u64| (0..4).flat_map(move |epoch| half(first + epoch));
    orders.begin("rank 0", Source::Declared, epochs(0).collect(), false, now);
    orders.begin("rank 1", Source::Declared, epochs(1).collect(), false, now);
    while let Some(next) = orders.next(u64::MAX, now) {
        orders.asked(&next, 10, 0);
    }
    for (zero, one) in epochs(0).zip(epochs(1)).take(3_000) {
        orders.opened(one, 0, now);
        orders.opened(zero, 0, now);
        // It is validated, or tried again.
        orders.opened(zero, 0, now);
    }
    for order in orders.all() {
        assert_eq!((order.opened, order.skipped, order.left()), (3_000, 0, 5_000), "{}", order.name);
    }
}

#[test]
fn an_order_that_takes_the_place_of_another_is_not_given_its_files() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    orders.begin("a", Source::Declared, vec![1, 2], false, now);
    let next = orders.next(100, now).expect("the first");
    orders.begin("a", Source::Declared, vec![3, 4], false, now);
    orders.asked(&next, 10, 10);
    orders.opened(1, 0, now);
    assert_eq!((orders.all()[0].opened, ask_all(&mut orders, 100, now)), (0, vec![3, 4]));
}

#[test]
fn of_an_epoch_that_is_only_thought_to_come_nothing_is_asked_for_before_it_begins_so() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    let id = orders.begin("guessed", Source::Formula, (0..100).collect(), true, now);
    assert!(orders.runs_out() == Some(id) && orders.go_on(id, (0..100).rev().collect(), true));
    assert_eq!(orders.runs_out(), None, "one at a time");
    assert_eq!(ask_all(&mut orders, u64::MAX, now).len(), 100);
    (0..100).for_each(|node| _ = orders.opened(node, 0, now));
    assert!(ask_all(&mut orders, u64::MAX, now).is_empty());
    (97..100).rev().for_each(|node| _ = orders.opened(node, 0, now));
    assert!(ask_all(&mut orders, u64::MAX, now).is_empty());
    orders.opened(96, 0, now);
    assert_eq!(ask_all(&mut orders, u64::MAX, now).len(), 96);
    assert_eq!((orders.all()[0].opened, orders.runs_out()), (104, Some(id)));
}

#[test]
fn an_order_that_was_found_out_is_left_alone_after_a_few_misses_and_forgotten_for_another() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    orders.begin("guessed", Source::Repeat, (0..100).collect(), false, now);
    orders.begin("said", Source::Peeked, (200..300).collect(), false, now);
    ask_all(&mut orders, u64::MAX, now);
    orders.opened(200, 0, now);
    for number in 0..u64::from(STRAYS_UNPROVEN_MAX) {
        assert!(!orders.all()[0].rests() && !orders.opened(9_000 + number, 0, now));
    }
    assert_eq!(
        orders.all().iter().map(|order| (order.rests(), order.misses)).collect::<Vec<_>>(),
        [(true, 16), (false, 16)]
    );
    orders.opened(9_999, 0, now);
    assert_eq!(orders.all()[0].misses, 16, "nobody follows it");
    orders.forget_unfollowed();
    assert_eq!(orders.all().iter().map(|order| &*order.name).collect::<Vec<_>>(), ["said"]);
    assert_eq!(orders.take_let_go().len(), 100);
}

#[test]
fn what_was_read_before_an_order_was_known_is_behind_it() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    let id = orders.begin("guessed", Source::Formula, (0..10_000).collect(), false, now);
    orders.read(id, &(0..3_000).map(|number| number / 4 * 4 + 3 - number % 4).collect::<Vec<_>>(), now);
    let order = &orders.all()[0];
    assert_eq!((order.opened, order.left(), order.skipped), (3_000, 7_000, 0));
    assert_eq!(orders.next(u64::MAX, now).map(|next| next.node), Some(3_000));
}

#[test]
fn an_order_is_forgotten_with_its_process_and_all_that_open_by_it_and_others_after_a_day() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    let process = Process::of(std::process::id()).expect("this one");
    let names = |orders: &Orders| orders.all().iter().map(|order| order.name.clone()).collect::<Vec<_>>();
    for (name, files) in [("a", 0..10), ("b", 10..20)] {
        let id = orders.begin(name, Source::Declared, files.collect(), false, now);
        orders.belongs(id, process);
    }
    orders.begin("nobody's", Source::Declared, (20..30).collect(), false, now);
    assert_eq!(ask_all(&mut orders, 1_000, now).len(), 30);
    orders.opened(0, 7, now);
    assert!(!orders.forget_left(now, |_| true, |_| false), "its process is there");
    assert!(orders.forget_left(now, |_| false, |thread| thread == 7), "one of its workers reads on");
    assert_eq!(names(&orders), ["a", "nobody's"]);
    assert_eq!(orders.take_let_go(), (10..20).collect::<Vec<_>>(), "what was asked for in vain");
    assert!(orders.forget_left(now, |_| false, |_| false));
    assert_eq!((names(&orders), orders.take_let_go().len()), (vec!["nobody's".to_owned()], 9));
    let later = now + FORGOTTEN_AFTER / 2;
    orders.opened(20, 0, later);
    assert!(!orders.forget_left(now + FORGOTTEN_AFTER, |_| true, |_| true), "it was followed half a day ago");
    assert!(orders.forget_left(later + FORGOTTEN_AFTER, |_| true, |_| true) && orders.all().is_empty());
}

#[test]
fn for_another_order_that_gives_way_which_nobody_has_followed_for_longest() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    for (name, node) in [("a", 1), ("b", 2), ("c", 3)] {
        orders.begin(name, Source::Declared, vec![node, 10 + node], false, now);
    }
    ask_all(&mut orders, 1_000, now);
    let later = now + GIVES_WAY_AFTER;
    orders.opened(1, 0, later);
    assert!(!orders.give_way(later - Duration::from_secs(1)), "all may yet be followed");
    assert!(orders.give_way(later) && orders.give_way(later) && !orders.give_way(later));
    assert_eq!(orders.all()[0].name, "a");
    let threads = 1..=2 * OPENERS_MAX as u32;
    threads.for_each(|thread| orders.all[0].is_followed_by(thread, later));
    assert_eq!(orders.all[0].openers.len(), OPENERS_MAX);
}
