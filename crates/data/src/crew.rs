//! Numbered work shared among threads.
//!
//! It doesn't queue, retry or keep threads: they live as long as one call.
//! Invariant: results come back in the order of their numbers; after a failure no new number is begun.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use block::Result;

/// Does `work` for each number below `count` and gathers the results, or the first failure.
pub fn share<T: Send>(threads: usize, count: u64, work: &(dyn Fn(u64) -> Result<T> + Sync)) -> Result<Vec<T>> {
    let next = AtomicU64::new(0);
    let stopped = AtomicBool::new(false);
    let done = Mutex::new(Vec::new());
    let turn = || -> Result<()> {
        let mut mine = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number).inspect_err(|_| stopped.store(true, Ordering::Relaxed))?;
            mine.push((number, result));
        }
        done.lock().expect("no thread panics while it holds the results").append(&mut mine);
        Ok(())
    };
    thread::scope(|scope| {
        let crew: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(turn)).collect();
        // Every thread is joined before the first failure is returned, so that none outlives its error.
        let ends: Vec<_> = crew.into_iter().map(|member| member.join().expect("work doesn't panic")).collect();
        ends.into_iter().collect::<Result<()>>()
    })?;
    let mut done = done.into_inner().expect("all threads have ended");
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Error;

    #[test]
    fn results_come_in_the_order_of_their_numbers() {
        let squares = share(3, 100, &|number| Ok(number * number)).unwrap();
        assert_eq!(squares, (0..100).map(|number| number * number).collect::<Vec<u64>>());
    }

    #[test]
    fn the_first_failure_ends_the_work() {
        let begun = AtomicU64::new(0);
        let result: Result<Vec<()>> = share(1, 1_000, &|number| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number == 3 { Err(Error::full("no room", number)) } else { Ok(()) }
        });
        assert_eq!(result.unwrap_err().on, "3");
        assert_eq!(begun.into_inner(), 4);
    }
}
