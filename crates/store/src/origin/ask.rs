//! One answer to a request, or to the second that was sent because the first was late. Deliberately nothing of
//! bodies: once one is under way, it is read to its end.
//!
//! Invariant: of two requests the loser is dropped at once, and with it its connection.

use super::hedge;
use super::limit::Leave;
use super::{Parts, Tries, outcome};
use crate::{Body, Counters};
use block::{Cause, Error, Result, Run};
use futures_util::future::{Either, select};
use std::ops::Range;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// Why there is no answer, and the leave to ask again if it is kept.
pub type Refusal = Box<(Error, Option<Leave>)>;

/// The head of an answer.
pub struct Answer {
    pub body: Body,
    /// The leave of the request that was answered.
    pub leave: Leave,
    /// From that request to its answer.
    pub first_byte: Duration,
}

impl Parts {
    /// Ask once for a range, with the leave that was given; a second time if the answer is late and that is welcome.
    pub async fn ask(&self, tries: &Tries, run: &Run, range: Range<u64>, leave: Leave) -> Result<Answer, Refusal> {
        let Run { object, course, .. } = run;
        course.enter(Cause::Requests);
        let began = Instant::now();
        let mut first = pin!(self.in_time(tries, object, self.store.get(object, range.clone())));
        if let Some(alone) = self.limit.first_byte_if_bound() {
            let answer = tokio::time::timeout(alone, &mut first).await;
            let answer = match answer {
                Ok(answer) => answer,
                Err(_) => {
                    course.enter(Cause::Bandwidth);
                    first.await
                }
            };
            return self.answered(answer, leave, began);
        }
        let late = self.hedges().late().filter(|_| course.is_urgent());
        let in_time = match late {
            None => Some(first.as_mut().await),
            Some(late) => match tokio::time::timeout(late, &mut first).await {
                Ok(answer) => Some(answer),
                Err(_) => tokio::time::timeout(hedge::GRACE, &mut first).await.ok(),
            },
        };
        if let Some(answer) = in_time {
            return self.answered(answer, leave, began);
        }
        let Some(second_leave) = self.leave_to_hedge(range.end - range.start) else {
            return self.answered(first.await, leave, began);
        };
        tracing::debug!(%object, ?late, "asking a second time, because the first answer is late");
        let second_began = Instant::now();
        let second = pin!(self.in_time(tries, object, self.store.get(object, range)));
        match select(first, second).await {
            Either::Left((Ok(body), _)) => self.answered(Ok(body), leave, began),
            Either::Left((Err(error), second)) => match second.await {
                Ok(body) => {
                    leave.done(outcome(&error));
                    self.answered(Ok(body), second_leave, second_began)
                }
                Err(_) => self.answered(Err(error), leave, began),
            },
            Either::Right((Ok(body), _)) => {
                self.hedges().answered(began.elapsed());
                Counters::add(&self.counters.hedges_won, 1);
                self.answered(Ok(body), second_leave, second_began)
            }
            Either::Right((Err(error), first)) => {
                second_leave.done(outcome(&error));
                self.answered(first.await, leave, began)
            }
        }
    }

    fn answered(&self, answer: Result<Body>, leave: Leave, began: Instant) -> Result<Answer, Refusal> {
        let first_byte = began.elapsed();
        match answer {
            Ok(body) => {
                self.hedges().answered(first_byte);
                Ok(Answer { body, leave, first_byte })
            }
            Err(error) => {
                let kept = leave.failed(outcome(&error));
                Err(Box::new((error, kept)))
            }
        }
    }

    /// Leave to send a second request for so many bytes: paid for, and at nobody's cost.
    fn leave_to_hedge(&self, bytes: u64) -> Option<Leave> {
        if !hedge::is_welcome(self.limit.bandwidth_binds(), self.limit.since_cut()) {
            return None;
        }
        let leave = self.limit.spare()?;
        if !self.hedges().spend(bytes) {
            return None;
        }
        Counters::add(&self.counters.hedged, 1);
        Counters::add(&self.counters.hedged_bytes, bytes);
        Some(leave)
    }
}
