//! The companion in C, made by the user's own `mpicc` on first use and kept.
//!
//! It chooses no compiler and starts nothing but the one it is given. Invariant: a kept companion was made from this very
//! source by a compiler that says the same of itself as now.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use block::{Error, Result, crc64};

const SOURCE: &str = include_str!("companion.c");

/// The companion for the MPI of this compiler; nothing where there is no such compiler.
pub fn compiled(compiler: &str, folder: &Path, anew: bool) -> Result<Option<PathBuf>> {
    // Open MPI, MPICH and those made of them print what they would run, with all paths of that MPI.
    let shown = match Command::new(compiler).arg("-show").output() {
        Ok(shown) => shown.stdout,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(None),
        Err(error) => return Err(Error::io("cannot start the compiler", compiler, &error)),
    };
    let identity = [SOURCE.as_bytes(), compiler.as_bytes(), &shown].concat();
    let kept = folder.join(format!("companion-{:016x}", crc64::of(&identity)));
    if anew || !kept.is_file() {
        compile(compiler, &kept)?;
    }
    Ok(Some(kept))
}

/// Many ranks may do this at once: each makes its own, and the last to finish gives it the name.
fn compile(compiler: &str, kept: &Path) -> Result<()> {
    // The folder may be shared by all nodes.
    let own = format!("{}-{}", rustix::system::uname().nodename().to_string_lossy(), process::id());
    let (draft, source) = (kept.with_extension(&own), kept.with_extension(format!("{own}.c")));
    let doing = |error: std::io::Error| {
        Error::io("cannot keep the companion of MPI", kept.display(), &error)
            .hint("set XDG_CACHE_HOME to a folder of yours that may hold programs")
    };
    if let Some(folder) = kept.parent() {
        fs::create_dir_all(folder).map_err(doing)?;
    }
    fs::write(&source, SOURCE).map_err(doing)?;
    let made = Command::new(compiler).args(["-O2", "-o"]).arg(&draft).arg(&source).output();
    // Whether it is there or not changes nothing for anyone.
    let _ = fs::remove_file(&source);
    let made = made.map_err(|error| Error::io("cannot start the compiler", compiler, &error))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).lines().take(3).collect::<Vec<_>>().join("; ");
        return Err(Error::invalid(format!("the companion of MPI can't be compiled: {said}"), compiler)
            .hint("set MPICC to the compiler of the MPI whose mpirun you use"));
    }
    fs::rename(&draft, kept).map_err(doing)
}
