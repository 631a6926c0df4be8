//! JuiceFS, with its metadata in a local SQLite file.
//!
//! It can't serve a bucket as it is: the set is copied in through its own mount first, into a
//! bucket of its own.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Paths, Target, first_line};
use crate::mount::Mounted;
use crate::process;
use crate::server::{ACCESS_KEY, OWN_BUCKET, SECRET_KEY};

const FORMAT_LIMIT: Duration = Duration::from_secs(60);
const COPY_LIMIT: Duration = Duration::from_secs(900);

pub struct JuiceFs;

impl JuiceFs {
    fn metadata(place: &Paths) -> String {
        format!("sqlite3://{}", place.kept.join("metadata.db").display())
    }
}

impl Target for JuiceFs {
    fn name(&self) -> &'static str {
        "juicefs"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("juicefs").arg("--version"))
    }

    fn prepare(&self, place: &Paths) -> Result<()> {
        // It speaks of a bucket that was emptied.
        let _ = std::fs::remove_file(place.kept.join("metadata.db"));
        let mut format = Command::new("juicefs");
        format
            .args(["format", "--storage", "s3", "--trash-days", "0", "--bucket"])
            .arg(format!("{}/{OWN_BUCKET}", place.endpoint))
            .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
            .arg(JuiceFs::metadata(place))
            .arg("training");
        let said = place.logs.join("juicefs-prepare.out");
        process::run(&mut format, &said, FORMAT_LIMIT).context("formatting JuiceFS")?;
        let mounted = Mounted::start(self, place)?;
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(place.data.join(".")).arg(&place.mountpoint);
        process::run(&mut copy, &said, COPY_LIMIT).context("copying the set into JuiceFS")?;
        mounted.end()
    }

    fn daemon(&self, place: &Paths) -> Option<Command> {
        let mut command = Command::new("juicefs");
        command
            .args(["mount", "--no-usage-report", "--cache-size", "102400"])
            .args(["--attr-cache", "3600", "--entry-cache", "3600", "--dir-entry-cache", "3600"])
            .args(["--open-cache", "3600", "--cache-dir"])
            .arg(&place.cache)
            .arg(JuiceFs::metadata(place))
            .arg(&place.mountpoint);
        Some(command)
    }
}
