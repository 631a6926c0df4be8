//! TLS against servers of this process: of one the certificate signed itself, of the other an authority did.

use super::*;
use reqsign_core::StaticEnv;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConnection, ServerConfig, ServerConnection, Stream};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Made out to localhost and 127.0.0.1, valid until 2126, an authority by its form as `openssl req -x509` makes them.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBnzCCAUWgAwIBAgIUNUc0hfwovd/DIbcujzs0oSCngmkwCgYIKoZIzj0EAwIw\n\
FjEUMBIGA1UEAwwLc3Rva2VyLXRlc3QwIBcNMjYxMTIyMTMxMzU4WhgPMjEyNjEw\n\
MjkxMzEzNThaMBYxFDASBgNVBAMMC3N0b2tlci10ZXN0MFkwEwYHKoZIzj0CAQYI\n\
KoZIzj0DAQcDQgAEEaP2zzEFhRnOzJ6jJmOMwuAo6YWqMo2FV5Zon01ZadXlNLyf\n\
didFW9tr4QPCF5GSOukylRV/YJKHBcoIEmXI8aNvMG0wHQYDVR0OBBYEFHwG5GNR\n\
mjIwGxU7YTMPHkVzvr6QMB8GA1UdIwQYMBaAFHwG5GNRmjIwGxU7YTMPHkVzvr6Q\n\
MA8GA1UdEwEB/wQFMAMBAf8wGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMAoG\n\
CCqGSM49BAMCA0gAMEUCIQCLBdPPO3DD+wOTySAib+TFISuoLrFw5F3MTHZhczzP\n\
6wIgfg7eN7H45aTYEmyTBZ7jJejL3Ox/ISpLU/8YZaFhoYg=\n\
-----END CERTIFICATE-----\n\
";

/// Its key, which opens nothing but this test.
const KEY: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgriB521RlMtbUpluu\n\
uIY3d54H4OyYRNBFKKKn8/A/fIuhRANCAAQRo/bPMQWFGc7MnqMmY4zC4Cjphaoy\n\
jYVXlmifTVlp1eU0vJ92J0Vb22vhA8IXkZI66TKVFX9gkocFyggSZcjx\n\
-----END PRIVATE KEY-----\n\
";

/// An authority, valid until 2126, whose key is lost.
const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBlzCCAT2gAwIBAgIUXTF5xwzDBeq+LpX9nSsWimrlDo0wCgYIKoZIzj0EAwIw\n\
IDEeMBwGA1UEAwwVc3Rva2VyLXRlc3QgYXV0aG9yaXR5MCAXDTI2MTEyNjIwNTU0\n\
MFoYDzIxMjYxMTAyMjA1NTQwWjAgMR4wHAYDVQQDDBVzdG9rZXItdGVzdCBhdXRo\n\
b3JpdHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASEZtUiAi+ud6DBKkmZViVN\n\
aULOdE3j+OrxqawQUPSyjN3UYquqSO/mhcvYCH6JpCp3KzVkS8VH6MhtiTmuEs9K\n\
o1MwUTAdBgNVHQ4EFgQUGP/B0VH8grPO8SdkU9QcvpO6qCMwHwYDVR0jBBgwFoAU\n\
GP/B0VH8grPO8SdkU9QcvpO6qCMwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD\n\
AgNIADBFAiEAi57GPTGttIBrmocxjyFFHUahv+M3GhdyrlRfTNMoa5ECIA3FD1C5\n\
DFT8uRJgSga5/RkFFXSAH93KoGvkfabVAs0T\n\
-----END CERTIFICATE-----\n\
";

/// What it made out to localhost and 127.0.0.1.
const SIGNED: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBojCCAUegAwIBAgIUcsJa2iTEb3DQuRtiqWhkkPSB4YgwCgYIKoZIzj0EAwIw\n\
IDEeMBwGA1UEAwwVc3Rva2VyLXRlc3QgYXV0aG9yaXR5MCAXDTI2MTEyNjIwNTU0\n\
MFoYDzIxMjYwNzI1MjA1NTQwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcq\n\
hkjOPQIBBggqhkjOPQMBBwNCAAT9VLXryfemzndBhB0M+xMT8lxS5QAlFGJWqYns\n\
s+hS1zeR8x7vSd3y7v+zBeyiRtvt9gaiIUlxadQMDUSDnXdfo2kwZzAaBgNVHREE\n\
EzARgglsb2NhbGhvc3SHBH8AAAEwCQYDVR0TBAIwADAdBgNVHQ4EFgQUYo9GARWf\n\
wQtALZGEC9ywanjPNhIwHwYDVR0jBBgwFoAUGP/B0VH8grPO8SdkU9QcvpO6qCMw\n\
CgYIKoZIzj0EAwIDSQAwRgIhANfo3an6gRmteZs4QzJ+hEY2MpRDklgLQqHgIvoW\n\
6pXNAiEAiI2kJpd7j+sklahtlUZ5fK6cXOXf9NOLvbMa5ZKkPEY=\n\
-----END CERTIFICATE-----\n\
";

/// The key of that, which opens nothing but this test.
const SIGNED_KEY: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgwszIRBefpOdK8TDH\n\
XtljLyQC0EEA6ZxH8//4BX5JDaKhRANCAAT9VLXryfemzndBhB0M+xMT8lxS5QAl\n\
FGJWqYnss+hS1zeR8x7vSd3y7v+zBeyiRtvt9gaiIUlxadQMDUSDnXdf\n\
-----END PRIVATE KEY-----\n\
";

/// A server that says hello over TLS to each of so many clients; its port.
fn server(clients: usize, certificate: &str, key: &str) -> (u16, std::thread::JoinHandle<()>) {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("TLS");
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).expect("a server"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let serve = move || {
        for _ in 0..clients {
            let (mut socket, _) = listener.accept().expect("a client");
            let mut connection = ServerConnection::new(config.clone()).expect("a connection");
            let _ = Stream::new(&mut connection, &mut socket).write_all(b"hello");
        }
    };
    (port, std::thread::spawn(serve))
}

/// What a client hears that trusts these certificates, by this variable, under this name.
fn hello(port: u16, variable: &str, bundle: &str, name: &'static str) -> std::io::Result<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bundle.pem");
    std::fs::write(&path, bundle).expect("a file");
    let of_whoever_asks = [(variable.to_owned(), path.to_string_lossy().into_owned())].into();
    heard(port, config(true, &of_whoever_asks).expect("a client"), name)
}

fn heard(port: u16, config: ClientConfig, name: &'static str) -> std::io::Result<String> {
    let name = ServerName::try_from(name).expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    let mut said = [0; 5];
    Stream::new(&mut connection, &mut socket).read_exact(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_certificate_that_signed_itself_is_trusted_once_it_is_named_and_only_under_its_name() {
    let (port, serving) = server(6, CERTIFICATE, KEY);
    for variable in ["AWS_CA_BUNDLE", "SSL_CERT_FILE"] {
        assert_eq!(hello(port, variable, CERTIFICATE, "localhost").expect("it is named"), "hello");
        assert_eq!(hello(port, variable, CERTIFICATE, "127.0.0.1").expect("it is named"), "hello");
        let error = hello(port, variable, CERTIFICATE, "elsewhere").expect_err("another name").to_string();
        assert!(error.contains("NotValidForName") || error.contains("not valid for name"), "{error}");
    }
    serving.join().expect("a server");
}

/// The port of the server, for [`as_the_environment_of_this_process_has_it`].
const PORT: &str = "STOKER_TEST_PORT";

#[test]
#[ignore = "run by the test below, in processes with environments of their own"]
fn as_the_environment_of_this_process_has_it() {
    let port = std::env::var(PORT).expect("run by the test below").parse().expect("a port");
    let of_another = config(true, &[("HOME".to_owned(), "/".to_owned())].into()).expect("a client");
    let error = heard(port, of_another, "localhost").expect_err("whoever asks has no such variable").to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    let its_own = config(true, &Variables::new()).expect("a client");
    assert_eq!(heard(port, its_own, "localhost").expect("it is trusted"), "hello");
}

#[test]
fn a_variable_of_the_process_counts_for_whoever_has_no_environment_and_for_nobody_who_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("authority.pem");
    std::fs::write(&path, AUTHORITY).expect("a file");
    let (port, serving) = server(6, SIGNED, SIGNED_KEY);
    let passes = |named: Option<&str>| {
        let mut process = std::process::Command::new(std::env::current_exe().expect("this program"));
        process.args(["--ignored", "as_the_environment_of_this_process_has_it"]).env(PORT, port.to_string());
        for name in ["AWS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
            process.env_remove(name);
        }
        process.envs(named.map(|name| (name, &path)));
        process.output().expect("it runs").status.success()
    };
    assert!(passes(Some("AWS_CA_BUNDLE")) && passes(Some("SSL_CERT_FILE")));
    assert!(!passes(None), "nobody named it");
    serving.join().expect("a server");
}

#[test]
fn a_bundle_that_cannot_be_used_is_named() {
    for (name, path) in ["AWS_CA_BUNDLE", "SSL_CERT_FILE"]
        .into_iter()
        .flat_map(|name| ["/absent/bundle.pem", "/proc/version"].map(|path| (name, path)))
    {
        let envs = [(name.to_owned(), path.to_owned())].into();
        let error = secure(&Context::new().with_env(StaticEnv { home_dir: None, envs })).expect_err("no certificates");
        assert!(error.kind == block::Kind::Invalid && !error.hint.is_empty(), "{error}");
        assert!(error.what.contains(name) && error.on == path, "{error}");
    }
}
