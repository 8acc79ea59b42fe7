//! The flags of `bothends bench`.

use std::path::PathBuf;

use bothends_bench::ops::{Draw, Form, Part};
use bothends_core::recipe::Numerics;
use bothends_runtime::{ReaderKind, SideIndexUse};
use clap::{ArgAction, Subcommand};

use super::security::SecurityArgs;
use super::words::{BENCH_READERS, DRAWS, FORMS, NUMERICS, PARTS, SIDE_INDICES, one_of};

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// Measure every op by itself, optionally next to torchvision and OpenCV; or, with --data, the whole
    /// engine, which turns records in memory into samples
    Ops(Box<BenchOpsArgs>),
    /// Measure reading records in shuffled order; they are then discarded
    Io(BenchIoArgs),
    /// Measure how busy emulated accelerators are kept, and the fastest that is kept 90 % busy
    Au(AuArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchOpsArgs {
    /// Measure the whole engine on a data set, instead of every op alone
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Instructions the kernels may use: best, scalar, avx2, avx512, neon
    #[arg(
        long,
        value_name = "LEVEL[,LEVEL...]",
        value_delimiter = ',',
        default_value = "best"
    )]
    pub(crate) kernels: Vec<String>,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) alone: OpsAloneArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Every op alone")]
pub(crate) struct OpsAloneArgs {
    /// Only these ops, by torchvision's functional names or as in recipes
    #[arg(value_name = "OP", conflicts_with = "data")]
    pub(crate) ops: Vec<String>,
    /// An image file to work on; by default, one is generated
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) image: Option<PathBuf>,
    /// How many times everything is measured, interleaved
    #[arg(long, value_name = "N", conflicts_with = "data", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// A Python interpreter with torchvision and OpenCV, to compare with both
    #[arg(long, value_name = "PYTHON", conflicts_with = "data")]
    pub(crate) peers: Option<PathBuf>,
    /// The script that this interpreter runs; by default, the one in the current checkout
    #[arg(
        long,
        value_name = "FILE",
        requires = "peers",
        conflicts_with = "data",
        default_value = "scripts/peers/ops.py"
    )]
    pub(crate) peers_script: PathBuf,
}

/// Flags of the ops alone. What measures the engine conflicts with each, though it requires `--data`, with
/// which they conflict too: clap takes nothing for missing that is in conflict with what is there.
const ALONE: [&str; 5] = ["ops", "image", "rounds", "peers", "peers_script"];

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The whole engine")]
pub(crate) struct EngineArgs {
    /// Only the first N samples of the data set
    #[arg(long, value_name = "N", requires = "data", conflicts_with_all = ALONE, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Seed of order and augmentation
    #[arg(long, requires = "data", conflicts_with_all = ALONE, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Passes over all records, interleaved, after one that is not counted
    #[arg(long, value_name = "N", requires = "data", conflicts_with_all = ALONE, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) passes: u32,
    /// A built-in recipe or a recipe file
    #[arg(
        long,
        value_name = "NAME|FILE",
        requires = "data", conflicts_with_all = ALONE,
        default_value = "imagenet-train"
    )]
    pub(crate) recipe: String,
    /// How pixels are computed
    #[arg(long, value_parser = one_of(NUMERICS), requires = "data", conflicts_with_all = ALONE, default_value = "both")]
    pub(crate) numerics: &'static [Numerics],
    /// What the decoder is given
    #[arg(
        long,
        value_parser = one_of(FORMS),
        requires = "data", conflicts_with_all = ALONE,
        value_delimiter = ',',
        default_value = "first,index,store"
    )]
    pub(crate) form: Vec<Form>,
    /// Numbers of threads; by default, 1 and then one per core
    #[arg(long, value_name = "N[,N...]", requires = "data", conflicts_with_all = ALONE, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Vec<u32>,
    /// When crop boxes are drawn: once, as for a program that is given them, or again in every pass of the
    /// rates, as in the epochs of a run
    #[arg(long, value_parser = one_of(DRAWS), requires = "data", conflicts_with_all = ALONE, default_value = "once")]
    pub(crate) draw: Draw,
    /// What to measure
    #[arg(
        long,
        value_parser = one_of(PARTS),
        requires = "data", conflicts_with_all = ALONE,
        value_delimiter = ',',
        default_value = "read,stages,rates"
    )]
    pub(crate) parts: Vec<Part>,
    /// Write the random draws of the recipe for each image, one JSON object per line
    #[arg(long, value_name = "FILE", requires = "data", conflicts_with_all = ALONE)]
    pub(crate) boxes: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchIoArgs {
    /// A data set; by default, the demo's generated images
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Only the first N samples of the data set
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Seed of order and augmentation
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Passes over all records, interleaved, after one that is not counted
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) passes: u32,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// How samples are read; by default, both ways
    #[arg(long, value_parser = one_of(BENCH_READERS), default_value = "both")]
    pub(crate) reader: &'static [ReaderKind],
    /// Most reads in flight at once
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_value = "1,4,16,64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: Vec<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuArgs {
    /// A data set
    #[arg(long, value_name = "PATH")]
    pub(crate) data: PathBuf,
    /// A built-in recipe or a recipe file
    #[arg(long, value_name = "NAME|FILE", default_value = "imagenet-train")]
    pub(crate) recipe: String,
    /// Emulated accelerators: names, or rates in images per second
    #[arg(
        long,
        value_name = "NAME|RATE[,...]",
        value_delimiter = ',',
        default_value = "v100,a100,h100"
    )]
    pub(crate) accelerator: Vec<String>,
    /// A device (may repeat), as in `run`
    #[arg(long, value_name = "SPEC", action = ArgAction::Append)]
    pub(crate) csd: Vec<String>,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Host worker threads
    #[arg(long, value_name = "auto|N", default_value = "auto")]
    pub(crate) workers: String,
    /// Samples per batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_size: u32,
    /// Seconds for which each rate is measured, and for at least a dozen steps
    #[arg(long, value_name = "S", default_value_t = 8.0)]
    pub(crate) seconds: f64,
    /// Where the side index, which makes later epochs cheaper, is kept
    #[arg(long, value_parser = one_of(SIDE_INDICES), default_value = "auto")]
    pub(crate) side_index: SideIndexUse,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}
