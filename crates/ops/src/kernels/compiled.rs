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
pub(crate) trait Work<Output = ()> {
    /// Does it; says what comes of it.
    fn run(self) -> Output;
}

/// Makes a function for those who have the proof of a processor out of one that is compiled for it.
/// Who uses this opens `unsafe`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! door {
    ($visible:vis fn $name:ident(_: $cpu:ty, $($argument:ident: $type:ty),* $(,)?)
        $(-> $output:ty)? = $compiled:path
    ) => {
        $visible fn $name(_: $cpu, $($argument: $type),*) $(-> $output)? {
            // SAFETY: the proof is only made on a processor that has these instructions.
            unsafe { $compiled($($argument),*) }
        }
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use door;

/// Has a loop compiled for a processor, and makes its [`door`]. The loop is, as with [`Work`],
/// `#[inline(always)]`; what it takes after the arguments comes after its name.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! compiled {
    ($features:literal,
        $visible:vis fn $name:ident(_: $cpu:ty, $($argument:ident: $type:ty),* $(,)?)
        $(-> $output:ty)? = $body:path $(, $more:expr)*
    ) => {
        $visible fn $name(_: $cpu, $($argument: $type),*) $(-> $output)? {
            #[target_feature(enable = $features)]
            fn compiled($($argument: $type),*) $(-> $output)? {
                $body($($argument,)* $($more),*)
            }
            // SAFETY: the proof is only made on a processor that has these instructions.
            unsafe { compiled($($argument),*) }
        }
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use compiled;

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
pub(crate) fn run<O>(level: Level, work: impl Work<O>) -> O {
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
fn avx2<O>(_: Avx2, work: impl Work<O>) -> O {
    #[target_feature(enable = "avx2,fma")]
    fn compiled<O>(work: impl Work<O>) -> O {
        work.run()
    }
    // SAFETY: an `Avx2` is only made on a processor that has these instructions.
    unsafe { compiled(work) }
}

#[cfg(target_arch = "x86_64")]
fn avx512<O>(_: Avx512, work: impl Work<O>) -> O {
    #[target_feature(enable = "fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    fn compiled<O>(work: impl Work<O>) -> O {
        work.run()
    }
    // SAFETY: an `Avx512` is only made on a processor that has these instructions.
    unsafe { compiled(work) }
}
