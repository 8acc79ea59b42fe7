//! The rows of a batch mixed with each other (`mixup`, `cutmix`), by the workers: each run of
//! rows with copies of the rows before it, so that no run waits for another.

use std::sync::Arc;

use bothends_core::recipe::{Mixture, Recipe, Size};
use bothends_ops::Finish;
use bothends_slots::HostSlot;

use crate::handover::convert::MOST_RUNS;
use crate::make::chores::Chores;

/// What is needed to decide how the samples of a batch are mixed.
#[derive(Debug)]
pub(crate) struct Mixing {
    pub(crate) recipe: Recipe,
    /// Rows and columns of a sample's only view.
    pub(crate) size: Size,
    /// What is done to samples after the cut.
    pub(crate) delivered: Arc<Finish>,
    pub(crate) by: MixedBy,
}

/// Who mixes, once that is decided, and finishes what was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MixedBy {
    /// The workers.
    Workers,
    /// A GPU, to which samples go as they are at the cut.
    Gpu,
}

/// Mixes the first `n_rows` samples of a slot. Blocks until it is done; `None` where a thread
/// panicked over it.
pub(crate) fn mix(
    finish: &Arc<Finish>,
    chores: &Chores,
    slot: HostSlot,
    n_rows: usize,
    mixture: Mixture,
) -> Option<HostSlot> {
    if n_rows < 2 {
        return Some(slot);
    }
    let (row_bytes, n_before) = (finish.sample_bytes(), finish.n_before(n_rows));
    let n_run = n_rows.div_ceil(MOST_RUNS).max(n_before);
    let runs = (0..n_rows).step_by(n_run).map(|first| n_run.min(n_rows - first));
    let runs: Vec<usize> = runs.collect();
    let befores: Vec<Vec<u8>> = (0..n_rows)
        .step_by(n_run)
        .map(|first| {
            // The row before the first one is the last.
            let from = (first + n_rows - n_before) % n_rows;
            slot[from * row_bytes..][..n_before * row_bytes].to_vec()
        })
        .collect();
    let (joiner, parts) = slot.into_runs(runs.into_iter().map(|n| n * row_bytes));
    let pieces = parts.into_iter().zip(befores).map(|(mut run, before)| {
        let finish = Arc::clone(finish);
        move || finish.mix_run(mixture, &mut run, &before)
    });
    chores.all(pieces);
    joiner.join().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bothends_core::tensor::{Dtype, Layout, Output, SampleShape, Views};
    use bothends_slots::{Ring, RingConfig};

    use super::*;

    /// Of a recipe that repeats each sample `n` times, and so mixes rows `n` apart.
    fn finish(n: u32) -> Arc<Finish> {
        let json = format!(
            r#"{{"version": 1, "name": "x", "repeated_augment": {n}, "ops": [
                {{"op": "decode"}}, {{"op": "center_crop", "size": [3, 2]}},
                {{"op": "mixup", "alpha": 0.2}}]}}"#
        );
        let recipe = Recipe::from_json(&json).unwrap();
        let views = Views::from(SampleShape { height: 3, width: 2, channels: 3 });
        let output = Output { dtype: Dtype::F32, layout: Layout::Nhwc };
        Arc::new(Finish::new(&recipe, &views, output).unwrap())
    }

    #[test]
    fn runs_are_mixed_as_the_whole() {
        for (distance, n_rows) in (1..6).flat_map(|d| (1..70).map(move |n| (d, n))) {
            let finish = finish(distance);
            let slot_bytes = n_rows * finish.sample_bytes();
            let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).unwrap();
            let mut slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
            for (nth, element) in slot.chunks_exact_mut(4).enumerate() {
                let value = f32::from(u16::try_from(nth % 1009).unwrap());
                element.copy_from_slice(&value.to_le_bytes());
            }
            let mixture = Mixture::Mixup { share: 0.3 };
            let mut whole = slot.to_vec();
            finish.mix(mixture, &mut whole, &mut Vec::new());
            let mixed = mix(&finish, &Chores::default(), slot, n_rows, mixture).unwrap();
            assert!(mixed[..] == whole[..], "{n_rows} rows, {distance} apart");
        }
    }
}
