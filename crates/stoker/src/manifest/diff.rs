//! `stoker manifest diff`: two sets of names side by side, each read once, in the memory of one object each.

use super::Diff;
use super::set::Names;
use super::told::{Difference, Told};
use crate::runtime;
use serde_json::json;
use std::cmp::Ordering;
use store::{Listed, unmarked};

pub fn run(args: &Diff) -> anyhow::Result<bool> {
    let runtime = runtime()?;
    let before = Names::of(&args.before, &args.reach, &runtime)?;
    let after = Names::of(&args.after, &args.reach, &runtime)?;
    runtime.shutdown_background();
    let mut told = Told::new(args.json);
    compare(before, after, &mut told, &mut |difference, told| told.say(&difference))?;
    told.end(true, &json!({}))
}

/// Tell each difference between two sets of names, by their keys below the prefixes.
pub fn compare(
    mut before: Names,
    mut after: Names,
    told: &mut Told,
    each: &mut dyn FnMut(Difference, &mut Told) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let by_version = are_comparable(before.store(), after.store());
    let (old_prefix, new_prefix) = (before.prefix().len(), after.prefix().len());
    let (mut old, mut new) = (before.advance()?, after.advance()?);
    loop {
        let order = match (&old, &new) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => below(old, old_prefix).cmp(below(new, new_prefix)),
        };
        let left = if order.is_le() { std::mem::replace(&mut old, before.advance()?) } else { None };
        let right = if order.is_ge() { std::mem::replace(&mut new, after.advance()?) } else { None };
        match (left, right) {
            (Some(left), Some(right)) if is_same(&left, &right, by_version) => told.same += 1,
            (Some(left), Some(right)) => each(Difference::Changed(left, right), told)?,
            (Some(left), None) => each(Difference::Removed(left), told)?,
            (None, Some(right)) => each(Difference::Added(right), told)?,
            (None, None) => {}
        }
    }
}

fn below(listed: &Listed, prefix_bytes: usize) -> &[u8] {
    listed.key.as_bytes().get(prefix_bytes..).unwrap_or_default()
}

/// Whether versions of two stores can be compared; if not, that is said.
pub fn are_comparable(before: &str, after: &str) -> bool {
    let (before, after) = (kind(before), kind(after));
    if before != after {
        note!("{before} and {after} name versions in different ways: only sizes are compared");
    }
    before == after
}

/// Whether an object is as it was. That a version was taken soon after a change makes it no other.
pub fn is_same(before: &Listed, after: &Listed, by_version: bool) -> bool {
    before.size == after.size && (!by_version || unmarked(&before.version) == unmarked(&after.version))
}

/// How a store names versions: by what its identity begins with.
fn kind(store: &str) -> &str {
    store.split("://").next().unwrap_or_default()
}
