//! Whether what a mount asks of its node is what the node has.

use super::Host;
use block::{Error, Result};
use client::messages::MountRequest;

impl Host {
    /// Later mounts share the node; what they ask of it must be what it has.
    pub(super) fn agree(&self, request: &MountRequest) -> Result<()> {
        let settings = self.node.settings();
        let patience_ms = settings.patience.as_millis() as u64;
        let has = [
            ("--cache-size", request.cache_bytes, settings.limits.bytes, &SIZES[..]),
            ("--memory", request.memory_bytes, settings.memory_bytes, &SIZES),
            ("--patience", request.patience_ms, patience_ms, &TIMES),
        ];
        let differs = |flag: &str, has: String| {
            let what = format!("the node of this cache folder runs {has}");
            let hint = format!("leave {flag} out, or choose another --cache");
            Err(Error::invalid(what, settings.cache.display()).hint(hint))
        };
        for (flag, asked, has, units) in has {
            if asked.is_some_and(|asked| asked != has) {
                return differs(flag, format!("with {flag} {}", typed(has, units)));
            }
        }
        if request.group_cache && !self.node.is_of_group() {
            return differs("--group-cache", "without --group-cache".into());
        }
        let cluster = self.node.cluster().map(|cluster| &cluster.members);
        if request.members.is_some() && request.members.as_ref() != cluster {
            let has = cluster.map_or_else(|| "without --members".into(), |members| format!("with --members {members}"));
            return differs("--members", has);
        }
        let log = self.journal.log();
        for (flag, asked, has) in [("--log", &request.log, log.path), ("--log-format", &request.log_format, log.format)]
        {
            if asked.as_ref().is_some_and(|asked| *asked != has) {
                return differs(flag, format!("with {flag} {has}"));
            }
        }
        Ok(())
    }
}

/// Units as people type them, the largest first.
const SIZES: [(u64, &str); 8] = [
    (1 << 40, "TiB"),
    (1_000_000_000_000, "TB"),
    (1 << 30, "GiB"),
    (1_000_000_000, "GB"),
    (1 << 20, "MiB"),
    (1_000_000, "MB"),
    (1 << 10, "KiB"),
    (1, "B"),
];
const TIMES: [(u64, &str); 3] = [(60_000, "m"), (1_000, "s"), (1, "ms")];

/// A number exactly, in the largest unit that it is a multiple of.
fn typed(number: u64, units: &[(u64, &str)]) -> String {
    let fits = |(unit, _): &&(u64, &str)| number > 0 && number.is_multiple_of(*unit);
    units.iter().find(fits).map_or_else(|| number.to_string(), |(unit, name)| format!("{}{name}", number / unit))
}
