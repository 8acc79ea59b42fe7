//! `bothends-agent`: serves batches of the data set beside it to one host after the other.
//!
//! Only arguments and exit status are here; the rest of this crate does the work, and the package
//! `bothends` has the program. Exit status: 0 after an
//! orderly end, 1 when it cannot serve, 2 for bad arguments.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the front door")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use bothends_csd::key::Key;
use bothends_csd::{Address, Insecure, Security, TlsFiles};
use bothends_side_index::{CACHE_LIMIT_BYTES, Cache};
use clap::builder::{BoolishValueParser, TypedValueParser};
use clap::{ArgAction, Command, CommandFactory, Parser, Subcommand};

use crate::door::{Door, Visits};
use crate::{FileStore, Memory, NoCosts, Server, ServerConfig, stop};

/// Serves preprocessed batches of the data set beside this program.
#[derive(Debug, Parser)]
#[command(
    name = "bothends-agent",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Line {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    serve: Option<Args>,
}

/// What it can do besides serving.
#[derive(Debug, Subcommand)]
enum Other {
    /// Makes a file with a new random key, for this agent and its hosts. Never replaces one
    Keygen {
        /// The file to make; its owner alone can read it
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Args {
    /// Where hosts connect: tcp+noise://HOST:PORT (encrypted with --key-file), tls://HOST:PORT
    /// (with --tls-ca, --tls-cert and --tls-key), tcp://HOST:PORT (this machine only),
    /// unix:///PATH (this user, unless there is a key) or spool:///DIRECTORY
    #[arg(long, value_name = "URL")]
    listen: Address,
    /// The folder that holds the data set, as it is on the host
    #[arg(long, value_name = "DIR")]
    data_root: PathBuf,
    /// Worker threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,
    /// Batches accepted before one is finished
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// Most memory that batches may take, in MiB, or auto: as many of the slots as fit into it are
    /// used, and a host whose batches do not fit is refused. It is all for the one host that is
    /// served at a time; two batches are enough to make one while another is sent. What workers
    /// keep for the samples they are at and the list of samples come on top. auto is a quarter of
    /// what is available on this machine when a host comes, and one batch always
    #[arg(long, value_name = "MIB|auto", default_value = "auto")]
    memory: Memory,
    /// A file with the key that hosts have too, as `keygen` makes one; nobody else may be able
    /// to read it
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// For tls://: certificates of the authorities that sign those of hosts
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key"])]
    tls_ca: Option<PathBuf>,
    /// For tls://: the certificate of this agent, for the name in the address that hosts use
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// For tls://: its private key
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    tls_key: Option<PathBuf>,
    /// Lets tcp://, which is not encrypted, be reached from other machines, with a key. Who can
    /// read the network can read the images, and who can write to it can change them
    #[arg(long, action = ArgAction::SetTrue,
          value_parser = BoolishValueParser::new().map(Insecure::from))]
    insecure: Insecure,
    /// Where entry points of JPEGs are kept from epoch to epoch, which double the rate; `off`:
    /// nowhere [default: $XDG_CACHE_HOME/bothends/index]
    #[arg(long, value_name = "DIR|off")]
    cache: Option<PathBuf>,
    /// Most MiB of the cache, all data sets together; the oldest make room
    #[arg(long, value_name = "MIB", default_value_t = CACHE_LIMIT_BYTES >> 20)]
    cache_limit: u64,
    /// Ends after the first host has left
    #[arg(long)]
    once: bool,
}

/// The arguments, for completions and man pages.
#[must_use]
pub fn command() -> Command {
    Line::command()
}

/// Serves as the arguments of this process say, until a signal comes. Blocks.
#[must_use]
pub fn main() -> ExitCode {
    let done = match Line::parse() {
        Line { other: Some(Other::Keygen { file }), .. } => keygen(&file),
        Line { serve: Some(args), .. } => run(&args),
        Line { other: None, serve: None } => {
            Err(anyhow::anyhow!("nothing to do; give --listen and --data-root"))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn keygen(file: &Path) -> Result<()> {
    Key::generate(file)?;
    println!("made the key file {}; copy it to each host", file.display());
    Ok(())
}

/// What this agent has to prove who it is, and asks of hosts.
fn security(args: &Args) -> Result<Security> {
    let files = [&args.tls_ca, &args.tls_cert, &args.tls_key].map(Clone::clone);
    let [ca, cert, key] = files;
    let tls = TlsFiles::of(ca, cert, key).map_err(anyhow::Error::msg)?;
    Ok(Security::load(args.key_file.as_deref(), tls.as_ref(), args.insecure)?)
}

fn run(args: &Args) -> Result<()> {
    let stop = stop::on_signals().context("cannot handle signals")?;
    let mut store = FileStore::new(&args.data_root)?;
    if let Some(cache) = cache(args)? {
        store = store.with_cache(cache);
    }
    let config = ServerConfig {
        name: "agent".to_owned(),
        emulated: false,
        n_workers: args.cores.unwrap_or_else(cores_here),
        n_slots: args.slots,
    };
    let mut server =
        Server::start(config, store, NoCosts).context("cannot start a thread")?;
    server = server.with_memory(args.memory);
    let door = Door::open(&args.listen, security(args)?)?;
    println!("listening on {}", door.address());
    let visits = if args.once { Visits::Once } else { Visits::Always };
    door.serve(&mut server, visits, &stop, &mut |error| eprintln!("warning: {error}"))?;
    if let Err(error) = door.close() {
        eprintln!("warning: {error}");
    }
    Ok(())
}

/// Where entry points are kept. A directory that was asked for must be there or be made; the
/// user's own may be missing.
fn cache(args: &Args) -> Result<Option<Cache>> {
    let limit_bytes = args.cache_limit.saturating_mul(1 << 20);
    let root = match &args.cache {
        None => return Ok(Cache::of_user().map(|cache| Cache { limit_bytes, ..cache })),
        Some(off) if off.as_os_str() == "off" => return Ok(None),
        Some(root) => root.clone(),
    };
    std::fs::create_dir_all(&root)
        .with_context(|| format!("cannot make the cache directory {}", root.display()))?;
    Ok(Some(Cache { root, limit_bytes }))
}

fn cores_here() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_serves_or_makes_a_key_and_never_both() {
        let parsed = |line: &str| Line::try_parse_from(line.split(' '));
        let line = parsed("bothends-agent keygen shared.key").unwrap();
        assert!(matches!(line.other, Some(Other::Keygen { .. })) && line.serve.is_none());
        let serving = "bothends-agent --listen tcp://[::1]:0 --data-root /data";
        let line = parsed(serving).unwrap();
        assert!(line.other.is_none());
        assert_eq!(line.serve.unwrap().insecure, Insecure::Refused);
        let line = parsed(&format!("{serving} --insecure")).unwrap();
        assert_eq!(line.serve.unwrap().insecure, Insecure::Allowed);
        for wrong in [
            "bothends-agent",
            "bothends-agent --listen tcp://[::1]:0",
            "bothends-agent keygen",
            "bothends-agent --listen tcp://[::1]:0 --data-root /data keygen shared.key",
            "bothends-agent --listen tls://[::1]:0 --data-root /data --tls-ca ca.pem",
        ] {
            parsed(wrong).expect_err(wrong);
        }
    }
}
