//! The flags as they are typed. Names and defaults are stable: scripts depend
//! on them. What they mean together is decided in `commands`.

pub(crate) mod bench;
pub(crate) mod describe;
pub(crate) mod run;
pub(crate) mod security;
pub(crate) mod show;
pub(crate) mod simulate;
mod words;

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::OnceLock;

use bothends_runtime::{PageCacheUse, without_secrets};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use bench::BenchArgs;
use describe::{CompletionsArgs, ManArgs};
use run::RunArgs;
use security::SecurityArgs;
use show::{ReportArgs, TopArgs};
use simulate::SimulateArgs;
use words::{PAGE_CACHES, at_least_1, one_of};

use crate::flags;
use crate::say::Talk;

/// The accelerator that a verdict is about if none is given.
pub(crate) const ACCELERATOR: &str = "resnet50-a100";

const EXAMPLES: &str = "\
Examples:
  bothends demo
  bothends run --data /data/train --recipe imagenet-train
  bothends doctor --data /data/train
  bothends run --help";

static TYPED: OnceLock<String> = OnceLock::new();

const DOCTOR_EXAMPLES: &str = "\
Examples:
  What this machine has, without measuring anything:
    bothends doctor
  What limits a job that trains ResNet-50 on an A100, and whether to buy a device:
    bothends doctor --data /data/train --accelerator sim:resnet50-a100
  The same for an accelerator that takes 4,000 images/s and one kind of device:
    bothends doctor --data /data/train --accelerator sim:4000 --csd sim:newport
  Kept for `bothends simulate --plan`:
    bothends doctor --data /data/train --json doctor.json";

const UPLOAD_EXAMPLES: &str = "\
Examples:
  Class folders into a Cassandra table, which is created if it does not exist:
    CASSANDRA_USERNAME=me CASSANDRA_PASSWORD=... \\
      bothends upload /data/train cql://db1,db2/imagenet/train
  The samples of tar shards as objects, with a list of their labels:
    bothends upload /data/shards s3://bucket/train
    bothends run --data s3://bucket/train/samples.jsonl --recipe imagenet-train

Objects that are there with the same length are skipped, so an interrupted upload continues.";

const CONFORM_EXAMPLES: &str = "\
Examples:
  A device on this machine that serves /data:
    bothends conform unix:///run/device.sock --data /data
  A device elsewhere, after copying the test files into its data root:
    bothends conform --write /tmp
    scp -r /tmp/bothends-conform nas:/data/
    bothends conform tcp+noise://nas:7070 --key-file shared.key";

/// Feeds deep-learning accelerators from both ends of an epoch.
#[derive(Debug, Parser)]
#[command(name = "bothends", version, max_term_width = 100, after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print only results and errors: no progress, no notes
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Print each step on its own line, with the time
    #[arg(long, short, global = true)]
    verbose: bool,
}

impl Args {
    /// How much is printed.
    pub(crate) fn talk(&self) -> Talk {
        match (self.quiet, self.verbose) {
            (true, _) => Talk::Quiet,
            (_, true) => Talk::Verbose,
            (false, false) => Talk::Usual,
        }
    }
}

/// The command line as a shell takes it, for the records of a run.
pub(crate) fn typed() -> &'static str {
    TYPED.get().map_or("", String::as_str)
}

/// Reads the command line, once per process.
pub(crate) fn parse(line: Vec<OsString>) -> Result<Args, clap::Error> {
    TYPED.get_or_init(|| for_shell(&line));
    let mut command = negative(Args::command());
    let matches = command.try_get_matches_from_mut(line)?;
    flags::take_command(&command, &matches);
    Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Words as a POSIX shell has to be given them, each in quotes only if it needs them.
fn for_shell(line: &[OsString]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=,@%+".contains(c);
    let words = line.iter().map(|word| {
        let word = without_login(&word.to_string_lossy());
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A word without the login of a URL in it: records of a run are made to be shown to others.
fn without_login(word: &str) -> String {
    let Some(at) = word.find("://") else { return word.to_owned() };
    let is_scheme = |c: char| c.is_ascii_alphanumeric();
    let from = word[..at].trim_end_matches(is_scheme).len();
    // As a part of a mix, a URL has its weight behind it.
    let until = word[at..].find(",weight=").map_or(word.len(), |len| at + len);
    let (before, url, behind) = (&word[..from], &word[from..until], &word[until..]);
    format!("{before}{}{behind}", without_secrets(url))
}

/// A negative number is a value, which its flag can then refuse by name, rather than a flag.
fn negative(command: clap::Command) -> clap::Command {
    let names: Vec<String> =
        command.get_subcommands().map(|of| of.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    names.into_iter().fold(command, |command, of| command.mut_subcommand(of, negative))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run every strategy on generated images: a table, summary.json, report.html
    Demo(DemoArgs),
    /// Run epochs over a data set
    Run(Box<RunArgs>),
    /// Measure this machine: what limits a job, and whether a device would pay
    Doctor(DoctorArgs),
    /// Show what a data set or a recipe is; check a store for damage
    Inspect(InspectArgs),
    /// Measure ops, decoding and reading separately
    Bench(BenchArgs),
    /// Compare strategies in virtual time, from models alone: no data, no devices
    Simulate(SimulateArgs),
    /// Pack a data set into a store, which is faster to read and lossless
    Pack(PackArgs),
    /// Restore the original files of a store
    Unpack(UnpackArgs),
    /// Write the samples of a data set in another tool's format
    Convert(ConvertArgs),
    /// Copy the samples of a data set into a remote store
    Upload(UploadArgs),
    /// Check a device against the protocol, with a verdict for each clause of docs/wire.md
    Conform(ConformArgs),
    /// Make the report of a run from its event file
    Report(ReportArgs),
    /// Show live what agents and jobs are doing, from their metrics
    Top(TopArgs),
    /// Print shell completions for the three programs (bash, zsh, fish and others)
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
    /// Use fewer images and shorter epochs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Use this data set instead of generated images
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// The emulated device next to the data
    #[arg(long, value_name = "SPEC", default_value = "sim:newport,rate=0.235x")]
    pub(crate) csd: String,
    /// The accelerator; by default, an emulated one that consumes 1.5 times what the host makes
    #[arg(long, value_name = "NAME")]
    pub(crate) accelerator: Option<String>,
    /// Host workers; by default, one core is left to the emulated device
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// The data set to measure on; without it, nothing is measured
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// A built-in recipe or a recipe file
    #[arg(long, value_name = "NAME|FILE", default_value = "imagenet-train")]
    pub(crate) recipe: String,
    /// Samples per batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_1())]
    pub(crate) batch_size: u32,
    /// Host worker threads (may repeat); by default, 1 and then one per core
    #[arg(long, value_name = "N", action = ArgAction::Append, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) workers: Vec<u32>,
    /// The accelerator to feed: sim:NAME, sim:RATE (images per second), or host, which takes everything at
    /// once (the verdict is then about resnet50-a100)
    #[arg(long, value_name = "SPEC", default_value = "host")]
    pub(crate) accelerator: String,
    /// A device to measure (may repeat), as in `run`; by default, one of each preset, emulated
    #[arg(long, value_name = "SPEC", action = ArgAction::Append, requires = "data")]
    pub(crate) csd: Vec<String>,
    /// How the job reads: through the page cache, past it, or depending on the size of the data
    #[arg(long, value_parser = one_of(PAGE_CACHES), default_value = "auto")]
    pub(crate) page_cache: PageCacheUse,
    /// Measure only the host
    #[arg(long, conflicts_with = "csd")]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Write the findings as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// A data set, a recipe file, or the name of a built-in recipe
    pub(crate) path: String,
    /// Of a store: read all of it and name every damaged record; status 1 if there is one
    #[arg(long, conflicts_with = "sheet")]
    pub(crate) verify: bool,
    /// Of a recipe: write a contact sheet (HTML) of samples made with it
    #[arg(long, value_name = "FILE.html")]
    pub(crate) sheet: Option<PathBuf>,
    /// The samples for the sheet; without it, images are generated
    #[arg(long, requires = "sheet", conflicts_with = "verify")]
    pub(crate) data: Option<PathBuf>,
    /// How many samples the sheet shows, or all if there are fewer
    #[arg(long, requires = "sheet", conflicts_with = "verify", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) samples: u32,
    /// How many times each is made, each time in another epoch
    #[arg(long, requires = "sheet", conflicts_with = "verify", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) epochs: u32,
    /// Seed of the random numbers
    #[arg(long, requires = "sheet", conflicts_with = "verify", default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PackArgs {
    /// A data set; or stores, whose records are copied unchanged
    #[arg(value_name = "SRC", required = true)]
    pub(crate) sources: Vec<PathBuf>,
    /// The store's folder: new, or left by an interrupted attempt to pack the same, which then continues
    #[arg(value_name = "DST")]
    pub(crate) store: PathBuf,
    /// Add to an existing store
    #[arg(long)]
    pub(crate) append: bool,
    /// Of stores: only the samples from A up to but not including B
    #[arg(long, value_name = "A..B", value_parser = samples)]
    pub(crate) samples: Option<Range<u64>>,
    /// Most bytes per shard
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(4096..=1 << 43))]
    pub(crate) shard_bytes: u64,
    /// Threads that make records; by default, one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnpackArgs {
    /// A store
    #[arg(value_name = "SRC")]
    pub(crate) store: PathBuf,
    /// Where the files go: a folder that is empty or does not exist
    #[arg(value_name = "DST")]
    pub(crate) folder: PathBuf,
    /// Threads that make files; by default, one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// A data set or a store
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// The new file; its extension sets the format: NAME.msgpack for datadings
    #[arg(value_name = "DST")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = UPLOAD_EXAMPLES)]
pub(crate) struct UploadArgs {
    /// A data set, here or in another remote store, or a store of this machine that `pack` made
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// The destination: cql://HOST/KEYSPACE/TABLE, s3://BUCKET/PREFIX, gs://, az:// or
    /// redis://HOST/DB?prefix=PREFIX (rediss:// with TLS)
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Write nothing; only count what exists and what would be written
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = CONFORM_EXAMPLES)]
pub(crate) struct ConformArgs {
    /// The device: tcp+noise://HOST:PORT, tls://HOST:PORT, tcp://HOST:PORT, unix:///PATH or
    /// spool:///DIRECTORY
    #[arg(value_name = "ADDRESS", required_unless_present = "write")]
    pub(crate) address: Option<String>,
    /// The folder that the device serves, if it is on this machine: test files are written below it and
    /// removed afterwards
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Only write the test files, to be copied into the data root of a device elsewhere
    #[arg(long, value_name = "DIR", conflicts_with_all = REACHING)]
    pub(crate) write: Option<PathBuf>,
}

/// Flags of `conform` that reach a device.
const REACHING: [&str; 7] =
    ["address", "data", "key_file", "tls_ca", "tls_cert", "tls_key", "insecure"];

fn samples(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").map(|(start, end)| (start.parse(), end.parse()));
    match ends {
        Some((Ok(start), Ok(end))) => Ok(start..end),
        _ => Err("expected two numbers, as in 0..1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        negative(Args::command()).debug_assert();
    }

    #[test]
    fn the_command_line_is_kept_without_logins() {
        let line = [
            "bothends",
            "--data=redis://u:SECRET@h:1/0?prefix=a/",
            "a=cql://u:SECRET@h/k/t,weight=2",
            "http://SECRET@h:4318",
            "/data/it's",
            "s3://b/x",
        ];
        let line = line.map(OsString::from);
        assert_eq!(
            for_shell(&line),
            "bothends '--data=redis://h:1/0?prefix=a/' a=cql://h/k/t,weight=2 http://h:4318 \
             '/data/it'\\''s' s3://b/x"
        );
    }

    /// What makes a command refuse these words.
    fn refusal(words: &str) -> Option<ErrorKind> {
        let words = std::iter::once("bothends").chain(words.split(' '));
        let parsed = negative(Args::command()).try_get_matches_from(words);
        parsed.err().map(|error| error.kind())
    }

    #[test]
    fn a_flag_whose_own_mode_is_in_conflict_is_refused_with_it() {
        for words in [
            "bench ops resize --boxes nb.jsonl",
            "bench ops --rounds 1 --limit 5",
            "bench ops --image a.jpg --recipe nosuch",
            "bench ops --peers python3 --threads 3",
            "bench ops resize --seed 1",
            "bench ops resize --passes 2",
            "bench ops resize --numerics exact",
            "bench ops resize --form store",
            "bench ops resize --draw once",
            "bench ops resize --parts read",
            "bench ops --data d --peers-script ops.py",
            "simulate --scenario steady --strategy cpu --doctor doc.json --count 1",
            "simulate --scenario steady --doctor doc.json",
            "simulate --scenario steady --preset newport",
            "simulate --scenario steady --count 1",
            "simulate --config own.json --accelerator 100",
            "simulate --scenario steady --workers 2",
            "simulate --scenario steady --pool",
            "simulate --scenario steady --jobs 3",
            "simulate --list --agent-price 1",
            "simulate --doctor doc.json --list --count 3",
            "simulate --plan --doctor doc.json --count 1 --jobs 3",
            "simulate --plan --doctor doc.json --count 1 --agent-price 3",
            "inspect store --verify --samples 3",
            "inspect store --verify --data d",
            "conform --write d --insecure",
            "conform --write d --tls-ca a --tls-cert b --tls-key c",
        ] {
            assert_eq!(refusal(words), Some(ErrorKind::ArgumentConflict), "{words}");
        }
        for words in [
            "bench ops resize --rounds 1",
            "bench ops --data d --limit 5 --boxes nb.jsonl",
            "simulate --scenario steady --strategy cpu",
            "simulate --plan --doctor doc.json --count 1 --workers 2",
            "simulate --plan --pool --doctor doc.json --jobs 3 --agent-price 1",
            "inspect raw --sheet s.html --samples 3",
        ] {
            assert_eq!(refusal(words), None, "{words}");
        }
    }

    #[test]
    fn a_command_can_be_given_to_a_shell_as_it_is_shown() {
        let line = ["bothends", "inspect", "sp ace dir/it's", "", "x=1,y=%2", "a*", "é"];
        let line = line.map(OsString::from);
        let shown = for_shell(&line);
        assert_eq!(shown, r"bothends inspect 'sp ace dir/it'\''s' '' x=1,y=%2 'a*' é");
        let script = format!("printf '%s\\n' {shown}");
        let said = std::process::Command::new("sh").args(["-c", &script]).output();
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        assert!(
            said.lines().eq(line.iter().map(|word| word.to_str().unwrap())),
            "{said}"
        );
    }
}
