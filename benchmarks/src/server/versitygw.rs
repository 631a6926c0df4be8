//! versitygw over a folder: the command, and counting by its access log.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{ACCESS_KEY, Counters, SECRET_KEY};
use crate::target::{first_line, program};

/// Where `go install` was seen to put it on the project machine.
const ELSEWHERE: &str = "/tmp/gobin/versitygw";

pub fn command(root: &Path, address: &str, log: &Path) -> Result<Command> {
    let program = found().context("versitygw is neither on PATH nor in /tmp/gobin")?;
    let mut command = Command::new(program);
    command
        .args(["--port", address, "--keep-alive", "--quiet", "--access-log"])
        .arg(log)
        .arg("posix")
        .arg(root)
        .env("ROOT_ACCESS_KEY", ACCESS_KEY)
        .env("ROOT_SECRET_KEY", SECRET_KEY);
    Ok(command)
}

pub fn version() -> Option<String> {
    let own = || first_line(Command::new(found()?).arg("--version"));
    // A program that was installed from the registry does not know its own version; Go does.
    let output = Command::new("go").args(["version", "-m"]).arg(found()?).output().ok();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let module = text.as_deref().and_then(|text| {
        let line = text.lines().map(str::trim).find(|line| line.starts_with("mod\t"))?;
        Some(format!("versitygw {}", line.split('\t').nth(2)?))
    });
    module.or_else(own)
}

fn found() -> Option<PathBuf> {
    program("versitygw").or_else(|| Path::new(ELSEWHERE).exists().then(|| ELSEWHERE.into()))
}

/// The log is written as requests come and read from where the last look ended.
pub struct AccessLog {
    path: PathBuf,
    position: u64,
    counters: Counters,
}

impl AccessLog {
    pub fn new(path: PathBuf) -> AccessLog {
        AccessLog { path, position: 0, counters: Counters::new() }
    }

    pub fn counters(&mut self) -> Result<Counters> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Counters::new()),
            file => file.with_context(|| format!("opening {}", self.path.display()))?,
        };
        file.seek(SeekFrom::Start(self.position))?;
        let mut reader = BufReader::new(file);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.position += line.len() as u64;
            if let Some(kind) = kind_of(&line) {
                *self.counters.entry(kind).or_default() += 1;
            }
            line.clear();
        }
        Ok(self.counters.clone())
    }
}

/// `s3_GetObject` is a GET, and so on; an operation of another kind keeps its name.
fn kind_of(line: &str) -> Option<String> {
    let operation = line.split_whitespace().find_map(|word| word.strip_prefix("s3_"))?;
    let kind = ["List", "Head", "Get"].into_iter().find(|kind| operation.starts_with(kind));
    Some(kind.map_or_else(|| operation.to_owned(), str::to_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_has_a_kind() {
        let line = "key bucket [21/November/2026:21:23:59 +0000] 127.0.0.1 key WOZ s3_GetObject \
                    small/a.bin /bucket/small/a.bin 200 - 0 0\n";
        assert_eq!(kind_of(line).as_deref(), Some("GET"));
        assert_eq!(kind_of("a b s3_ListObjectsV2 - /b 200").as_deref(), Some("LIST"));
        assert_eq!(kind_of("a b s3_DeleteObject x").as_deref(), Some("DeleteObject"));
        assert_eq!(kind_of("log starts 2026-11-21"), None);
    }
}
