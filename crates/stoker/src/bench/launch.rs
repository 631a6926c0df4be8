//! Whether this process runs under a launcher, and as which rank of how many.
//!
//! It reads the environment, and starts nothing but the companion of its rank. Invariant: without a launcher, or as
//! the only rank of one, nothing is started and nothing is needed.

use std::env;
use std::ffi::OsString;

use anyhow::Result;
use ranks::{Alone, Companion, Launched, Launcher, Means, Ranks, join};

use crate::place;

/// This process among those that were started with it.
pub fn ranks() -> Result<Box<dyn Ranks>> {
    Ok(match companion()? {
        Some((_, companion)) => Box::new(companion),
        None => Box::new(Alone),
    })
}

/// The companion of this rank, where there are others.
pub fn companion() -> Result<Option<(Launched, Companion)>> {
    let Some(launched) = launched(&|name| env::var_os(name)) else { return Ok(None) };
    let means = Means {
        compiler: env::var("MPICC").ok().filter(|named| !named.is_empty()),
        python: python(),
        folder: place::cache(None)?.join("mpi"),
    };
    Ok(Some((launched, join(launched, &means)?)))
}

/// The Python that has the user's libraries.
pub fn python() -> String {
    env::var("PYTHON").ok().filter(|named| !named.is_empty()).unwrap_or_else(|| "python3".into())
}

/// What the environment says. Launchers start each other; the innermost is asked first, and it is the one whose variables
/// the outer one doesn't set.
fn launched(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<Launched> {
    let number = |name: &str| variable(name)?.to_str()?.trim().parse::<u32>().ok();
    let pair =
        |launcher, rank: &str, size: &str| Some(Launched { launcher, rank: number(rank)?, size: Some(number(size)?) });
    let torch = || {
        variable("MASTER_ADDR")?;
        pair(Launcher::Torchrun, "RANK", "WORLD_SIZE")
    };
    let torchrun = variable("TORCHELASTIC_RUN_ID").and_then(|_| torch());
    // A shell of sbatch or salloc has SLURM_NTASKS too, and is no step.
    let step = || pair(Launcher::Slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
    let found = torchrun
        .or_else(|| pair(Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
        // srun speaks PMI too; mpirun's own ranks are others than those of a step that it runs in.
        .or_else(|| {
            let found = pair(Launcher::Mpich, "PMI_RANK", "PMI_SIZE")?;
            Some(step().filter(|step| (step.rank, step.size) == (found.rank, found.size)).unwrap_or(found))
        })
        .or_else(step)
        .or_else(|| Some(Launched { launcher: Launcher::Pmix, rank: number("PMIX_RANK")?, size: None }))
        .or_else(torch)?;
    (found.size != Some(1)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(environment: &[(&str, &str)]) -> Option<(Launcher, u32, Option<u32>)> {
        let variable = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        launched(&variable).map(|found| (found.launcher, found.rank, found.size))
    }

    #[test]
    fn each_launcher_is_known_by_what_it_sets() {
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "1")];
        assert_eq!(found(&open_mpi), Some((Launcher::OpenMpi, 1, Some(4))));
        assert_eq!(found(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((Launcher::Mpich, 0, Some(2))));
        assert_eq!(found(&[("PMIX_RANK", "3")]), Some((Launcher::Pmix, 3, None)));
        let step = [("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "8"), ("PMIX_RANK", "5")];
        assert_eq!(found(&step), Some((Launcher::Slurm, 5, Some(8))));
        let pmi2 = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        assert_eq!(found(&pmi2), Some((Launcher::Slurm, 1, Some(4))));
        let mpirun_in_a_step =
            [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2"), ("PMI_RANK", "3"), ("PMI_SIZE", "8")];
        assert_eq!(found(&mpirun_in_a_step), Some((Launcher::Mpich, 3, Some(8))));
        let torch = [("RANK", "2"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "127.0.0.1")];
        assert_eq!(found(&torch), Some((Launcher::Torchrun, 2, Some(4))));
    }

    #[test]
    fn the_innermost_launcher_decides() {
        let torchrun_in_srun = [
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("TORCHELASTIC_RUN_ID", "none"),
            ("RANK", "7"),
            ("WORLD_SIZE", "16"),
            ("MASTER_ADDR", "a"),
        ];
        assert_eq!(found(&torchrun_in_srun), Some((Launcher::Torchrun, 7, Some(16))));
    }

    #[test]
    fn a_process_that_nobody_launched_is_alone() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]), None);
        assert_eq!(found(&[("RANK", "1"), ("WORLD_SIZE", "4")]), None, "words that anyone may use");
        let batch_script = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "9")];
        assert_eq!(found(&batch_script), None);
    }
}
