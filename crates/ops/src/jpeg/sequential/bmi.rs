//! The same loops, compiled for processors that shift and load in one instruction.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

use super::{Broken, Lane, Scan, one, two};
use crate::kernels::Avx2;

/// [`one`] with BMI2 and MOVBE.
pub(super) fn run_one(_: Avx2, scan: &Scan<'_>, lane: &mut Lane) -> Result<(), Broken> {
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe")]
    fn compiled(scan: &Scan<'_>, lane: &mut Lane) -> Result<(), Broken> {
        one(scan, lane)
    }
    // SAFETY: an `Avx2` is only made on a processor that has these instructions.
    unsafe { compiled(scan, lane) }
}

/// [`two`] with BMI2 and MOVBE.
pub(super) fn run_two(
    _: Avx2,
    scan: &Scan<'_>,
    lanes: [&mut Lane; 2],
) -> Result<(), Broken> {
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe")]
    fn compiled(scan: &Scan<'_>, lanes: [&mut Lane; 2]) -> Result<(), Broken> {
        two(scan, lanes)
    }
    // SAFETY: an `Avx2` is only made on a processor that has these instructions.
    unsafe { compiled(scan, lanes) }
}
