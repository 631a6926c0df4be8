//! Members that prove who they are: TLS 1.3 in which each side shows a certificate of the cluster's own authority.
//!
//! A certificate is of one member: its name is `<id in hex>.stoker`. So the asker knows that it speaks with the member it
//! means, and the asked one that the greeting is true. Keys are read again when their files change.
//!
//! Invariant: nobody without a key of the cluster is answered a word, and no word of a key gets into an error.

use crate::Seat;
use crate::transport::{Handshake, Listener, Transport, Way, Wire, dial, unconfirmed};
use block::{Error, Result, quoted};
use futures_util::future::BoxFuture;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig, version};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncWrite, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What is spoken, so that no other server with a certificate of the same authority is taken for a member.
const PROTOCOL: &[u8] = b"stoker/1";

/// Files of an identity: the authority, this member's certificate, and its key.
const FILES: [&str; 3] = ["ca.pem", "node.pem", "node.key"];

/// How long a connection waits for a look at the files, which may lie on a network.
const LOOKED_AT_WITHIN: Duration = Duration::from_millis(200);

/// The name in the certificate of a member.
pub fn certified_name(member: u128) -> String {
    format!("{member:032x}.stoker")
}

/// A folder with the keys of this member.
#[derive(Clone)]
pub struct Tls(Arc<Parts>);

struct Parts {
    folder: PathBuf,
    loaded: Mutex<Loaded>,
    /// Somebody looks at the files.
    is_looked_at: AtomicBool,
}

#[derive(Clone)]
struct Loaded {
    stamps: [Option<(SystemTime, u64)>; 3],
    asks: Arc<ClientConfig>,
    answers: Arc<ServerConfig>,
}

impl Tls {
    /// Read the keys of a member. Those that others may read are refused.
    pub fn load(folder: &Path, member: u128) -> Result<Tls> {
        if let Some(own) = one_of_all(folder, member) {
            let what = "this is the folder of all members, and each has one of its own";
            return Err(Error::invalid(what, folder.display()).hint(format!("name {}", quoted(&own))));
        }
        let loaded = Loaded::read(folder)?;
        let certificate = certificates(&folder.join(FILES[1]))?.swap_remove(0);
        if !is_signed(&certificate, &folder.join(FILES[0]))? {
            let what = "the authority (ca.pem) did not sign the certificate (node.pem)";
            let hint = "give this node keys made by the same `stoker keys` as those of the others";
            return Err(Error::invalid(what, folder.display()).hint(hint));
        }
        if !is_of(&certificate, member) {
            let what = "the certificate is of another member, or of none";
            let hint = "name the folder of this member; `stoker keys --members FILE --out DIR` makes one for each";
            return Err(Error::invalid(what, folder.display()).hint(hint));
        }
        Ok(Tls(Arc::new(Parts { folder: folder.to_owned(), loaded: loaded.into(), is_looked_at: false.into() })))
    }

    /// Take connections from a socket that is bound already.
    pub fn listener(&self, socket: TcpListener) -> impl Listener + use<> {
        TlsListener { tls: self.clone(), socket }
    }

    /// The keys as they are in their files. Files that can't be read any more, or hang, leave them as they were.
    async fn loaded(&self) -> Loaded {
        if !self.0.is_looked_at.swap(true, Relaxed) {
            let tls = self.clone();
            let looking = tokio::task::spawn_blocking(move || {
                tls.look();
                tls.0.is_looked_at.store(false, Relaxed);
            });
            let _ = tokio::time::timeout(LOOKED_AT_WITHIN, looking).await;
        }
        self.known().clone()
    }

    fn look(&self) {
        let stamps = stamps(&self.0.folder);
        if self.known().stamps == stamps {
            return;
        }
        match Loaded::read(&self.0.folder) {
            Ok(read) => *self.known() = read,
            Err(error) => {
                // Said once for each change.
                self.known().stamps = stamps;
                tracing::warn!("the keys of this member stay as they were: {error}");
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Loaded> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loaded {
    fn read(folder: &Path) -> Result<Loaded> {
        let stamps = stamps(folder);
        let [authority, certificate, key] = FILES.map(|name| folder.join(name));
        let status = std::fs::metadata(&key).map_err(|error| missing(&key, &error))?;
        if status.mode() & 0o077 != 0 {
            let error = Error::denied("others may read the key of this member", key.display());
            return Err(error.hint(format!("chmod 600 {}", quoted(&key))));
        }
        let wrong = |what: &str| Error::invalid(what, folder.display()).hint("make them anew with `stoker keys`");
        let mut roots = RootCertStore::empty();
        for one in certificates(&authority)? {
            roots.add(one).map_err(|error| wrong(&format!("ca.pem is no certificate: {error}")))?;
        }
        let (roots, chain) = (Arc::new(roots), certificates(&certificate)?);
        // What of it can't be read is nobody's business.
        let key = || PrivateKeyDer::from_pem_file(&key).map_err(|_| wrong("node.key holds no key"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let verifier = verifier.map_err(|error| wrong(&format!("ca.pem can't verify anybody: {error}")))?;
        let unfit = |error: rustls::Error| wrong(&format!("the certificate and the key don't fit: {error}"));
        let asks = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&version::TLS13]);
        let asks = asks.map_err(unfit)?.with_root_certificates(roots);
        let mut asks = asks.with_client_auth_cert(chain.clone(), key()?).map_err(unfit)?;
        asks.alpn_protocols = vec![PROTOCOL.to_vec()];
        let answers = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS13]);
        let answers = answers.map_err(unfit)?.with_client_cert_verifier(verifier);
        let mut answers = answers.with_single_cert(chain, key()?).map_err(unfit)?;
        answers.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Loaded { stamps, asks: Arc::new(asks), answers: Arc::new(answers) })
    }
}

fn stamps(folder: &Path) -> [Option<(SystemTime, u64)>; 3] {
    FILES.map(|name| {
        let status = std::fs::metadata(folder.join(name)).ok()?;
        Some((status.modified().ok()?, status.ino()))
    })
}

fn missing(path: &Path, error: &io::Error) -> Error {
    let hint = "`stoker keys --members FILE --out DIR` makes a folder with keys for each member";
    Error::io("cannot read the keys of this member", path.display(), error).hint(hint)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = std::fs::read(path).map_err(|error| missing(path, &error))?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let wrong = || Error::invalid("this file holds no certificate", path.display());
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(wrong().hint("make them anew with `stoker keys`")),
    }
}

/// The folder of this member where one was named that holds the folders of all.
fn one_of_all(folder: &Path, member: u128) -> Option<PathBuf> {
    let below = std::fs::read_dir(folder).ok().filter(|_| !folder.join(FILES[2]).exists())?;
    let is_own = |below: &PathBuf| certificates(&below.join(FILES[1])).is_ok_and(|found| is_of(&found[0], member));
    below.flatten().map(|entry| entry.path()).find(is_own)
}

/// Whether one of these authorities signed a certificate, as far as its other faults let that be seen.
fn is_signed(certificate: &CertificateDer<'_>, authorities: &Path) -> Result<bool> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(authorities)?);
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return Ok(false) };
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let verified = verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], UnixTime::now(), known);
    let foreign = |error: &rustls::Error| {
        use CertificateError::{BadSignature, UnknownIssuer};
        matches!(error, rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature))
    };
    Ok(!verified.as_ref().is_err_and(foreign))
}

/// Whether a certificate is of this member.
fn is_of(certificate: &CertificateDer<'_>, member: u128) -> bool {
    let name = ServerName::try_from(certified_name(member)).expect("hex digits are a name");
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

/// What to do about a handshake that failed; what TLS says of it is for those who know it.
fn explained(error: io::Error) -> io::Error {
    let text = format!("{error:?}");
    let hint = match () {
        () if text.contains("Expired") || text.contains("NotValidYet") => "renew the keys, or set the clocks right",
        () if ["UnknownIssuer", "UnknownCA", "BadSignature", "DecryptError"].iter().any(|word| text.contains(word)) => {
            "its keys are of another cluster: give all members keys made by the same `stoker keys`"
        }
        () if text.contains("NotValidForName") => "another member has this address, or its keys are those of another",
        () if text.contains("CertificateRequired") => "it shows no certificate",
        () if ["InvalidContentType", "handshake eof", "ConnectionReset"].iter().any(|word| text.contains(word)) => {
            "it may speak unencrypted (--plaintext), and this node doesn't"
        }
        () => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {hint}"))
}

impl Transport for Tls {
    fn connect(&self, seat: &Seat) -> BoxFuture<'static, io::Result<Wire>> {
        let (tls, address, member) = (self.clone(), seat.address.clone(), seat.id);
        Box::pin(async move {
            let socket = dial(&address).await?;
            socket.set_nodelay(true)?;
            let name = ServerName::try_from(certified_name(member)).expect("hex digits are a name");
            let connected = TlsConnector::from(tls.loaded().await.asks).connect(name, socket).await;
            Ok(Wire::of(connected.map_err(explained)?))
        })
    }
}

/// The way out of an encrypted connection.
struct Sealed {
    write: WriteHalf<TlsStream<TcpStream>>,
    /// The same socket: the half can't be asked for it.
    queue: OwnedFd,
}

impl AsyncWrite for Sealed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}

impl Way for Sealed {
    fn unconfirmed(&self) -> Option<u64> {
        unconfirmed(&self.queue)
    }
}

struct TlsListener {
    tls: Tls,
    socket: TcpListener,
}

impl Listener for TlsListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Handshake>> {
        Box::pin(async move {
            let (socket, tls) = (self.socket.accept().await?.0, self.tls.clone());
            let handshake: Handshake = Box::pin(async move {
                socket.set_nodelay(true)?;
                let stream = TlsAcceptor::from(tls.loaded().await.answers).accept(socket).await.map_err(explained)?;
                let (socket, session) = stream.get_ref();
                let shown = session.peer_certificates().and_then(|chain| chain.first().cloned());
                let queue = socket.as_fd().try_clone_to_owned()?;
                let (read, write) = tokio::io::split(stream);
                let is_member = Box::new(move |member| shown.as_ref().is_some_and(|shown| is_of(shown, member)));
                Ok(Wire { read: Box::new(read), write: Box::new(Sealed { write, queue }), is_member })
            });
            Ok(handshake)
        })
    }
}

#[cfg(test)]
mod tests;
