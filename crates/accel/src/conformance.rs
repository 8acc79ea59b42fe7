//! The contract of [`Accelerator`] as callable checks; each takes a function that makes fresh ones.
//!
//! Run by this crate over `host` and `sim`; a new backend calls [`all`] in its tests.
//! The checks do not depend on speed: a step may take longer than stated, never shorter.

#![allow(
    clippy::missing_panics_doc,
    reason = "a failed check panics, and names the number in the contract"
)]

use std::time::{Duration, Instant};

use crate::{Accelerator, Step, Usage};

/// Makes a fresh accelerator for one check.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Accelerator>;

/// Every check of this module.
pub fn all(make: Make<'_>) {
    has_a_name_and_a_sound_rate(make);
    first_step_has_no_stall(make);
    step_blocks_until_the_batch_is_consumed(make);
    waiting_batches_follow_without_stall(make);
    a_late_batch_is_stall(make);
    stall_and_busy_tile_the_time(make);
    no_samples_take_no_time(make);
    a_moment_in_the_future_is_now(make);
}

/// It can be named in results, and its rate, if any, is a number above 0.
pub fn has_a_name_and_a_sound_rate(make: Make<'_>) {
    let accelerator = make();
    assert!(!accelerator.name().is_empty(), "an accelerator without a name");
    if let Some(rate) = accelerator.samples_per_s() {
        assert!(rate.is_finite() && rate > 0.0, "a rate of {rate} samples per second");
    }
}

/// Contract 4.
pub fn first_step_has_no_stall(make: Make<'_>) {
    let mut accelerator = make();
    let step = accelerator.step(4, Instant::now());
    assert_eq!(
        step.stall_ns, 0,
        "contract 4: the wait for the first batch is not a stall"
    );
}

/// Contract 1.
pub fn step_blocks_until_the_batch_is_consumed(make: Make<'_>) {
    let mut accelerator = make();
    let ready = Instant::now();
    let step = accelerator.step(4, ready);
    assert!(
        ready.elapsed() >= Duration::from_nanos(step.busy_ns),
        "contract 1: the step returned before the batch was consumed"
    );
}

/// Contract 2: batches that are ready one after the other cause no stall.
pub fn waiting_batches_follow_without_stall(make: Make<'_>) {
    let mut accelerator = make();
    let ready = Instant::now();
    let steps: Vec<Step> = (0..5).map(|_| accelerator.step(4, ready)).collect();
    assert!(
        steps.iter().all(|step| step.stall_ns == 0),
        "contract 2: a stall though every batch was waiting: {steps:?}"
    );
}

/// Contract 2: the time from a step's end to the next batch's arrival is stall time.
pub fn a_late_batch_is_stall(make: Make<'_>) {
    let mut accelerator = make();
    accelerator.step(4, Instant::now());
    let ended_by = Instant::now();
    let pause = Duration::from_millis(2);
    std::thread::sleep(pause);
    let ready = Instant::now();
    let step = accelerator.step(4, ready);
    let late_ns = u64::try_from((ready - ended_by).as_nanos()).unwrap_or(u64::MAX);
    assert!(
        step.stall_ns >= late_ns,
        "contract 2: a batch {late_ns} ns late, a stall of {} ns",
        step.stall_ns
    );
}

/// Contract 3.
pub fn stall_and_busy_tile_the_time(make: Make<'_>) {
    let mut accelerator = make();
    let mut usage = Usage::default();
    let first = Instant::now();
    for _ in 0..10 {
        usage.add(accelerator.step(3, Instant::now()));
    }
    let passed_ns = first.elapsed().as_nanos();
    let told_ns = u128::from(usage.busy_ns) + u128::from(usage.stall_ns);
    assert!(
        told_ns <= passed_ns,
        "contract 3: {told_ns} ns told of {passed_ns} ns passed"
    );
}

/// Contract 5.
pub fn no_samples_take_no_time(make: Make<'_>) {
    let step = make().step(0, Instant::now());
    assert_eq!(step.busy_ns, 0, "contract 5: busy time for no samples");
}

/// A batch cannot have arrived later than it was handed over.
pub fn a_moment_in_the_future_is_now(make: Make<'_>) {
    let mut accelerator = make();
    accelerator.step(1, Instant::now());
    let hour = Duration::from_secs(3600);
    let step = accelerator.step(1, Instant::now() + hour);
    let stall = Duration::from_nanos(step.stall_ns);
    assert!(stall < hour, "a stall of {stall:?} for a moment in the future");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccelConfig;

    #[test]
    fn host_and_sim_keep_the_contract() {
        for spec in ["host", "sim:4000", "sim:h100"] {
            let config: AccelConfig = spec.parse().unwrap();
            all(&|| config.build());
        }
    }

    /// Returns at once but says that it was busy.
    #[derive(Debug)]
    struct Liar;

    impl Accelerator for Liar {
        fn name(&self) -> &'static str {
            "liar"
        }

        fn step(&mut self, _n_samples: u32, _ready: Instant) -> Step {
            Step { stall_ns: 0, busy_ns: 1_000_000_000 }
        }

        fn samples_per_s(&self) -> Option<f64> {
            None
        }
    }

    #[test]
    #[should_panic(expected = "contract 1")]
    fn a_liar_is_caught() {
        all(&|| Box::new(Liar));
    }
}
