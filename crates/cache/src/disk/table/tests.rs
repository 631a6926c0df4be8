//! The table at plain numbers.

use super::*;
use crate::disk::admission::Admission;
use proptest::prelude::*;

fn id(number: u128) -> ObjectId {
    ObjectId(number)
}

/// Ten objects of a hundred bytes in a table for a thousand, opened once each.
fn full() -> Table {
    let mut table = Table::new(1_000);
    for n in 0..10 {
        table.opened(id(n), 100, 2_000);
        table.insert(id(n), n as u64, 100, State::Complete);
    }
    table
}

fn pass(table: &mut Table, objects: std::ops::Range<u128>) {
    objects.for_each(|n| table.opened(id(n), 100, 2_000));
}

fn nobody(_: ObjectId, _: &Slot) -> bool {
    false
}

#[test]
fn what_is_used_is_the_sum_of_the_slots() {
    let mut table = full();
    assert_eq!((table.used.bytes, table.used.files), (1_000, 10));
    table.resize(id(3), 250);
    table.insert(id(4), 0, 30, State::Filling);
    table.change(id(5), |slot| (slot.bytes, slot.length) = (77, 7));
    assert_eq!(table.get(id(5)).map(|slot| (slot.bytes, slot.length)), Some((100, 7)));
    assert_eq!((table.used.bytes, table.used.files), (1_080, 10));
    assert_eq!(table.remove(id(3)).map(|slot| slot.bytes), Some(250));
    assert_eq!(table.remove(id(3)), None);
    assert_eq!((table.used.bytes, table.used.files), (830, 9));
}

#[test]
fn an_object_that_is_told_to_be_larger_than_the_cache_counts_for_no_more() {
    let mut table = full();
    for (number, bytes) in [(90, 1_001), (91, u64::MAX), (92, 1 << 40)] {
        let before = table.admission.now();
        table.opened(id(number), bytes, u64::MAX);
        assert_eq!(table.admission.now() - before, 1_000, "of {bytes} bytes");
    }
}

#[test]
fn each_stay_has_a_number_of_its_own() {
    let mut table = full();
    let first = table.get(id(1)).expect("it is here").residency;
    assert!((0..10).filter(|n| table.get(id(*n)).is_some_and(|slot| slot.residency == first)).count() == 1);
    table.remove(id(1));
    let second = table.insert(id(1), 0, 100, State::Complete);
    assert!(second != first && table.get(id(1)).is_some_and(|slot| slot.residency == second));
}

#[test]
fn an_object_gives_way_to_one_that_was_read_three_times_since_and_to_no_other() {
    let mut table = full();
    for _ in 0..3 {
        assert_eq!(table.give_way(id(10), 100, 0, nobody), None);
        pass(&mut table, 10..20);
        pass(&mut table, 1..10);
    }
    assert_eq!(table.give_way(id(10), 100, 0, nobody), Some(vec![id(0)]), "the only one that nobody opened");
    assert_eq!(table.give_way(id(20), 100, 0, nobody), None, "nothing to show");
    assert_eq!(table.give_way(id(10), 100, 0, |id, _| id.0 == 0), None, "open");
    table.opened(id(0), 100, 2_000);
    assert_eq!(table.give_way(id(10), 100, 0, nobody), None, "opened meanwhile");
}

#[test]
fn who_asks_whether_somebody_gives_way_is_told_what_happens_then() {
    let mut table = full();
    for _ in 0..3 {
        pass(&mut table, 10..20);
        pass(&mut table, 1..10);
    }
    assert!(!table.may_give_way(id(20), 100, 0, nobody), "nothing to show");
    assert!(!table.may_give_way(id(10), 100, 0, |id, _| id.0 == 0), "open");
    assert!((0..3).all(|_| table.may_give_way(id(10), 100, 0, nobody)));
    assert!(!table.may_give_way(id(10), 101, 0, nobody), "one is not enough");
    assert_eq!(table.give_way(id(10), 100, 0, nobody), Some(vec![id(0)]));
}

#[test]
fn what_gives_way_to_anybody_is_told_as_it_would_be_found() {
    let mut table = full();
    assert!(!table.yields(100, 0, nobody), "all is owned");
    [2, 3].into_iter().for_each(|n| table.change(id(n), |slot| slot.class = Class::Copy));
    assert!((0..3).all(|_| table.yields(200, 2, nobody)));
    assert!(!table.yields(201, 0, nobody) && !table.yields(0, 3, nobody));
    assert!(!table.yields(200, 0, |id, _| id.0 == 2) && table.yields(100, 0, |id, _| id.0 == 2));
    assert_eq!([table.yielding_bytes(nobody), table.yielding_bytes(|id, _| id.0 == 2)], [200, 100]);
    assert_eq!(table.yielding_bytes(|_, _| true), 0);
}

#[test]
fn what_gives_way_is_looked_for_elsewhere_the_next_time_and_some_of_many_tell_how_much_is_held() {
    let (count, mut table) = (3 * LOOKS_MAX as u128, Table::new(u64::MAX));
    for n in 0..count {
        table.insert(id(n), 0, 100, State::Complete);
        table.change(id(n), |slot| slot.class = Class::Copy);
    }
    let held = |id: ObjectId, _: &Slot| id.0 < 2 * count / 3;
    let told = table.yielding_bytes(held) as f64 / (count as f64 * 100.0);
    assert!((told - 1.0 / 3.0).abs() < 0.05, "{told}");
    let asked: Vec<bool> = (0..4).map(|_| table.yields(100, 1, held)).collect();
    assert!(asked.contains(&true), "{asked:?}");
    assert!(asked.iter().skip_while(|found| !**found).all(|found| *found), "{asked:?}");
}

#[test]
fn what_another_member_owns_counts_only_where_it_is_kept_in_that_one_s_stead() {
    let mut table = full();
    table.change(id(2), |slot| slot.class = Class::Copy);
    table.release(id(3));
    let clock = |table: &Table| table.admission.save()[1];
    let before = clock(&table);
    [2, 3, 40].into_iter().for_each(|n| table.opened_of_another(id(n), 100, 2_000));
    assert_eq!(clock(&table), before, "copies move no clock");
    assert!(table.names.get(id(40)).is_none());
    assert_eq!(table.get(id(3)).map(|slot| slot.class), Some(Class::Copy), "somebody reads it still");
    assert_eq!(table.yielding(), (200, 2));
    pass(&mut table, 10..14);
    table.opened_of_another(id(1), 100, 2_000);
    assert_eq!(clock(&table), before + 500);
}

#[test]
fn what_lies_unread_for_long_gives_way_to_what_an_owner_vouches_for() {
    let mut table = full();
    table.vouch(id(50));
    assert!(table.stale_bytes() == 0 && !table.is_wanted(id(50)), "nothing was read again yet");
    (0..8).for_each(|_| pass(&mut table, 0..8));
    assert_eq!(table.stale_bytes(), 200);
    table.vouch(id(50));
    table.vouch(id(8));
    assert!(table.is_wanted(id(50)) && !table.is_wanted(id(51)));
    assert_eq!(table.give_way(id(50), 300, 0, nobody), None, "all others are read");
    assert_eq!(table.give_way(id(50), 200, 0, nobody), Some(vec![id(8), id(9)]));
}

#[test]
fn the_longest_unread_go_first_and_only_as_many_as_it_takes() {
    let leave = |bytes, files| {
        let mut table = full();
        pass(&mut table, 0..4);
        (0..3).for_each(|_| pass(&mut table, 10..20));
        table.give_way(id(10), bytes, files, nobody)
    };
    assert_eq!(leave(200, 0), Some(vec![id(4), id(5)]));
    assert_eq!(leave(201, 0), Some(vec![id(4), id(5), id(6)]));
    assert_eq!(leave(1, 2), Some(vec![id(4), id(5)]));
    assert_eq!(leave(600, 0).map(|leave| leave.len()), Some(6));
    assert_eq!(leave(1_001, 0), None);
}

#[test]
fn opens_of_one_burst_are_one_use() {
    let mut table = full();
    for _ in 0..8 {
        table.opened(id(10), 100, 2_000);
    }
    pass(&mut table, 11..20);
    table.opened(id(10), 100, 2_000);
    assert_eq!(table.give_way(id(10), 100, 0, nobody), None, "two uses");
    pass(&mut table, 11..20);
    table.opened(id(10), 100, 2_000);
    assert!(table.give_way(id(10), 100, 0, nobody).is_some());
}

#[test]
fn released_objects_go_first_then_copies_and_neither_asks_for_evidence() {
    let mut table = full();
    table.change(id(2), |slot| slot.class = Class::Copy);
    table.release(id(7));
    table.release(id(8));
    assert_eq!(table.yielding(), (300, 3));
    assert_eq!(table.give_way(id(10), 100, 0, nobody), Some(vec![id(7)]));
    assert_eq!(table.give_way(id(10), 300, 0, nobody), Some(vec![id(7), id(8), id(2)]));
    assert_eq!(table.give_way(id(10), 301, 0, nobody), None);
    assert_eq!(table.give_way(id(10), 300, 0, |id, _| id.0 == 2), None);
    table.resize(id(8), 150);
    assert_eq!(table.yielding(), (350, 3));
    table.opened(id(8), 100, 2_000);
    assert_eq!(table.yielding(), (200, 2), "somebody reads it all the same");
    table.remove(id(7));
    assert_eq!(table.yielding(), (100, 1));
    table.remove(id(1));
    assert!(
        table.names.get(id(7)).is_none() && table.names.get(id(1)).is_some(),
        "a version that went never comes back"
    );
    assert_eq!(table.give_way(id(10), 100, 0, nobody), Some(vec![id(2)]));
}

#[test]
fn a_search_looks_at_a_bounded_number_of_slots() {
    let mut table = Table::new(100_000 * 100);
    for n in 0..100_000 {
        table.insert(id(n), 0, 100, State::Complete);
    }
    let looks = std::cell::Cell::new(0);
    let held = |_: ObjectId, _: &Slot| {
        looks.set(looks.get() + 1);
        true
    };
    for _ in 0..3 {
        table.opened(id(1 << 90), 100, 1 << 40);
        (0..30_000).for_each(|n| table.opened(id((2 << 90) + n), 1_000, 1 << 40));
    }
    table.opened(id(1 << 90), 100, 1 << 40);
    assert_eq!(table.give_way(id(1 << 90), 100, 0, held), None);
    assert!((1..=2 * LOOKS).contains(&looks.get()), "{} looks", looks.get());
    assert_eq!(table.give_way(id(1 << 90), 1 << 40, 0, held), None);
    assert!(looks.get() <= 2 * LOOKS + LOOKS_MAX, "{} looks", looks.get());
}

/// Ids as XXH3 makes them: anywhere.
fn scatter(n: u128) -> ObjectId {
    ObjectId(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

#[test]
fn an_object_takes_53_to_62_bytes_and_a_name_37_to_45() {
    let empty = Table::new(1 << 40).bytes();
    assert!(empty < 1_000_000, "{empty} bytes for nothing");
    // The index doubles when it is three quarters full, so these are its best and its worst moments.
    for count in [98_304, 98_305, 100_000, 786_432, 786_433, 1_000_000] {
        let (mut kept, mut opened) = (Table::new(1 << 40), Table::new(1 << 40));
        for n in 0..count {
            kept.insert(scatter(n), 0, 100, State::Complete);
            opened.opened(scatter(n), 1 << 20, 1 << 50);
        }
        let each = |table: &Table| (table.bytes() - empty) as f64 / count as f64;
        let (kept, opened) = (each(&kept), each(&opened));
        assert!((53.0..=62.0).contains(&kept) && (37.0..=45.0).contains(&opened), "{kept} and {opened} for {count}");
    }
}

#[test]
fn names_are_bounded_and_the_longest_unread_forgotten() {
    let mut table = Table::new(1 << 40);
    for n in 0..NAMES_MAX as u128 + 50_000 {
        table.opened(scatter(n), 1 << 20, 1 << 50);
    }
    assert_eq!(table.names.len(), 1_048_576);
    let known = |from: u128| (from..from + 50_000).filter(|n| table.names.get(scatter(*n)).is_some()).count();
    assert!(
        known(NAMES_MAX as u128) > 49_000 && known(NAMES_MAX as u128 / 2) > 40_000,
        "the longest unread are forgotten"
    );
}

#[test]
fn a_clock_that_is_turned_back_changes_no_verdict() {
    let mut table = full();
    let object = 1 << 20;
    while table.admission.now() < (1 << 31) - 40_000_000 {
        table.opened(id(99), object, 0);
    }
    pass(&mut table, 1..10);
    for _ in 0..3 {
        table.opened(id(10), object, 2_000);
        (0..50).for_each(|_| table.opened(id(99), object, 0));
        pass(&mut table, 1..10);
    }
    assert!(table.admission.now() < 1 << 31, "it was turned back");
    table.opened(id(10), object, 2_000);
    assert_eq!(table.give_way(id(10), 100, 0, nobody), Some(vec![id(0)]));
}

#[test]
fn what_was_saved_is_known_again() {
    let mut table = full();
    pass(&mut table, 1..10);
    for _ in 0..3 {
        pass(&mut table, 10..20);
    }
    table.admission.traded(id(12), id(13), 70);
    let saved = table.save();
    let mut again = Table::new(1_000);
    for n in (0..9).rev() {
        again.insert(id(n), 0, 100, State::Complete);
    }
    assert!(again.restore(&saved));
    assert_eq!(again.admission.save(), table.admission.save());
    assert_eq!(again.admission.trials(), vec![(id(12), id(13), 70)]);
    assert_eq!(again.give_way(id(10), 200, 0, nobody), Some(vec![id(0), id(1)]));
    assert!(again.names.get(id(9)).is_some_and(|name| name.opened > 0), "one that is not here any more");
    for (name, then) in again.names.values().iter().filter_map(|name| Some((name, table.names.get(name.id)?))) {
        assert_eq!((name.opened, name.uses), (then.opened, then.uses));
    }
}

#[test]
fn what_was_saved_with_another_capacity_means_the_same_bytes() {
    let capacity = 1 << 30;
    let mut table = Table::new(capacity);
    for n in 0..10 {
        table.insert(id(n), 0, capacity / 10, State::Complete);
    }
    (0..3).for_each(|_| pass(&mut table, 0..10_000));
    let mut again = Table::new(capacity * 4);
    assert!(again.restore(&table.save()));
    assert_eq!(again.admission.save()[1], table.admission.save()[1]);
    let stamp = |table: &Table| table.names.get(id(5_000)).map(|name| u64::from(name.opened));
    let (then, now) = (stamp(&table).expect("known"), stamp(&again).expect("known"));
    assert!(now * 4 <= then && then < (now + 1) * 4, "{then} {now}");
}

proptest! {
    #[test]
    fn hostile_bytes_are_harmless(
        body in prop::collection::vec(any::<u8>(), 0..600),
        counts in prop::option::of((0u32..3, 0u32..8)),
        summed in any::<bool>(),
    ) {
        let mut body = body;
        if let Some((trials, residents)) = counts && body.len() >= 36 {
            body[28..32].copy_from_slice(&trials.to_le_bytes());
            body[32..36].copy_from_slice(&residents.to_le_bytes());
            let whole = 36 + (trials * 40 + residents * 20) as usize;
            body.truncate(if body.len() < whole { 0 } else { whole + (body.len() - whole) / 32 * 32 });
        }
        let sum = if summed { block::crc64::of(&body) } else { 1 };
        let bytes = [&b"STOKERUS\x01\0\0\0"[..], &sum.to_le_bytes(), &body].concat();
        let mut table = full();
        let used = table.used;
        let known = table.restore(&bytes);
        prop_assert!(!known || summed);
        prop_assert_eq!((table.used.bytes, table.used.files), (used.bytes, used.files));
        let now = table.admission.now();
        let stamps = table.names.values().iter().flat_map(|name| [name.opened, name.uses[0], name.uses[1], name.uses[2]]);
        prop_assert!(stamps.chain((0..10).filter_map(|n| Some(table.get(id(n))?.opened))).all(|stamp| stamp <= now));
        let [capacity, _, credit] = table.admission.save();
        prop_assert!(capacity == 1_000 && credit <= capacity);
        pass(&mut table, 0..30);
        let _ = table.give_way(id(20), 100, 1, nobody);
    }

    #[test]
    fn a_bit_that_fell_over_is_noticed(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut saved = full().save();
        let at = at.index(saved.len());
        saved[at] ^= 1 << bit;
        prop_assert!(!Table::new(1_000).restore(&saved));
    }
}

#[test]
fn bad_trades_cost_the_credit_and_good_ones_bring_it_back() {
    let mut admission = Admission::new(100_000);
    let (came, left) = (|n: u128| id(n), |n: u128| id(1_000 + n));
    assert_eq!(admission.credit, 25_000);
    admission.traded(came(0), left(0), 1_000);
    assert_eq!(admission.credit, 24_000);
    admission.used(came(0), 1_000);
    assert_eq!(admission.credit, 32_000, "won: eight times its bytes");
    admission.used(left(0), 1_000);
    assert_eq!((admission.credit, admission.patience), (32_000, 1), "judged once");
    admission.traded(came(1), left(1), 1_000);
    admission.used(left(1), 1_000);
    assert_eq!((admission.credit, admission.patience), (29_000, 1), "lost: twice its bytes beside its cost");
    admission.traded(came(2), left(2), 1_000);
    admission.used(left(2), 1_000);
    assert_eq!((admission.credit, admission.patience), (6_250, 2), "two of eight are too many");
    for n in 3..11 {
        admission.traded(came(n), left(n), 100);
        admission.used(came(n), 100);
    }
    assert_eq!((admission.credit, admission.patience), (6_250 + 8 * 700, 1), "none of eight");
    admission.traded(came(11), left(11), 50_000);
    assert_eq!((admission.credit, admission.evidence(&[9, 8, 7])), (0, None));
    admission.used(came(20), 100_000);
    assert_eq!(admission.credit, 100_000 / 64);
    admission.traded(came(12), left(12), 50_000);
    admission.used(came(12), 1);
    assert_eq!(admission.credit, 100_000, "never more than the capacity");
}

#[test]
fn patience_ends_at_sixteen_bursts() {
    let mut admission = Admission::new(100_000);
    for n in 0..40 {
        admission.traded(id(n), id(1_000 + n), 100);
        admission.used(id(1_000 + n), 100);
    }
    assert_eq!(admission.patience, 16);
    let mut uses = [0; 3];
    for _ in 0..64 {
        admission.note(&mut uses, 100_000);
        admission.used(id(5_000), 25_000);
    }
    assert_eq!(
        uses.map(|stamp| (admission.now() - stamp) / 25_000),
        [16, 32, 48],
        "each use four cachefuls after the last"
    );
}
