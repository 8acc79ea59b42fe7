//! How much memory is available for slots, according to the kernel.
//!
//! It allocates nothing and decides nothing; hosts and agents each use a fraction of it.

use std::fs;
use std::path::Path;

/// Memory that programs may still take, in bytes, what the page cache would give back
/// included: the machine's, or less where a control group of this process has a limit, of
/// version 2 or 1. `None` where the kernel does not say.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    available_below(Path::new("/"))
}

/// The same with the kernel's files below `root`.
fn available_below(root: &Path) -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let meminfo = read(Path::new("proc/meminfo"));
    let available = kilobytes(&meminfo, "MemAvailable:")?;
    let groups = read(Path::new("proc/self/cgroup"));
    let left = [VERSION_2, VERSION_1].into_iter().flat_map(|version| {
        let Version { mount, files, cached, .. } = version;
        let own = groups.lines().find_map(|line| version.group(line));
        // A container may name a group that it does not see; the mount is then its own. Nor does a
        // limit of an ancestor show in a group's own files.
        let ancestors = own.into_iter().flat_map(|own| Path::new(own).ancestors());
        ancestors.filter_map(move |group| {
            let of = |name| read(&Path::new(mount).join(group).join(name));
            let [max, used, stat] = files;
            // The kernel adds up `stat` of all groups below: only where there is a limit.
            let max = limit_bytes(&of(max))?;
            Some(left_bytes(max, [&of(used), &of(stat)], cached))
        })
    });
    Some(left.fold(available, u64::min))
}

/// Where control groups of a version have what about memory.
#[derive(Debug, Clone, Copy)]
struct Version {
    mount: &'static str,
    /// The name of its hierarchy in `/proc/self/cgroup`, one of a list; "" is version 2's.
    controller: &'static str,
    /// Limit, use, and what the use is made of.
    files: [&'static str; 3],
    /// The page cache in the last of these, children's included.
    cached: [&'static str; 2],
}

const VERSION_2: Version = Version {
    mount: "sys/fs/cgroup",
    controller: "",
    files: ["memory.max", "memory.current", "memory.stat"],
    cached: ["active_file ", "inactive_file "],
};

const VERSION_1: Version = Version {
    mount: "sys/fs/cgroup/memory",
    controller: "memory",
    files: ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"],
    cached: ["total_active_file ", "total_inactive_file "],
};

impl Version {
    /// The group of a line of `cgroups(7)`, `number:controllers:/group`, relative to the mount.
    fn group(self, line: &str) -> Option<&str> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(":/")?;
        controllers.split(',').any(|one| one == self.controller).then_some(group)
    }
}

/// A figure of `proc_meminfo(5)`, in bytes.
fn kilobytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// A control group's limit, in bytes. "max" is none; version 1 has a number beyond all memory for it.
fn limit_bytes(max: &str) -> Option<u64> {
    max.trim().parse().ok()
}

/// What a control group leaves of its limit, in bytes, what the page cache would give back (those
/// keys of `stat`) not counted as used.
fn left_bytes(max: u64, [current, stat]: [&str; 2], cached: [&str; 2]) -> u64 {
    let used: u64 = current.trim().parse().unwrap_or(0);
    let figure = |key: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|bytes| bytes.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let cached = cached.map(figure).into_iter().fold(0, u64::saturating_add);
    max.saturating_sub(used.saturating_sub(cached))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let stat = "anon 5\nfile 30\ninactive_file 20\nactive_file 10\n";
        let left_bytes = |[max, used, stat]: [&str; 3]| {
            Some(left_bytes(limit_bytes(max)?, [used, stat], VERSION_2.cached))
        };
        assert_eq!(left_bytes(["1000\n", "400\n", stat]), Some(630));
        assert_eq!(left_bytes(["1000\n", "", ""]), Some(1000));
        assert_eq!(left_bytes(["max\n", "400\n", stat]), None);
        assert_eq!(left_bytes(["100", "400", ""]), Some(0));
        let meminfo = "MemFree: 1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(kilobytes(meminfo, "MemAvailable:"), Some(2 << 20));
        assert_eq!(kilobytes(meminfo, "Swap:"), None);
        assert!(available_bytes().is_none_or(|bytes| bytes > 0));
    }

    /// What is available where the kernel has these files.
    fn available(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        let meminfo = ("proc/meminfo", "MemAvailable:    1000 kB\n");
        for (path, text) in files.iter().chain([&meminfo]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available_below(root.path())
    }

    #[test]
    fn the_tightest_group_of_either_version_counts() {
        assert_eq!(available(&[]), Some(1_024_000));
        let v2 = [
            ("proc/self/cgroup", "0::/user/job\n"),
            ("sys/fs/cgroup/user/job/memory.max", "max\n"),
            ("sys/fs/cgroup/user/memory.max", "500000\n"),
            ("sys/fs/cgroup/user/memory.current", "100000\n"),
            ("sys/fs/cgroup/user/memory.stat", "inactive_file 30000\n"),
        ];
        assert_eq!(available(&v2), Some(430_000));
        // Docker on a machine with version 1: the group is the host's, the mount its own.
        let v1 = [
            (
                "proc/self/cgroup",
                "12:cpu,cpuacct:/docker/ab\n5:hugetlb,memory:/docker/ab\n0::/docker/ab\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "200000\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "active_file 1\ntotal_active_file 40000\ntotal_inactive_file 10000\n",
            ),
        ];
        assert_eq!(available(&v1), Some(150_000));
        let unlimited = [
            ("proc/self/cgroup", "5:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(available(&unlimited), Some(1_024_000));
        // Another controller's hierarchy says nothing of memory.
        let other = [("proc/self/cgroup", "5:memory_other:/a\n"), v1[1]];
        assert_eq!(available(&other), Some(1_024_000));
    }
}
