//! The drivers' suite over the CPU twin of the kernels.
#![allow(clippy::unwrap_used, reason = "tests")]

use bothends_gpu::GpuError;
use bothends_gpu::conformance;
use bothends_gpu::twin::Twin;

#[test]
fn the_twin_keeps_the_contract() {
    match Twin::compiled() {
        Err(GpuError::Unavailable { why }) => println!("skipped: {why}"),
        twin => conformance::all(&twin.unwrap()),
    }
}
