//! What is under way, for the collector: epochs, claims, and what is known of the producers.
//!
//! It keeps these books over several epochs, and passes on what one epoch's state must hear of the others;
//! it decides nothing. Read `collector.rs` next.

use std::collections::{HashMap, VecDeque};

use bothends_core::claim::Claim;
use bothends_core::ids::{BatchIdx, Prong};
use bothends_core::link::DeviceUse;
use bothends_slots::JobId;

use crate::collect::in_flight::{Brief, EpochNumber, Underway};
use crate::collect::producer::{Joins, LineReport};
use crate::read::lookahead::Soon;

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Told of, and not begun.
    pub(super) briefs: VecDeque<Brief>,
    pub(super) epochs: VecDeque<Underway>,
    pub(super) claims: HashMap<JobId, (EpochNumber, Claim)>,
    pub(super) next_id: u64,
    /// What the last epoch that made anything says of each producer.
    pub(super) known: Vec<LineReport>,
}

impl Work {
    /// Nothing yet; the ids of jobs are above `id`: no two jobs of a run have one id, or a
    /// device's late answer would be taken for another.
    pub(crate) fn after(id: u64) -> Self {
        Self { next_id: id, ..Self::default() }
    }

    /// The first epoch that has batches to deliver.
    pub(super) fn current(&self) -> Option<usize> {
        self.epochs.iter().position(|epoch| !epoch.has_ended())
    }

    /// Batches of the epochs before the one at `at` that are with their feeds and want a slot of
    /// the front's ring yet.
    pub(super) fn lacking_before(&self, at: usize) -> u32 {
        self.epochs.iter().take(at).map(|epoch| epoch.lacking.n()).sum()
    }

    /// Epochs that are under way and that nobody wants any more.
    pub(super) fn cancelled(&self) -> Vec<EpochNumber> {
        let cancelled = self.epochs.iter().filter(|epoch| epoch.is_cancelled());
        cancelled.map(|epoch| epoch.number).collect()
    }

    pub(super) fn of(&mut self, number: EpochNumber) -> Option<&mut Underway> {
        self.epochs.iter_mut().find(|epoch| epoch.number == number)
    }

    /// What a batch took is news to the epochs that began before anything was known.
    pub(super) fn learn(&mut self, number: EpochNumber, prong: Prong, work_ns: u64) {
        for epoch in self.epochs.iter_mut().filter(|epoch| epoch.number != number) {
            epoch.state.learn(prong, work_ns, epoch.now());
        }
    }

    /// A device takes part from now on.
    pub(super) fn joined(&mut self, prong: Prong, joins: Joins) {
        let Prong::Back(device) = prong else { return };
        for epoch in &mut self.epochs {
            let now = epoch.now();
            match joins {
                Joins::Again => epoch.state.device_joined(device, now),
                Joins::Another => epoch.state.device_replaced(device, None, now),
            }
        }
    }

    /// A device takes part, or rests.
    pub(super) fn use_device(&mut self, prong: Prong, to: DeviceUse) {
        let Prong::Back(device) = prong else { return };
        for epoch in &mut self.epochs {
            epoch.state.use_device(device, to, epoch.now());
        }
    }

    /// Open claims of devices.
    pub(super) fn n_at_devices(&self) -> usize {
        self.claims.values().filter(|(_, claim)| claim.prong() != Prong::Front).count()
    }

    /// Open claims of a prong in the other epochs.
    pub(super) fn n_held_beside(&self, at: usize, prong: Prong) -> u32 {
        let others = self.epochs.iter().enumerate().filter(|(other, _)| *other != at);
        others.map(|(_, epoch)| epoch.state.n_held(prong)).sum()
    }

    pub(super) fn n_claims(&self, number: EpochNumber) -> u32 {
        let n = self.claims.values().filter(|(of, _)| *of == number).count();
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// The next `n` batches that the front would claim if nobody came between, the first epoch's
    /// first. Of an epoch that has not begun they are guessed from its plan.
    pub(super) fn soon(&mut self, n: u32) -> Vec<Soon> {
        let mut soon = Vec::new();
        let mut left = n as usize;
        for epoch in self.epochs.iter_mut().filter(|epoch| !epoch.has_ended()) {
            let now = epoch.now();
            let batches = epoch.state.upcoming(left, now);
            left = left.saturating_sub(batches.len());
            soon.push(Soon { epoch: epoch.epoch(), plan: epoch.plan.clone(), batches });
        }
        for brief in &self.briefs {
            let is_done = |batch: &u32| {
                brief.config.done.iter().any(|(from, to)| (from..to).contains(&batch))
            };
            let batches = 0..brief.config.n_batches;
            let batches = batches.filter(|batch| !is_done(batch)).map(BatchIdx);
            let batches: Vec<_> = batches.take(left).collect();
            left = left.saturating_sub(batches.len());
            soon.push(Soon { epoch: brief.epoch, plan: brief.plan.clone(), batches });
        }
        soon.retain(|soon| !soon.batches.is_empty());
        soon
    }

    /// Takes the claims that fit, each with its job.
    pub(super) fn take_claims(
        &mut self,
        fits: impl Fn(EpochNumber, &Claim) -> bool,
    ) -> Vec<(JobId, EpochNumber, Claim)> {
        let fitting = self.claims.iter().filter(|(_, (of, claim))| fits(*of, claim));
        let jobs: Vec<_> = fitting.map(|(job, _)| *job).collect();
        let taken = jobs.into_iter().filter_map(|job| {
            self.claims.remove(&job).map(|(of, claim)| (job, of, claim))
        });
        taken.collect()
    }
}
