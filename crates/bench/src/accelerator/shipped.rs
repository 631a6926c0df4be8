//! The accelerators of the folder `accelerators/`, which travel with the program.
//!
//! Invariant: every file of the folder is here, which a test compares.

use block::{Error, Result};

use super::Accelerator;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../accelerators/", $name, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] = files!["a100", "b200", "fixed", "h100", "mi355", "v100",];

/// Names of the shipped accelerators.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// A shipped accelerator.
pub fn shipped(name: &str) -> Result<Accelerator> {
    let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) else {
        let known = names().collect::<Vec<_>>().join(", ");
        return Err(Error::missing("no such accelerator is shipped", name)
            .hint(format!("one of {known}; or the path of a file of your own")));
    };
    Accelerator::parse(text, &format!("accelerators/{name}.toml"))
}

#[cfg(test)]
mod tests {
    use super::{names, shipped};

    #[test]
    fn every_file_of_the_folder_is_shipped_and_can_be_run() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../accelerators");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort();
        let mut known: Vec<&str> = names().collect();
        known.sort_unstable();
        assert_eq!(known, found);
        for name in known {
            let accelerator = shipped(name).unwrap();
            assert_eq!(accelerator.name, name);
            assert!(accelerator.steps.values().all(|step| !step.source.is_empty()));
        }
    }
}
