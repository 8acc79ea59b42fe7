//! The host's workers: each makes one batch at a time, at its share of the host's rate.

use bothends_core::ids::Prong;

use super::epochs::Task;
use super::{Event, Play, scaled};
use crate::noise::Noise;
use crate::world::{Slowdown, World};

#[derive(Debug)]
pub(super) struct Workers {
    noise: Noise,
    begun: u32,
    /// What each worker is doing: its task and time.
    at_work: Vec<Option<(Task, u64)>>,
    /// Idle workers.
    pub(super) idle: Vec<usize>,
}

impl Workers {
    pub(super) fn new(world: &World) -> Self {
        let n = world.host.parallel.max(1);
        Self {
            noise: Noise::new(world.seed, 0),
            begun: 0,
            at_work: (0..n).map(|_| None).collect(),
            idle: (0..n as usize).rev().collect(),
        }
    }
}

impl Play<'_> {
    /// Assigns work to every idle worker.
    pub(super) fn act_front(&mut self) {
        while let Some(&place) = self.workers.idle.last() {
            let Some(task) = self.epochs.next(Prong::Front, self.now) else { return };
            self.workers.idle.pop();
            let host = self.world.host;
            let factor = self.slowdown()
                * self.workers.noise.factor(host.cv)
                * self.slope_at(task.batch());
            let work_ns = scaled(host.batch_ns * u64::from(host.parallel.max(1)), factor);
            self.workers.begun += 1;
            self.workers.at_work[place] = Some((task, work_ns));
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

    pub(super) fn front_ends(&mut self, place: usize) {
        let Some((task, work_ns)) = self.workers.at_work[place].take() else {
            return;
        };
        self.workers.idle.push(place);
        self.epochs.host_worked(&task, work_ns);
        let share_ns = work_ns / u64::from(self.world.host.parallel.max(1));
        self.epochs.finish(task, share_ns, self.now);
    }
}
