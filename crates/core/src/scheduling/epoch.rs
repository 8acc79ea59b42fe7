//! All decisions of one epoch, and none of the work.
//!
//! The caller reports what happened and when, and asks what to do. It may live in wall time (`runtime`)
//! or in virtual time (`simulate`). This file keeps the books, enforces limits and declares lateness.
//! Which batch to take is the choice of the strategy (`select`). Nothing here blocks, reads a clock or
//! starts anything.

mod books;
pub(crate) mod device;
pub mod members;
#[cfg(test)]
mod tests;

use books::Books;
pub use device::{DeviceConfig, Recovery, Standing};

use crate::claim::{Claim, ClaimKind, Returned, Ticket};
use crate::ids::{BatchIdx, DeviceIdx, Ns, Prong};
use crate::ledger::OpenTo;
use crate::ledger::hand::Hand;
use crate::link::DeviceUse;
use crate::objective::{Allowance, Objective, is_needed_of_host};
use crate::rates::Times;
use crate::select::view::{Back, Health};
use crate::select::{Strategy, StrategyConfig};

/// What an epoch is told before it starts.
#[derive(Debug, Clone)]
pub struct EpochConfig {
    /// Batches of the epoch, delivered ones included.
    pub n_batches: u32,
    /// Who claims what, what is delivered next.
    pub strategy: StrategyConfig,
    /// The host.
    pub front: FrontConfig,
    /// What the epoch is run for.
    pub objective: Objective,
    /// The devices; their numbers are their places here.
    pub devices: Vec<DeviceConfig>,
    /// Batches outstanding or waiting for delivery at most, of all devices together. The devices that
    /// take part share it equally, each within its `buffer`; `None` where the buffers are all there is.
    /// It is the sum of all `slots` at least: what silent devices keep must leave the others theirs.
    pub back_quota: Option<u32>,
    /// Shards that the batches are dealt to in turn, for devices that have one of them
    /// only; 1 (or 0) where every device has all the data.
    pub shards: u16,
    /// Nanoseconds the accelerator takes for a batch; `None` when unknown: then it is
    /// measured wherever a batch was ready when the consumer asked.
    pub accelerator_ns: Option<u64>,
    /// Batches that an earlier part of this epoch delivered: half-open ranges.
    pub done: Vec<(u32, u32)>,
    /// What happens when a device is lost or late.
    pub recovery: Recovery,
}

/// What an epoch is told of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontConfig {
    /// Batches the host makes side by side, each at `1 / parallel` of its rate (at least 1):
    /// the number of workers where each makes a batch of its own, 1 where they share one.
    pub parallel: u32,
    /// Batches that are being made or wait for delivery at most (at least 1). Beyond it the
    /// host takes up to `parallel` more, but only rescues and the very batch that delivery
    /// waits for; so memory is bounded by `quota + parallel` plus the devices' `buffer`s.
    pub quota: u32,
    /// Nanoseconds of one host batch (all workers together), if known from before.
    pub prior_ns: Option<u64>,
}

/// What is delivered next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// This batch. It is not picked again; say [`EpochState::delivered`] when it was taken.
    Deliver(BatchIdx),
    /// Nothing yet: ask again after the next event, or at [`EpochState::wake_at`].
    Wait,
    /// Every batch has been picked.
    End,
}

/// What became of a finished batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It counts: keep it until it is delivered.
    Committed,
    /// Somebody else was first, or the claim had been taken away: throw the bytes away.
    Wasted,
}

/// What has happened in an epoch so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// The host's share.
    pub front: ProngCounts,
    /// Each device's share.
    pub back: Vec<ProngCounts>,
    /// Device claims that the host began to redo.
    pub rescued: u32,
    /// Claims that were dropped; 0 in a healthy run.
    pub returned: u32,
    /// Most device batches that ever waited for delivery at once.
    pub peak_waiting: u32,
    /// Batches delivered, as half-open ranges in rising order, the resumed ones included.
    pub delivered: Vec<(u32, u32)>,
}

/// What one prong has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProngCounts {
    /// Batches delivered that this prong made.
    pub delivered: u32,
    /// Batches finished that did not count.
    pub wasted: u32,
    /// Claims that ended without a batch: failed, corrupt, or gone with the device.
    pub lost: u32,
    /// Batches finished after they had been declared overdue.
    pub late: u32,
}

/// One epoch: its books, its rates and its strategy. Takes questions and events with the
/// caller's time, which never goes back; never blocks.
#[derive(Debug)]
pub struct EpochState {
    strategy: Box<dyn Strategy>,
    books: Books,
    objective: Objective,
    /// Whether the host alone can make all batches.
    may_rest: bool,
    allowance: Option<Allowance>,
    returned: Returned,
    next_serial: u64,
    counts: Counts,
}

impl EpochState {
    /// An epoch in which nothing has happened.
    #[must_use]
    pub fn new(config: EpochConfig) -> Self {
        let allowance = Allowance::of(config.objective);
        let part = allowance.map_or(1.0, |allowance| allowance.part());
        let books = Books::new(&config, part);
        let n_devices = config.devices.len();
        Self {
            strategy: config.strategy.build(),
            books,
            objective: config.objective,
            may_rest: !config.strategy.is_published()
                && config.strategy != StrategyConfig::Csd,
            allowance,
            returned: Returned::default(),
            next_serial: 0,
            counts: Counts {
                back: vec![ProngCounts::default(); n_devices],
                ..Counts::default()
            },
        }
    }
}

// ---- questions ----------------------------------------------------------------------------

impl EpochState {
    /// The host has a free hand: what it makes next. A rescue comes first.
    pub fn next_front(&mut self, now: Ns) -> Option<Claim> {
        self.catch_up(now);
        if self.may_begin_at().is_some_and(|at| at > now) {
            return None;
        }
        let batch = self.choose_front(now)?;
        let kind = if self.books.ledger.is_free(batch) {
            ClaimKind::First
        } else if self.books.ledger.only_back_makes(batch) {
            self.counts.rescued += 1;
            ClaimKind::Rescue
        } else {
            return None;
        };
        Some(self.claim(batch, Prong::Front, kind, now))
    }

    /// A rescue, else what the strategy takes. With the quota full only rescues, batches that
    /// what fills the quota waits behind, and last of all the batch that delivery waits for: so
    /// a full quota never waits for itself.
    fn choose_front(&mut self, now: Ns) -> Option<BatchIdx> {
        let front = &self.books.front;
        let (used, most) =
            (front.hand.used(), front.quota.saturating_add(front.parallel));
        let view = self.books.view(now);
        let strategy = &mut self.strategy;
        let rescue = if used + 1 < most { strategy.rescue(&view) } else { None };
        if rescue.is_some() || used >= most {
            return rescue;
        }
        if used < front.quota {
            let batch = strategy.front(&view)?;
            let is_needed = self.objective != Objective::Energy
                || is_needed_of_host(&view, strategy.before(&view, batch));
            return is_needed.then_some(batch);
        }
        let overtaken = if used + 1 < most { strategy.overtaken(&view) } else { None };
        overtaken.or_else(|| strategy.awaited(&view)).filter(|batch| {
            let mut claims = view.back_claims().filter(|claim| claim.batch == *batch);
            view.ledger.is_free(*batch)
                || claims.any(|claim| view.is_worth_redoing(&claim))
        })
    }

    /// The next `n` batches that the host would claim if nothing came between, in this order: what is
    /// worth fetching ahead. It claims nothing. Neither the quota nor the host's allowance count, as
    /// both come free in time; a rescue is not foreseen.
    #[must_use]
    pub fn upcoming(&self, n: usize, now: Ns) -> Vec<BatchIdx> {
        let view = self.books.view(now);
        let is_needed = |batch: &BatchIdx| {
            self.objective != Objective::Energy
                || is_needed_of_host(&view, self.strategy.before(&view, *batch))
        };
        let first = self.strategy.front_after(&view, None);
        let all = std::iter::successors(first, |batch| {
            self.strategy.front_after(&view, Some(*batch))
        });
        all.take_while(is_needed).take(n).collect()
    }

    /// A device has a free job slot: what it makes next.
    pub fn next_back(&mut self, device: DeviceIdx, now: Ns) -> Option<Claim> {
        self.catch_up(now);
        let back = self.books.device(device)?;
        // What is overdue says nothing new: only a batch in time proves a device, or its lack.
        let may_try =
            back.is_proven() || back.hand.held().iter().all(|held| held.overdue);
        let has_room = back.health == Health::Well
            && may_try
            && back.hand.n_held() < back.config.slots.max(1)
            && back.hand.used() < back.config.buffer.max(1)
            && !self.books.is_back_full();
        if !has_room {
            return None;
        }
        let batch = self.strategy.back(&self.books.view(now), device)?;
        let kind = if self.books.ledger.free().contains(batch) {
            ClaimKind::First
        } else if self.books.ledger.only_front_makes(batch)
            && self.books.recovery == Recovery::On
        {
            ClaimKind::Rescue
        } else {
            return None;
        };
        Some(self.claim(batch, Prong::Back(device), kind, now))
    }

    /// The consumer has room: what it gets next.
    pub fn next_delivery(&mut self, now: Ns) -> Pick {
        self.catch_up(now);
        self.books.course.turned_at.get_or_insert(now);
        if self.books.ledger.unpicked().is_empty() {
            return Pick::End;
        }
        match self.strategy.deliver(&self.books.view(now)) {
            Some(batch) if self.books.ledger.pick(batch) => Pick::Deliver(batch),
            Some(_) | None => {
                self.books.consumer.waits();
                Pick::Wait
            }
        }
    }

    /// Whether every batch is being made or is made. One that is lost afterwards is to be made
    /// again.
    #[must_use]
    pub fn is_claimed_out(&self) -> bool {
        self.books.ledger.free().is_empty()
    }

    /// Whether a prong that has just been refused a batch may take one of the next epoch: all of
    /// this one are claimed, or the devices have the rest of it ready before the host would. The
    /// next epoch is to be told of the rest: see [`Self::comes_after`].
    #[must_use]
    pub fn may_go_on(&self, prong: Prong, now: Ns) -> bool {
        self.is_claimed_out()
            || prong == Prong::Front && self.strategy.leaves_rest(&self.books.view(now))
    }

    /// Batches that nobody has claimed.
    #[must_use]
    pub fn n_unclaimed(&self) -> u32 {
        self.books.ledger.free().len()
    }

    /// Open claims of a prong.
    #[must_use]
    pub fn n_held(&self, prong: Prong) -> u32 {
        match prong {
            Prong::Front => self.books.front.hand.n_held(),
            Prong::Back(device) => {
                self.books.device(device).map_or(0, |back| back.hand.n_held())
            }
        }
    }

    /// Says what is left of the epochs before this one, before a prong is asked for its next
    /// batch: so many batches that nobody has claimed, and so many open claims of the prong, which
    /// it ends first.
    pub fn comes_after(&mut self, prong: Prong, n_unclaimed: u32, n_held: u32) {
        self.books.n_before = n_unclaimed;
        match prong {
            Prong::Front => self.books.front.hand.comes_after(n_held),
            Prong::Back(device) => self.books.comes_after(device, n_held),
        }
    }

    /// A prong has made a batch of an earlier epoch in so many nanoseconds, as in
    /// [`Self::finish`]: where nothing is known of it, this is.
    pub fn learn(&mut self, prong: Prong, work_ns: u64, now: Ns) {
        match prong {
            Prong::Front => {
                self.books.front.times.learn(work_ns);
                self.books.host_times_changed(now);
            }
            Prong::Back(device) => {
                self.books.change(device, now, |back| back.times.learn(work_ns));
            }
        }
    }

    /// What the device's last answer was worth: the next epoch begins with it.
    #[must_use]
    pub fn standing(&self, device: DeviceIdx) -> Standing {
        self.books.device(device).map_or(Standing::New, |back| back.standing)
    }

    /// When to ask again though nothing happened; later than `now`.
    #[must_use]
    pub fn wake_at(&mut self, now: Ns) -> Option<Ns> {
        self.catch_up(now);
        let begins = self.may_begin_at().filter(|at| *at > now);
        let decides =
            self.strategy.changes_at(&self.books.view(now)).filter(|at| *at > now);
        let moments = [self.books.next_moment(), begins, decides];
        moments.into_iter().flatten().min()
    }

    /// When the host's allowance lets it begin one more batch; `None` without a cap.
    fn may_begin_at(&self) -> Option<Ns> {
        let front = &self.books.front;
        let each_ns = front.times.mean_ns().unwrap_or(0);
        self.allowance.map(|allowance| allowance.begins_at(front.hand.n_held(), each_ns))
    }

    /// For how many nanoseconds the consumer can do without a batch that a device is to make: 0 where it
    /// would be faster with the device than without. What is not known yet counts as need.
    ///
    /// The consumer comes to the batch when it has taken what is delivered before it. Meanwhile the host
    /// makes those of them that are not ready; what is left of the time is slack.
    #[must_use]
    pub fn need_ns(&self, batch: BatchIdx, now: Ns) -> u64 {
        let view = self.books.view(now);
        let before = self.strategy.before(&view, batch);
        let n_ready = view.front.hand.waiting().saturating_add(view.sum.waiting());
        let n_lacking = u64::from(before.saturating_sub(n_ready)) + 1;
        let step_ns = view.accelerator_ns.unwrap_or(0);
        let host_ns = view.front.times.mean_ns().unwrap_or(0);
        let reached_ns = step_ns.saturating_mul(before.into());
        reached_ns.saturating_sub(host_ns.saturating_mul(n_lacking))
    }

    /// What has happened so far. Costs O(batches).
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { delivered: self.books.ledger.delivered(), ..self.counts.clone() }
    }

    fn claim(
        &mut self,
        batch: BatchIdx,
        prong: Prong,
        kind: ClaimKind,
        now: Ns,
    ) -> Claim {
        let ticket = Ticket { batch, prong, kind, serial: self.next_serial };
        self.next_serial += 1;
        self.books.ledger.claim(batch, prong);
        if prong == Prong::Front {
            let furthest = &mut self.books.front.furthest;
            *furthest = (*furthest).max(Some(batch));
        }
        self.books.change_hand(prong, now, |hand| hand.take(ticket, now));
        ticket.claim(&self.returned)
    }

    /// Books what became known without an event: dropped claims, and claims that have become
    /// overdue.
    fn catch_up(&mut self, now: Ns) {
        while let Some(ticket) = self.returned.take() {
            if self.end(ticket, OpenTo::Anybody, now) {
                self.counts.returned += 1;
            }
        }
        self.books.pass(now);
    }
}

// ---- events -------------------------------------------------------------------------------

impl EpochState {
    /// A batch is made. `work_ns` is the prong's own time for it: worker-nanoseconds divided
    /// by workers on the host, device time on a device.
    pub fn finish(&mut self, claim: Claim, work_ns: u64, now: Ns) -> Finish {
        self.catch_up(now);
        let ticket = claim.close();
        let prong = ticket.prong;
        let held = self.books.change_hand(prong, now, |hand| hand.end(ticket, now));
        let Some(held) = held.flatten() else {
            self.count(prong).wasted += 1;
            return Finish::Wasted;
        };
        match prong {
            Prong::Front => {
                self.books.front.times.push(work_ns);
                self.books.host_times_changed(now);
                if let Some(allowance) = &mut self.allowance {
                    allowance.spend(work_ns);
                }
            }
            Prong::Back(device) => {
                self.books.change(device, now, |back| {
                    answered(back);
                    back.times.push_limited(work_ns);
                    back.standing =
                        if held.overdue { Standing::Late } else { Standing::Proven };
                });
            }
        }
        self.strategy.observe(prong, work_ns);
        if held.overdue {
            self.count(prong).late += 1;
        }
        if !self.books.ledger.commit(ticket.batch, prong) {
            self.count(prong).wasted += 1;
            return Finish::Wasted;
        }
        self.books.change_hand(prong, now, Hand::wait_more);
        let waiting = self.books.view(now).sum.waiting();
        self.counts.peak_waiting = self.counts.peak_waiting.max(waiting);
        Finish::Committed
    }

    /// A batch could not be made (failed, corrupt): it becomes free again and is counted.
    /// One that a device failed on is left to the host.
    pub fn give_back(&mut self, claim: Claim, now: Ns) {
        self.catch_up(now);
        let ticket = claim.close();
        let open_to = match (ticket.prong, self.books.recovery) {
            (Prong::Back(_), Recovery::On) => OpenTo::Host,
            (Prong::Back(_), Recovery::Off) | (Prong::Front, _) => OpenTo::Anybody,
        };
        if self.end(ticket, open_to, now) {
            self.count(ticket.prong).lost += 1;
            if let Prong::Back(device) = ticket.prong {
                self.books.change(device, now, |back| {
                    answered(back);
                    back.standing = Standing::New;
                });
            }
        }
    }

    /// A prong had no room for the claim: it becomes free again, and nothing is counted.
    pub fn refused(&mut self, claim: Claim, now: Ns) {
        self.catch_up(now);
        let ticket = claim.close();
        if self.end(ticket, OpenTo::Anybody, now)
            && let Prong::Back(device) = ticket.prong
        {
            self.books.change(device, now, answered);
        }
    }

    /// A device is gone. Claims it held are void (ending one later is harmless), their
    /// batches are free again, and each is counted as lost.
    pub fn device_lost(&mut self, device: DeviceIdx, now: Ns) {
        self.catch_up(now);
        let lost = self.books.change(device, now, |back| {
            back.health = Health::Lost;
            back.hand.end_all()
        });
        self.books.share_room(now);
        for held in lost.unwrap_or_default() {
            self.counts.back[usize::from(device.0)].lost += 1;
            // Without recovery nobody ever learns that these batches are not being made.
            if self.books.recovery == Recovery::On {
                let prong = Prong::Back(device);
                self.books.ledger.release(held.batch(), prong, OpenTo::Anybody);
            }
        }
    }

    /// Says whether a device takes part or rests: one that rests finishes what it has, gets nothing more,
    /// and nobody relies on it. Under a strategy that is a scheme of the literature, or that leaves the
    /// host nothing to make, devices never rest.
    pub fn use_device(&mut self, device: DeviceIdx, to: DeviceUse, now: Ns) {
        let health = self.books.device(device).map(|back| back.health);
        let becomes = match (to, health) {
            // One that is silent must answer first: resting would make it well again without.
            (DeviceUse::Rests, Some(Health::Well)) if self.may_rest => Health::Resting,
            (DeviceUse::Claims, Some(Health::Resting)) => Health::Well,
            (DeviceUse::Rests | DeviceUse::Claims, _) => return,
        };
        self.catch_up(now);
        self.books.change(device, now, |back| back.health = becomes);
    }

    /// A lost device is back. It keeps the rate it had, and gets one batch at a time until
    /// it has answered.
    pub fn device_joined(&mut self, device: DeviceIdx, now: Ns) {
        self.catch_up(now);
        self.books.change(device, now, |back| {
            if back.health == Health::Lost {
                back.health = Health::Well;
                back.standing = Standing::New;
            }
        });
        self.books.share_room(now);
    }

    /// As [`Self::device_joined`], of another device in place of one that was lost: what is known of
    /// the one before says nothing, and `prior_ns` is the time of a batch, if known from before.
    pub fn device_replaced(&mut self, device: DeviceIdx, prior_ns: Option<u64>, now: Ns) {
        self.books.change(device, now, |back| {
            if back.health == Health::Lost {
                back.times = Times::of_device(prior_ns);
            }
        });
        self.device_joined(device, now);
    }

    /// A device is to go: it gets nothing more, and what it holds it may finish. Say
    /// [`Self::device_lost`] when it has gone.
    pub fn device_leaves(&mut self, device: DeviceIdx, now: Ns) {
        self.catch_up(now);
        self.books.change(device, now, |back| {
            if back.health != Health::Lost {
                back.health = Health::Leaving;
            }
        });
        self.books.share_room(now);
    }

    /// The consumer took a picked batch.
    pub fn delivered(&mut self, batch: BatchIdx, now: Ns) {
        self.catch_up(now);
        let Some(prong) = self.books.ledger.deliver(batch) else { return };
        self.takes(now);
        self.count(prong).delivered += 1;
        self.books.change_hand(prong, now, Hand::wait_less);
    }

    /// The consumer takes a batch, perhaps after a pause.
    fn takes(&mut self, now: Ns) {
        let step_ns = self.books.consumer.takes(now).unwrap_or(0);
        let front = &self.books.front;
        let n_slots = u64::from(front.quota.saturating_add(front.parallel));
        let stored_ns = front.times.mean_ns().unwrap_or(0).saturating_mul(n_slots);
        let course = &mut self.books.course;
        course.paused_ns += step_ns.saturating_sub(stored_ns);
    }

    /// Ends a claim without a result; false when it is void.
    fn end(&mut self, ticket: Ticket, open_to: OpenTo, now: Ns) -> bool {
        let held =
            self.books.change_hand(ticket.prong, now, |hand| hand.end(ticket, now));
        let is_open = held.flatten().is_some();
        if is_open {
            self.books.ledger.release(ticket.batch, ticket.prong, open_to);
        }
        is_open
    }

    fn count(&mut self, prong: Prong) -> &mut ProngCounts {
        match prong {
            Prong::Front => &mut self.counts.front,
            Prong::Back(device) => &mut self.counts.back[usize::from(device.0)],
        }
    }
}

/// A device that answers is not silent.
fn answered(back: &mut Back) {
    if back.health == Health::Silent {
        back.health = Health::Well;
    }
}
