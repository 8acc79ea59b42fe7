//! A feed whose batches are finished on the device: samples at the cut in host slots in, delivered
//! batches out, one copy and one launch a view each.
//!
//! ```text
//! host slot: samples, descriptions ──copy stream──► staged slot ──finish kernels──► slot that is lent
//! ```
//!
//! The descriptions are written after the samples, so that one copy takes both. A staged slot is
//! free again, for the copy stream to wait for, as soon as the kernels are enqueued; so two of them do. What is
//! decided for a batch comes with it; this decides nothing and draws no number but where to erase
//! (`describe.rs`).
#![allow(unsafe_code, reason = "launches kernels on slots that it has")]

use std::fmt;
use std::time::Duration;

use bothends_core::recipe::op::{ErasingValue, RandomErasing};
use bothends_core::recipe::{Mixture, Op, Recipe};
use bothends_core::sample::SampleKey;
use bothends_core::tensor::{Output, SampleShape};
use bothends_slots::{HostSlot, Ring, RingConfig};

use super::describe::{Description, Descriptions, Erased, FinishRow, erased};
use super::{FinishBatch, FinishPlan, Finisher, MOST_ROWS};
use crate::GpuError;
use crate::kinds::PageLocked;
use crate::owners::{Gpu, Stream};
use crate::staging::{DeviceBatch, DeviceFeed, DeviceSlots, Filling, Refusal, Refused};

/// Slots that batches are copied into: while kernels read one, the other is written.
const STAGED: u32 = 2;

/// What descriptions, views and constants begin at multiples of, in bytes.
const ALIGN: usize = 16;

/// Mean and standard deviation of a channel; `None` without normalisation.
pub type Scale = Option<(f32, f32)>;

/// What a recipe does after the cut, to whole batches.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishConfig {
    /// What becomes of each view of a sample, in order.
    pub plans: Vec<FinishPlan>,
    /// What is erased, each with the number of its stream, in order.
    pub erasings: Vec<(u32, RandomErasing)>,
    /// Whether batches may be mixed.
    pub mixes: bool,
    /// How far a sample's partner is from it in the batch (`ops::Finish::distance`).
    pub distance: usize,
    /// Samples of a batch at most.
    pub batch_size: usize,
}

impl FinishConfig {
    /// What `recipe` does to samples of these views, where the host's finish has these
    /// `ops::Finish::values` and `scales`.
    #[must_use]
    pub fn new(
        recipe: &Recipe,
        views: &[SampleShape],
        output: Output,
        (values, scales): (&[[u32; 256]], &[Scale]),
        batch_size: usize,
    ) -> Self {
        let erasings = recipe.streams_after_cut().filter_map(|(stream, op)| {
            let Op::RandomErasing(op) = op else { return None };
            Some((stream, op.clone()))
        });
        let erasings: Vec<_> = erasings.collect();
        let is_noise = |op: &RandomErasing| matches!(op.value, ErasingValue::Random(_));
        let has_noise = erasings.iter().any(|(_, op)| is_noise(op));
        let plan = |shape: &SampleShape| {
            let (values, scales) = (values.to_vec(), scales.to_vec());
            FinishPlan { shape: *shape, output, values, scales, has_noise }
        };
        Self {
            plans: views.iter().map(plan).collect(),
            erasings,
            mixes: recipe.after_cut().iter().any(Op::mixes),
            distance: recipe.repeated_augment() as usize,
            batch_size,
        }
    }

    /// Whether there are kernels for all of it. What has none is finished on the host.
    #[must_use]
    pub fn can_run(&self) -> bool {
        let is_mixable = !self.mixes || self.plans.len() == 1;
        !self.plans.is_empty()
            && self.plans.iter().all(FinishPlan::can_run)
            && is_mixable
            && self.batch_size <= MOST_ROWS
    }

    /// Bytes of a sample at the cut.
    #[must_use]
    pub fn cut_bytes(&self) -> usize {
        self.plans.iter().map(|plan| plan.shape.len()).sum()
    }

    /// Bytes of a delivered sample.
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        self.plans.iter().map(bytes_out).sum()
    }

    /// Bytes that descriptions of a batch take at most, behind its samples.
    #[must_use]
    pub fn description_bytes(&self) -> usize {
        let n_rows = self.batch_size;
        let of_view = Descriptions::bytes(n_rows, n_rows * self.erasings.len());
        // Mixed rows and the others are described apart, each from a multiple of `ALIGN` on.
        ALIGN + self.plans.len() * (of_view + 2 * ALIGN)
    }
}

/// Bytes of a delivered view.
fn bytes_out(plan: &FinishPlan) -> usize {
    plan.shape.len() * plan.output.dtype.size()
}

/// A batch at the cut: its samples lie one after the other from the slot's beginning.
#[derive(Debug, Clone, Copy)]
pub struct CutBatch<'a> {
    /// Each row's numbers; `None` for a row without a sample, where nothing is erased.
    pub keys: &'a [Option<SampleKey>],
    /// How the first so many rows are mixed with each other; the others stay as they are.
    pub mixture: Option<(Mixture, usize)>,
}

/// Uploads batches and finishes them on the device.
pub struct FinishFeed {
    gpu: Gpu,
    feed: DeviceFeed,
    slots: DeviceSlots,
    compute: Stream,
    views: Vec<View>,
    config: FinishConfig,
    /// What the kernels look up.
    #[expect(dead_code, reason = "it keeps the memory")]
    constants: DeviceBatch,
}

/// One view of every sample.
struct View {
    finisher: Finisher,
    shape: SampleShape,
    /// From the beginning of a sample at the cut, and of a delivered one.
    offsets: [usize; 2],
}

/// What one launch does.
struct Part {
    view: usize,
    description: Description,
    /// Where its description is in the slot.
    at: usize,
    first_row: usize,
    mixture: Option<Mixture>,
}

impl fmt::Debug for FinishFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FinishFeed({:?}, {} views)", self.feed, self.views.len())
    }
}

impl FinishFeed {
    /// A feed with `n_slots` slots for delivered batches. Blocks in the driver: for set-up.
    ///
    /// # Errors
    /// [`GpuError`]: no memory, none that can be pinned, or no kernels.
    pub fn new(gpu: &Gpu, config: FinishConfig, n_slots: u32) -> Result<Self, GpuError> {
        let compute = gpu.stream()?;
        let rows = |bytes: usize| bytes.saturating_mul(config.batch_size);
        let staged = rows(config.cut_bytes()).saturating_add(config.description_bytes());
        let feed = RingConfig { n_slots: STAGED, slot_bytes: staged };
        let slots = RingConfig { n_slots, slot_bytes: rows(config.sample_bytes()) };
        let (feed, slots) = (DeviceFeed::new(gpu, feed)?, DeviceSlots::new(gpu, slots)?);
        let mut constants = Vec::new();
        let mut firsts = Vec::new();
        for plan in &config.plans {
            constants.resize(constants.len().next_multiple_of(ALIGN), 0);
            firsts.push(constants.len());
            constants.extend(plan.constants());
        }
        let constants = kept(gpu, &constants, &compute)?;
        let mut offsets = [0, 0];
        let mut views = Vec::new();
        for (plan, first) in config.plans.iter().zip(firsts) {
            let at = constants.address().after(first);
            let finisher = Finisher::new(gpu.driver(), plan.clone(), at)?;
            views.push(View { finisher, shape: plan.shape, offsets });
            offsets = [offsets[0] + plan.shape.len(), offsets[1] + bytes_out(plan)];
        }
        Ok(Self { gpu: gpu.clone(), feed, slots, compute, views, config, constants })
    }

    /// The slots of delivered batches.
    #[must_use]
    pub fn slots(&self) -> &DeviceSlots {
        &self.slots
    }

    /// Enqueues the copy and the finish of a batch, and returns it; lend it at once, its consumer waits on
    /// the device. Never blocks. The host slot goes back to its ring in a later [`Self::poll`] or `submit`.
    ///
    /// # Errors
    /// [`Refused`], with the slot wherever that is safe.
    pub fn submit(
        &mut self,
        mut host: HostSlot,
        batch: &CutBatch<'_>,
    ) -> Result<DeviceBatch, Box<Refused>> {
        let refuse = |host, why| Err(Box::new(Refused { host: Some(host), why }));
        let len = batch.keys.len() * self.config.sample_bytes();
        let slot_bytes = self.slots.ring().slot_bytes();
        if len > slot_bytes {
            return refuse(host, Refusal::TooLong { bytes: len, slot_bytes });
        }
        let (parts, staged_len) = match self.describe(&mut host, batch) {
            Ok(described) => described,
            Err(bytes) => {
                let slot_bytes = host.len();
                return refuse(host, Refusal::TooLong { bytes, slot_bytes });
            }
        };
        let Some(free) = self.slots.take(Duration::ZERO) else {
            let slots = self.slots.ring().n_slots() - self.slots.retired();
            return refuse(host, Refusal::Full { lent: self.slots.lent(), slots });
        };
        let filling = match free.begin(&self.compute) {
            Ok(filling) => filling,
            Err(error) => return refuse(host, error.into()),
        };
        let staged = self.feed.submit(host, staged_len)?;
        let failed = |why: GpuError| Box::new(Refused { host: None, why: why.into() });
        self.finish(staged, &filling, &parts).map_err(failed)?;
        filling.finish(len).map_err(failed)
    }

    /// As [`DeviceFeed::poll`].
    ///
    /// # Errors
    /// As there.
    pub fn poll(&mut self) -> Result<usize, GpuError> {
        self.feed.poll()
    }

    /// Host slots that the device is copying from.
    #[must_use]
    pub fn n_copying(&self) -> usize {
        self.feed.n_copying()
    }

    /// Writes what is done to the batch behind its samples: the launches, and how many bytes go to the
    /// device; else how many bytes the slot lacks room for.
    fn describe(
        &self,
        host: &mut HostSlot,
        batch: &CutBatch<'_>,
    ) -> Result<(Vec<Part>, usize), usize> {
        let n_rows = batch.keys.len();
        let (mixture, n_mixed) = match batch.mixture {
            Some((mixture, n_mixed)) => (Some(mixture), n_mixed.min(n_rows)),
            None => (None, 0),
        };
        let segments = [(0..n_mixed, mixture), (n_mixed..n_rows, None)];
        let cut_bytes = self.config.cut_bytes();
        let mut end = n_rows * cut_bytes;
        let mut parts = Vec::new();
        for (nth, view) in (0..).zip(&self.views) {
            for (rows, mixture) in segments.clone() {
                if rows.is_empty() {
                    continue;
                }
                let erased: Vec<Vec<Erased>> = batch.keys[rows.clone()]
                    .iter()
                    .map(|key| self.erased(*key, (nth, view.shape)))
                    .collect();
                let described = erased.iter().zip(rows.clone()).map(|(erased, row)| {
                    let offset = (row * cut_bytes + view.offsets[0]) as u64;
                    FinishRow { offset, is_flipped: false, erased }
                });
                let described: Vec<_> = described.collect();
                let n_erased = erased.iter().map(Vec::len).sum();
                let at = end.next_multiple_of(ALIGN);
                end = at + Descriptions::bytes(described.len(), n_erased);
                let into = host.get_mut(at..end).ok_or(end)?;
                let description = Descriptions::write(&described, into).ok_or(end)?;
                let (view, first_row) = (nth as usize, rows.start);
                parts.push(Part { view, description, at, first_row, mixture });
            }
        }
        // Without a launch behind them nobody has looked whether the samples are there.
        if end > host.len() {
            return Err(end);
        }
        Ok((parts, end))
    }

    fn erased(
        &self,
        key: Option<SampleKey>,
        (nth, shape): (u32, SampleShape),
    ) -> Vec<Erased> {
        let Some(key) = key else { return Vec::new() };
        let erasings = self.config.erasings.iter();
        erasings
            .filter_map(|(stream, op)| erased(op, *stream, (key, nth), shape))
            .collect()
    }

    /// Enqueues the kernels that make the delivered batch.
    fn finish(
        &self,
        mut staged: DeviceBatch,
        filling: &Filling,
        parts: &[Part],
    ) -> Result<(), GpuError> {
        staged.read_on(&self.compute)?;
        let sample_bytes = self.config.sample_bytes();
        for part in parts {
            let view = &self.views[part.view];
            let offset = part.first_row * sample_bytes + view.offsets[1];
            let batch = FinishBatch {
                src: staged.address(),
                dst: filling.address().after(offset),
                dst_stride: sample_bytes as u64,
                description: staged.address().after(part.at),
                mixture: part.mixture,
                distance: self.config.distance,
            };
            let (driver, stream) = (self.gpu.driver(), self.compute.id());
            // SAFETY: `describe` wrote the description into the slot that was uploaded, with
            // offsets of samples that lie before it; `submit` has seen that the delivered rows fit
            // into `filling`, which nobody else has. Both slots are in use until `compute` has passed
            // this: `staged` was told so, and `filling` records it. The constants are kept by `self`,
            // and its drop lets go of them after `compute`.
            unsafe { view.finisher.launch(driver, &part.description, &batch, stream) }?;
        }
        Ok(())
    }
}

/// Uploads bytes that kernels on `stream` look up from now on, as long as the value lives.
fn kept(gpu: &Gpu, bytes: &[u8], stream: &Stream) -> Result<DeviceBatch, GpuError> {
    let config = RingConfig { n_slots: 1, slot_bytes: bytes.len() };
    let missing = || GpuError::Slots { why: "a slot of a new ring is taken".to_owned() };
    let ring = Ring::of(&PageLocked::of(gpu), config)?;
    let slot = ring.take(Duration::ZERO).ok_or_else(missing)?;
    let mut host = slot.host().map_err(|_| missing())?;
    host[..bytes.len()].copy_from_slice(bytes);
    let mut feed = DeviceFeed::new(gpu, config)?;
    let mut kept =
        feed.submit(host, bytes.len()).map_err(|refused| match refused.why {
            Refusal::Gpu(error) => error,
            why @ (Refusal::Full { .. }
            | Refusal::TooLong { .. }
            | Refusal::NotPageLocked { .. }) => GpuError::Slots { why: why.to_string() },
        })?;
    kept.read_on(stream)?;
    Ok(kept)
}
