//! The feed: pinned host slots in, batches in device memory out.
//!
//! One thread submits and polls; batches are released by whoever has them.
#![allow(
    unsafe_code,
    reason = "names memory and streams to the driver that it keeps alive"
)]

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bothends_slots::{HostSlot, RingConfig, SlotError};

use super::{DeviceBatch, DeviceSlots};
use crate::GpuError;
use crate::kinds::PageLocked;
use crate::owners::{Event, Gpu, Stream};

/// Copies batches to a GPU, on the copy stream, into a ring of device slots.
#[derive(Debug)]
pub struct DeviceFeed {
    gpu: Gpu,
    stream: Stream,
    slots: DeviceSlots,
    /// Oldest first, which is also the order in which the stream passes them.
    uploads: VecDeque<Upload>,
}

/// A host slot that the device is copying from.
#[derive(Debug)]
struct Upload {
    host: HostSlot,
    copied: Arc<Event>,
}

/// A batch that was not taken.
#[derive(Debug)]
pub struct Refused {
    /// The host slot as it was; `None` where the driver failed after it had taken the copy. Such
    /// a slot goes back to its ring once the copy is known to have passed, or is leaked where that
    /// cannot be known.
    pub host: Option<HostSlot>,
    /// Why.
    pub why: Refusal,
}

/// Why a batch was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No device slot is free. Where consumers have all of them this stays so until one is released; others
    /// come by themselves.
    #[error(
        "all {slots} device slots are taken, {lent} of them by consumers; release batches, \
         or configure more slots"
    )]
    Full {
        /// Slots that consumers have.
        lent: u32,
        /// All slots but those retired.
        slots: u32,
    },
    /// The batch is longer than a device slot.
    #[error("a batch of {bytes} bytes does not fit into device slots of {slot_bytes}")]
    TooLong {
        /// The batch's.
        bytes: usize,
        /// A device slot's.
        slot_bytes: usize,
    },
    /// The batch is in memory that the device cannot copy from by itself.
    #[error("a batch in {kind} memory cannot be copied asynchronously; use pinned slots")]
    NotPageLocked {
        /// The slot's kind.
        kind: &'static str,
    },
    /// The driver failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl Refusal {
    /// Whether consumers keep every slot, so that waiting is of no use while they do.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        matches!(self, Self::Full { lent, slots } if lent >= slots)
    }
}

impl DeviceFeed {
    /// A feed with device slots of its own. May block in the driver: for set-up.
    ///
    /// # Errors
    /// As `Ring::of`.
    pub fn new(gpu: &Gpu, config: RingConfig) -> Result<Self, SlotError> {
        Ok(Self::with_slots(gpu, DeviceSlots::new(gpu, config)?))
    }

    /// A feed into slots that others fill, too.
    #[must_use]
    pub fn with_slots(gpu: &Gpu, slots: DeviceSlots) -> Self {
        let uploads = VecDeque::new();
        Self { gpu: gpu.clone(), stream: gpu.upload_stream(), slots, uploads }
    }

    /// The device slots.
    #[must_use]
    pub fn slots(&self) -> &DeviceSlots {
        &self.slots
    }

    /// Enqueues the copy of a host slot's first `len` bytes, and returns the batch that they
    /// become; lend it at once, its consumer waits on the device. Never blocks. The host slot goes
    /// back to its ring in a later [`Self::poll`] or `submit`.
    ///
    /// # Errors
    /// [`Refused`], with the slot wherever that is safe.
    pub fn submit(
        &mut self,
        host: HostSlot,
        len: usize,
    ) -> Result<DeviceBatch, Box<Refused>> {
        let refuse = |host, why| Err(Box::new(Refused { host: Some(host), why }));
        if let Err(error) = self.poll() {
            return refuse(host, error.into());
        }
        let kind = host.kind();
        if kind != PageLocked::NAME {
            return refuse(host, Refusal::NotPageLocked { kind });
        }
        let slot_bytes = self.slots.ring().slot_bytes();
        if len > slot_bytes.min(host.len()) {
            return refuse(host, Refusal::TooLong { bytes: len, slot_bytes });
        }
        let Some(free) = self.slots.take(Duration::ZERO) else {
            let slots = self.slots.ring().n_slots() - self.slots.retired();
            return refuse(host, Refusal::Full { lent: self.slots.lent(), slots });
        };
        let filling = match free.begin(&self.stream) {
            Ok(filling) => filling,
            Err(error) => return refuse(host, error.into()),
        };
        let copied = match self.copy(&host, len, filling.address()) {
            Ok(copied) => copied,
            Err(error) => {
                // The driver may have taken the copy, and nothing will say when it is over.
                Box::leak(Box::new(host));
                return Err(Box::new(Refused { host: None, why: error.into() }));
            }
        };
        // From here on the slot is safe whatever fails.
        self.uploads.push_back(Upload { host, copied });
        let refused = |error: GpuError| Refused { host: None, why: error.into() };
        filling.finish(len).map_err(|error| Box::new(refused(error)))
    }

    /// Enqueues the copy, and an event behind it.
    fn copy(
        &self,
        host: &HostSlot,
        len: usize,
        to: crate::driver::Address,
    ) -> Result<Arc<Event>, GpuError> {
        let bytes = host.get(..len).unwrap_or_default();
        if bytes.is_empty() {
            // All samples of the batch were skipped.
            return self.stream.record().map(Arc::new);
        }
        // SAFETY: the slot and its registration stay, unwritten, until the event below has been
        // reached: `Upload` has them, or they are leaked. `to` is a slot being filled.
        unsafe { self.gpu.driver().upload(to, bytes, self.stream.id()) }?;
        self.stream.record().map(Arc::new)
    }

    /// Gives host slots whose copies have passed back to their ring, and frees what else the
    /// device is done with; to be called when a host slot is wanted, since nothing else brings
    /// one back. Never blocks; asks the driver about one copy more than have passed.
    /// Returns how many are still being copied.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also of an earlier failure on the device.
    pub fn poll(&mut self) -> Result<usize, GpuError> {
        while let Some(oldest) = self.uploads.front() {
            if !oldest.copied.is_reached()? {
                break;
            }
            self.uploads.pop_front();
        }
        self.gpu.sweep();
        Ok(self.uploads.len())
    }

    /// Host slots that the device is copying from.
    #[must_use]
    pub fn n_copying(&self) -> usize {
        self.uploads.len()
    }
}

impl Drop for DeviceFeed {
    fn drop(&mut self) {
        for Upload { host, copied } in self.uploads.drain(..) {
            self.gpu.keep_until_reached(copied, Box::new(host));
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl std::error::Error for Refused {}
