//! The device's side: where it listens, and the one loop that serves a host.

pub mod listen;
pub(crate) mod serving;
