//! Delivered samples with what was done to them, for people to look at.
//!
//! Samples come through a whole run, so what is seen is what is trained on; bytes as they are
//! before an accelerator normalises them.

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::plan::Shuffle;
use bothends_core::recipe::step::Step;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape};

use crate::config::run::RunConfig;
use crate::error::RuntimeError;
use crate::handover::batch::Row;
use crate::runtime::host::Runtime;

/// One delivered sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked {
    /// Which sample of the data set it is, whichever repetition of it. `None` for padding.
    pub sample: Option<SampleId>,
    /// Its file; of one that holds several, such as a shard, also which sample.
    pub name: String,
    /// Its views: shape and bytes.
    pub views: Vec<(SampleShape, Vec<u8>)>,
    /// What was done before the cut; views one after another.
    pub steps: Vec<String>,
    /// The sample it was mixed with, and its own share, where it was.
    pub mixed: Option<(String, f64)>,
}

/// The samples of the first batch of each of `n_epochs` epochs, in the data set's order. The
/// outer list is of epochs. Blocks until they are made.
///
/// # Errors
/// As [`Runtime::open`] and a run's.
pub fn look(config: RunConfig, n_epochs: u32) -> Result<Vec<Vec<Looked>>, RuntimeError> {
    let mut runtime = Runtime::open(RunConfig {
        shuffle: Shuffle::None,
        output: Output { dtype: Dtype::U8, layout: Layout::Nhwc },
        ..config
    })?;
    (0..n_epochs).map(|epoch| runtime.look(EpochIdx(epoch))).collect()
}

impl Runtime {
    fn look(&mut self, idx: EpochIdx) -> Result<Vec<Looked>, RuntimeError> {
        let options = self.options(idx);
        let mut epoch = self.start_epoch(&options)?;
        let batch = epoch.next_batch();
        let mut looked = Vec::new();
        if let Ok(Some(batch)) = &batch {
            let shapes = self.source.pipeline.views().shapes();
            let distance = self.finish.distance();
            for (nth, row) in batch.rows().iter().enumerate() {
                let views = shapes.iter().enumerate();
                let views =
                    views.map(|(view, shape)| (*shape, batch.view(nth, view).to_vec()));
                let partner =
                    bothends_core::recipe::partner(nth, batch.rows().len(), distance);
                looked.push(Looked {
                    sample: row.sample.map(|id| SampleId(self.source.record_of(id))),
                    name: self.name_of(row),
                    views: views.collect(),
                    steps: self.steps_of(row, idx),
                    mixed: row.mixed.map(|mixed| {
                        (self.name_of(&batch.rows()[partner]), mixed.own_share)
                    }),
                });
            }
        }
        drop(batch?);
        self.finish_epoch(epoch);
        Ok(looked)
    }

    fn name_of(&self, row: &Row) -> String {
        let Some(sample) = row.sample else { return String::new() };
        let file = self.source.file_name(sample);
        let number = self.source.record_of(sample);
        // The samples of a shard follow each other.
        let beside = [number.checked_sub(1), number.checked_add(1)].into_iter().flatten();
        let mut beside = beside.filter(|other| *other < self.source.n_samples());
        match beside.any(|other| self.source.file_name(SampleId(other)) == file) {
            true => format!("{file}, sample {number}"),
            false => file,
        }
    }

    /// In words; empty where the sample cannot be read.
    fn steps_of(&self, row: &Row, epoch: EpochIdx) -> Vec<String> {
        let Some(sample) = row.sample else { return Vec::new() };
        let key = self.source.key(epoch, sample);
        let piece = self.source.piece(key);
        let Ok(bytes) = self.source.read(key.sample, piece) else { return Vec::new() };
        let Ok(record) = self.source.record(sample, piece, &bytes) else {
            return Vec::new();
        };
        let Ok(decision) = self.source.pipeline.decision(key, record) else {
            return Vec::new();
        };
        let mut words: Vec<_> = decision.shared().iter().map(Step::words).collect();
        for (nth, steps) in decision.views().enumerate().filter(|(_, s)| !s.is_empty()) {
            let steps: Vec<_> = steps.iter().map(Step::words).collect();
            words.push(format!("view {nth}: {}", steps.join(", ")));
        }
        words
    }
}
