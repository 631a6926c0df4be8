//! What a job said that it will read, in which order, and how far its readers have come.
//!
//! Opens come in, what to ask for next comes out; nothing is read here. An order is advice: files that are opened in another
//! order than was said cost nothing but what was asked for in vain, and an order that nobody follows rests until somebody
//! does. Invariant: what is remembered of an order is its files of two epochs and a window, whatever was said.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Files ahead of the readers that are looked at.
pub const WINDOW_FILES: usize = 16 << 10;

/// Files of all orders of a data set: eight bytes each in memory, and as many again while the next epoch is dealt.
pub const FILES_MAX: usize = 1 << 23;

/// Files by which workers open out of order; what lies further back was left out.
const OUT_OF_ORDER: usize = 1024;

/// Opens of files that no order names, and of those that others name, after which one of whose files none was opened
/// meanwhile rests.
const STRAYS_MAX: u32 = 64;
const OTHERS_MAX: u32 = 4096;

/// Share of the past that an open takes off the estimate of how fast files are read.
const FORGOTTEN: f64 = 1.0 / 64.0;

/// Between two files, before it is known how fast they are read: the order counts.
const PACE_UNKNOWN: Duration = Duration::from_millis(1);

/// All orders of a data set, by name.
#[derive(Default)]
pub struct Orders {
    all: Vec<Order>,
    ids: u64,
    /// Files that were asked for, and that nobody will open now.
    let_go: Vec<u64>,
}

/// One reader's order.
pub struct Order {
    /// Among all that there ever were: a name may be given again.
    id: u64,
    pub name: String,
    /// Files that are still to be opened, as nodes; the first ones are in the window.
    files: VecDeque<u64>,
    window: VecDeque<Seen>,
    /// Number of the first of them among all that there ever were.
    first: u64,
    /// Where in the window a node is, by such numbers.
    places: HashMap<u64, VecDeque<u64>>,
    /// Bytes of the window that were not opened, and those of them that were asked for.
    ahead_bytes: u64,
    pub asked_bytes: u64,
    pace: Pace,
    /// Number of the furthest file that was opened.
    furthest: u64,
    strays: u32,
    others: u32,
    /// Whether more files will be said when these run out.
    pub goes_on: bool,
    /// Opened as said; and left out.
    pub opened: u64,
    pub skipped: u64,
}

/// A file of the window.
struct Seen {
    bytes: u64,
    asked: u64,
    is_open: bool,
}

/// How fast files are read.
#[derive(Default)]
struct Pace {
    bytes: f64,
    seconds: f64,
    last: Option<Instant>,
}

/// What is to be asked for next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    order: u64,
    number: u64,
    pub node: u64,
    pub due: Instant,
}

impl Orders {
    /// An order begins, in place of one of that name.
    pub fn begin(&mut self, name: &str, files: Vec<u64>, goes_on: bool) -> u64 {
        self.forget(name);
        self.ids += 1;
        self.all.push(Order {
            id: self.ids,
            name: name.into(),
            files: files.into(),
            window: VecDeque::new(),
            first: 0,
            places: HashMap::new(),
            ahead_bytes: 0,
            asked_bytes: 0,
            pace: Pace::default(),
            furthest: 0,
            strays: 0,
            others: 0,
            goes_on,
            opened: 0,
            skipped: 0,
        });
        self.ids
    }

    /// Files that come after those of an order. False if there is no such order any more.
    pub fn go_on(&mut self, id: u64, files: Vec<u64>, goes_on: bool) -> bool {
        let order = self.all.iter_mut().find(|order| order.id == id);
        order.map(|order| (order.files.extend(files), order.goes_on = goes_on)).is_some()
    }

    /// Whether there was one of that name.
    pub fn forget(&mut self, name: &str) -> bool {
        let Some(at) = self.all.iter().position(|order| order.name == name) else { return false };
        let mut order = self.all.remove(at);
        order.let_go(&mut self.let_go);
        true
    }

    /// Whether an order is still there.
    pub fn has(&self, id: u64) -> bool {
        self.all.iter().any(|order| order.id == id)
    }

    /// Files of all orders.
    pub fn files(&self) -> usize {
        self.all.iter().map(|order| order.files.len()).sum()
    }

    /// Files that were asked for and that nobody will open now, since this was asked last.
    pub fn take_let_go(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.let_go)
    }

    pub fn all(&self) -> &[Order] {
        &self.all
    }

    /// The order whose files are about to run out, if more are to be had.
    pub fn runs_out(&self) -> Option<u64> {
        let short = |order: &&Order| order.goes_on && order.files.len() - order.window.len() < WINDOW_FILES;
        self.all.iter().find(short).map(|order| order.id)
    }

    /// A file was opened.
    pub fn opened(&mut self, node: u64, now: Instant) {
        // Of several that name it, the one whose reader is nearest to it.
        let near = self.all.iter().enumerate().filter_map(|(at, order)| Some((order.distance(node)?, at))).min();
        let found = match near {
            Some((_, at)) => {
                self.all[at].opened(node, now, &mut self.let_go);
                Some(at)
            }
            // Readers that are faster than whoever asks ahead go on all the same.
            None => self.all.iter_mut().position(|order| order.catch_up(node, &mut self.let_go)),
        };
        for (_, order) in self.all.iter_mut().enumerate().filter(|(at, _)| Some(*at) != found) {
            let rested = order.rests();
            let count = if found.is_some() { &mut order.others } else { &mut order.strays };
            *count = count.saturating_add(1);
            if order.rests() && !rested {
                order.let_go(&mut self.let_go);
            }
        }
    }

    /// The file that is due first of those that were not asked for, while less than so many bytes that were are not opened.
    pub fn next(&self, asked_max: u64, now: Instant) -> Option<Next> {
        let followed = self.all.iter().filter(|order| !order.rests());
        if followed.map(|order| order.asked_bytes).sum::<u64>() >= asked_max {
            return None;
        }
        self.all.iter().filter_map(|order| order.next(now)).min_by_key(|next| next.due)
    }

    /// What was next was looked at: its bytes, and those of them that were asked for.
    pub fn asked(&mut self, next: &Next, bytes: u64, asked: u64) {
        let order = self.all.iter_mut().find(|order| order.id == next.order);
        let Some(order) = order.filter(|order| order.end() == next.number) else { return };
        order.window.push_back(Seen { bytes, asked, is_open: false });
        order.places.entry(next.node).or_default().push_back(next.number);
        order.ahead_bytes += bytes;
        order.asked_bytes += asked;
    }
}

impl Order {
    /// Whether nobody follows it at the moment.
    pub fn rests(&self) -> bool {
        self.strays >= STRAYS_MAX || self.others >= OTHERS_MAX
    }

    /// Files that are still to be opened, of those that were said.
    pub fn left(&self) -> u64 {
        self.files.len() as u64
    }

    /// Files that were looked at ahead of the readers.
    pub fn ahead(&self) -> u64 {
        self.window.len() as u64
    }

    /// Number of the first file behind the window.
    fn end(&self) -> u64 {
        self.first + self.window.len() as u64
    }

    fn next(&self, now: Instant) -> Option<Next> {
        if self.rests() || self.window.len() >= WINDOW_FILES {
            return None;
        }
        let node = *self.files.get(self.window.len())?;
        let left = self.pace.time_of(self.ahead_bytes).unwrap_or(PACE_UNKNOWN * self.window.len() as u32);
        Some(Next { order: self.id, number: self.end(), node, due: now + left })
    }

    /// How far ahead of its readers a file is; none if it isn't, or is that far that it is another epoch's.
    fn distance(&self, node: u64) -> Option<u64> {
        let number = *self.places.get(&node)?.front()?;
        (number <= self.furthest + OUT_OF_ORDER as u64).then(|| number - self.first)
    }

    fn opened(&mut self, node: u64, now: Instant, let_go: &mut Vec<u64>) {
        let Some(number) = self.take_place(node) else { return };
        self.furthest = self.furthest.max(number);
        let seen = &mut self.window[(number - self.first) as usize];
        (seen.is_open, self.strays, self.others, self.opened) = (true, 0, 0, self.opened + 1);
        self.ahead_bytes -= seen.bytes;
        self.asked_bytes -= std::mem::take(&mut seen.asked);
        let bytes = std::mem::take(&mut seen.bytes);
        self.pace.note(bytes, now);
        let last = number.saturating_sub(OUT_OF_ORDER as u64);
        while self.window.front().is_some_and(|seen| seen.is_open || self.first < last) {
            self.pass(let_go);
        }
    }

    /// A file just behind the window was opened: the window goes on to it.
    fn catch_up(&mut self, node: u64, let_go: &mut Vec<u64>) -> bool {
        // Whoever is that far ahead has opened what is in the window, or will not.
        if self.window.len() as u64 > self.furthest.saturating_sub(self.first) + OUT_OF_ORDER as u64 {
            return false;
        }
        let behind = self.files.iter().skip(self.window.len()).take(OUT_OF_ORDER);
        let Some(further) = behind.into_iter().position(|known| *known == node) else { return false };
        for _ in 0..=further {
            let (node, number) = (self.files[self.window.len()], self.end());
            self.places.entry(node).or_default().push_back(number);
            self.window.push_back(Seen { bytes: 0, asked: 0, is_open: false });
        }
        let number = self.take_place(node).expect("it was just put there");
        self.window[(number - self.first) as usize].is_open = true;
        (self.strays, self.others, self.opened, self.furthest) = (0, 0, self.opened + 1, number);
        while self.window.front().is_some_and(|seen| seen.is_open) || self.window.len() > WINDOW_FILES {
            self.pass(let_go);
        }
        true
    }

    /// The first place of a node in the window.
    fn take_place(&mut self, node: u64) -> Option<u64> {
        let places = self.places.get_mut(&node)?;
        let number = places.pop_front();
        if places.is_empty() {
            self.places.remove(&node);
        }
        number
    }

    /// The first file of the window is behind the readers.
    fn pass(&mut self, let_go: &mut Vec<u64>) {
        let (Some(seen), Some(node)) = (self.window.pop_front(), self.files.pop_front()) else { return };
        if !seen.is_open {
            let taken = self.take_place(node);
            debug_assert_eq!(taken, Some(self.first));
            self.skipped += 1;
            let_go.extend((seen.asked > 0).then_some(node));
        }
        self.first += 1;
        self.ahead_bytes -= seen.bytes;
        self.asked_bytes -= seen.asked;
    }

    /// Nobody follows it: what was asked for by it will not be opened.
    fn let_go(&mut self, into: &mut Vec<u64>) {
        let asked = self.window.iter_mut().zip(&self.files).filter(|(seen, _)| seen.asked > 0);
        into.extend(asked.map(|(seen, node)| (seen.asked = 0, *node).1));
        self.asked_bytes = 0;
    }
}

impl Pace {
    fn note(&mut self, bytes: u64, now: Instant) {
        let seconds = self.last.map_or(0.0, |last| now.saturating_duration_since(last).as_secs_f64());
        self.bytes += bytes as f64 - self.bytes * FORGOTTEN;
        self.seconds += seconds - self.seconds * FORGOTTEN;
        self.last = Some(now);
    }

    /// How long it takes to read so many bytes.
    fn time_of(&self, bytes: u64) -> Option<Duration> {
        let seconds = bytes as f64 * self.seconds / self.bytes;
        (self.seconds > 0.0 && seconds.is_finite()).then(|| Duration::from_secs_f64(seconds.min(3600.0)))
    }
}

#[cfg(test)]
mod tests {
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
        orders.begin("a", vec![5, 3, 9, 3, 7], false);
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
        orders.begin("fast", (0..10_000).collect(), false);
        orders.begin("slow", (10_000..20_000).collect(), false);
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
        orders.begin("wrong", (0..1_000).collect(), false);
        orders.begin("right", (5_000..5_200).collect(), false);
        ask_all(&mut orders, 100, now);
        for number in 0..200 {
            orders.opened(5_000 + number, now);
            ask_all(&mut orders, 100, now);
        }
        assert!(!orders.all()[0].rests(), "what others read as they said says little of this one");
        (0..STRAYS_MAX.into()).for_each(|number| orders.opened(9_000 + number, now));
        assert!(orders.all().iter().all(Order::rests) && orders.next(u64::MAX, now).is_none());
        assert!(!orders.take_let_go().is_empty() && orders.all()[0].asked_bytes == 0);
        // Another one has all the room.
        orders.begin("new", (20_000..20_100).collect(), false);
        assert_eq!(ask_all(&mut orders, 100, now).len(), 10);
        orders.opened(2, now);
        assert!(!orders.all()[0].rests() && orders.next(u64::MAX, now).is_some());
    }

    #[test]
    fn files_that_are_left_out_are_passed_and_readers_may_be_ahead_of_whoever_asks() {
        let (mut orders, now) = (Orders::default(), Instant::now());
        orders.begin("a", (0..10_000).collect(), true);
        assert_eq!(orders.runs_out(), Some(1));
        ask_all(&mut orders, 50_000, now);
        (0..4_000).filter(|node| node % 2 == 0).for_each(|node| orders.opened(node, now));
        let order = &orders.all()[0];
        let passed = 3_998 - OUT_OF_ORDER as u64 + 1;
        assert_eq!((order.opened, order.left(), order.skipped), (2_000, 10_000 - passed, passed / 2));
        // Behind all that was asked for.
        (4_000..5_000).for_each(|node| orders.opened(node, now));
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
        orders.begin("rank 0", epochs(0).collect(), false);
        orders.begin("rank 1", epochs(1).collect(), false);
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
        orders.begin("a", vec![1, 2], false);
        let next = orders.next(100, now).expect("the first");
        orders.begin("a", vec![3, 4], false);
        orders.asked(&next, 10, 10);
        orders.opened(1, now);
        assert_eq!((orders.all()[0].opened, ask_all(&mut orders, 100, now)), (0, vec![3, 4]));
    }
}
