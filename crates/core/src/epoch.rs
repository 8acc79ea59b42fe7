//! Everything about one epoch that is decided, none of it done.
//!
//! The caller says what happened and when, and asks what to do; it may live in wall time
//! (`runtime`) or in virtual time (`simulate`). Here the books are kept, limits are held and
//! lateness is declared; which batch to take is the strategy's choice (`select`). Nothing
//! here blocks, reads a clock or starts anything.

#[cfg(test)]
mod tests;

use crate::claim::{Claim, ClaimKind, Returned, Ticket};
use crate::ids::{BatchIdx, DeviceIdx, Ns, Prong};
use crate::ledger::hand::Hand;
use crate::ledger::{Ledger, OpenTo};
use crate::rates::{Times, overdue_ns};
use crate::select::view::{Back, Front, Health, View};
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
    /// The devices; their numbers are their places here.
    pub devices: Vec<DeviceConfig>,
    /// Nanoseconds the accelerator takes for a batch; `None` when unknown or at once.
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

/// What an epoch is told of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Jobs outstanding at most (at least 1).
    pub slots: u32,
    /// Batches outstanding or waiting for delivery at most (at least 1).
    pub buffer: u32,
    /// Nanoseconds of one device batch, if known from before.
    pub prior_ns: Option<u64>,
}

/// What happens when a device is lost or late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// Its claims go back or are redone by the host.
    #[default]
    On,
    /// Nothing: the published behaviour of the schemes that `mte` and `wrr` follow. An
    /// epoch may then wait for ever.
    Off,
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
    quota: u32,
    returned: Returned,
    next_serial: u64,
    counts: Counts,
}

/// What a view shows.
#[derive(Debug)]
struct Books {
    ledger: Ledger,
    front: Front,
    back: Vec<Back>,
    accelerator_ns: Option<u64>,
    recovery: Recovery,
}

impl Books {
    fn view(&self, now: Ns) -> View<'_> {
        View {
            now,
            ledger: &self.ledger,
            front: &self.front,
            back: &self.back,
            accelerator_ns: self.accelerator_ns,
            recovery: self.recovery,
        }
    }

    fn hand(&mut self, prong: Prong) -> Option<&mut Hand> {
        match prong {
            Prong::Front => Some(&mut self.front.hand),
            Prong::Back(device) => self.device(device).map(|back| &mut back.hand),
        }
    }

    fn device(&mut self, device: DeviceIdx) -> Option<&mut Back> {
        self.back.get_mut(usize::from(device.0))
    }

    /// The device of a claim; `None` for the host's.
    fn device_of(&mut self, prong: Prong) -> Option<&mut Back> {
        match prong {
            Prong::Front => None,
            Prong::Back(device) => self.device(device),
        }
    }
}

impl EpochState {
    /// An epoch in which nothing has happened.
    #[must_use]
    pub fn new(config: EpochConfig) -> Self {
        let front = Front {
            parallel: config.front.parallel.max(1),
            hand: Hand::default(),
            times: Times::of_host(config.front.prior_ns),
        };
        let back = config.devices.iter().map(|&config| Back {
            config,
            hand: Hand::default(),
            times: Times::of_device(config.prior_ns),
            health: Health::Well,
            proven: false,
        });
        let books = Books {
            ledger: Ledger::new(config.n_batches, &config.done),
            front,
            back: back.collect(),
            accelerator_ns: config.accelerator_ns,
            recovery: config.recovery,
        };
        let n_devices = config.devices.len();
        Self {
            strategy: config.strategy.build(),
            books,
            quota: config.front.quota.max(1),
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

    /// A rescue, else what the strategy takes. With the quota full only rescues, and last of
    /// all the batch that delivery waits for: so a full quota never waits for itself.
    fn choose_front(&mut self, now: Ns) -> Option<BatchIdx> {
        let front = &self.books.front;
        let (used, most) = (front.hand.used(), self.quota.saturating_add(front.parallel));
        let view = self.books.view(now);
        let strategy = &mut self.strategy;
        let rescue = if used + 1 < most { strategy.rescue(&view) } else { None };
        if rescue.is_some() || used >= most {
            return rescue;
        }
        if used < self.quota {
            return strategy.front(&view);
        }
        strategy.awaited(&view).filter(|batch| {
            let mut claims = view.back_claims().filter(|claim| claim.batch == *batch);
            view.ledger.is_free(*batch)
                || claims.any(|claim| view.is_worth_redoing(&claim))
        })
    }

    /// A device has a free job slot: what it makes next.
    pub fn next_back(&mut self, device: DeviceIdx, now: Ns) -> Option<Claim> {
        self.catch_up(now);
        let back = self.books.device(device)?;
        let slots = if back.proven { back.config.slots.max(1) } else { 1 };
        let has_room = back.health == Health::Well
            && back.hand.n_held() < slots
            && back.hand.used() < back.config.buffer.max(1);
        if !has_room {
            return None;
        }
        let batch = self.strategy.back(&self.books.view(now), device)?;
        if !self.books.ledger.free().contains(batch) {
            return None;
        }
        Some(self.claim(batch, Prong::Back(device), ClaimKind::First, now))
    }

    /// The consumer has room: what it gets next.
    pub fn next_delivery(&mut self, now: Ns) -> Pick {
        self.catch_up(now);
        if self.books.ledger.unpicked().is_empty() {
            return Pick::End;
        }
        match self.strategy.deliver(&self.books.view(now)) {
            Some(batch) if self.books.ledger.pick(batch) => Pick::Deliver(batch),
            Some(_) | None => Pick::Wait,
        }
    }

    /// When to ask again though nothing happened; later than `now`.
    #[must_use]
    pub fn wake_at(&self, now: Ns) -> Option<Ns> {
        self.books.view(now).changes_at()
    }

    /// The batch without which nothing more is delivered; `None` at the end, and where the
    /// strategy delivers in no order.
    #[must_use]
    pub fn next_in_order(&self) -> Option<BatchIdx> {
        self.strategy.awaited(&self.books.view(Ns::default()))
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
        if let Some(hand) = self.books.hand(prong) {
            hand.take(ticket, now);
        }
        ticket.claim(&self.returned)
    }

    /// Books what became known without an event: dropped claims, and claims that have become
    /// overdue.
    fn catch_up(&mut self, now: Ns) {
        while let Some(ticket) = self.returned.take() {
            if self.end(ticket, OpenTo::Anybody) {
                self.counts.returned += 1;
            }
        }
        for back in &mut self.books.back {
            let limit_ns = overdue_ns(&back.times, &self.books.front.times);
            if back.hand.declare_overdue(limit_ns, now) && back.health == Health::Well {
                back.health = Health::Silent;
            }
        }
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
        let Some(held) = self.books.hand(prong).and_then(|hand| hand.end(ticket)) else {
            self.count(prong).wasted += 1;
            return Finish::Wasted;
        };
        self.answered(prong);
        match self.books.device_of(prong) {
            None => self.books.front.times.push(work_ns),
            Some(back) => {
                back.times.push_limited(work_ns);
                back.proven = true;
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
        if let Some(hand) = self.books.hand(prong) {
            hand.wait_more();
        }
        let waiting = self.books.back.iter().map(|back| back.hand.waiting()).sum();
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
        if self.end(ticket, open_to) {
            self.answered(ticket.prong);
            self.count(ticket.prong).lost += 1;
            if let Some(back) = self.books.device_of(ticket.prong) {
                back.proven = false;
            }
        }
    }

    /// A prong had no room for the claim: it becomes free again, and nothing is counted.
    pub fn refused(&mut self, claim: Claim, now: Ns) {
        self.catch_up(now);
        let ticket = claim.close();
        if self.end(ticket, OpenTo::Anybody) {
            self.answered(ticket.prong);
        }
    }

    /// A device is gone. Claims it held are void (ending one later is harmless), their
    /// batches are free again, and each is counted as lost.
    pub fn device_lost(&mut self, device: DeviceIdx, now: Ns) {
        self.catch_up(now);
        let Some(back) = self.books.back.get_mut(usize::from(device.0)) else { return };
        back.health = Health::Lost;
        while let Some(held) = back.hand.end_oldest() {
            self.counts.back[usize::from(device.0)].lost += 1;
            // Without recovery nobody ever learns that these batches are not being made.
            if self.books.recovery == Recovery::On {
                let prong = Prong::Back(device);
                self.books.ledger.release(held.batch(), prong, OpenTo::Anybody);
            }
        }
    }

    /// A lost device is back. It keeps the rate it had, and gets one batch at a time until
    /// it has answered.
    pub fn device_joined(&mut self, device: DeviceIdx, now: Ns) {
        self.catch_up(now);
        if let Some(back) = self.books.device(device)
            && back.health == Health::Lost
        {
            back.health = Health::Well;
            back.proven = false;
        }
    }

    /// The consumer took a picked batch.
    pub fn delivered(&mut self, batch: BatchIdx, now: Ns) {
        self.catch_up(now);
        let Some(prong) = self.books.ledger.deliver(batch) else { return };
        self.count(prong).delivered += 1;
        if let Some(hand) = self.books.hand(prong) {
            hand.wait_less();
        }
    }

    /// Ends a claim without a result; false when it is void.
    fn end(&mut self, ticket: Ticket, open_to: OpenTo) -> bool {
        let Some(hand) = self.books.hand(ticket.prong) else { return false };
        let is_open = hand.end(ticket).is_some();
        if is_open {
            self.books.ledger.release(ticket.batch, ticket.prong, open_to);
        }
        is_open
    }

    /// A device that answers is not silent.
    fn answered(&mut self, prong: Prong) {
        if let Some(back) = self.books.device_of(prong)
            && back.health == Health::Silent
        {
            back.health = Health::Well;
        }
    }

    fn count(&mut self, prong: Prong) -> &mut ProngCounts {
        match prong {
            Prong::Front => &mut self.counts.front,
            Prong::Back(device) => &mut self.counts.back[usize::from(device.0)],
        }
    }
}
