//! The books of an epoch: the ledger, what each prong holds, how fast it is, and when one of these
//! changes although nothing happens.
//!
//! With a thousand devices, an event must not cost a thousand queries. What all devices provide together
//! (their rate, their room, the next moment) is therefore updated when one of them changes;
//! [`Books::refresh`] is the only place that does this.

use crate::epoch::{EpochConfig, Recovery};
use crate::ids::{DeviceIdx, Ns, Prong};
use crate::ledger::Ledger;
use crate::ledger::hand::{Hand, Held};
use crate::rates::{Times, overdue_ns};
use crate::select::view::{Back, BackSum, Course, Front, Health, View};

/// What a view shows.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) ledger: Ledger,
    pub(super) front: Front,
    pub(super) back: Vec<Back>,
    /// The `buffer`s that the devices were given, where they share a quota.
    buffers: Vec<u32>,
    sum: BackSum,
    /// For each device the next moment at which it says something new; the end of time when
    /// there is none.
    moments: Vec<Ns>,
    /// None of the moments is before this one.
    earliest: Ns,
    /// Whether there may be a claim of a device that nothing is known of.
    some_unknown: bool,
    pub(super) consumer: Consumer,
    pub(super) recovery: Recovery,
    /// Unclaimed batches of the epochs before this one.
    pub(super) n_before: u32,
    pub(super) course: Course,
}

/// How long the consumer takes for a batch: as told, or as seen where it did not wait.
#[derive(Debug)]
pub(super) struct Consumer {
    told_ns: Option<u64>,
    seen: Times,
    /// When it took the last batch, unless it has found nothing ready since.
    busy_since: Option<Ns>,
}

impl Consumer {
    fn new(told_ns: Option<u64>) -> Self {
        Self { told_ns, seen: Times::of_host(None), busy_since: None }
    }

    fn step_ns(&self) -> Option<u64> {
        self.told_ns.or_else(|| self.seen.mean_ns())
    }

    /// It asked, and nothing was ready.
    pub(super) fn waits(&mut self) {
        self.busy_since = None;
    }

    /// It took a batch; in how many nanoseconds after the last one, where both were ready.
    pub(super) fn takes(&mut self, now: Ns) -> Option<u64> {
        let step_ns = now.since(self.busy_since.replace(now)?);
        if self.told_ns.is_none() {
            // A pause is no step.
            self.seen.push_limited(step_ns);
        }
        Some(step_ns)
    }
}

const NEVER: Ns = Ns(u64::MAX);

impl EpochConfig {
    /// The quota of all devices together, as it counts.
    pub(crate) fn whole_back_quota(&self) -> Option<u32> {
        let slots = self.devices.iter().map(|device| device.slots.max(1));
        let least = slots.fold(0, u32::saturating_add);
        self.back_quota.map(|quota| quota.max(least))
    }
}

impl Books {
    pub(super) fn new(config: &EpochConfig, front_part: f64) -> Self {
        let back = config.devices.iter().map(|&config| Back {
            config,
            hand: Hand::default(),
            times: Times::of_device(config.prior_ns),
            health: Health::Well,
            standing: config.standing,
        });
        let back: Vec<_> = back.collect();
        let ledger = Ledger::new(config.n_batches, &config.done, config.shards);
        let course =
            Course { n_batches: ledger.unpicked().len(), turned_at: None, paused_ns: 0 };
        let mut books = Self {
            ledger,
            front: Front {
                parallel: config.front.parallel.max(1),
                quota: config.front.quota.max(1),
                part: front_part,
                hand: Hand::default(),
                furthest: None,
                times: Times::of_host(config.front.prior_ns),
            },
            buffers: config.devices.iter().map(|device| device.buffer).collect(),
            sum: BackSum::of_quota(config.whole_back_quota()),
            moments: vec![NEVER; back.len()],
            earliest: NEVER,
            some_unknown: false,
            back,
            consumer: Consumer::new(config.accelerator_ns),
            recovery: config.recovery,
            n_before: 0,
            course,
        };
        for back in &books.back {
            books.sum.add(back);
        }
        books.share_room(Ns(0));
        books
    }

    /// Divides the quota of all devices among those that take part.
    pub(super) fn share_room(&mut self, now: Ns) {
        let Some(quota) = self.sum.quota() else { return };
        let takes_part =
            |back: &Back| !matches!(back.health, Health::Lost | Health::Leaving);
        let n_parts = self.back.iter().filter(|back| takes_part(back)).count();
        let each = quota / u32::try_from(n_parts.max(1)).unwrap_or(u32::MAX);
        for at in 0..self.back.len() {
            let buffer = self.buffers[at].min(each.max(1));
            if self.back[at].config.buffer != buffer && takes_part(&self.back[at]) {
                let device = DeviceIdx(u16::try_from(at).unwrap_or(u16::MAX));
                self.change(device, now, |back| back.config.buffer = buffer);
            }
        }
    }

    /// Whether the devices together hold as much as they may.
    pub(super) fn is_back_full(&self) -> bool {
        self.sum.is_full()
    }

    pub(super) fn view(&self, now: Ns) -> View<'_> {
        View {
            now,
            ledger: &self.ledger,
            front: &self.front,
            back: &self.back,
            sum: &self.sum,
            accelerator_ns: self.consumer.step_ns(),
            recovery: self.recovery,
            n_before: self.n_before,
            course: self.course,
        }
    }

    pub(super) fn device(&self, device: DeviceIdx) -> Option<&Back> {
        self.back.get(usize::from(device.0))
    }

    /// Says how many open claims of earlier epochs a device has.
    pub(super) fn comes_after(&mut self, device: DeviceIdx, n_held: u32) {
        if let Some(back) = self.back.get_mut(usize::from(device.0)) {
            back.hand.comes_after(n_held);
        }
    }

    /// When a device says something new, though nothing happens.
    pub(super) fn next_moment(&self) -> Option<Ns> {
        self.moments.iter().copied().min().filter(|at| *at != NEVER)
    }

    /// Lets `change` change a prong's hand, and for a device what follows from it.
    pub(super) fn change_hand<T>(
        &mut self,
        prong: Prong,
        now: Ns,
        change: impl FnOnce(&mut Hand) -> T,
    ) -> Option<T> {
        match prong {
            Prong::Front => Some(change(&mut self.front.hand)),
            Prong::Back(device) => {
                self.change(device, now, |back| change(&mut back.hand))
            }
        }
    }

    /// Lets `change` change a device, and what follows from it; `None` for a device that
    /// there is not.
    pub(super) fn change<T>(
        &mut self,
        device: DeviceIdx,
        now: Ns,
        change: impl FnOnce(&mut Back) -> T,
    ) -> Option<T> {
        let at = usize::from(device.0);
        let back = self.back.get_mut(at)?;
        self.sum.remove(back);
        let result = change(back);
        self.sum.add(back);
        self.refresh(at, now);
        Some(result)
    }

    /// Declares overdue what has become so.
    pub(super) fn pass(&mut self, now: Ns) {
        if now < self.earliest {
            return;
        }
        for at in 0..self.moments.len() {
            if self.moments[at] <= now {
                self.refresh(at, now);
            }
        }
        self.earliest = self.moments.iter().copied().min().unwrap_or(NEVER);
    }

    /// How long an unknown device may take depends on the host's times, which have changed.
    pub(super) fn host_times_changed(&mut self, now: Ns) {
        if !self.some_unknown {
            return;
        }
        self.some_unknown = false;
        for at in 0..self.back.len() {
            if self.moments[at] != NEVER && self.back[at].times.mean_ns().is_none() {
                self.refresh(at, now);
            }
        }
    }

    /// Lateness of one device, and when there may be more.
    fn refresh(&mut self, at: usize, now: Ns) {
        let back = &mut self.back[at];
        let host_ns = self.front.times.mean_ns();
        let redo_ns = host_ns.map_or_else(
            // Its first batches take so long at least.
            || self.front.hand.held().first().map_or(0, |held| now.since(held.since)),
            |ns| ns.saturating_mul(u64::from(self.front.parallel)),
        );
        let limit_ns = overdue_ns(&back.times, host_ns.unwrap_or(0), redo_ns);
        if back.hand.declare_overdue(limit_ns, now) && back.health == Health::Well {
            self.sum.remove(back);
            back.health = Health::Silent;
            self.sum.add(back);
        }
        let mean_ns = back.times.mean_ns();
        let is_waited_for = |held: &Held| self.ledger.only_back_makes(held.batch());
        let moments = back.hand.held().iter().flat_map(|held| {
            // That it is late is news even of a batch that the host has made meanwhile: on a
            // silent device nobody may count.
            let late = (!held.overdue).then(|| held.end_at(limit_ns));
            let due = mean_ns.filter(|_| is_waited_for(held)).map(|ns| held.end_at(ns));
            [late, due]
        });
        self.moments[at] =
            moments.flatten().filter(|at| *at > now).min().unwrap_or(NEVER);
        self.earliest = self.earliest.min(self.moments[at]);
        self.some_unknown |= mean_ns.is_none() && self.moments[at] != NEVER;
    }
}
