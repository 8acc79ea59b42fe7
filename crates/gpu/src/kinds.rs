//! The kinds of memory that a GPU adds to `slots`: pinned host memory, and the device's.
//!
//! Both are made once, by a ring, and reused for its life. It does not decide which kind a run
//! uses: a registration that fails is an error with its reason, and the caller continues with
//! plain memory if it likes (`path` says so). One that always fails: where pages are larger than
//! a slot's alignment of 4 KiB (some Arm servers), neighbours share a page, which is locked once.
#![allow(unsafe_code, reason = "tells a driver of memory that it will copy from")]

mod near;

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use bothends_slots::{Backing, Heap, Kind, Registration, SLOT_ALIGN, SlotError};

use crate::GpuError;
use crate::driver::Driver;
use crate::owners::{DeviceBuffer, Gpu, Uses};

/// Host memory that the GPU copies from by itself: the allocator's, with huge pages advised as
/// `slots::Heap` does, pinned for every device of the process while a slot has it.
///
/// The slot owns the registration, and ends it before its memory. Every page is touched before, since
/// registering memory that was costs less than half; by a processor near the GPU, where
/// the machine has several nodes.
#[derive(Debug, Clone)]
pub struct PageLocked {
    gpu: Gpu,
}

impl PageLocked {
    /// Its name, by which slots of it are known.
    pub const NAME: &str = "pinned";

    /// Memory that is pinned by this GPU's driver.
    #[must_use]
    pub fn of(gpu: &Gpu) -> Self {
        Self { gpu: gpu.clone() }
    }
}

impl Kind for PageLocked {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>> {
        let made = Heap.allocate(bytes)?;
        let node = self.gpu.driver().card().numa_node;
        Some(made.inspect(|backing| near::on_node(node, || touch(backing))))
    }

    fn register(
        &self,
        memory: &Backing,
    ) -> Result<Option<Box<dyn Registration>>, SlotError> {
        let Some(base) = memory.base() else { return Ok(None) };
        let driver = self.gpu.shared_driver();
        // SAFETY: the slot that is being made owns the memory, and drops what is returned here
        // before it.
        let registered = unsafe { driver.register(base, memory.len()) };
        registered.map_err(|error| SlotError::Registration {
            kind: self.name(),
            slot_bytes: memory.len(),
            why: error.to_string(),
        })?;
        Ok(Some(Box::new(Registered { driver, base })))
    }
}

/// Writes a zero into every page of memory that nobody has yet.
fn touch(backing: &Backing) {
    let Some(base) = backing.base() else { return };
    for at in (0..backing.len()).step_by(SLOT_ALIGN) {
        // SAFETY: `at` lies within the memory.
        let page = unsafe { base.add(at) };
        // SAFETY: the memory is there, it holds zeros, and its only owner has just made it.
        unsafe { page.write_volatile(0) };
    }
}

/// The driver knows of the memory at `base`.
struct Registered {
    driver: Arc<dyn Driver>,
    base: NonNull<u8>,
}

// SAFETY: the address is only passed to the driver, whose calls may be made from any thread.
unsafe impl Send for Registered {}

// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registration for Registered {}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registered({:?})", self.base)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered once by `register`. A slot's memory goes only when nobody has the
        // slot, and a copy has it until the device has passed (`staging`).
        unsafe { self.driver.unregister(self.base) };
    }
}

/// Memory of the device. A slot of it has a device address and no host bytes.
#[derive(Debug, Clone)]
pub struct DeviceMemory {
    gpu: Gpu,
}

impl DeviceMemory {
    /// Its name, by which slots of it are known.
    pub const NAME: &str = "device";

    /// Memory of this GPU.
    #[must_use]
    pub fn of(gpu: &Gpu) -> Self {
        Self { gpu: gpu.clone() }
    }

    /// Whether there can be a slot of so many bytes.
    pub(crate) fn is_possible(bytes: usize) -> bool {
        let padded = bytes.checked_next_multiple_of(SLOT_ALIGN);
        bytes > 0 && padded.is_some_and(|padded| isize::try_from(padded).is_ok())
    }

    /// A buffer as a slot's memory, with the uses that whoever fills and lends it adds to.
    pub(crate) fn backing(buffer: DeviceBuffer) -> (Backing, Uses) {
        let (at, len) = (buffer.address(), buffer.len());
        let uses = buffer.uses().clone();
        (Backing::of_device(len, Box::new(buffer)).at_device_address(at.0), uses)
    }
}

impl Kind for DeviceMemory {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>> {
        Self::is_possible(bytes).then(|| {
            let made = self.gpu.allocate(bytes).map(|buffer| Self::backing(buffer).0);
            made.map_err(|error| as_slot_error(error, bytes))
        })
    }
}

/// What a ring says of a GPU that gives no memory.
pub(crate) fn as_slot_error(error: GpuError, slot_bytes: usize) -> SlotError {
    match error {
        GpuError::OutOfMemory { .. } => SlotError::OutOfMemory { slot_bytes },
        GpuError::Unavailable { .. }
        | GpuError::Slots { .. }
        | GpuError::Driver { .. }
        | GpuError::Late { .. } => {
            let why = error.to_string();
            SlotError::Registration { kind: DeviceMemory::NAME, slot_bytes, why }
        }
    }
}
