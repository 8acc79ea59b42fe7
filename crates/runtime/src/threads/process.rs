//! What this process has used, as the kernel says it in `/proc/self`.
//!
//! Where the kernel does not say, the answer is `None`: never a guess and never a zero.

use std::fs;

use nix::time::{ClockId, clock_gettime};

/// Seconds of processor time of this process, user and system, ended threads included.
#[must_use]
pub fn cpu_seconds() -> Option<f64> {
    // proc_pid_stat(5): after the name in parentheses, fields 14 and 15 (utime, stime) in
    // clock ticks; a tick is 10 ms on every Linux that this runs on.
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / 100.0)
}

/// Nanoseconds of processor time of the calling thread. One system call.
pub(crate) fn thread_cpu_ns() -> Option<u64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    u64::try_from(std::time::Duration::from(time).as_nanos()).ok()
}

/// Seconds of processor time of everything on this machine, since it started.
#[must_use]
pub fn machine_cpu_seconds() -> Option<f64> {
    machine_seconds(&fs::read_to_string("/proc/stat").ok()?)
}

/// proc_stat(5): the sum over all processors, in clock ticks: user, nice, system, idle, iowait,
/// irq, softirq, steal; guests are within user.
fn machine_seconds(stat: &str) -> Option<f64> {
    let fields = machine_ticks(stat)?;
    Some([0, 1, 2, 5, 6].into_iter().map(|i| fields[i]).sum::<f64>() / 100.0)
}

/// Seconds of processor time that the hypervisor gave to other machines, since this one started.
pub(crate) fn stolen_cpu_seconds() -> Option<f64> {
    let fields = machine_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    fields.get(7).map(|ticks| ticks / 100.0)
}

fn machine_ticks(stat: &str) -> Option<Vec<f64>> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Option<Vec<f64>> =
        line.split_whitespace().map(|field| field.parse().ok()).collect();
    fields.filter(|fields| fields.len() >= 7)
}

/// What was used between two looks; `None` where the kernel does not say.
pub(crate) fn since(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    before.zip(after).map(|(before, after)| after - before)
}

/// The processor's own name.
pub(crate) fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let name = name.and_then(|line| line.split_once(':'));
    name.map_or("unknown processor", |(_, name)| name.trim()).to_owned()
}

/// Memory of this machine, in bytes.
pub(crate) fn machine_memory_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// Processors that this process may keep busy.
#[must_use]
pub fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// Starts a new measurement of [`peak_rss_bytes`]; without effect where it is not allowed.
pub fn reset_peak_rss() {
    // proc_pid_clear_refs(5): 5 resets the peak resident set size.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most memory this process had resident at once, in bytes.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Memory of this process now, shared pages divided among those who share them, in bytes.
#[must_use]
pub fn pss_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/smaps_rollup").ok()?, "Pss:")
}

/// Addresses that this process has in use, in bytes: more than it has memory.
pub(crate) fn address_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmSize:")
}

/// What a line of one of the kernel's tables says in kB, in bytes.
pub(crate) fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kb| kb * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_a_process_has_used() {
        let before = cpu_seconds().expect("/proc/self/stat");
        let memory = vec![1_u8; 64 << 20];
        reset_peak_rss();
        assert!(peak_rss_bytes().expect("VmHWM") > 64 << 20);
        assert!(pss_bytes().expect("Pss") > 64 << 20);
        assert!(memory.iter().map(|b| u64::from(*b)).sum::<u64>() == 64 << 20);
        assert!(cpu_seconds().expect("/proc/self/stat") >= before);
    }

    #[test]
    fn a_machine_is_busy_when_it_is_neither_idle_nor_waiting() {
        let stat = "cpu  100 20 30 9999 8888 4 6 7777 50 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(machine_seconds(stat), Some(1.6));
        assert_eq!(machine_seconds("cpu  1 2 3\n"), None);
        assert_eq!(machine_seconds(""), None);
        assert!(machine_cpu_seconds().expect("/proc/stat") > 0.0);
    }
}
