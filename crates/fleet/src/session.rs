//! One connection to one host: a script goes there by standard input, what follows it too; both outputs come back.
//!
//! What is guaranteed of its end: with it the connection is closed, and `ssh` and what it started here have ended. What ends
//! on the host is for the script: it sees the end of its input, at once if this process is killed.
//! Invariant: nothing that the host says before it runs the script is taken for an answer.

use crate::crew::{Over, Stop};
use crate::lines::Lines;
use crate::{Failure, Host, Ssh, ssh};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, ErrorKind, Read, Write};
use std::process::{ChildStdin, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The script says on both outputs that it began: what came before is of the login shell, or a banner.
const BEGUN: &[u8] = b"stoker:begun\n";

/// How the script tells that 255 is the exit code of the command, and not that of an `ssh` that failed.
const OWN_255: &[u8] = b"stoker:255";

/// More than this from a login shell is no greeting.
const GREETING_BYTES_MAX: usize = 64 << 10;

/// Letters of what was said last that are kept for the reason of a failure.
const SAID_MAX: usize = 400;

/// How a program of ours goes on behind the line that says what failed: on what, why, and what to try.
const PARTS: [(&str, &str); 3] = [("  on:  ", ", on "), ("  because: ", ": "), ("  try: ", TRY)];

/// What stands before the advice in the reason of a failure.
pub const TRY: &str = "; try: ";

/// How long what runs there has to end once its input ended: the script kills it after five seconds.
const GRACE: Duration = Duration::from_secs(7);

/// How long `ssh` has to close its connection.
const CLOSING: Duration = Duration::from_secs(2);

/// What is to be done on a host.
pub struct Errand<'a> {
    pub script: Vec<u8>,
    pub input: Input<'a>,
    pub output: Output<'a>,
    /// Told each line of standard error.
    pub said: &'a (dyn Fn(&[u8]) + Sync),
}

/// What follows the script on its standard input.
pub enum Input<'a> {
    /// Nothing, until all is to end: then the end of it.
    HeldOpen,
    /// What this writes, then its end.
    Fed(&'a (dyn Fn(&mut dyn Write) -> io::Result<()> + Sync)),
}

/// Who reads its standard output.
pub enum Output<'a> {
    Lines(&'a (dyn Fn(&[u8]) + Sync)),
    /// Reads to the end of it; the error says what is wrong with it.
    Stream(&'a (dyn Fn(&mut dyn Read) -> Result<(), Failure> + Sync)),
}

/// Words of a script by which it is known where its answer begins, and which of the exit codes is its own.
pub fn answered(script: &[u8]) -> Vec<u8> {
    let begun = String::from_utf8_lossy(BEGUN).trim_end().to_owned();
    [format!("echo {begun}; echo {begun} >&2\n").as_bytes(), script].concat()
}

/// The end of a script whose command may end with any exit code, which is in `$c`.
pub fn own_code() -> String {
    format!("[ $c = 255 ] && printf %s {} >&2", String::from_utf8_lossy(OWN_255))
}

/// Do an errand on a host.
pub fn run(settings: &Ssh, host: &Host, errand: &Errand<'_>, stop: &Stop) -> Result<(), Failure> {
    let spawned = settings.command(host).spawn();
    let mut child = spawned.map_err(|error| Failure::Here(format!("ssh can't be started: {error}")))?;
    let session = Session {
        stop,
        as_root: settings.as_root,
        ended: AtomicBool::new(false),
        input: Mutex::new(child.stdin.take()),
    };
    let (out, mut err) = (child.stdout.take().expect("it is piped"), child.stderr.take().expect("it is piped"));
    let group = Pid::from_child(&child);
    thread::scope(|scope| {
        let feeding = scope.spawn(|| session.feed(errand));
        let reading = scope.spawn(|| {
            let read = session.read(out, &errand.output);
            // Nobody reads on, so it need not go on; nor can its number be another's yet.
            if read.is_err() {
                let _ = kill_process_group(group, Signal::TERM);
            }
            read
        });
        let hearing = scope.spawn(|| heard(&mut err, errand.said));
        scope.spawn(|| session.watch(group));
        let over = session.wait(settings.timeout, group);
        let fed = feeding.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes failed")));
        let read = reading.join().unwrap_or_else(|_| Err(Failure::Here("the thread that reads failed".into())));
        let said = hearing.join().unwrap_or_default();
        let status = child.wait().ok();
        verdict(&Ended { over, limit: settings.timeout, fed, read, said, status })
    })
}

struct Session<'a> {
    stop: &'a Stop,
    as_root: bool,
    ended: AtomicBool,
    input: Mutex<Option<ChildStdin>>,
}

impl Session<'_> {
    fn input(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feed(&self, errand: &Errand<'_>) -> io::Result<()> {
        let Some(mut input) = self.input().take() else { return Ok(()) };
        input.write_all(&ssh::scripted(&errand.script, self.as_root))?;
        match errand.input {
            Input::HeldOpen => *self.input() = Some(input),
            Input::Fed(feed) => feed(&mut io::BufWriter::with_capacity(256 << 10, input))?,
        }
        Ok(())
    }

    /// The answer; `Ok(false)` if there was none.
    fn read(&self, mut out: impl Read, output: &Output<'_>) -> Result<bool, Failure> {
        let out: &mut dyn Read = &mut out;
        let broken = |error: io::Error| Failure::Lost(error.to_string());
        let Some(first) = answer(out).map_err(broken)? else { return Ok(false) };
        match output {
            Output::Lines(line) => {
                let mut lines = Lines::default();
                lines.push(&first, &mut |text| line(text));
                pieces(out, &mut |piece| lines.push(piece, &mut |text| line(text))).map_err(broken)?;
                let rest = lines.rest();
                if !rest.is_empty() {
                    line(&rest);
                }
            }
            Output::Stream(stream) => stream(&mut io::Cursor::new(first).chain(out))?,
        }
        Ok(true)
    }

    /// Wait for the end of `ssh` without taking its number away, which may then be used to signal it.
    fn watch(&self, pid: Pid) {
        let ended = || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        while ended().is_err_and(|error| error == rustix::io::Errno::INTR) {}
        self.stop.tell(&self.ended);
    }

    /// Wait until it ended, and see to it if it doesn't by itself.
    fn wait(&self, limit: Option<Duration>, group: Pid) -> Over {
        let over = self.stop.wait(&self.ended, limit, true);
        if over == Over::Ended {
            return over;
        }
        // Whoever gave only its input away is told by its end, and the connection says when all is over.
        let held = self.input().take();
        if held.is_some() {
            drop(held);
            if self.stop.wait(&self.ended, Some(GRACE), false) == Over::Ended {
                return over;
            }
        }
        let _ = kill_process_group(group, Signal::TERM);
        if self.stop.wait(&self.ended, Some(CLOSING), false) != Over::Ended {
            let _ = kill_process_group(group, Signal::KILL);
            self.stop.wait(&self.ended, None, false);
        }
        over
    }
}

/// Read past what came before the answer; none if it never begins. What was read of it already comes back.
fn answer(out: &mut dyn Read) -> io::Result<Option<Vec<u8>>> {
    let (mut read, mut piece) = (Vec::new(), vec![0; 4 << 10]);
    loop {
        if let Some(at) = read.windows(BEGUN.len()).position(|window| window == BEGUN) {
            return Ok(Some(read.split_off(at + BEGUN.len())));
        }
        let count = match out.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            done => done?,
        };
        if count == 0 || read.len() > GREETING_BYTES_MAX {
            return Ok(None);
        }
        read.extend(&piece[..count]);
    }
}

fn pieces(from: &mut dyn Read, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => each(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What standard error said.
#[derive(Default)]
struct Said {
    /// The last line that says something, with the parts that belong to it.
    last: String,
    /// Whether 255 is the exit code of what ran there.
    is_own_255: bool,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let part = PARTS.iter().find_map(|(head, link)| Some((link, line.strip_prefix(head)?)));
        let whole = match part.filter(|_| !self.last.is_empty()) {
            Some((link, rest)) => format!("{}{link}{}", self.last, rest.trim()),
            None => line.trim().trim_start_matches("stoker: ").to_owned(),
        };
        let plain = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
        self.last = whole.chars().take(SAID_MAX).map(plain).collect();
    }
}

/// Hand on what is said once the script began; before that it is of the login shell, or why `ssh` could not connect.
fn heard(err: &mut dyn Read, line: &(dyn Fn(&[u8]) + Sync)) -> Said {
    let (mut said, mut lines, mut has_begun) = (Said::default(), Lines::default(), false);
    let mut hear = |text: &[u8], said: &mut Said| {
        if !has_begun && text.ends_with(&BEGUN[..BEGUN.len() - 1]) {
            has_begun = true;
            said.last.clear();
            return;
        }
        if text.iter().any(|byte| !byte.is_ascii_whitespace()) {
            said.hear(&String::from_utf8_lossy(text));
        }
        if has_begun {
            line(text);
        }
    };
    let _ = pieces(err, &mut |piece| lines.push(piece, &mut |text| hear(text, &mut said)));
    let rest = lines.rest();
    let own = rest.strip_suffix(OWN_255);
    let rest = own.unwrap_or(&rest);
    if !rest.is_empty() {
        hear(rest, &mut said);
    }
    said.is_own_255 = own.is_some();
    said
}

/// How a connection ended, in all its parts.
struct Ended {
    over: Over,
    limit: Option<Duration>,
    fed: io::Result<()>,
    read: Result<bool, Failure>,
    said: Said,
    status: Option<ExitStatus>,
}

/// The exit code of an `ssh` that failed.
const SSH_FAILED: i32 = 255;

fn verdict(ended: &Ended) -> Result<(), Failure> {
    let last = ended.said.last.clone();
    match (ended.over, ended.limit) {
        (Over::Stopped, _) => return Err(Failure::Stopped),
        (Over::TimedOut, Some(limit)) => return Err(Failure::TimedOut(limit)),
        _ => {}
    }
    // A pipe that broke is how we hear that the host ended first; it says why.
    if let Err(error) = &ended.fed
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(Failure::Here(error.to_string()));
    }
    let has_begun = match &ended.read {
        Ok(has_begun) => *has_begun,
        // The end of an answer that is too short is known by the exit code.
        Err(Failure::Lost(_)) => true,
        Err(refused) => return Err(refused.clone()),
    };
    match (ended.status.and_then(|status| status.code()), has_begun) {
        (Some(SSH_FAILED), true) if ended.said.is_own_255 => Err(Failure::Exit(SSH_FAILED, last)),
        (Some(SSH_FAILED) | None, false) => Err(Failure::Unreachable(last)),
        (Some(SSH_FAILED) | None, true) => Err(Failure::Lost(last)),
        (Some(_), false) if last == ssh::NO_SUDO => Err(Failure::Unfit(last)),
        (Some(_), false) => Err(Failure::NoShell(last)),
        (Some(0), true) => ended.read.clone().map(|_| ()),
        (Some(code), true) => Err(Failure::Exit(code, last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn each_end_has_its_reason() {
        let ended = |code: i32, read: Result<bool, Failure>, is_own_255: bool| {
            let said = Said { last: "said".into(), is_own_255 };
            let status = Some(ExitStatus::from_raw(code << 8));
            verdict(&Ended { over: Over::Ended, limit: None, fed: Ok(()), read, said, status })
                .map_err(|failure| failure.name())
        };
        assert_eq!(ended(0, Ok(true), false), Ok(()));
        assert_eq!(ended(3, Ok(true), false), Err("exit"));
        assert_eq!(ended(255, Ok(true), true), Err("exit"));
        assert_eq!(ended(255, Ok(true), false), Err("lost"));
        assert_eq!(ended(255, Ok(false), false), Err("unreachable"));
        assert_eq!(ended(1, Ok(false), false), Err("no-shell"));
        assert_eq!(ended(0, Ok(false), false), Err("no-shell"));
        let said = Said { last: ssh::NO_SUDO.into(), is_own_255: false };
        let status = Some(ExitStatus::from_raw(127 << 8));
        let ended_without = Ended { over: Over::Ended, limit: None, fed: Ok(()), read: Ok(false), said, status };
        assert_eq!(verdict(&ended_without), Err(Failure::Unfit("there is no sudo there".into())));
        assert_eq!(ended(0, Err(Failure::Hostile("x".into())), false), Err("hostile"));
        assert_eq!(ended(2, Err(Failure::Lost("short".into())), false), Err("exit"));
        assert_eq!(ended(0, Err(Failure::Lost("short".into())), false), Err("lost"));
    }

    #[test]
    fn a_greeting_is_no_answer_and_a_mark_at_the_end_no_line() {
        let found = answer(&mut &b"Welcome!\nstoker:begun\nthe answer"[..]).expect("it reads");
        assert_eq!(found, Some(b"the answer".to_vec()));
        assert_eq!(answer(&mut &b"Welcome!"[..]).expect("it reads"), None);
        let lines = Mutex::new(Vec::new());
        let hear = |text: &[u8]| {
            lines.lock().expect("nobody failed").push(text.to_vec());
            let line = |line: &[u8]| lines.lock().expect("nobody failed").push(line.to_vec());
            lines.lock().expect("nobody failed").clear();
            let said = heard(&mut &*text, &line);
            (said.last, said.is_own_255, lines.lock().expect("nobody failed").clone())
        };
        let all = hear(b"banner\nstoker:begun\none\npartstoker:255");
        assert_eq!(all, ("part".into(), true, vec![b"one".to_vec(), b"part".to_vec()]));
        assert_eq!(hear(b"ssh: refused\r\n"), ("ssh: refused".into(), false, vec![]));
        let three = hear(b"stoker:begun\nwarning\nstoker: no connection\n  on:  http://s3\n  try: again\n").0;
        assert_eq!(three, "no connection, on http://s3; try: again");
    }
}
