//! Whether this user can mount here, whether the kernel reads the files of the cache by itself, and what else it has for FUSE.
//!
//! Found out by mounting: an empty folder, at a mount point of its own, for a moment.
//! Invariant: when this returns, nothing of it is mounted or left.

use super::finding::Finding;
use ::mount::{Options, Passthrough};
use block::{Error, Result};
use node::namespace::{Attributes, Namespace, Opening, ROOT};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;

/// The first kernel that can be mounted with, and the first that has passthrough.
const KERNEL_MIN: (u32, u32) = (5, 6);
const KERNEL_PASSTHROUGH: (u32, u32) = (6, 9);

/// By which the kernel says whether FUSE may use io_uring; there is none before Linux 6.14.
const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Seconds after which it ends a mount that owes an answer; there is none before Linux 6.14.
const TIMEOUT: &str = "/proc/sys/fs/fuse/default_request_timeout";

/// Held while something is mounted.
static MOUNTED: Mutex<()> = Mutex::new(());

/// How long, and how often, whoever ends the program waits for what is mounted at that moment.
const UNMOUNTED_WITHIN: (Duration, u32) = (Duration::from_millis(10), 200);

/// What is shown as mounted, if somebody looks at that moment.
const NAME: &str = "stoker-check";

/// Programs that mount for users, in the order in which they are looked for.
const HELPER: &str = "fusermount3";

pub fn look(runtime: &Handle) -> Vec<Finding> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let mut found = vec![kernel(&release)];
    match try_mount(runtime) {
        Ok((passthrough, goes_on)) => {
            let how = match rustix::process::geteuid().is_root() {
                true => "by mount(2), as root".to_owned(),
                false => format!("by {HELPER}"),
            };
            found.push(Finding::ok("fuse", format!("an empty folder was mounted and unmounted {how}")));
            found.push(through(&passthrough));
            found.push(keeper(goes_on, std::fs::read_to_string(TIMEOUT).ok().as_deref()));
        }
        Err(error) => found.push(Finding::of("fuse", &error)),
    }
    found.push(uring(std::fs::read_to_string(URING).ok().as_deref()));
    found
}

/// Who was told to end the program does so after this: nothing is mounted any more, and nothing will be.
pub fn stay_unmounted() {
    let (pause, tries) = UNMOUNTED_WITHIN;
    for _ in 0..tries {
        match MOUNTED.try_lock() {
            Ok(held) => return std::mem::forget(held),
            Err(_) => std::thread::sleep(pause),
        }
    }
}

/// Nothing uses it, and nothing is lost without it.
fn uring(said: Option<&str>) -> Finding {
    let is_on = said.is_some_and(|said| said.trim() == "Y");
    let said = match said {
        None => "this kernel has none for FUSE (Linux 6.14 or later has)",
        Some(_) if is_on => "this kernel has it for FUSE",
        Some(_) => "this kernel has it for FUSE, switched off",
    };
    Finding::ok("io_uring", format!("{said}; a mount does without")).with("is_on", is_on)
}

/// What a release can do.
fn kernel(release: &str) -> Finding {
    let what = format!("Linux {release}");
    match version(release) {
        Some(version) if version < KERNEL_MIN => {
            Finding::failed("kernel", format!("{what} is too old to mount with"), "use Linux 5.6 or later")
        }
        Some(version) if version < KERNEL_PASSTHROUGH => Finding::warning(
            "kernel",
            format!("{what} has no FUSE passthrough: each read of a complete file goes through the node"),
            "use Linux 6.9 or later where files are large and reads are many",
        ),
        Some(_) => Finding::ok("kernel", what),
        None => Finding::warning("kernel", format!("{what} is no version that is known"), "use Linux 6.9 or later"),
    }
    .with("release", release)
}

/// The first two numbers of a release, such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn through(passthrough: &Passthrough) -> Finding {
    match passthrough {
        Passthrough::On => Finding::ok("passthrough", "the kernel reads complete files of the cache by itself"),
        Passthrough::Off { reason } => Finding::warning(
            "passthrough",
            format!("off: {reason}"),
            "mount as root of the host on Linux 6.9 or later; everything works without, at more processor time a read",
        ),
    }
    .with("is_on", matches!(passthrough, Passthrough::On))
}

/// Whether a mount outlives its node. `timeout`: seconds after which the kernel ends a mount that owes an answer; 0 is never.
fn keeper(goes_on: bool, timeout: Option<&str>) -> Finding {
    let seconds = timeout.and_then(|said| said.trim().parse::<u32>().ok()).unwrap_or(0);
    match (goes_on, seconds) {
        (false, _) => Finding::warning(
            "keeper",
            "off: this kernel does not ask again what was not answered: a mount ends with its node",
            "use Linux 6.9 or later where a node that is killed or upgraded is to be a pause",
        ),
        (true, 0) => Finding::ok("keeper", "a mount outlives its node: one that is killed or upgraded is a pause"),
        (true, seconds) => Finding::warning(
            "keeper",
            format!("the kernel ends a mount that owes an answer for {seconds} s, as one may whose store hangs or whose node is away"),
            "sysctl fs.fuse.default_request_timeout=0",
        ),
    }
    .with("is_on", goes_on)
}

/// A mount point that is gone when it is dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Place> {
        let path = std::env::temp_dir().join(format!("{NAME}-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| {
            Error::io("cannot make a mount point", path.display(), &error).hint("set TMPDIR to a folder of yours")
        })?;
        Ok(Place(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn try_mount(runtime: &Handle) -> Result<(Passthrough, bool)> {
    let _held = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new()?;
    let mut options = Options::new(Path::new(&place.0), NAME);
    options.threads = Some(1);
    options.allow_other = false;
    let session = ::mount::attach(&options, Arc::new(Empty), runtime.clone())?;
    let found = (session.passthrough(), session.can_go_on());
    session.unmount(true)?;
    session.wait();
    Ok(found)
}

/// A folder with nothing in it.
struct Empty;

impl Namespace for Empty {
    fn lookup(&self, _: u64, _: &[u8]) -> Option<Attributes> {
        None
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        (node == ROOT).then_some(Attributes { node, folder: true, size: 0, modified_ns: 0, folders: 0 })
    }

    fn list(&self, folder: u64, _: u64, _: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        folder == ROOT
    }

    fn remember(&self, _: u64, _: i64) {}

    fn open(&self, node: u64) -> Opening {
        Opening::Ready(Err(Error::missing("there is no file in an empty folder", node)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;

    #[test]
    fn a_kernel_is_judged_by_its_numbers() {
        for (release, outcome) in [
            ("6.18.5", Outcome::Ok),
            ("6.9.0-rc1", Outcome::Ok),
            ("6.8.12-generic", Outcome::Warning),
            ("5.4.0-150", Outcome::Failed),
            ("5.10.0", Outcome::Warning),
            ("", Outcome::Warning),
        ] {
            assert_eq!(kernel(release).outcome, outcome, "{release}");
        }
    }

    #[test]
    fn a_mount_outlives_its_node_unless_the_kernel_does_not_ask_again_or_ends_it_meanwhile() {
        let never = "a mount outlives its node";
        for (goes_on, timeout, outcome, word) in [
            (true, None, Outcome::Ok, never),
            (true, Some("0\n"), Outcome::Ok, never),
            (true, Some("30\n"), Outcome::Warning, "owes an answer for 30 s"),
            (false, None, Outcome::Warning, "a mount ends with its node"),
            (false, Some("30\n"), Outcome::Warning, "a mount ends with its node"),
        ] {
            let found = keeper(goes_on, timeout);
            assert!(found.outcome == outcome && found.said.contains(word), "{timeout:?}: {found:?}");
        }
    }

    #[test]
    fn what_does_not_pass_through_is_told_with_its_reason() {
        assert_eq!(through(&Passthrough::On).outcome, Outcome::Ok);
        let found = through(&Passthrough::Off { reason: "the cache lies on overlayfs".into() });
        assert_eq!((found.outcome, &*found.said), (Outcome::Warning, "off: the cache lies on overlayfs"));
    }

    #[test]
    fn what_nothing_uses_is_never_amiss() {
        for (said, word) in [(None, "has none"), (Some("N\n"), "switched off"), (Some("Y\n"), "has it for FUSE;")] {
            let found = uring(said);
            assert!(found.outcome == Outcome::Ok && found.said.contains(word), "{found:?}");
        }
    }
}
