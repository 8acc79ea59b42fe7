//! `bothends-agent`: serves batches of the data set beside it to any number of hosts.
//!
//! Only arguments and exit status are here; the rest of this crate does the work, and the package
//! `bothends` has the program. Exit status: 0 after an
//! orderly end, 1 when it cannot serve, 2 for bad arguments.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the front door")]

mod log;
mod metrics;
mod reload;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use bothends_csd::key::Key;
use bothends_csd::listen::Listener;
use bothends_csd::{Address, CsdError};
use bothends_side_index::{CACHE_LIMIT_BYTES, Cache};
use clap::{Command, CommandFactory, Parser};
use listenfd::ListenFd;

use self::log::Form;
use crate::door::{Door, Visits};
use crate::{FileStore, Memory, NoCosts, SESSIONS, Server, ServerConfig, stop};

/// Serves preprocessed batches of the data set beside this program.
#[derive(Debug, Parser)]
#[command(name = "bothends-agent", version)]
struct Args {
    /// Where hosts connect: tcp://HOST:PORT, unix:///PATH or spool:///DIRECTORY. A socket that a
    /// service manager opened for this program (LISTEN_FDS) is used in its place
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
    /// Hosts that are served at a time; one more is told when to try again
    #[arg(long, value_name = "N", default_value_t = SESSIONS,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    sessions: u32,
    /// Most memory that batches and lists of samples of all hosts may take, in MiB, or auto: as many
    /// of each host's slots as fit into it are used. A host whose batches do not fit is refused,
    /// and one that finds the memory taken is told when to try again. Two batches are enough to
    /// make one while another is sent. What workers keep for the samples they are at comes on top.
    /// auto is a quarter of what is available on this machine when a host comes, and one batch always
    #[arg(long, value_name = "MIB|auto", default_value = "auto")]
    memory: Memory,
    /// A file with the key that the host has too; needed for TCP beyond this machine. It is read again
    /// on SIGHUP
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Where entry points of JPEGs are kept from epoch to epoch, which double the rate; `off`:
    /// nowhere [default: $XDG_CACHE_HOME/bothends/index]
    #[arg(long, value_name = "DIR|off")]
    cache: Option<PathBuf>,
    /// Most MiB of the cache, all data sets together; the oldest make room
    #[arg(long, value_name = "MIB", default_value_t = CACHE_LIMIT_BYTES >> 20)]
    cache_limit: u64,
    /// Answers Prometheus at http://HOST:PORT/metrics; without a host, on this machine alone
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// How warnings and what happens to hosts are written to standard error
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    log: Form,
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
    let [stop, reload] = stop::of_service().context("cannot handle signals")?;
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
    let server =
        Server::start(config, store, NoCosts).context("cannot start a thread")?;
    let server = server.with_memory(args.memory).with_sessions(args.sessions);
    let server = Arc::new(server);
    let key = args.key_file.as_deref().map(Key::from_file).transpose()?;
    let door = open(args, key)?;
    let metrics = args.metrics.as_deref();
    let scrape = metrics.map(|at| metrics::start(at, &server, &door)).transpose()?;
    if let Some(scrape) = &scrape {
        args.log.note(&format!("metrics: http://{}/metrics", scrape.address()));
    }
    let keys = args.key_file.clone().map(|file| (file, door.keys()));
    let reloads = reload::Reload { keys, asked: reload, stop: Arc::clone(&stop) };
    let reloading = reloads.start(args.log).context("cannot start a thread")?;
    println!("listening on {}", door.address());
    let visits = if args.once { Visits::Once } else { Visits::Always };
    let warn = |error: &CsdError| args.log.warn(&error.to_string());
    let served = door.serve(&*server, visits, &stop, &warn);
    // With `--once` nobody else has said so.
    stop.store(true, Ordering::Relaxed);
    let _ = reloading.join();
    served?;
    if let Err(error) = door.close() {
        args.log.warn(&error.to_string());
    }
    Ok(())
}

/// The door: a socket that this process was started with, or one of its own.
fn open(args: &Args, key: Option<Key>) -> Result<Door> {
    let mut given = ListenFd::from_env();
    let wrong = |e| anyhow::anyhow!("the socket in LISTEN_FDS is not of --listen: {e}");
    let socket = match (&args.listen, given.len()) {
        (_, 0) => None,
        (Address::Tcp { .. }, _) => {
            given.take_tcp_listener(0).map_err(wrong)?.map(OwnedFd::from)
        }
        (Address::Unix(_), _) => {
            given.take_unix_listener(0).map_err(wrong)?.map(OwnedFd::from)
        }
        (Address::Spool(_), _) => None,
    };
    let Some(socket) = socket else { return Ok(Door::open(&args.listen, key)?) };
    let listener = Listener::adopt(&args.listen, socket, key.as_ref())?;
    Ok(Door::at(listener, key))
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

    /// Systemd starts it as the unit says, so the unit's flags must be some.
    #[test]
    fn the_unit_for_systemd_has_arguments_that_are_understood() {
        let unit = include_str!("../systemd/bothends-agent.service").replace("\\\n", " ");
        let starts = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let args = Args::try_parse_from(starts.unwrap().split_whitespace()).unwrap();
        let socket = include_str!("../systemd/bothends-agent.socket");
        let listens = socket.lines().find_map(|line| line.strip_prefix("ListenStream="));
        assert_eq!(args.listen.to_string(), format!("unix://{}", listens.unwrap()));
    }
}
