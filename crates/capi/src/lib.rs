//! The C interface: opaque handles, codes, one line of text for each error. No logic.
//!
//! Every function that is exported is a door: it asks whether its arguments are there,
//! catches a panic, and turns an error into a code and a line ([`status::be_last_error`]). Names are
//! C's, in Rust too, so that one search finds both sides. `include/bothends.h` is made from
//! these files by cbindgen; a test holds the two equal.
//!
//! Pointers that C gives arrive as `Option<&T>` or `Option<Box<T>>`, which have a pointer's
//! form with NULL as `None`. That they point to what a `be_` function made, and that nothing
//! is used after its release, C must keep: the header says so. What else comes as an address
//! (text, room for floats) passes `memory.rs`.
//!
//! Reading order: `status`, `memory`, `loader`, `epoch`, `batch`, `device`.

pub mod batch;
pub mod device;
pub mod epoch;
mod held;
pub mod loader;
pub mod memory;
pub mod status;
