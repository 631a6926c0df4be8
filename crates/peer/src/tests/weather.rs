//! A network in memory whose wires are slow, fall silent or break, as a seed says. What was sent on a silent wire comes when it
//! speaks again, as it does over TCP; a wire that breaks tells both ends.

use crate::{Seat, Transport, Twin, Wire};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Bytes that travel together.
const PACKET: usize = 64 << 10;

/// Bytes in a wire before who sends waits.
const WIRE_BYTES: usize = 1 << 20;

/// Numbers out of a seed (SplitMix64).
#[derive(Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

/// The network, as all members see it.
#[derive(Clone)]
pub struct Weather(Arc<Parts>);

struct Parts {
    twin: Twin,
    sky: Mutex<Sky>,
    changed: Notify,
}

struct Sky {
    chance: Chance,
    delay_ms: u64,
    /// Pairs of members between which nothing travels, either way, and for how many reasons.
    silent: BTreeMap<(u128, u128), u32>,
    /// Of each member, what ends its wires.
    breaks: BTreeMap<u128, Arc<Notify>>,
}

/// The network from one member's place.
pub struct At {
    weather: Weather,
    me: u128,
}

impl Weather {
    pub fn new(twin: Twin, seed: u64) -> Weather {
        let sky = Sky { chance: Chance::new(seed), delay_ms: 1, silent: BTreeMap::new(), breaks: BTreeMap::new() };
        Weather(Arc::new(Parts { twin, sky: Mutex::new(sky), changed: Notify::new() }))
    }

    pub fn at(&self, me: u128) -> At {
        At { weather: self.clone(), me }
    }

    /// Packets take up to so many milliseconds from now on.
    pub fn slow(&self, delay_ms: u64) {
        self.sky().delay_ms = delay_ms;
    }

    /// Between two members nothing travels any more, or it does again.
    pub fn silence(&self, one: u128, other: u128, is_silent: bool) {
        *self.sky().silent.entry(pair(one, other)).or_default() += u32::from(is_silent);
        if !is_silent {
            self.sky().silent.entry(pair(one, other)).and_modify(|reasons| *reasons -= 1);
        }
        self.0.changed.notify_waiters();
    }

    async fn speaks(&self, pair: (u128, u128)) {
        loop {
            let changed = self.0.changed.notified();
            if self.sky().silent.get(&pair).is_none_or(|reasons| *reasons == 0) {
                return;
            }
            changed.await;
        }
    }

    /// All wires of a member break.
    pub fn break_wires(&self, member: u128) {
        self.breaks(member).notify_waiters();
    }

    /// No `watch`: it wakes who waits in an order by chance, which no seed draws again.
    fn breaks(&self, member: u128) -> Arc<Notify> {
        self.sky().breaks.entry(member).or_default().clone()
    }

    fn sky(&self) -> MutexGuard<'_, Sky> {
        self.0.sky.lock().expect("nobody panicked")
    }

    /// Carry packets one way until an end closes.
    async fn carry(self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, pair: (u128, u128)) {
        let mut packet = vec![0; PACKET];
        while let Ok(length @ 1..) = from.read(&mut packet).await {
            let delay = {
                let mut sky = self.sky();
                let most = sky.delay_ms;
                sky.chance.below(most + 1)
            };
            tokio::time::sleep(Duration::from_millis(delay)).await;
            self.speaks(pair).await;
            if to.write_all(&packet[..length]).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    }
}

fn pair(one: u128, other: u128) -> (u128, u128) {
    (one.min(other), one.max(other))
}

impl Transport for At {
    fn connect(&self, seat: &Seat) -> BoxFuture<'static, io::Result<Wire>> {
        let (weather, me, seat) = (self.weather.clone(), self.me, seat.clone());
        Box::pin(async move {
            let pair = pair(me, seat.id);
            weather.speaks(pair).await;
            let there = weather.0.twin.connect(&seat).await?;
            let (here, near) = tokio::io::duplex(WIRE_BYTES);
            let (near_read, near_write) = tokio::io::split(near);
            let [mine, theirs] = [me, seat.id].map(|member| weather.breaks(member));
            tokio::spawn(async move {
                let away = weather.clone().carry(near_read, there.write, pair);
                let back = weather.carry(there.read, near_write, pair);
                tokio::select! {
                    biased;
                    () = mine.notified() => {}
                    () = theirs.notified() => {}
                    _ = async { tokio::join!(away, back) } => {}
                }
            });
            Ok(Wire::of(here))
        })
    }
}
