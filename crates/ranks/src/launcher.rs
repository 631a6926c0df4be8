//! From what a launcher says to this process to its place among the ranks.
//!
//! It reads no environment: whoever calls it does. Invariant: the ranks that were joined are as many as the launcher
//! started; ranks that would each believe to be alone are refused.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use block::{Error, Kind, Result};

use super::{Companion, Ranks, compile};

const PYTHON: &str = include_str!("companion.py");

/// Who started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    OpenMpi,
    /// Hydra and all that speak PMI as it does: MPICH, Intel MPI, MVAPICH.
    Mpich,
    /// Some other launcher that speaks PMIx.
    Pmix,
    Slurm,
    Torchrun,
}

/// What the launcher said of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    pub launcher: Launcher,
    pub rank: u32,
    /// Not every launcher tells it.
    pub size: Option<u32>,
}

/// What companions are made with.
#[derive(Clone, Debug)]
pub struct Means {
    /// The compiler to use instead of those that the launcher suggests.
    pub compiler: Option<String>,
    pub python: String,
    /// Where companions are kept.
    pub folder: PathBuf,
}

/// Take this process's place among the ranks: by the first companion that sees as many of them as there are.
pub fn join(launched: Launched, means: &Means) -> Result<Companion> {
    let mut reasons = Vec::new();
    if launched.launcher != Launcher::Torchrun {
        for compiler in launched.compilers(means) {
            match by_compiler(launched, compiler, means) {
                Ok(companion) => return Ok(companion),
                Err(reason) => reasons.push(format!("{compiler}: {reason}")),
            }
        }
    }
    let library = if launched.launcher == Launcher::Torchrun { "torch" } else { "mpi4py" };
    match by_python(launched, library, means) {
        Ok(companion) => return Ok(companion),
        Err(reason) => reasons.push(format!("{} with {library}: {reason}", means.python)),
    }
    let on = format!("rank {}, {}", launched.rank, launched.launcher);
    let what = format!("the ranks can't be joined ({})", reasons.join("; "));
    Err(Error::unavailable(what, on).hint(launched.launcher.cure()))
}

fn by_compiler(launched: Launched, compiler: &str, means: &Means) -> Result<Companion, String> {
    let made = |anew| match compile::compiled(compiler, &means.folder, anew) {
        Ok(Some(program)) => Ok(Command::new(program)),
        Ok(None) => Err("there is no such compiler".to_owned()),
        Err(error) => Err(error.what),
    };
    match Companion::start(made(false)?) {
        Ok(companion) => launched.fits(companion),
        // A kept one may have been made for libraries that are no longer there.
        Err(error) if error.kind == Kind::Missing => {
            let again = Companion::start(made(true)?).map_err(|error| format!("{}, {}", error.what, error.on))?;
            launched.fits(again)
        }
        Err(error) => Err(format!("{}, {}", error.what, error.on)),
    }
}

fn by_python(launched: Launched, library: &str, means: &Means) -> Result<Companion, String> {
    let mut command = Command::new(&means.python);
    command.args(["-c", PYTHON, library]);
    let companion = Companion::start(command).map_err(|error| format!("{}, {}", error.what, error.on))?;
    launched.fits(companion)
}

impl Launched {
    /// Compilers to try, the likeliest first: where several MPIs are installed, `mpicc` is only one of them.
    fn compilers<'a>(&self, means: &'a Means) -> Vec<&'a str> {
        if let Some(compiler) = &means.compiler {
            return vec![compiler];
        }
        match self.launcher {
            Launcher::OpenMpi => vec!["mpicc.openmpi", "mpicc"],
            Launcher::Mpich => vec!["mpicc.mpich", "mpicc"],
            Launcher::Pmix | Launcher::Slurm => vec!["mpicc", "mpicc.openmpi", "mpicc.mpich"],
            Launcher::Torchrun => Vec::new(),
        }
    }

    fn fits(&self, companion: Companion) -> Result<Companion, String> {
        let (rank, size) = (companion.rank(), companion.size());
        if rank == self.rank && self.size.is_none_or(|expected| expected == size) {
            return Ok(companion);
        }
        let expected = self.size.map_or_else(|| "?".to_owned(), |size| size.to_string());
        let library = &companion.greeting().library;
        Err(format!("{library} says rank {rank} of {size} where the launcher says {} of {expected}", self.rank))
    }
}

impl Launcher {
    fn cure(self) -> &'static str {
        match self {
            Launcher::OpenMpi | Launcher::Mpich | Launcher::Pmix => {
                "set MPICC to the mpicc of the MPI whose mpirun you use, or install mpi4py for it"
            }
            Launcher::Slurm => {
                "start it with the MPI of your mpicc: `srun --mpi=pmix` (`srun --mpi=list` names what there is), or set MPICC"
            }
            Launcher::Torchrun => "install torch for this python3: `pip install torch` or `apt install python3-torch`",
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Launcher::OpenMpi => "mpirun of Open MPI",
            Launcher::Mpich => "mpirun of MPICH",
            Launcher::Pmix => "a launcher with PMIx",
            Launcher::Slurm => "srun",
            Launcher::Torchrun => "torchrun",
        })
    }
}
