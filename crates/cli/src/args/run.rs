//! The flags of `bothends run`, in groups. `-h` shows those that most runs need, `--help` all. What
//! they mean together is decided in `commands/run.rs`.

use std::ffi::OsString;
use std::path::PathBuf;

use bothends_core::plan::{LastPolicy, Shuffle};
use bothends_core::select::StrategyConfig;
use bothends_core::tensor::{Dtype, Layout};
use bothends_runtime::{CheckpointEvery, PageCacheUse, ReaderKind, SideIndexUse};
use clap::ArgAction;

use super::security::SecurityArgs;
use super::show::ShowArgs;
use super::words::{
    DTYPES, LASTS, LAYOUTS, PAGE_CACHES, READERS, SHUFFLES, SIDE_INDICES, at_least_1,
    one_of,
};

const EXAMPLES: &str = "\
Examples:
  One epoch, preprocessed by the host alone:
    bothends run --data /data/train --recipe imagenet-train
  With a second prong: an emulated drive that decodes what it stores:
    bothends run --data /data/train --recipe imagenet-train --csd sim:newport
  With a device on another machine, and a report to look at afterwards:
    bothends run --data /mnt/nas/train --recipe imagenet-train \\
      --csd tcp+noise://nas:7070 --key-file shared.key --report run.html
  Stop it and resume at the exact sample:
    bothends run --data /data/train --recipe imagenet-train --epochs 90 \\
      --checkpoint state.json --checkpoint-every 5m
    bothends run --data /data/train --recipe imagenet-train --epochs 90 \\
      --resume state.json";

fn strategies() -> String {
    format!("Which prong preprocesses which batches: {}", StrategyConfig::names())
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) consumer: ConsumerArgs,
    #[command(flatten)]
    pub(crate) ranks: RankArgs,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    #[command(flatten)]
    pub(crate) energy: EnergyArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// Class folders, a store, shards, CIFAR-10 batches, a .jsonl list, or the URL of any (s3://bucket/prefix);
    /// NAME=PATH[,weight=W], several times, mixes them
    ///
    /// Shards are those of WebDataset, MDS, TFRecord, Parquet, Arrow, LitData, datadings, HDF5 and FFCV.
    ///
    /// Every batch has samples of each data set in proportion to the weights (by default 1). Devices look
    /// for the files of a data set below a folder with its name, or below the data root given for it:
    /// --data-root NAME=DIR.
    #[arg(long, value_name = "[NAME=]PATH", required = true, action = ArgAction::Append)]
    pub(crate) data: Vec<OsString>,
    /// When an epoch of a mix ends: first (a data set is exhausted), all (all are), or after N samples
    /// [default: first]
    ///
    /// With all, exhausted data sets begin again. With a number, each continues in the next epoch where it
    /// stopped.
    #[arg(long, value_name = "first|all|N", hide_short_help = true)]
    pub(crate) mix_stop: Option<String>,
    /// Draw the samples of each data set of a mix with replacement
    #[arg(long, hide_short_help = true)]
    pub(crate) mix_replacement: bool,
    /// Labels of a mix: merge (one class per class name), keep, or offset (separate classes)
    /// [default: merge]
    #[arg(long, value_name = "merge|keep|offset", hide_short_help = true)]
    pub(crate) mix_labels: Option<String>,
    /// A built-in recipe or a recipe file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) recipe: String,
    /// Samples per batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_1())]
    pub(crate) batch_size: u32,
    /// Epochs to run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_1())]
    pub(crate) epochs: u32,
    /// Seed of order and augmentation
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Order of an epoch
    #[arg(long, value_parser = one_of(SHUFFLES), default_value = "full", hide_short_help = true)]
    pub(crate) shuffle: Shuffle,
    /// Further fields, besides image and label, to deliver with batches; `bothends inspect` lists them
    ///
    /// NAME:text and NAME:bytes say how to interpret the bytes of a field.
    #[arg(
        long,
        value_name = "NAME[,NAME...]",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub(crate) fields: Vec<String>,
    /// Use only the first N samples of the data set
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Run the data set K times in one epoch, with distinct sample ids
    #[arg(long, value_name = "K", default_value_t = 1, hide_short_help = true, value_parser = at_least_1())]
    pub(crate) repeat: u32,
    /// What happens to a sample that cannot be read or decoded: raise, skip, replace or zero
    #[arg(long, value_name = "POLICY", default_value = "raise", hide_short_help = true)]
    pub(crate) on_bad: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Host")]
pub(crate) struct HostArgs {
    /// Worker threads; auto: one per CPU that this process may use
    ///
    /// If a launcher (torchrun, Slurm, MPI) runs several ranks on this machine, auto divides the CPUs among
    /// them. If there is no launcher, but MASTER_ADDR and MASTER_PORT are set, it counts the processes that
    /// were started with the same ones, and waits up to three seconds for them.
    #[arg(long, value_name = "auto|N", default_value = "auto")]
    pub(crate) workers: String,
    /// Which prong preprocesses which batches
    #[arg(long, value_name = "NAME", default_value = "ordered", help = strategies())]
    pub(crate) strategy: String,
    /// What to optimise: throughput, energy or host-cpu-cap=P (percent)
    #[arg(
        long,
        value_name = "GOAL",
        default_value = "throughput",
        hide_short_help = true
    )]
    pub(crate) objective: String,
    /// How samples are read
    ///
    /// With auto, a thread keeps many reads in flight with io_uring where the kernel allows that, and pread elsewhere;
    /// workers read samples that are in the page cache themselves.
    #[arg(long, value_parser = one_of(READERS), default_value = "auto", hide_short_help = true)]
    pub(crate) reader: ReaderKind,
    /// Where the side index, which makes later epochs cheaper, is kept
    #[arg(long, value_parser = one_of(SIDE_INDICES), default_value = "auto", hide_short_help = true)]
    pub(crate) side_index: SideIndexUse,
    /// Whether to read data through the page cache
    #[arg(long, value_parser = one_of(PAGE_CACHES), default_value = "auto", hide_short_help = true)]
    pub(crate) page_cache: PageCacheUse,
    /// Limit for JPEGs that are transcoded while the host is idle: auto, off, or a size such as 50G
    ///
    /// Idle workers transcode each JPEG into the blocks of a store, from which a crop is decoded in little
    /// more than half the time. The blocks are kept in the cache directory ($XDG_CACHE_HOME/bothends) and
    /// take 1.35 times the space of the files. Nothing is written if the disk does not have twice that
    /// space. With auto, the cache grows only for data on other machines that fit in as a whole, within 64
    /// GiB and on a local disk. What is in it is used in any case.
    ///
    /// With --cache, the limit applies to that directory; for remote data, to the records kept there, and
    /// auto is 64 GiB.
    #[arg(
        long,
        value_name = "auto|off|SIZE",
        default_value = "auto",
        hide_short_help = true
    )]
    pub(crate) cache_size: String,
    /// Of remote data: the most requests in flight
    ///
    /// Within it, only as many are in flight as raise throughput. From 1 to 4096; by default, 256.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = at_least_1())]
    pub(crate) fetch_requests: Option<u32>,
    /// Of remote data: the most bytes requested and not yet handed to workers, such as 256M
    ///
    /// A quarter of it may be in flight (with --fetch-requests, all of it). The rest is for records that
    /// arrive earlier than those needed first. It is part of --memory; the default is a quarter of that, or
    /// depends on the available memory.
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    pub(crate) fetch_reorder: Option<String>,
    /// Of remote data: how long a store that has answered before may be gone before the run ends
    ///
    /// Requests are sent again until then, less and less often. At the start, before its first answer, a store
    /// has 10 s. By default, 120 s; keep it below the timeout of collectives between ranks.
    #[arg(long, value_name = "SECONDS", hide_short_help = true, value_parser = at_least_1())]
    pub(crate) fetch_patience: Option<u32>,
    /// Directory in which records fetched from a remote store are kept for later epochs
    ///
    /// Records in it are read from the local disk instead of being fetched again, by this run, by others at
    /// the same time, and by later ones. Each record has a checksum, and is used only as long as its object
    /// is unchanged. --cache-size sets the limit, by default 64 GiB; nothing is added to a full cache. For data
    /// on this machine, it holds the block cache. Shards that are compressed are decompressed into it, without a
    /// limit (with --cache-size off, they are refused). The directory may be deleted whenever no run uses it.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) cache: Option<PathBuf>,
    /// Most memory that batches may take on the host, in MiB
    ///
    /// It covers batches that are being made, are waiting or are with the consumer, their copies in the
    /// output format, and what mixing keeps; a run that needs more is refused. Decoding may take as much
    /// again in all workers together: images wait for each other, and one that needs more by itself is a
    /// bad sample. The reader's buffers, the list of samples and the program come on top.
    ///
    /// The default is as much as is useful, up to an eighth of the memory available to this process (at
    /// least 160, within a quarter), or up to a quarter if the slots of devices need it. Decoding may then
    /// take another quarter. By default, and with devices, a bad sample is one that needs more than 1 GiB.
    /// Memory that no batch has needed yet is not allocated.
    #[arg(long, value_name = "MIB", hide_short_help = true, value_parser = at_least_1())]
    pub(crate) memory: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Devices: the second prong")]
pub(crate) struct DeviceArgs {
    /// A device (may repeat): sim:PRESET[,key=value...], tcp+noise://HOST:PORT,
    /// tls://HOST:PORT, unix:///PATH, spool:///DIRECTORY, nvme-tcp://HOST:PORT (a drive),
    /// cuda:N (a GPU), pool://HOST:PORT,...
    ///
    /// PRESET is a built-in one (newport, smartssd, ...) or a preset file. Its keys are rate (0.5x of the host's,
    /// or images per second), cores, time (paced or functional), pin (a CPU), via (unix, tcp or spool) and
    /// fault, which may repeat.
    ///
    /// tcp://HOST:PORT is for agents on this machine. nvme-tcp://HOST:PORT[/NQN] is a drive that runs
    /// programs, without an agent on it; nvme:///dev/ngXnY is such a drive in this machine. A pool's
    /// members come and go while the epoch runs: pool://HOST:PORT,... lists them, pool+file:///PATH has one
    /// address per line, pool+dns://HOST:PORT is all addresses of a name, and pool+registry://HOST:PORT,...
    /// are those that announce themselves to one of these agents.
    #[arg(long, value_name = "SPEC", action = ArgAction::Append)]
    pub(crate) csd: Vec<String>,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Fail if a device cannot be reached, or refuses, at the start
    ///
    /// Without it, the run continues, and a device that is not emulated is retried until it is there.
    #[arg(long, hide_short_help = true)]
    pub(crate) require_devices: bool,
    /// Recompute rows of P% of the device batches on the host, to catch a device that lies [default: 1%]
    ///
    /// For every device that reads its own copy of the data (all but GPUs), the first batch is recomputed as
    /// a whole in any case, as are rows of the second batch. Unless P is 0, rows of at least two batches of
    /// each device are recomputed in every epoch, unless it makes far fewer than in the epoch before. 100%
    /// recomputes everything. A device that returns wrong samples is no longer used; if other batches from
    /// it have already been delivered, the run ends.
    #[arg(long, value_name = "P%", hide_short_help = true)]
    pub(crate) audit: Option<String>,
    /// Name of the training job, for agents shared by several jobs; all of its ranks give the same name
    ///
    /// Jobs that need batches at the same time get an agent's workers in proportion to --share and
    /// --priority. A process without a job name is a job by itself.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) job: Option<String>,
    /// Priority of the job, -4 to 4: each step doubles its part of an agent [default: 0]
    #[arg(
        long,
        value_name = "N",
        hide_short_help = true,
        requires = "job",
        allow_negative_numbers = true
    )]
    pub(crate) priority: Option<i64>,
    /// Share of the job, 1 to 100, relative to the shares of other jobs [default: 1]
    #[arg(long, value_name = "W", hide_short_help = true, requires = "job")]
    pub(crate) share: Option<u64>,
    /// First measure each prong alone for this many seconds; gives `efficiency`
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub(crate) measure_alone: Option<f64>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Consumer")]
pub(crate) struct ConsumerArgs {
    /// The consumer of batches: host, sim:NAME, sim:RATE (images per second)
    #[arg(long, value_name = "NAME", default_value = "host")]
    pub(crate) accelerator: String,
    /// Element type of delivered batches
    #[arg(long, value_parser = one_of(DTYPES), default_value = "u8")]
    pub(crate) output: Dtype,
    /// Order of dimensions of delivered batches
    #[arg(long, value_parser = one_of(LAYOUTS), default_value = "nhwc", hide_short_help = true)]
    pub(crate) layout: Layout,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct RankArgs {
    /// This process's rank
    #[arg(long, value_name = "R", default_value_t = 0, hide_short_help = true)]
    pub(crate) rank: u32,
    /// Number of ranks
    #[arg(long, value_name = "W", default_value_t = 1, hide_short_help = true, value_parser = at_least_1())]
    pub(crate) world: u32,
    /// An incomplete last step: drop it, pad it with masked rows, wrap around, or split it evenly
    #[arg(long, value_parser = one_of(LASTS), default_value = "pad", hide_short_help = true)]
    pub(crate) last: LastPolicy,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Checkpoints")]
pub(crate) struct StateArgs {
    /// Write the state here when the run ends or is stopped by a signal, and after each epoch
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Also write it during an epoch: every N batches, or at an interval (30s, 5m, 1h)
    ///
    /// A run that is killed resumes from there.
    #[arg(long, value_name = "N|TIME", requires = "checkpoint", hide_short_help = true)]
    pub(crate) checkpoint_every: Option<CheckpointEvery>,
    /// Resume from a state
    ///
    /// It must be the unchanged file, byte for byte, from a run with the same data, recipe, batch size,
    /// seed and strategy. A file of version 1, which has no checksum, is read with a note.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// End the run after this many batches of its first epoch
    #[arg(long, value_name = "BATCHES", hide_short_help = true, value_parser = at_least_1())]
    pub(crate) stop_after: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Energy")]
pub(crate) struct EnergyArgs {
    /// An energy meter (may repeat): auto, rapl, perf, nvml, hwmon, hwmon:CHIP or command:PROGRAM
    ///
    /// auto takes every meter that can be read here; the program of command:PROGRAM ARGS prints watts.
    #[arg(long = "energy", value_name = "SPEC", action = ArgAction::Append, default_value = "auto", hide_short_help = true)]
    pub(crate) meters: Vec<String>,
    /// The profile that models unmetered energy: a built-in one or a file
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "default",
        hide_short_help = true
    )]
    pub(crate) energy_profile: String,
    /// First meter the idle machine for this many seconds, at least 1; gives figures net of idle
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub(crate) energy_idle: Option<f64>,
}
