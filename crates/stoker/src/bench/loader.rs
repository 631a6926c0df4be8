//! Starts the programs in Python that load as PyTorch, TensorFlow or DALI do; they travel with the command.
//!
//! It measures nothing. Invariant: the program that runs is the one that this version of the command brought.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::loader::{Job, Loader, Watch};
use bench::report::Epoch;
use block::{Error, crc64};

use super::launch;
use crate::place;

const FILES: [(&str, &str); 4] = [
    ("common.py", include_str!("../../../../python/loaders/common.py")),
    ("torch_loader.py", include_str!("../../../../python/loaders/torch_loader.py")),
    ("tensorflow_loader.py", include_str!("../../../../python/loaders/tensorflow_loader.py")),
    ("dali_loader.py", include_str!("../../../../python/loaders/dali_loader.py")),
];

/// Run a job through a loader.
pub fn run(loader: Loader, job: &Job, watch: &mut dyn Watch) -> anyhow::Result<Vec<Epoch>> {
    let folder = unpack(&place::cache(None)?)?;
    let file = match loader {
        Loader::Torch => "torch_loader.py",
        Loader::Tensorflow => "tensorflow_loader.py",
        Loader::Dali => "dali_loader.py",
    };
    let mut program = Command::new(launch::python());
    // Without -B each start would leave its __pycache__ beside the programs.
    program.arg("-B").arg(folder.join(file));
    Ok(bench::loader::run(loader, job, program, watch)?)
}

/// The programs as files, because processes that Python starts afresh read them again.
fn unpack(cache: &Path) -> Result<PathBuf, Error> {
    let told: Vec<u8> = FILES.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()].concat()).collect();
    let folder = cache.join(format!("loaders/{:016x}", crc64::of(&told)));
    let doing = |error: std::io::Error| {
        Error::io("cannot unpack the loaders", folder.display(), &error).hint("set XDG_CACHE_HOME to a folder of yours")
    };
    fs::create_dir_all(&folder).map_err(doing)?;
    for (name, text) in FILES {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
            continue;
        }
        let draft = folder.join(format!("{name}.{}", std::process::id()));
        fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path)).map_err(doing)?;
    }
    Ok(folder)
}
