//! Stoker, with its defaults or with `--immutable`.

use std::path::PathBuf;
use std::process::Command;

use super::{Paths, Target, first_line};
use crate::server::BUCKET;

pub struct Stoker {
    pub program: PathBuf,
    pub immutable: bool,
}

impl Target for Stoker {
    fn name(&self) -> &'static str {
        if self.immutable { "stoker-immutable" } else { "stoker" }
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new(&self.program).arg("--version"))
    }

    fn daemon(&self, place: &Paths) -> Option<Command> {
        let mut command = Command::new(&self.program);
        command
            .arg("mount")
            .arg(format!("s3://{BUCKET}/"))
            .arg(&place.mountpoint)
            .args(["--endpoint", &place.endpoint])
            .arg("--cache")
            .arg(&place.cache);
        if self.immutable {
            command.arg("--immutable");
        }
        Some(command)
    }

    fn unmount(&self, place: &Paths) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("umount").arg(&place.mountpoint);
        command
    }
}
