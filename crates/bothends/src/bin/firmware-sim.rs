//! `firmware-sim`: an emulated device as a process of its own, which `bothends_firmware_sim` has.

use std::process::ExitCode;

fn main() -> ExitCode {
    bothends_firmware_sim::program::main(std::env::args_os()).into()
}
