//! Nodes on many hosts, for as long as a job needs them: what is brought there, started, looked at and taken away again.
//!
//! All that is made on a host is written down there before it is made, in a folder of the pool, which goes last: so
//! whoever takes a pool away needs to know nothing but its mount point, also after a crash in the middle. In its folder:
//! `found` (what a host says of itself, and whether a node can run there), `script` (what runs there).
//!
//! What a node is asked for is given as words; this knows no more of it than `mount`, `umount` and `status`.
//! Invariants: nothing is removed that isn't marked as made for this pool; secrets go by standard input alone.

pub mod found;
mod script;

use crate::failure::Wrong;
use crate::run::Job;
use crate::session::{self, Errand, Input, Output};
use crate::{Failure, Host, Sink, Ssh, Stop, Stream, host, quote};
use found::Found;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Lines of an answer that are kept.
const LINES_MAX: usize = 10_000;

/// Members that each host tries to reach: all of them up to this many, then those next to it in the roster. All pairs of a
/// thousand hosts are a million connections.
pub const REACHED_MAX: usize = 64;

/// A program for hosts of one architecture.
#[derive(Clone, Debug)]
pub struct Program {
    /// As `uname -m` has it.
    pub arch: String,
    pub path: PathBuf,
    /// SHA-256, in hexadecimal digits.
    pub hash: String,
    pub bytes: u64,
}

impl Program {
    pub fn new(arch: &str, path: &Path) -> Result<Program, Wrong> {
        let wrong = |what: String| Wrong::new(what, path.display(), "name the program for hosts of that architecture");
        let is_sound = arch.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') && !arch.is_empty();
        if !is_sound {
            return Err(wrong(format!("`{}` is no architecture", host::shown(arch))));
        }
        let read = || {
            let (mut file, mut sum, mut bytes, mut piece) = (File::open(path)?, Sha256::new(), 0, vec![0; 256 << 10]);
            loop {
                match file.read(&mut piece)? {
                    0 => return Ok((sum, bytes)),
                    count => {
                        sum.update(&piece[..count]);
                        bytes += count as u64;
                    }
                }
            }
        };
        let (sum, bytes) = read().map_err(|error: io::Error| wrong(format!("this can't be read: {error}")))?;
        Ok(Program { arch: arch.into(), path: path.into(), hash: hex(&sum.finalize()), bytes })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What a pool is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where each host has it mounted.
    pub dir: PathBuf,
    /// A folder of a local disk of each host, in which the pool makes its own for its cache; else it lies in the home.
    pub cache: Option<PathBuf>,
    /// Port at which members reach each other.
    pub port: u16,
    /// Members have no keys: they speak unencrypted.
    pub is_plaintext: bool,
    /// Tells the pool of this `up` from one that somebody else brings up in the same place; empty, it doesn't matter whose it is.
    pub token: String,
    pub programs: Vec<Program>,
}

/// A file that nobody else may see: its name, and what stands in it.
pub type Secret = (&'static str, Vec<u8>);

/// What a host was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds {
    pub keys: bool,
    pub credentials: bool,
}

/// The file of credentials, for AWS's own tools and for nodes, and the only profile in it.
pub const CREDENTIALS: &str = "credentials";
pub const PROFILE: &str = "stoker-pool";

/// The file of authorities that a member trusts.
pub const AUTHORITY: &str = "ca.pem";

/// A plan with the hosts that it is for.
pub struct Pool<'a> {
    pub plan: &'a Plan,
    pub hosts: &'a [Host],
    pub ssh: &'a Ssh,
    pub sink: &'a dyn Sink,
}

/// A folder of hosts for a mount or a cache, as it has to be written for the hosts.
pub fn folder_there(path: &Path) -> Result<(), Wrong> {
    let bytes = path.as_os_str().as_bytes();
    let is_plain = path.is_absolute() && !bytes.iter().any(u8::is_ascii_control) && std::str::from_utf8(bytes).is_ok();
    let leads =
        path.components().all(|part| !matches!(part, std::path::Component::ParentDir)) && path.parent().is_some();
    let what = match path.is_absolute() {
        true if is_plain && leads => return Ok(()),
        true => "this is no folder of hosts",
        false => "this is not an absolute path",
    };
    Err(Wrong::new(what, path.display(), "give a whole path, such as /data/train"))
}

impl Pool<'_> {
    /// The file of members: where they reach each other, and how they are called.
    pub fn members(&self) -> String {
        let line = |host: &Host| {
            format!(
                "{} name={} weight={}\n",
                host::with_port(host.address(), self.plan.port),
                name(host),
                host.weight()
            )
        };
        self.hosts.iter().map(line).collect()
    }

    /// Ask a host what it is; `clock` tells seconds since 1970 here.
    pub fn look(&self, host: &Host, clock: &(dyn Fn() -> f64 + Sync), stop: &Stop) -> Result<Found, Failure> {
        let hashes = self.plan.programs.iter().map(|program| format!("{}) hash={};;\n", program.arch, program.hash));
        let case = format!("case $(uname -m) in\n{}*) hash=;;\nesac\n", hashes.collect::<String>());
        let before = clock();
        let lines = self.ask(host, &[case.as_bytes(), script::LOOK.as_bytes()].concat(), &nothing, stop)?;
        Ok(Found::read(&lines, before, clock()))
    }

    /// Write down what is going to be there, then make it: folders, the program if it isn't there, the members.
    pub fn prepare(&self, host: &Host, program: &Program, is_there: bool, stop: &Stop) -> Result<(), Failure> {
        let members = quote::quoted(OsStr::new(&self.members()));
        let head =
            [format!("hash={}\n", program.hash).into_bytes(), b"members=".to_vec(), members, b"\n".to_vec()].concat();
        let said = self.ask(host, &[&head, script::PREPARE.as_bytes()].concat(), &nothing, stop)?;
        // Whoever else had it may have taken it away since it was looked for.
        if is_there && said.is_empty() {
            return Ok(());
        }
        let feed = |out: &mut dyn Write| -> io::Result<()> {
            let here = |error: io::Error| io::Error::other(format!("{}: {error}", program.path.display()));
            let (mut file, mut piece) = (File::open(&program.path).map_err(here)?, vec![0; 256 << 10]);
            loop {
                match file.read(&mut piece).map_err(here)? {
                    0 => return out.flush(),
                    count => {
                        out.write_all(&piece[..count])?;
                        self.sink.moved(count as u64);
                    }
                }
            }
        };
        self.ask(host, script::BRING.as_bytes(), &feed, stop).map(drop)
    }

    /// Hand over what nobody else may see, such as the key of a member, into a folder of this user's that lies in memory.
    /// A file takes the place of an older one once all have arrived. `is_first`: the folder must not be there yet.
    pub fn hand_over(&self, host: &Host, secrets: &[Secret], is_first: bool, stop: &Stop) -> Result<(), Failure> {
        let first = if is_first { "yes" } else { "" };
        let mut script = [format!("first={first}\n").as_bytes(), script::SECRETS.as_bytes()].concat();
        for (name, bytes) in secrets {
            script.extend(format!("take {} {}\n", quoted(name), bytes.len()).as_bytes());
        }
        script.extend(b"keep\n");
        let feed = |out: &mut dyn Write| {
            secrets.iter().try_for_each(|(_, bytes)| out.write_all(bytes)).and_then(|()| out.flush())
        };
        self.ask(host, &script, &feed, stop).map(drop)
    }

    /// Have a host trust an authority beside the one that it trusted last, so that all trust a new one before one of them is
    /// known by it. What the host was handed over before comes back; without keys it trusts nobody.
    pub fn trust(&self, host: &Host, authority: &str, stop: &Stop) -> Result<Holds, Failure> {
        let take = format!("take {} {}\n", AUTHORITY, authority.len());
        let script = [b"first=\n".as_slice(), script::SECRETS.as_bytes(), take.as_bytes(), script::TRUST.as_bytes()];
        let feed = |out: &mut dyn Write| out.write_all(authority.as_bytes()).and_then(|()| out.flush());
        let said = self.ask(host, &script.concat(), &feed, stop)?;
        let holds = |word: &[u8]| said.iter().any(|line| line == word);
        Ok(Holds { keys: holds(b"keys"), credentials: holds(b"credentials") })
    }

    /// Mount: `words` follow `stoker mount` and the flags of the pool's own. Ends with the connection until it is mounted.
    pub fn start<S: AsRef<OsStr>>(&self, host: &Host, words: &[S], stop: &Stop) -> Result<(), Failure> {
        let address = quoted(&host::with_port(host.address(), self.plan.port));
        let how = if self.plan.is_plaintext { "--plaintext" } else { "--identity \"$secrets\"" };
        let member = match self.hosts.len() {
            1 => String::new(),
            _ => format!("--members \"$pool/members\" --listen {address} {how}"),
        };
        let mount = [
            b"exec \"$bin/stoker\" mount --detach --cache \"$own/cache\" --log \"$pool/log\" --lease \"$secrets/lease\" "
                .as_slice(),
            member.as_bytes(),
            b" ",
            &quote::line(words),
        ]
        .concat();
        let line = [&self.head(host), script::CALL.as_bytes(), script::START.as_bytes(), &mount].concat();
        // That it is mounted is known by its end.
        Job::of_line(&line).run(self.ssh, host, &Complaints(self.sink), stop)
    }

    /// Run the program that was brought there with some words, in the folder of its cache.
    pub fn call<S: AsRef<OsStr>>(&self, host: &Host, words: &[S], stop: &Stop) -> Result<Vec<Vec<u8>>, Failure> {
        let call = [b"cd \"$own\"\nexec \"$bin/stoker\" ".as_slice(), &quote::line(words)].concat();
        self.ask(host, &[script::CALL.as_bytes(), &call].concat(), &nothing, stop)
    }

    /// The same, and hear each line as it is said. What runs there ends with the connection.
    pub fn follow<S: AsRef<OsStr>>(
        &self,
        host: &Host,
        words: &[S],
        hear: &(dyn Fn(&[u8]) + Sync),
        stop: &Stop,
    ) -> Result<(), Failure> {
        let call = [b"exec \"$bin/stoker\" ".as_slice(), &quote::line(words)].concat();
        let line = [&self.head(host), script::CALL.as_bytes(), &call].concat();
        Job::of_line(&line).run(self.ssh, host, &Follower(self.sink, hear), stop)
    }

    /// Other members that a host has to reach.
    pub fn to_reach(&self, host: &Host) -> Vec<String> {
        let at = self.hosts.iter().position(|known| known == host).unwrap_or(0);
        let others = self.hosts.iter().cycle().skip(at + 1).take((self.hosts.len() - 1).min(REACHED_MAX));
        others.map(|host| host::with_port(host.address(), self.plan.port)).collect()
    }

    /// Some file of the mount that is soon read, by its path in there; none if none is found in half a minute.
    pub fn some_file(&self, host: &Host, stop: &Stop) -> Result<Option<Vec<u8>>, Failure> {
        let lines = self.ask(host, script::SOME_FILE.as_bytes(), &nothing, stop)?;
        Ok(Some(lines.join(&b'\n')).filter(|path| !path.is_empty()))
    }

    /// The checksum of a file of the mount.
    pub fn sum(&self, host: &Host, file: &[u8], stop: &Stop) -> Result<Vec<u8>, Failure> {
        let script = [b"cd \"$dir\" && sha256sum < ".as_slice(), &quote::quoted(OsStr::from_bytes(file))].concat();
        Ok(self.ask(host, &script, &nothing, stop)?.concat())
    }

    /// Unmount, and see the node end. To be done on all hosts before anything is taken away on one: where hosts share a file
    /// system, removing the mount point on one of them takes the mounts of the others out of sight. `is_lazy`: also while
    /// files are open.
    pub fn unmount(&self, host: &Host, is_lazy: bool, stop: &Stop) -> Result<(), Failure> {
        self.end(host, is_lazy, true, stop).map(drop)
    }

    /// Take away what there is of the pool; whether there was any. May be repeated.
    pub fn take_away(&self, host: &Host, is_lazy: bool, stop: &Stop) -> Result<bool, Failure> {
        Ok(self.end(host, is_lazy, false, stop)?.iter().any(|line| line == b"taken"))
    }

    fn end(&self, host: &Host, is_lazy: bool, is_only_mount: bool, stop: &Stop) -> Result<Vec<Vec<u8>>, Failure> {
        let word = |is: bool| if is { "yes" } else { "" };
        let how = format!("lazy={} only={}\n", word(is_lazy), word(is_only_mount));
        self.ask(host, &[how.as_bytes(), script::TAKE_AWAY.as_bytes()].concat(), &nothing, stop)
    }

    /// What each script knows: the mount point, where the pool writes down what is its own, where its cache may lie.
    fn head(&self, host: &Host) -> Vec<u8> {
        let dir = quote::quoted(self.plan.dir.as_os_str());
        let at = quote::quoted(self.plan.cache.as_deref().map_or(OsStr::new(""), Path::as_os_str));
        let id = quoted(&id(&self.plan.dir, host));
        let token = quoted(&self.plan.token);
        let known = [b"dir=".as_slice(), &dir, b"\nat=", &at, b"\nid=", id.as_bytes(), b"\ntoken=", token.as_bytes()];
        [&known.concat(), b"\n".as_slice(), script::HEAD.as_bytes()].concat()
    }

    /// Run a script on a host, and return the lines that it says.
    fn ask(&self, host: &Host, script: &[u8], feed: &Feed<'_>, stop: &Stop) -> Result<Vec<Vec<u8>>, Failure> {
        let lines = Mutex::new(Vec::new());
        let out = |line: &[u8]| {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() < LINES_MAX {
                lines.push(line.to_vec());
            }
        };
        let err = |line: &[u8]| Complaints(self.sink).line(host, Stream::Err, line);
        let script = session::answered(&[&self.head(host), script].concat());
        session::run(
            self.ssh,
            host,
            &Errand { script, input: Input::Fed(feed), output: Output::Lines(&out), said: &err },
            stop,
        )?;
        Ok(lines.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a host says on standard error alone; an `ssh` that is told to end says empty lines.
struct Complaints<'a>(&'a dyn Sink);

impl Sink for Complaints<'_> {
    fn line(&self, host: &Host, stream: Stream, line: &[u8]) {
        if stream == Stream::Err && !line.trim_ascii().is_empty() {
            self.0.line(host, stream, line);
        }
    }

    fn moved(&self, bytes: u64) {
        self.0.moved(bytes);
    }
}

/// Hears what a host says on standard output.
struct Follower<'a>(&'a dyn Sink, &'a (dyn Fn(&[u8]) + Sync));

impl Sink for Follower<'_> {
    fn line(&self, host: &Host, stream: Stream, line: &[u8]) {
        match stream {
            Stream::Out => (self.1)(line),
            Stream::Err => Complaints(self.0).line(host, stream, line),
        }
    }

    fn moved(&self, bytes: u64) {
        self.0.moved(bytes);
    }
}

type Feed<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + Sync + 'a;

fn nothing(_: &mut dyn Write) -> io::Result<()> {
    Ok(())
}

fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote::quoted(OsStr::new(text))).into_owned()
}

/// How a host is called among members.
pub fn name(host: &Host) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || ".-_".contains(letter) { letter } else { '_' };
    host.label().chars().map(plain).collect()
}

/// What belongs to a pool is found by where it is mounted; and by the host, for homes may be shared.
fn id(dir: &Path, host: &Host) -> String {
    format!("{}-{}", &hex(&Sha256::digest(dir.as_os_str().as_bytes()))[..16], name(host))
}

#[cfg(test)]
mod tests;
