//! Files and folders from a host, into a folder of its own.
//!
//! The host needs `tar`. Its answer is read by [`crate::receive`], which takes files and folders and nothing else: the `tar`
//! of this machine would follow links that a hostile host put there, make devices, or keep owners.
//! Invariants: nothing has its name here before all of one host is there; what is here and was not sent stays.

use crate::copy::path_there;
use crate::failure::Wrong;
use crate::receive::{self, Received};
use crate::session::{self, Errand, Input, Output};
use crate::{Failure, Host, Sink, Ssh, Stop, Stream, quote};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// GNU tar ends with 1 where a file changed while it was read, which logs do; others mean a failure by it.
const CHANGED: &str = "
one() {
  if [ ! -e \"$1/$2\" ] && [ ! -L \"$1/$2\" ]; then echo \"there is no such file or folder: ${1%/}/${2#./}\" >&2; exit 4; fi
  tar -C \"$1\" -cf - \"$2\" && return
  c=$?
  if [ $c != 1 ] || ! tar --version 2>/dev/null | grep -q GNU; then exit $c; fi
}
exec </dev/null
";

/// What to fetch, and where it goes.
pub struct Gather {
    script: Vec<u8>,
    names: Vec<OsString>,
    to: PathBuf,
    bytes_max: u64,
}

impl Gather {
    /// Fetch these paths of each host to a folder of the host's name below this one; `bytes_max` a host.
    pub fn new(paths: &[OsString], to: &Path, bytes_max: u64) -> Result<Gather, Wrong> {
        let (mut script, mut names) = (session::answered(CHANGED.as_bytes()), Vec::new());
        for path in paths {
            let wrong = |what: &str, hint: &str| Wrong::new(what, Path::new(path).display(), hint);
            let there = path_there(path)?;
            let there = Path::new(&there);
            let (Some(Component::Normal(name)), Some(folder)) = (there.components().next_back(), there.parent()) else {
                return Err(wrong("this has no name that it could have here", "name what lies in it"));
            };
            if names.iter().any(|known| known == name) {
                return Err(wrong("two of these have the same name", "gather them to two folders"));
            }
            let (folder, file) = (quote::quoted(folder.as_os_str()), [OsStr::new("./"), name].concat());
            script.extend([b"one ".as_slice(), &folder, b" ", &quote::quoted(&file), b"\n"].concat());
            names.push(name.to_owned());
        }
        Ok(Gather { script, names, to: to.to_owned(), bytes_max })
    }

    /// Fetch from one host.
    pub fn run(&self, ssh: &Ssh, host: &Host, sink: &dyn Sink, stop: &Stop) -> Result<Received, Failure> {
        let here = |path: &Path, error: &io::Error| Failure::Here(format!("{}: {error}", path.display()));
        let staging = self.to.join(format!(".{}.part", host.label()));
        // One that a killed command left.
        let _ = fs::remove_dir_all(&staging);
        fs::create_dir_all(&self.to).and_then(|()| fs::create_dir(&staging)).map_err(|error| here(&staging, &error))?;
        let received = Mutex::new(Received::default());
        let read = |from: &mut dyn Read| {
            let limits = receive::Limits { bytes: self.bytes_max, names: &self.names };
            let found = receive::receive(from, &staging, &limits, &|bytes| sink.moved(bytes))?;
            *received.lock().unwrap_or_else(PoisonError::into_inner) = found;
            Ok(())
        };
        let feed = |_: &mut dyn io::Write| Ok(());
        let err = |line: &[u8]| sink.line(host, Stream::Err, line);
        let errand =
            Errand { script: self.script.clone(), input: Input::Fed(&feed), output: Output::Stream(&read), said: &err };
        let done = session::run(ssh, host, &errand, stop).and_then(|()| {
            let place = self.to.join(host.label());
            receive::place(&staging, &place).map_err(|error| here(&place, &error))
        });
        let _ = fs::remove_dir_all(&staging);
        done.map(|()| received.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

trait Concat {
    fn concat(&self) -> OsString;
}

impl Concat for [&OsStr] {
    fn concat(&self) -> OsString {
        self.iter().fold(OsString::new(), |mut whole, part| {
            whole.push(part);
            whole
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_name_or_that_of_another_is_refused() {
        let new =
            |paths: &[&str]| Gather::new(&paths.iter().map(OsString::from).collect::<Vec<_>>(), Path::new("/x"), 1);
        for paths in [vec!["/"], vec![".."], vec!["a/.."], vec!["a", "b/a"], vec![""], vec!["~"]] {
            assert!(new(&paths).is_err(), "{paths:?}");
        }
        let script = String::from_utf8(new(&["/var/log/a b", "-x", "~/c/"]).expect("paths").script).expect("text");
        assert!(script.ends_with("one '/var/log' './a b'\none '.' './-x'\none '.' './c'\n"), "{script}");
    }
}
