//! Hadoop's own name nodes and data nodes, each a process of its own on free ports of this machine, gone when the test
//! is. `make hadoop` brings their programs to `target/tools/hadoop`; without them, tests that need them are left out, and
//! say so. Files are written by Hadoop's interface over HTTP, by nothing of ours.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes of a block: small, so that files have several.
pub const BLOCK: usize = 4 << 20;

/// Who owns what tests write, and may do everything.
pub const OWNER: &str = "owner";

/// Nothing here takes longer on a machine that works at all.
const LONG: Duration = Duration::from_secs(120);

/// A cluster, which keeps each block on two data nodes, or on the one there is.
pub struct Hadoop {
    folder: TempDir,
    classes: String,
    /// Of the name nodes. Kerberos knows machines by name.
    host: &'static str,
    /// Words for each Java machine, and variables for each command.
    java: Vec<String>,
    variables: Vec<(String, String)>,
    name_nodes: Vec<NameNode>,
    data_nodes: Vec<Option<Child>>,
}

struct NameNode {
    child: Option<Child>,
    port: u16,
    http: u16,
}

impl Hadoop {
    /// So many name nodes, of which the first is active, and so many data nodes.
    pub fn start(name_nodes: usize, data_nodes: usize) -> Option<Hadoop> {
        let mut hadoop = Hadoop::new("127.0.0.1", name_nodes)?;
        hadoop.variables.push(("HADOOP_USER_NAME".into(), OWNER.into()));
        hadoop.begin_all(data_nodes, &[]);
        Some(hadoop)
    }

    /// One of each, that want to know by Kerberos who asks, and send bytes encrypted; `keytab` has the keys of `server`, as which
    /// they run and their commands ask by `tickets`; `realm` is its configuration.
    pub fn secure(server: &str, keytab: &Path, tickets: &str, realm: &Path) -> Option<Hadoop> {
        let (principal, keytab) = (format!("{server}@TEST"), keytab.to_str().expect("a path"));
        let mut hadoop = Hadoop::new("localhost", 1)?;
        hadoop.java.push(format!("-Djava.security.krb5.conf={}", realm.display()));
        hadoop.variables.push(("KRB5CCNAME".into(), tickets.into()));
        let more = [
            ("hadoop.security.authentication", "kerberos"),
            ("hadoop.security.authorization", "true"),
            ("dfs.namenode.kerberos.principal", &principal),
            ("dfs.namenode.keytab.file", keytab),
            ("dfs.datanode.kerberos.principal", &principal),
            ("dfs.datanode.keytab.file", keytab),
            ("dfs.web.authentication.kerberos.principal", "HTTP/localhost@TEST"),
            ("dfs.web.authentication.kerberos.keytab", keytab),
            ("dfs.block.access.token.enable", "true"),
            ("dfs.data.transfer.protection", "privacy"),
            ("ignore.secure.ports.for.testing", "true"),
        ];
        hadoop.begin_all(1, &more);
        Some(hadoop)
    }

    fn new(host: &'static str, name_nodes: usize) -> Option<Hadoop> {
        let classes = classes()?;
        let folder = tempfile::Builder::new().prefix("stoker-hadoop-").tempdir().expect("a folder");
        let name_nodes = (0..name_nodes).map(|_| NameNode { child: None, port: free(), http: free() }).collect();
        let (java, variables, data_nodes) = (Vec::new(), Vec::new(), Vec::new());
        Some(Hadoop { folder, classes, host, java, variables, name_nodes, data_nodes })
    }

    fn begin_all(&mut self, data_nodes: usize, more: &[(&str, &str)]) {
        let hadoop = self;
        hadoop.write_configurations(data_nodes, more);
        hadoop.finished(0, "hdfs.server.namenode.NameNode", &["-format", "-nonInteractive"]);
        for number in 1..hadoop.name_nodes.len() {
            // What another begins with is a copy of what the first was formatted to.
            copy(&hadoop.path("name0"), &hadoop.path(&format!("name{number}")));
        }
        (0..hadoop.name_nodes.len()).for_each(|number| hadoop.start_name_node(number));
        if hadoop.name_nodes.len() > 1 {
            hadoop.activate(0);
        }
        for number in 0..data_nodes {
            hadoop.data_nodes.push(None);
            hadoop.start_data_node(number);
        }
        hadoop.wait_for(data_nodes);
    }

    /// `hdfs://` with a path: by the address of the only name node, or by the name service of several.
    pub fn url(&self, path: &str) -> String {
        match &self.name_nodes[..] {
            [only] => format!("hdfs://{}:{}/{path}", self.host, only.port),
            _ => format!("hdfs://blue/{path}"),
        }
    }

    /// As HADOOP_CONF_DIR has it.
    pub fn configuration(&self) -> PathBuf {
        self.path("conf0")
    }

    /// Write a file whose path needs no escapes.
    pub fn put(&self, path: &str, content: &[u8]) {
        self.ask("PUT", &format!("{path}?op=CREATE&overwrite=true&createparent=true"), content);
    }

    /// Add to the end of a file.
    pub fn append(&self, path: &str, content: &[u8]) {
        self.ask("POST", &format!("{path}?op=APPEND"), content);
    }

    /// Any operation of Hadoop's interface over HTTP, which has to succeed: its answer.
    pub fn ask(&self, method: &str, operation: &str, content: &[u8]) -> String {
        let began = Instant::now();
        loop {
            match self.name_nodes.iter().find_map(|one| asked(one.http, method, operation, content)) {
                Some(said) => return said,
                None => assert!(began.elapsed() < LONG, "{method} {operation} is refused"),
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn stop_name_node(&mut self, number: usize) {
        end(&mut self.name_nodes[number].child);
    }

    pub fn start_name_node(&mut self, number: usize) {
        let child = self.begin(number, "hdfs.server.namenode.NameNode", &[]);
        self.name_nodes[number].child = Some(child);
        let port = self.name_nodes[number].port;
        until("the name node listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Make a name node that stands by the active one, by its own command.
    pub fn activate(&self, number: usize) {
        let name = format!("nn{number}");
        self.finished(0, "hdfs.tools.DFSHAAdmin", &["-ns", "blue", "-transitionToActive", &name]);
    }

    /// The same while the one that was active can't be asked to stand by.
    pub fn activate_by_force(&self, number: usize) {
        let name = format!("nn{number}");
        self.finished(0, "hdfs.tools.DFSHAAdmin", &["-ns", "blue", "-transitionToActive", "--forceactive", &name]);
    }

    pub fn stop_data_node(&mut self, number: usize) {
        end(&mut self.data_nodes[number]);
    }

    pub fn start_data_node(&mut self, number: usize) {
        let data = format!("dfs.datanode.data.dir=file://{}", self.path(&format!("data{number}")).display());
        self.data_nodes[number] = Some(self.begin(0, "hdfs.server.datanode.DataNode", &["-D", &data]));
    }

    /// Stop a data node where it stands (`STOP`), as a machine that hangs, or let it go on (`CONT`).
    pub fn signal_data_node(&self, number: usize, word: &str) {
        signal(self.data_nodes[number].as_ref(), word);
    }

    /// Turn a bit round in each block of a data node, which it doesn't notice.
    pub fn damage(&self, number: usize) {
        let (mut folders, mut blocks) = (vec![self.path(&format!("data{number}"))], 0);
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if path.is_dir() {
                    folders.push(path);
                } else if name.starts_with("blk_") && !name.ends_with(".meta") {
                    let mut content = fs::read(&path).expect("a block");
                    let middle = content.len() / 2;
                    content[middle] ^= 1;
                    fs::write(&path, content).expect("a block");
                    blocks += 1;
                }
            }
        }
        assert!(blocks > 0, "it has no block");
    }

    /// The same with a name node.
    pub fn signal_name_node(&self, number: usize, word: &str) {
        signal(self.name_nodes[number].child.as_ref(), word);
    }

    /// Wait until so many data nodes serve, and files can be written.
    pub fn wait_for(&self, data_nodes: usize) {
        let told = format!("\"NumLiveDataNodes\" : {data_nodes},");
        let query = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState";
        until("the data nodes are there", || {
            let said = |one: &NameNode| http(one.http, "GET", query, b"").is_some_and(|said| said.contains(&told));
            self.name_nodes.iter().filter(|one| one.child.is_some()).all(said)
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_configurations(&self, data_nodes: usize, more: &[(&str, &str)]) {
        let (replicas, block) = (data_nodes.clamp(1, 2).to_string(), BLOCK.to_string());
        let mut all: Vec<(String, String)> = [
            ("dfs.replication", replicas.as_str()),
            ("dfs.blocksize", &block),
            ("dfs.namenode.fs-limits.min-block-size", "4096"),
            ("dfs.namenode.safemode.extension", "0"),
            ("dfs.heartbeat.interval", "1"),
            ("dfs.datanode.address", "127.0.0.1:0"),
            ("dfs.datanode.ipc.address", "127.0.0.1:0"),
            ("dfs.datanode.http.address", "127.0.0.1:0"),
            ("dfs.datanode.hostname", "127.0.0.1"),
            ("ipc.client.connect.max.retries", "1"),
            // Nothing here outlives its processes.
            ("dfs.namenode.edits.noeditlogchannelflush", "true"),
            ("dfs.ha.fencing.methods", "shell(/bin/true)"),
            ("dfs.ha.tail-edits.period", "1s"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        let is_alone = self.name_nodes.len() == 1;
        if !is_alone {
            let names: Vec<_> = (0..self.name_nodes.len()).map(|number| format!("nn{number}")).collect();
            all.push(("dfs.nameservices".into(), "blue".into()));
            all.push(("dfs.ha.namenodes.blue".into(), names.join(",")));
            let way = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider";
            all.push(("dfs.client.failover.proxy.provider.blue".into(), way.into()));
            let shared = format!("file://{}", self.path("edits").display());
            fs::create_dir(self.path("edits")).expect("a folder");
            all.push(("dfs.namenode.shared.edits.dir".into(), shared));
        }
        for (number, one) in self.name_nodes.iter().enumerate() {
            let behind = if is_alone { String::new() } else { format!(".blue.nn{number}") };
            all.push((format!("dfs.namenode.rpc-address{behind}"), format!("{}:{}", self.host, one.port)));
            all.push((format!("dfs.namenode.http-address{behind}"), format!("{}:{}", self.host, one.http)));
        }
        all.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        for number in 0..self.name_nodes.len() {
            let mut own = all.clone();
            own.push((
                "dfs.namenode.name.dir".into(),
                format!("file://{}", self.path(&format!("name{number}")).display()),
            ));
            if !is_alone {
                own.push(("dfs.ha.namenode.id".into(), format!("nn{number}")));
            }
            let mut core = vec![
                ("fs.defaultFS".to_owned(), self.url("").trim_end_matches('/').to_owned()),
                ("hadoop.tmp.dir".to_owned(), self.path("tmp").display().to_string()),
            ];
            core.extend(own.iter().filter(|(name, _)| name.starts_with("hadoop.")).cloned());
            let folder = self.path(&format!("conf{number}"));
            fs::create_dir(&folder).expect("a folder");
            fs::write(folder.join("core-site.xml"), xml(&core)).expect("written");
            fs::write(folder.join("hdfs-site.xml"), xml(&own)).expect("written");
        }
    }

    fn java(&self, configuration: usize, class: &str, words: &[&str]) -> Command {
        let mut command = Command::new("java");
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        // What it unpacks there it leaves behind when it is killed.
        command.arg(format!("-Djava.io.tmpdir={}", self.folder.path().display())).args(&self.java).arg("-cp");
        command.arg(format!("{}:{}", self.path(&format!("conf{configuration}")).display(), self.classes));
        command.arg(format!("org.apache.hadoop.{class}")).args(words);
        command.current_dir(self.folder.path()).envs(self.variables.iter().cloned()).stdin(Stdio::null());
        command
    }

    fn begin(&self, configuration: usize, class: &str, words: &[&str]) -> Child {
        let mut command = self.java(configuration, class, words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("there is java")
    }

    /// A command of Hadoop's that has to succeed.
    pub fn finished(&self, configuration: usize, class: &str, words: &[&str]) {
        let done = self.java(configuration, class, words).output().expect("there is java");
        assert!(done.status.success(), "{class} {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Hadoop {
    fn drop(&mut self) {
        self.data_nodes.iter_mut().for_each(end);
        self.name_nodes.iter_mut().for_each(|one| end(&mut one.child));
    }
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn signal(child: Option<&Child>, word: &str) {
    let pid = child.expect("it runs").id().to_string();
    let done = Command::new("kill").args(["-s", word, &pid]).status().expect("there is kill");
    assert!(done.success(), "kill -s {word} {pid}");
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-r").args([from, to]).status().expect("there is cp");
    assert!(done.success());
}

fn xml(all: &[(String, String)]) -> String {
    let property =
        |(name, value): &(String, String)| format!("<property><name>{name}</name><value>{value}</value></property>\n");
    format!("<configuration>\n{}</configuration>\n", all.iter().map(property).collect::<String>())
}

/// What an operation answers, if the name node at this port takes it. A data node takes the bytes.
fn asked(port: u16, method: &str, operation: &str, content: &[u8]) -> Option<String> {
    let said = http(port, method, &format!("/webhdfs/v1/{operation}&user.name={OWNER}&noredirect=true"), b"")?;
    let Some((_, location)) = said.split_once("\"Location\":\"http://") else { return Some(said) };
    let (place, path) = location.split_once('"')?.0.split_once('/')?;
    http(place.rsplit_once(':')?.1.parse().ok()?, method, &format!("/{path}"), content)
}

/// A request that is made by hand: its answer if it is a yes.
fn http(port: u16, method: &str, path: &str, body: &[u8]) -> Option<String> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\
         content-type: application/octet-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut line = TcpStream::connect(("127.0.0.1", port)).ok()?;
    line.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    line.write_all(head.as_bytes()).ok()?;
    line.write_all(body).ok()?;
    let said = std::io::read_to_string(line).ok()?;
    // A data node says first that it may come.
    said.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n").starts_with("HTTP/1.1 20").then_some(said)
}

/// A port that nobody listens at.
fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

/// Hadoop's programs below `target/tools`.
fn classes() -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/hadoop");
    let jars = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let jars: Vec<String> = jars.filter_map(|path| Some(path.canonicalize().ok()?.to_str()?.to_owned())).collect();
    if jars.is_empty() {
        eprintln!("SKIPPED: there is no Hadoop here: `make hadoop` brings it");
        return None;
    }
    if Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED: there is no java here, which Hadoop runs in");
        return None;
    }
    Some(jars.join(":"))
}
