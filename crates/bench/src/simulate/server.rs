//! A resource that divides its capacity evenly among the flows in it: a store, a network card, a disk, a quota of
//! requests. Processor sharing in virtual time, so that an arrival or a departure costs O(log n).
//!
//! It knows no events and no loop; the caller says what time it is. Invariant: no more than the capacity is given out
//! in any moment, no flow gets more than a stream may have, and work is conserved between these two.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A flow may be this share of its work, and of the time, from its end and count as done: sums are rounded. It is far
/// more than the rounding, so that time goes on.
const ROUNDING: f64 = 1e-12;

/// Units are the caller's: bytes and bytes per second, or requests and requests per second.
#[derive(Debug)]
pub struct Server {
    capacity: f64,
    stream: f64,
    /// Work that a flow has got which has been here since virtual time began.
    work: f64,
    /// When `work` was right.
    since: f64,
    /// Value of `work` at which each flow is done. Floats without sign order as their bits do.
    flows: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Server {
    /// Capacity of all flows together, and of one; infinite where there is no limit, but not both.
    pub fn new(capacity: f64, stream: f64) -> Server {
        assert!(capacity > 0.0 && stream > 0.0 && capacity.min(stream).is_finite(), "a server has a finite rate");
        Server { capacity, stream, work: 0.0, since: 0.0, flows: BinaryHeap::new() }
    }

    /// What each flow gets now.
    fn rate(&self) -> f64 {
        self.stream.min(self.capacity / self.flows.len() as f64)
    }

    fn advance(&mut self, now: f64) {
        if self.flows.is_empty() {
            self.work = 0.0;
        } else {
            self.work += self.rate() * (now - self.since);
        }
        self.since = now;
    }

    pub fn enter(&mut self, now: f64, flow: u32, size: f64) {
        self.advance(now);
        self.flows.push(Reverse(((self.work + size).to_bits(), flow)));
    }

    /// The next flow that is done by now.
    pub fn leave(&mut self, now: f64) -> Option<u32> {
        self.advance(now);
        let Reverse((bits, flow)) = *self.flows.peek()?;
        let end = f64::from_bits(bits);
        if end - self.work > ROUNDING * (end + self.rate() * now.max(1.0)) {
            return None;
        }
        self.flows.pop();
        Some(flow)
    }

    /// When the next flow will be done if none comes.
    pub fn next(&self) -> Option<f64> {
        let Reverse((bits, _)) = self.flows.peek()?;
        Some(self.since + (f64::from_bits(*bits) - self.work).max(0.0) / self.rate())
    }
}

#[cfg(test)]
mod tests {
    use super::super::latency::Draws;
    use super::Server;

    /// Mean time that flows stay which arrive by chance, once the queue is steady.
    fn stay(server: &mut Server, arrivals_per_second: f64, size: impl Fn(&mut Draws) -> f64) -> f64 {
        const FLOWS: u32 = 400_000;
        const WARM: u32 = 20_000;
        let mut draws = Draws::of(7, 1);
        let (mut came, mut now, mut sum, mut left) = (vec![0.0; FLOWS as usize], 0.0, 0.0, 0);
        let mut next = draws.exponential() / arrivals_per_second;
        let mut flow = 0;
        while left < FLOWS {
            let done = server.next().unwrap_or(f64::INFINITY);
            if flow < FLOWS && next < done {
                now = next;
                came[flow as usize] = now;
                server.enter(now, flow, size(&mut draws));
                (flow, next) = (flow + 1, now + draws.exponential() / arrivals_per_second);
            } else {
                now = done.max(now);
                while let Some(gone) = server.leave(now) {
                    sum += if gone >= WARM { now - came[gone as usize] } else { 0.0 };
                    left += 1;
                }
            }
        }
        sum / f64::from(FLOWS - WARM)
    }

    fn assert_near(found: f64, right: f64) {
        assert!((found / right - 1.0).abs() < 0.03, "{found} is not {right}");
    }

    #[test]
    fn one_shared_server_keeps_flows_as_long_as_m_m_1_and_m_d_1_with_processor_sharing() {
        // 1 / (mu - lambda), whatever the sizes are like: the queue is insensitive.
        assert_near(stay(&mut Server::new(1.0, f64::INFINITY), 0.7, Draws::exponential), 1.0 / 0.3);
        assert_near(stay(&mut Server::new(1.0, f64::INFINITY), 0.7, |_| 1.0), 1.0 / 0.3);
        assert_near(stay(&mut Server::new(2.0, f64::INFINITY), 0.5, |_| 1.0), 1.0 / 1.5);
    }

    #[test]
    fn streams_with_a_limit_keep_flows_as_long_as_m_m_c() {
        // Erlang's C: 8 servers at 80 %.
        let (servers, load) = (8.0_f64, 6.4_f64);
        let term = |count: u32| (1..=count).fold(1.0, |product, each| product * load / f64::from(each));
        let waiting = term(8) / (1.0 - load / servers);
        let chance = waiting / ((0..8).map(term).sum::<f64>() + waiting);
        let right = 1.0 + chance / (servers - load);
        assert_near(stay(&mut Server::new(servers, 1.0), load, Draws::exponential), right);
    }

    #[test]
    fn a_stream_alone_gets_its_limit_and_two_share_what_there_is() {
        let mut server = Server::new(10.0, 8.0);
        server.enter(0.0, 1, 16.0);
        assert_eq!(server.next(), Some(2.0));
        server.enter(1.0, 2, 4.0);
        assert_eq!(server.next(), Some(1.8));
        assert_eq!(server.leave(1.5), None);
        assert_eq!(server.leave(1.8), Some(2));
        assert_eq!(server.next(), Some(2.3));
    }
}
