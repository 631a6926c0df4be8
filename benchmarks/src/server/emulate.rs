//! `stoker emulate`: the command, and its counters over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{ACCESS_KEY, Counters, SECRET_KEY};

const LIMIT: Duration = Duration::from_secs(5);

pub fn command(stoker: &Path, root: &Path, address: &str) -> Command {
    let mut command = Command::new(stoker);
    command
        .arg("emulate")
        .arg(root)
        .args(["--listen", address])
        // With keys it verifies signatures, as any server does.
        .env("STOKER_EMULATE_ACCESS_KEY", ACCESS_KEY)
        .env("STOKER_EMULATE_SECRET_KEY", SECRET_KEY);
    command
}

pub fn counters(address: &str) -> Result<Counters> {
    let mut stream = TcpStream::connect(address).context("asking the server for its counters")?;
    stream.set_read_timeout(Some(LIMIT))?;
    // HTTP/1.0: the answer ends with the connection and is not sent in pieces.
    write!(stream, "GET /-/counters HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("the counters have no body")?;
    let value: Value =
        serde_json::from_str(body.trim()).with_context(|| format!("the counters are not JSON: {}", body.trim()))?;
    Ok(counted(&value))
}

/// Requests by operation, and the bytes of the objects' content that were sent. Listings have
/// bytes too, but `bytes` is there to be compared with the size of the set.
fn counted(value: &Value) -> Counters {
    let mut counters = Counters::new();
    for (operation, counts) in value.as_object().into_iter().flatten() {
        let number = |name: &str| counts[name].as_u64().unwrap_or(0);
        counters.insert(operation.to_uppercase(), number("requests"));
        *counters.entry("throttled".to_owned()).or_default() += number("throttled");
        if operation == "get" {
            counters.insert("bytes".to_owned(), number("bytes_out"));
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_become_kinds() {
        let value = serde_json::json!({
            "get": {"requests": 3, "bytes_in": 0, "bytes_out": 9, "throttled": 1},
            "list": {"requests": 1, "bytes_in": 0, "bytes_out": 700, "throttled": 0},
            "faults": {"reset": 0},
        });
        let counters = counted(&value);
        assert_eq!((counters["GET"], counters["LIST"]), (3, 1));
        assert_eq!((counters["bytes"], counters["throttled"]), (9, 1));
    }
}
