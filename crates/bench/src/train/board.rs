//! Who is at which step: batches that are ready, accelerators that wait, the moment at which each step ends.
//!
//! It reads no clock and waits for nobody; moments come from outside. Invariants: an accelerator takes its batches in
//! their order; no batch is begun further ahead than the window, or than the one that is waited for; a step ends its nominal time after all who step
//! together have their batch, however late anybody looked.

use std::collections::BTreeMap;
use std::ops::Range;

use super::cause::{Cause, Log, Waits};
use targets::clock::Moment;

/// One accelerator.
#[derive(Default)]
pub struct Lane {
    /// Batches taken.
    pub taken: u64,
    /// Parts of the batch that is wanted which have come, where streams read it together.
    parts: u64,
    /// Batches that nobody took yet, and when they were whole.
    ready: BTreeMap<u64, Moment>,
    /// When it took the batch of the current step.
    start: Moment,
    /// Time of loading and computing in the first step, which DLIO leaves out.
    pub first: u64,
    pub waits: Waits,
}

/// Accelerators that step together.
pub struct Party {
    pub lanes: Range<usize>,
    pub step: u64,
    begun: Moment,
    missing: usize,
    /// When the current step ends; unknown while a batch is missing.
    pub deadline: Option<Moment>,
    /// End of each step: as it should be, and as it was seen.
    pub ends: Vec<(Moment, Moment)>,
    /// Batches of all its lanes that nobody had taken when each step ended.
    pub ready: Vec<u64>,
    pub done: bool,
}

pub struct Board {
    pub lanes: Vec<Lane>,
    pub parties: Vec<Party>,
    /// Party of each lane.
    members: Vec<usize>,
    step: u64,
    steps: u64,
    /// Steps that count.
    counted: Range<u64>,
}

impl Board {
    /// `together`: all accelerators wait for each other after each step; else each goes on by itself.
    pub fn new(lanes: usize, together: bool, step: u64, steps: u64, counted: Range<u64>) -> Board {
        let party = |lanes| Party {
            lanes,
            step: 0,
            begun: 0,
            missing: 0,
            deadline: None,
            ends: Vec::with_capacity(steps as usize),
            ready: Vec::with_capacity(steps as usize),
            done: false,
        };
        let parties: Vec<Party> =
            if together { vec![party(0..lanes)] } else { (0..lanes).map(|lane| party(lane..lane + 1)).collect() };
        let members = if together { vec![0; lanes] } else { (0..lanes).collect() };
        Board { lanes: (0..lanes).map(|_| Lane::default()).collect(), parties, members, step, steps, counted }
    }

    /// A party begins its current step. Gives the lanes that took a batch, whose windows moved.
    pub fn begin(&mut self, party: usize, now: Moment) -> Vec<usize> {
        let lanes = self.parties[party].lanes.clone();
        let step = self.parties[party].step;
        self.parties[party].begun = now;
        self.parties[party].missing = lanes.len();
        self.parties[party].deadline = None;
        let mut moved = Vec::new();
        for number in lanes {
            if let Some(ready) = self.lanes[number].ready.remove(&step) {
                // Whole before anybody looked, but after the step should have begun: a wait that nobody explains.
                self.take(number, now.max(ready), |waits| waits.add(Cause::Unknown, ready.saturating_sub(now)));
                moved.push(number);
            }
        }
        moved
    }

    /// A batch is whole. Says whether the lane took it at once, and whether that set the end of the step.
    pub fn deliver(&mut self, number: usize, batch: u64, now: Moment, log: &Log) -> (bool, bool) {
        let party = &self.parties[self.members[number]];
        let (begun, step, is_open) = (party.begun, party.step, party.missing > 0);
        if !is_open || step != batch || self.lanes[number].taken != batch {
            self.lanes[number].ready.insert(batch, now);
            return (false, false);
        }
        self.take(number, now.max(begun), |waits| log.book(begun, now.max(begun), waits));
        (true, self.parties[self.members[number]].missing == 0)
    }

    /// The same of one part of so many, where streams read a batch together.
    pub fn deliver_part(&mut self, number: usize, batch: u64, of: u64, now: Moment, log: &Log) -> (bool, bool) {
        self.lanes[number].parts += 1;
        if self.lanes[number].parts < of {
            return (false, false);
        }
        self.lanes[number].parts = 0;
        self.deliver(number, batch, now, log)
    }

    /// How many batches of a lane may have been begun.
    pub fn room(&self, number: usize, window: u64) -> u64 {
        let lane = &self.lanes[number];
        let party = &self.parties[self.members[number]];
        let is_waited_for = party.missing > 0 && party.step == lane.taken;
        lane.taken + window.max(u64::from(is_waited_for))
    }

    fn take(&mut self, number: usize, start: Moment, book: impl FnOnce(&mut Waits)) {
        let party = &mut self.parties[self.members[number]];
        let lane = &mut self.lanes[number];
        lane.taken += 1;
        lane.start = start;
        if party.step == 0 {
            lane.first = start - party.begun + self.step;
        }
        // Steps that don't count have waits that don't count either, but they are reported.
        if self.counted.contains(&party.step) {
            book(&mut lane.waits);
        } else {
            lane.waits.add(Cause::Start, start - party.begun);
        }
        party.missing -= 1;
        if party.missing > 0 {
            return;
        }
        let (step, lanes) = (party.step, party.lanes.clone());
        let latest = self.lanes[lanes.clone()].iter().map(|lane| lane.start).max().unwrap_or(start);
        self.parties[self.members[number]].deadline = Some(latest + self.step);
        let cause = self.cause(step, Cause::Barrier);
        for lane in &mut self.lanes[lanes] {
            lane.waits.add(cause, latest - lane.start);
        }
    }

    /// What a wait in a step is booked to.
    fn cause(&self, step: u64, cause: Cause) -> Cause {
        if self.counted.contains(&step) { cause } else { Cause::Start }
    }

    /// The party whose step ends first, and when.
    pub fn next(&self) -> Option<(usize, Moment)> {
        let deadlines = self.parties.iter().enumerate();
        deadlines.filter_map(|(number, party)| Some((number, party.deadline?))).min_by_key(|(_, deadline)| *deadline)
    }

    /// The step of a party is over. Says whether another follows.
    pub fn end(&mut self, party: usize, seen: Moment) -> bool {
        let lanes = self.parties[party].lanes.clone();
        let ready = self.lanes[lanes].iter().map(|lane| lane.ready.len() as u64).sum();
        let party = &mut self.parties[party];
        party.ready.push(ready);
        let deadline = party.deadline.take().expect("only a step that has an end is ended");
        party.ends.push((deadline, seen));
        party.step += 1;
        party.done = party.step == self.steps;
        !party.done
    }

    /// Time that all lanes of a party waited for something outside of this process.
    pub fn waited(&mut self, party: usize, cause: Cause, nanoseconds: u64) {
        let cause = self.cause(self.parties[party].step, cause);
        for lane in &mut self.lanes[self.parties[party].lanes.clone()] {
            lane.waits.add(cause, nanoseconds);
        }
    }

    pub fn steps_done(&self) -> u64 {
        self.parties.iter().map(|party| party.step * party.lanes.len() as u64).sum()
    }

    pub fn done(&self) -> bool {
        self.parties.iter().all(|party| party.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_its_time_after_the_last_batch_and_waits_are_booked() {
        let mut board = Board::new(2, true, 100, 2, 1..2);
        assert!(board.begin(0, 1000).is_empty());
        let mut log = Log::default();
        log.enter(900, Cause::Store);
        assert_eq!(board.deliver(0, 0, 1010, &log), (true, false));
        assert_eq!(board.next(), None);
        assert_eq!(board.deliver(1, 0, 1050, &log), (true, true));
        assert_eq!(board.next(), Some((0, 1150)));
        assert_eq!([board.lanes[0].first, board.lanes[1].first], [110, 150]);
        assert_eq!([board.lanes[0].waits.of(Cause::Start), board.lanes[1].waits.of(Cause::Start)], [50, 50]);
        assert_eq!(board.lanes[0].waits.total() + board.lanes[1].waits.total(), 100, "the first step is left out");
        // The second batch of one is ready early, the other's comes late.
        assert_eq!(board.deliver(0, 1, 1100, &log), (false, false));
        assert!(board.end(0, 1151));
        assert_eq!(board.begin(0, 1150), [0]);
        assert_eq!(board.deliver(1, 1, 1180, &log), (true, true));
        assert_eq!(board.next(), Some((0, 1280)));
        assert_eq!((board.lanes[0].waits.of(Cause::Barrier), board.lanes[1].waits.of(Cause::Store)), (30, 30));
        assert!(!board.end(0, 1280));
        assert!(board.done());
        assert_eq!(board.parties[0].ready, [1, 0], "the second batch of one lay there when the first step ended");
    }

    #[test]
    fn who_steps_alone_waits_for_nobody() {
        let mut board = Board::new(2, false, 100, 5, 1..5);
        board.begin(0, 0);
        board.begin(1, 0);
        assert_eq!(board.deliver(1, 0, 5, &Log::default()), (true, true));
        assert_eq!(board.next(), Some((1, 105)));
        assert!(board.end(1, 105));
        board.begin(1, 105);
        assert_eq!(board.deliver(1, 1, 106, &Log::default()), (true, true));
        assert_eq!((board.lanes[0].taken, board.lanes[1].taken), (0, 2));
    }
}
