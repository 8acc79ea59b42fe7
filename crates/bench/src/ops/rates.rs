//! Many threads: how many samples per second a machine makes if it does nothing else.
//!
//! Every thread makes all samples, each from a different starting point, so all have the same work and
//! share only the records. A pass lasts until the last thread is done.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use bothends_core::ids::EpochIdx;
use bothends_ops::jpeg::Stage;
use serde::Serialize;

use super::contender::{Contender, Worker};
use crate::records::Records;
use crate::timing::{median, thread_cpu_ns};
use crate::{BenchError, Tell};

/// How often boxes are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// Those of epoch 0 for every pass: the same work as for a program that is given them.
    Once,
    /// Every pass of the rates is an epoch of its own: the same work as a run's.
    EveryPass,
}

/// What is measured of every contender.
#[derive(Debug)]
pub(super) struct Turns<'a> {
    pub(super) draw: Draw,
    /// Numbers of threads.
    pub(super) threads: &'a [u32],
    /// Passes, after one that is not counted.
    pub(super) passes: u32,
}

/// The rate of a number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// How many.
    pub threads: u32,
    /// Samples per second of all threads together: the median of whole passes.
    pub images_per_s: f64,
    /// The same of the best pass.
    pub best_images_per_s: f64,
    /// CPU time per sample in microseconds, the median of whole passes; `None` if the kernel does
    /// not report it.
    pub cpu_us_per_image: Option<f64>,
}

/// Measures every contender with every number of threads, interleaved.
pub(super) fn measure(
    contenders: &[Contender],
    records: &Records,
    turns: &Turns<'_>,
    tell: Tell<'_>,
) -> Result<Vec<Vec<Rate>>, BenchError> {
    let Turns { draw, threads, passes: n_passes } = *turns;
    let most = threads.iter().copied().max().unwrap_or(0);
    let mut workers: Vec<Vec<Worker<'_>>> = contenders
        .iter()
        .map(|contender| (0..most).map(|_| Worker::new(contender, records)).collect())
        .collect();
    let turns: Vec<(usize, usize)> = (0..contenders.len())
        .flat_map(|nth| (0..threads.len()).map(move |column| (nth, column)))
        .collect();
    let mut passes = vec![vec![Vec::new(); threads.len()]; contenders.len()];
    // The first pass only warms up.
    for pass in 0..=n_passes {
        tell(&format!("threads: pass {pass} of {n_passes}"));
        for turn in 0..turns.len() {
            let (nth, column) = turns[(turn + pass as usize) % turns.len()];
            let workers = &mut workers[nth][..threads[column] as usize];
            if draw == Draw::EveryPass {
                workers.iter_mut().for_each(|worker| worker.epoch = EpochIdx(pass));
            }
            let one_pass = one_pass(workers, records.len())?;
            if pass > 0 {
                passes[nth][column].push(one_pass);
            }
        }
    }
    let rates = passes.iter().map(|columns| {
        let columns = threads.iter().zip(columns);
        columns.map(|(&threads, passes)| rate(threads, passes)).collect()
    });
    Ok(rates.collect())
}

/// A pass of all workers: samples per second, and CPU time per sample in microseconds.
#[derive(Debug, Clone, Copy)]
struct Pass {
    images_per_s: f64,
    cpu_us: Option<f64>,
}

fn rate(threads: u32, passes: &[Pass]) -> Rate {
    let rates: Vec<f64> = passes.iter().map(|pass| pass.images_per_s).collect();
    let cpu: Option<Vec<f64>> = passes.iter().map(|pass| pass.cpu_us).collect();
    Rate {
        threads,
        images_per_s: median(&rates),
        best_images_per_s: rates.iter().copied().fold(0.0, f64::max),
        cpu_us_per_image: cpu.map(|cpu| median(&cpu)),
    }
}

fn one_pass(workers: &mut [Worker<'_>], n_records: usize) -> Result<Pass, BenchError> {
    let n_workers = workers.len();
    let ready = Barrier::new(n_workers);
    let ends = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(nth, worker)| {
                let (ready, first) = (&ready, nth * n_records / n_workers);
                scope.spawn(move || {
                    ready.wait();
                    let (start, cpu) = (Instant::now(), thread_cpu_ns());
                    for idx in 0..n_records {
                        worker.make((first + idx) % n_records, Stage::Sample)?;
                    }
                    let cpu_ns = cpu.zip(thread_cpu_ns()).map(|(from, to)| to - from);
                    Ok((start, Instant::now(), cpu_ns))
                })
            })
            .collect();
        let ends = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ends.collect::<Result<Vec<_>, BenchError>>()
    })?;
    let n_samples = (n_workers * n_records) as f64;
    let start = ends.iter().map(|(start, ..)| *start).min();
    let end = ends.iter().map(|(_, end, _)| *end).max();
    let seconds = start.zip(end).map_or(0.0, |(start, end)| (end - start).as_secs_f64());
    let cpu_ns: Option<u64> = ends.iter().map(|(.., cpu_ns)| *cpu_ns).sum();
    Ok(Pass {
        images_per_s: n_samples / seconds,
        cpu_us: cpu_ns.map(|ns| ns as f64 / 1e3 / n_samples),
    })
}
