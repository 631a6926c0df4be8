//! Files and folders to a host.
//!
//! The host needs `tar`, `mktemp`, `xargs` and one of `sha256sum` and `cksum`. Where a folder has the name already, what is
//! in both is replaced and the rest stays, as with `cp -r`.
//! Invariants: a file has its name there only once all that was sent is there and was compared; each takes it in one move. What a
//! broken connection leaves is removed there, unless the host itself fails.

use crate::bundle::Bundle;
use crate::failure::Wrong;
use crate::session::{self, Errand, Input, Output};
use crate::{Failure, Host, Sink, Ssh, Stop, Stream, quote};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const SCRIPT: &str = r#"
set -eu
mkdir -p "$dir"
tmp=$(mktemp -d "$dir/.stoker-copy.XXXXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM PIPE
tar -xpof - -C "$tmp"
cd_sum() { ( cd "$tmp" && xargs -0 cat <list | "$@" ); }
if command -v sha256sum >/dev/null 2>&1; then
  have=$(cd_sum sha256sum) want=$(sed -n 1p "$tmp/sums") have=${have%% *}
else
  have=$(cd_sum cksum) want=$(sed -n 2p "$tmp/sums")
fi
[ "$have" = "$want" ] || { echo 'what arrived is not what was sent' >&2; exit 1; }
place() {
  if [ ! -d "$2" ]; then
    mv -f "$1" "$2"
  elif [ -d "$1" ] && [ ! -L "$1" ]; then
    for each in "$1"/* "$1"/.[!.]* "$1"/..?*; do
      if [ -e "$each" ] || [ -L "$each" ]; then place "$each" "$2/${each##*/}"; fi
    done
  else
    echo "a folder has this name: $2" >&2
    exit 1
  fi
}
place "$tmp/files" "$dir"
"#;

/// Files with the folder that they go to.
pub struct Copy<'a> {
    bundle: &'a Bundle,
    script: Vec<u8>,
}

impl Copy<'_> {
    pub fn new<'a>(bundle: &'a Bundle, to: &OsStr) -> Result<Copy<'a>, Wrong> {
        let dir = [b"dir=".as_slice(), &quote::quoted(&path_there(to)?), b"\n"].concat();
        Ok(Copy { bundle, script: [&session::answered(b""), dir.as_slice(), SCRIPT.as_bytes()].concat() })
    }

    pub fn run(&self, ssh: &Ssh, host: &Host, sink: &dyn Sink, stop: &Stop) -> Result<(), Failure> {
        let feed = |out: &mut dyn std::io::Write| self.bundle.write(out, &|bytes| sink.moved(bytes));
        let out = |line: &[u8]| sink.line(host, Stream::Out, line);
        let err = |line: &[u8]| sink.line(host, Stream::Err, line);
        let errand =
            Errand { script: self.script.clone(), input: Input::Fed(&feed), output: Output::Lines(&out), said: &err };
        session::run(ssh, host, &errand, stop)
    }
}

/// A path of a host as its programs take it: never for an option, and one below the home folder from there.
pub(crate) fn path_there(path: &OsStr) -> Result<OsString, Wrong> {
    let bytes = path.as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(Wrong::new("this is no path", Path::new(path).display(), "give a path of the hosts"));
    }
    let bytes = if bytes == b"~" { b"." } else { bytes.strip_prefix(b"~/").unwrap_or(bytes) };
    let before: &[u8] = if bytes.starts_with(b"/") { b"" } else { b"./" };
    Ok(OsString::from_vec([before, bytes].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_host_is_never_an_option() {
        for (typed, path) in
            [("/a b", "/a b"), ("-rf", "./-rf"), ("~/a", "./a"), ("~", "./."), ("~a", "./~a"), ("a", "./a")]
        {
            assert_eq!(path_there(OsStr::new(typed)).expect("a path"), path);
        }
        assert!(path_there(OsStr::new("")).is_err() && path_there(OsStr::new("a\0b")).is_err());
    }
}
