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
use std::sync::{Arc, Weak};
use std::time::Duration;

/// When what others keep in this node's stead is looked for on its own disk, after they said so; then at pauses that double, up to
/// the second, for as long as they keep any.
const SPARED_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));

/// Stripes of which each owner hears when a data set is opened: what an owner remembers of a few members.
const OPENED_TOLD_MAX: usize = 1 << 16;

/// A look that comes again and again takes one part in so many of the time.
const LOOK_REST: u32 = 20;

/// See to it for as long as the node lives.
pub fn begin(node: &Arc<Node>) {
    let Some(lines) = node.stack.lines().cloned() else { return };
    let (node, runtime) = (Arc::downgrade(node), node.runtime.clone());
    runtime.spawn(async move {
        // The first to notice that the node has ended ends all.
        tokio::select! {
            () = watch(node.clone(), lines.clone()) => {}
            () = spare(node.clone(), lines.clone()) => {}
            () = give_up(node, lines) => {}
        }
    });
}

async fn watch(node: Weak<Node>, lines: Lines) {
    let mut rosters = lines.rosters();
    let mut before = rosters.borrow_and_update().clone();
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

/// Others said that they keep what this node owns. It may have that itself, or fetch it from them sooner or later: then theirs are
/// copies, which would hold room for good.
async fn spare(node: Weak<Node>, lines: Lines) {
    let (first, most) = SPARED_AFTER;
    let mut pause = first;
    loop {
        let within = if lines.placed() == 0 { most } else { pause };
        if tokio::time::timeout(within, lines.stood_in_for()).await.is_ok() {
            // It may be on its way here.
            tokio::time::sleep(first).await;
            pause = first;
        }
        let Some(node) = node.upgrade() else { return };
        if lines.placed() == 0 {
            continue;
        }
        let (me, asked) = (lines.roster().me(), lines.clone());
        let here = look_and_rest(node, move |node, address| {
            let (object, stripe) = (&address.object, Stripe::of(address));
            let is_kept = asked.keeper(address).is_some() && asked.roster().owner(&stripe) == Some(me);
            (is_kept && node.stack.has_all(object, &stripe.blocks(object))).then_some(stripe)
        });
        lines.has_itself(&here.await);
        pause = (2 * pause).min(most);
    }
}

/// What owners say that nobody need keep in their stead is a copy from then on.
async fn give_up(node: Weak<Node>, lines: Lines) {
    loop {
        let (spared, roster) = (lines.spared().await, lines.roster());
        let Some(node) = node.upgrade() else { return };
        look_and_rest(node, move |node, address| {
            let stripe = Stripe::of(address);
            let is_others = spared.contains(&stripe) && roster.owner(&stripe) != Some(roster.me());
            is_others.then(|| node.stack.gives_up(address));
            None::<()>
        })
        .await;
    }
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

/// A data set was opened whose bytes may be of an earlier run, which doesn't tell what was a copy. Their owners may have begun anew, too,
/// and hear of them: who has such a stripe itself says so, and who doesn't knows again where it lies. What is more than that is a copy.
pub fn opened(node: &Arc<Node>) {
    let Some(lines) = node.stack.lines().cloned() else { return };
    let (node, roster) = (node.clone(), lines.roster());
    node.runtime.clone().spawn(async move {
        let mut told: BTreeMap<u128, usize> = BTreeMap::new();
        let kept = look(&node, move |node, address| {
            let stripe = Stripe::of(address);
            let owner = roster.owner(&stripe).filter(|owner| *owner != roster.me())?;
            let count = told.entry(owner).or_default();
            if *count >= OPENED_TOLD_MAX {
                node.stack.gives_up(address);
                return None;
            }
            let is_here = node.stack.has_any(address);
            *count += usize::from(is_here);
            is_here.then_some((owner, stripe))
        });
        let kept = kept.await;
        drop(node);
        tell(&lines, kept).await;
    });
}

/// Look at the first block of each stripe of all data sets, and gather what is found.
async fn look<T: Send + 'static>(
    node: &Arc<Node>,
    mut found: impl FnMut(&Node, &Address) -> Option<T> + Send + 'static,
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

/// The same for those who look again and again: they rest in between.
async fn look_and_rest<T: Send + 'static>(
    node: Arc<Node>,
    found: impl FnMut(&Node, &Address) -> Option<T> + Send + 'static,
) -> Vec<T> {
    let began = cache::waits::clock();
    let all = look(&node, found).await;
    let took = cache::waits::clock().saturating_duration_since(began);
    drop(node);
    tokio::time::sleep(took * LOOK_REST).await;
    all
}

fn each_object(view: &View, mut each: impl FnMut(&Arc<Object>)) {
    let manifest = view.manifest();
    let mut walk = manifest.walk(ROOT);
    while let Some(file) = walk.advance() {
        manifest.object(file.node).filter(|object| object.size > 0).iter().for_each(&mut each);
    }
}
