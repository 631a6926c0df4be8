//! A realm of Kerberos with MIT's own server on a free port of this machine, gone when the test is. Debian has it as `krb5-kdc`
//! and `krb5-user`; without them, tests that need it are left out, and say so.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Principals of a cluster's servers.
pub const SERVER: &str = "hdfs/localhost";
const WEB: &str = "HTTP/localhost";

/// A realm with its server.
pub struct Realm {
    folder: TempDir,
    child: Option<Child>,
}

impl Realm {
    /// With keys for the servers of a cluster, and for these people.
    pub fn start(people: &[&str]) -> Option<Realm> {
        if ["krb5kdc", "kdb5_util", "kadmin.local", "kinit"].into_iter().any(|name| program(name).is_none()) {
            eprintln!("SKIPPED: there is no krb5kdc here, or no kinit");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("stoker-kerberos-").tempdir().expect("a folder");
        let mut realm = Realm { folder, child: None };
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let at = realm.folder.path().display();
        let client = format!(
            "[libdefaults]\n default_realm = TEST\n dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n rdns = false\n \
             udp_preference_limit = 1\n[realms]\n TEST = {{\n  kdc = 127.0.0.1:{port}\n }}\n[domain_realm]\n localhost = TEST\n"
        );
        let server = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n TEST = {{\n  \
             database_name = {at}/principal\n  key_stash_file = {at}/stash\n  supported_enctypes = aes256-cts-hmac-sha1-96:normal\n }}\n"
        );
        fs::write(realm.configuration(), client).expect("written");
        fs::write(realm.path("kdc.conf"), server).expect("written");
        realm.finished("kdb5_util", &["create", "-r", "TEST", "-s", "-P", "secret"]);
        for name in [SERVER, WEB].iter().chain(people) {
            realm.finished("kadmin.local", &["-r", "TEST", "-q", &format!("addprinc -randkey {name}")]);
        }
        for (file, names) in
            [("server", format!("{SERVER} {WEB}"))].into_iter().chain(people.iter().map(|name| (*name, (*name).into())))
        {
            let keytab = realm.keytab(file);
            realm.finished("kadmin.local", &["-r", "TEST", "-q", &format!("ktadd -k {} {names}", keytab.display())]);
        }
        let mut command = realm.command("krb5kdc");
        command.args(["-n", "-r", "TEST"]).stdout(Stdio::null()).stderr(Stdio::null());
        realm.child = Some(command.spawn().expect("the server starts"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "krb5kdc does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(realm)
    }

    /// As KRB5_CONFIG has it.
    pub fn configuration(&self) -> PathBuf {
        self.path("krb5.conf")
    }

    /// The keys of somebody, or of the `server`s.
    pub fn keytab(&self, who: &str) -> PathBuf {
        self.path(&format!("{who}.keytab"))
    }

    /// Tickets of a principal whose keys lie in that keytab, as KRB5CCNAME has them.
    pub fn tickets(&self, keytab: &str, principal: &str) -> String {
        let tickets = format!("FILE:{}", self.path(&format!("{keytab}.tickets")).display());
        let keytab = self.keytab(keytab);
        self.finished("kinit", &["-c", &tickets, "-k", "-t", keytab.to_str().expect("a path"), principal]);
        tickets
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name).expect("it is here"));
        command
            .env("KRB5_CONFIG", self.configuration())
            .env("KRB5_KDC_PROFILE", self.path("kdc.conf"))
            .stdin(Stdio::null());
        command
    }

    fn finished(&self, name: &str, words: &[&str]) {
        let done = self.command(name).args(words).output().expect("it runs");
        assert!(done.status.success(), "{name} {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program of the system.
fn program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).chain([Path::new("/usr/sbin").to_owned()]);
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}
