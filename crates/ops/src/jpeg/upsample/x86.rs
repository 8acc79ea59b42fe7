//! The same loops, compiled for AVX2: the compiler makes vectors of them.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

use super::Weights;
use crate::kernels::Avx2;

/// Has a loop of the parent compiled for AVX2.
macro_rules! compiled {
    ($name:ident, ($($argument:ident: $type:ty),*)) => {
        pub(super) fn $name(_: Avx2, $($argument: $type),*) {
            #[target_feature(enable = "avx2")]
            fn compiled($($argument: $type),*) {
                super::$name($($argument),*);
            }
            // SAFETY: an `Avx2` is only made on a processor that has these instructions.
            unsafe { compiled($($argument),*) }
        }
    };
}

compiled!(blend, (rows: [&[u8]; 2], round: u16, out: &mut [u8]));
compiled!(sum, (rows: [&[u8]; 2], out: &mut [u16]));
compiled!(spread, (weights: Weights, sums: &[u16], out: &mut [u8]));
