//! Differences between two sets of names, as they are found and said.

use crate::show;
use serde_json::json;
use store::Listed;

/// What differs between an object before and after.
pub enum Difference {
    Removed(Listed),
    Added(Listed),
    Changed(Listed, Listed),
}

/// Counts, and how each difference is said.
pub struct Told {
    is_json: bool,
    pub removed: u64,
    pub added: u64,
    pub changed: u64,
    pub same: u64,
}

impl Told {
    pub fn new(is_json: bool) -> Told {
        Told { is_json, removed: 0, added: 0, changed: 0, same: 0 }
    }

    pub fn say(&mut self, difference: &Difference) -> anyhow::Result<()> {
        let (word, mark, key) = match difference {
            Difference::Removed(before) => {
                self.removed += 1;
                ("removed", '-', &before.key)
            }
            Difference::Added(after) => {
                self.added += 1;
                ("added", '+', &after.key)
            }
            Difference::Changed(before, _) => {
                self.changed += 1;
                ("changed", '~', &before.key)
            }
        };
        let (before, after) = match difference {
            Difference::Removed(before) => (Some(before), None),
            Difference::Added(after) => (None, Some(after)),
            Difference::Changed(before, after) => (Some(before), Some(after)),
        };
        if self.is_json {
            let about = |listed: &Listed| json!({ "size": listed.size, "version": listed.version });
            return say!(
                "{}",
                json!({ "key": key, "difference": word, "before": before.map(about), "after": after.map(about) })
            );
        }
        let how = match difference {
            Difference::Changed(before, after) if before.size != after.size => {
                format!("  ({} to {} bytes)", before.size, after.size)
            }
            Difference::Changed(before, after) => format!("  (version {} to {})", before.version, after.version),
            _ => String::new(),
        };
        say!("{mark} {}{}", show::line(key), show::line(&how))
    }

    /// Say the totals. Whether all is the same: what was only added counts if `adds` says so.
    pub fn end(&self, adds: bool, more: &serde_json::Value) -> anyhow::Result<bool> {
        let Told { removed, added, changed, same, .. } = *self;
        if self.is_json {
            let mut totals = json!({ "removed": removed, "added": added, "changed": changed, "same": same });
            if let (Some(totals), Some(more)) = (totals.as_object_mut(), more.as_object()) {
                totals.extend(more.clone());
            }
            say!("{totals}")?;
        } else {
            say!("{removed} removed, {added} added, {changed} changed, {same} the same")?;
        }
        Ok(removed + changed == 0 && !(adds && added > 0))
    }
}
