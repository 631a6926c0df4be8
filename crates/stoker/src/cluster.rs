//! From what was typed about a cluster to a membership of it.
//!
//! Invariant: nothing travels unencrypted unless that was asked for.

use crate::args::ClusterFlags;
use block::{Error, Result};
use node::Membership;
use peer::{Listener, Members, Tcp};
use std::sync::Arc;

/// A membership, and the door at which others knock.
pub struct Joined {
    pub membership: Membership,
    pub listener: Box<dyn Listener>,
}

/// The membership that was asked for, if one was.
pub fn join(flags: &ClusterFlags, runtime: &tokio::runtime::Handle) -> Result<Option<Joined>> {
    let Some(typed) = &flags.members else { return Ok(None) };
    if !flags.plaintext {
        let error = Error::invalid(
            "members have nothing yet to encrypt with what they tell each other",
            format!("--members {typed}"),
        );
        return Err(error.hint("on a network that only members are on, give --plaintext"));
    }
    let members: Members = typed.parse()?;
    let seats = members.read()?;
    let (seat, socket) = peer::take_seat(&seats, flags.listen.as_deref())?;
    let _entered = runtime.enter();
    let listener = Box::new(peer::listener(socket)?);
    let roster = members.watch(seat.id, seats, runtime);
    let membership = Membership { members: typed.clone(), roster, transport: Arc::new(Tcp) };
    Ok(Some(Joined { membership, listener }))
}
