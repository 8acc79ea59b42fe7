//! The memory that batches are made in, and the interface of those who make them.
//!
//! A [`Ring`] owns a fixed number of [`Slot`]s. To have a batch made, take a slot and submit it with a
//! [`Job`] to a [`Producer`], which returns it with the batch in it. A slot may be of any [`Kind`] of
//! memory. Host code that needs its bytes asks for a [`HostSlot`], and is refused if the memory is not
//! accessible to the host.
//!
//! This crate does not choose what is made, does not decode, and starts no thread. Read `ring.rs` first,
//! then `memory.rs` and `slot.rs` (with `heap.rs` and `streaming.rs`, the only unsafe code here), then
//! `produce.rs`.
//! `conformance` has what every kind of memory, every ring and every producer must guarantee.

mod available;
pub mod conformance;
mod heap;
mod memory;
mod pool;
mod produce;
mod ring;
mod slot;
mod streaming;

pub use available::available_bytes;
pub use heap::Heap;
pub use memory::{Backing, Kind, Owner, Registration, SLOT_ALIGN};
pub use produce::{
    Completion, Damaged, Job, JobId, Lost, Outcome, Polled, Producer, Rejected, Rejection,
};
pub use ring::{Ring, RingConfig};
pub use slot::{HostSlot, Joiner, Part, Slot};
pub use streaming::copy_past_caches;

/// Why there is no memory for slots.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// A ring of no slots, of empty slots, or of more bytes than can be addressed.
    #[error(
        "a ring of {n_slots} slots of {slot_bytes} bytes cannot be made; \
         both must be at least 1 and a slot must be addressable"
    )]
    RingSize {
        /// Slots asked for.
        n_slots: u32,
        /// Bytes per slot asked for.
        slot_bytes: usize,
    },
    /// The system has no memory for a slot.
    #[error(
        "no memory for a slot of {slot_bytes} bytes; use a smaller batch or fewer slots"
    )]
    OutOfMemory {
        /// Bytes of the slot that could not be had.
        slot_bytes: usize,
    },
    /// The memory is there and cannot be registered with whoever is to reach it.
    #[error("cannot register {slot_bytes} bytes of {kind} memory: {why}")]
    Registration {
        /// The kind's name.
        kind: &'static str,
        /// Bytes of the slot.
        slot_bytes: usize,
        /// What the system or the driver said.
        why: String,
    },
}
