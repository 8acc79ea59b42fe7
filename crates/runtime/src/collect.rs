//! Deciding, acted on: the `collector` asks core what to do next and has an account of each
//! `producer`, which has the `capacity` for a job or not, and of each epoch `in_flight`; `wakeup` is how
//! others wake it. `membership` is of devices that come and go, `log` and `stall` are what it tells.

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
