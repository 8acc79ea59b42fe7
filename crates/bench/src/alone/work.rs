//! Runs a case repeatedly and measures the time.
//!
//! An op works as in a run: its memory is there, its kernels are those of one level, and the
//! image is where the previous op left it; an op that works in place does so. The copy that this
//! requires for every repetition does not count. `peers.rs`, which is to be read
//! next, has others do the same.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::step::Step;
use bothends_core::recipe::{BatchKey, Decision, Interpolation, Numerics, Recipe, Size};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::{Dtype, Layout, Output, Views};
use bothends_ops::decode::decode;
use bothends_ops::image::Image;
use bothends_ops::kernels::Level;
use bothends_ops::{Finish, Workbench};

use super::cases::{SAMPLE, SOURCE, Work, whole};
use crate::BenchError;

/// How many samples are drawn for, where there is something to draw.
const DRAWS: u64 = 256;
/// Samples of a batch that is mixed, and how many batches are.
const BATCH: usize = 64;
const BATCHES: u64 = 16;
/// How long repetitions are that are timed as one.
const TIMED: Duration = Duration::from_millis(1);
/// How often something is timed at least, after once that is not counted.
const LEAST_TIMES: usize = 3;

/// What ops are given.
#[derive(Debug)]
pub(super) struct Images {
    /// 375 rows of 500 pixels.
    pub(super) source: Image,
    /// 224 by 224 pixels.
    pub(super) sample: Image,
}

impl Images {
    /// Both, out of the middle of a file's image.
    pub(super) fn of(file: &[u8]) -> Result<Self, BenchError> {
        let mut image = Image::default();
        let record = Record::new(file, Encoding::Image);
        decode(record, &mut image).map_err(|source| BenchError::Image { source })?;
        let made = |size: Size| {
            let (part, interpolation) =
                (middle(image.size(), size), Interpolation::Bilinear);
            let mut bench = Workbench::default();
            let step = Step::Resize { part, size, interpolation };
            bench.work_on(image.view(), &[step], Numerics::Exact);
            bench.image().clone()
        };
        Ok(Self { source: made(SOURCE), sample: made(SAMPLE) })
    }
}

/// The largest part in the middle of an image that is as wide for its height as `like`.
fn middle(image: Size, like: Size) -> CropBox {
    let fit = |side: u32, of: u32, other: u32| {
        let scaled = u64::from(side) * u64::from(of) / u64::from(other);
        u32::try_from(scaled).unwrap_or(u32::MAX).max(1)
    };
    let height = image.height.min(fit(image.width, like.height, like.width));
    let width = image.width.min(fit(image.height, like.width, like.height));
    let (top, left) = ((image.height - height) / 2, (image.width - width) / 2);
    CropBox { top, left, ..whole(Size { height, width }) }
}

/// What one measurement gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timed {
    /// Microseconds per image: the best of all times.
    pub(super) us: f64,
    /// Mean over the bytes of what was made, where that is one image and nothing is drawn.
    pub(super) mean_value: Option<f64>,
}

/// Measures `work` for about `at_least`.
pub(super) fn measure(
    work: &Work,
    images: &Images,
    level: Level,
    at_least: Duration,
) -> Result<Timed, BenchError> {
    let mut task = Task::new(work, images, level)?;
    task.run();
    let repeats = TIMED.as_nanos() / task.run().as_nanos().max(1);
    let repeats = u32::try_from(repeats).unwrap_or(u32::MAX).max(1);
    let (mut all, mut times, mut best) = (Duration::ZERO, 0, Duration::MAX);
    while times < LEAST_TIMES || all < at_least {
        let time = (0..repeats).map(|_| task.run()).sum();
        best = best.min(time);
        all += time;
        times += 1;
    }
    let n_images = f64::from(repeats) * task.n_images() as f64;
    Ok(Timed { us: best.as_secs_f64() * 1e6 / n_images, mean_value: task.mean_value() })
}

/// A case at work, with its memory.
#[derive(Debug)]
struct Task<'a> {
    images: &'a Images,
    doing: Doing<'a>,
    bench: Workbench,
}

/// What there is to be done.
#[derive(Debug)]
enum Doing<'a> {
    InPlace(&'a [Step]),
    Source(&'a [Step]),
    Views(&'a [Step]),
    Drawn(Recipe, Box<Decision>),
    Delivered(Box<Finish>, Vec<u8>),
    Mixed { recipe: Recipe, finish: Box<Finish>, batch: Vec<u8>, memory: Vec<u8> },
}

impl<'a> Task<'a> {
    fn new(work: &'a Work, images: &'a Images, level: Level) -> Result<Self, BenchError> {
        let doing = match work {
            Work::Sample(steps) => Doing::InPlace(steps),
            Work::Source(step) => Doing::Source(std::slice::from_ref(step)),
            Work::Views(steps) => Doing::Views(steps),
            Work::Drawn(op) => Doing::Drawn(recipe(op)?, Box::default()),
            Work::Delivered(ops) => {
                let finish = finish(&recipe(ops)?, images)?;
                let delivered = vec![0; finish.sample_bytes()];
                Doing::Delivered(Box::new(finish), delivered)
            }
            Work::Mixed(op) => {
                let recipe = recipe(op)?;
                let finish = finish(&recipe, images)?;
                let mut batch = vec![0; BATCH * finish.sample_bytes()];
                for sample in batch.chunks_exact_mut(finish.sample_bytes()) {
                    finish.run(None, images.sample.pixels(), sample);
                }
                Doing::Mixed {
                    recipe,
                    finish: Box::new(finish),
                    batch,
                    memory: Vec::new(),
                }
            }
        };
        Ok(Self { images, doing, bench: Workbench::new(level) })
    }

    /// Images that one run makes.
    fn n_images(&self) -> u64 {
        match self.doing {
            Doing::InPlace(_) | Doing::Source(_) | Doing::Views(_) => 1,
            Doing::Drawn(..) | Doing::Delivered(..) => DRAWS,
            Doing::Mixed { .. } => BATCHES * BATCH as u64,
        }
    }

    /// Does it once; says how long it took.
    fn run(&mut self) -> Duration {
        let Self { images: Images { source, sample }, doing, bench } = self;
        if let Doing::InPlace(_) = doing {
            bench.put(sample.view());
        }
        let begin = Instant::now();
        match doing {
            Doing::InPlace(steps) => {
                bench.work(steps, Numerics::Exact);
                black_box(bench.image());
            }
            Doing::Source(steps) => {
                bench.work_on(source.view(), steps, Numerics::Exact);
                black_box(bench.image());
            }
            Doing::Views(steps) => {
                for step in steps.chunks(1) {
                    bench.work_on(sample.view(), step, Numerics::Exact);
                    black_box(bench.image());
                }
            }
            Doing::Drawn(recipe, decision) => {
                for nth in 0..DRAWS {
                    let decided = recipe.decide(key(nth), sample.shape(), decision);
                    debug_assert!(decided.is_ok(), "policies keep the size");
                    bench.work_on(sample.view(), decision.shared(), Numerics::Exact);
                    black_box(bench.image());
                }
            }
            Doing::Delivered(finish, delivered) => {
                for nth in 0..DRAWS {
                    finish.run(Some(key(nth)), sample.pixels(), delivered);
                    black_box(&delivered);
                }
            }
            Doing::Mixed { recipe, finish, batch, memory } => {
                for nth in 0..BATCHES {
                    let (seed, epoch) = (0, EpochIdx(0));
                    let key = BatchKey { seed, epoch, position: nth * BATCH as u64 };
                    if let Some(mixture) = recipe.decide_mixture(key, SAMPLE) {
                        finish.mix(mixture, batch, memory);
                    }
                    black_box(&batch);
                }
            }
        }
        begin.elapsed()
    }

    fn mean_value(&self) -> Option<f64> {
        if !matches!(self.doing, Doing::InPlace(_) | Doing::Source(_)) {
            return None;
        }
        let pixels = self.bench.image().pixels();
        let sum: u64 = pixels.iter().map(|&value| u64::from(value)).sum();
        Some(sum as f64 / pixels.len().max(1) as f64)
    }
}

fn key(nth: u64) -> SampleKey {
    SampleKey { seed: 0, epoch: EpochIdx(0), sample: SampleId(nth) }
}

fn recipe(ops: &str) -> Result<Recipe, BenchError> {
    let json = format!(
        r#"{{"version": 1, "name": "bench", "ops": [{{"op": "decode"}},
            {{"op": "center_crop", "size": 224}}, {ops}]}}"#
    );
    Ok(Recipe::from_json(&json)?)
}

fn finish(recipe: &Recipe, images: &Images) -> Result<Finish, BenchError> {
    let views = Views::from(images.sample.shape());
    let output = Output { dtype: Dtype::F32, layout: Layout::Nchw };
    Finish::new(recipe, &views, output).map_err(|source| BenchError::Image { source })
}
