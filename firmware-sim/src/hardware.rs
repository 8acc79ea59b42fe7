//! What the emulation needs from the machine it runs on: the CPU time of a thread, and pinning to a CPU.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// CPU time of the calling thread in nanoseconds; 0 where the system does not count it.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) else { return 0 };
    let (seconds, ns) = (u64::try_from(time.tv_sec()), u64::try_from(time.tv_nsec()));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(ns.unwrap_or(0))
}

/// Keeps the calling thread, and threads that it starts from now on, on one CPU.
///
/// # Errors
/// There is no such CPU, or it is not ours.
pub fn pin_to(cpu: usize) -> std::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &only)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_this_threads_work() {
        let begun = thread_cpu_ns();
        let mut sum = 0_u64;
        while thread_cpu_ns() < begun + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(pin_to(CpuSet::count() - 1).is_err());
        assert!(pin_to(usize::MAX).is_err());
    }
}
