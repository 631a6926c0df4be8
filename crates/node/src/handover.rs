//! When members of a cluster change: what another one owns from now on gives way first here, as a copy; and who owns or answers for
//! something from now on is told that this node has it: it doesn't know who keeps what in its stead. And who keeps in this node's
//! stead what it has itself hears that it need not.
//!
//! Costs a look at each object of each data set, about a microsecond, off everybody's way.

use crate::load;
use crate::namespace::ROOT;
use crate::node::Node;
use crate::view::View;
use block::{Address, Object, Stripe};
use peer::Lines;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// When what others keep in this node's stead is looked for on its own disk, after they said so, and after that.
const SPARED_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// See to it for as long as the node lives.
pub fn begin(node: &Arc<Node>) {
    if let Some(lines) = node.stack.lines().cloned() {
        node.runtime.spawn(watch(Arc::downgrade(node), lines));
    }
}

async fn watch(node: Weak<Node>, lines: Lines) {
    let mut rosters = lines.rosters();
    let mut before = rosters.borrow_and_update().clone();
    let is_sparing = Arc::new(AtomicBool::new(false));
    loop {
        let told;
        tokio::select! {
            changed = rosters.changed() => {
                let now = rosters.borrow_and_update().clone();
                let Some(node) = node.upgrade().filter(|_| changed.is_ok()) else { return };
                let was = std::mem::replace(&mut before, now.clone());
                if was.owns_like(&now) {
                    continue;
                }
                let kept = look(&node, move |node, address| {
                    let stripe = Stripe::of(address);
                    let owner = now.owner(&stripe).filter(|owner| *owner != now.me())?;
                    if was.owner(&stripe) != Some(was.me()) {
                        return None;
                    }
                    node.stack.gives_up(address);
                    node.stack.has_any(address).then_some((owner, stripe))
                });
                told = kept.await;
            }
            () = lines.stood_in_for() => {
                if !is_sparing.swap(true, Relaxed) {
                    lines.runtime().spawn(spare(node.clone(), lines.clone(), is_sparing.clone()));
                }
                continue;
            }
            spared = lines.spared() => {
                let Some(node) = node.upgrade() else { return };
                let roster = lines.roster();
                look(&node, move |node, address| {
                    let stripe = Stripe::of(address);
                    let is_others = roster.owner(&stripe) != Some(roster.me());
                    (is_others && spared.contains(&stripe)).then(|| node.stack.gives_up(address));
                    None::<()>
                })
                .await;
                continue;
            }
            member = lines.came_or_went() => {
                let Some(node) = node.upgrade() else { return };
                let asked = lines.clone();
                let kept = look(&node, move |node, address| {
                    let stripe = Stripe::of(address);
                    let first = asked.answers_for(&stripe, member)?;
                    node.stack.has_any(address).then_some((first, stripe))
                });
                told = kept.await;
            }
        }
        // The node may end meanwhile.
        tell(&lines, told).await;
    }
}

/// Others said that they keep what this node owns. It may have that itself, or fetch it from them in a moment: then theirs are copies,
/// which would hold room for good.
async fn spare(node: Weak<Node>, lines: Lines, is_sparing: Arc<AtomicBool>) {
    for pause in SPARED_AFTER {
        tokio::time::sleep(pause).await;
        let Some(node) = node.upgrade() else { return };
        let (me, asked) = (lines.roster().me(), lines.clone());
        let here = look(&node, move |node, address| {
            let (object, stripe) = (&address.object, Stripe::of(address));
            let is_kept = asked.roster().owner(&stripe) == Some(me) && asked.keeper(address).is_some();
            (is_kept && node.stack.owns_surely(object, &stripe.blocks(object))).then_some(stripe)
        });
        lines.has_itself(&here.await);
    }
    is_sparing.store(false, Relaxed);
}

/// Tell members which stripes this node has that they are asked for.
async fn tell(lines: &Lines, kept: Vec<(u128, Stripe)>) {
    let mut told: BTreeMap<u128, Vec<Stripe>> = BTreeMap::new();
    kept.into_iter().for_each(|(member, stripe)| told.entry(member).or_default().push(stripe));
    for (member, kept) in told {
        // One that is listed before it is there hears so once it answers.
        if !lines.tell_kept(member, &kept).await {
            lines.remember(member, kept);
        }
    }
}

/// A data set was opened whose bytes may be of an earlier run, which doesn't tell what was a copy: what others own is.
pub fn opened(node: &Arc<Node>) {
    let Some(roster) = node.stack.lines().map(Lines::roster) else { return };
    let node = node.clone();
    node.runtime.clone().spawn(async move {
        look(&node, move |node, address| {
            if roster.owner(&Stripe::of(address)) != Some(roster.me()) {
                node.stack.gives_up(address);
            }
            None::<()>
        })
        .await;
    });
}

/// Look at the first block of each stripe of all data sets, and gather what is found.
async fn look<T: Send + 'static>(
    node: &Arc<Node>,
    found: impl Fn(&Node, &Address) -> Option<T> + Send + 'static,
) -> Vec<T> {
    let node = node.clone();
    let looking = move || {
        let mut all = Vec::new();
        for view in node.views().iter().filter(|view| !view.is_local()) {
            each_object(view, |object| all.extend(load::stripes(object).filter_map(|address| found(&node, &address))));
        }
        all
    };
    tokio::task::spawn_blocking(looking).await.unwrap_or_default()
}

fn each_object(view: &View, mut each: impl FnMut(&Arc<Object>)) {
    let manifest = view.manifest();
    let mut walk = manifest.walk(ROOT);
    while let Some(file) = walk.advance() {
        manifest.object(file.node).filter(|object| object.size > 0).iter().for_each(&mut each);
    }
}
