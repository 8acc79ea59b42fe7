//! Deciding, acted on: the `collector` asks core what to do next and has one `line` to each
//! producer; it wakes when the `bell` is rung and reads the `clock`. `log` and `stall` are what it
//! tells.

pub(crate) mod bell;
pub(crate) mod clock;
pub(crate) mod collector;
pub(crate) mod line;
pub(crate) mod log;
pub(crate) mod stall;
