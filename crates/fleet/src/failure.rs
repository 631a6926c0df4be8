//! Why a host failed, and what can't be meant.

use crate::session::TRY;
use std::fmt;
use std::time::Duration;

/// Something that was written or typed and can't be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong, as a clause.
    pub what: String,
    /// Where: a file with its line, a path.
    pub on: String,
    /// What to write instead.
    pub hint: String,
}

impl Wrong {
    pub fn new(what: impl Into<String>, on: impl fmt::Display, hint: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), on: on.to_string(), hint: hint.into() }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n  on:  {}\n  try: {}", self.what, self.on, self.hint)
    }
}

impl std::error::Error for Wrong {}

/// Why nothing came of it on one host. The texts are what the host or `ssh` said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// `ssh` could not connect: the host is down, unknown, or its key is not the known one.
    Unreachable(String),
    /// The connection stood and then broke.
    Lost(String),
    /// The user has no shell there that runs `sh`.
    NoShell(String),
    /// What ran there ended with this exit code.
    Exit(i32, String),
    /// What the host sent is not what was asked for.
    Hostile(String),
    /// It answered, and can't take part.
    Unfit(String),
    /// It took longer than it may.
    TimedOut(Duration),
    /// Somebody asked for an end before it was done.
    Stopped,
    /// Something failed on this machine.
    Here(String),
}

impl Failure {
    /// The word for it in results that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Failure::Unreachable(_) => "unreachable",
            Failure::Lost(_) => "lost",
            Failure::NoShell(_) => "no-shell",
            Failure::Exit(..) => "exit",
            Failure::Hostile(_) => "hostile",
            Failure::Unfit(_) => "unfit",
            Failure::TimedOut(_) => "timeout",
            Failure::Stopped => "stopped",
            Failure::Here(_) => "here",
        }
    }

    /// The same, where what was said has these words, with other advice than the program there gave: it doesn't know of
    /// the command that was typed here.
    #[must_use]
    pub fn advised(mut self, words: &str, advice: &str) -> Failure {
        if let Failure::Exit(_, said) = &mut self
            && said.contains(words)
        {
            said.truncate(said.find(TRY).unwrap_or(said.len()));
            said.push_str(TRY);
            said.push_str(advice);
        }
        self
    }

    /// What to try; nothing where the failure says it all.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Failure::Unreachable(said) if said.contains("ost key") => {
                "compare the key of the host with the one in known_hosts; `ssh HOST` once by hand shows both"
            }
            Failure::Unreachable(_) => "`ssh HOST true` by hand has to work without a question",
            Failure::Lost(_) => "the same again once the host answers",
            Failure::NoShell(_) => "`ssh HOST sh -c true` by hand has to work",
            Failure::TimedOut(_) => "give a longer --timeout, or look into what the host does",
            Failure::Exit(..) | Failure::Hostile(_) | Failure::Unfit(_) | Failure::Stopped | Failure::Here(_) => {
                return None;
            }
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, said) = match self {
            Failure::Unreachable(said) => ("ssh could not connect".to_owned(), said),
            Failure::Lost(said) => ("the connection broke".to_owned(), said),
            Failure::NoShell(said) => ("the user has no shell there".to_owned(), said),
            Failure::Exit(code, said) => (format!("it ended with exit code {code}"), said),
            Failure::Hostile(said) => ("its answer was refused".to_owned(), said),
            Failure::Unfit(why) => ("it can't take part".to_owned(), why),
            Failure::TimedOut(limit) => (format!("it was not done after {} s", limit.as_secs_f64()), &String::new()),
            Failure::Stopped => ("it was told to end before it was done".to_owned(), &String::new()),
            Failure::Here(said) => ("it failed on this machine".to_owned(), said),
        };
        out.write_str(&what)?;
        if said.is_empty() { Ok(()) } else { write!(out, ": {said}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_one_machine_gives_way_to_that_for_many() {
        let failure = |said: &str| Failure::Exit(1, said.into());
        let port = "cannot listen: in use, on b:1; try: name a port";
        assert_eq!(
            failure(port).advised("cannot listen", "another"),
            failure("cannot listen: in use, on b:1; try: another")
        );
        assert_eq!(failure("busy").advised("busy", "later"), failure("busy; try: later"));
        assert_eq!(failure(port).advised("busy", "later"), failure(port));
    }
}
