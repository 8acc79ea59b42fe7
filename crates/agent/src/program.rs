//! `bothends-agent`: serves batches of the data set beside it to one host after the other.
//!
//! Only arguments and exit status are here; the rest of this crate does the work, and the package
//! `bothends` has the program. Exit status: 0 after an
//! orderly end, 1 when it cannot serve, 2 for bad arguments.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the front door")]

mod sandbox;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use bothends_csd::Address;
use bothends_csd::key::Key;
use bothends_side_index::{CACHE_LIMIT_BYTES, Cache};
use clap::{Command, CommandFactory, Parser};

use self::sandbox::{Confined, Places, Sandbox};
use crate::door::{Door, Visits};
use crate::{FileStore, Links, Memory, NoCosts, Server, ServerConfig, stop};

/// Serves preprocessed batches of the data set beside this program.
#[derive(Debug, Parser)]
#[command(name = "bothends-agent", version)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Args {
    /// Where hosts connect: tcp://HOST:PORT, unix:///PATH or spool:///DIRECTORY
    #[arg(long, value_name = "URL")]
    listen: Address,
    /// The folder that holds the data set, as it is on the host
    #[arg(long, value_name = "DIR")]
    data_root: PathBuf,
    /// Follow symbolic links below the data root as long as they stay below it; without this they
    /// are refused
    #[arg(long)]
    follow_links: bool,
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
    /// A file with the key that the host has too; needed for TCP beyond this machine
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Where entry points of JPEGs are kept from epoch to epoch, which double the rate; `off`:
    /// nowhere [default: $XDG_CACHE_HOME/bothends/index]
    #[arg(long, value_name = "DIR|off")]
    cache: Option<PathBuf>,
    /// Most MiB of the cache, all data sets together; the oldest make room
    #[arg(long, value_name = "MIB", default_value_t = CACHE_LIMIT_BYTES >> 20)]
    cache_limit: u64,
    /// What the agent gives up before it serves anybody: with `auto` as much as the kernel can hold it
    /// to, that is all files but the data set and what it writes itself (Landlock), other programs
    /// and privileges (seccomp); with `required` all that, or it does not start
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Sandbox::Auto)]
    sandbox: Sandbox,
    /// Ends after the first host has left
    #[arg(long)]
    once: bool,
}

/// The arguments, for completions and man pages.
#[must_use]
pub fn command() -> Command {
    Args::command()
}

/// Serves as the arguments of this process say, until a signal comes. Blocks.
#[must_use]
pub fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let links = if args.follow_links { Links::Beneath } else { Links::Refused };
    let mut store = FileStore::with_links(&args.data_root, links)?;
    let cache = cache(args)?;
    let cache_root = cache.as_ref().map(|cache| cache.root.clone());
    if let Some(cache) = cache {
        store = store.with_cache(cache);
    }
    let key = args.key_file.as_deref().map(Key::from_file).transpose()?;
    // From here on there is something to remove; until now a signal ends the program as it is.
    let stop = stop::on_signals().context("cannot handle signals")?;
    let door = Door::open(&args.listen, key)?;
    let confined = confine(args, &store, cache_root)?;
    eprintln!("{confined}");
    stop::in_time(&stop).context("cannot start a thread")?;
    let config = ServerConfig {
        name: "agent".to_owned(),
        emulated: false,
        n_workers: args.cores.unwrap_or_else(cores_here),
        n_slots: args.slots,
    };
    let mut server =
        Server::start(config, store, NoCosts).context("cannot start a thread")?;
    server = server.with_memory(args.memory);
    println!("listening on {}", door.address());
    let visits = if args.once { Visits::Once } else { Visits::Always };
    door.serve(&mut server, visits, &stop, &mut |error| eprintln!("warning: {error}"))?;
    if let Err(error) = door.close() {
        eprintln!("warning: {error}");
    }
    Ok(())
}

/// What is read once hosts are served: the data, random numbers, and how much memory and time there is.
const READ: [&str; 4] = ["/dev/urandom", "/proc/meminfo", "/proc/self", "/sys/fs/cgroup"];

/// Gives up what serving does not need. Before the first thread is started, and after the door is
/// open.
fn confine(args: &Args, store: &FileStore, cache: Option<PathBuf>) -> Result<Confined> {
    if args.sandbox != Sandbox::Off {
        sandbox::is_alone()?;
    }
    let mut places = Places::default();
    places.read.push(store.root().to_owned());
    places.read.extend(READ.map(PathBuf::from));
    if let Some(cache) = cache {
        // A user's own may be missing, and is then kept without.
        drop(std::fs::create_dir_all(&cache));
        places.written.push(cache);
    }
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    match &args.listen {
        Address::Unix(path) => places.cleared.extend(parent(path)),
        Address::Spool(path) => {
            places.written.push(path.clone());
            places.cleared.extend(parent(path));
        }
        Address::Tcp { .. } => {}
    }
    args.sandbox.enforce(&places)
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
