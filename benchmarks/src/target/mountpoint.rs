//! Mountpoint for Amazon S3, with its disk cache and lasting metadata.

use std::process::Command;

use super::{Paths, Target, first_line};
use crate::server::{BUCKET, REGION};

pub struct Mountpoint;

impl Target for Mountpoint {
    fn name(&self) -> &'static str {
        "mountpoint"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("mount-s3").arg("--version"))
    }

    fn daemon(&self, place: &Paths) -> Option<Command> {
        let mut command = Command::new("mount-s3");
        command
            .arg(BUCKET)
            .arg(&place.mountpoint)
            .args(["--endpoint-url", &place.endpoint, "--region", REGION])
            .args(["--force-path-style", "--read-only", "--foreground"])
            .args(["--metadata-ttl", "indefinite", "--cache"])
            .arg(&place.cache);
        Some(command)
    }
}
