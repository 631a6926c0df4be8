//! Bodies that AWS clients cut into signed pieces (`aws-chunked`), made whole for a server without keys.
//! Signatures are skipped unread; a server with keys leaves all of this to s3s.
//!
//! Invariant: a body that breaks off or is not well formed ends with an error, never early and quietly.

use crate::reply::Arrival;
use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::{HeaderMap, Request};
use std::io::{Error, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

/// Bytes of a line between pieces: a length, a signature, a trailer.
const LINE_MAX: usize = 4096;

/// Headers after a body; clients send one checksum and its signature.
const TRAILERS_MAX: usize = 16;

const SHA256: &str = "x-amz-content-sha256";
const DECODED_LENGTH: &str = "x-amz-decoded-content-length";

/// Headers that came after the body.
#[derive(Clone, Default)]
pub struct Trailers(Arc<Mutex<HeaderMap>>);

impl Trailers {
    pub fn take(&self) -> HeaderMap {
        std::mem::take(&mut *self.0.lock().expect("no panic while held"))
    }
}

/// Drop the signature of a presigned address: it would be checked against keys that there are not.
pub fn forget_signature<B>(request: &mut Request<B>) {
    let Some(query) = request.uri().query().filter(|query| query.contains("Signature=")) else { return };
    let signed = |pair: &&str| {
        pair.starts_with("X-Amz-")
            || ["Signature", "AWSAccessKeyId", "Expires"].contains(&pair.split('=').next().unwrap_or(""))
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !signed(pair)).collect();
    if let Ok(uri) = format!("{}?{}", request.uri().path(), kept.join("&")).parse() {
        *request.uri_mut() = uri;
    }
}

/// Whether the body is cut into pieces; then its length becomes that of the whole.
pub fn announced<B>(request: &mut Request<B>) -> Option<Trailers> {
    let kind = request.headers_mut().remove(SHA256)?;
    if !kind.as_bytes().starts_with(b"STREAMING-") {
        return None;
    }
    let length = request.headers_mut().remove(DECODED_LENGTH).unwrap_or(HeaderValue::from_static("0"));
    request.headers_mut().insert(CONTENT_LENGTH, length);
    let trailers = Trailers::default();
    request.extensions_mut().insert(trailers.clone());
    Some(trailers)
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Before the line with the length of a piece.
    Length,
    /// Within a piece, with so many bytes to come.
    Piece(usize),
    /// Before the end of the line that closes a piece.
    Close,
    /// After the last piece.
    Trailer,
    End,
}

/// The whole body.
pub struct Plain {
    arrival: Arrival,
    read: BytesMut,
    state: State,
    trailers: Trailers,
}

impl Plain {
    pub fn new(arrival: Arrival, trailers: Trailers) -> Plain {
        Plain { arrival, read: BytesMut::new(), state: State::Length, trailers }
    }
}

impl Body for Plain {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let plain = self.get_mut();
        loop {
            if let Some(bytes) = step(&mut plain.read, &mut plain.state, &plain.trailers)? {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if plain.state == State::End {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut plain.arrival).poll_frame(context)) {
                None if plain.state == State::Trailer => plain.state = State::End,
                None => return Poll::Ready(Some(Err(Error::other("the body broke off within a piece")))),
                Some(Err(error)) => return Poll::Ready(Some(Err(Error::other(error)))),
                Some(Ok(frame)) => plain.read.extend_from_slice(&frame.into_data().unwrap_or_default()),
            }
        }
    }
}

/// The next bytes of the body, or none if more has to arrive first.
fn step(read: &mut BytesMut, state: &mut State, trailers: &Trailers) -> Result<Option<Bytes>> {
    loop {
        match *state {
            State::End => return Ok(None),
            State::Piece(left) => {
                if read.is_empty() {
                    return Ok(None);
                }
                let bytes = read.split_to(left.min(read.len())).freeze();
                *state = if bytes.len() == left { State::Close } else { State::Piece(left - bytes.len()) };
                return Ok(Some(bytes));
            }
            State::Length | State::Close | State::Trailer => {
                let Some(line) = line(read)? else { return Ok(None) };
                *state = after(*state, &line, trailers)?;
            }
        }
    }
}

fn after(state: State, line: &str, trailers: &Trailers) -> Result<State> {
    let malformed = || Error::other("the body is not well formed aws-chunked");
    match state {
        State::Close if line.is_empty() => Ok(State::Length),
        State::Length => {
            let digits = line.split(';').next().unwrap_or("");
            let length = usize::from_str_radix(digits.trim(), 16).map_err(|_| malformed())?;
            Ok(if length == 0 { State::Trailer } else { State::Piece(length) })
        }
        State::Trailer if line.is_empty() => Ok(State::End),
        State::Trailer => {
            let (name, value) = line.split_once(':').ok_or_else(malformed)?;
            let name: HeaderName = name.trim().parse().map_err(|_| malformed())?;
            let value = HeaderValue::from_str(value.trim()).map_err(|_| malformed())?;
            let mut kept = trailers.0.lock().expect("no panic while held");
            if kept.len() >= TRAILERS_MAX {
                return Err(malformed());
            }
            kept.insert(name, value);
            Ok(State::Trailer)
        }
        _ => Err(malformed()),
    }
}

fn line(read: &mut BytesMut) -> Result<Option<String>> {
    let Some(end) = read.windows(2).take(LINE_MAX).position(|pair| pair == b"\r\n") else {
        return if read.len() > LINE_MAX { Err(Error::other("a line between pieces is too long")) } else { Ok(None) };
    };
    let line = String::from_utf8_lossy(&read[..end]).into_owned();
    read.advance(end + 2);
    Ok(Some(line))
}

/// A body that arrives in steps of so many bytes: what it holds, its trailers, and whether it has ended.
#[cfg(any(test, feature = "hostile"))]
pub fn joined(body: &[u8], step_bytes: usize) -> Result<(Vec<u8>, HeaderMap, bool)> {
    let (mut read, mut state, trailers) = (BytesMut::new(), State::Length, Trailers::default());
    let mut out = Vec::new();
    for bytes in body.chunks(step_bytes) {
        read.extend_from_slice(bytes);
        while let Some(bytes) = step(&mut read, &mut state, &trailers)? {
            out.extend_from_slice(&bytes);
        }
    }
    Ok((out, trailers.take(), state == State::End))
}

#[cfg(test)]
mod tests {
    use super::joined as decode;
    use super::*;

    #[test]
    fn pieces_are_joined_however_they_arrive() {
        let body = b"5;chunk-signature=abc\r\nhello\r\n1\r\n!\r\n0;chunk-signature=def\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        for step_bytes in 1..body.len() {
            let (bytes, trailers, ended) = decode(body, step_bytes).unwrap();
            assert_eq!((&bytes[..], ended), (&b"hello!"[..], true), "{step_bytes}");
            assert_eq!(trailers["x-amz-checksum-crc32"], "AAAAAA==");
        }
    }

    #[test]
    fn what_is_not_well_formed_is_an_error() {
        assert!(decode(b"zz\r\nhello", 100).is_err());
        assert!(decode(b"1\r\nhello\r\n", 100).is_err());
        assert!(decode(&[b'1'; 10_000], 10_000).is_err());
        let many: String = (0..17).map(|index| format!("n{index}:v\r\n")).collect();
        assert!(decode(format!("0\r\n{many}\r\n").as_bytes(), 100).is_err());
        let (_, _, ended) = decode(b"5\r\nhel", 100).unwrap();
        assert!(!ended, "a body that breaks off has not ended");
    }

    #[test]
    fn a_presigned_address_is_read_without_its_signature() {
        let mut request = Request::get("/b/k?X-Amz-Signature=abc&X-Amz-Date=1&partNumber=2").body(()).unwrap();
        forget_signature(&mut request);
        assert_eq!(request.uri(), "/b/k?partNumber=2");
    }
}
