//! `bothends`: the host's command line, which `bothends_cli` has.

use std::process::ExitCode;

fn main() -> ExitCode {
    bothends_cli::main(&[
        bothends_agent::program::command(),
        bothends_firmware_sim::program::command(),
    ])
}
