//! What lives longer than an epoch: the `host` with its data, devices and `memory`; `start` joins
//! an epoch's threads.

pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod start;
