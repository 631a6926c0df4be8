//! Values by object, packed: no vacant place between them, four to eleven bytes of index for each. Knows nothing of them
//! but their ids.
//!
//! Invariant: each value is found by its id, and the positions are `0..len()`.

use block::ObjectId;

/// A value that bears the id of an object.
pub trait Keyed {
    fn id(&self) -> ObjectId;
}

/// Values in a row, and an open-addressed index of their positions.
pub struct Slab<T> {
    values: Vec<T>,
    places: Vec<u32>,
}

/// A place of the index that names no value.
const VACANT: u32 = u32::MAX;

/// Places of the smallest index: a power of two, as all later ones.
const PLACES_MIN: usize = 16;

impl<T: Keyed> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab { values: Vec::new(), places: vec![VACANT; PLACES_MIN] }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of memory taken.
    pub fn bytes(&self) -> u64 {
        (self.values.capacity() * size_of::<T>() + self.places.capacity() * size_of::<u32>()) as u64
    }

    pub fn get(&self, id: ObjectId) -> Option<&T> {
        self.values.get(self.places[self.seek(id)] as usize)
    }

    pub fn get_mut(&mut self, id: ObjectId) -> Option<&mut T> {
        let position = self.places[self.seek(id)];
        self.values.get_mut(position as usize)
    }

    pub fn values(&self) -> &[T] {
        &self.values
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut()
    }

    /// Add a value, in place of the one that bore its id.
    pub fn insert(&mut self, value: T) -> Option<T> {
        if let Some(before) = self.get_mut(value.id()) {
            return Some(std::mem::replace(before, value));
        }
        // At most three quarters full, so that a search looks at few places.
        if (self.values.len() + 1) * 4 > self.places.len() * 3 {
            self.widen();
        }
        if self.values.len() == self.values.capacity() {
            // Doubling would leave up to half of the memory unused.
            self.values.reserve_exact(self.values.len() / 16 + PLACES_MIN);
        }
        let place = self.seek(value.id());
        self.places[place] = u32::try_from(self.values.len()).expect("fewer than four billion files");
        self.values.push(value);
        None
    }

    /// Take a value out; the last one moves to its position.
    pub fn remove(&mut self, id: ObjectId) -> Option<T> {
        let place = self.seek(id);
        let position = self.places[place];
        if position == VACANT {
            return None;
        }
        self.vacate(place);
        if position as usize + 1 < self.values.len() {
            let last = self.seek(self.values.last()?.id());
            self.places[last] = position;
        }
        Some(self.values.swap_remove(position as usize))
    }

    /// The place that names this id, or the vacant one where it would be named.
    fn seek(&self, id: ObjectId) -> usize {
        let mask = self.places.len() - 1;
        let mut place = self.home(id);
        while let Some(value) = self.values.get(self.places[place] as usize)
            && value.id() != id
        {
            place = (place + 1) & mask;
        }
        place
    }

    /// Where the search for an id begins. Scattered, so that ids in a row don't make one long row of places.
    fn home(&self, id: ObjectId) -> usize {
        let scattered = (id.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (scattered >> (64 - self.places.len().trailing_zeros())) as usize
    }

    /// Empty a place, and move those up that were pushed on by it.
    fn vacate(&mut self, place: usize) {
        let mask = self.places.len() - 1;
        let (mut hole, mut next) = (place, place);
        loop {
            next = (next + 1) & mask;
            let Some(value) = self.values.get(self.places[next] as usize) else { break };
            let from_home = next.wrapping_sub(self.home(value.id())) & mask;
            if from_home >= next.wrapping_sub(hole) & mask {
                self.places[hole] = self.places[next];
                hole = next;
            }
        }
        self.places[hole] = VACANT;
    }

    fn widen(&mut self) {
        self.places = vec![VACANT; self.places.len() * 2];
        let mask = self.places.len() - 1;
        for (position, value) in self.values.iter().enumerate() {
            let mut place = self.home(value.id());
            while self.places[place] != VACANT {
                place = (place + 1) & mask;
            }
            self.places[place] = position as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Pair(u128, u32);

    impl Keyed for Pair {
        fn id(&self) -> ObjectId {
            ObjectId(self.0)
        }
    }

    proptest! {
        /// Few ids, and half of them with one home, so that places are pushed on and moved up all the time.
        #[test]
        fn a_slab_holds_what_a_map_holds(steps in prop::collection::vec((0u128..60, 0u8..3, any::<u32>()), 0..400)) {
            let (mut slab, mut map) = (Slab::new(), BTreeMap::new());
            for (n, step, value) in steps {
                let key = if n < 30 { n << 64 | 15 } else { n };
                match step {
                    0 => prop_assert_eq!(slab.remove(ObjectId(key)), map.remove(&key).map(|value| Pair(key, value))),
                    _ => {
                        let before = slab.insert(Pair(key, value));
                        prop_assert_eq!(before, map.insert(key, value).map(|value| Pair(key, value)));
                    }
                }
                let mut held: Vec<_> = slab.values().iter().map(|pair| (pair.0, pair.1)).collect();
                held.sort_unstable();
                prop_assert_eq!(&held, &map.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>());
                for key in (0..30).map(|n| n << 64 | 15).chain(30..60) {
                    prop_assert_eq!(slab.get(ObjectId(key)).map(|pair| pair.1), map.get(&key).copied());
                    prop_assert_eq!(slab.get_mut(ObjectId(key)).map(|pair| pair.1), map.get(&key).copied());
                }
            }
            prop_assert!(slab.places.len() * 3 >= slab.len() * 4);
        }
    }
}
