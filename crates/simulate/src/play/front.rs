//! The host's workers: each makes one batch at a time, at its part of the host's rate.

use bothends_core::claim::Claim;

use super::{Event, Play, scaled};
use crate::noise::Noise;
use crate::world::{Slowdown, World};

#[derive(Debug)]
pub(super) struct Workers {
    noise: Noise,
    begun: u32,
    busy_ns: u64,
    /// What each worker is at: the claim and its worker's time.
    at_work: Vec<Option<(Claim, u64)>>,
    /// Places of workers that are at nothing.
    idle: Vec<u32>,
}

impl Workers {
    pub(super) fn new(world: &World) -> Self {
        let n = world.host.parallel.max(1);
        Self {
            noise: Noise::new(world.seed, 0),
            begun: 0,
            busy_ns: 0,
            at_work: (0..n).map(|_| None).collect(),
            idle: (0..n).rev().collect(),
        }
    }

    pub(super) fn some_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    pub(super) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

impl Play<'_> {
    /// Gives every idle worker what there is to do.
    pub(super) fn act_front(&mut self) {
        while let Some(&place) = self.workers.idle.last() {
            let Some(claim) = self.epoch.next_front(self.now) else { return };
            self.workers.idle.pop();
            let host = self.world.host;
            let factor = self.slowdown()
                * self.workers.noise.factor(host.cv)
                * self.slope_at(claim.batch());
            let work_ns = scaled(host.batch_ns * u64::from(host.parallel.max(1)), factor);
            self.workers.begun += 1;
            self.workers.at_work[place as usize] = Some((claim, work_ns));
            self.agenda.at(self.now.plus(work_ns), Event::Front { place });
        }
    }

    fn slowdown(&self) -> f64 {
        match self.world.host.slowdown {
            Some(Slowdown::After { percent, factor })
                if self.is_past(self.workers.begun, percent) =>
            {
                factor
            }
            Some(Slowdown::First { batches, factor }) if self.workers.begun < batches => {
                factor
            }
            Some(Slowdown::After { .. } | Slowdown::First { .. }) | None => 1.0,
        }
    }

    pub(super) fn front_ends(&mut self, place: u32) {
        let Some((claim, work_ns)) = self.workers.at_work[place as usize].take() else {
            return;
        };
        self.workers.idle.push(place);
        self.workers.busy_ns += work_ns;
        let share_ns = work_ns / u64::from(self.world.host.parallel.max(1));
        self.epoch.finish(claim, share_ns, self.now);
    }
}
