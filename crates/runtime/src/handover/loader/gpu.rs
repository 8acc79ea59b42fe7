//! Where a loader's epochs end: in host memory, pinned where that is asked for, or in the memory
//! of a GPU.
//!
//! The runtime makes batches for one end at a time (`runtime/target.rs`); where an epoch is begun for
//! another than the last one was, its threads begin again. How batches get to a GPU is
//! `handover/gpu.rs`'s.

use std::sync::Arc;

use bothends_core::order::Order;
use bothends_gpu::path::Report;

use super::Loader;
use crate::config::deliver::Deliver;
use crate::error::{RuntimeError, one_line_with};
use crate::handover::deal::{Cancelled, Deal};
use crate::handover::gpu::deal::GpuDeal;
use crate::handover::gpu::dealt::Dealt;
use crate::handover::gpu::feed::GpuFeed;
use crate::handover::gpu::target::GpuTarget;
use crate::runtime::target::End;

impl Loader {
    /// As [`Self::begin`], with batches that end in the memory of a GPU, uploaded one ahead of each
    /// consumer. Blocks in the driver the first time, while memory is pinned and allocated.
    ///
    /// What is delivered is what [`Self::begin`] would deliver, byte for byte. Where there are kernels for it,
    /// batches travel as bytes at the cut, and the GPU normalises, casts, lays out, erases and mixes.
    ///
    /// # Errors
    /// As [`Self::begin`]; [`RuntimeError::Gpu`] where the GPU has no memory for the batches, or
    /// none of the host's can be pinned for it.
    pub fn begin_on(
        &mut self,
        target: &GpuTarget,
        consumers: u32,
    ) -> Result<Arc<GpuDeal>, RuntimeError> {
        self.begin_there(target, consumers, (None, None))
    }

    /// As [`Self::begin_on`], for one consumer and in this order, as [`Self::begin_order`] does it;
    /// `next` is the order of the epoch behind it where that is known already, as of
    /// [`Self::begin_order_before`].
    ///
    /// # Errors
    /// As [`Self::begin_on`] and [`Self::begin_order`].
    pub fn begin_order_on(
        &mut self,
        target: &GpuTarget,
        order: Arc<Order>,
        next: Option<Arc<Order>>,
    ) -> Result<Arc<GpuDeal>, RuntimeError> {
        self.begin_there(target, 1, (Some(order), next))
    }

    /// Begins the next epoch where the options say that batches end (`device`): as [`Self::begin`] or as
    /// [`Self::begin_on`].
    ///
    /// # Errors
    /// As there.
    pub fn begin_as_told(&mut self, consumers: u32) -> Result<Dealt, RuntimeError> {
        match self.told_gpu() {
            Some(target) => self.begin_on(&target, consumers).map(Dealt::Gpu),
            None => self.begin(consumers).map(Dealt::Host),
        }
    }

    /// The same in this order, for one consumer.
    ///
    /// # Errors
    /// As [`Self::begin_order`] and [`Self::begin_order_on`].
    pub fn begin_order_as_told(
        &mut self,
        order: Arc<Order>,
    ) -> Result<Dealt, RuntimeError> {
        match self.told_gpu() {
            Some(target) => self.begin_order_on(&target, order, None).map(Dealt::Gpu),
            None => self.begin_order(order).map(Dealt::Host),
        }
    }

    /// The GPU that the options say batches end on.
    fn told_gpu(&self) -> Option<GpuTarget> {
        let is_told = matches!(self.runtime().config.deliver, Deliver::Gpu(_));
        self.gpu.clone().filter(|_| is_told)
    }

    /// From the next epoch on, batches in host memory ([`Self::begin`]) lie in memory that is pinned
    /// for this GPU, so that `copy(non_blocking=True)` and its like overlap. Where it cannot be
    /// pinned they do not, which [`Self::notes`] and [`Self::path`] say. Blocks in the driver.
    ///
    /// # Errors
    /// [`RuntimeError::Slots`] without memory; [`RuntimeError::Forked`].
    pub fn pin_memory(&mut self, target: &GpuTarget) -> Result<(), RuntimeError> {
        self.home.check()?;
        self.turn_to(End::PageLocked(target.clone()))
    }

    /// The GPU that the options name (`device`, `pin_memory`); `None` where they name none, or memory was
    /// to be pinned and there is no GPU.
    #[must_use]
    pub fn gpu(&self) -> Option<&GpuTarget> {
        self.gpu.as_ref()
    }

    /// The way that batches take, of the epoch that was begun last, and why not a better one.
    #[must_use]
    pub fn path(&self) -> Report {
        self.runtime().path()
    }

    /// Prepares what the options say, with the GPU that batches are to be delivered to.
    pub(super) fn deliver_as_told(
        &mut self,
        gpu: Option<GpuTarget>,
    ) -> Result<(), RuntimeError> {
        self.gpu = gpu;
        let Deliver::PageLocked(index) = self.runtime().config.deliver else {
            return Ok(());
        };
        // Code that we do not know will copy from it: somebody must tell when that is over.
        let is_fit = |target: GpuTarget| target.can_tell_idle().map(|()| target);
        match GpuTarget::cuda(index).and_then(is_fit) {
            Ok(target) => {
                self.pin_memory(&target)?;
                self.gpu = Some(target);
            }
            Err(error) => {
                let line = one_line_with(&error, self.runtime().config.names);
                self.runtime_mut().stays_pageable(&line);
            }
        }
        Ok(())
    }

    /// Begins an epoch that ends in host memory.
    pub(super) fn begin_on_host(
        &mut self,
        consumers: u32,
        order: Option<Arc<Order>>,
        next: Option<Arc<Order>>,
    ) -> Result<Arc<Deal>, RuntimeError> {
        self.home.check()?;
        let end = self.runtime().host_end();
        self.turn_to(end)?;
        self.begin_with(consumers, order, next)
    }

    fn begin_there(
        &mut self,
        target: &GpuTarget,
        consumers: u32,
        (order, next): (Option<Arc<Order>>, Option<Arc<Order>>),
    ) -> Result<Arc<GpuDeal>, RuntimeError> {
        self.home.check()?;
        if self.is_undecoded() {
            let line = "unmodified files are delivered in host memory; use a recipe that decodes";
            return Err(RuntimeError::Options(line.to_owned()));
        }
        self.turn_to(End::Gpu(target.clone()))?;
        let feed = self.feed_to(target, consumers)?;
        let deal = self.begin_with(consumers, order, next)?;
        Ok(Arc::new(GpuDeal::new(deal, feed, consumers)))
    }

    /// The way to this GPU, for so many consumers.
    fn feed_to(
        &mut self,
        target: &GpuTarget,
        consumers: u32,
    ) -> Result<Arc<GpuFeed>, RuntimeError> {
        let plan = self.runtime().feed_plan(consumers);
        if let Some(feed) = self.feed.take().filter(|feed| feed.is_for(target, &plan)) {
            return Ok(Arc::clone(self.feed.insert(feed)));
        }
        let feed = Arc::new(GpuFeed::new(target, plan)?);
        Ok(Arc::clone(self.feed.insert(feed)))
    }

    /// Has batches made for another end, where it is another.
    fn turn_to(&mut self, end: End) -> Result<(), RuntimeError> {
        if self.runtime().is_for(&end) {
            return Ok(());
        }
        self.finish(Cancelled::Superseded);
        self.drop_ahead();
        self.feed = None;
        self.runtime_mut().turn_to(end)
    }
}
