//! What is compared: one file each, which only says how its daemon is started.
//!
//! All targets are mounted, waited for, measured and unmounted by the same lines (`mount`), with
//! the settings that their own documents give for data that does not change.

mod geesefs;
mod juicefs;
mod mountpoint;
mod native;
mod rclone;
mod s3fs;
mod stoker;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

/// Where a target finds what it needs. The same for all but for the last part of each path.
#[derive(Clone, Debug)]
pub struct Paths {
    pub endpoint: String,
    /// The data set as local files.
    pub data: PathBuf,
    pub mountpoint: PathBuf,
    /// Wiped before each cold phase.
    pub cache: PathBuf,
    /// Kept for the whole run: a password file, the metadata of a target that has its own.
    pub kept: PathBuf,
    pub logs: PathBuf,
}

pub trait Target {
    fn name(&self) -> &'static str;

    /// Its version as it prints it; none where it is not installed.
    fn version(&self) -> Option<String>;

    /// The daemon of the mount, to run in the foreground; none for a local folder.
    fn daemon(&self, place: &Paths) -> Option<Command>;

    /// Ends the mount.
    fn unmount(&self, place: &Paths) -> Command {
        let mut command = Command::new("umount");
        command.arg(&place.mountpoint);
        command
    }

    /// Once a run, before the first mount.
    fn prepare(&self, _place: &Paths) -> Result<()> {
        Ok(())
    }
}

/// Every target that is known, in the order of the tables. `stoker` is the program to measure.
pub fn all(stoker: &Path) -> Vec<Box<dyn Target>> {
    vec![
        Box::new(native::Native),
        Box::new(stoker::Stoker { program: stoker.to_owned(), immutable: false }),
        Box::new(stoker::Stoker { program: stoker.to_owned(), immutable: true }),
        Box::new(s3fs::S3fs),
        Box::new(rclone::Rclone),
        Box::new(juicefs::JuiceFs),
        Box::new(mountpoint::Mountpoint),
        Box::new(geesefs::GeeseFs),
    ]
}

/// Where a program lies on PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The first line that a command prints, wherever, for the record of versions.
pub fn first_line(command: &mut Command) -> Option<String> {
    crate::server::local(command);
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    output.status.success().then(|| line.to_owned())
}
