//! The body of an answer on its way out: paced by the bandwidth, spoiled by a fault, counted.
//!
//! Invariant: without a fault exactly the promised bytes are sent, or the connection ends with an error.

use crate::body::Content;
use crate::clock::Clock;
use crate::counters::{LiveCounters, Operation};
use crate::limits::{Meter, Nanoseconds, piece_bytes};
use crate::timer::Timer;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::io::{Error, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Time for bytes already given to the connection to leave before it is cut.
const FLUSH: Duration = Duration::from_millis(5);

/// One direction of the line that all connections share.
pub struct Lane {
    meter: Mutex<Meter>,
    piece: usize,
    clock: Clock,
}

impl Lane {
    pub fn new(per_second: u64, clock: Clock) -> Lane {
        Lane { meter: Mutex::new(Meter::of_bytes(per_second)), piece: piece_bytes(per_second), clock }
    }

    fn pass(&self, bytes: usize) -> Option<Timer> {
        let due: Nanoseconds = self.meter.lock().expect("no panic while held").reserve(bytes as u64, self.clock.now());
        self.clock.until(due)
    }
}

/// Where the bytes come from.
pub enum Payload {
    Whole(Bytes),
    File(Content),
    Service(s3s::Body),
}

/// A source on its way from the service to the reply: the extensions of an answer want to be cloned.
#[derive(Clone)]
pub struct Parcel(pub Arc<Mutex<Option<Payload>>>);

/// How the bytes are spoiled; counted from the first byte of the body.
#[derive(Clone, Copy, Debug)]
pub enum Spoil {
    Cut(u64),
    Wrong(u64),
}

/// The body of an answer.
pub struct Reply {
    source: Payload,
    /// Taken from the source, not yet sent.
    rest: Bytes,
    /// Waiting for its time on the line.
    held: Bytes,
    timer: Option<Timer>,
    lane: Option<Arc<Lane>>,
    spoil: Option<Spoil>,
    sent: u64,
    tally: Arc<LiveCounters>,
    operation: Operation,
}

impl Reply {
    pub fn new(source: Payload, lane: Option<Arc<Lane>>, tally: Arc<LiveCounters>, operation: Operation) -> Reply {
        Reply {
            source,
            rest: Bytes::new(),
            held: Bytes::new(),
            timer: None,
            lane,
            spoil: None,
            sent: 0,
            tally,
            operation,
        }
    }

    /// Bytes that the body promises.
    pub fn promised(&self) -> Option<u64> {
        let left = match &self.source {
            Payload::Whole(bytes) => bytes.len() as u64,
            Payload::File(content) => content.left(),
            Payload::Service(body) => body.size_hint().exact()?,
        };
        Some(left + (self.rest.len() + self.held.len()) as u64)
    }

    pub fn spoil(&mut self, spoil: Spoil) {
        self.spoil = Some(spoil);
    }

    /// Promise only the first `length` bytes.
    pub fn shorten(&mut self, length: u64) {
        match &mut self.source {
            Payload::Whole(bytes) => bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX)),
            Payload::File(content) => content.shorten(length),
            Payload::Service(_) => {}
        }
    }

    fn poll_source(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        match &mut self.source {
            Payload::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Payload::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Payload::File(content) if content.left() == 0 => Poll::Ready(None),
            Payload::File(content) => content.poll_next(context).map(Some),
            Payload::Service(body) => loop {
                match ready!(Pin::new(&mut *body).poll_frame(context)) {
                    None => return Poll::Ready(None),
                    Some(Err(error)) => return Poll::Ready(Some(Err(Error::other(error)))),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(bytes) if !bytes.is_empty() => return Poll::Ready(Some(Ok(bytes))),
                        _ => {}
                    },
                }
            },
        }
    }

    /// The next piece as the line takes it; empty where the cut comes now.
    fn piece(&mut self) -> Bytes {
        let mut length = self.rest.len();
        if let Some(lane) = &self.lane {
            length = length.min(lane.piece);
        }
        if let Some(Spoil::Cut(at)) = self.spoil {
            length = length.min(usize::try_from(at.saturating_sub(self.sent)).unwrap_or(usize::MAX));
        }
        let piece = self.rest.split_to(length);
        match self.spoil {
            Some(Spoil::Wrong(at)) if (self.sent..self.sent + length as u64).contains(&at) => {
                let mut wrong = piece.to_vec();
                wrong[(at - self.sent) as usize] ^= 0x20;
                wrong.into()
            }
            _ => piece,
        }
    }

    fn send(&mut self, piece: Bytes) -> Poll<Option<Result<Frame<Bytes>>>> {
        self.sent += piece.len() as u64;
        self.tally.sent(self.operation, piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let reply = self.get_mut();
        loop {
            if let Some(timer) = &mut reply.timer {
                ready!(Pin::new(timer).poll(context));
                reply.timer = None;
                if reply.held.is_empty() {
                    return Poll::Ready(Some(Err(Error::other("cut by a fault"))));
                }
            }
            if !reply.held.is_empty() {
                let piece = std::mem::take(&mut reply.held);
                return reply.send(piece);
            }
            if reply.rest.is_empty() {
                match ready!(reply.poll_source(context)) {
                    None => return Poll::Ready(None),
                    Some(bytes) => reply.rest = bytes?,
                }
            }
            let piece = reply.piece();
            if piece.is_empty() {
                reply.timer = Some(Timer::after(FLUSH));
                continue;
            }
            reply.timer = reply.lane.as_ref().and_then(|lane| lane.pass(piece.len()));
            reply.held = piece;
        }
    }

    fn is_end_stream(&self) -> bool {
        self.promised() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.promised().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The body of a request on its way in: paced and counted as it arrives.
pub struct Arrival {
    pub body: Incoming,
    pub lane: Option<Arc<Lane>>,
    pub timer: Option<Timer>,
    pub tally: Arc<LiveCounters>,
    pub operation: Operation,
}

impl Body for Arrival {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, hyper::Error>>> {
        let arrival = self.get_mut();
        if let Some(timer) = &mut arrival.timer {
            ready!(Pin::new(timer).poll(context));
            arrival.timer = None;
        }
        let frame = ready!(Pin::new(&mut arrival.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            arrival.tally.received(arrival.operation, bytes.len());
            // The line was busy with these bytes: the next are not looked at before it is free again.
            arrival.timer = arrival.lane.as_ref().and_then(|lane| lane.pass(bytes.len()));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
