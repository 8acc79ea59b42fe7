//! What threads share, under the names of `std`. In a build with `--cfg loom` the same names come from
//! the model checker, which then tries every interleaving.
//!
//! Only what a model examines goes through here.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(loom)]
pub(super) use loom::sync::{Arc, Mutex, MutexGuard};

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
pub(super) use std::sync::{Arc, Mutex, MutexGuard};
