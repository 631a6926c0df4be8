//! Where each request passes: counted, throttled, spoiled, answered, delayed. The order is that of a
//! service: what is refused never reaches the folder, and latency is what the client sees.
//!
//! Invariant: with no limits and no faults an answer is exactly that of the service.

use crate::Log;
use crate::chance;
use crate::clock::Clock;
use crate::counters::{LiveCounters, Operation};
use crate::faults::{Dice, Fault, Faults};
use crate::folder::Folder;
use crate::limits::{Latency, Limits, Meter, Nanoseconds, QUEUE_WAIT_MAX, Throttle, Turn, nanoseconds};
use crate::reply::{Arrival, Lane, Parcel, Payload, Reply, Spoil};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, IF_MATCH, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use s3s::service::S3Service;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// Where programs read the counters: no bucket is called `-`.
const COUNTERS: &str = "/-/counters";

/// The longest silence of the fault `hang`; every client has given up before.
const HANG: Duration = Duration::from_secs(600);

/// The stream of chance that latencies are drawn from; faults use the numbers of their kinds.
const LATENCY_STREAM: u64 = 1000;

/// The end of a connection without an answer.
#[derive(Debug)]
pub struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("cut by a fault")
    }
}

impl std::error::Error for Cut {}

/// What the limits are made of while they hold.
struct Grant {
    latency: Latency,
    throttle: Throttle,
    requests: Option<Mutex<Meter>>,
    outwards: Option<Arc<Lane>>,
    inwards: Option<Arc<Lane>>,
}

impl Grant {
    fn new(limits: &Limits, clock: Clock) -> Grant {
        let lane = || limits.bandwidth.map(|per_second| Arc::new(Lane::new(per_second, clock)));
        Grant {
            latency: limits.latency,
            throttle: limits.throttle,
            requests: limits.requests_per_second.map(|per_second| Mutex::new(Meter::of_requests(per_second))),
            outwards: lane(),
            inwards: lane(),
        }
    }
}

/// One connection as a request sees it.
pub struct Line {
    /// Set to end the connection with a reset.
    pub reset: AtomicBool,
    /// Whether the client is on this machine, and may read the counters.
    pub local: bool,
}

/// What every request passes.
pub struct Gate {
    service: S3Service,
    folder: Arc<Folder>,
    tally: Arc<LiveCounters>,
    clock: Clock,
    grant: RwLock<Arc<Grant>>,
    dice: RwLock<Arc<Dice>>,
    /// Requests so far: the number of each in the stream of chance.
    number: AtomicU64,
    seed: u64,
    /// Without keys any signature is accepted unread.
    anonymous: bool,
    log: Option<Log>,
}

/// What a gate is made of besides limits and faults.
pub struct Parts {
    pub service: S3Service,
    pub folder: Arc<Folder>,
    pub clock: Clock,
    pub seed: u64,
    pub anonymous: bool,
    pub log: Option<Log>,
}

impl Gate {
    pub fn new(parts: Parts, limits: &Limits, faults: Faults) -> Gate {
        let Parts { service, folder, clock, seed, anonymous, log } = parts;
        Gate {
            service,
            folder,
            tally: Arc::default(),
            clock,
            grant: RwLock::new(Arc::new(Grant::new(limits, clock))),
            dice: RwLock::new(Arc::new(Dice::new(faults))),
            number: AtomicU64::new(0),
            seed,
            anonymous,
            log,
        }
    }

    pub fn tally(&self) -> &LiveCounters {
        &self.tally
    }

    pub fn set_limits(&self, limits: &Limits) {
        *self.grant.write().expect("no panic while held") = Arc::new(Grant::new(limits, self.clock));
    }

    pub fn set_faults(&self, faults: Faults) {
        *self.dice.write().expect("no panic while held") = Arc::new(Dice::new(faults));
    }

    /// Answer one request.
    pub async fn answer(&self, request: Request<Incoming>, line: &Line) -> Result<Response<Reply>, Cut> {
        if request.uri().path() == COUNTERS && line.local {
            return Ok(self.show_counters());
        }
        let arrived = self.clock.now();
        let operation =
            Operation::of(request.method(), request.uri(), request.headers().contains_key("x-amz-copy-source"));
        let label = self.log.as_ref().map(|_| format!("{} {}", request.method(), request.uri()));
        self.tally.request(operation);
        let grant = self.grant.read().expect("no panic while held").clone();
        let visit =
            Visit { gate: self, grant, operation, arrived, number: self.number.fetch_add(1, Ordering::Relaxed) };
        let answer = visit.answer(request, line).await;
        let status = answer.as_ref().map_or(0, |response| response.status().as_u16());
        self.tally.answered(operation, status);
        if let (Some(log), Some(label)) = (&self.log, label) {
            let milliseconds = (self.clock.now() - arrived) as f64 / 1e6;
            log.0(format_args!("{label} {status} {milliseconds:.1} ms"));
        }
        answer
    }

    fn show_counters(&self) -> Response<Reply> {
        let body = Payload::Whole(self.tally.counters().json().into());
        let reply = Reply::new(body, None, Arc::default(), Operation::Other);
        let mut response = Response::new(reply);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// One request on its way.
struct Visit<'a> {
    gate: &'a Gate,
    grant: Arc<Grant>,
    operation: Operation,
    arrived: Nanoseconds,
    number: u64,
}

impl Visit<'_> {
    async fn answer(&self, request: Request<Incoming>, line: &Line) -> Result<Response<Reply>, Cut> {
        let dice = self.gate.dice.read().expect("no panic while held").clone();
        let uploads = matches!(*request.method(), Method::PUT | Method::POST);
        let refused = match self.turn().await {
            Some(refused) => Some(refused),
            None => self.refuse(&dice, line).await?,
        };
        let response = match refused {
            Some(refused) => refused,
            None => self.serve(request, &dice).await,
        };
        // A body took its own time to arrive; the service begins to think when it is there.
        let started = if uploads { self.gate.clock.now() } else { self.arrived };
        self.delay(started).await;
        Ok(response)
    }

    fn falls(&self, dice: &Dice, fault: Fault) -> bool {
        let falls = dice.falls(fault);
        if falls {
            self.gate.tally.fault(fault);
        }
        falls
    }

    /// Wait for this request's turn, or the refusal if there is none.
    async fn turn(&self) -> Option<Response<Reply>> {
        let requests = self.grant.requests.as_ref()?;
        let (wait_max, retry_after) = match self.grant.throttle {
            Throttle::Queue => (QUEUE_WAIT_MAX, None),
            Throttle::Refuse { retry_after } => (Duration::ZERO, retry_after),
        };
        let turn = requests.lock().expect("no panic while held").admit(self.arrived, wait_max);
        match turn {
            Turn::At(due) if due <= self.arrived => None,
            Turn::At(due) => {
                self.gate.tally.throttled(self.operation);
                if let Some(timer) = self.gate.clock.until(due) {
                    timer.await;
                }
                None
            }
            Turn::Refused => {
                self.gate.tally.throttled(self.operation);
                Some(self.slow_down(retry_after))
            }
        }
    }

    /// The faults that come before any answer of the folder.
    async fn refuse(&self, dice: &Dice, line: &Line) -> Result<Option<Response<Reply>>, Cut> {
        if self.falls(dice, Fault::Reset) {
            line.reset.store(true, Ordering::Release);
            return Err(Cut);
        }
        if self.falls(dice, Fault::Hang) {
            tokio::time::sleep(HANG).await;
            return Err(Cut);
        }
        if self.falls(dice, Fault::SlowDown) {
            let retry_after = match self.grant.throttle {
                Throttle::Queue => None,
                Throttle::Refuse { retry_after } => retry_after,
            };
            return Ok(Some(self.slow_down(retry_after)));
        }
        let broken = || {
            self.error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "We encountered an internal error. Please try again.",
            )
        };
        Ok(self.falls(dice, Fault::InternalError).then(broken))
    }

    async fn serve(&self, mut request: Request<Incoming>, dice: &Dice) -> Response<Reply> {
        let gate = self.gate;
        if matches!(self.operation, Operation::Get | Operation::Head)
            && request.headers().contains_key(IF_MATCH)
            && self.falls(dice, Fault::IgnoreIfMatch)
        {
            request.headers_mut().remove(IF_MATCH);
        }
        if self.operation == Operation::Get && self.falls(dice, Fault::EtagChange) {
            gate.folder.change(&unescape(request.uri().path().trim_start_matches('/')));
        }
        let answer = gate.service.call(self.prepared(request)).await;
        let Ok(mut response) = answer else {
            return self.error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "the answer could not be written");
        };
        let parcel = response.extensions_mut().remove::<Parcel>();
        let kept = parcel.and_then(|parcel| parcel.0.lock().expect("no panic while held").take());
        let (parts, body) = response.into_parts();
        let spoilable = kept.is_some();
        let source = kept.unwrap_or(match parts.status {
            StatusCode::NOT_MODIFIED => Payload::Whole(bytes::Bytes::new()),
            _ => Payload::Service(body),
        });
        let reply = Reply::new(source, self.grant.outwards.clone(), gate.tally.clone(), self.operation);
        let mut response = Response::from_parts(parts, reply);
        if spoilable {
            self.spoil(&mut response, dice);
        }
        response
    }

    /// The request as the service takes it.
    fn prepared(&self, mut request: Request<Incoming>) -> s3s::HttpRequest {
        if self.gate.anonymous {
            request.headers_mut().remove(AUTHORIZATION);
            crate::chunked::forget_signature(&mut request);
        }
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return request.map(|_| s3s::Body::empty());
        }
        let trailers = if self.gate.anonymous { crate::chunked::announced(&mut request) } else { None };
        let arrival = |body| Arrival {
            body,
            lane: self.grant.inwards.clone(),
            timer: None,
            tally: self.gate.tally.clone(),
            operation: self.operation,
        };
        match trailers {
            None => request.map(|body| s3s::Body::http_body_unsync(arrival(body))),
            Some(trailers) => {
                request.map(|body| s3s::Body::http_body_unsync(crate::chunked::Plain::new(arrival(body), trailers)))
            }
        }
    }

    /// Faults of a body that is otherwise right.
    fn spoil(&self, response: &mut Response<Reply>, dice: &Dice) {
        let Some(length) = response.body().promised().filter(|length| *length > 0) else { return };
        let share = chance::draw(self.gate.seed, LATENCY_STREAM + 1, self.number);
        let at = (length as f64 * share) as u64;
        if self.falls(dice, Fault::Truncate) {
            response.body_mut().spoil(Spoil::Cut(at));
        } else if self.falls(dice, Fault::WrongBytes) {
            response.body_mut().spoil(Spoil::Wrong(at));
        } else if self.falls(dice, Fault::ShortBody) {
            response.body_mut().shorten(at);
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(at));
        }
    }

    /// The rest of the time until the first byte.
    async fn delay(&self, started: Nanoseconds) {
        if self.grant.latency == Latency::None {
            return;
        }
        let share = chance::draw(self.gate.seed, LATENCY_STREAM, self.number);
        let latency = nanoseconds(self.grant.latency.quantile(share));
        if let Some(timer) = self.gate.clock.until(started + latency) {
            timer.await;
        }
    }

    fn slow_down(&self, retry_after: Option<Duration>) -> Response<Reply> {
        let mut response = self.error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate.");
        if let Some(after) = retry_after {
            // Retry-After counts whole seconds; a shorter time must not become zero.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn error(&self, status: StatusCode, code: &str, message: &str) -> Response<Reply> {
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        let reply = Reply::new(Payload::Whole(text.into()), None, self.gate.tally.clone(), self.operation);
        let mut response = Response::new(reply);
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        response
    }
}

/// Percent-decoding of a path.
fn unescape(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let pair = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
