//! How members reach each other: bytes in both directions, and nothing of what they mean. TCP, and a twin in memory that
//! behaves the same.

mod dial;

pub(crate) use dial::dial;

use crate::Seat;
use block::{Error, Result};
use futures_util::future::BoxFuture;
use rustix::ioctl::{Getter, Opcode, ioctl};
use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, WriteHalf};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Both directions of a connection.
pub struct Wire {
    pub read: Box<dyn AsyncRead + Send + Unpin>,
    pub write: Box<dyn Way>,
    /// Whether who is at the other end proved to be this member. Where nobody proves anything, everybody is believed.
    pub is_member: Box<dyn Fn(u128) -> bool + Send>,
}

/// The way out of a connection.
pub trait Way: AsyncWrite + Send + Unpin {
    /// The socket, where what is written leaves as it is: then the kernel can send from files by itself.
    fn socket(&self) -> Option<&TcpStream> {
        None
    }

    /// Bytes that were written and that the other side has not confirmed, if the system tells.
    fn unconfirmed(&self) -> Option<u64> {
        None
    }
}

impl Way for OwnedWriteHalf {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self.as_ref())
    }

    fn unconfirmed(&self) -> Option<u64> {
        unconfirmed(self.as_ref())
    }
}

/// What the system still holds to be sent by a socket, or sent again (`SIOCOUTQ`).
pub fn unconfirmed(socket: impl AsFd) -> Option<u64> {
    const SIOCOUTQ: Opcode = 0x5411;
    // SAFETY: Linux writes one `int` for this request, on whatever descriptor.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, c_int>::new()) };
    bytes.ok().and_then(|bytes| u64::try_from(bytes).ok())
}

impl<S: AsyncRead + AsyncWrite + Send> Way for WriteHalf<S> {}

/// A connection that is taken, before both sides agree on how to go on.
pub type Handshake = BoxFuture<'static, io::Result<Wire>>;

impl Wire {
    pub fn of(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Wire {
        let (read, write) = tokio::io::split(stream);
        Wire { read: Box::new(read), write: Box::new(write), is_member: Box::new(|_| true) }
    }
}

/// Opens connections to members.
pub trait Transport: Send + Sync {
    fn connect(&self, seat: &Seat) -> BoxFuture<'static, io::Result<Wire>>;
}

/// Takes connections of members.
pub trait Listener: Send {
    /// The next one, whose handshake is for the caller to wait for: it may take its time. An error is of that one alone.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Handshake>>;
}

/// Unencrypted TCP, for a network that is trusted.
pub struct Tcp;

fn plain(stream: TcpStream) -> io::Result<Wire> {
    // Requests are short, and somebody waits for each.
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    Ok(Wire { read: Box::new(read), write: Box::new(write), is_member: Box::new(|_| true) })
}

impl Transport for Tcp {
    fn connect(&self, seat: &Seat) -> BoxFuture<'static, io::Result<Wire>> {
        let address = seat.address.clone();
        Box::pin(async move { plain(dial(&address).await?) })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Handshake>> {
        Box::pin(async move { Ok(ready(plain(TcpListener::accept(self).await?.0))) })
    }
}

fn ready(wire: io::Result<Wire>) -> Handshake {
    Box::pin(std::future::ready(wire))
}

/// A network in memory. Whoever is cut off is not reached, and hears nothing any more.
#[derive(Clone, Default)]
pub struct Twin(Arc<Mutex<HashMap<String, mpsc::Sender<Wire>>>>);

/// Bytes on their way in one direction before the sender waits.
const TWIN_BYTES: usize = 1 << 20;

/// Connections that nobody took yet.
const TWIN_CONNECTIONS: usize = 64;

impl Twin {
    /// Listen at an address, in place of who did before.
    pub fn listen(&self, address: &str) -> TwinListener {
        let (sender, receiver) = mpsc::channel(TWIN_CONNECTIONS);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address.into(), sender);
        TwinListener(receiver)
    }

    /// Nobody is reached at this address any more.
    pub fn cut(&self, address: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
    }
}

/// Takes connections within a [`Twin`].
pub struct TwinListener(mpsc::Receiver<Wire>);

impl Transport for Twin {
    fn connect(&self, seat: &Seat) -> BoxFuture<'static, io::Result<Wire>> {
        let there = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&seat.address).cloned();
        Box::pin(async move {
            let (here, far) = tokio::io::duplex(TWIN_BYTES);
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            there.ok_or_else(refused)?.send(Wire::of(far)).await.map_err(|_| refused())?;
            Ok(Wire::of(here))
        })
    }
}

impl Listener for TwinListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Handshake>> {
        Box::pin(async move {
            match self.0.recv().await {
                Some(wire) => Ok(ready(Ok(wire))),
                None => std::future::pending().await,
            }
        })
    }
}

/// Take connections from a socket that is bound already.
pub fn listener(socket: std::net::TcpListener) -> Result<TcpListener> {
    TcpListener::from_std(socket).map_err(|error| Error::io("cannot listen for other members", "a socket", &error))
}
