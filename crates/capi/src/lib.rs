//! The C interface: opaque handles, status codes, and a line of text for each error. It has no logic.
//!
//! Every exported function checks its arguments for NULL, catches panics, and turns an error into a
//! code and a line ([`status::be_last_error`]). Rust uses the names of C too, so one search finds both
//! sides. cbindgen makes `include/bothends.h` from these files; a test keeps it up to date.
//!
//! Pointers from C arrive as `Option<&T>` or `Option<Box<T>>`, which have the representation of a
//! pointer with NULL as `None`. C must ensure that they come from a `be_` function and are not used
//! after their release: the header says so. Other addresses (text, room for floats) go through
//! `memory.rs`.
//!
//! Reading order: `status`, `memory`, `loader`, `epoch`, `batch`, `column`, `field`, `device`.

pub mod batch;
pub mod column;
pub mod device;
pub mod epoch;
pub mod field;
mod held;
pub mod loader;
pub mod memory;
pub mod status;
