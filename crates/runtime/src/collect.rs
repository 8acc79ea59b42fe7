//! Deciding, acted on: the `collector` asks core what to do next and has one `line` to each
//! producer, with or without `room` for a job; it wakes when the `bell` is rung. `comings`
//! are of devices that come and go, `log` and `stall` are what it tells.

pub(crate) mod capacity;
pub(crate) mod collector;
pub(crate) mod in_flight;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod membership;
pub(crate) mod producer;
pub(crate) mod stall;
pub(crate) mod wakeup;
pub(crate) mod work;
