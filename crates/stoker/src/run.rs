//! `stoker run`: a command whose loaders tell in which order they will read, without a change to it.
//!
//! Puts a folder with a `sitecustomize.py` first into PYTHONPATH and becomes the command: its exit code, its signals and its
//! standard input are its own. Invariant: whatever goes wrong here but the command itself, the command runs.

use crate::{place, show};
use block::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub const EXAMPLES: &str = "\
Loaders of PyTorch tell the node of a mount what they will read in each epoch: nothing in the command has to change,
and its epochs are the same, bit for bit. `stoker status` shows the orders. STOKER_HINT=off leaves it out.

Examples:
  stoker run -- python3 train.py
  stoker run -- torchrun --nproc-per-node 8 train.py";

/// What is put before the Python of a job, and what it imports once torch is there.
const FILES: [(&str, &str); 2] = [
    ("sitecustomize.py", include_str!("../../../python/run/sitecustomize.py")),
    ("_stoker_order.py", include_str!("../../../python/stoker/order.py")),
];

/// Exit codes of shells for a command that can't be run, and for one that isn't there.
const EXIT_REFUSED: u8 = 126;
const EXIT_MISSING: u8 = 127;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The command and its words
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (program, words) = args.command.split_first().expect("clap asks for one");
    let mut command = Command::new(program);
    command.args(words);
    match brought() {
        Ok(folder) => drop(command.env("PYTHONPATH", before(&folder, std::env::var_os("PYTHONPATH").as_deref()))),
        Err(error) => {
            show::failure(&error.hint("the command runs all the same, and tells nothing of its order").into())
        }
    }
    if let Some(flag) = hides(program, words) {
        show::failure(
            &Error::invalid("Python leaves out what tells of the order", flag)
                .hint("run it without this flag, or give the order by `stoker hint`")
                .into(),
        );
    }
    let error = command.exec();
    let shown = program.to_string_lossy();
    show::failure(&Error::io("cannot run the command", &shown, &error).hint("name a program that can be run").into());
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { EXIT_MISSING } else { EXIT_REFUSED }))
}

/// The folder with our files, which is this user's alone, and there once for each version of them.
fn brought() -> Result<PathBuf> {
    let texts: Vec<u8> = FILES.iter().flat_map(|(_, text)| text.bytes()).collect();
    // A name and no secret, as of sockets.
    let hash = texts
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let runtime = place::runtime()?;
    let folder = runtime.join(format!("python-{hash:016x}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let failed = |error: std::io::Error| Error::io("cannot write what tells of the order", folder.display(), &error);
    let draft = runtime.join(format!("python-{}.draft", std::process::id()));
    let _ = std::fs::remove_dir_all(&draft);
    std::fs::DirBuilder::new().mode(0o700).create(&draft).map_err(failed)?;
    for (name, text) in FILES {
        std::fs::write(draft.join(name), text).map_err(failed)?;
    }
    match std::fs::rename(&draft, &folder) {
        Err(error) if !folder.is_dir() => Err(failed(error)),
        // Another one was faster.
        Err(_) => std::fs::remove_dir_all(&draft).map(|()| folder.clone()).map_err(failed),
        Ok(()) => Ok(folder),
    }
}

/// PYTHONPATH with the folder first, and only once.
fn before(folder: &Path, path: Option<&OsStr>) -> OsString {
    let mut joined = folder.as_os_str().to_owned();
    let others = path.filter(|path| !path.is_empty()).map(std::env::split_paths);
    for other in others.into_iter().flatten().filter(|other| other != folder) {
        joined.push(":");
        joined.push(other);
    }
    joined
}

/// The flag by which Python looks for no sitecustomize, or not in PYTHONPATH.
fn hides<'w>(program: &OsStr, words: &'w [OsString]) -> Option<&'w str> {
    let name = Path::new(program).file_name()?.to_str()?;
    if !name.starts_with("python") && !name.starts_with("pypy") {
        return None;
    }
    let mut words = words.iter().map(|word| word.to_str().unwrap_or_default());
    while let Some(word) = words.next().filter(|word| word.len() > 1 && word.starts_with('-')) {
        // What follows these is no flag: a command, a module, or the value of an option.
        let ends = word.find(['c', 'm', 'W', 'X']);
        if !word.starts_with("--") && word[..ends.unwrap_or(word.len())].contains(['I', 'E', 'S']) {
            return Some(word);
        }
        match ends.map(|at| (&word[at..=at], at + 1 == word.len())) {
            Some(("c" | "m", _)) if !word.starts_with("--") => return None,
            Some(("W" | "X", true)) => drop(words.next()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_is_told_to_leave_out_is_noticed() {
        let hidden = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            hides(&words[0], &words[1..]).map(str::to_owned)
        };
        let told = ["python3 -I a.py", "/usr/bin/python3.11 -uE -c pass", "pypy3 -W ignore -S a.py", "python -BsI"];
        assert_eq!(told.map(|line| hidden(line).is_some()), [true; 4]);
        let fine =
            ["python3 a.py -I", "python3 -c -I", "python3 -m I -S", "bash -E a", "python3 -X I a.py", "python3 - -I"];
        assert_eq!(fine.map(|line| hidden(line).is_some()), [false; 6]);
    }

    #[test]
    fn the_folder_comes_first_and_only_once() {
        let of = |path: Option<&str>| before(Path::new("/r/python"), path.map(OsStr::new));
        assert_eq!(of(None), "/r/python");
        assert_eq!(of(Some("")), "/r/python");
        assert_eq!(of(Some("/a:/r/python:/b")), "/r/python:/a:/b");
    }
}
