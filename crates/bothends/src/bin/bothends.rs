//! `bothends`: the host's command line, which `bothends_cli` has. Under the name of another program
//! it is that program, so that a package ships one executable instead of three that share most of
//! their code.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    match Path::new(&called).file_name().and_then(|name| name.to_str()) {
        Some("bothends-agent") => bothends_agent::program::main(),
        Some("firmware-sim") => bothends_firmware_sim::program::main(),
        _ => bothends_cli::main(&[
            bothends_agent::program::command(),
            bothends_firmware_sim::program::command(),
        ]),
    }
}
