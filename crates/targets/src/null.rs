//! A target that moves no bytes: what the loop itself costs, which is the ceiling of every measurement.
//!
//! Invariant: it answers at once, and never with an error.

use block::{Error, Result};

use super::{Listed, Opened, Target, Writable};

/// Files without content. Reads say that the buffer was filled and leave it as it was.
pub struct Null {
    files: Vec<Listed>,
}

impl Null {
    pub fn of(files: Vec<Listed>) -> Null {
        Null { files }
    }
}

struct Nothing {
    bytes: u64,
}

impl Target for Null {
    fn url(&self) -> &str {
        "null:"
    }

    fn list(&self) -> Result<Vec<Listed>> {
        Ok(self.files.clone())
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        let found = self.files.iter().find(|file| &*file.name == name);
        found.cloned().ok_or_else(|| Error::missing("there is no such file", name))
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        Ok(Box::new(Nothing { bytes: file.bytes }))
    }

    fn writable(&self) -> Option<&dyn Writable> {
        None
    }

    fn is_cached(&self) -> bool {
        false
    }
}

impl Opened for Nothing {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize)
    }
}
