//! Devices: how one is named and started (`spec`), and the thread that waits for it (`thread`).

pub(crate) mod spec;
pub(crate) mod thread;
