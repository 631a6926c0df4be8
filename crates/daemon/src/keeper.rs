//! What outlives this process: descriptors, each by a name, that somebody else holds for it and hands to the next one.
//!
//! Told as sd_notify(3) has it (`FDSTORE=1`, `FDNAME=`, `FDSTOREREMOVE=1`), so that systemd can be that somebody too. What was
//! sent is there however this process ends: it lies in the other's queue.
//!
//! Invariant: a descriptor is held elsewhere for as long as its [`Held`] lives, if there is anybody to hold it.

use block::{Error, Kind, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors that somebody else holds for one process: some hundred mounts'. systemd holds as many by the unit that we bring.
const HELD_MAX: usize = 4096;

/// Descriptors by their names.
pub type Named = BTreeMap<String, OwnedFd>;

/// Who holds descriptors for this process.
#[derive(Default)]
pub struct Keeper {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    socket: Option<UnixDatagram>,
    /// The process that holds them, by its number and as no other that gets the number later.
    process: Option<(u32, OwnedFd)>,
    /// Why nobody does.
    absent: String,
    held: Named,
}

/// A descriptor that is held elsewhere until this is dropped.
pub struct Held {
    name: String,
    keeper: Arc<Keeper>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keeper.remove(&self.name);
    }
}

impl Keeper {
    /// Somebody is there from now on, and gets all that is to be held.
    pub fn begin(&self, socket: UnixDatagram, process: Option<(u32, OwnedFd)>) -> Result<()> {
        let mut state = self.state();
        (state.socket, state.process) = (Some(socket), process);
        for (name, descriptor) in &state.held {
            state.store(name, descriptor.as_fd())?;
        }
        Ok(())
    }

    /// Nobody is there any more.
    pub fn lost(&self, why: impl Into<String>) {
        let mut state = self.state();
        (state.socket, state.process, state.absent) = (None, None, why.into());
    }

    /// The process that holds them, if that is known; why nobody holds them, if so.
    pub fn who(&self) -> std::result::Result<Option<u32>, String> {
        let state = self.state();
        if state.socket.is_some() { Ok(state.process.as_ref().map(|(pid, _)| *pid)) } else { Err(state.absent.clone()) }
    }

    /// Have a descriptor held.
    pub fn hold(self: &Arc<Keeper>, name: String, descriptor: BorrowedFd<'_>) -> Result<Held> {
        let own = descriptor.try_clone_to_owned();
        let own = own.map_err(|error| Error::io("duplicating a descriptor", &name, &error))?;
        let mut state = self.state();
        if state.held.len() >= HELD_MAX && !state.held.contains_key(&name) {
            let error = Error::new(Kind::Full, format!("{HELD_MAX} descriptors are held for this node already"), name);
            return Err(error.hint("mount with another --cache, which has a node of its own"));
        }
        if let Err(error) = state.store(&name, descriptor) {
            tracing::warn!("who holds what is to outlive this process does not hear: {error}");
            // Whoever waits for its end has another one, which gets all of it.
            let killed = state.process.take().map(|(_, process)| pidfd_send_signal(&process, Signal::KILL));
            tracing::debug!("its end: {killed:?}");
            (state.socket, state.process, state.absent) = (None, None, format!("it did not hear: {error}"));
        }
        state.held.insert(name.clone(), own);
        drop(state);
        Ok(Held { name, keeper: self.clone() })
    }

    /// Tell something else, in words of sd_notify(3).
    pub fn tell(&self, words: &str) -> Result<()> {
        let nobody = || Error::unavailable("nobody holds what is to outlive this process", words);
        let sent = self.state().socket.as_ref().ok_or_else(nobody)?.send(words.as_bytes());
        sent.map(drop).map_err(|error| Error::io("telling who holds what outlives this process", words, &error))
    }

    /// Have a descriptor held no longer.
    pub fn remove(&self, name: &str) {
        let removed = self.state().held.remove(name);
        if let Err(error) = self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}")) {
            tracing::debug!("{error}");
        }
        drop(removed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        // What can't be polled is not to be: a device of FUSE says that it is dead while nobody reads it.
        let words = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut ancillary, descriptors) = (SendAncillaryBuffer::new(&mut space), [descriptor]);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = sendmsg(socket, &[IoSlice::new(words.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|errno| Error::io("handing a descriptor to the keeper", name, &errno.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    use std::io::IoSliceMut;

    /// The next words, and whether a descriptor came with them.
    fn heard(socket: &UnixDatagram) -> (String, bool) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut ancillary, mut bytes) = (RecvAncillaryBuffer::new(&mut space), [0; 256]);
        let heard = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::DONTWAIT);
        let length = heard.expect("somebody said something").bytes;
        let rights = ancillary.drain().any(|message| matches!(message, RecvAncillaryMessage::ScmRights(_)));
        (String::from_utf8(bytes[..length].to_vec()).expect("words"), rights)
    }

    #[test]
    fn whoever_comes_is_handed_all_that_is_held_and_told_of_what_is_not_any_more() {
        let keeper = Arc::new(Keeper::default());
        keeper.lost("nobody yet");
        assert_eq!(keeper.who(), Err("nobody yet".into()));
        let file = tempfile::tempfile().expect("a file");
        let held = keeper.hold("1.terms".into(), file.as_fd()).expect("it is held");
        for _ in 0..2 {
            let (ours, theirs) = UnixDatagram::pair().expect("two sockets");
            let us = (7, file.as_fd().try_clone_to_owned().expect("a descriptor"));
            keeper.begin(ours, Some(us)).expect("it is handed over");
            assert_eq!(keeper.who(), Ok(Some(7)));
            assert_eq!(heard(&theirs), ("FDSTORE=1\nFDPOLL=0\nFDNAME=1.terms".into(), true));
        }
        let (ours, theirs) = UnixDatagram::pair().expect("two sockets");
        let second = keeper.hold("1.names.2".into(), file.as_fd()).expect("it is held");
        drop(held);
        keeper.begin(ours, None).expect("it is handed over");
        assert_eq!(heard(&theirs).0, "FDSTORE=1\nFDPOLL=0\nFDNAME=1.names.2");
        drop(second);
        assert_eq!(heard(&theirs), ("FDSTOREREMOVE=1\nFDNAME=1.names.2".into(), false));
    }
}
