//! Workers stay on a processor each, so that their tables and buffers stay in its caches.
//!
//! Only where they take every processor that this process may run on. Of fewer, every process on the machine would take the
//! same ones: those with the lowest numbers. Nor where a control group allows less than the mask, as it does to others, nor when
//! a device is emulated on this machine: its processes choose their own. A pin is a wish: where the kernel
//! refuses it, nothing changes.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::threads::process;

/// The processors that workers are pinned to, one for each; empty when they are not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins(Vec<usize>);

impl Pins {
    /// For `n_workers` on the processors that this process may run on.
    pub(crate) fn new(n_workers: u32) -> Self {
        let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else {
            return Self::default();
        };
        let is_allowed = |cpu: &usize| allowed.is_set(*cpu).unwrap_or(false);
        let cpus = (0..CpuSet::count()).filter(is_allowed).collect();
        Self::of(cpus, process::cores(), n_workers)
    }

    /// On these processors, of which a quota leaves the time of `n_whole`.
    fn of(cpus: Vec<usize>, n_whole: u32, n_workers: u32) -> Self {
        let n_each = [n_whole, n_workers];
        let are_all_taken = n_each.iter().all(|n| *n as usize == cpus.len());
        if are_all_taken { Self(cpus) } else { Self::default() }
    }

    /// Pins the calling thread, which is worker number `worker`.
    pub(crate) fn pin(&self, worker: usize) {
        let Some(&cpu) = self.0.get(worker) else { return };
        let mut only = CpuSet::new();
        if only.set(cpu).is_ok() {
            // Refused only where somebody has taken the processor away in between.
            let _ = sched_setaffinity(Pid::from_raw(0), &only);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_runs_on_one_processor() {
        let allowed = || {
            let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let cpus = (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap());
            cpus.collect::<Vec<_>>()
        };
        let last = allowed().pop().unwrap();
        let pins = Pins(vec![last]);
        let pinned = std::thread::spawn(move || {
            pins.pin(0);
            allowed()
        });
        assert_eq!(pinned.join().unwrap(), [last]);
    }

    #[test]
    fn workers_are_pinned_only_where_they_take_every_processor() {
        let pins = |n_whole, n_workers| Pins::of(vec![4, 5, 8, 9], n_whole, n_workers).0;
        assert_eq!(pins(4, 4), [4, 5, 8, 9]);
        // Eight such jobs on a node would share its first processors.
        assert!(pins(4, 3).is_empty());
        assert!(pins(4, 5).is_empty());
        // As `docker --cpus=2`: the mask is that of the machine.
        assert!(pins(2, 2).is_empty() && pins(2, 4).is_empty());
    }
}
