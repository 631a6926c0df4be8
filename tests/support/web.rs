//! Web servers of files that are not ours, on free ports of this machine, gone when the test is: nginx, which serves ranges, and
//! Python's own, which doesn't.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server with a folder of files.
pub struct Served {
    child: Child,
    port: u16,
    scheme: &'static str,
}

impl Served {
    fn start(mut command: Command, port: u16) -> Served {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the server starts");
        let served = Served { child, port, scheme: "http" };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        served
    }

    pub fn python(folder: &Path) -> Served {
        let port = free();
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]).current_dir(folder);
        Served::start(command, port)
    }

    pub fn nginx(folder: &Path, scratch: &Path) -> Option<Served> {
        Served::nginx_by(folder, scratch, "")
    }

    /// Over TLS, with the certificate and the key of this file.
    pub fn nginx_over_tls(folder: &Path, scratch: &Path, pem: &Path) -> Option<Served> {
        let pem = pem.display();
        let tls = format!(" ssl; ssl_certificate {pem}; ssl_certificate_key {pem}");
        let mut served = Served::nginx_by(folder, scratch, &tls)?;
        served.scheme = "https";
        Some(served)
    }

    fn nginx_by(folder: &Path, scratch: &Path, tls: &str) -> Option<Served> {
        let found = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
        let Some(program) = found else {
            eprintln!("SKIPPED: there is no nginx here");
            return None;
        };
        let (port, scratch) = (free(), scratch.display());
        let config = format!(
            "daemon off; master_process off; pid {scratch}/nginx.pid; error_log {scratch}/nginx.log; events {{}}\n\
             http {{ access_log off; client_body_temp_path {scratch}/t1; proxy_temp_path {scratch}/t2; fastcgi_temp_path {scratch}/t3; \
             uwsgi_temp_path {scratch}/t4; scgi_temp_path {scratch}/t5; gzip on; gzip_types *; \
             server {{ listen 127.0.0.1:{port}{tls}; root {}; location /away/ {{ return 302 http://127.0.0.1:1/; }} \
             location /kept/ {{ if ($http_authorization != \"Bearer s3cr3t-t0ken\") {{ return 401; }} alias {}/; }} }} }}",
            folder.display(),
            folder.display(),
        );
        let path = format!("{scratch}/nginx.conf");
        fs::write(&path, config).expect("a file");
        let mut command = Command::new(program);
        command.args(["-c", &path, "-e", &format!("{scratch}/nginx.log")]);
        Some(Served::start(command, port))
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}://127.0.0.1:{}/{path}", self.scheme, self.port)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
