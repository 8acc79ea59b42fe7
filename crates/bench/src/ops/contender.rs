//! Contenders, and workers that make samples in the way of a contender. Nothing is timed here.

use bothends_core::ids::EpochIdx;
use bothends_core::recipe::Numerics;
use bothends_ops::jpeg::Stage;
use bothends_ops::kernels::Level;
use bothends_ops::{Pipeline, Scratch};
use serde::Serialize;

use crate::BenchError;
use crate::records::Records;

/// The input of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A file that has never been seen: entry points are made while decoding.
    First,
    /// A file, and the entry points that an earlier visit left.
    Index,
    /// The row groups of a store that are needed. Files that cannot be packed are unchanged.
    Store,
}

/// One way to do the work.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) pipeline: Pipeline,
    pub(super) numerics: Numerics,
    pub(super) form: Form,
    pub(super) level: Level,
    /// Whether it can be stopped after a stage.
    pub(super) has_stages: bool,
}

/// A contender on one thread, with its memory.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    contender: &'a Contender,
    records: &'a Records,
    /// The epoch whose random numbers are used.
    pub(super) epoch: EpochIdx,
    scratch: Scratch,
    sample: Vec<u8>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(contender: &'a Contender, records: &'a Records) -> Self {
        let sample = vec![0; contender.pipeline.sample_bytes()];
        let scratch = Scratch::new(contender.level);
        Self { contender, records, epoch: EpochIdx(0), scratch, sample }
    }

    /// Makes the sample of record `idx`, as far as `stage`.
    pub(super) fn make(&mut self, idx: usize, stage: Stage) -> Result<(), BenchError> {
        let Self { contender, records, epoch, scratch, sample } = self;
        let (pipeline, key) = (&contender.pipeline, records.key(idx, *epoch));
        let bad = records.bad_sample(idx);
        let record = match contender.form {
            Form::First => records.record(idx),
            Form::Index => records.visited(idx),
            Form::Store => records.stored(idx, pipeline, key).map_err(&bad)?,
        };
        let made = match stage {
            Stage::Sample => pipeline.run(scratch, key, record, sample),
            Stage::Tables | Stage::Entropy | Stage::Planes => {
                pipeline.run_until(stage, scratch, key, record)
            }
        };
        made.map_err(bad)
    }
}

/// The note of each record from a first visit.
pub(super) fn learn(
    contender: &Contender,
    records: &Records,
) -> Result<Vec<Vec<u8>>, BenchError> {
    let first = Contender {
        pipeline: contender.pipeline.clone(),
        form: Form::First,
        ..*contender
    };
    let mut worker = Worker::new(&first, records);
    let learnt = (0..records.len()).map(|idx| {
        worker.make(idx, Stage::Sample)?;
        Ok(worker.scratch.new_entry_points().to_vec())
    });
    learnt.collect()
}

/// The mean over the bytes of all samples.
pub(super) fn mean_value(
    contender: &Contender,
    records: &Records,
) -> Result<f64, BenchError> {
    let mut worker = Worker::new(contender, records);
    let (mut sum, mut n) = (0_u64, 0_usize);
    for idx in 0..records.len() {
        worker.make(idx, Stage::Sample)?;
        sum += worker.sample.iter().map(|&value| u64::from(value)).sum::<u64>();
        n += worker.sample.len();
    }
    Ok(sum as f64 / n.max(1) as f64)
}
