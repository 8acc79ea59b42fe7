//! The readers: `pread`, the reference, and `uring`; `open` takes one, as the machine allows.

pub(crate) mod open;
pub(crate) mod pread;
pub(crate) mod uring;
