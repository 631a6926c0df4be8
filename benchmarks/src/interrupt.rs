//! Ctrl-C: remembered, and looked at wherever something is waited for, so that every mount and
//! every child is put away on the same path as after an error.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};

static ASKED: AtomicBool = AtomicBool::new(false);

const HANGUP: i32 = 1;
const INTERRUPT: i32 = 2;
const TERMINATE: i32 = 15;

unsafe extern "C" {
    // Of the C library, which the standard library links in any case. A crate for three lines
    // would be one more dependency.
    fn signal(number: i32, handler: usize) -> usize;
}

extern "C" fn remember(_: i32) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on a request to end is remembered instead of obeyed at once.
pub fn catch() {
    let handler = remember as extern "C" fn(i32);
    for number in [HANGUP, INTERRUPT, TERMINATE] {
        // SAFETY: the handler only stores to an atomic, which may be done at any moment.
        unsafe {
            signal(number, handler as usize);
        }
    }
}

pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

pub fn check() -> Result<()> {
    if asked() {
        bail!("interrupted");
    }
    Ok(())
}
