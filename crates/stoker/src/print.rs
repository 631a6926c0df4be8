//! What a command says: results on standard output, all else on standard error.
//!
//! Invariant: neither ends a command by a panic. A result that can't be printed is an error, unless nobody reads it any
//! more; standard error that can't be written is left unwritten.

use block::Error;
use std::fmt::{self, Arguments};
use std::io::{ErrorKind, Write};

/// The exit code of a program that wrote where nobody reads, as a shell tells SIGPIPE, which Rust ignores.
pub const EXIT_CLOSED: u8 = 141;

/// Whoever read the output has gone: `head` had enough.
#[derive(Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("nobody reads the output")
    }
}

impl std::error::Error for Closed {}

/// A line on standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::print::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line on standard error.
macro_rules! note {
    ($($text:tt)*) => { $crate::print::err(format_args!("{}\n", format_args!($($text)*))) };
}

/// Text on standard output, which is there when this returns.
pub fn out(text: Arguments<'_>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.to_string().as_bytes()).and_then(|()| out.flush()).map_err(|error| failed(&error))
}

/// A line of somebody else on standard output, as it is.
pub fn line_out(line: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line).and_then(|()| out.flush()).map_err(|error| failed(&error))
}

/// The same on standard error, if it can be written.
pub fn line_err(line: &[u8]) {
    let _ = std::io::stderr().lock().write_all(line);
}

/// Why a result could not be printed.
pub fn failed(error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => Closed.into(),
        _ => Error::io("the result can't be printed", "standard output", error)
            .hint("send it elsewhere, or free some space there")
            .into(),
    }
}

/// Text on standard error, if it can be written.
pub fn err(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_all(text.to_string().as_bytes());
}
