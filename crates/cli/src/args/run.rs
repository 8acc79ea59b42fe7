//! The flags of `bothends run`. What they mean together is decided in `commands/run.rs`.

use std::path::PathBuf;

use bothends_core::plan::{LastPolicy, Shuffle};
use bothends_core::tensor::{Dtype, Layout};
use bothends_runtime::{CheckpointEvery, PageCacheUse, ReaderKind, SideIndexUse};
use clap::ArgAction;

use super::show::ShowArgs;
use super::words::{
    DTYPES, LASTS, LAYOUTS, PAGE_CACHES, READERS, SHUFFLES, SIDE_INDICES, at_least_1,
    one_of,
};

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// A folder of class folders, a folder of CIFAR-10 binary batches, a .jsonl list, or a store
    #[arg(long, value_name = "PATH")]
    pub(crate) data: PathBuf,
    /// A built-in recipe or a recipe file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) recipe: String,
    /// Samples of a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_1())]
    pub(crate) batch_size: u32,
    /// Epochs to run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_1())]
    pub(crate) epochs: u32,
    /// Seed of order and augmentation
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Order of an epoch
    #[arg(long, value_parser = one_of(SHUFFLES), default_value = "full")]
    pub(crate) shuffle: Shuffle,
    /// Host worker threads; auto: one for each processor that this process may use, divided by
    /// the ranks that its launcher (torchrun, Slurm, MPI) runs on this machine
    #[arg(long, value_name = "auto|N", default_value = "auto")]
    pub(crate) workers: String,
    /// How samples are read
    #[arg(long, value_parser = one_of(READERS), default_value = "auto")]
    pub(crate) reader: ReaderKind,
    /// Where what is learnt about images is kept from epoch to epoch
    #[arg(long, value_parser = one_of(SIDE_INDICES), default_value = "auto")]
    pub(crate) side_index: SideIndexUse,
    /// Whether data are read through the page cache
    #[arg(long, value_parser = one_of(PAGE_CACHES), default_value = "auto")]
    pub(crate) page_cache: PageCacheUse,
    /// Only the first N samples of the data set
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Run the data set K times in one epoch, with distinct sample ids
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = at_least_1())]
    pub(crate) repeat: u32,
    /// A device of the back: sim:PRESET[,key=value...], tcp://H:P, unix:///path, spool:///dir,
    /// cuda:N (a GPU of this machine, which decodes and crops)
    #[arg(long, value_name = "SPEC", action = ArgAction::Append)]
    pub(crate) csd: Vec<String>,
    /// End the run where a device is missing at its start: cannot be reached, or refuses. Without
    /// it the run goes on, and a device that is no sim: is tried again until it is there
    #[arg(long)]
    pub(crate) require_devices: bool,
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
    #[arg(long, value_parser = one_of(DTYPES), default_value = "u8")]
    pub(crate) output: Dtype,
    /// Order of dimensions of delivered batches
    #[arg(long, value_parser = one_of(LAYOUTS), default_value = "nhwc")]
    pub(crate) layout: Layout,
    /// This process's rank
    #[arg(long, value_name = "R", default_value_t = 0)]
    pub(crate) rank: u32,
    /// Number of ranks
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = at_least_1())]
    pub(crate) world: u32,
    /// A last, incomplete step: drop it, pad it with masked rows, wrap round, or deal it evenly
    #[arg(long, value_parser = one_of(LASTS), default_value = "pad")]
    pub(crate) last: LastPolicy,
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
    /// cannot do with it is refused. Decoding may take as much again, all workers together: images
    /// wait for each other, and one that alone needs more is a bad sample (with devices, one that
    /// needs more than 1 GiB). The reader's buffers, the list of samples and the program come on
    /// top. By default
    /// as much as is useful, up to an eighth of what is available to this process (160 at least,
    /// within a quarter);
    /// memory that no batch has needed yet is not taken
    #[arg(long, value_name = "MIB", value_parser = at_least_1())]
    pub(crate) memory: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StateArgs {
    /// Write the state here when the run stops, a signal stops it, or an epoch ends
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Write it also while an epoch runs: every N batches, or after a time, as 30s, 5m, 1h. A run
    /// that is killed goes on from there
    #[arg(long, value_name = "N|TIME", requires = "checkpoint")]
    pub(crate) checkpoint_every: Option<CheckpointEvery>,
    /// Go on from a state. It must be the file as it was written, byte for byte, of a run of the
    /// same data, recipe, batch size, seed and strategy; one of version 1, which has no checksum,
    /// is read with a note
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// End the run after so many batches of its first epoch
    #[arg(long, value_name = "BATCHES", value_parser = at_least_1())]
    pub(crate) stop_after: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EnergyArgs {
    /// A meter of energy (may repeat): auto (all that may be read here), rapl, perf, nvml, hwmon,
    /// hwmon:CHIP, or command:PROGRAM ARGS, which prints watts
    #[arg(long = "energy", value_name = "SPEC", action = ArgAction::Append, default_value = "auto")]
    pub(crate) meters: Vec<String>,
    /// What models energy that nobody meters: a built-in profile or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "default")]
    pub(crate) energy_profile: String,
    /// Meter the idle machine for so many seconds first; gives figures net of idle
    #[arg(long, value_name = "SECONDS")]
    pub(crate) energy_idle: Option<f64>,
}
