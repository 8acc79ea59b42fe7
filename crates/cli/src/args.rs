//! The flags as they are typed. Names and defaults are stable: scripts depend
//! on them. What they mean together is decided in `run.rs`.

mod show;
mod simulate;

pub(crate) use simulate::{RecoveryArg, SimulateArgs, SizingArgs};

use std::ops::Range;
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::au::AuArgs;
use crate::energy::EnergyArgs;
pub(crate) use show::{ReportArgs, ShowArgs};

/// Feeds deep-learning accelerators from both ends of an epoch.
#[derive(Debug, Parser)]
#[command(name = "bothends", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The whole story on generated (or given) images: a table, summary.json, report.html
    Demo(DemoArgs),
    /// Run epochs over a data set
    Run(Box<RunArgs>),
    /// What this machine has, and what limits it
    Doctor(DoctorArgs),
    /// What a data set or a recipe is, and whether a store is as it was written
    Inspect(InspectArgs),
    /// Ops, decoding and reading, each measured alone
    Bench(BenchArgs),
    /// Strategies compared in virtual time: modelled, at once, without data or devices
    Simulate(SimulateArgs),
    /// Make a store: a data set packed for reading, which loses nothing
    Pack(PackArgs),
    /// Make the original files of a store again
    Unpack(UnpackArgs),
    /// The page of a run again, from the events that it wrote
    Report(ReportArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Where images, summary.json and report.html go
    #[arg(long, default_value = "demo-out")]
    pub(crate) out: PathBuf,
    /// Fewer images, shorter epochs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Use this data set instead of generated images
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// The emulated device beside the data
    #[arg(long, value_name = "SPEC", default_value = "sim:newport,rate=0.235x")]
    pub(crate) csd: String,
    /// The accelerator; by default an emulated one that takes 1.5 times what the host makes
    #[arg(long, value_name = "NAME")]
    pub(crate) accelerator: Option<String>,
    /// Host workers; by default one core is left to the emulated device
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// A data set to look at, and to measure the host on
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// A built-in recipe or a recipe file
    #[arg(long, value_name = "NAME|FILE", default_value = "imagenet-train")]
    pub(crate) recipe: String,
    /// Samples of a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_1())]
    pub(crate) batch_size: u32,
    /// Host worker threads (may repeat); by default 1, and one for each core
    #[arg(long, value_name = "N", action = ArgAction::Append, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) workers: Vec<u32>,
    /// What is to be fed: host (takes everything at once), sim:NAME or sim:RATE, as in `run`
    #[arg(long, value_name = "SPEC", default_value = "host")]
    pub(crate) accelerator: String,
    /// A device to measure (may repeat), as in `run`; an emulated one is measured as modelled. By
    /// default one of each preset
    #[arg(long, value_name = "SPEC", action = ArgAction::Append, requires = "data")]
    pub(crate) csd: Vec<String>,
    /// How the job reads: through the page cache, past it, or by the size of the data
    #[arg(long, value_enum, default_value_t = PageCacheArg::Auto)]
    pub(crate) page_cache: PageCacheArg,
    /// Only the host: no preset is measured
    #[arg(long, conflicts_with = "csd")]
    pub(crate) quick: bool,
    /// Shared key of devices beyond this machine
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Write what was found as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// A data set, a recipe file, or the name of a built-in recipe
    pub(crate) path: String,
    /// Of a store: read all of it and name every record that is damaged; status 1 if one is
    #[arg(long, conflicts_with = "sheet")]
    pub(crate) verify: bool,
    /// Of a recipe: write a contact sheet (HTML) of samples as it makes them
    #[arg(long, value_name = "FILE.html")]
    pub(crate) sheet: Option<PathBuf>,
    /// The samples of the sheet; without it, images are generated
    #[arg(long, requires = "sheet")]
    pub(crate) data: Option<PathBuf>,
    /// How many samples the sheet shows, or all where there are fewer
    #[arg(long, requires = "sheet", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) samples: u32,
    /// How often each is made, in an epoch of its own
    #[arg(long, requires = "sheet", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) epochs: u32,
    /// Seed of what is drawn
    #[arg(long, requires = "sheet", default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PackArgs {
    /// A data set; or stores, whose records are taken over as they are
    #[arg(value_name = "SRC", required = true)]
    pub(crate) sources: Vec<PathBuf>,
    /// The store's folder: new, or left by an attempt to pack the same, which is gone on with
    #[arg(value_name = "DST")]
    pub(crate) store: PathBuf,
    /// Add to the store that is there
    #[arg(long)]
    pub(crate) append: bool,
    /// Of stores: only the samples from A up to, not including, B
    #[arg(long, value_name = "A..B", value_parser = samples)]
    pub(crate) samples: Option<Range<u64>>,
    /// Begin a new shard before one would be longer
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(4096..=1 << 43))]
    pub(crate) shard_bytes: u64,
    /// Threads that make records; by default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnpackArgs {
    /// A store
    #[arg(value_name = "SRC")]
    pub(crate) store: PathBuf,
    /// Where the files go: a folder that is empty or not there
    #[arg(value_name = "DST")]
    pub(crate) folder: PathBuf,
    /// Threads that make files; by default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// Every op alone, beside torchvision and OpenCV if wanted; or, with --data, the whole engine:
    /// records in memory become samples
    Ops(Box<BenchOpsArgs>),
    /// Records are read in shuffled order, and dropped
    Io(BenchIoArgs),
    /// How busy emulated accelerators are kept, and the fastest that is kept 90 % busy
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
    /// Only ops of these names: torchvision's functional ones, or as in recipes
    #[arg(value_name = "OP", conflicts_with = "data")]
    pub(crate) ops: Vec<String>,
    /// A JPEG or PNG file to work on; by default one is generated
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) image: Option<PathBuf>,
    /// How often everything is measured, in turns
    #[arg(long, value_name = "N", conflicts_with = "data", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// Compare with torchvision and OpenCV: a Python interpreter that has both
    #[arg(long, value_name = "PYTHON", conflicts_with = "data")]
    pub(crate) peers: Option<PathBuf>,
    /// What that interpreter runs; by default that of the checkout one stands in
    #[arg(
        long,
        value_name = "FILE",
        requires = "peers",
        default_value = "scripts/peers/ops.py"
    )]
    pub(crate) peers_script: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The whole engine")]
pub(crate) struct EngineArgs {
    /// Only the first N samples of the data set
    #[arg(long, value_name = "N", requires = "data", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Seed of order and augmentation
    #[arg(long, requires = "data", default_value_t = 42)]
    pub(crate) seed: u64,
    /// Passes over all records, in turns, after one that is not counted
    #[arg(long, value_name = "N", requires = "data", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) passes: u32,
    /// A built-in recipe or a recipe file
    #[arg(
        long,
        value_name = "NAME|FILE",
        requires = "data",
        default_value = "imagenet-train"
    )]
    pub(crate) recipe: String,
    /// How pixels are computed
    #[arg(long, value_enum, requires = "data", default_value_t = NumericsArg::Both)]
    pub(crate) numerics: NumericsArg,
    /// What a decoder is given
    #[arg(
        long,
        value_enum,
        requires = "data",
        value_delimiter = ',',
        default_value = "first,index,store"
    )]
    pub(crate) form: Vec<FormArg>,
    /// Numbers of threads; by default 1, and one for each core
    #[arg(long, value_name = "N[,N...]", requires = "data", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Vec<u32>,
    /// When boxes are drawn: once, as for a program that is given them, or anew in every pass
    /// of the rates, as in the epochs of a run
    #[arg(long, value_enum, requires = "data", default_value_t = DrawArg::Once)]
    pub(crate) draw: DrawArg,
    /// What is measured
    #[arg(
        long,
        value_enum,
        requires = "data",
        value_delimiter = ',',
        default_value = "read,stages,rates"
    )]
    pub(crate) parts: Vec<PartArg>,
    /// Write what the recipe draws for each image, one JSON object per line
    #[arg(long, value_name = "FILE", requires = "data")]
    pub(crate) boxes: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchIoArgs {
    /// A data set; by default the demo's generated images
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Only the first N samples of the data set
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Seed of order and augmentation
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Passes over all records, in turns, after one that is not counted
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) passes: u32,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// How samples are read; by default both ways
    #[arg(long, value_enum, default_value_t = BenchReaderArg::Both)]
    pub(crate) reader: BenchReaderArg,
    /// Most reads on their way at once
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_value = "1,4,16,64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: Vec<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum NumericsArg {
    Exact,
    Planar,
    Both,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FormArg {
    /// A file as in a first epoch
    First,
    /// A file, with what an earlier visit left to know about it
    Index,
    /// What a store has of it
    Store,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DrawArg {
    Once,
    EveryPass,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PartArg {
    /// Opening and reading each file
    Read,
    /// One thread: time of an image, and of its stages
    Stages,
    /// Images per second by number of threads
    Rates,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum BenchReaderArg {
    #[value(name = "io_uring")]
    Uring,
    Pread,
    Both,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// A folder of class folders, a folder of CIFAR-10 binary batches, a .jsonl list, or a store
    #[arg(long, value_name = "PATH")]
    pub(crate) data: PathBuf,
    /// A built-in recipe or a recipe file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) recipe: String,
    /// Slots of a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_1())]
    pub(crate) batch_size: u32,
    /// Epochs to run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_1())]
    pub(crate) epochs: u32,
    /// Seed of order and augmentation
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Order of an epoch
    #[arg(long, value_enum, default_value_t = ShuffleArg::Full)]
    pub(crate) shuffle: ShuffleArg,
    /// Host worker threads
    #[arg(long, value_name = "auto|N", default_value = "auto")]
    pub(crate) workers: String,
    /// How samples are read
    #[arg(long, value_enum, default_value_t = ReaderArg::Auto)]
    pub(crate) reader: ReaderArg,
    /// Where what is learnt about images is kept from epoch to epoch
    #[arg(long, value_enum, default_value_t = SideIndexArg::Auto)]
    pub(crate) side_index: SideIndexArg,
    /// Whether data are read through the page cache
    #[arg(long, value_enum, default_value_t = PageCacheArg::Auto)]
    pub(crate) page_cache: PageCacheArg,
    /// Only the first N samples of the data set
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Run the data set K times in one epoch, with distinct sample ids
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = at_least_1())]
    pub(crate) repeat: u32,
    /// A device of the back: sim:PRESET[,key=value...], tcp://H:P, unix:///path, spool:///dir
    #[arg(long, value_name = "SPEC", action = ArgAction::Append)]
    pub(crate) csd: Vec<String>,
    /// Shared key of devices beyond this machine
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Who preprocesses what: ordered, relaxed, mte, wrr, cpu or csd
    #[arg(long, value_name = "NAME", default_value = "ordered")]
    pub(crate) strategy: String,
    /// What the epoch is run for: throughput, energy or host-cpu-cap=P (percent)
    #[arg(long, value_name = "GOAL", default_value = "throughput")]
    pub(crate) objective: String,
    /// What consumes batches: host, sim:NAME, sim:RATE (images per second)
    #[arg(long, value_name = "NAME", default_value = "host")]
    pub(crate) accelerator: String,
    /// Element type of delivered batches
    #[arg(long, value_enum, default_value_t = OutputArg::U8)]
    pub(crate) output: OutputArg,
    /// Order of dimensions of delivered batches
    #[arg(long, value_enum, default_value_t = LayoutArg::Nhwc)]
    pub(crate) layout: LayoutArg,
    /// This process's rank
    #[arg(long, value_name = "R", default_value_t = 0)]
    pub(crate) rank: u32,
    /// Number of ranks
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = at_least_1())]
    pub(crate) world: u32,
    /// A last, incomplete step: drop it, pad it with masked slots, wrap round, or deal it evenly
    #[arg(long, value_enum, default_value_t = LastArg::Pad)]
    pub(crate) last: LastArg,
    /// What happens to a sample that cannot be read or decoded
    #[arg(long, value_name = "POLICY", default_value = "raise")]
    pub(crate) on_bad: String,
    /// Recompute P% of the device batches on the host, to catch a device that lies
    #[arg(long, value_name = "P%", default_value = "0%")]
    pub(crate) audit: String,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    #[command(flatten)]
    pub(crate) energy: EnergyArgs,
    /// Measure each prong alone for so many seconds first; gives `efficiency`
    #[arg(long, value_name = "SECONDS")]
    pub(crate) measure_alone: Option<f64>,
    /// Most memory that batches may take on the host, in MiB: those that are made, wait or are
    /// with the consumer, their copies in the output's form, and what mixing keeps. A run that
    /// cannot do with it is refused. What workers and the reader keep for the samples they are at,
    /// the list of samples and the program come on top. By default 160 for batches as they are
    /// made, more where these need it, and what is needed for the rest
    #[arg(long, value_name = "MIB", value_parser = at_least_1())]
    pub(crate) memory: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StateArgs {
    /// Write the state here when the run stops or an epoch ends
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Go on from a state
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// End the run after so many batches of its first epoch
    #[arg(long, value_name = "BATCHES", value_parser = at_least_1())]
    pub(crate) stop_after: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ShuffleArg {
    None,
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ReaderArg {
    Auto,
    #[value(name = "io_uring")]
    Uring,
    Pread,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SideIndexArg {
    /// In the cache directory ($XDG_CACHE_HOME/bothends), 20 GiB of all data sets at most
    Auto,
    /// Beside the data, for storage that several machines share
    Beside,
    /// Neither read nor written
    Off,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PageCacheArg {
    /// Through it when the data set takes at most half of the memory that is available
    Auto,
    /// Through it
    Through,
    /// Past it, where the file system allows that (O_DIRECT)
    Past,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OutputArg {
    U8,
    F32,
    F16,
    Bf16,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LayoutArg {
    Nhwc,
    Nchw,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LastArg {
    Drop,
    Pad,
    Wrap,
    Even,
}

fn samples(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").map(|(start, end)| (start.parse(), end.parse()));
    match ends {
        Some((Ok(start), Ok(end))) => Ok(start..end),
        _ => Err("expected two numbers, as in 0..1000".to_owned()),
    }
}

fn at_least_1() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
