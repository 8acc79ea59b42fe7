//! One thread: the time of a sample and of its stages.
//!
//! A stage is measured by difference: all samples of a pass are made up to one stage, and in another
//! pass up to the previous one. The stages therefore add up to the whole, and a short stage may come out
//! slightly below zero.

use std::time::Instant;

use bothends_core::ids::SampleId;
use bothends_ops::jpeg::Stage;
use serde::Serialize;

use super::contender::{Contender, Worker};
use crate::records::{DataSet, Records, read_record};
use crate::timing::Times;
use crate::{BenchError, Tell};

/// The time of one sample on one thread, averaged over the records, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SampleTime {
    /// Each record's shortest time.
    pub best_us: f64,
    /// The median of whole passes.
    pub median_us: f64,
}

/// Where the time goes: by difference, of each record's shortest times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageTimes {
    /// Headers; tables of codes and of resize weights.
    pub tables_us: f64,
    /// Entropy decoding.
    pub entropy_us: f64,
    /// Dequantisation and inverse transform.
    pub idct_us: f64,
    /// Colour, upsampling where there is any, resizing, flipping, and writing the sample.
    pub tail_us: f64,
}

/// How far a pass may go: to the end, or up to a stage.
const STEPS: [Stage; 4] = [Stage::Sample, Stage::Tables, Stage::Entropy, Stage::Planes];

/// Measures every contender `n_passes` times, interleaved, with its stages if it has any.
pub(super) fn measure(
    contenders: &[Contender],
    records: &Records,
    n_passes: u32,
    tell: Tell<'_>,
) -> Result<Vec<(SampleTime, Option<StageTimes>)>, BenchError> {
    let mut workers: Vec<Worker<'_>> =
        contenders.iter().map(|contender| Worker::new(contender, records)).collect();
    let mut times: Vec<[Times; 4]> =
        contenders.iter().map(|_| STEPS.map(|_| Times::new(records.len()))).collect();
    let n_steps = |nth: usize| if contenders[nth].has_stages { STEPS.len() } else { 1 };
    let turns: Vec<(usize, usize)> = (0..contenders.len())
        .flat_map(|nth| (0..n_steps(nth)).map(move |step| (nth, step)))
        .collect();
    // The first pass only warms up.
    for pass in 0..=n_passes as usize {
        tell(&format!("one thread: pass {pass} of {n_passes}"));
        for turn in 0..turns.len() {
            let (nth, step) = turns[(turn + pass) % turns.len()];
            let one_pass = one_pass(&mut workers[nth], STEPS[step], records.len())?;
            if pass > 0 {
                times[nth][step].pass(&one_pass);
            }
        }
    }
    let results = contenders.iter().zip(&times).map(|(contender, times)| {
        let [whole, tables, entropy, planes] = times.each_ref().map(Times::best_us);
        let stages = StageTimes {
            tables_us: tables,
            entropy_us: entropy - tables,
            idct_us: planes - entropy,
            tail_us: whole - planes,
        };
        let sample = SampleTime { best_us: whole, median_us: times[0].median_us() };
        (sample, contender.has_stages.then_some(stages))
    });
    Ok(results.collect())
}

/// The time of each record in microseconds.
fn one_pass(
    worker: &mut Worker<'_>,
    stage: Stage,
    n_records: usize,
) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::with_capacity(n_records);
    for idx in 0..n_records {
        let start = Instant::now();
        worker.make(idx, stage)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// What opening and reading a record's file takes, one by one; from the page cache, since
/// all have been read before.
pub(super) fn measure_reading(
    data: &DataSet,
    records: &Records,
    n_passes: u32,
) -> Result<SampleTime, BenchError> {
    let mut times = Times::new(records.len());
    let mut bytes = Vec::new();
    for _ in 0..n_passes {
        let mut pass = Vec::with_capacity(records.len());
        for idx in 0..records.len() {
            let start = Instant::now();
            read_record(data, SampleId(idx as u64), records.name(idx), &mut bytes)?;
            pass.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.pass(&pass);
    }
    Ok(SampleTime { best_us: times.best_us(), median_us: times.median_us() })
}
