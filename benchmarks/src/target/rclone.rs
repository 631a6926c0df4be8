//! rclone of the distribution, with its full file cache.

use std::process::Command;

use super::{Paths, Target, first_line};
use crate::server::{ACCESS_KEY, BUCKET, REGION, SECRET_KEY};

pub struct Rclone;

impl Target for Rclone {
    fn name(&self) -> &'static str {
        "rclone"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("rclone").arg("version"))
    }

    fn daemon(&self, place: &Paths) -> Option<Command> {
        let mut command = Command::new("rclone");
        command
            .arg("mount")
            .arg(format!("store:{BUCKET}"))
            .arg(&place.mountpoint)
            .args(["--read-only", "--vfs-cache-mode", "full", "--cache-dir"])
            .arg(&place.cache)
            // The data does not change: names and files are kept for as long as the run lasts.
            .args(["--dir-cache-time", "1000h", "--vfs-cache-max-age", "1000h"])
            .args(["--attr-timeout", "1h", "--poll-interval", "0"])
            // Without these it asks for the time of change with a HEAD for each file.
            .args(["--use-server-modtime", "--vfs-fast-fingerprint"])
            .args(["--config", "/dev/null", "--log-level", "NOTICE"]);
        for (name, value) in [
            ("TYPE", "s3"),
            ("PROVIDER", "Other"),
            ("ACCESS_KEY_ID", ACCESS_KEY),
            ("SECRET_ACCESS_KEY", SECRET_KEY),
            ("REGION", REGION),
            ("ENDPOINT", &place.endpoint),
            ("FORCE_PATH_STYLE", "true"),
        ] {
            command.env(format!("RCLONE_CONFIG_STORE_{name}"), value);
        }
        Some(command)
    }
}
