//! The workloads of the folder `workloads/`, which travel with the program.
//!
//! Invariant: every file of the folder is here, which a test compares.

use block::{Error, Result};

use super::Workload;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../workloads/", $name, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] = files![
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
];

/// Names of the shipped workloads.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// A shipped workload.
pub fn shipped(name: &str) -> Result<Workload> {
    let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) else {
        let known = names().collect::<Vec<_>>().join(", ");
        return Err(Error::missing("no such workload is shipped", name)
            .hint(format!("one of {known}; or the path of a file of your own")));
    };
    Workload::parse(text, &format!("workloads/{name}.toml"))
}

#[cfg(test)]
mod tests {
    use super::{names, shipped};

    #[test]
    fn every_file_of_the_folder_is_shipped_and_can_be_run() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort();
        let mut known: Vec<&str> = names().collect();
        known.sort_unstable();
        assert_eq!(known, found);
        for name in known {
            let workload = shipped(name).unwrap();
            assert_eq!(workload.name, name);
            assert!(!workload.source.is_empty());
        }
    }
}
