//! The host's command line, `bothends`, as a library of one function: [`main`]. It reads flags,
//! calls the crates that know how, and prints; it holds no logic of its own. The program itself is
//! in the package `bothends`, beside the programs of devices.
//!
//! Exit status: 0 success; 1 the run failed, with one line that says what,
//! where and what to do; 2 bad arguments; 130, 143 and 129 where SIGINT, SIGTERM or SIGHUP
//! ended a run, also one whose state or results could not be written, which a line says.

mod args;
mod commands;
mod energy;
mod failed;
mod file;
mod flags;
mod say;
mod signals;
mod typed;
mod watch;

use std::process::ExitCode;

use clap::{Command, Parser};

use args::Args;
use failed::Failed;
use flags::one_line;

/// Does what the arguments of this process say. `beside` describes the programs that are installed
/// with this one, for completions and man pages.
#[must_use]
pub fn main(beside: &[Command]) -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return misread(&error),
    };
    match commands::run(&args.command, beside) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Arguments(why)) => {
            say::error(&why);
            ExitCode::from(2)
        }
        Err(Failed::Run(error)) => {
            say::error(&one_line(&error));
            ExitCode::FAILURE
        }
        Err(Failed::Stopped { signal, where_to }) => {
            say::note(&format!("stopped by {}: {where_to}", signal.name()));
            ExitCode::from(signal.status())
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
