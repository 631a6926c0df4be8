//! Two ranks in one process, for tests of what they do together.

use block::Result;
use ranks::Ranks;
use std::sync::{Arc, Barrier, Mutex};

/// One of the two, on a thread of its own.
pub struct Pair {
    rank: u32,
    meeting: Arc<Barrier>,
    table: Arc<Mutex<[Vec<u8>; 2]>>,
}

impl Pair {
    pub fn both() -> [Pair; 2] {
        let (meeting, table) = (Arc::new(Barrier::new(2)), Arc::new(Mutex::default()));
        [0, 1].map(|rank| Pair { rank, meeting: meeting.clone(), table: table.clone() })
    }

    /// What both put on the table.
    fn together(&self, own: &[u8]) -> [Vec<u8>; 2] {
        self.table.lock().unwrap()[self.rank as usize] = own.to_vec();
        self.meeting.wait();
        let all = self.table.lock().unwrap().clone();
        // Neither puts the next thing there before both have seen this one.
        self.meeting.wait();
        all
    }
}

impl Ranks for Pair {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        2
    }

    fn barrier(&self) -> Result<()> {
        self.meeting.wait();
        Ok(())
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let all = self.together(own);
        Ok(if self.rank == 0 { all.to_vec() } else { Vec::new() })
    }

    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>> {
        let [first, _] = self.together(&own);
        Ok(first)
    }
}
