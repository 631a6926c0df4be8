//! TLS against a server of this process, whose certificate signed itself.

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

/// A server that says hello over TLS to each of so many clients; its port.
fn server(clients: usize) -> (u16, std::thread::JoinHandle<()>) {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).expect("a key");
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
    let (port, serving) = server(6);
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
    assert!(heard(port, of_another, "localhost").is_err(), "whoever asks has no such variable");
    assert_eq!(
        heard(port, config(true, &Variables::new()).expect("a client"), "localhost").expect("it is trusted"),
        "hello"
    );
}

#[test]
fn either_variable_of_the_process_names_a_certificate_that_signed_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("own.pem");
    std::fs::write(&path, CERTIFICATE).expect("a file");
    let (port, serving) = server(6);
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
