//! From what was typed about a cluster to a membership of it.
//!
//! Invariant: nothing travels unencrypted unless that was asked for.

use crate::args::ClusterFlags;
use crate::place;
use block::{Error, Result};
use node::Membership;
use peer::{Claim, Leave, Listener, Members, Taken, Tcp, Tls, Transport};
use std::sync::Arc;

/// A membership, and the door at which others knock.
pub struct Joined {
    pub membership: Membership,
    pub listener: Box<dyn Listener>,
    pub leave: Leave,
}

/// The membership that was asked for, if one was.
pub fn join(flags: &ClusterFlags, runtime: &tokio::runtime::Handle) -> Result<Option<Joined>> {
    let Some(typed) = &flags.members else { return Ok(None) };
    if flags.identity.is_none() && !flags.plaintext {
        let error = Error::invalid("members have no keys to know each other by", format!("--members {typed}"));
        let keys = "make keys with `stoker keys --members FILE --out DIR` and give --identity DIR/NAME";
        return Err(error.hint(format!("{keys}; or, on a network that only members are on, give --plaintext")));
    }
    let members = Members::parse(typed, &place::variable)?;
    let ClusterFlags { listen, interface, name, weight, .. } = flags.clone();
    let claim = Claim { listen, interface, name, weight };
    let Taken { seat, socket, seats } = runtime.block_on(members.take_seat(&claim))?;
    let _entered = runtime.enter();
    let socket = peer::listener(socket)?;
    let (transport, listener): (Arc<dyn Transport>, Box<dyn Listener>) = match &flags.identity {
        None => (Arc::new(Tcp), Box::new(socket)),
        Some(folder) => {
            let tls = Tls::load(folder, seat.id)?;
            let listener = tls.listener(socket);
            (Arc::new(tls), Box::new(listener))
        }
    };
    let told = runtime.block_on(members.join(&seat, seats))?;
    let membership =
        Membership { members: typed.clone(), roster: told.roster, transport, is_encrypted: flags.identity.is_some() };
    Ok(Some(Joined { membership, listener, leave: told.leave }))
}
