//! A target with the limits of a catalogued disk laid over it: bandwidth, reads per second, latency.
//!
//! It makes nothing faster and caches nothing. Invariant: over any time longer than its burst, no more passes than its
//! limits say.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use block::Result;

use super::{Created, Given, Listed, Opened, Target, Writable};
use crate::clock::{Clock, Moment, SECOND, nanoseconds};

/// Bytes that a disk moves in one operation; longer reads are several.
const OPERATION: u64 = 1 << 20;

/// What may pass at once after a pause. A credit for long would show the disk faster than it is in a short run.
const BURST: u64 = SECOND / 100;

/// The limits of a disk; what is absent has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    pub bytes_per_second: Option<u64>,
    pub operations_per_second: Option<u64>,
    pub latency_seconds: Option<f64>,
}

/// One limit: the moment until which it is used up.
struct Bucket {
    per_second: f64,
    until: Mutex<Moment>,
}

impl Bucket {
    /// Take an amount. Gives the moment at which it may have passed.
    fn take(&self, amount: u64, now: Moment) -> Moment {
        let mut until = self.until.lock().expect("nothing panics while it holds a number");
        *until = (*until).max(now.saturating_sub(BURST)) + nanoseconds(amount as f64 / self.per_second);
        *until
    }
}

struct Limits {
    bytes: Option<Bucket>,
    operations: Option<Bucket>,
    latency: u64,
    clock: Arc<dyn Clock>,
    /// What was read, for whoever draws it against the limits.
    reads: AtomicU64,
    read_bytes: AtomicU64,
    busy: AtomicU64,
}

impl Limits {
    /// Wait as long as an operation of so many bytes takes that was begun at this moment.
    fn pass(&self, bytes: u64, begun: Moment) {
        let operations = bytes.div_ceil(OPERATION).max(1);
        let free = [(&self.bytes, bytes), (&self.operations, operations)]
            .into_iter()
            .filter_map(|(bucket, amount)| Some(bucket.as_ref()?.take(amount, begun)));
        let end = free.max().unwrap_or(begun).max(begun) + self.latency;
        self.clock.sleep_until(end);
        let used = [(&self.bytes, bytes), (&self.operations, operations)];
        let used = used.iter().filter_map(|(bucket, amount)| Some(*amount as f64 / bucket.as_ref()?.per_second));
        self.busy.fetch_add(nanoseconds(used.fold(0.0, f64::max)), Ordering::Relaxed);
    }

    /// Wait for a read.
    fn read(&self, bytes: u64, begun: Moment) {
        self.pass(bytes, begun);
        self.reads.fetch_add(bytes.div_ceil(OPERATION).max(1), Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

pub struct Shaped {
    inner: Box<dyn Target>,
    limits: Arc<Limits>,
    url: String,
}

impl Shaped {
    pub fn over(inner: Box<dyn Target>, shape: Shape, clock: Arc<dyn Clock>) -> Shaped {
        let now = clock.now();
        let bucket = |per_second: Option<u64>| Some(Bucket { per_second: per_second? as f64, until: Mutex::new(now) });
        let limits = Limits {
            bytes: bucket(shape.bytes_per_second),
            operations: bucket(shape.operations_per_second),
            latency: nanoseconds(shape.latency_seconds.unwrap_or(0.0)),
            clock,
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        };
        let url = inner.url().to_owned();
        Shaped { inner, limits: Arc::new(limits), url }
    }
}

impl Target for Shaped {
    fn url(&self) -> &str {
        &self.url
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.inner.list()
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        self.inner.stat(name)
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        Ok(Box::new(Reading { inner: self.inner.open(file)?, limits: self.limits.clone() }))
    }

    fn writable(&self) -> Option<&dyn Writable> {
        self.inner.writable().map(|_| self as &dyn Writable)
    }

    fn is_cached(&self) -> bool {
        self.inner.is_cached()
    }

    /// All that passed the limits: what lies below is no part of the disk that they make.
    fn given(&self) -> Option<Given> {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Limits { reads, read_bytes, busy, .. } = &*self.limits;
        Some(Given { reads: of(reads), bytes: of(read_bytes), busy: Some(of(busy)) })
    }
}

impl Writable for Shaped {
    fn create(&self, name: &str, bytes: u64) -> Result<Box<dyn Created>> {
        let inner = self.inner.writable().expect("only what can be written is asked").create(name, bytes)?;
        Ok(Box::new(Writing { inner, limits: self.limits.clone() }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.writable().expect("only what can be written is asked").remove(name)
    }
}

struct Reading {
    inner: Box<dyn Opened>,
    limits: Arc<Limits>,
}

impl Opened for Reading {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let begun = self.limits.clock.now();
        let count = self.inner.read_at(offset, buffer)?;
        self.limits.read(count as u64, begun);
        Ok(count)
    }

    fn alone(&mut self) {
        self.inner.alone();
    }
}

struct Writing {
    inner: Box<dyn Created>,
    limits: Arc<Limits>,
}

impl Created for Writing {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let begun = self.limits.clock.now();
        self.inner.write(bytes)?;
        self.limits.pass(bytes.len() as u64, begun);
        Ok(())
    }

    fn finish(self: Box<Self>, durable: bool) -> Result<()> {
        self.inner.finish(durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Null;

    /// A clock that jumps to whatever is waited for.
    struct Jumping(AtomicU64);

    impl Clock for Jumping {
        fn now(&self) -> Moment {
            self.0.load(Ordering::Relaxed)
        }

        fn sleep_until(&self, moment: Moment) {
            self.0.fetch_max(moment, Ordering::Relaxed);
        }
    }

    fn seconds_of(shape: Shape, reads: u64, bytes: usize) -> f64 {
        let clock = Arc::new(Jumping(AtomicU64::new(7 * SECOND)));
        let file = Listed { name: "a".into(), bytes: u64::MAX };
        let shaped = Shaped::over(Box::new(Null::of(vec![file.clone()])), shape, clock.clone());
        let mut opened = shaped.open(&file).unwrap();
        let mut buffer = vec![0; bytes];
        for read in 0..reads {
            assert_eq!(opened.read_at(read, &mut buffer).unwrap(), bytes);
        }
        (clock.now() - 7 * SECOND) as f64 / SECOND as f64
    }

    #[test]
    fn bandwidth_and_operations_bind_whichever_is_less() {
        // st1 of a catalogue: 500 MB/s, 500 operations.
        let disk =
            Shape { bytes_per_second: Some(500_000_000), operations_per_second: Some(500), latency_seconds: None };
        assert!((seconds_of(disk, 500, 100_000) - 1.0).abs() < 0.02, "small reads are bound by their number");
        assert!((seconds_of(disk, 477, 1 << 20) - 1.0).abs() < 0.02, "long ones by their bytes");
        assert!((seconds_of(disk, 50, 8 << 20) - 0.84).abs() < 0.02, "eight operations each");
    }

    #[test]
    fn what_passes_is_counted_against_the_limits() {
        let clock = Arc::new(Jumping(AtomicU64::new(7 * SECOND)));
        let file = Listed { name: "a".into(), bytes: u64::MAX };
        let disk = Shape { bytes_per_second: Some(100_000_000), operations_per_second: Some(50), ..Shape::default() };
        let shaped = Shaped::over(Box::new(Null::of(vec![file.clone()])), disk, clock);
        let mut opened = shaped.open(&file).unwrap();
        opened.read_at(0, &mut vec![0; 4096]).unwrap();
        opened.read_at(0, &mut vec![0; 3 << 20]).unwrap();
        // One operation and three, of 20 ms each; their bytes would take less.
        let given = Given { reads: 4, bytes: 4096 + (3 << 20), busy: Some(80_000_000) };
        assert_eq!(shaped.given(), Some(given));
    }

    #[test]
    fn latency_is_of_each_read() {
        let far = Shape { latency_seconds: Some(0.02), ..Shape::default() };
        assert!((seconds_of(far, 50, 4096) - 1.0).abs() < 1e-6);
    }
}
