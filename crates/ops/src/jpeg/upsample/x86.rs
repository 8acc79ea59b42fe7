//! The same loops, compiled for AVX2: the compiler makes vectors of them.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

use super::Weights;
use crate::kernels::Avx2;
use crate::kernels::compiled::compiled;

compiled!("avx2",
    pub(super) fn blend(_: Avx2, rows: [&[u8]; 2], round: u16, out: &mut [u8]) = super::blend);
compiled!("avx2", pub(super) fn sum(_: Avx2, rows: [&[u8]; 2], out: &mut [u16]) = super::sum);
compiled!("avx2",
    pub(super) fn spread(_: Avx2, weights: Weights, sums: &[u16], out: &mut [u8]) = super::spread);
