//! This process among ranks through a companion: a child process that speaks MPI (`companion.c`, or `companion.py`).
//!
//! It knows no launcher: the child inherits what the launcher gave to this process, and with it its place among the
//! ranks. Invariants: an answer is the whole answer to the last call; a command that ends without leaving takes all ranks
//! with it, because its companion then ends the job.

use std::io::{ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use block::{Error, Kind, Result};

use super::Ranks;

/// A frame is a few samples of a report, never a data set; the companions know the same limit.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// How often a companion that leaves is looked at.
const LEAVE_PAUSE: Duration = Duration::from_millis(2);

/// Looks before a companion is ended: five minutes. Leaving waits for all ranks, and rank 0 may still be writing.
const LEAVE_LOOKS_MAX: u32 = 150_000;

/// This process as one of many.
pub struct Companion {
    greeting: Greeting,
    pipes: Mutex<Pipes>,
    child: Child,
}

/// What a companion says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub rank: u32,
    pub size: u32,
    pub host: String,
    /// Name and version of the MPI.
    pub library: String,
}

struct Pipes {
    calls: Option<ChildStdin>,
    answers: ChildStdout,
}

impl Companion {
    /// Start it and wait for its greeting, which comes when all ranks of its job are there.
    pub fn start(mut command: Command) -> Result<Companion> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| {
            Error::io("cannot start the companion of this rank", &name, &error).hint("see docs/many-nodes.md")
        })?;
        let (calls, answers) = (child.stdin.take(), child.stdout.take().expect("it was piped"));
        let mut pipes = Pipes { calls, answers };
        let greeting = pipes.answer(b'H').and_then(|text| Greeting::parse(&text));
        match greeting {
            Ok(greeting) => Ok(Companion { greeting, pipes: Mutex::new(pipes), child }),
            Err(mut error) => {
                drop(pipes);
                let status = leave(&mut child);
                // So ends a program whose libraries are no longer there.
                error.kind = if status.code() == Some(127) { Kind::Missing } else { error.kind };
                error.on = format!("{name} ({status})");
                Err(error)
            }
        }
    }

    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    fn call<T>(&self, letter: u8, own: &[u8], take: impl FnOnce(&mut Pipes) -> Result<T>) -> Result<T> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let done = pipes.ask(letter, own).and_then(|()| take(&mut pipes));
        done.map_err(|mut error| {
            error.on = format!("rank {} of {} on {}", self.greeting.rank, self.greeting.size, self.greeting.host);
            error
        })
    }
}

impl Ranks for Companion {
    fn rank(&self) -> u32 {
        self.greeting.rank
    }

    fn size(&self) -> u32 {
        self.greeting.size
    }

    fn barrier(&self) -> Result<()> {
        self.call(b'B', &[], |pipes| pipes.answer(b'B').map(drop))
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let answers = if self.rank() == 0 { self.size() } else { 1 };
        let mut all =
            self.call(b'G', own, |pipes| (0..answers).map(|_| pipes.answer(b'G')).collect::<Result<Vec<_>>>())?;
        if self.rank() != 0 {
            all.clear();
        }
        Ok(all)
    }

    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>> {
        let own = if self.rank() == 0 { own } else { Vec::new() };
        self.call(b'C', &own, |pipes| pipes.answer(b'C'))
    }
}

/// Leaves together with all others; those that go on instead get the number of the rank that left.
impl Drop for Companion {
    fn drop(&mut self) {
        let pipes = self.pipes.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A companion that has failed is gone already, and said why when it failed.
        let _ = pipes.ask(b'Q', &[]);
        leave(&mut self.child);
        pipes.calls = None;
    }
}

impl Pipes {
    fn ask(&mut self, letter: u8, own: &[u8]) -> Result<()> {
        let Some(length) = u32::try_from(own.len()).ok().filter(|_| own.len() <= FRAME_BYTES_MAX) else {
            let what = format!("{} bytes are more than one rank may give at once", own.len());
            return Err(Error::invalid(what, "").hint("measure fewer steps at a time"));
        };
        let calls = self.calls.as_mut().expect("it is closed only when the companion has left");
        let mut head = [letter, 0, 0, 0, 0];
        head[1..].copy_from_slice(&length.to_le_bytes());
        // One write of a barrier: the other end wakes once.
        calls.write_all(&head).and_then(|()| calls.write_all(own)).map_err(|error| ended(&error))
    }

    /// The next frame, which must have this letter.
    fn answer(&mut self, letter: u8) -> Result<Vec<u8>> {
        let mut head = [0; 5];
        self.answers.read_exact(&mut head).map_err(|error| ended(&error))?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(Error::corrupt(format!("the companion announces {length} bytes"), "").hint(TRY));
        }
        let mut bytes = vec![0; length];
        self.answers.read_exact(&mut bytes).map_err(|error| ended(&error))?;
        match head[0] {
            found if found == letter => Ok(bytes),
            b'E' => {
                let why = String::from_utf8_lossy(&bytes).into_owned();
                Err(Error::unavailable(why, "").hint("see what the rank that ended said, then run the job again"))
            }
            found => {
                let what = format!("the companion answers {:?} to {:?}", char::from(found), char::from(letter));
                Err(Error::corrupt(what, "").hint(TRY))
            }
        }
    }
}

const TRY: &str = "check the launcher with `stoker bench ranks` (docs/many-nodes.md)";

fn ended(error: &std::io::Error) -> Error {
    let what = match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => "the companion of this rank ended".to_owned(),
        _ => format!("the companion of this rank can't be heard: {error}"),
    };
    Error::unavailable(what, "").hint(TRY)
}

/// Wait until it has ended; one that doesn't come to its end is ended.
fn leave(child: &mut Child) -> ExitStatus {
    const OURS: &str = "it is a child of this process that nobody else waits for";
    for _ in 0..LEAVE_LOOKS_MAX {
        match child.try_wait().expect(OURS) {
            Some(status) => return status,
            None => thread::sleep(LEAVE_PAUSE),
        }
    }
    let _ = child.kill();
    child.wait().expect(OURS)
}

impl Greeting {
    fn parse(text: &[u8]) -> Result<Greeting> {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.lines();
        let mut number = || lines.next().and_then(|line| line.parse().ok());
        let (rank, size): (Option<u32>, Option<u32>) = (number(), number());
        let (Some(rank), Some(size)) = (rank, size.filter(|size| rank.is_some_and(|rank| rank < *size))) else {
            return Err(Error::corrupt(format!("a companion greets with {text:?}"), "").hint(TRY));
        };
        let mut word = || lines.next().unwrap_or_default().to_owned();
        Ok(Greeting { rank, size, host: word(), library: word() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A companion of one rank, played by a shell that says what it is given.
    fn played(script: &str) -> Result<Companion> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Companion::start(command)
    }

    const GREET: &str = r"printf 'H\012\000\000\0000\n4\nhost\nx'; ";

    #[test]
    fn a_companion_tells_its_place_and_what_each_rank_gave() {
        let frames = r"printf 'G\001\000\000\000aG\000\000\000\000G\002\000\000\000ccG\001\000\000\000d'";
        let script = format!("{GREET}head -c 6 > /dev/null; {frames}; head -c 5 > /dev/null");
        let ranks = played(&script).expect("a greeting");
        assert_eq!((ranks.rank(), ranks.size(), ranks.greeting().host.as_str()), (0, 4, "host"));
        assert_eq!(ranks.gather(b"a").expect("four frames"), [&b"a"[..], b"", b"cc", b"d"]);
    }

    #[test]
    fn a_rank_that_left_is_named() {
        let ranks =
            played(&format!(r"{GREET}head -c 5 > /dev/null; printf 'E\006\000\000\000rank 2'")).expect("a greeting");
        let error = ranks.barrier().expect_err("a failure");
        assert_eq!((error.what.as_str(), error.on.as_str()), ("rank 2", "rank 0 of 4 on host"));
    }

    #[test]
    fn a_companion_that_talks_nonsense_is_an_error_and_never_waited_for() {
        for (script, part) in [
            ("exit 3", "ended"),
            (r"printf 'H\003\000\000\0004\n4'", "greets"),
            (r"printf 'H\377\377\377\377'", "announces"),
            (r"printf 'B\000\000\000\000'", "answers"),
        ] {
            let error = played(script).err().expect(script);
            assert!(error.to_string().contains(part), "{script}: {error}");
        }
    }
}
