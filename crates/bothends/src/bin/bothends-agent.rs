//! `bothends-agent`: the program that runs next to the data, which the crate `bothends_agent` has.

use std::process::ExitCode;

fn main() -> ExitCode {
    bothends_agent::program::main(std::env::args_os()).into()
}
