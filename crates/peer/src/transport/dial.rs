//! Opening TCP connections to addresses that may be names.
//!
//! Invariant: names take few of the threads that wait for disks, however long a name server is silent; who waits for one that is, gets
//! the addresses that it had last.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Names that are looked up at once. A silent name server holds the thread of each for ten seconds and more.
const LOOKUPS: usize = 4;

/// How long a lookup is waited for where the name's last addresses are known.
const LOOKED_UP_WITHIN: Duration = Duration::from_millis(200);

/// Names whose last addresses are remembered: more than a cluster has members.
const KNOWN_MAX: usize = 1 << 12;

static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS)));
static KNOWN: Mutex<BTreeMap<String, Vec<SocketAddr>>> = Mutex::new(BTreeMap::new());

/// Connect to `HOST:PORT`.
pub async fn dial(address: &str) -> io::Result<TcpStream> {
    match address.parse::<SocketAddr>() {
        Ok(one) => TcpStream::connect(one).await,
        Err(_) => TcpStream::connect(&addresses(address).await?[..]).await,
    }
}

async fn addresses(name: &str) -> io::Result<Vec<SocketAddr>> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    let looking = looked_up(name.to_owned());
    match known {
        None => looking.await,
        // It goes on, and the next one finds what it found.
        Some(known) => {
            Ok(tokio::time::timeout(LOOKED_UP_WITHIN, looking).await.ok().and_then(Result::ok).unwrap_or(known))
        }
    }
}

async fn looked_up(name: String) -> io::Result<Vec<SocketAddr>> {
    let turn = TURNS.clone().acquire_owned().await.map_err(io::Error::other)?;
    let looking = tokio::task::spawn_blocking(move || {
        // As long as the thread is taken, whoever waits for it still.
        let _turn = turn;
        let found: Vec<SocketAddr> = name.to_socket_addrs()?.collect();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX && !known.contains_key(&name) {
            known.pop_first();
        }
        known.insert(name, found.clone());
        Ok(found)
    });
    looking.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_looked_up_and_reached_by_its_last_addresses_while_no_turn_comes() {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let name = format!("localhost:{}", socket.local_addr().expect("bound").port());
        let reached = async || tokio::join!(dial(&name), socket.accept());
        assert!(reached().await.0.is_ok());
        let all = TURNS.clone().acquire_many_owned(LOOKUPS as u32).await.expect("turns");
        assert!(reached().await.0.is_ok(), "by what was found before");
        let other = tokio::time::timeout(2 * LOOKED_UP_WITHIN, dial("localhost:1")).await;
        assert!(other.is_err(), "nothing is known of it, and no lookup may begin");
        drop(all);
        assert!(dial("localhost:1").await.is_err(), "nobody listens there");
    }
}
