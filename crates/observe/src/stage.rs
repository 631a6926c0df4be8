//! Where the observed command runs: in mounts of its own, in which the view lies over the folder, or simply beside a
//! view at another place.
//!
//! Invariant: between fork and exec nothing is allocated and nothing but system calls is made; which of them failed is
//! reported with its errno.

use block::{Error, Kind};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Where the command finds the view, in its environment.
const PLACE: &str = "STOKER_OBSERVED";

/// Stands for the place of the view in the words of the command, if that isn't the folder's own.
const WORD: &str = "{}";

/// What is laid over what.
pub struct Cover {
    /// Where the view is mounted.
    pub view: PathBuf,
    pub folder: PathBuf,
}

/// What the new process does before it becomes the command.
#[derive(Clone, Copy)]
enum Step {
    Unshare = 1,
    Identity,
    Private,
    Cover,
    Return,
}

/// Start the command. Without a cover it runs as it is, and its words name the view.
pub fn start(words: &[OsString], cover: Option<&Cover>, place: &Path) -> Result<Child, Error> {
    let (program, arguments) = words.split_first().expect("the command line requires a word");
    let mut command = Command::new(program);
    match cover {
        Some(cover) => {
            command.args(arguments);
            prepare(&mut command, cover)?;
        }
        None => {
            command.args(arguments.iter().map(|word| named(word, place)));
        }
    }
    command.env(PLACE, place);
    command.spawn().map_err(|error| refused(&error, program.to_string_lossy().as_ref(), place))
}

/// Lay the view over the folder in the new process alone.
fn prepare(command: &mut Command, cover: &Cover) -> Result<(), Error> {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("a path holds no zero");
    let (view, folder) = (text(&cover.view), text(&cover.folder));
    // What was reached before the view was laid over it stays reached: go there again.
    let here = std::env::current_dir().map_err(|error| Error::io("finding the working directory", ".", &error))?;
    let here = text(&here);
    let user = rustix::process::geteuid();
    let (users, groups) = (one_to_one(user.as_raw()), one_to_one(rustix::process::getegid().as_raw()));
    let is_root = user.is_root();
    let work = move || -> io::Result<()> {
        let spaces = if is_root { UnshareFlags::NEWNS } else { UnshareFlags::NEWNS | UnshareFlags::NEWUSER };
        // SAFETY: the new process has one thread, and shares no memory with this one.
        unsafe { rustix::thread::unshare_unsafe(spaces) }.map_err(|errno| at(Step::Unshare, errno))?;
        if !is_root {
            let identity = [(c"/proc/self/setgroups", &b"deny"[..]), (c"/proc/self/uid_map", users.as_bytes())];
            for (file, text) in identity.into_iter().chain([(c"/proc/self/gid_map", groups.as_bytes())]) {
                write(file, text).map_err(|errno| at(Step::Identity, errno))?;
            }
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", private).map_err(|errno| at(Step::Private, errno))?;
        rustix::mount::mount(&*view, &*folder, c"", MountFlags::BIND, None).map_err(|errno| at(Step::Cover, errno))?;
        rustix::process::chdir(&*here).map_err(|errno| at(Step::Return, errno))
    };
    // SAFETY: the closure makes system calls on strings that exist already; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(work) };
    Ok(())
}

/// A line of uid_map or gid_map: the one identity, as it is.
fn one_to_one(number: u32) -> String {
    format!("{number} {number} 1")
}

fn write(file: &std::ffi::CStr, text: &[u8]) -> Result<(), Errno> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(file, flags, rustix::fs::Mode::empty())?;
    rustix::io::write(&file, text).map(drop)
}

/// A word of the command with the place of the view in it.
fn named(word: &OsString, place: &Path) -> OsString {
    match word.to_str() {
        Some(text) if text.contains(WORD) => text.replace(WORD, &place.to_string_lossy()).into(),
        _ => word.clone(),
    }
}

/// Only a number comes back from the new process: errno below, the step above.
const STEP_SHIFT: u32 = 16;

fn at(step: Step, errno: Errno) -> io::Error {
    io::Error::from_raw_os_error((step as i32) << STEP_SHIFT | errno.raw_os_error())
}

fn refused(error: &io::Error, program: &str, place: &Path) -> Error {
    let code = error.raw_os_error().unwrap_or(0);
    let cause = io::Error::from_raw_os_error(code & ((1 << STEP_SHIFT) - 1));
    let elsewhere = "give --at DIR with an empty folder, and name the data in the command as {}";
    let failed = |doing: &str, on: &Path| Error::io(doing, on.display(), &cause);
    match code >> STEP_SHIFT {
        0 if cause.kind() == io::ErrorKind::NotFound => Error::new(Kind::Missing, "there is no such command", program)
            .hint("check its spelling and PATH; the command follows --"),
        0 => Error::io("starting the command", program, error).hint("check that it may be executed"),
        step if step == Step::Cover as i32 => failed("laying the view over the folder", place).hint(elsewhere),
        step if step == Step::Return as i32 => {
            failed("going back to the working directory, seen through the view", place)
                .hint("start from a folder outside of it")
        }
        _ => failed("making mounts of its own for the command", place)
            .hint(format!("run as root, or allow user namespaces (sysctl user.max_user_namespaces); or {elsewhere}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_view_is_named_within_words() {
        let place = Path::new("/view");
        assert_eq!(named(&"--data={}/train".into(), place), "--data=/view/train");
        assert_eq!(named(&"{".into(), place), "{");
    }

    #[test]
    fn each_step_that_fails_is_told_apart() {
        let said = |error: io::Error| refused(&error, "python", Path::new("/data")).to_string();
        assert!(said(at(Step::Unshare, Errno::PERM)).contains("mounts of its own"));
        assert!(said(at(Step::Cover, Errno::NOENT)).contains("over the folder"));
        assert!(said(io::Error::from_raw_os_error(2)).contains("no such command\n  on:  python"));
        assert!(said(at(Step::Return, Errno::NOENT)).contains("working directory"));
    }
}
