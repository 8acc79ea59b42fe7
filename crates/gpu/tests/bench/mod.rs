//! What tests of kernels share: the CPU twin, and memory on it.
#![allow(dead_code, reason = "not every test program needs all of it")]

use bothends_gpu::GpuError;
use bothends_gpu::driver::{Address, Driver, StreamId};
use bothends_gpu::twin::Twin;

/// What the twin's new memory holds.
pub(crate) const FRESH: u8 = 0xA5;

/// The twin, or `None` where no compiler can make it.
#[expect(clippy::print_stdout, reason = "a test says what it did not do")]
pub(crate) fn twin() -> Option<Twin> {
    match Twin::compiled() {
        Err(GpuError::Unavailable { why }) => {
            println!("skipped: {why}");
            None
        }
        twin => Some(twin.unwrap()),
    }
}

/// Device memory with these bytes.
pub(crate) fn upload(twin: &Twin, bytes: &[u8]) -> Address {
    let at = twin.allocate(bytes.len()).unwrap();
    // SAFETY: the twin copies before it returns.
    unsafe { twin.upload(at, bytes, StreamId(0)) }.unwrap();
    at
}

/// What device memory holds.
pub(crate) fn download(twin: &Twin, at: Address, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    // SAFETY: the twin copies before it returns.
    unsafe { twin.download(&mut bytes, at, StreamId(0)) }.unwrap();
    bytes
}

/// Bytes without a pattern, the same for the same seed.
pub(crate) fn noise(n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state =
            state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        state.to_le_bytes()[6]
    };
    (0..n).map(|_| next()).collect()
}
