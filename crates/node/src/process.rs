//! Processes and threads of this machine, as far as it matters whether one is still there.
//!
//! Invariant: a process is told from a later one of the same number by when it began.

/// A process, by its number and when it began in ticks of the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub number: u32,
    began: u64,
}

impl Process {
    /// The process of this number now.
    pub fn of(number: u32) -> Option<Process> {
        Some(Process { number, began: began(number)? })
    }

    /// Whether it has not ended.
    pub fn is_there(self) -> bool {
        began(self.number) == Some(self.began)
    }
}

/// Whether there is a thread of this number.
pub fn is_thread(number: u32) -> bool {
    began(number).is_some()
}

/// When a process or thread began; none if it has ended, whether or not somebody took note of that.
fn began(number: u32) -> Option<u64> {
    let about = std::fs::read(format!("/proc/{number}/stat")).ok()?;
    // The name before it is in brackets, and may hold any of these letters.
    let behind = about.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(about.get(behind + 2..)?).ok()?.split(' ');
    let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !is_dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_there_until_it_ends_also_where_nobody_takes_note_of_it() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat");
        let process = Process::of(child.id()).expect("it runs");
        assert!(process.is_there() && is_thread(child.id()));
        assert!(!Process { began: process.began + 1, ..process }.is_there(), "another of the same number");
        drop(child.stdin.take());
        // It has ended once its output is closed, and is not waited for.
        let ended = || std::fs::read_to_string(format!("/proc/{}/stat", process.number)).expect("still known");
        while !ended().contains(") Z ") {
            std::thread::yield_now();
        }
        assert!(!process.is_there() && !is_thread(process.number) && Process::of(process.number).is_none());
        child.wait().expect("it ended");
        assert!(!process.is_there());
    }
}
