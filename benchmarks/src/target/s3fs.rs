//! s3fs of the distribution, with its disk cache.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::Result;

use super::{Paths, Target, first_line};
use crate::server::{ACCESS_KEY, BUCKET, SECRET_KEY};

pub struct S3fs;

impl Target for S3fs {
    fn name(&self) -> &'static str {
        "s3fs"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("s3fs").arg("--version"))
    }

    fn prepare(&self, place: &Paths) -> Result<()> {
        let file = place.kept.join("password");
        fs::write(&file, format!("{ACCESS_KEY}:{SECRET_KEY}"))?;
        // s3fs refuses a file that others can read.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        Ok(())
    }

    fn daemon(&self, place: &Paths) -> Option<Command> {
        let mut command = Command::new("s3fs");
        command.arg(BUCKET).arg(&place.mountpoint).arg("-f");
        for option in [
            format!("url={}", place.endpoint),
            "use_path_request_style".to_owned(),
            format!("passwd_file={}", place.kept.join("password").display()),
            format!("use_cache={}", place.cache.display()),
            "ro".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        // Its keys come from the file alone; two sources are an error.
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        Some(command)
    }
}
