//! What a fault of stoker's own does to a run: it fails, and doesn't wait for ever.

use super::*;
use block::Kind;
use targets::{Listed, Opened, Writable};

/// A target whose files can't be opened without a panic from the third on.
struct Brittle(Null);

impl Target for Brittle {
    fn url(&self) -> &str {
        self.0.url()
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.0.list()
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        self.0.stat(name)
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        assert!(*file.name < *self.list()?[2].name, "this panic is a part of the test");
        self.0.open(file)
    }

    fn writable(&self) -> Option<&dyn Writable> {
        None
    }
}

#[test]
fn a_reader_that_panics_fails_the_run() {
    let set = Set::imagined(&job(1, 1.0).workload.files, 400, 1);
    let target = Brittle(Null::of(set.files.clone()));
    for together in [true, false] {
        let error = measured(&Job { together, ..job(2, 0.001) }, &target, &set).unwrap_err();
        assert!(error.kind == Kind::Corrupt && error.what.contains("panicked"), "{error}");
    }
}
