//! Ranks that step together: what coordinated reads bring, in virtual time.
//!
//! A step lasts as long as the largest batch of any rank takes. Two models of a batch's work: the sum over
//! its samples (photographs of different size, packed sequences), and the number of samples times the largest
//! (sequences that are padded). Each is played in the plan's order and arranged by
//! `bothends_core::pool::together`.

use bothends_core::pool::together::{Step, together};
use serde::Serialize;

use super::float;
use crate::noise::Noise;

/// A job whose ranks step together.
#[derive(Debug, Clone)]
pub struct Lockstep {
    /// Numbers of ranks; each is played.
    pub ranks: Vec<u32>,
    /// Samples of a batch of one rank.
    pub batch_size: u32,
    /// Steps of an epoch.
    pub steps: u32,
    /// Steps that are arranged together.
    pub window: u32,
    /// Coefficient of variation of a sample's work (log-normal).
    pub cv: f64,
}

/// What a number of ranks takes for an epoch, relative to ranks that all have the mean work.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LockstepRow {
    /// The number of ranks.
    pub ranks: u32,
    /// A batch takes the sum of its samples, in the plan's order.
    pub sum_plan: f64,
    /// The same, arranged.
    pub sum_together: f64,
    /// A batch takes as if all of its samples were the largest, in the plan's order.
    pub padded_plan: f64,
    /// The same, arranged.
    pub padded_together: f64,
}

impl LockstepRow {
    /// How much faster the arranged epoch is where batches take the sum of their samples.
    #[must_use]
    pub fn sum_gain(&self) -> f64 {
        self.sum_plan / self.sum_together
    }

    /// The same where batches are padded.
    #[must_use]
    pub fn padded_gain(&self) -> f64 {
        self.padded_plan / self.padded_together
    }
}

impl Lockstep {
    /// Each number of ranks: means over the seeds.
    #[must_use]
    pub fn rows(&self, seeds: &[u64]) -> Vec<LockstepRow> {
        self.ranks.iter().map(|ranks| self.row(*ranks, seeds)).collect()
    }

    fn row(&self, ranks: u32, seeds: &[u64]) -> LockstepRow {
        let mut row = LockstepRow {
            ranks,
            sum_plan: 0.0,
            sum_together: 0.0,
            padded_plan: 0.0,
            padded_together: 0.0,
        };
        let step = Step { ranks, batch_size: self.batch_size };
        #[allow(clippy::cast_precision_loss, reason = "there are few seeds")]
        let weight = 1.0 / (seeds.len().max(1) as f64 * f64::from(self.steps.max(1)));
        for seed in seeds {
            let mut noise = Noise::new(*seed, 0x6c6f);
            let mut left = self.steps;
            while left > 0 {
                let n_steps = left.min(self.window.max(1));
                left -= n_steps;
                let n = step.n_samples() * n_steps as usize;
                let work: Vec<u64> = (0..n).map(|_| draw(&mut noise, self.cv)).collect();
                let plan: Vec<u32> = (0..).take(n).collect();
                let arranged = together(&work, step, seed ^ u64::from(left));
                let mean = mean_batch(&work, self.batch_size);
                for (order, sum, padded) in [
                    (&plan, &mut row.sum_plan, &mut row.padded_plan),
                    (&arranged, &mut row.sum_together, &mut row.padded_together),
                ] {
                    let slowest = slowest(&work, order, step);
                    *sum += slowest.0 / mean * weight;
                    *padded += slowest.1 / mean * weight;
                }
            }
        }
        row
    }
}

/// The work of a sample; its mean is large enough for whole numbers.
fn draw(noise: &mut Noise, cv: f64) -> u64 {
    super::nanoseconds(noise.factor(cv) * 1e-3)
}

fn mean_batch(work: &[u64], batch_size: u32) -> f64 {
    let sum: u64 = work.iter().sum();
    float(sum) / float(work.len().max(1) as u64) * f64::from(batch_size)
}

/// The time of all steps, each of its slowest rank: with sums, and padded.
fn slowest(work: &[u64], order: &[u32], step: Step) -> (f64, f64) {
    let batch = step.batch_size.max(1) as usize;
    let (mut sum, mut padded) = (0.0, 0.0);
    for samples in order.chunks(step.n_samples().max(1)) {
        let batches = || {
            let batches = samples.chunks(batch);
            batches.map(|batch| batch.iter().map(|at| work[*at as usize]))
        };
        sum += float(batches().map(Iterator::sum).max().unwrap_or(0));
        let largest = batches().filter_map(Iterator::max).max().unwrap_or(0);
        padded += float(largest) * float(batch as u64);
    }
    (sum, padded)
}
