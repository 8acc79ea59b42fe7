//! The contract of [`Consumer`] as callable checks; each takes a maker of fresh ones.
//!
//! Run by this crate over the emulated accelerators; whoever writes a consumer calls [`all`] in a
//! test. The checks ask for no speed: a step may take longer than it says, never shorter. What an
//! accelerator's timeline is, is checked in `bothends_accel`.

#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics, and names the number of the contract: that is its use"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, Label, Prong, SampleId};
use bothends_slots::{Ring, RingConfig};

use crate::collect::wakeup::bell;
use crate::handover::batch::release::{Release, Returning};
use crate::handover::batch::{Batch, BatchHeader, Row};
use crate::handover::consumer::Consumer;

/// Makes a fresh consumer for one check.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Consumer>;

/// Rows of a batch, and bytes of a sample in it.
const N_ROWS: usize = 4;
const SAMPLE_BYTES: usize = 12;

/// Every check of this module.
pub fn all(make: Make<'_>) {
    the_slot_is_back_when_take_returns(make);
    the_first_step_has_no_stall(make);
    batches_that_lie_ready_cause_no_stall(make);
    a_late_batch_is_stall(make);
    steps_tile_their_time(make);
    a_batch_without_samples_takes_no_time(make);
}

/// Contract 1: a ring of one slot is reused.
pub fn the_slot_is_back_when_take_returns(make: Make<'_>) {
    let (mut consumer, ring) = (make(), ring(1));
    for nth in 0..3 {
        take(&mut *consumer, batch(&ring, nth, Some(SampleId(0))));
        let slot = ring.take(Duration::ZERO);
        assert!(
            slot.is_some(),
            "contract 1: the batch is still in its slot after `take`"
        );
    }
}

/// Contract 2, of the first step.
pub fn the_first_step_has_no_stall(make: Make<'_>) {
    let step = take(&mut *make(), batch(&ring(1), 0, Some(SampleId(0))));
    assert_eq!(
        step.stall_ns, 0,
        "contract 2: the wait for the first batch is not a stall"
    );
}

/// Contract 2, where no batch is waited for.
pub fn batches_that_lie_ready_cause_no_stall(make: Make<'_>) {
    let (mut consumer, ring, ready) = (make(), ring(5), Instant::now());
    let at_once = |nth| {
        let mut batch = batch(&ring, nth, Some(SampleId(0)));
        batch.header.ready = ready;
        batch
    };
    let batches: Vec<_> = (0..5).map(at_once).collect();
    for batch in batches {
        let step = take(&mut *consumer, batch);
        assert_eq!(step.stall_ns, 0, "contract 2: a stall although the batch was ready");
    }
}

/// Contract 2, where one is.
pub fn a_late_batch_is_stall(make: Make<'_>) {
    let (mut consumer, ring) = (make(), ring(1));
    take(&mut *consumer, batch(&ring, 0, Some(SampleId(0))));
    let ended_by = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    let late = batch(&ring, 1, Some(SampleId(0)));
    let late_by = late.ready - ended_by;
    let stall = Duration::from_nanos(take(&mut *consumer, late).stall_ns);
    assert!(stall >= late_by, "contract 2: {late_by:?} late, and a stall of {stall:?}");
}

/// Contract 2: no more is told of than has passed.
pub fn steps_tile_their_time(make: Make<'_>) {
    let (mut consumer, ring) = (make(), ring(1));
    let (began, mut told) = (Instant::now(), Duration::ZERO);
    for nth in 0..10 {
        let step = take(&mut *consumer, batch(&ring, nth, Some(SampleId(0))));
        told += Duration::from_nanos(step.stall_ns) + Duration::from_nanos(step.busy_ns);
    }
    let passed = began.elapsed();
    assert!(told <= passed, "contract 2: {told:?} told of {passed:?} that passed");
}

/// Contract 2: masked rows are nothing to compute on.
pub fn a_batch_without_samples_takes_no_time(make: Make<'_>) {
    let step = take(&mut *make(), batch(&ring(1), 0, None));
    assert_eq!(step.busy_ns, 0, "contract 2: busy time for no samples");
}

fn take(consumer: &mut dyn Consumer, batch: Batch) -> crate::Step {
    consumer.take(batch).expect("contract 1: a sound batch is taken")
}

fn ring(n_slots: u32) -> Ring {
    let slot_bytes = N_ROWS * SAMPLE_BYTES;
    Ring::new(RingConfig { n_slots, slot_bytes }).expect("a few bytes can be had")
}

/// A batch that is ready now, each of its rows with this sample.
fn batch(ring: &Ring, nth: u32, sample: Option<SampleId>) -> Batch {
    let slot = ring.take(Duration::ZERO).expect("contract 1: the slot is free again");
    let label = Label(sample.map_or(-1, |_| 0));
    let header = BatchHeader {
        index: BatchIdx(nth),
        prong: Prong::Front,
        ready: Instant::now(),
        rows: vec![Row { sample, label, mixed: None }; N_ROWS],
        sample_bytes: SAMPLE_BYTES,
        view_bytes: Arc::from([SAMPLE_BYTES]),
        further: None,
    };
    Batch {
        header,
        left: None,
        sums: None,
        slot: slot.host().expect("the ring is of host memory"),
        release: Release::new(&Returning::new(bell().0)),
    }
}

#[cfg(test)]
mod tests {
    use bothends_accel::{AccelConfig, Step};

    use super::*;
    use crate::error::RuntimeError;
    use crate::handover::consumer::Timed;

    #[test]
    fn the_emulated_accelerators_keep_the_contract() {
        for spec in ["host", "sim:4000", "sim:h100"] {
            let config: AccelConfig = spec.parse().unwrap();
            all(&|| Box::new(Timed::new(&config)));
        }
    }

    /// Takes a batch, and has not let go of it when it says so.
    #[derive(Debug, Default)]
    struct Keeps(Option<Batch>);

    impl Consumer for Keeps {
        fn take(&mut self, batch: Batch) -> Result<Step, RuntimeError> {
            self.0 = Some(batch);
            Ok(Step::default())
        }
    }

    #[test]
    #[should_panic(expected = "contract 1")]
    fn who_keeps_a_batch_is_caught() {
        all(&|| Box::new(Keeps::default()));
    }

    /// Computes for longer than there was time.
    #[derive(Debug)]
    struct Exaggerates;

    impl Consumer for Exaggerates {
        fn take(&mut self, batch: Batch) -> Result<Step, RuntimeError> {
            Ok(Step { stall_ns: 0, busy_ns: u64::from(batch.n_valid()) << 40 })
        }
    }

    #[test]
    #[should_panic(expected = "told of")]
    fn who_exaggerates_is_caught() {
        steps_tile_their_time(&|| Box::new(Exaggerates));
    }
}
