//! A command on a host.
//!
//! What is guaranteed of its end: when the connection ends, however it does, all that the command started and that stayed in
//! its process group gets SIGTERM, and SIGKILL five seconds later. What made a session of its own (`setsid`, a daemon)
//! stays. The input of the command is empty.

use crate::failure::Wrong;
use crate::session::{self, Errand, Input, Output};
use crate::{Failure, Host, Sink, Ssh, Stop, Stream, quote};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Bytes of a command: it is read byte by byte.
const COMMAND_BYTES_MAX: usize = 128 << 10;

/// The script around a command. `sshd` makes each session the leader of a group, so that 0 means all of it, and so does the
/// `sudo` in between; where it did not, only the shell is ended, and what it ran by the pipes that break.
const BEFORE: &str = "\
g=
[ -r /proc/$$/stat ] && read -r _ _ _ _ g _ < /proc/$$/stat
[ \"$g\" = $$ ] || [ \"$g${SUDO_COMMAND:+.}\" = $PPID. ] && g=0 || g=$$
exec 3<&0 </dev/null
( trap '' HUP INT TERM; while read -r _; do :; done <&3; kill -TERM $g; sleep 5; kill -KILL $g ) >/dev/null 2>&1 &
w=$!
exec 3<&-
";

/// A command, ready to be run on any number of hosts.
pub struct Job {
    script: Vec<u8>,
}

impl Job {
    /// One word is a line of `sh`; several are a program and its arguments, each of which stays one.
    pub fn new(words: &[OsString]) -> Result<Job, Wrong> {
        let line = match words {
            [line] => line.as_bytes().to_vec(),
            words => quote::line(words),
        };
        let wrong = |what: &str, hint: &str| Wrong::new(what, "the command", hint);
        if line.is_empty() || line.len() > COMMAND_BYTES_MAX {
            return Err(wrong(
                "no command has this length",
                "give a command; what is longer than 128 KiB as a file that is copied first",
            ));
        }
        if line.contains(&0) {
            return Err(wrong("there is a zero byte in it", "give text"));
        }
        Ok(Job::of_line(&line))
    }

    /// A line of `sh` of ours.
    pub(crate) fn of_line(line: &[u8]) -> Job {
        let begun = session::answered(b"");
        let eval = [b"( eval ".as_slice(), &quote::quoted(OsStr::from_bytes(line)), b" )\nc=$?\n"].concat();
        let after = format!("{}\nexec 2>/dev/null\nkill -KILL $w\nwait $w\nexit $c", session::own_code());
        Job { script: [BEFORE.as_bytes(), &begun, &eval, after.as_bytes()].concat() }
    }

    /// Run it on one host; each line goes to the sink.
    pub fn run(&self, ssh: &Ssh, host: &Host, sink: &dyn Sink, stop: &Stop) -> Result<(), Failure> {
        let out = |line: &[u8]| sink.line(host, Stream::Out, line);
        let err = |line: &[u8]| sink.line(host, Stream::Err, line);
        let script = self.script.clone();
        session::run(
            ssh,
            host,
            &Errand { script, input: Input::HeldOpen, output: Output::Lines(&out), said: &err },
            stop,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_none_is_refused() {
        let long = "x".repeat(COMMAND_BYTES_MAX + 1);
        for words in [vec![""], vec![], vec!["a\0b"], vec![&*long]] {
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            assert!(Job::new(&words).is_err(), "{:?}", words.first().map(|word| word.len()));
        }
    }
}
