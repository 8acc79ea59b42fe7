//! A device's batch becomes one in the output's form: normalised, cast, laid out, erased; by
//! the workers, a few rows at a time. (What the host's workers make has that form at once.)

use std::sync::Arc;

use bothends_core::sample::SampleKey;
use bothends_ops::Finish;
use bothends_slots::HostSlot;

use crate::make::chores::Chores;

/// Bytes at the cut that are worth a chore: handing one over costs some microseconds, converting
/// these some tens.
const RUN_BYTES: usize = 256 << 10;

/// The most runs of rows that a batch is mixed in at once.
pub(crate) const MOST_RUNS: usize = 16;

/// Brings the samples of `from` to `to`, sample by sample with its key; `None` is the key of what
/// is no sample. Blocks until it is done; `None` where a thread panicked over it.
pub(crate) fn convert(
    finish: &Arc<Finish>,
    chores: &Chores,
    (from, cut_bytes): (HostSlot, usize),
    to: HostSlot,
    keys: &[Option<SampleKey>],
) -> Option<HostSlot> {
    let n_rows = (RUN_BYTES / cut_bytes.max(1)).max(1);
    let (from, sample_bytes) = (Arc::new(from), finish.sample_bytes());
    let runs: Vec<Vec<_>> = keys.chunks(n_rows).map(<[_]>::to_vec).collect();
    let lens = runs.iter().map(|keys| keys.len() * sample_bytes);
    let (joiner, parts) = to.into_runs(lens);
    let pieces =
        runs.into_iter().zip(parts).enumerate().map(|(nth, (keys, mut part))| {
            let (finish, from) = (Arc::clone(finish), Arc::clone(&from));
            move || {
                let first = nth * n_rows * cut_bytes;
                let samples = from[first..].chunks_exact(cut_bytes);
                let rows = part.chunks_exact_mut(sample_bytes);
                for ((src, dst), key) in samples.zip(rows).zip(keys) {
                    finish.run(key, src, dst);
                }
            }
        });
    chores.all(pieces);
    joiner.join().ok()
}
