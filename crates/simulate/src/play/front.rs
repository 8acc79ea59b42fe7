//! The host's workers: each makes one batch at a time, at its share of the host's rate.

use bothends_core::ids::{Ns, Prong};
use bothends_core::link::{LinkShare, SampleBytes, Seen};

use super::epochs::Task;
use super::{Event, Play, scaled};
use crate::noise::Noise;
use crate::world::{Slowdown, World};

#[derive(Debug)]
pub(super) struct Workers {
    noise: Noise,
    begun: u32,
    /// What each worker is doing: its task and time, and how long it waits for records.
    at_work: Vec<Option<(Task, u64, u64)>>,
    /// The link that records come over, and when it was last looked at.
    link: Option<(LinkShare, Ns)>,
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
            link: world.host.records.map(|records| {
                let (host, device) = (records.batch_bytes, world.batch_bytes);
                (LinkShare::new(SampleBytes { host, device }), Ns(0))
            }),
            idle: (0..n as usize).rev().collect(),
        }
    }
}

impl Play<'_> {
    /// Assigns work to every idle worker.
    pub(super) fn act_front(&mut self) {
        if let Some((link, _)) = &self.workers.link {
            let to = link.devices();
            self.epochs.use_devices(to, self.now);
        }
        while let Some(&place) = self.workers.idle.last() {
            let Some(task) = self.epochs.next(Prong::Front, self.now) else { return };
            self.workers.idle.pop();
            let host = self.world.host;
            let factor = self.slowdown()
                * self.workers.noise.factor(host.cv)
                * self.slope_at(task.batch());
            let work_ns =
                scaled(host.batch_ns.saturating_mul(host.parallel.max(1).into()), factor);
            self.workers.begun += 1;
            let here = self.records_cross();
            let waits_ns = here.since(self.now);
            self.workers.at_work[place] = Some((task, work_ns, waits_ns));
            self.agenda.at(here.plus(work_ns), Event::Front { place });
        }
    }

    /// When the records of the next batch are here, which cross the link from now on.
    fn records_cross(&mut self) -> Ns {
        match self.world.host.records {
            Some(records) => self.crosses(records.link, records.batch_bytes),
            None => self.now,
        }
    }

    /// Says what was seen of the link while a worker waited for a batch's records; what the batch
    /// cost the host.
    fn look_at_link(&mut self, work_ns: u64, waits_ns: u64) -> u64 {
        let now = self.now;
        let Some((link, at)) = &mut self.workers.link else { return work_ns };
        let ns = now.since(*at);
        *at = now;
        let part = super::float(waits_ns)
            / super::float(waits_ns.saturating_add(work_ns.max(1)));
        let bytes = self.world.host.records.map_or(0, |records| records.batch_bytes);
        let starved_ns = scaled(ns, part);
        link.saw(Seen { ns, starved_ns, bytes, in_flight_bytes: 0, wall_ns: now.0 });
        link.host_ns(work_ns, 1)
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
        let Some((task, work_ns, waits_ns)) = self.workers.at_work[place].take() else {
            return;
        };
        self.workers.idle.push(place);
        self.epochs.host_worked(&task, work_ns);
        let share_ns = work_ns / u64::from(self.world.host.parallel.max(1));
        let cost_ns = self.look_at_link(share_ns, waits_ns);
        self.epochs.finish(task, cost_ns, self.now);
    }
}
