//! How much memory there is for slots: what the kernel says that programs may still take.
//!
//! Takes none, and decides nothing: hosts and agents each have a part of it that they allow
//! themselves.

use std::fs;
use std::path::Path;

/// Memory that programs may still take, in bytes, what the page cache would give back
/// included: the machine's, or less where a control group (version 2) of this process has a limit.
/// `None` where the kernel does not say.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let available = kilobytes(&meminfo, "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|l| l.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let left = Path::new(own).ancestors().filter_map(|group| {
        let read = |name| fs::read_to_string(root.join(group).join(name));
        let read = |name| read(name).unwrap_or_default();
        let [max, current, stat] = ["memory.max", "memory.current", "memory.stat"];
        left_bytes([&read(max), &read(current), &read(stat)])
    });
    Some(left.fold(available, u64::min))
}

/// A figure of `proc_meminfo(5)`, in bytes.
fn kilobytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// What a control group leaves of its limit: `memory.max` less `memory.current`, in bytes, what
/// the page cache would give back (`memory.stat`) not counted as used.
fn left_bytes([max, current, stat]: [&str; 3]) -> Option<u64> {
    // "max" is none.
    let max: u64 = max.trim().parse().ok()?;
    let used: u64 = current.trim().parse().unwrap_or(0);
    let cached = |key| {
        let line = stat.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|bytes| bytes.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let cached = cached("active_file ").saturating_add(cached("inactive_file "));
    Some(max.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let stat = "anon 5\nfile 30\ninactive_file 20\nactive_file 10\n";
        assert_eq!(left_bytes(["1000\n", "400\n", stat]), Some(630));
        assert_eq!(left_bytes(["1000\n", "", ""]), Some(1000));
        assert_eq!(left_bytes(["max\n", "400\n", stat]), None);
        assert_eq!(left_bytes(["100", "400", ""]), Some(0));
        let meminfo = "MemFree: 1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(kilobytes(meminfo, "MemAvailable:"), Some(2 << 20));
        assert_eq!(kilobytes(meminfo, "Swap:"), None);
        assert!(available_bytes().is_none_or(|bytes| bytes > 0));
    }
}
