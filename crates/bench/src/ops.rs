//! `bench ops`: converts records in memory to samples, without anything else.
//!
//! A *contender* is a way to do the same work: numerics, with or without entry points, a
//! level of kernels. Read `contender.rs` first, `stages.rs` (one thread, and where the time goes)
//! and `rates.rs` (many threads) next.

pub mod boxes;
mod contender;
mod rates;
mod stages;

use std::path::PathBuf;

use bothends_core::columns;
use bothends_core::ids::EpochIdx;
use bothends_core::recipe::{Decision, Numerics, Recipe, Size};
use bothends_ops::Pipeline;
pub use bothends_ops::kernels::Level;
use serde::Serialize;

use self::contender::{Contender, learn, mean_value};
use self::rates::Turns;
use crate::records::{DataSet, Records};
use crate::table::{cell, word};
use crate::{BenchError, Tell};

pub use self::contender::Form;
pub use self::rates::{Draw, Rate};
pub use self::stages::{SampleTime, StageTimes};

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Reading each file, one by one.
    Read,
    /// One thread, with stages.
    Stages,
    /// Samples per second of one or many threads.
    Rates,
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct OpsBench {
    /// A data set.
    pub data: PathBuf,
    /// Only its first so many samples.
    pub limit: Option<u64>,
    /// How samples are made; its numerics are ignored.
    pub recipe: Recipe,
    /// Seed of what it draws.
    pub seed: u64,
    /// When it draws.
    pub draw: Draw,
    /// Contenders: all combinations of these three.
    pub numerics: Vec<Numerics>,
    /// See [`Self::numerics`].
    pub forms: Vec<Form>,
    /// See [`Self::numerics`].
    pub kernels: Vec<Level>,
    /// Numbers of threads; all threads make all samples.
    pub threads: Vec<u32>,
    /// Passes over all records, after one that is not counted.
    pub passes: u32,
    /// What is measured of each.
    pub parts: Vec<Part>,
}

/// The results.
#[derive(Debug, Clone, Serialize)]
pub struct OpsResult {
    /// The recipe's name.
    pub recipe: String,
    /// Seed of what it drew.
    pub seed: u64,
    /// When it drew.
    pub draw: Draw,
    /// Records.
    pub images: usize,
    /// Their mean length.
    pub bytes_per_image: f64,
    /// The mean length of a record's note from an earlier visit.
    pub entry_point_bytes_per_image: f64,
    /// The mean length of a record's row groups and their metadata, if records were packed.
    pub row_group_bytes_per_image: Option<f64>,
    /// Counted passes.
    pub passes: u32,
    /// Opening and reading a record's file.
    pub read: Option<SampleTime>,
    /// The contenders.
    pub variants: Vec<VariantResult>,
}

/// The results of one contender.
#[derive(Debug, Clone, Serialize)]
pub struct VariantResult {
    /// How pixels are computed.
    pub numerics: Numerics,
    /// The input of the decoders.
    pub form: Form,
    /// The level of the kernels.
    pub kernels: &'static str,
    /// The mean over the samples' bytes, which is the same for the same work.
    pub mean_value: f64,
    /// One thread.
    pub sample: Option<SampleTime>,
    /// Where its time goes; only where all records are JPEG files and the recipe begins with
    /// a decode and a resize.
    pub stages: Option<StageTimes>,
    /// By number of threads.
    pub rates: Vec<Rate>,
}

impl OpsBench {
    /// Measures, with the requested number of threads and all records in memory.
    ///
    /// # Errors
    /// [`BenchError`] when the data cannot be read, or a record makes no sample.
    pub fn run(&self, tell: Tell<'_>) -> Result<OpsResult, BenchError> {
        let data = DataSet::open(&self.data, self.limit)?;
        tell("reading the records into memory");
        let mut records = Records::read(&data, self.seed)?;
        let contenders = self.contenders(&data, &records)?;
        if let Some(first) = contenders.first() {
            tell("learning entry points");
            records.entry_points = learn(first, &records)?;
        }
        if self.forms.contains(&Form::Store) {
            tell("packing");
            records.pack();
        }
        tell("looking at all samples");
        let means = contenders.iter().map(|contender| mean_value(contender, &records));
        let means = means.collect::<Result<Vec<_>, _>>()?;
        let has = |part| self.parts.contains(&part);
        let read = has(Part::Read)
            .then(|| stages::measure_reading(&data, &records, self.passes))
            .transpose()?;
        let alone = if has(Part::Stages) {
            stages::measure(&contenders, &records, self.passes, &mut *tell)?
        } else {
            Vec::new()
        };
        let mut rates = vec![Vec::new(); contenders.len()];
        if has(Part::Rates) {
            let (draw, threads) = (self.draw, self.threads.as_slice());
            let turns = Turns { draw, threads, passes: self.passes };
            rates = rates::measure(&contenders, &records, &turns, tell)?;
        }
        let mut alone = alone.into_iter();
        let variants = contenders.iter().zip(means).zip(rates);
        let variants = variants.map(|((contender, mean_value), rates)| {
            let (sample, stages) = alone.next().unzip();
            VariantResult {
                numerics: contender.numerics,
                form: contender.form,
                kernels: contender.level.name(),
                mean_value,
                sample,
                stages: stages.flatten(),
                rates,
            }
        });
        let n = records.len().max(1) as f64;
        let learnt: usize = records.entry_points.iter().map(Vec::len).sum();
        let packed = records.n_packed_bytes();
        Ok(OpsResult {
            recipe: self.recipe.name().to_owned(),
            seed: self.seed,
            draw: self.draw,
            images: records.len(),
            bytes_per_image: records.n_bytes() as f64 / n,
            entry_point_bytes_per_image: learnt as f64 / n,
            row_group_bytes_per_image: packed.map(|bytes| bytes as f64 / n),
            passes: self.passes,
            read,
            variants: variants.collect(),
        })
    }

    fn contenders(
        &self,
        data: &DataSet,
        records: &Records,
    ) -> Result<Vec<Contender>, BenchError> {
        let mut contenders = Vec::new();
        for &numerics in &self.numerics {
            let recipe = self.recipe.clone().with_numerics(numerics);
            let pipeline =
                Pipeline::new(&recipe, recipe.views(data.table.record_shape()?)?);
            let any = Size { height: 500, width: 500 };
            let key = records.key(0, EpochIdx(0));
            let crop = pipeline.crop_of(key, any, &mut Decision::default());
            let has_stages = records.are_jpegs() && crop.is_ok_and(|crop| crop.is_some());
            for &form in &self.forms {
                for &level in &self.kernels {
                    let pipeline = pipeline.clone();
                    contenders.push(Contender {
                        pipeline,
                        numerics,
                        form,
                        level,
                        has_stages,
                    });
                }
            }
        }
        Ok(contenders)
    }
}

impl OpsResult {
    /// The result for a terminal, ending in a newline.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{}, seed {}: {} images of {:.1} kB in memory, {} passes, interleaved\n\n",
            self.recipe,
            self.seed,
            self.images,
            self.bytes_per_image / 1e3,
            self.passes,
        );
        let mut lines = vec![self.headings()];
        lines.extend(self.variants.iter().map(VariantResult::cells));
        text += &columns(&lines, 3);
        text.push('\n');
        if let Some(SampleTime { best_us, median_us }) = self.read {
            text += &format!(
                "read: opening and reading a file one by one takes {best_us:.1} µs \
                 (median pass {median_us:.1}); not in the table\n",
            );
        }
        for line in LEGEND {
            text += line;
            text.push('\n');
        }
        text
    }

    fn headings(&self) -> Vec<String> {
        let fixed = [
            "numerics",
            "form",
            "kernels",
            "µs/image",
            "median",
            "tables",
            "entropy",
            "IDCT",
            "tail",
        ];
        let mut headings = fixed.map(str::to_owned).to_vec();
        for rate in self.variants.first().map_or(&[][..], |variant| &variant.rates) {
            headings.push(format!("images/s ×{}", rate.threads));
            headings.push(format!("best ×{}", rate.threads));
            headings.push(format!("CPU µs ×{}", rate.threads));
        }
        headings
    }
}

/// The meaning of the columns.
const LEGEND: [&str; 7] = [
    "µs/image  one thread, mean of each image's shortest time; median: of whole passes",
    "tables    headers, tables of codes and resize weights; entropy: bits to coefficients;",
    "IDCT      coefficients to planes; tail: colour, resize, flip. By difference: samples made",
    "          as far as each stage, in passes of their own",
    "images/s  N threads that each make all samples: median pass, best pass, CPU time",
    "form      first: a file as in a first epoch; index: with the entry points of an earlier visit;",
    "          store: the row groups in a store",
];

impl VariantResult {
    fn cells(&self) -> Vec<String> {
        let kernels = self.kernels.to_owned();
        let mut cells = vec![word(self.numerics), word(self.form), kernels];
        let sample = self.sample;
        cells.push(cell(sample.map(|sample| sample.best_us), 1));
        cells.push(cell(sample.map(|sample| sample.median_us), 1));
        let stages = [
            self.stages.map(|stages| stages.tables_us),
            self.stages.map(|stages| stages.entropy_us),
            self.stages.map(|stages| stages.idct_us),
            self.stages.map(|stages| stages.tail_us),
        ];
        cells.extend(stages.map(|stage| cell(stage, 1)));
        for rate in &self.rates {
            cells.push(cell(Some(rate.images_per_s), 0));
            cells.push(cell(Some(rate.best_images_per_s), 0));
            cells.push(cell(rate.cpu_us_per_image, 1));
        }
        cells
    }
}
