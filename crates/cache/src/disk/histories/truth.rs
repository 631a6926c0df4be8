//! What is true: objects, their bytes, and a store that gives them, with the faults that stores have.
//!
//! Content is cut out of one sheet of noise, so that making it costs nothing and no two objects agree anywhere.

use super::chance::Chance;
use block::{
    Address, BLOCK, Block, Blocks, Checksum, Door, Error, Object, ObjectId, Proof, Result, Run, SMALL, Source, Waiting,
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

const NOISE_BYTES: u64 = 36 << 20;

/// Distance between the contents of two objects within the noise; odd, so that they differ in every page.
const APART: u64 = 70_001;

/// What the errors of the store say, so that they can be distinguished from those of the tier.
pub const STORE_FAILS: &str = "the simulated store fails";

/// Sizes of objects: around the edges of checksums, blocks, small objects and stripes.
pub const SIZES: [u64; 14] = [
    0,
    1,
    1_000,
    65_535,
    65_536,
    65_537,
    BLOCK - 1,
    BLOCK + 1,
    SMALL - 1,
    SMALL,
    SMALL + 1,
    SMALL + 70_000,
    SMALL + BLOCK,
    SMALL + BLOCK + 65_536,
];

/// Sizes around a stripe, for the few histories that can pay for them.
pub const LARGE_SIZES: [u64; 4] = [16 * SMALL - 1, 16 * SMALL, 16 * SMALL + 1, 17 * SMALL + 70_000];

fn noise() -> Bytes {
    static NOISE: OnceLock<Bytes> = OnceLock::new();
    let make = || {
        let mut chance = Chance::of(0x5eed);
        let words = (0..NOISE_BYTES / 8).flat_map(|_| chance.number().to_le_bytes());
        words.collect::<Vec<u8>>().into()
    };
    NOISE.get_or_init(make).clone()
}

/// What a store tells of whole objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tells {
    Nothing,
    /// A checksum that combines.
    Crc64,
    /// One that does not.
    Crc32C,
}

/// Something that exists: an object, its bytes, and what the store tells of it.
#[derive(Clone)]
pub struct Truth {
    pub object: Arc<Object>,
    pub bytes: Bytes,
    tells: Option<Checksum>,
}

impl Truth {
    /// The version of a key that was written as the `number`th of all.
    pub fn new(key: u64, number: u64, size: u64, tells: Tells) -> Truth {
        let at = number % 200 * APART;
        let bytes = noise().slice(at as usize..(at + size) as usize);
        let object = Object {
            store: "memory:".into(),
            key: format!("folder{}/{key}", key % 2),
            version: format!("v{number}"),
            size,
        };
        let tells = match tells {
            Tells::Nothing => None,
            Tells::Crc64 => Some(Checksum::Crc64Nvme(sum(number % 200, size, Checksum::Crc64Nvme(0)))),
            Tells::Crc32C => Some(Checksum::Crc32C(sum(number % 200, size, Checksum::Crc32C(0)) as u32)),
        };
        Truth { object: Arc::new(object), bytes, tells }
    }

    pub fn is_described(&self) -> bool {
        self.tells.is_some()
    }

    pub fn block(&self, index: u32) -> Bytes {
        let range = Address { object: self.object.clone(), index }.range();
        self.bytes.slice(range.start as usize..range.end as usize)
    }
}

/// The checksum of a piece of the noise; computed once, for many histories ask.
fn sum(place: u64, size: u64, kind: Checksum) -> u64 {
    static SUMS: Mutex<BTreeMap<(u64, u64, bool), u64>> = Mutex::new(BTreeMap::new());
    let is_crc64 = matches!(kind, Checksum::Crc64Nvme(_));
    let compute = || {
        let mut digest = kind.digest();
        digest.update(&noise()[(place * APART) as usize..(place * APART + size) as usize]);
        digest.value()
    };
    let mut sums = SUMS.lock().unwrap_or_else(PoisonError::into_inner);
    *sums.entry((place, size, is_crc64)).or_insert_with(compute)
}

/// The store.
#[derive(Clone, Default)]
pub struct Store(Arc<Mutex<State>>);

pub struct State {
    truths: BTreeMap<ObjectId, Truth>,
    pub chance: Chance,
    pub mood: Mood,
    /// Blocks of which wrong bytes were given once.
    pub lies: BTreeSet<(ObjectId, u32)>,
    /// Blocks that were given since the program was started.
    pub fetched: BTreeSet<(ObjectId, u32)>,
}

impl Default for State {
    fn default() -> State {
        let (truths, mood, lies, fetched) = Default::default();
        State { truths, chance: Chance::of(0), mood, lies, fetched }
    }
}

/// How the store behaves for a while; each is one in so many, 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mood {
    /// Blocks and answers that don't come.
    pub fails: u64,
    /// Blocks that are wrong; only of objects that are described, in runs that the store could not compare.
    pub lies: u64,
    /// Answers that take a moment.
    pub waits: u64,
}

impl State {
    fn happens(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.chance.one_in(one_in)
    }

    /// Bytes that were given since the program was started, each counted once.
    pub fn fetched_bytes(&self) -> u64 {
        let length =
            |(id, index): &(ObjectId, u32)| self.truths.get(id).map_or(0, |truth| truth.block(*index).len() as u64);
        self.fetched.iter().map(length).sum()
    }

    fn block(&mut self, address: Address, is_whole: bool) -> Result<Block> {
        let Some(truth) = self.truths.get(&address.object.id()).cloned() else {
            return Err(Error::missing("there is no such object", &*address.object));
        };
        if self.happens(self.mood.fails) {
            return Err(Error::unavailable(STORE_FAILS, &*address.object));
        }
        let key = (address.object.id(), address.index);
        self.fetched.insert(key);
        let bytes = truth.block(address.index);
        if truth.is_described() && !is_whole && self.happens(self.mood.lies) {
            self.lies.insert(key);
            return Block::verified(address, vec![lie(&bytes)], Proof::Store);
        }
        // In two pieces now and then, as the network cuts them.
        let cut = if self.chance.one_in(4) { self.chance.below(bytes.len() as u64) as usize } else { 0 };
        let pieces = if cut == 0 { vec![bytes] } else { vec![bytes.slice(..cut), bytes.slice(cut..)] };
        Block::verified(address, pieces, Proof::Store)
    }
}

/// The wrong bytes of a block: always the same ones, so that they are known again.
pub fn lie(bytes: &Bytes) -> Bytes {
    let mut wrong = bytes.to_vec();
    let middle = wrong.len() / 2;
    wrong[middle] ^= 0x10;
    wrong.into()
}

impl Store {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, truth: Truth) {
        self.state().truths.insert(truth.object.id(), truth);
    }

    /// Let others go first, at times.
    async fn moment(self) {
        let waits = {
            let mut state = self.state();
            let one_in = state.mood.waits;
            state.happens(one_in)
        };
        if waits {
            tokio::task::yield_now().await;
        }
    }
}

impl Source for Store {
    fn fetch(&self, run: Run) -> Blocks {
        let (store, is_whole) = (self.clone(), run.is_whole());
        let blocks = futures_util::stream::iter(run.addresses()).then(move |address| {
            let store = store.clone();
            async move {
                store.clone().moment().await;
                store.state().block(address, is_whole)
            }
        });
        block::until_failed(blocks)
    }

    fn checksum(&self, object: &Arc<Object>, _: Door) -> Waiting<Option<Checksum>> {
        let (store, object) = (self.clone(), object.clone());
        let answer = async move {
            store.clone().moment().await;
            let mut state = store.state();
            let one_in = state.mood.fails;
            if state.happens(one_in) {
                return Err(Error::unavailable(STORE_FAILS, &*object));
            }
            Ok(state.truths.get(&object.id()).and_then(|truth| truth.tells))
        };
        answer.boxed()
    }
}
