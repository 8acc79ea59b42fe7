//! `bothends`: the host's command line, which `bothends_cli` has. Under the name of another program
//! it is that program, so that a package ships one executable instead of three that share most of
//! their code.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let called = args.first().map(Path::new).and_then(Path::file_name);
    let status = match called.and_then(OsStr::to_str) {
        Some("bothends-agent") => bothends_agent::program::main(args),
        Some("firmware-sim") => bothends_firmware_sim::program::main(args),
        _ => bothends_cli::main(
            args,
            &[
                bothends_agent::program::command(),
                bothends_firmware_sim::program::command(),
            ],
        ),
    };
    status.into()
}
