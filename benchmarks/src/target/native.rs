//! The same files on the local file system: what every other target is compared with.

use std::process::Command;

use super::{Paths, Target};

pub struct Native;

impl Target for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn version(&self) -> Option<String> {
        Some("the kernel's own file system".to_owned())
    }

    fn daemon(&self, _place: &Paths) -> Option<Command> {
        None
    }
}
