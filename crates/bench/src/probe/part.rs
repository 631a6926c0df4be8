//! One part of a probe: streams that read ranges for a while, and the rate at which answers came meanwhile.
//!
//! It doesn't choose what is read. Invariant: a rate is of a time in which all streams were busy, unless one of them had
//! no two answers in it; then it is of all the time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use block::{Error, Result};
use targets::Target;
use targets::clock::{Clock, Moment, SECOND, seconds};

use super::pool::SHORT;
use crate::samples::{Run, Set};

/// With fewer answers than this a figure says little, and a part goes on to its last limit.
pub const ANSWERS_MIN: u64 = 8;
const LAST: u64 = 4 * SECOND;

/// Answers of each stream; of fewer, those that are on their way at the ends weigh too much.
const ANSWERS_OF_STREAM: u64 = 4;

/// How a part reads.
pub struct Course<'a> {
    pub target: &'a dyn Target,
    pub set: &'a Set,
    pub clock: &'a dyn Clock,
    pub streams: u64,
    /// Nanoseconds, unless all is read before.
    pub lasts: u64,
}

/// An answer to a read, or to a piece of one.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub moment: Moment,
    pub bytes: u64,
}

/// What the reads of one part found.
#[derive(Debug, Default)]
pub struct Part {
    /// Ranges that were begun.
    pub reads: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// While all streams were busy.
    pub bytes_per_second: f64,
    pub answers_per_second: f64,
    /// Nanoseconds of each range that was read to its end, its file opened first.
    pub times: Vec<u64>,
}

/// What one stream did.
#[derive(Default)]
struct Stream {
    reads: u64,
    answers: Vec<Answer>,
    times: Vec<u64>,
    /// When it had nothing more to do.
    ended: Moment,
}

struct Field<'a> {
    course: &'a Course<'a>,
    reads: &'a [Run],
    next: AtomicUsize,
    answers: AtomicU64,
    is_failed: AtomicBool,
    begun: Moment,
}

/// Read these ranges, each once, in so many streams.
pub fn run(course: &Course, reads: &[Run]) -> Result<Part> {
    let field = Field {
        course,
        reads,
        next: AtomicUsize::new(0),
        answers: AtomicU64::new(0),
        is_failed: AtomicBool::new(false),
        begun: course.clock.now(),
    };
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..course.streams {
            let (field, done) = (&field, &done);
            scope.spawn(move || {
                let read = field.stream();
                field.is_failed.fetch_or(read.is_err(), Ordering::Relaxed);
                done.lock().expect("nothing panics while it holds the streams").push(read);
            });
        }
    });
    let streams = done.into_inner().expect("all streams have ended").into_iter().collect::<Result<Vec<_>>>()?;
    Ok(Part { seconds: seconds(course.clock.now() - field.begun), ..of(field.begun, streams) })
}

impl Field<'_> {
    /// Whether there was time enough.
    fn is_over(&self) -> bool {
        let passed = self.course.clock.now() - self.begun;
        let wanted = ANSWERS_MIN.max(ANSWERS_OF_STREAM * self.course.streams);
        let is_enough = passed >= self.course.lasts && self.answers.load(Ordering::Relaxed) >= wanted;
        is_enough || passed >= LAST.max(self.course.lasts) || self.is_failed.load(Ordering::Relaxed)
    }

    fn stream(&self) -> Result<Stream> {
        let Course { target, set, clock, .. } = *self.course;
        let mut found = Stream::default();
        let mut buffer = vec![0; set.piece.min(super::pool::LONG) as usize];
        'reads: while let Some(run) = self.reads.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let start = clock.now();
            let mut opened = target.open(&set.files[run.file])?;
            if run.range.end - run.range.start <= SHORT {
                opened.alone();
            }
            found.reads += 1;
            let mut at = run.range.start;
            while at < run.range.end {
                let length = (run.range.end - at).min(buffer.len() as u64) as usize;
                let count = opened.read_at(at, &mut buffer[..length])? as u64;
                if count == 0 {
                    let file = &set.files[run.file];
                    let what = format!("a file of {} bytes ended at byte {at} during the probe", file.bytes);
                    return Err(Error::changed(what, &file.name).hint("let nobody change the set while it is measured"));
                }
                at += count;
                found.answers.push(Answer { moment: clock.now(), bytes: count });
                self.answers.fetch_add(1, Ordering::Relaxed);
                if at < run.range.end && self.is_over() {
                    break 'reads;
                }
            }
            found.times.push(clock.now() - start);
            if self.is_over() {
                break;
            }
        }
        found.ended = clock.now();
        Ok(found)
    }
}

/// Of all streams together.
fn of(begun: Moment, streams: Vec<Stream>) -> Part {
    let first_end = streams.iter().map(|stream| stream.ended).min().unwrap_or(begun);
    let answers: Vec<&[Answer]> = streams.iter().map(|stream| &stream.answers[..]).collect();
    let (bytes_per_second, answers_per_second) = rates(begun, &answers, first_end);
    Part {
        reads: streams.iter().map(|stream| stream.reads).sum(),
        bytes: answers.iter().copied().flatten().map(|answer| answer.bytes).sum(),
        bytes_per_second,
        answers_per_second,
        times: streams.into_iter().flat_map(|stream| stream.times).collect(),
        ..Part::default()
    }
}

/// The part of the time at the beginning in which more comes than storage goes on to give, or less: connections are opened,
/// a kernel reads ahead of all streams at once, limits have saved up what nobody asked for.
const BEGINNING: u64 = 4;

/// Bytes and answers per second of all streams while all were busy, without the beginning where enough is left; of too
/// few answers, all of all the time.
fn rates(begun: Moment, streams: &[&[Answer]], first_end: Moment) -> (f64, f64) {
    let steady = begun + first_end.saturating_sub(begun) / BEGINNING;
    [steady, begun].into_iter().find_map(|from| while_busy(streams, from, first_end)).unwrap_or_else(|| {
        let all = || streams.iter().copied().flatten();
        let took = all().map(|answer| answer.moment).max().map_or(f64::INFINITY, |last| seconds((last - begun).max(1)));
        (all().map(|answer| answer.bytes).sum::<u64>() as f64 / took, all().count() as f64 / took)
    })
}

/// Out of the time from one answer to the next, until the first stream ended: what is on its way at the ends is then
/// neither lost nor counted twice, and what others get when one has nothing more to do counts for nothing.
fn while_busy(streams: &[&[Answer]], from: Moment, first_end: Moment) -> Option<(f64, f64)> {
    let (mut bytes, mut gaps, mut time) = (0, 0, 0);
    for answers in streams {
        let within = |moment| answers.partition_point(|answer| answer.moment <= moment);
        let others = &answers[within(from.saturating_sub(1))..within(first_end)];
        let (first, others) = others.split_at(lump(others)?);
        bytes += others.iter().map(|answer| answer.bytes).sum::<u64>();
        gaps += others.len();
        time += others.last()?.moment - first.last()?.moment;
    }
    let took = seconds(time.max(1)) / streams.len().max(1) as f64;
    (gaps >= ANSWERS_MIN as usize).then(|| (bytes as f64 / took, gaps as f64 / took))
}

/// How many of these answers came at once with the first: what was read ahead comes in lumps, and a time that begins with
/// the first of one would count the rest of it as if it had taken none.
fn lump(answers: &[Answer]) -> Option<usize> {
    let [first, .., last] = answers else { return None };
    let usual = (last.moment - first.moment) / (answers.len() as u64 - 1);
    answers.windows(2).position(|pair| pair[1].moment - pair[0].moment >= usual.div_ceil(2)).map(|place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of each stream, of 10 bytes each, at the moments that `at` gives for (stream, number).
    fn streams(count: u64, answers: u64, at: impl Fn(u64, u64) -> u64) -> Vec<Vec<Answer>> {
        let of = |stream| (0..answers).map(|number| Answer { moment: at(stream, number), bytes: 10 }).collect();
        (0..count).map(of).collect()
    }

    fn rates_of(streams: &[Vec<Answer>], first_end: Moment) -> (f64, f64) {
        rates(0, &streams.iter().map(Vec::as_slice).collect::<Vec<_>>(), first_end)
    }

    #[test]
    fn a_rate_is_that_of_streams_that_are_all_busy() {
        // A store gives one piece of 10 bytes each 100 moments; 8 streams wait in line, and the last of them get more when
        // others have nothing to do.
        let line = streams(8, 5, |stream, number| 800 * number + 100 * (stream + 1));
        let (bytes, answers) = rates_of(&line, 3300);
        assert!((bytes - 0.1e9).abs() < 1.0 && (answers - 0.01e9).abs() < 1.0, "{bytes} {answers}");
        // 8 streams that wait 800 each by themselves give as much, whichever of their answers come after the first end.
        // One of them that waits long is not left out.
        let mut slow = streams(3, 4, |_, number| 800 * (number + 1));
        slow.push(vec![Answer { moment: 3300, bytes: 10 }]);
        assert!((rates_of(&slow, 3200).0 - 130.0 / 3300e-9).abs() < 1.0);
        let (bytes, _) = rates_of(&streams(8, 5, |stream, number| 800 * (number + 1) + stream), 4000);
        assert!((bytes - 0.1e9).abs() < 1.0, "{bytes}");
    }

    #[test]
    fn what_comes_at_once_at_the_beginning_is_no_rate() {
        // A limit of one answer each 100 moments lets thirty pass at once.
        let line =
            streams(4, 100, |stream, number| (100 * (4 * number + stream + 1)).saturating_sub(3000).max(stream + 1));
        let (bytes, answers) = rates_of(&line, 36_000);
        assert!((bytes - 0.1e9).abs() < 1e6 && (answers - 0.01e9).abs() < 1e5, "{bytes} {answers}");
    }

    #[test]
    fn what_comes_in_lumps_is_counted_from_lump_to_lump() {
        // Four at a time, each 400 moments, of each of two streams.
        let lumps = streams(2, 64, |stream, number| 400 * (number / 4 + 1) + stream);
        let (bytes, answers) = rates_of(&lumps, 6300);
        assert!((bytes - 0.2e9).abs() < 1e6 && (answers - 0.02e9).abs() < 1e5, "{bytes} {answers}");
    }

    #[test]
    fn of_few_answers_all_count() {
        assert_eq!(rates_of(&streams(1, 2, |_, number| 500 * (number + 1)), 1000), (20e6, 2e6));
        assert_eq!(rates(0, &[], 0), (0.0, 0.0));
    }
}
