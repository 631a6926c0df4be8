//! What surrounds a command, put in order before anything else runs: variables that are set to nothing, and the home of a user
//! whom nobody gave one.
//!
//! Invariant: called before any other thread exists, for variables belong to the whole process.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// How the variables begin that are this program's own, or name places.
const OURS: [&str; 2] = ["STOKER_", "XDG_"];

/// Bytes of an entry of the password database: glibc suggests 1,024; those of a directory may be longer.
const ENTRY_BYTES: usize = 16 << 10;

/// Take away what is set to nothing, as a file of compose or of Kubernetes leaves it, and find the home folder where none is
/// named, as in a unit of systemd or at boot: the tools whose files and logins are used look there, too.
pub fn settle() {
    let empty = std::env::vars_os().filter(|(name, value)| {
        value.is_empty() && OURS.iter().any(|ours| name.as_bytes().starts_with(ours.as_bytes()))
    });
    for (name, _) in empty.collect::<Vec<_>>() {
        // SAFETY: no other thread exists that could read the environment.
        unsafe { std::env::remove_var(name) };
    }
    let has_home = std::env::var_os("HOME").is_some_and(|home| !home.is_empty());
    if let Some(home) = Some(()).filter(|()| !has_home).and_then(|()| home()) {
        // SAFETY: as above.
        unsafe { std::env::set_var("HOME", home) };
    }
}

/// The home of this user by the password database, if it is there.
fn home() -> Option<OsString> {
    let mut bytes = vec![0; ENTRY_BYTES];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    let user = rustix::process::geteuid().as_raw();
    // SAFETY: the entry and the bytes that it points into outlive its use here, and the length is that of the bytes.
    let failed = unsafe { libc::getpwuid_r(user, entry.as_mut_ptr(), bytes.as_mut_ptr(), bytes.len(), &raw mut found) };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: it was found, so the entry is filled, and its folder is null or a string within the bytes.
    let folder = unsafe { (*found).pw_dir };
    if folder.is_null() {
        return None;
    }
    // SAFETY: as above.
    let folder = unsafe { CStr::from_ptr(folder) }.to_bytes();
    let is_there = folder.starts_with(b"/") && Path::new(OsStr::from_bytes(folder)).is_dir();
    is_there.then(|| OsString::from_vec(folder.to_vec()))
}
