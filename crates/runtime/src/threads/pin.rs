//! Workers stay on a processor each, so that their tables and buffers stay in its caches.
//!
//! Only where there is a processor for every worker, and only when no device is emulated on
//! this machine: then its processes choose their own. A pin is a wish: where the kernel
//! refuses it, nothing changes.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

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
        let cpus: Vec<usize> = (0..CpuSet::count()).filter(is_allowed).collect();
        if cpus.len() < n_workers as usize { Self::default() } else { Self(cpus) }
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
        let pins = Pins::new(1);
        let pinned = std::thread::spawn(move || {
            pins.pin(0);
            let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
            (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap()).count()
        });
        assert_eq!(pinned.join().unwrap(), 1);
    }

    #[test]
    fn more_workers_than_processors_are_not_pinned() {
        assert!(Pins::new(100_000).0.is_empty());
    }
}
