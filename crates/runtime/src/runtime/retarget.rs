//! Turning a run to another end: what slots are made of, and what of the finish is the host's part.
//!
//! Batches are made for one end at a time (`runtime/target.rs`); turning to another ends the threads and makes the
//! slots again. How batches get to a GPU is `handover/gpu.rs`'s.

use std::mem;
use std::sync::Arc;

use bothends_gpu::finish::feed::FinishConfig;
use bothends_gpu::kernels::lacking;
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::path::Report;
use bothends_ops::Finish;
use bothends_slots::{Heap, SlotError};

use crate::collect::collector::Rings;
use crate::error::RuntimeError;
use crate::handover::gpu::feed::FeedPlan;
use crate::runtime::host::{Runtime, rings};
use crate::runtime::memory::{Room, Sizes};
use crate::runtime::target::{End, Ends};

/// Batches besides those that a consumer may hold for which the device has slots, for each consumer: the one
/// that it is being given, and the one behind it.
const UPLOADED: u32 = 2;

impl Runtime {
    /// Whether batches go there.
    pub(crate) fn is_for(&self, end: &End) -> bool {
        self.ends.now.is(end)
    }

    /// Where batches go on the host.
    pub(crate) fn host_end(&self) -> End {
        self.ends.on_host.clone()
    }

    /// Has them go there from now on: ends the threads, and makes the slots again.
    pub(crate) fn turn_to(&mut self, end: End) -> Result<(), RuntimeError> {
        self.stop_engine();
        let left = self.left_for(&end);
        let views = self.source.pipeline.views();
        let finish = match &left {
            Some(_) => Arc::new(Finish::of_cut(views)),
            None => Arc::clone(&self.delivered),
        };
        let described = left.map_or(0, |left| left.description_bytes());
        let sizes = Sizes::new(&self.config, views.len(), &finish);
        let sizes = sizes.with_description(described).with_fetched(self.fetched);
        let sizes = sizes.with_uploads(self.config.memory, self.uploads);
        let room = self.divide(sizes, None)?;
        let before = mem::replace(&mut self.ends.now, end);
        let made = self.page_locked_rings(sizes, room);
        self.rings = made.inspect_err(|_| self.ends.now = before)?;
        (self.finish, self.sizes, self.room) = (finish, sizes, room);
        if !matches!(self.ends.now, End::Gpu(_)) {
            self.ends.on_host = self.ends.now.clone();
        }
        let data = self.source.roots.first();
        let target = self.ends.now.target();
        self.ends.report =
            target.map(|target| target.path_from(data, self.ends.pinned.clone()));
        Ok(())
    }

    /// The slots, pinned where they are for a GPU and that is possible; a note says so where not.
    pub(crate) fn page_locked_rings(
        &mut self,
        sizes: Sizes,
        room: Room,
    ) -> Result<Rings, RuntimeError> {
        let Some(target) = self.ends.now.target() else {
            self.ends.pinned = Ends::default().pinned;
            return Ok(rings((&Heap, &*self.device_memory), sizes, room)?);
        };
        let delivered = PageLocked::of(target.gpu());
        match rings((&delivered, &*self.device_memory), sizes, room) {
            Ok(rings) => {
                self.ends.pinned = Ok(());
                Ok(rings)
            }
            Err(error @ SlotError::Registration { .. }) => {
                self.stays_pageable(&error.to_string());
                Ok(rings((&Heap, &Heap), sizes, room)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Batches that were to be pinned are not.
    pub(crate) fn stays_pageable(&mut self, why: &str) {
        let line = format!("host memory is not pinned: {why}");
        // What does not fit among the notes is not kept.
        let _ = self.notes.0.try_send(line);
        self.ends.pinned = Err(why.to_owned());
    }

    /// The way that batches take.
    pub(crate) fn path(&self) -> Report {
        let none = || {
            let why = self.ends.pinned.clone().err().unwrap_or_default();
            Report::of(Err(why), Ok(()), || Err("no GPU is open".to_owned()))
        };
        self.ends.report.clone().unwrap_or_else(none)
    }

    /// Whether the host leaves samples as they are at the cut, for a GPU to finish.
    pub(crate) fn is_finished_by_gpu(&self) -> bool {
        !Arc::ptr_eq(&self.finish, &self.delivered)
    }

    /// What the way to a GPU is told, for so many consumers.
    pub(crate) fn feed_plan(&self, consumers: u32) -> FeedPlan {
        let each = self.config.held_batches.saturating_add(UPLOADED);
        FeedPlan {
            n_slots: each.saturating_mul(consumers.max(1)),
            batch_size: self.config.batch_size as usize,
            host_bytes: self.sizes.front_slot(),
            sample_bytes: self.delivered.sample_bytes(),
            view_bytes: Arc::clone(self.delivered.view_bytes()),
            finish: self.left_for(&self.ends.now),
            is_page_locked: self.ends.pinned.is_ok(),
        }
    }

    /// What a GPU does to samples at the cut; `None` where there is nothing to do, or no kernel for some of it,
    /// or the card runs none: the host does it then.
    fn left_for(&self, end: &End) -> Option<FinishConfig> {
        match end {
            End::Gpu(target) if lacking(target.card()).is_none() => {}
            End::Gpu(_) | End::Host | End::PageLocked(_) => return None,
        }
        let delivered = &self.delivered;
        let config = FinishConfig::new(
            &self.config.recipe,
            self.source.pipeline.views().shapes(),
            self.config.output,
            (&delivered.values(), &delivered.scales()),
            self.config.batch_size as usize,
        );
        Some(config).filter(|config| !delivered.is_identity() && config.can_run())
    }
}
