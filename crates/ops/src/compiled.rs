//! Loops compiled once for every family of processors: the compiler makes vectors of them.
//!
//! The meaning of many an op is a plain loop without branches. A processor of a newer family
//! does the same loop in wider vectors; there is nothing to write twice. Nothing here
//! computes. Read `adjust/values.rs` for the simplest of these loops.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

use crate::kernels::Level;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{Avx2, Avx512};

/// A loop that pays to be compiled for every family of processors.
///
/// # Contract
/// `run` and what it calls in the loop is `#[inline(always)]`: what is not inlined is
/// compiled for the oldest processors. It multiplies and adds in the order written, as Rust
/// does, so every family gives the same bytes.
pub(crate) trait Work {
    /// What comes of it.
    type Output;

    /// Does it.
    fn run(self) -> Self::Output;
}

/// What is left of `value` without its fraction, cut off at 0 and 255. The same as `as u8`,
/// which compilers make no vector instructions of.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "cut off at both ends"
)]
pub(crate) fn truncated(value: f32) -> u8 {
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: the value is a number from 0 to 255.
    let value: i32 = unsafe { value.to_int_unchecked() };
    value as u8
}

/// Does `work` with the instructions of `level`.
pub(crate) fn run<W: Work>(level: Level, work: W) -> W::Output {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(cpu) => avx2(cpu, work),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(cpu) => avx512(cpu, work),
        // Every 64-bit ARM has NEON, so that is what the plain loop is compiled to.
        #[cfg(target_arch = "aarch64")]
        Level::Neon(_) => work.run(),
        Level::Scalar => work.run(),
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2<W: Work>(_: Avx2, work: W) -> W::Output {
    #[target_feature(enable = "avx2")]
    fn compiled<W: Work>(work: W) -> W::Output {
        work.run()
    }
    // SAFETY: an `Avx2` is only made on a processor that has these instructions.
    unsafe { compiled(work) }
}

#[cfg(target_arch = "x86_64")]
fn avx512<W: Work>(_: Avx512, work: W) -> W::Output {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    fn compiled<W: Work>(work: W) -> W::Output {
        work.run()
    }
    // SAFETY: an `Avx512` is only made on a processor that has these instructions.
    unsafe { compiled(work) }
}
