//! The files with holes that the index knows of, and the memory that they take.

use crate::disk::filling::Filling;
use block::ObjectId;
use std::collections::HashMap;
use std::sync::Arc;

/// Files with holes, by segment.
#[derive(Default)]
pub struct Fillings {
    all: HashMap<ObjectId, Arc<Filling>>,
    bytes: u64,
}

impl Fillings {
    pub fn get(&self, id: ObjectId) -> Option<&Arc<Filling>> {
        self.all.get(&id)
    }

    pub fn insert(&mut self, filling: Arc<Filling>) {
        self.remove(filling.residency.id);
        self.bytes += filling.memory_bytes();
        self.all.insert(filling.residency.id, filling);
    }

    pub fn remove(&mut self, id: ObjectId) -> Option<Arc<Filling>> {
        let filling = self.all.remove(&id)?;
        self.bytes -= filling.memory_bytes();
        Some(filling)
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<Filling>> {
        self.all.values()
    }

    /// Anonymous memory that they take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
