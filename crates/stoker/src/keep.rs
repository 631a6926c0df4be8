//! `stoker keep`: a process that holds descriptors for a node, so that the mounts of the node outlive it, and starts the next
//! one when it is gone. To the node it is what the store of descriptors of systemd is (sd_notify(3), `FDSTORE=1`); it
//! understands nothing of what it holds.
//!
//! It is small and never restarted with the node: it goes on by the program that it was started from.
//! Invariant: what it holds is let go of as soon as no node will come for it, which ends the mounts.

use crate::notify;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr, OsString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Ends of a node that nobody asked for, within this time or before it was ready, after which it isn't started again: what the
/// kernel asks anew may be what it dies of.
pub const FAILURES_MAX: usize = 3;
const FAILURES_WITHIN: Duration = Duration::from_secs(30);

/// How long a program that is not there is waited for, looking so often, before this one goes on in its place.
pub const THERE_WITHIN: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const OURSELVES: &str = "/proc/self/exe";

/// Words of one message: a name has at most 255 bytes.
const WORDS_BYTES_MAX: usize = 8192;

/// Before which other processes the system ends this one, where it runs short of memory: it holds what others need.
const LAST_TO_BE_KILLED: &CStr = c"-999";
const KILLED_IN_ORDER_OF: &CStr = c"/proc/self/oom_score_adj";

/// Set for a node that is not to give up a mount that it can't go on with: it ends then, and is started again without.
pub const FIRST_TRY: &str = "STOKER_FIRST_TRY";

/// How often to look whether the node is dead though some thread of it is still in the kernel: one that tells of names waits for
/// a reader, who waits for the next node.
const LOOK_EVERY: libc::c_int = 500;

/// The name by which a node that is started finds the socket at which this process listens.
pub const SOCKET: &str = "keeper";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The node
    #[arg(long)]
    node: u32,
    /// How another one is started
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Standard input is the socket at which it listens; what it prints goes where the node's log goes.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let socket = UnixDatagram::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    let order = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    // Only the privileged may go below what they had.
    let _ = std::fs::write("/proc/self/oom_score_adj", LAST_TO_BE_KILLED.to_bytes());
    let hears_hangup = !crate::ends::is_ignored(libc::SIGHUP);
    ignore_ends();
    crate::node::raise_descriptors();
    let pid = i32::try_from(args.node).ok().and_then(Pid::from_raw);
    let node = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose()?;
    let mut keeper = Keeper {
        socket,
        pid: args.node,
        node: node.ok_or_else(|| anyhow::anyhow!("there is no process {}", args.node))?,
        command: args.command.clone(),
        before: None,
        order: std::ffi::CString::new(order.trim()).unwrap_or_default(),
        hears_hangup,
        held: Vec::new(),
        state: State::Serves,
        is_ready: true,
        failures: Failures::default(),
    };
    while keeper.waits()? {}
    Ok(ExitCode::SUCCESS)
}

/// What the node said last of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serves,
    /// Another is to go on.
    MakesWay,
    /// None is.
    Ends,
}

struct Keeper {
    socket: UnixDatagram,
    node: OwnedFd,
    pid: u32,
    command: Vec<OsString>,
    /// The program that ran before another was named, until that one has shown that it goes on.
    before: Option<OsString>,
    /// What the node's own place was among those that the system may end.
    order: std::ffi::CString,
    /// Whether nodes are to hear SIGHUP: not under nohup(1).
    hears_hangup: bool,
    held: Vec<(String, OwnedFd)>,
    state: State,
    /// Whether the node that runs said that it goes on with everything.
    is_ready: bool,
    failures: Failures,
}

/// Ends of nodes that nobody asked for, as far as they count.
#[derive(Default)]
struct Failures(VecDeque<Instant>);

impl Failures {
    /// One more, of a node that was ready or wasn't yet. Whether another one is to be started.
    fn add(&mut self, now: Instant, was_ready: bool) -> bool {
        if was_ready {
            self.forget(now);
        }
        self.0.push_back(now);
        self.0.len() < FAILURES_MAX
    }

    /// A node that was ready has ended: what was long before counts no more.
    fn forget(&mut self, now: Instant) {
        self.0.retain(|failure| now - *failure < FAILURES_WITHIN);
    }

    /// Whether yet another node could be started after the next one.
    fn leave_a_try(&self) -> bool {
        self.0.len() < FAILURES_MAX - 1
    }
}

impl Keeper {
    /// Wait for something to do, and do it; false once nothing is left to do.
    fn waits(&mut self) -> anyhow::Result<bool> {
        let wanted =
            |descriptor: BorrowedFd<'_>| libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut waited = [wanted(self.socket.as_fd()), wanted(self.node.as_fd())];
        // SAFETY: both are open, and the structures live until the call returns.
        let ready = unsafe { libc::poll(waited.as_mut_ptr(), 2, LOOK_EVERY) };
        if ready < 0 {
            return Ok(true);
        }
        self.listen();
        if waited[1].revents == 0 && !self.is_dead() {
            return Ok(true);
        }
        // What it said before its end, which may have come between the two looks.
        self.listen();
        self.node_is_gone()
    }

    /// Whether the node is dead though its process has not ended: its first thread has, which ends last unless the process was killed.
    fn is_dead(&self) -> bool {
        let state = |path: PathBuf| {
            let stat = std::fs::read_to_string(path).ok()?;
            stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next())
        };
        let of_it = PathBuf::from(format!("/proc/{}", self.pid));
        if state(of_it.join("stat")) != Some('Z') {
            return false;
        }
        let threads = std::fs::read_dir(of_it.join("task")).into_iter().flatten().flatten();
        are_stuck(threads.filter_map(|thread| state(thread.path().join("stat"))))
    }

    /// Hear all that was said.
    fn listen(&mut self) {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let (mut ancillary, mut bytes) = (RecvAncillaryBuffer::new(&mut space), [0; WORDS_BYTES_MAX]);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let heard = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
            let Ok(heard) = heard else { return };
            let descriptor = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            match std::str::from_utf8(&bytes[..heard.bytes]) {
                // The other side is gone, as the end of the node will tell.
                Ok("") => return,
                Ok(words) => self.hear(words, descriptor),
                Err(_) => {}
            }
        }
    }

    fn hear(&mut self, words: &str, descriptor: Option<OwnedFd>) {
        let said = |key: &str| words.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        match (said("FDNAME"), descriptor) {
            (Some(name), Some(descriptor)) if said("FDSTORE") == Some("1") => {
                self.held.retain(|(other, _)| other != name);
                self.held.push((name.to_owned(), descriptor));
            }
            (Some(name), _) if said("FDSTOREREMOVE") == Some("1") => self.held.retain(|(other, _)| other != name),
            _ => {}
        }
        if let Some(program) = said("X_STOKER_PROGRAM") {
            let before = std::mem::replace(&mut self.command[0], program.into());
            if before != self.command[0] {
                // Of several that were named before one of them went on, the way back is to the one that did.
                self.before.get_or_insert(before);
            }
        }
        if said("READY") == Some("1") {
            (self.before, self.is_ready) = (None, true);
        }
        self.state = match () {
            () if said("STOPPING") == Some("1") => State::Ends,
            () if said("RELOADING") == Some("1") => State::MakesWay,
            () if said("READY") == Some("1") => State::Serves,
            () => self.state,
        };
    }

    /// Start another node, unless there is nothing to go on with; false then.
    fn node_is_gone(&mut self) -> anyhow::Result<bool> {
        if self.state == State::Ends || self.held.is_empty() {
            return Ok(false);
        }
        if self.state == State::MakesWay {
            self.failures.forget(Instant::now());
        } else if !self.failures.add(Instant::now(), self.is_ready) {
            // Held to the end of this function: its end is that of the mounts.
            note!("stoker: the node ended {FAILURES_MAX} times within a short time: its mounts end with it");
            return Ok(false);
        }
        if self.state == State::Serves
            && let Some(before) = self.before.take()
        {
            let after = self.command[0].display();
            note!("stoker: {after} did not go on with the mounts of this node, so the program before it does");
            self.command[0] = before;
        }
        (self.state, self.is_ready) = (State::Serves, false);
        let began = Instant::now();
        // Somebody may be about to put a new program in its place.
        let mut child = loop {
            match self.start(&self.command[0].clone()) {
                Err(_) if self.before.is_some() => self.command[0] = self.before.take().unwrap_or_default(),
                Err(_) if began.elapsed() < THERE_WITHIN => std::thread::sleep(AGAIN_AFTER),
                Err(error) => {
                    let gone = self.command[0].display();
                    note!(
                        "stoker: {gone} can't be run ({error}), so who held the mounts of this node goes on with them"
                    );
                    break self.start(OURSELVES.as_ref())?;
                }
                Ok(started) => break started,
            }
        };
        self.pid = child.id();
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        self.node = pidfd_open(pid.ok_or_else(|| anyhow::anyhow!("it has no number"))?, PidfdFlags::empty())?;
        // It is not waited for otherwise, and would stay as a dead process.
        std::thread::Builder::new().spawn(move || child.wait())?;
        Ok(true)
    }

    /// Start a node with all that is held, from descriptor 3 on in the order of their names in `LISTEN_FDNAMES`.
    fn start(&mut self, program: &OsStr) -> anyhow::Result<std::process::Child> {
        let (ours, theirs) = UnixDatagram::pair()?;
        ours.set_nonblocking(true)?;
        self.socket = ours;
        let handed: Vec<(&str, BorrowedFd<'_>)> = std::iter::once((SOCKET, theirs.as_fd()))
            .chain(self.held.iter().map(|(name, descriptor)| (name.as_str(), descriptor.as_fd())))
            .collect();
        let names: Vec<&str> = handed.iter().map(|(name, _)| *name).collect();
        let first_free = FIRST + handed.len() as i32;
        // What this starts opens nothing that could take one of their numbers.
        let _taken = take_all_below(first_free)?;
        let mut command = Command::new(program);
        command
            .args(&self.command[1..])
            .env("LISTEN_FDS", handed.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"));
        if self.failures.leave_a_try() {
            command.env(FIRST_TRY, "1");
        } else {
            command.env_remove(FIRST_TRY);
        }
        command.env_remove("LISTEN_PID").env_remove("SYSTEMD_EXEC_PID").env_remove("FDSTORE");
        command.env_remove(notify::SOCKET).stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/");
        let mut numbers: Vec<i32> = handed.iter().map(|(_, descriptor)| descriptor.as_raw_fd()).collect();
        let (order, hangup) = (self.order.clone(), self.hears_hangup.then_some(libc::SIGHUP));
        // SAFETY: what is called is async-signal-safe, and nothing is allocated between fork and exec.
        unsafe {
            command.pre_exec(move || {
                put_in_order(&mut numbers)?;
                for signal in ENDS.into_iter().chain(hangup) {
                    libc::signal(signal, libc::SIG_DFL);
                }
                let file = libc::open(KILLED_IN_ORDER_OF.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if file >= 0 {
                    libc::write(file, order.as_ptr().cast(), order.count_bytes());
                    libc::close(file);
                }
                Ok(())
            });
        }
        Ok(command.spawn()?)
    }
}

/// Whether what is left of a process that was killed can take no request any more. A thread that runs, or is about to, may be on its way
/// out of read(2) with one, which the next node would not hear of: it asks once what was not answered, since what it is answering
/// itself would be asked again with it. One that tells the kernel of names sleeps where nothing wakes it but the next node.
fn are_stuck(mut threads: impl Iterator<Item = char>) -> bool {
    threads.all(|state| matches!(state, 'Z' | 'X' | 'D'))
}

/// The first descriptor that a process gets of a service manager.
pub const FIRST: i32 = 3;

/// What ends the node ends it in order, and then this process has nothing to hold.
const ENDS: [libc::c_int; 2] = [libc::SIGTERM, libc::SIGINT];

fn ignore_ends() {
    for signal in ENDS.into_iter().chain([libc::SIGHUP]) {
        // SAFETY: ignoring a signal runs nothing of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Have these descriptors of this process at the numbers from [`FIRST`] on, inherited, with room for one more: there may
/// be as many as the system grants. Allocates nothing.
fn put_in_order(numbers: &mut [i32]) -> std::io::Result<()> {
    let done = |result: i32| if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) };
    for index in 0..numbers.len() {
        let (number, wanted) = (numbers[index], FIRST + index as i32);
        // SAFETY: the numbers are those of descriptors that are open, and nobody else knows them in this process.
        unsafe {
            if number == wanted {
                done(libc::fcntl(number, libc::F_SETFD, 0))?;
                continue;
            }
            if let Some(other) = numbers[index..].iter_mut().find(|other| **other == wanted) {
                *other = done(libc::fcntl(wanted, libc::F_DUPFD_CLOEXEC, FIRST))?;
            }
            done(libc::dup2(number, wanted))?;
            done(libc::close(number))?;
        }
    }
    Ok(())
}

/// Have no descriptor below this one be free.
fn take_all_below(end: i32) -> std::io::Result<Vec<std::fs::File>> {
    let mut taken = Vec::new();
    loop {
        let file = std::fs::File::open("/dev/null")?;
        if file.as_raw_fd() >= end {
            return Ok(taken);
        }
        taken.push(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ends_within_half_a_minute_or_before_the_node_was_ready_are_too_many() {
        let began = Instant::now();
        for (ends, is_started) in [
            (&[(0, true), (10, true), (29, true)][..], &[true, true, false][..]),
            (&[(0, true), (10, true), (31, true), (41, true), (50, true)], &[true, true, true, true, false]),
            (&[(0, true), (600, false), (1200, false)], &[true, true, false]),
            (&[(0, true), (600, false), (1200, true), (1800, false)], &[true, true, true, true]),
        ] {
            let mut failures = Failures::default();
            let mut add = |(second, was_ready)| failures.add(began + Duration::from_secs(second), was_ready);
            assert_eq!(ends.iter().copied().map(&mut add).collect::<Vec<_>>(), is_started, "{ends:?}");
        }
    }

    #[test]
    fn a_node_that_was_killed_is_followed_while_a_thread_is_stuck_but_not_while_one_may_take_a_request() {
        for (threads, are) in [("", true), ("ZD", true), ("ZXDD", true), ("ZDR", false), ("ZS", false)] {
            assert_eq!(are_stuck(threads.chars()), are, "{threads}");
        }
    }

    #[test]
    fn only_the_last_node_that_may_be_started_gives_up_what_it_can_not_go_on_with() {
        let (began, mut failures) = (Instant::now(), Failures::default());
        assert!(failures.leave_a_try());
        assert!(failures.add(began, true) && failures.leave_a_try());
        failures.forget(began + FAILURES_WITHIN);
        let later = began + 2 * FAILURES_WITHIN;
        assert!(failures.add(later, false) && failures.leave_a_try(), "a restart went well in between");
        assert!(failures.add(later, false) && !failures.leave_a_try());
    }
}
