//! The way to a GPU: batches in host memory in, batches in GPU memory out, finished there where there are
//! kernels for it. Shared by the epochs and consumers of one loader.
//!
//! Host slots come back to their ring once the device has copied them, which somebody must ask it
//! about: every call here does, and rings the collector's bell.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bothends_gpu::GpuError;
use bothends_gpu::finish::feed::{CutBatch, FinishConfig, FinishFeed};
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::staging::{self, DeviceBatch, DeviceFeed, DeviceSlots, Refusal};
use bothends_slots::{HostSlot, Ring, RingConfig};

use crate::collect::wakeup::Bell;
use crate::error::RuntimeError;
use crate::handover::batch::{Batch, BatchHeader, Left};
use crate::handover::epoch::starvation::Keeper;
use crate::handover::gpu::batch::GpuBatch;
use crate::handover::gpu::target::GpuTarget;
use crate::threads::shutdown::PATIENCE;

/// How long a consumer waits for a batch before it is looked whether copies have passed: their slots may be
/// what the batch is made in.
const COPY_LOOK: Duration = Duration::from_millis(2);

/// Slots that batches are copied through on the host where the slots that they are made in could not be
/// pinned: one is filled while the other is copied.
const BOUNCES: u32 = 2;

/// Why a batch is refused while both are being copied from.
const NO_BOUNCE: Refusal = Refusal::Full { lent: 0, slots: BOUNCES };

/// What batches are, and how many the device has room for.
#[derive(Debug, Clone)]
pub(crate) struct FeedPlan {
    /// Slots that consumers get.
    pub(crate) n_slots: u32,
    /// Samples of a batch.
    pub(crate) batch_size: usize,
    /// Bytes of a host slot.
    pub(crate) host_bytes: usize,
    /// Bytes of one delivered sample.
    pub(crate) sample_bytes: usize,
    /// Bytes of each view of it.
    pub(crate) view_bytes: Arc<[usize]>,
    /// What is left for the device to do; `None` where the host has finished the batches.
    pub(crate) finish: Option<FinishConfig>,
    /// Whether host slots are pinned.
    pub(crate) is_page_locked: bool,
}

/// Uploads batches.
#[derive(Debug)]
pub(crate) struct GpuFeed {
    target: GpuTarget,
    n_slots: u32,
    sample_bytes: usize,
    view_bytes: Arc<[usize]>,
    /// The slots that consumers get.
    slots: DeviceSlots,
    ways: Mutex<Ways>,
}

/// What uploads go through, one at a time.
#[derive(Debug)]
struct Ways {
    uploads: Uploads,
    /// Pinned slots to copy through, where those of batches are not.
    bounces: Option<Ring>,
    /// Whoever makes batches in the slots that come back.
    bell: Option<Bell>,
}

#[derive(Debug)]
enum Uploads {
    /// As the host has finished them.
    AsTheyAre(DeviceFeed),
    /// As they are at the cut.
    Finished(Box<FinishFeed>),
}

/// A batch that was not uploaded.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no slot for it at this moment, since that one keeps them; here it is.
    Full(Box<Batch>, Keeper),
    /// It is lost.
    Failed(RuntimeError),
}

impl GpuFeed {
    /// Allocates the device's slots. Blocks in the driver.
    pub(crate) fn new(target: &GpuTarget, plan: FeedPlan) -> Result<Self, RuntimeError> {
        let gpu = target.gpu();
        let failed = |why: GpuError| target.failed(why);
        let FeedPlan { n_slots, sample_bytes, view_bytes, .. } = plan;
        let (uploads, slots) = match plan.finish {
            Some(config) => {
                let feed = FinishFeed::new(gpu, config, n_slots).map_err(failed)?;
                let slots = feed.slots().clone();
                (Uploads::Finished(Box::new(feed)), slots)
            }
            None => {
                let slot_bytes = sample_bytes.saturating_mul(plan.batch_size);
                let feed = DeviceFeed::new(gpu, RingConfig { n_slots, slot_bytes });
                let feed = feed.map_err(|error| failed(error.into()))?;
                let slots = feed.slots().clone();
                (Uploads::AsTheyAre(feed), slots)
            }
        };
        let bounces = (!plan.is_page_locked).then(|| {
            let config = RingConfig { n_slots: BOUNCES, slot_bytes: plan.host_bytes };
            Ring::of(&PageLocked::of(gpu), config)
        });
        let bounces = bounces.transpose().map_err(|error| failed(error.into()))?;
        let ways = Mutex::new(Ways { uploads, bounces, bell: None });
        Ok(Self {
            target: target.clone(),
            n_slots,
            sample_bytes,
            view_bytes,
            slots,
            ways,
        })
    }

    /// Whether it goes there, with room for that many consumers.
    pub(crate) fn is_for(&self, target: &GpuTarget, plan: &FeedPlan) -> bool {
        self.target.is(target) && self.n_slots == plan.n_slots
    }

    /// Slots that consumers get.
    pub(crate) fn n_slots(&self) -> u32 {
        self.n_slots
    }

    /// Enqueues the upload of a batch, and what is left to be done to it. Does not wait for the device.
    pub(crate) fn upload(&self, batch: Batch) -> Result<GpuBatch, Refused> {
        let mut ways = self.ways();
        ways.bell = Some(batch.release.bell().clone());
        let Batch { header, slot, left, .. } = batch;
        let len = header.rows.len() * header.sample_bytes;
        let sent = ways.send(slot, len, left.as_deref());
        ways.ring();
        drop(ways);
        match sent {
            Ok(memory) => Ok(GpuBatch {
                header: BatchHeader {
                    sample_bytes: self.sample_bytes,
                    view_bytes: Arc::clone(&self.view_bytes),
                    ..header
                },
                target: self.target.clone(),
                memory: Box::new(memory),
            }),
            Err(refused) => Err(match *refused {
                staging::Refused {
                    host: Some(slot),
                    why: why @ Refusal::Full { slots, .. },
                } if slots > 0 => {
                    let batch = Batch { header, slot, left, ..batch };
                    Refused::Full(Box::new(batch), self.keeper(&why))
                }
                staging::Refused { why, .. } => Refused::Failed(self.failed(why)),
            }),
        }
    }

    /// The GPU.
    pub(crate) fn target(&self) -> &GpuTarget {
        &self.target
    }

    /// Who keeps the slots for want of which an upload was refused.
    fn keeper(&self, why: &Refusal) -> Keeper {
        // The other slots to copy through are being copied from.
        let is_bounce = *why == NO_BOUNCE;
        if is_bounce || self.slots.returning() > 0 {
            Keeper::Device
        } else {
            Keeper::Consumers
        }
    }

    /// Gives slots back that the device is done with, the host's whose copies have passed and those that
    /// wait until it is idle. Does not wait for the device.
    pub(crate) fn poll(&self) -> Result<(), RuntimeError> {
        if self.slots.returning() > 0 {
            self.target.sweep();
        }
        let mut ways = self.ways();
        let before = ways.uploads.n_copying();
        if before == 0 {
            return Ok(());
        }
        let left = ways.uploads.poll().map_err(|why| self.target.failed(why))?;
        if left < before {
            ways.ring();
        }
        Ok(())
    }

    /// Waits until the consumers have given a slot back, `patience` at most; where it is the device that gives
    /// them back, until it is to be asked again.
    pub(crate) fn wait_for_slot(&self, patience: Duration) {
        let is_with_device = self.slots.returning() > 0;
        let patience = if is_with_device { patience.min(COPY_LOOK) } else { patience };
        if let Some(slot) = self.slots.take(patience) {
            drop(slot);
            // There is one, so it is a slot on the host that is missing.
            thread::sleep(COPY_LOOK.min(patience));
        }
    }

    /// How long to wait for the host at once, of so long, and who keeps its slots: what is being copied may be
    /// what it waits for, or what waits for a slot that the device gives back.
    pub(crate) fn at_most(&self, patience: Duration) -> (Duration, Keeper) {
        let n_copying = self.ways().uploads.n_copying();
        match (n_copying, self.slots.returning()) {
            (0, 0) => (patience, Keeper::Consumers),
            // Batches that want the device's slots keep the host's.
            (0, _) => (patience.min(PATIENCE), Keeper::Device),
            (_, _) => (patience.min(COPY_LOOK), Keeper::Device),
        }
    }

    fn failed(&self, why: Refusal) -> RuntimeError {
        let line = why.to_string();
        let why = if let Refusal::Gpu(why) = why {
            why
        } else {
            GpuError::Driver { call: "upload", why: line }
        };
        self.target.failed(why)
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        // What a panic of another thread leaves is a queue of copies that is still true.
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ways {
    fn send(
        &mut self,
        slot: HostSlot,
        len: usize,
        left: Option<&Left>,
    ) -> Result<DeviceBatch, Box<staging::Refused>> {
        let Some(bounces) = &self.bounces else {
            return self.uploads.send(slot, len, left);
        };
        let bounce = bounces.take(Duration::ZERO).and_then(|bounce| bounce.host().ok());
        let Some(mut bounce) = bounce else {
            let refused = staging::Refused { host: Some(slot), why: NO_BOUNCE };
            return Err(Box::new(refused));
        };
        bounce[..len].copy_from_slice(&slot[..len]);
        self.uploads.send(bounce, len, left).map_err(|mut refused| {
            // The bounce goes back to its ring, and the caller keeps the batch.
            refused.host = refused.host.map(|_| slot);
            refused
        })
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

impl Uploads {
    fn send(
        &mut self,
        slot: HostSlot,
        len: usize,
        left: Option<&Left>,
    ) -> Result<DeviceBatch, Box<staging::Refused>> {
        match (self, left) {
            (Self::AsTheyAre(feed), _) => feed.submit(slot, len),
            (Self::Finished(feed), Some(Left { keys, mixture })) => {
                feed.submit(slot, &CutBatch { keys, mixture: *mixture })
            }
            (Self::Finished(_), None) => {
                let why = "a batch of another feed's epoch".to_owned();
                let why = Refusal::Gpu(GpuError::Driver { call: "upload", why });
                Err(Box::new(staging::Refused { host: Some(slot), why }))
            }
        }
    }

    fn n_copying(&self) -> usize {
        match self {
            Self::AsTheyAre(feed) => feed.n_copying(),
            Self::Finished(feed) => feed.n_copying(),
        }
    }

    fn poll(&mut self) -> Result<usize, GpuError> {
        match self {
            Self::AsTheyAre(feed) => feed.poll(),
            Self::Finished(feed) => feed.poll(),
        }
    }
}
