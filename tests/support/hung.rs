//! A file system that hangs, as those of a network do whose server is gone.
//!
//! Invariant: it has ended when the test is over.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

/// A file system that answers nothing, for as long as it lives.
pub struct Hung(pub PathBuf, #[allow(dead_code, reason = "closing it ends the file system")] File);

impl Hung {
    /// Over a folder. `None`, and said so, where it can't be.
    pub fn over(path: PathBuf) -> Option<Hung> {
        if !super::is_root() {
            eprintln!("SKIPPED: only root can mount what never answers");
            return None;
        }
        let device = File::options().read(true).write(true).open("/dev/fuse").expect("the device");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let words = [path.as_os_str().as_bytes(), b"fuse", options.as_bytes()];
        let [at, kind, options] = words.map(|word| CString::new(word).expect("no NUL"));
        // SAFETY: all are strings that end, and outlive the call.
        let done = unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Some(Hung(path, device))
    }

    /// It goes on to hang where it was, but no longer stands in the way.
    pub fn uncover(&self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|done| done.success()));
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
