//! What the kernel leaves to this process of the machine: processors by mask and by quota (of
//! control groups of version 1 those that Rust's own count knows), and memory, which `slots` asks
//! for.
//!
//! Looks, and decides nothing: `config/share.rs` does.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::config::share::{Processors, Ranks, Share, n_listed, quota_milli};
use crate::threads::process;
use bothends_slots::available_bytes;

impl Share {
    /// Of the machine that this is, for one of `ranks`.
    #[must_use]
    pub fn here(ranks: Ranks) -> Self {
        Self { ranks, processors: processors() }
    }

    /// This process's part of the memory that programs may still take now, in bytes: of the
    /// machine's, or of what a control group leaves. `None` where the kernel does not say.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<u64> {
        available_bytes().map(|bytes| self.ranks.part_of(bytes))
    }
}

fn processors() -> Processors {
    let counted = process::cores();
    let own = mask(Pid::from_raw(0));
    let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
    // Of another user's, or of one that has ended, nothing is known.
    let parents = if parent > 0 { mask(Pid::from_raw(parent)) } else { None };
    let allowed = own.unwrap_or(counted);
    let online = fs::read_to_string("/sys/devices/system/cpu/online");
    let listed = group_files("cpuset.cpus.effective").next().or(online.ok());
    let machine = listed.and_then(|listed| n_listed(&listed)).unwrap_or(allowed);
    let quota = group_files("cpu.max").filter_map(|text| quota_milli(&text)).min();
    // Where only a quota can have made the count less.
    let counted_milli = (counted < allowed).then(|| u64::from(counted) * 1000);
    Processors {
        allowed,
        machine: machine.max(allowed),
        quota_milli: quota.or(counted_milli),
        is_bound: parents.is_some_and(|parents| parents > allowed),
    }
}

/// How many processors a process may run on.
fn mask(process: Pid) -> Option<u32> {
    let mask = sched_getaffinity(process).ok()?;
    let n = (0..CpuSet::count()).filter(|&cpu| mask.is_set(cpu).unwrap_or(false)).count();
    u32::try_from(n).ok().filter(|n| *n > 0)
}

/// The control groups that this process is in, the innermost first.
fn groups() -> Vec<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|l| l.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    Path::new(group).ancestors().map(|group| root.join(group)).collect()
}

/// What these groups have in the file of this name, the innermost first.
fn group_files(name: &'static str) -> impl Iterator<Item = String> {
    groups()
        .into_iter()
        .filter_map(move |group| fs::read_to_string(group.join(name)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something_for_everybody() {
        let alone = Share::here(Ranks::ALONE);
        let Processors { allowed, machine, .. } = alone.processors;
        assert!(allowed >= 1 && machine >= allowed);
        assert_eq!(alone.workers(), process::cores(), "as Rust counts them");
        let two = Ranks::told_by(|name| (name == "LOCAL_WORLD_SIZE").then(|| "2".into()));
        let whole = available_bytes().expect("/proc/meminfo");
        let part = Share::here(two).memory_bytes().expect("/proc/meminfo");
        assert!(part > 0 && part < whole);
    }
}
