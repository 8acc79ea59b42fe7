//! `bothends-agent`: serves batches of the data set beside it to one host after the other.
//!
//! Only arguments and ending are here; the library does the work. Exit status: 0 after an
//! orderly end, 1 when it cannot serve, 2 for bad arguments.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the front door")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use bothends_agent::door::{Door, Visits};
use bothends_agent::{FileStore, NoCosts, Server, ServerConfig, stop};
use bothends_csd::Address;
use bothends_csd::key::Key;
use clap::Parser;

/// Serves preprocessed batches of the data set beside this program.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where hosts connect: tcp://HOST:PORT, unix:///PATH or spool:///DIRECTORY
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
    /// A file with the key that the host has too; needed for TCP beyond this machine
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Ends after the first host has left
    #[arg(long)]
    once: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let stop = stop::on_signals().context("cannot handle signals")?;
    let store = FileStore::new(&args.data_root)?;
    let config = ServerConfig {
        name: "agent".to_owned(),
        emulated: false,
        n_workers: args.cores.unwrap_or_else(cores_here),
        n_slots: args.slots,
    };
    let mut server =
        Server::start(config, store, NoCosts).context("cannot start a thread")?;
    let key = args.key_file.as_deref().map(Key::from_file).transpose()?;
    let door = Door::open(&args.listen, key)?;
    println!("listening on {}", door.address());
    let visits = if args.once { Visits::Once } else { Visits::Always };
    door.serve(&mut server, visits, &stop, &mut |error| eprintln!("warning: {error}"))?;
    Ok(())
}

fn cores_here() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}
