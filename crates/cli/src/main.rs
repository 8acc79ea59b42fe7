//! `bothends`: the host's command line. It reads flags, calls the crates that know how, and
//! prints; it holds no logic of its own.
//!
//! Exit status: 0 success; 1 the run failed, with one line that says what,
//! where and what to do; 2 bad arguments.

mod args;
mod demo;
mod doctor;
mod inspect;
mod picture;
mod progress;
mod run;
mod say;

use std::process::ExitCode;

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
        Self::Run(error.into())
    }
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Demo(args) => demo::demo(&args),
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Bench(_) => absent("bench"),
        Command::Simulate(_) => absent("simulate"),
        Command::Pack(_) => absent("pack"),
        Command::Unpack(_) => absent("unpack"),
        Command::Report(_) => absent("report"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Arguments(why)) => {
            say::error(&why);
            ExitCode::from(2)
        }
        Err(Failed::Run(error)) => {
            say::error(&chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// A command of the stable command line that this build does not have yet.
fn absent(what: &str) -> Result<(), Failed> {
    Err(Failed::Arguments(format!("`{what}` is not available in this build")))
}

/// The error and what caused it, on one line.
fn chain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // A transparent error repeats its source.
        if !line.ends_with(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
    }
    line.replace('\n', " ")
}
