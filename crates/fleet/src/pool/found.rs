//! What a host says of itself, and whether a node can run there.
//!
//! Pure: no host is asked here.

use super::{Plan, Program};
use std::collections::HashMap;

/// Clocks further apart spoil certificates and signatures of requests, and mean that nobody looks after them.
const SKEW_MAX_S: f64 = 60.0;

/// What a signature may be off at most: then S3 refuses it.
pub const SKEW_REFUSED_S: f64 = 900.0;

/// Less room is none for a cache.
const FREE_MIN_BYTES: u64 = 1 << 30;

/// File systems that other machines write to as well, or that are slower than a store.
const SHARED: [&str; 15] = [
    "nfs", "nfs4", "lustre", "ceph", "cifs", "smb2", "smb3", "gpfs", "beegfs", "fhgfs", "afs", "panfs", "fuseblk",
    "9p", "virtiofs",
];

/// Why something of a machine is not fit for a node, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    pub what: String,
    pub cure: &'static str,
}

impl Unfit {
    /// In one line.
    fn line(&self) -> String {
        format!("{}: {}", self.what, self.cure)
    }
}

/// Why no cache should lie on a file system of this kind with so much free.
pub fn unfit_disk(kind: &str, free_bytes: u64) -> Option<Unfit> {
    let is_shared = SHARED.contains(&kind) || kind.starts_with("fuse.");
    let what = match () {
        () if is_shared => format!("the cache would lie on {kind}, which machines share"),
        () if free_bytes < FREE_MIN_BYTES => {
            format!("{} MB are free where the cache is to lie", free_bytes / 1_000_000)
        }
        () => return None,
    };
    let cure = if is_shared {
        "give --cache with a folder of a local disk"
    } else {
        "give --cache with a folder of a disk with more"
    };
    Some(Unfit { what, cure })
}

/// Why a clock that is so far from another spoils what both sign.
pub fn unfit_clock(skew_s: f64) -> Option<Unfit> {
    let what = || format!("its clock is {skew_s:.0} s away from here");
    (skew_s > SKEW_MAX_S).then(|| Unfit { what: what(), cure: "set the clocks, by chrony or NTP" })
}

/// A host as it was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub system: String,
    pub arch: String,
    /// Bytes that are free where the cache is to lie.
    pub free_bytes: u64,
    /// The file system there.
    pub file_system: String,
    /// How far its clock is from ours at least; the time of the question is taken off.
    pub skew_s: f64,
    /// The program is there already.
    pub has_program: bool,
    facts: HashMap<String, String>,
}

impl Found {
    /// From lines of a word and a value; a host is believed what it says of itself. The times are ours, of before and after
    /// it was asked.
    pub fn read(lines: &[Vec<u8>], before: f64, after: f64) -> Found {
        let lines = lines.iter().map(|line| String::from_utf8_lossy(line).into_owned());
        let facts: HashMap<_, _> = lines
            .filter_map(|line| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.trim().to_owned())))
            .collect();
        let fact = |name: &str| facts.get(name).cloned().unwrap_or_default();
        // Told in whole seconds.
        let now = fact("now").parse::<f64>().unwrap_or(f64::NAN);
        let skew_s = (now - after).max(before - 1.0 - now).max(0.0);
        Found {
            system: fact("system"),
            arch: fact("arch"),
            free_bytes: fact("free").parse::<u64>().unwrap_or(0).saturating_mul(1024),
            file_system: fact("type"),
            skew_s: if now.is_nan() { f64::INFINITY } else { skew_s },
            has_program: facts.contains_key("program"),
            facts,
        }
    }

    /// The program for it, or why no node can run there.
    pub fn judge<'a>(&self, plan: &'a Plan) -> Result<&'a Program, String> {
        let has = |fact: &str| self.facts.contains_key(fact);
        let program = plan.programs.iter().find(|program| program.arch == self.arch);
        let (disk, clock) = (unfit_disk(&self.file_system, self.free_bytes), unfit_clock(self.skew_s));
        let why = match program {
            _ if self.system != "Linux" => format!("it runs {}, and nodes run on Linux", self.system),
            None => format!("it is {0}, and there is no program for that: give --binary {0}=FILE", self.arch),
            _ if has("pool") => {
                "a pool has this mount point already: `stoker down` first, or --renew for a longer lease".into()
            }
            _ if has("mounted") => "something else is mounted there".into(),
            _ if has("full") => "the mount point is a folder with files in it: name another".into(),
            _ if !has("fuse") => {
                "it has no /dev/fuse that this user may open: load the module fuse, or ask who runs it".into()
            }
            _ if !has("mounts") => {
                "it has no fusermount3, by which users other than root mount: install fuse3, or give --sudo".into()
            }
            _ if !has("sha256sum") => "it has no sha256sum".into(),
            _ if disk.is_some() => disk.map_or_else(String::new, |unfit| unfit.line()),
            _ if clock.is_some() => clock.map_or_else(String::new, |unfit| unfit.line()),
            Some(program) => return Ok(program),
        };
        Err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let program = Program { arch: "x86_64".into(), path: "/p".into(), hash: "h".into(), bytes: 1 };
        Plan {
            dir: "/data".into(),
            cache: None,
            port: 1,
            is_plaintext: true,
            token: String::new(),
            programs: vec![program],
        }
    }

    fn found(change: &[&str]) -> Found {
        let usual = [
            "system Linux",
            "arch x86_64",
            "now 1000",
            "free 9000000",
            "type ext2/ext3",
            "fuse yes",
            "mounts yes",
            "sha256sum yes",
        ];
        let lines: Vec<Vec<u8>> = usual.iter().chain(change).map(|line| line.as_bytes().to_vec()).collect();
        Found::read(&lines, 1000.2, 1000.9)
    }

    #[test]
    fn a_host_on_which_no_node_can_run_is_told_from_one_where_it_can() {
        assert_eq!(found(&[]).judge(&plan()).map(|program| &*program.arch), Ok("x86_64"));
        for (change, why) in [
            ("system Darwin", "Darwin"),
            ("arch aarch64", "--binary aarch64=FILE"),
            ("pool yes", "stoker down"),
            ("mounted yes", "mounted"),
            ("full yes", "files in it"),
            ("type nfs", "share"),
            ("free 1000", "1 MB"),
            ("now 1100", "99 s away"),
            ("now 900", "99 s away"),
            ("now x", "away"),
        ] {
            let judged = found(&[change]).judge(&plan()).map(|_| ());
            assert!(judged.clone().is_err_and(|said| said.contains(why)), "{change}: {judged:?}");
        }
        assert!(Found::default().judge(&plan()).is_err());
        for fact in ["fuse", "mounts"] {
            let mut lacks = found(&[]);
            lacks.facts.remove(fact);
            assert!(lacks.judge(&plan()).is_err_and(|said| said.contains("fuse")));
        }
    }

    #[test]
    fn the_time_of_the_question_is_no_skew() {
        assert_eq!(found(&[]).skew_s, 0.0);
        assert!((found(&["now 1010"]).skew_s - 9.1).abs() < 1e-9);
    }
}
