//! The same loops, compiled for processors that shift and load in one instruction.
#![allow(unsafe_code, reason = "calls code compiled for a processor known to be there")]

use super::{BrokenLane, Lane, Scan, one, two};
use crate::jpeg::Broken;
use crate::kernels::Avx2;
use crate::kernels::compiled::compiled;

compiled!("avx2,bmi1,bmi2,lzcnt,movbe",
    pub(super) fn run_one(_: Avx2, scan: &Scan<'_>, lane: &mut Lane) -> Result<(), Broken> = one);
compiled!("avx2,bmi1,bmi2,lzcnt,movbe",
    pub(super) fn run_two(_: Avx2, scan: &Scan<'_>, lanes: [&mut Lane; 2]) -> Result<(), BrokenLane> = two);
