//! Files that travel with the program: the workloads of `workloads/`, the accelerators of `accelerators/`.
//!
//! Invariant: every file of the two folders is here, which a test compares.

use block::{Error, Result};

/// The files of one folder.
pub(crate) struct Shipped {
    what: &'static str,
    folder: &'static str,
    files: &'static [(&'static str, &'static str)],
}

macro_rules! files {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../", $folder, "/", $name, ".toml")))),*]
    };
}

pub(crate) const ACCELERATORS: Shipped = Shipped {
    what: "accelerator",
    folder: "accelerators",
    files: files!["accelerators": "a100", "b200", "fixed", "h100", "mi355", "p100", "v100"],
};

pub(crate) const WORKLOADS: Shipped = Shipped {
    what: "workload",
    folder: "workloads",
    files: files![
        "workloads":
        "bert",
        "checkpoint-llama3-1t",
        "checkpoint-llama3-405b",
        "checkpoint-llama3-70b",
        "checkpoint-llama3-8b",
        "cosmoflow",
        "cosmoflow-hpc",
        "dlrm",
        "flux",
        "imagenet-folder",
        "resnet-152-1024",
        "resnet-152-5120",
        "resnet-50-1024",
        "resnet-50-5120",
        "resnet50",
        "retinanet",
        "trivial-1024",
        "trivial-5120",
        "unet3d",
    ],
};

impl Shipped {
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.files.iter().map(|(name, _)| *name)
    }

    /// What a file says, and where it is kept.
    pub(crate) fn text(&self, name: &str) -> Result<(&'static str, String)> {
        let Some((name, text)) = self.files.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(Error::invalid(format!("no such {} is shipped", self.what), name)
                .hint(format!("one of {known}; or the path of a file of your own")));
        };
        Ok((text, format!("{}/{name}.toml", self.folder)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerator;

    #[test]
    fn every_file_of_the_folders_is_shipped_and_can_be_run() {
        for shipped in [ACCELERATORS, WORKLOADS] {
            let folder = format!("{}/../../{}", env!("CARGO_MANIFEST_DIR"), shipped.folder);
            let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let mut found: Vec<String> =
                files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
            found.sort();
            let mut known: Vec<&str> = shipped.names().collect();
            known.sort_unstable();
            assert_eq!(known, found);
        }
        for name in accelerator::names() {
            let accelerator = accelerator::shipped(name).unwrap();
            assert_eq!(accelerator.name, name);
            assert!(accelerator.steps.values().all(|step| !step.source.is_empty()));
        }
        for name in crate::names() {
            let workload = crate::shipped(name).unwrap();
            assert_eq!(workload.name, name);
            assert!(!workload.source.is_empty());
        }
    }
}
