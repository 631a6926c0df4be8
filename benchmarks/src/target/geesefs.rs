//! geesefs, with its disk cache and lasting metadata.

use std::process::Command;

use super::{Paths, Target, first_line};
use crate::server::{BUCKET, REGION};

pub struct GeeseFs;

impl Target for GeeseFs {
    fn name(&self) -> &'static str {
        "geesefs"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("geesefs").arg("--version"))
    }

    fn daemon(&self, place: &Paths) -> Option<Command> {
        let mut command = Command::new("geesefs");
        command
            .args(["-f", "--endpoint", &place.endpoint, "--region", REGION])
            .args(["--stat-cache-ttl", "1000h", "--cache"])
            .arg(&place.cache)
            .args(["-o", "ro", BUCKET])
            .arg(&place.mountpoint);
        Some(command)
    }
}
