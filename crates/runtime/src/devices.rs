//! Devices: how one is named and started (`spec`), the thread that waits for it (`thread`), and a
//! producer of the caller's in the place of one (`plain`).

pub(crate) mod plain;
pub(crate) mod spec;
pub(crate) mod thread;
