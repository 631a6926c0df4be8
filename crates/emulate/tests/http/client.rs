//! A client that hides nothing: one connection a request, bytes as they came. No retries.

use std::net::SocketAddr;
use std::path::Path;
use stoker_emulate::{Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The contents of all elements of this name, in order.
    pub fn elements(&self, name: &str) -> Vec<String> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let plain = |text: &str| text.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<");
        self.text().split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).map(plain).collect()
    }

    pub fn code(&self) -> String {
        self.elements("Code").into_iter().next().unwrap_or_default()
    }

    /// Whether as many bytes came as were promised.
    pub fn is_complete(&self) -> bool {
        self.header("content-length") == Some(&self.body.len().to_string())
    }

    pub fn etag(&self) -> String {
        self.header("etag").expect("an etag").to_string()
    }
}

/// A server over a scratch folder with one bucket.
pub struct Scene {
    pub folder: tempfile::TempDir,
    pub server: Server,
}

impl Scene {
    pub async fn new() -> Scene {
        Scene::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Settings)) -> Scene {
        let folder = tempfile::tempdir().expect("a scratch folder");
        std::fs::create_dir(folder.path().join("bucket")).expect("a bucket");
        let mut settings = Settings::of(folder.path());
        change(&mut settings);
        Scene { server: Server::start(settings).await.expect("a server"), folder }
    }

    pub fn bucket(&self) -> std::path::PathBuf {
        self.folder.path().join("bucket")
    }

    pub fn write(&self, key: &str, bytes: &[u8]) {
        write(&self.bucket().join(key), bytes);
    }

    pub async fn try_ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        ask(self.server.address(), method, path, headers, body).await
    }

    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.try_ask(method, path, headers, b"").await.expect("an answer")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[]).await
    }

    pub async fn put(&self, path: &str, body: &[u8]) -> Answer {
        self.try_ask("PUT", path, &[], body).await.expect("an answer")
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.try_ask(method, path, headers, body.as_bytes()).await.expect("an answer")
    }
}

pub fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(path, bytes).expect("a file");
}

/// Bytes that differ from their neighbours.
pub fn noise(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head.push_str(&format!("host: {address}\r\n"));
    }
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    if !body.is_empty() || method == "PUT" || method == "POST" {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    // A server that refuses early may close before it has read everything.
    let _ = stream.write_all(body).await;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let end =
        bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(|| std::io::Error::other("no answer"))?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head[9..12].parse().expect("a status");
    Ok(Answer { status, head, body: bytes[end + 4..].to_vec() })
}
