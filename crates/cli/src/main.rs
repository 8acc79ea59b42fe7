//! `bothends`: the host's command line. It reads flags, calls the crates that know how, and
//! prints; it holds no logic of its own.
//!
//! Exit status: 0 success; 1 the run failed, with one line that says what,
//! where and what to do; 2 bad arguments.

mod args;
mod au;
mod bench;
mod demo;
mod doctor;
mod energy;
mod events;
mod file;
mod findings;
mod inspect;
mod metrics;
mod pack;
mod picture;
mod progress;
mod report;
mod run;
mod say;
mod sheet;
mod simulate;
mod sizing;
mod watch;

use std::process::ExitCode;

use bothends_bench::BenchError;
use bothends_core::one_line;
use bothends_runtime::RuntimeError;
use clap::Parser;

use args::{Args, Command};

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The arguments make no sense: status 2.
    Arguments(String),
    /// The run failed: status 1.
    Run(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        let error = error.into();
        if is_of_arguments(&error) {
            return Self::Arguments(one_line(error.as_ref()));
        }
        Self::Run(error)
    }
}

/// Whether an error speaks of numbers and names as they were typed: some make no sense only
/// together with the data.
fn is_of_arguments(error: &anyhow::Error) -> bool {
    let of_run = matches!(
        error.downcast_ref(),
        Some(RuntimeError::Plan(_) | RuntimeError::Memory { .. })
    );
    let of_bench = matches!(
        error.downcast_ref(),
        Some(
            BenchError::NoSuchOp { .. }
                | BenchError::NotAlone { .. }
                | BenchError::PeersStart { .. }
                | BenchError::NoPython { .. }
        )
    );
    of_run || of_bench
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return misread(&error),
    };
    let result = match args.command {
        Command::Demo(args) => demo::demo(&args),
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Unpack(args) => pack::unpack(&args),
        Command::Report(args) => report::report(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Arguments(why)) => {
            say::error(&why);
            ExitCode::from(2)
        }
        Err(Failed::Run(error)) => {
            say::error(&one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Help and version as clap prints them; a wrong argument on one line.
fn misread(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    if !error.use_stderr() {
        say::line(text.trim_end());
        return ExitCode::SUCCESS;
    }
    let what = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let what: Vec<&str> = what.map(str::trim).filter(|line| !line.is_empty()).collect();
    let what: Vec<&str> = what
        .into_iter()
        .filter(|line| !line.starts_with("For more information"))
        .collect();
    say::error(what.join(" ").trim_start_matches("error: "));
    ExitCode::from(2)
}
