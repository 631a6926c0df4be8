//! Whose certificates are trusted: those of AWS_CA_BUNDLE if it is set, as AWS's own tools have it, else those of the
//! system, which SSL_CERT_FILE and SSL_CERT_DIR may replace. The variables are those of whoever asks.
//!
//! Invariant: a certificate passes only for the name that it is made out to and while it is valid.

use super::credentials::{Variables, environment_of};
use crate::files;
use block::{Error, Result};
use reqsign_core::Context;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_native_certs::{CertificateResult, load_certs_from_paths};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where systems keep whom they trust, all of them in one file: Debian, RHEL, older RHEL, SUSE, Alpine.
const SYSTEM_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The same, each in a file of its own.
const SYSTEM_FOLDERS: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// How TLS is spoken. A client of plain HTTP trusts nobody and so reads no certificates.
pub fn config(is_secure: bool, variables: &Variables) -> Result<ClientConfig> {
    match is_secure {
        true => secure(&environment_of(variables)),
        false => {
            let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
            let config = config.map_err(|error| unusable(&error))?;
            Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// How TLS is spoken where this is the environment.
fn secure(environment: &Context) -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = config.map_err(|error| unusable(&error))?;
    let (certificates, named) = certificates(environment)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|error| {
        unusable(&error)
            .hint("install ca-certificates, or set AWS_CA_BUNDLE or SSL_CERT_FILE to a file of certificates")
    })?;
    let verifier = Verifier { verifier, named: if named { certificates } else { Vec::new() } };
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// What is trusted, and whether somebody named it.
fn certificates(environment: &Context) -> Result<(Vec<CertificateDer<'static>>, bool)> {
    let named = |name| environment.env_var(name).filter(|value| !value.is_empty());
    if let Some(bundle) = named("AWS_CA_BUNDLE") {
        let unreadable = |why: String| {
            let what = format!("the certificates of AWS_CA_BUNDLE can't be read: {why}");
            Err(Error::invalid(what, &bundle).hint("name a file of certificates in PEM format"))
        };
        let read = match files::read(Path::new(&bundle)) {
            Ok(text) => CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>(),
            Err(error) => return unreadable(error.to_string()),
        };
        return match read {
            Ok(read) if !read.is_empty() => Ok((read, true)),
            Ok(_) => unreadable("there are none in it".into()),
            Err(error) => unreadable(error.to_string()),
        };
    }
    let [file, folder] = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| named(name).map(PathBuf::from));
    let found = match (&file, &folder) {
        (None, None) => of_the_system(),
        _ => load_certs_from_paths(file.as_deref(), folder.as_deref()),
    };
    if found.certs.is_empty() {
        let why: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        let named = file.as_ref().map(|path| ("SSL_CERT_FILE", path));
        let named = named.or_else(|| folder.as_ref().map(|path| ("SSL_CERT_DIR", path)));
        let (whose, on) =
            named.map_or(("this system", "this machine".into()), |(name, path)| (name, path.display().to_string()));
        let what = format!("the certificates of {whose} can't be read: {}", why.join("; "));
        return Err(Error::invalid(what, on).hint("install ca-certificates, or set SSL_CERT_FILE"));
    }
    Ok((found.certs, file.is_some()))
}

/// Whom the system trusts. The library would look at the variables of this process first, which may be another's.
fn of_the_system() -> CertificateResult {
    let file = SYSTEM_FILES.iter().map(Path::new).find(|file| file.exists());
    let mut found = load_certs_from_paths(file, None);
    for folder in SYSTEM_FOLDERS.iter().map(Path::new).filter(|folder| folder.exists()) {
        let more = load_certs_from_paths(None, Some(folder));
        found.certs.extend(more.certs);
        found.errors.extend(more.errors);
    }
    found
}

fn unusable(error: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("TLS can't be set up: {error}"), "this machine")
}

/// Verifies as the web does, and lets a server show the very certificate that was named: one that signed itself is
/// an authority by its form, which no server may be otherwise.
#[derive(Debug)]
struct Verifier {
    verifier: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verifier.verify_server_cert(shown, chain, name, stapled, now);
        // By then its time was compared. The name is not yet.
        let is_authority = verified.as_ref().is_err_and(is_of_an_authority);
        if is_authority && self.named.iter().any(|named| named == shown) {
            verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Whether a certificate was refused for nothing but that it is an authority's.
fn is_of_an_authority(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.to_string().contains(OF_AN_AUTHORITY) || format!("{other:?}").contains(OF_AN_AUTHORITY)
        }
        _ => false,
    }
}

/// What the library that verifies says of an authority's certificate that a server shows.
const OF_AN_AUTHORITY: &str = "CaUsedAsEndEntity";

#[cfg(test)]
mod tests;
