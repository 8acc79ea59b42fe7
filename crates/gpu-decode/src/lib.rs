//! Decoding on a GPU, from a store and from plain JPEGs: the bytes of the rows that a crop needs
//! are uploaded with a description of it, and kernels make the sample.
//!
//! ```text
//! record, crop ─► describe ─► Batch: words for the kernels, byte ranges with their places ─┐
//!                                       byte ranges read into one pinned buffer ───────────┤
//!                                                         upload ─► kernels ─► u8 samples ─┘
//! ```
//!
//! [`Batch`] is the description, made without a driver and without reading a byte; what the GPU
//! cannot do is told apart there, by name ([`NotHere`]), and goes through the host.
//! [`GpuDecoder`] launches the kernels (`crates/gpu/kernels/decode`) over it. Pixels are the
//! host's, bit for bit, and damage is flagged per sample, never shown.
//!
//! [`GpuProng`] is the producer made of these: it makes whole batches, samples that the GPU cannot do
//! included, from a [`Source`].
//!
//! Nothing here decides a crop, computes a pixel on the host or starts a thread. Read `batch.rs`
//! first, then `decoder.rs`, `source.rs`, `readings.rs`, `prong.rs`.

mod batch;
mod decoder;
mod lists;
mod not_here;
mod prong;
mod readings;
mod scan;
mod source;
mod words;

pub use batch::{Batch, Limits, Placed};
pub use decoder::{GpuDecoder, Status};
pub use not_here::NotHere;
pub use prong::{Counts, GpuProng, ProngConfig};
pub use source::{Memory, Reading, Source, TableSource};
