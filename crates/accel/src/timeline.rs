//! When an accelerator computes and when it waits, as arithmetic on given moments.
//!
//! There is no clock and no sleep here: `sim` acts on what this decides, and tests run it in
//! virtual time. This is the only definition of utilisation.

use std::time::Instant;

/// One step on the accelerator's timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// Nanoseconds that the accelerator waited for this batch after the previous step; 0 for the
    /// first batch.
    pub stall_ns: u64,
    /// Nanoseconds that it computed on this batch.
    pub busy_ns: u64,
}

/// Sums of steps: how well the accelerator was fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Steps counted.
    pub n_steps: u64,
    /// Nanoseconds of waiting, all steps together.
    pub stall_ns: u64,
    /// Nanoseconds of computing, all steps together.
    pub busy_ns: u64,
}

impl Usage {
    /// Counts one step.
    pub fn add(&mut self, step: Step) {
        self.n_steps += 1;
        self.stall_ns = self.stall_ns.saturating_add(step.stall_ns);
        self.busy_ns = self.busy_ns.saturating_add(step.busy_ns);
    }

    /// Accelerator utilisation in 0..=1: computing ÷ (computing + waiting), from the first
    /// batch's start to the last step's end. The wait for the first batch does not count, as in
    /// MLPerf Storage. `None` if no time was spent: without a step, or with the `host` accelerator
    /// and batches that were always ready.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio; 2^53 ns are 104 days")]
    pub fn utilisation(&self) -> Option<f64> {
        let total_ns = self.busy_ns.saturating_add(self.stall_ns);
        (total_ns > 0).then(|| self.busy_ns as f64 / total_ns as f64)
    }
}

/// The accelerator's own time: where its last step ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeline {
    last_end_ns: Option<u64>,
}

impl Timeline {
    /// Places a step of `busy_ns` whose batch was ready at `ready_ns`; returns the step and the
    /// moment when it ends. Moments are nanoseconds since any fixed origin.
    pub(crate) fn place(&mut self, ready_ns: u64, busy_ns: u64) -> (Step, u64) {
        let idle_since_ns = self.last_end_ns.unwrap_or(ready_ns);
        let stall_ns = ready_ns.saturating_sub(idle_since_ns);
        let end_ns = idle_since_ns.saturating_add(stall_ns).saturating_add(busy_ns);
        self.last_end_ns = Some(end_ns);
        (Step { stall_ns, busy_ns }, end_ns)
    }
}

/// Nanoseconds from `origin` to `moment`; 0 if it is earlier, and at most 2^64 − 1.
pub(crate) fn ns_since(origin: Instant, moment: Instant) -> u64 {
    u64::try_from(moment.saturating_duration_since(origin).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_batch_that_waits_starts_when_the_step_before_ends() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.place(100, 50), (Step { stall_ns: 0, busy_ns: 50 }, 150));
        assert_eq!(timeline.place(120, 50), (Step { stall_ns: 0, busy_ns: 50 }, 200));
        assert_eq!(timeline.place(230, 50), (Step { stall_ns: 30, busy_ns: 50 }, 280));
    }

    #[test]
    fn utilisation_is_busy_over_busy_and_stall() {
        let mut usage = Usage::default();
        assert_eq!(usage.utilisation(), None);
        usage.add(Step { stall_ns: 0, busy_ns: 300 });
        usage.add(Step { stall_ns: 100, busy_ns: 0 });
        assert_eq!(usage.utilisation(), Some(0.75));
        assert_eq!(usage.n_steps, 2);
    }

    proptest! {
        #[test]
        fn stall_and_busy_tile_the_timeline(
            steps in prop::collection::vec((0u64..1 << 40, 0u64..1 << 30), 1..50),
        ) {
            let (mut timeline, mut usage) = (Timeline::default(), Usage::default());
            let mut end_ns = 0;
            for &(ready_ns, busy_ns) in &steps {
                let (step, end) = timeline.place(ready_ns, busy_ns);
                prop_assert!(end >= ready_ns + busy_ns, "started before it was ready");
                prop_assert!(end >= end_ns + busy_ns, "two steps overlap");
                end_ns = end;
                usage.add(step);
            }
            prop_assert_eq!(usage.stall_ns + usage.busy_ns, end_ns - steps[0].0);
        }
    }
}
