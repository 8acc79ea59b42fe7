//! Kinds of memory, and the single owner of a slot's memory: the allocation and what was done to it end
//! together, in the right order.
//!
//! Pinning memory, mapping it for a device or announcing it to an io_uring registers an address
//! range with somebody. A registration that outlives its memory refers to whatever is allocated there
//! next, which then cannot be registered, or is overwritten by others. `Memory` therefore owns both and
//! ends the registration first.
#![allow(
    unsafe_code,
    reason = "memory may come from anybody: a driver, a mapped file, the allocator"
)]

use std::fmt::Debug;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::SlotError;

/// Every slot begins at a multiple of this many bytes and has whole blocks of them to
/// itself: what O_DIRECT reads and pinned copies need.
pub const SLOT_ALIGN: usize = 4096;

/// A kind of memory that slots can be made of.
///
/// `conformance::memory` holds what a kind must keep.
pub trait Kind: Debug + Send + Sync {
    /// For messages: `host`, `pinned`, …
    fn name(&self) -> &'static str;

    /// Allocates one slot's memory: `bytes` zeros, aligned to [`SLOT_ALIGN`] where the host
    /// can address them; `None` for no bytes and for more than can be addressed.
    ///
    /// # Errors
    /// [`SlotError::OutOfMemory`].
    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>>;

    /// Tells whoever is to reach the memory of it, until what is returned is dropped, which
    /// is before the memory is freed.
    ///
    /// # Errors
    /// [`SlotError::Registration`].
    fn register(
        &self,
        _memory: &Backing,
    ) -> Result<Option<Box<dyn Registration>>, SlotError> {
        Ok(None)
    }
}

/// Somebody knows of a slot's memory; dropping this ends that.
pub trait Registration: Debug + Send + Sync {}

/// Bytes somewhere, and whoever frees them when dropped.
#[derive(Debug)]
pub struct Backing {
    /// Where the host finds them, if it can.
    base: Option<NonNull<u8>>,
    /// Where a device finds them, if it can and the host cannot.
    device_address: Option<NonZeroU64>,
    len: usize,
    #[expect(dead_code, reason = "it acts when it is dropped")]
    owner: Owner,
}

/// Frees memory when it is dropped.
pub type Owner = Box<dyn Debug + Send + Sync>;

// SAFETY: `base` is the only way to bytes that this value owns, so they move between threads
// with it, as a `Box<[u8]>` would.
unsafe impl Send for Backing {}

// SAFETY: a shared `Backing` gives read access only (`as_slice`), as a `Box<[u8]>` would.
unsafe impl Sync for Backing {}

impl Backing {
    /// Bytes that the host can address.
    ///
    /// # Safety
    /// From `base` on there are `len` initialised bytes that stay where they are until
    /// `owner` is dropped, and that nobody but this value and what it is registered with
    /// reads or writes.
    #[must_use]
    pub unsafe fn of_host(base: NonNull<u8>, len: usize, owner: Owner) -> Self {
        Self { base: Some(base), device_address: None, len, owner }
    }

    /// Bytes that only a device can address, wherever `owner` knows them to be.
    #[must_use]
    pub fn of_device(len: usize, owner: Owner) -> Self {
        Self { base: None, device_address: None, len, owner }
    }

    /// The same, at an address of the device's that whoever has the slot may ask for; 0 for none.
    #[must_use]
    pub fn at_device_address(self, address: u64) -> Self {
        Self { device_address: NonZeroU64::new(address), ..self }
    }

    /// Where the device finds the bytes; `None` of memory that the host addresses, and of a
    /// device that does not say.
    #[must_use]
    pub fn device_address(&self) -> Option<u64> {
        self.device_address.map(NonZeroU64::get)
    }

    /// Where the host finds the bytes; `None` of memory that it cannot address.
    #[must_use]
    pub fn base(&self) -> Option<NonNull<u8>> {
        self.base
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none; never of a slot's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A slot's memory with its registration. The fields are dropped in this order.
#[derive(Debug)]
pub(crate) struct Memory {
    #[expect(dead_code, reason = "it acts when it is dropped")]
    registration: Option<Box<dyn Registration>>,
    backing: Backing,
    kind: &'static str,
}

impl Memory {
    /// Allocates and registers; `None` as of [`Kind::allocate`].
    pub(crate) fn new(kind: &dyn Kind, bytes: usize) -> Option<Result<Self, SlotError>> {
        let made = kind.allocate(bytes)?.and_then(|backing| {
            let registration = kind.register(&backing)?;
            Ok(Self { registration, backing, kind: kind.name() })
        });
        Some(made)
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn len(&self) -> usize {
        self.backing.len
    }

    pub(crate) fn base(&self) -> Option<NonNull<u8>> {
        self.backing.base
    }

    pub(crate) fn device_address(&self) -> Option<u64> {
        self.backing.device_address()
    }
}
