//! An emulated accelerator: consumes a batch of n samples in n ÷ rate seconds by sleeping.
//!
//! Sleeping leaves the CPUs to the data path, as in MLPerf Storage. Real training uses some
//! host CPU, so the utilisation seen here is an upper bound. The deadlines are points on one
//! timeline (`timeline.rs`): a late wake-up never lengthens the next step.

use std::time::{Duration, Instant};

use crate::Accelerator;
use crate::model::SimModel;
use crate::timeline::{Step, Timeline, ns_since};

/// Sleeps while an accelerator would compute.
#[derive(Debug)]
pub struct Sim {
    model: SimModel,
    origin: Instant,
    timeline: Timeline,
}

impl Sim {
    /// An idle accelerator with the constants of `model`.
    #[must_use]
    pub fn new(model: SimModel) -> Self {
        Self { model, origin: Instant::now(), timeline: Timeline::default() }
    }
}

impl Accelerator for Sim {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn step(&mut self, n_samples: u32, ready: Instant) -> Step {
        let ready_ns = ns_since(self.origin, ready.min(Instant::now()));
        let (step, end_ns) = self.timeline.place(ready_ns, self.model.busy_ns(n_samples));
        let end = self.origin + Duration::from_nanos(end_ns);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        step
    }

    fn samples_per_s(&self) -> Option<f64> {
        Some(self.model.samples_per_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_returns_after_its_end_and_reports_the_model() {
        let mut sim = Sim::new(SimModel::with_rate(10_000.0).unwrap());
        let start = Instant::now();
        let step = sim.step(20, start);
        assert_eq!(step, Step { stall_ns: 0, busy_ns: 2_000_000 });
        assert!(start.elapsed() >= Duration::from_nanos(step.busy_ns));
    }

    #[test]
    fn late_wake_ups_do_not_add_up() {
        let mut sim = Sim::new(SimModel::with_rate(100_000.0).unwrap());
        let start = Instant::now();
        let mut end_ns = 0;
        for _ in 0..20 {
            let step = sim.step(100, start);
            assert_eq!(step, Step { stall_ns: 0, busy_ns: 1_000_000 });
            end_ns += step.busy_ns;
        }
        assert!(start.elapsed() >= Duration::from_nanos(end_ns));
    }
}
