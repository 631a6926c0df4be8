//! Servers that speak Google's and Azure's interfaces and are not ours, on free ports of this machine, gone when the
//! test is: fake-gcs-server, a Go module, and Azurite, a package of npm. `make servers` brings them to `target/tools`;
//! without them, tests that need them are left out, and say so.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The account of Azurite, and its key, which everybody knows.
pub const ACCOUNT: &str = "devstoreaccount1";
pub const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Signatures of that key for all of its account: one that is good until 2099, and one that was until 2020.
pub const SIGNATURE: &str = "sv=2020-04-08&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&sig=hKg%2BuVH9TuT2zhvBAaxpr6rmD0EAQxz99Nk2HKrJ%2FDo%3D";
pub const EXPIRED: &str =
    "sv=2020-04-08&ss=b&srt=sco&sp=rl&se=2020-01-01T00%3A00%3A00Z&sig=pKgBws7gaFPzTL1gCJtstNxOf5sYwRrFFzJoPP7ujgs%3D";

/// A server with one empty bucket, or container.
pub struct Cloud {
    child: Child,
    /// Host and port.
    pub address: String,
    is_google: bool,
    folder: TempDir,
}

/// Of a bucket and of a container.
pub const NAME: &str = "bucket";

impl Cloud {
    /// Google's interface; it asks nobody for credentials.
    pub fn google() -> Option<Cloud> {
        let program = program("fake-gcs-server")?;
        let (address, port) = free();
        let mut command = Command::new(program);
        command.args(["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", &port]);
        command.args(["-public-host", &address]);
        let cloud = Cloud::start(command, address, true);
        cloud.ask("POST", "/storage/v1/b?project=p", &[], format!("{{\"name\": \"{NAME}\"}}").as_bytes());
        Some(cloud)
    }

    /// Azure's interface.
    pub fn azure() -> Option<Cloud> {
        let program = program("node_modules/.bin/azurite-blob")?;
        let (address, port) = free();
        let mut command = Command::new(program);
        command.args(["--inMemoryPersistence", "--disableTelemetry", "--blobHost", "127.0.0.1"]);
        command.args(["--blobPort", &port]);
        let cloud = Cloud::start(command, address, false);
        cloud.ask("PUT", &format!("/{ACCOUNT}/{NAME}?restype=container&{SIGNATURE}"), &[], b"");
        Some(cloud)
    }

    fn start(mut command: Command, address: String, is_google: bool) -> Cloud {
        let folder = tempfile::tempdir().expect("a folder");
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        command.current_dir(folder.path()).stdin(Stdio::null()).stderr(log.try_clone().expect("a log")).stdout(log);
        let child = command.spawn().expect("the server starts");
        let cloud = Cloud { child, address, is_google, folder };
        let began = Instant::now();
        while TcpStream::connect(&cloud.address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        cloud
    }

    /// As `--endpoint` has it.
    pub fn endpoint(&self) -> String {
        let account = if self.is_google { String::new() } else { format!("/{ACCOUNT}") };
        format!("http://{}{account}", self.address)
    }

    pub fn url(&self, prefix: &str) -> String {
        format!("{}://{NAME}/{prefix}", if self.is_google { "gs" } else { "az" })
    }

    /// Requests that read, by the server's own log.
    pub fn reads(&self) -> u64 {
        let log = std::fs::read_to_string(self.folder.path().join("log")).expect("a log");
        log.lines().filter(|line| line.contains("GET /") || line.contains("HEAD /")).count() as u64
    }

    /// Requests for bytes of objects, by the log of the server of Google's interface, which tells no bytes.
    pub fn gets(&self) -> u64 {
        assert!(self.is_google, "Azurite's log is another");
        let log = std::fs::read_to_string(self.folder.path().join("log")).expect("a log");
        log.lines().filter(|line| line.contains("GET /") && line.contains("alt=media")).count() as u64
    }

    /// Write an object whose key needs no escapes.
    pub fn put(&self, key: &str, content: &[u8]) {
        match self.is_google {
            true => {
                self.ask("POST", &format!("/upload/storage/v1/b/{NAME}/o?uploadType=media&name={key}"), &[], content)
            }
            false => {
                let kind = ("x-ms-blob-type", "BlockBlob");
                self.ask("PUT", &format!("/{ACCOUNT}/{NAME}/{key}?{SIGNATURE}"), &[kind], content)
            }
        };
    }

    /// A request that is made by hand and has to succeed; its answer.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        let usual = [("content-type", "application/json"), ("x-ms-version", "2020-04-08")];
        for (name, value) in usual.iter().chain(headers) {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        let asked = || {
            let mut line = TcpStream::connect(&self.address)?;
            line.write_all(head.as_bytes())?;
            line.write_all(body)?;
            std::io::read_to_string(line)
        };
        let said = asked().expect("an answer");
        assert!(said.starts_with("HTTP/1.1 20"), "{method} {path}: {said}");
        said
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that nobody listens at, and its port.
fn free() -> (String, String) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    (format!("127.0.0.1:{port}"), port.to_string())
}

/// A server's program below `target/tools`.
fn program(name: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools").join(name);
    if !program.exists() {
        let name = name.rsplit('/').next().unwrap_or(name);
        eprintln!("SKIPPED: there is no {name} here: `make servers` brings it");
        return None;
    }
    Some(program)
}
