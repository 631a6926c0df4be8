//! `stoker hosts reach`: which addresses don't take connections from this machine. `stoker up` asks it of each host.

use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// An address in the same network answers within milliseconds; a packet filter that drops never does.
const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses that are tried at the same time.
const AT_ONCE: usize = 16;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// HOST:PORT
    addresses: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (next, said) = (AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(args.addresses.len()) {
            scope.spawn(|| {
                while let Some(address) = args.addresses.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = reach(address) {
                        said.lock().expect("nobody fails with it").push(format!("{address}: {error}"));
                    }
                }
            });
        }
    });
    said.into_inner().expect("nobody fails with it").iter().try_for_each(|line| say!("{line}"))?;
    Ok(ExitCode::SUCCESS)
}

fn reach(address: &str) -> std::io::Result<()> {
    let mut last = std::io::Error::other("it has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_at_which_somebody_listens_is_reached() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        assert!(reach(&address).is_ok());
        drop(listener);
        assert!(reach(&address).is_err() && reach("no port").is_err());
    }
}
