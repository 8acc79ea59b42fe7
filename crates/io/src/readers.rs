//! The readers: `pread`, the reference, and `uring`. `open` chooses one according to the machine.

pub(crate) mod open;
pub(crate) mod pread;
pub(crate) mod uring;
