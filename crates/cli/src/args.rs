//! The flags as they are typed. Names and defaults are stable: scripts depend
//! on them. What they mean together is decided in `commands`.

pub(crate) mod bench;
pub(crate) mod describe;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod simulate;
mod words;

use std::ops::Range;
use std::path::PathBuf;

use bothends_runtime::PageCacheUse;
use clap::{ArgAction, Parser, Subcommand};

use bench::BenchArgs;
use describe::{CompletionsArgs, ManArgs};
use run::RunArgs;
use show::ReportArgs;
use simulate::SimulateArgs;
use words::{PAGE_CACHES, at_least_1, one_of};

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
    /// Completions of the three programs for bash, zsh, fish and others
    Completions(CompletionsArgs),
    /// Write man pages and completions for a package
    #[command(hide = true)]
    Man(ManArgs),
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
    #[arg(long, value_parser = one_of(PAGE_CACHES), default_value = "auto")]
    pub(crate) page_cache: PageCacheUse,
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

fn samples(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").map(|(start, end)| (start.parse(), end.parse()));
    match ends {
        Some((Ok(start), Ok(end))) => Ok(start..end),
        _ => Err("expected two numbers, as in 0..1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
