//! When an object may take the place of another: a clock of bytes opened, what an object has to show, and what trades
//! may cost. Pure: numbers in, verdicts out.
//!
//! An object that was not read while another was read three times is probably not read any more. That may be wrong (two
//! jobs, each with its own order), so each trade is judged by which of its two objects is read first afterwards, and
//! trades are paid from a credit that good ones fill and bad ones drain (docs/decisions/0004).

use block::ObjectId;
use std::collections::HashMap;

/// A moment on the clock, in ticks; 0 is never.
pub type Stamp = u32;

/// Ticks of one cacheful: the capacity read once.
const TICKS_PER_CACHEFUL: u64 = 1 << 16;

/// Moments at which the clock is turned back, and by how much: 32,768 cachefuls.
const TURN_BACK_AT: Stamp = 1 << 31;

/// Opens of an object within this share of a cacheful (or of its set, if that is less) are one use: eight workers that
/// open each file at about the same time read it once.
const BURST_SHARE: u64 = 4;

/// The most bursts that must lie between two uses for both to be evidence.
const PATIENCE_MAX: u32 = 16;

/// Share of the capacity that trades may cost before the first of them is judged.
const CREDIT_AT_FIRST: u64 = 4;

/// Share of the capacity that is left when trades turn out to be bad.
const CREDIT_IN_DOUBT: u64 = 16;

/// Share of the capacity that is there again after each cacheful that was read, to try whether trades have become good.
const CREDIT_PER_CACHEFUL: u64 = 64;

/// What a won trade earns, and a lost one costs, in its own bytes.
const EARNED: u64 = 8;
const FORFEITED: u64 = 2;

/// Trades by which the patience is judged, and how many of them may be lost.
const JUDGED: u8 = 8;
const LOST_MAX: u8 = 1;

/// Trades whose outcome is waited for: 64 bytes each. A share of a cacheful of trades that were made since the last of
/// them counts with the next.
const TRIALS_MAX: usize = 2048;
const TRIAL_SHARE: u64 = 1024;

/// How many of such gaps something lies unread that is probably not read any more. Where each is read once an epoch, the
/// longest gap is of one to two epochs.
const GAPS: u32 = 2;

/// The clock, and how much may be traded.
pub struct Admission {
    capacity: u64,
    /// Bytes of objects opened, bursts counted once.
    clock: u64,
    pub patience: u32,
    pub credit: u64,
    judged: u8,
    lost: u8,
    /// Either object of a trade, with the other, whether it came, and the bytes that are judged.
    trials: HashMap<ObjectId, Trial>,
    /// Bytes traded since the last trial began.
    untried: u64,
    /// How long what is read again was not read, at most: in this cacheful, and in the one before.
    gaps: [Stamp; 2],
}

struct Trial {
    other: ObjectId,
    came: bool,
    bytes: u64,
}

/// The last uses of an object, newest first; those that count as evidence.
pub type Uses = [Stamp; 3];

impl Admission {
    pub fn new(capacity: u64) -> Admission {
        Admission {
            capacity,
            clock: 0,
            patience: 1,
            credit: capacity / CREDIT_AT_FIRST,
            judged: 0,
            lost: 0,
            trials: HashMap::new(),
            untried: 0,
            gaps: [0; 2],
        }
    }

    /// Now. Never 0.
    pub fn now(&self) -> Stamp {
        u32::try_from(self.clock / self.tick() + 1).unwrap_or(u32::MAX)
    }

    /// Turn the clock back before its stamps overflow: all stamps are to be made smaller by this much.
    pub fn turn_back(&mut self) -> Option<Stamp> {
        // The first moment is 1: only behind this one the clock itself has gone so far.
        let back = (self.now() > TURN_BACK_AT).then_some(TURN_BACK_AT)?;
        self.clock -= u64::from(back) * self.tick();
        Some(back)
    }

    /// Whether an open after the last one that counted is a use of its own.
    pub fn is_use(&self, last: Stamp, set_bytes: u64) -> bool {
        last == 0 || self.now() - last.min(self.now()) >= self.burst(set_bytes)
    }

    /// A use: the clock goes on by the bytes of the object, and trades are judged by it. No use counts for more than a cacheful: what
    /// is larger tells no more, and a size that another member told may be a lie.
    pub fn used(&mut self, id: ObjectId, bytes: u64) {
        let before = self.clock / self.capacity.max(1);
        self.clock = self.clock.saturating_add(bytes.min(self.capacity));
        if self.clock / self.capacity.max(1) != before {
            self.credit = self.credit.max(self.capacity / CREDIT_PER_CACHEFUL);
            self.gaps = [0, self.gaps[0]];
        }
        self.judge(id);
    }

    /// Something is read again that was read last then.
    pub fn read_again(&mut self, last: Stamp) {
        self.gaps[0] = self.gaps[0].max(self.now() - last.min(self.now()));
    }

    /// What was not opened since this moment is probably not read any more: it lies unread for more than twice as long as
    /// all that was read again of late. Never, where nothing was.
    pub fn stale_before(&self) -> Stamp {
        let [_, before] = self.gaps;
        let most = self.gaps[0].max(before).saturating_mul(GAPS).saturating_add(self.burst(u64::MAX));
        if before == 0 { 0 } else { self.now().saturating_sub(most) }
    }

    /// Uses that are evidence for whatever took place since this moment.
    pub fn uses_since(&self, since: Stamp) -> Uses {
        let now = self.now();
        [now, now, since.saturating_add(self.burst(u64::MAX)).min(now)]
    }

    /// Add a use to the evidence, if it is far enough from the one before.
    pub fn note(&self, uses: &mut Uses, set_bytes: u64) {
        let now = self.now();
        if uses[0] == 0 || now - uses[0].min(now) >= self.burst(set_bytes).saturating_mul(self.patience) {
            *uses = [now, uses[0], uses[1]];
        }
    }

    /// Objects that were not opened since this moment may give way to one with these uses.
    pub fn evidence(&self, uses: &Uses) -> Option<Stamp> {
        (uses[2] != 0 && self.credit > 0).then(|| uses[2].saturating_sub(self.burst(u64::MAX)))
    }

    /// One object took the place of another.
    pub fn traded(&mut self, came: ObjectId, left: ObjectId, bytes: u64) {
        self.credit = self.credit.saturating_sub(bytes);
        self.untried = self.untried.saturating_add(bytes);
        if self.untried < self.capacity / TRIAL_SHARE {
            return;
        }
        let bytes = std::mem::take(&mut self.untried);
        self.try_out(came, left, bytes);
    }

    fn end(&mut self, id: ObjectId) -> Option<Trial> {
        let trial = self.trials.remove(&id)?;
        self.trials.remove(&trial.other);
        Some(trial)
    }

    /// The object is used: of its trade, if there is one, it is the first.
    fn judge(&mut self, id: ObjectId) {
        let Some(trial) = self.end(id) else { return };
        self.judged += 1;
        match trial.came {
            true => self.credit = self.credit.saturating_add(trial.bytes.saturating_mul(EARNED)).min(self.capacity),
            false => {
                self.credit = self.credit.saturating_sub(trial.bytes.saturating_mul(FORFEITED));
                self.lost += 1;
            }
        }
        if self.lost > LOST_MAX {
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
            self.credit = self.credit.min(self.capacity / CREDIT_IN_DOUBT);
        } else if self.judged < JUDGED {
            return;
        } else if self.lost == 0 {
            self.patience = 1;
        }
        (self.judged, self.lost) = (0, 0);
    }

    /// Capacity, clock and credit.
    pub fn save(&self) -> [u64; 3] {
        [self.capacity, self.clock, self.credit]
    }

    /// Trades whose outcome is waited for: what came, what left, and the bytes.
    pub fn trials(&self) -> Vec<(ObjectId, ObjectId, u64)> {
        let came = self.trials.iter().filter(|(_, trial)| trial.came);
        let mut all: Vec<_> = came.map(|(came, trial)| (*came, trial.other, trial.bytes)).collect();
        all.sort_unstable();
        all
    }

    /// Go on where somebody stopped, whose tick comes back. Bounded, whatever is said.
    pub fn restore(&mut self, [capacity, clock, credit]: [u64; 3], patience: u32) -> u64 {
        self.clock = clock.min(self.tick().saturating_mul(u64::from(TURN_BACK_AT) - 1));
        self.credit = credit.min(self.capacity);
        self.patience = patience.clamp(1, PATIENCE_MAX);
        Admission::new(capacity).tick()
    }

    /// Wait for the outcome of a trade.
    pub fn try_out(&mut self, came: ObjectId, left: ObjectId, bytes: u64) {
        if self.trials.len() >= 2 * TRIALS_MAX {
            self.trials.clear();
        }
        self.end(came);
        self.end(left);
        self.trials.insert(came, Trial { other: left, came: true, bytes });
        self.trials.insert(left, Trial { other: came, came: false, bytes });
    }

    /// A stamp in ticks of so many bytes, on this clock. Never later than now.
    pub fn stamp_of(&self, stamp: Stamp, tick: u64) -> Stamp {
        let here = u128::from(stamp) * u128::from(tick) / u128::from(self.tick());
        u32::try_from(here).unwrap_or(u32::MAX).min(self.now())
    }

    /// Bytes of memory taken at most.
    pub const BYTES_MAX: u64 = 2 * TRIALS_MAX as u64 * 2 * 80;

    fn burst(&self, set_bytes: u64) -> u32 {
        let ticks = self.capacity.min(set_bytes) / BURST_SHARE / self.tick();
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// Bytes of one tick.
    fn tick(&self) -> u64 {
        (self.capacity / TICKS_PER_CACHEFUL).max(1)
    }
}
