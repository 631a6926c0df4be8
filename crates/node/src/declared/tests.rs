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
    orders.begin("a", Source::Declared, vec![5, 3, 9, 3, 7], false);
    assert_eq!(ask_all(&mut orders, 25, now), [5, 3, 9]);
    orders.opened(3, now);
    assert_eq!(ask_all(&mut orders, 25, now), [3], "the second time that it is to be opened");
    assert!(orders.all()[0].left() == 5 && orders.all()[0].opened == 1, "the first one is still to come");
    orders.opened(5, now);
    orders.opened(9, now);
    assert_eq!((ask_all(&mut orders, 25, now), orders.all()[0].left()), (vec![7], 2));
    orders.opened(3, now);
    orders.opened(7, now);
    let order = &orders.all()[0];
    assert_eq!((order.left(), order.opened, order.skipped, order.asked_bytes, order.places.len()), (0, 5, 0, 0, 0));
    assert_eq!(orders.next(25, now), None);
}

#[test]
fn of_several_orders_the_one_that_is_read_faster_is_asked_for_further() {
    let (mut orders, mut now) = (Orders::default(), Instant::now());
    orders.begin("fast", Source::Declared, (0..10_000).collect(), false);
    orders.begin("slow", Source::Declared, (10_000..20_000).collect(), false);
    ask_all(&mut orders, 2_000, now);
    for step in 0..400 {
        now += Duration::from_millis(10);
        orders.opened(step, now);
        if step % 4 == 0 {
            orders.opened(10_000 + step / 4, now);
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
    orders.begin("wrong", Source::Declared, (0..1_000).collect(), false);
    orders.begin("right", Source::Declared, (5_000..5_200).collect(), false);
    ask_all(&mut orders, 100, now);
    for number in 0..200 {
        orders.opened(5_000 + number, now);
        ask_all(&mut orders, 100, now);
    }
    assert!(!orders.all()[0].rests(), "what others read as they said says little of this one");
    (0..STRAYS_MAX.into()).for_each(|number| _ = orders.opened(9_000 + number, now));
    assert!(orders.all().iter().all(Order::rests) && orders.next(u64::MAX, now).is_none());
    assert!(!orders.take_let_go().is_empty() && orders.all()[0].asked_bytes == 0);
    // Another one has all the room.
    orders.begin("new", Source::Declared, (20_000..20_100).collect(), false);
    assert_eq!(ask_all(&mut orders, 100, now).len(), 10);
    orders.opened(2, now);
    assert!(!orders.all()[0].rests() && orders.next(u64::MAX, now).is_some());
}

#[test]
fn files_that_are_left_out_are_passed_and_readers_may_be_ahead_of_whoever_asks() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    orders.begin("a", Source::Declared, (0..10_000).collect(), true);
    assert_eq!(orders.runs_out(), Some(1));
    ask_all(&mut orders, 50_000, now);
    (0..4_000).filter(|node| node % 2 == 0).for_each(|node| _ = orders.opened(node, now));
    let order = &orders.all()[0];
    let passed = 3_998 - OUT_OF_ORDER as u64 + 1;
    assert_eq!((order.opened, order.left(), order.skipped), (2_000, 10_000 - passed, passed / 2));
    // Behind all that was asked for.
    (4_000..5_000).for_each(|node| _ = orders.opened(node, now));
    orders.opened(5_500, now);
    orders.opened(5_499, now);
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
    orders.begin("rank 0", Source::Declared, epochs(0).collect(), false);
    orders.begin("rank 1", Source::Declared, epochs(1).collect(), false);
    while let Some(next) = orders.next(u64::MAX, now) {
        orders.asked(&next, 10, 0);
    }
    for (zero, one) in epochs(0).zip(epochs(1)).take(3_000) {
        orders.opened(one, now);
        orders.opened(zero, now);
        // It is validated, or tried again.
        orders.opened(zero, now);
    }
    for order in orders.all() {
        assert_eq!((order.opened, order.skipped, order.left()), (3_000, 0, 5_000), "{}", order.name);
    }
}

#[test]
fn an_order_that_takes_the_place_of_another_is_not_given_its_files() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    orders.begin("a", Source::Declared, vec![1, 2], false);
    let next = orders.next(100, now).expect("the first");
    orders.begin("a", Source::Declared, vec![3, 4], false);
    orders.asked(&next, 10, 10);
    orders.opened(1, now);
    assert_eq!((orders.all()[0].opened, ask_all(&mut orders, 100, now)), (0, vec![3, 4]));
}

#[test]
fn of_an_epoch_that_is_only_thought_to_come_nothing_is_asked_for_before_it_begins_so() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    let id = orders.begin("guessed", Source::Formula, (0..100).collect(), true);
    assert!(orders.runs_out() == Some(id) && orders.go_on(id, (0..100).rev().collect(), true));
    assert_eq!(orders.runs_out(), None, "one at a time");
    assert_eq!(ask_all(&mut orders, u64::MAX, now).len(), 100);
    (0..100).for_each(|node| _ = orders.opened(node, now));
    assert!(ask_all(&mut orders, u64::MAX, now).is_empty());
    (97..100).rev().for_each(|node| _ = orders.opened(node, now));
    assert!(ask_all(&mut orders, u64::MAX, now).is_empty());
    orders.opened(96, now);
    assert_eq!(ask_all(&mut orders, u64::MAX, now).len(), 96);
    assert_eq!((orders.all()[0].opened, orders.runs_out()), (104, Some(id)));
}

#[test]
fn an_order_that_was_found_out_is_left_alone_after_a_few_misses_and_forgotten_for_another() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    orders.begin("guessed", Source::Repeat, (0..100).collect(), false);
    orders.begin("said", Source::Peeked, (200..300).collect(), false);
    ask_all(&mut orders, u64::MAX, now);
    orders.opened(200, now);
    for number in 0..u64::from(STRAYS_UNPROVEN_MAX) {
        assert!(!orders.all()[0].rests() && !orders.opened(9_000 + number, now));
    }
    assert_eq!(
        orders.all().iter().map(|order| (order.rests(), order.misses)).collect::<Vec<_>>(),
        [(true, 16), (false, 16)]
    );
    orders.opened(9_999, now);
    assert_eq!(orders.all()[0].misses, 16, "nobody follows it");
    orders.forget_unfollowed();
    assert_eq!(orders.all().iter().map(|order| &*order.name).collect::<Vec<_>>(), ["said"]);
    assert_eq!(orders.take_let_go().len(), 100);
}

#[test]
fn what_was_read_before_an_order_was_known_is_behind_it() {
    let (mut orders, now) = (Orders::default(), Instant::now());
    let id = orders.begin("guessed", Source::Formula, (0..10_000).collect(), false);
    orders.read(id, &(0..3_000).map(|number| number / 4 * 4 + 3 - number % 4).collect::<Vec<_>>(), now);
    let order = &orders.all()[0];
    assert_eq!((order.opened, order.left(), order.skipped), (3_000, 7_000, 0));
    assert_eq!(orders.next(u64::MAX, now).map(|next| next.node), Some(3_000));
}
