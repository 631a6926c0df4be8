//! How much memory the control group of this process allows, in both versions of the kernel's interface.
//!
//! A group is limited by each group above it too, so the least limit on the way up counts. In a container the path in
//! `/proc/self/cgroup` may be the host's, of which only the root is mounted: folders that are not there are passed by.

use std::path::Path;

/// The memory limit in bytes; none where no group sets one. `root` is `/`, or a test's picture of it.
pub fn memory_limit(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounted = root.join("sys/fs/cgroup");
    groups.lines().filter_map(|line| least(&mounted, line)).min()
}

/// The least limit on the way from one group, `hierarchy:controllers:path`, up to the root of its hierarchy.
fn least(mounted: &Path, group: &str) -> Option<u64> {
    let (controllers, path) = group.split_once(':')?.1.split_once(':')?;
    let (hierarchies, name): (&[&str], _) = match controllers {
        "" => (&["", "unified"], "memory.max"),
        _ if controllers.split(',').any(|controller| controller == "memory") => (&["memory"], "memory.limit_in_bytes"),
        _ => return None,
    };
    let path = Path::new(path.trim_start_matches('/'));
    let limits = hierarchies.iter().flat_map(|hierarchy| {
        let top = mounted.join(hierarchy);
        path.ancestors().filter_map(move |group| limit(&top.join(group).join(name)))
    });
    limits.min()
}

/// A limit that is one: version 2 says `max`, and version 1 a number no machine reaches, where there is none.
fn limit(file: &Path) -> Option<u64> {
    let bytes = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (bytes < i64::MAX as u64 >> 1).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::memory_limit;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts_in_version_2() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/pod/worker\n"),
            ("sys/fs/cgroup/pod/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/pod/worker/memory.max", "max\n"),
        ]);
        assert_eq!(memory_limit(root.path()), Some(1 << 30));
    }

    #[test]
    fn version_1_is_read_from_the_hierarchy_of_its_controller() {
        let root = machine(&[
            ("proc/self/cgroup", "9:cpu,cpuacct:/\n4:memory:/job\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "536870912\n"),
        ]);
        assert_eq!(memory_limit(root.path()), Some(512 << 20));
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_what_is_mounted() {
        let root = machine(&[
            ("proc/self/cgroup", "4:memory:/docker/0123\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
        ]);
        assert_eq!(memory_limit(root.path()), Some(256 << 20));
    }

    #[test]
    fn no_limit_is_none() {
        let root = machine(&[
            ("proc/self/cgroup", "4:memory:/\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/unified/memory.max", "max\n"),
        ]);
        assert_eq!(memory_limit(root.path()), None);
        assert_eq!(memory_limit(&root.path().join("nowhere")), None);
    }
}
