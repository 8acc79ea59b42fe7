//! What a strategy sees: the books, the prongs and the time, at one moment.
//!
//! A view answers questions and changes nothing. What a strategy makes of the answers is in its own file
//! in this folder; `epoch.rs` carries out the decision.

use crate::epoch::device::{DeviceConfig, Recovery, Standing};
use crate::ids::{BatchIdx, DeviceIdx, Ns};
use crate::ledger::batch_set::BatchSet;
use crate::ledger::hand::Hand;
use crate::ledger::{BatchState, Ledger, Open};
use crate::rates::Times;

/// The host as a strategy sees it.
#[derive(Debug, Clone)]
pub struct Front {
    /// Batches made side by side.
    pub parallel: u32,
    /// Batches that are being made or wait for delivery at most.
    pub quota: u32,
    /// The part of the time in which it may work (1: all of it).
    pub part: f64,
    /// What it holds.
    pub hand: Hand,
    /// The highest batch it has claimed.
    pub furthest: Option<BatchIdx>,
    /// Its recent times, all workers together.
    pub times: Times,
}

/// A device as a strategy sees it.
#[derive(Debug, Clone)]
pub struct Back {
    /// Its limits.
    pub config: DeviceConfig,
    /// What it holds.
    pub hand: Hand,
    /// Its recent times.
    pub times: Times,
    /// Whether it is thought to work.
    pub health: Health,
    /// What its last answer was worth.
    pub standing: Standing,
}

impl Back {
    /// Whether its last answer was a batch in time. Any other device gets one batch at a
    /// time, and nobody relies on it.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.standing == Standing::Proven
    }
}

/// What all devices give together, kept up to date as they change.
#[derive(Debug, Clone, Default)]
pub struct BackSum {
    /// In batches per nanosecond times `RATE_ONE`: whole numbers add up and subtract exactly.
    rate: u128,
    /// The same with devices that are silent or late, but not known to fail.
    lasting_rate: u128,
    room: u32,
    n_well: u32,
    n_present: u32,
    waiting: u32,
    used: u32,
    /// What all may use together, where that is limited.
    quota: Option<u32>,
}

/// See [`BackSum`].
const RATE_ONE: u128 = 1 << 80;

impl BackSum {
    /// Of no device yet; all together may use so much.
    pub(crate) fn of_quota(quota: Option<u32>) -> Self {
        Self { quota, ..Self::default() }
    }

    pub(crate) fn quota(&self) -> Option<u32> {
        self.quota
    }

    /// Whether all that devices may use together is in use.
    pub(crate) fn is_full(&self) -> bool {
        self.quota.is_some_and(|quota| self.used >= quota.max(1))
    }

    pub(crate) fn add(&mut self, back: &Back) {
        let own = Self::of(back);
        self.rate += own.rate;
        self.lasting_rate += own.lasting_rate;
        self.room = self.room.saturating_add(own.room);
        self.n_well += own.n_well;
        self.n_present += own.n_present;
        self.waiting += own.waiting;
        self.used = self.used.saturating_add(own.used);
    }

    pub(crate) fn remove(&mut self, back: &Back) {
        let own = Self::of(back);
        self.rate -= own.rate;
        self.lasting_rate -= own.lasting_rate;
        self.room = self.room.saturating_sub(own.room);
        self.n_well -= own.n_well;
        self.n_present -= own.n_present;
        self.waiting -= own.waiting;
        self.used = self.used.saturating_sub(own.used);
    }

    /// Batches that devices made and that wait for delivery.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    fn of(back: &Back) -> Self {
        let (waiting, used) = (back.hand.waiting(), back.hand.used());
        if matches!(back.health, Health::Lost | Health::Leaving | Health::Resting) {
            return Self { waiting, used, ..Self::default() };
        }
        let mean_ns = back.times.mean_ns().filter(|_| back.standing != Standing::New);
        let lasting_rate = mean_ns.map_or(0, |ns| RATE_ONE / u128::from(ns.max(1)));
        let is_well = back.health == Health::Well;
        let rate = if is_well && back.is_proven() { lasting_rate } else { 0 };
        let room = back.config.buffer.min(MOST_ROOM);
        let (n_well, n_present) = (u32::from(is_well), 1);
        Self { rate, lasting_rate, room, n_well, n_present, waiting, used, quota: None }
    }
}

/// More than this no device is counted to hold: sums stay in range.
const MOST_ROOM: u32 = 1 << 15;

/// Whether a device is thought to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    Well,
    /// A claim is overdue and it has not answered since: it gets nothing until it does.
    Silent,
    /// It is to go: it finishes what it holds, and gets nothing more.
    Leaving,
    /// It gets nothing for now, as others have better use for what it would take (`link`).
    Resting,
    /// It was reported lost.
    Lost,
}

/// A batch that a device, and nobody else, is making.
#[derive(Debug, Clone, Copy)]
pub struct BackClaim {
    /// The batch.
    pub batch: BatchIdx,
    /// Whether it, or one before it in the same hand, has been declared overdue.
    pub overdue: bool,
    /// When it is expected to be ready; `None` for an unproven device.
    pub ready_at: Option<Ns>,
    /// How fast the device is compared with the host.
    pub pace: Pace,
}

/// How fast a device is compared with a host worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It is one that [`View::is_quick`].
    Quick,
    /// It is not, or its rate is not known.
    Ordinary,
}

/// How long an epoch is, and since when its consumer waits for it.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// Batches to deliver, those that an earlier part delivered not among them.
    pub n_batches: u32,
    /// When the consumer first asked for a batch of it; `None` while it is at an epoch before.
    pub turned_at: Option<Ns>,
    /// How long the consumer took nothing though it could, beyond what the host's slots last: the
    /// host alone would have stood still as well.
    pub paused_ns: u64,
}

/// A moment of an epoch.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The moment.
    pub now: Ns,
    /// The state of every batch.
    pub ledger: &'a Ledger,
    /// The host.
    pub front: &'a Front,
    /// The devices, by number.
    pub back: &'a [Back],
    /// The devices together.
    pub sum: &'a BackSum,
    /// Nanoseconds of the accelerator's step, if known.
    pub accelerator_ns: Option<u64>,
    /// Whether the host may stand in for a device.
    pub recovery: Recovery,
    /// Unclaimed batches of the epochs before this one, which the devices make first.
    pub n_before: u32,
    /// The epoch's length and beginning.
    pub course: Course,
}

// ---- batches ------------------------------------------------------------------------------

impl<'a> View<'a> {
    /// The lowest batch that nobody makes: for the host.
    #[must_use]
    pub fn lowest_free(&self) -> Option<BatchIdx> {
        let sets = [self.ledger.free(), self.ledger.host_only()];
        sets.into_iter().filter_map(BatchSet::first).min()
    }

    /// The lowest batch from this one on that nobody makes: for the host.
    #[must_use]
    pub fn lowest_free_from(&self, from: BatchIdx) -> Option<BatchIdx> {
        let sets = [self.ledger.free(), self.ledger.host_only()];
        sets.into_iter().filter_map(|set| set.first_from(from)).min()
    }

    /// The batches for a device: nobody makes them, no device has failed on them, and it has
    /// their data.
    #[must_use]
    pub fn free_for(&self, device: DeviceIdx) -> Open<'a> {
        let back = self.back.get(usize::from(device.0));
        self.ledger.free_on(back.and_then(|back| back.config.shard))
    }

    /// Whether a working device that has a free batch's data may hold one more batch.
    #[must_use]
    pub fn has_room_for(&self, batch: BatchIdx) -> bool {
        !self.sum.is_full()
            && self.back.iter().any(|back| {
                let open = self.ledger.free_on(back.config.shard);
                back.health == Health::Well
                    && back.hand.used() < back.config.buffer.max(1)
                    && open.first_from(batch) == Some(batch)
            })
    }

    /// Number of batches that nobody makes.
    #[must_use]
    pub fn n_free(&self) -> u32 {
        self.ledger.free().len() + self.ledger.host_only().len()
    }

    /// The lowest batch that has not been picked for delivery.
    #[must_use]
    pub fn next(&self) -> Option<BatchIdx> {
        self.ledger.unpicked().first()
    }

    /// Whether a batch waits to be picked.
    #[must_use]
    pub fn is_ready(&self, batch: BatchIdx) -> bool {
        self.ledger.state(batch) == Some(BatchState::Ready)
    }

    /// Whether the host neither makes a batch, nor has one ready, nor can take a free one.
    #[must_use]
    pub fn front_is_through(&self) -> bool {
        self.n_free() == 0
            && self.front.hand.n_held() == 0
            && self.ledger.ready_front().is_none()
    }
}

// ---- rates --------------------------------------------------------------------------------

impl View<'_> {
    /// Batches per nanosecond made by those who come to a batch before a device would: the
    /// host, and the working, proven devices that are quicker. Slower ones and its equals claim
    /// behind it. Costs O(devices).
    #[must_use]
    pub fn rate_of_quicker(&self, than: &Back) -> f64 {
        let own_ns = than.times.mean_ns().unwrap_or(0);
        let rate = |back: &Back| {
            let is_reliable = back.is_proven() && back.health == Health::Well;
            let mean_ns = back.times.mean_ns().filter(|_| is_reliable)?;
            (mean_ns < own_ns / 10 * QUICKER_TENTHS).then(|| rate_of(mean_ns))
        };
        self.front_rate() + self.back.iter().filter_map(rate).sum::<f64>()
    }

    /// The first batch that delivery does not reach within `ns`, if all goes as measured;
    /// `None` when it reaches all. What is free before a batch must be made (by the host:
    /// devices claim behind it), and what is before it must be taken.
    #[must_use]
    pub fn beyond(&self, ns: u64) -> Option<BatchIdx> {
        let made = float(ns) * self.front_rate();
        let makes = self.ledger.free().nth(batches(made.floor()));
        let takes =
            self.accelerator_ns.filter(|step_ns| *step_ns > 0).and_then(|step_ns| {
                let taken = u32::try_from(ns / step_ns).unwrap_or(u32::MAX);
                self.ledger.unpicked().nth(taken.saturating_add(1))
            });
        makes.into_iter().chain(takes).min()
    }

    /// Batches per nanosecond that the working, proven devices make together.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "rates are estimates")]
    pub fn back_rate(&self) -> f64 {
        self.sum.rate as f64 / RATE_ONE as f64
    }

    /// Batches per nanosecond that the devices make if none stays silent or late.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "rates are estimates")]
    pub fn lasting_back_rate(&self) -> f64 {
        self.sum.lasting_rate as f64 / RATE_ONE as f64
    }

    /// Batches that the devices may hold, outstanding or waiting for delivery.
    #[must_use]
    pub fn back_room(&self) -> u32 {
        self.sum.room.min(self.sum.quota.unwrap_or(u32::MAX))
    }

    /// Devices that take part, silent ones included.
    #[must_use]
    pub fn n_present(&self) -> u32 {
        self.sum.n_present
    }

    /// Batches per nanosecond that the host makes, or may make; 0 when not known.
    #[must_use]
    pub fn front_rate(&self) -> f64 {
        self.front.times.mean_ns().map_or(0.0, |ns| self.front.part * rate_of(ns))
    }

    /// Nanoseconds until the host has a hand for another batch, if all goes as measured; 0 when
    /// it has one, and when nothing is known.
    #[must_use]
    pub fn front_busy_ns(&self) -> u64 {
        let hand = &self.front.hand;
        if hand.in_line() < self.front.parallel {
            return 0;
        }
        let each_ns = self.front_batch_ns();
        let ends = hand.ends(self.front.parallel, each_ns, self.now).map(|(_, end)| end);
        // A worker at a batch of another epoch is half through, on average.
        let is_elsewhere = hand.in_line() > hand.n_held();
        let elsewhere = is_elsewhere.then(|| self.now.plus(each_ns / 2));
        ends.chain(elsewhere).min().map_or(0, |end| end.since(self.now))
    }

    /// Nanoseconds in which a worker of the host makes a batch; 0 when not known.
    #[must_use]
    pub fn front_batch_ns(&self) -> u64 {
        let each_ns = self.front.times.mean_ns().unwrap_or(0);
        each_ns.saturating_mul(u64::from(self.front.parallel))
    }

    /// The same that few of the host's batches exceed; 0 when not known.
    #[must_use]
    pub fn front_high_ns(&self) -> u64 {
        let high_ns = self.front.times.high_ns().unwrap_or(0);
        high_ns.saturating_mul(u64::from(self.front.parallel))
    }

    /// Whether a device works, has proven itself, and makes several batches while the host makes
    /// one.
    #[must_use]
    pub fn is_quick(&self, back: &Back) -> bool {
        let is_reliable = back.is_proven() && back.health == Health::Well;
        let mean_ns = back.times.mean_ns().filter(|_| is_reliable);
        mean_ns.is_some_and(|ns| float(ns) * QUICK <= float(self.front_batch_ns()))
    }

    /// Nanoseconds the host takes from taking a batch up to having it ready, with a tenth to
    /// spare; 0 when not known.
    #[must_use]
    pub fn redo_ns(&self) -> u64 {
        redo_ns(self.front.times.mean_ns().unwrap_or(0), self.front.parallel)
    }
}

/// See [`View::redo_ns`]; of a host that takes `each_ns` for a batch.
pub(crate) fn redo_ns(each_ns: u64, parallel: u32) -> u64 {
    (each_ns / 10).saturating_mul(11 * u64::from(parallel))
}

/// A device is quick if it makes at least so many batches while the host makes one: fewer, and
/// noise decides who is first.
pub(crate) const QUICK: f64 = 4.0;

/// A device counts as quicker than another if it takes less than so many tenths of its time.
const QUICKER_TENTHS: u64 = 9;

fn rate_of(ns: u64) -> f64 {
    1.0 / float(ns)
}

/// Exact below 2^53 ns, which is 104 days.
#[allow(clippy::cast_precision_loss, reason = "rates are estimates")]
pub(crate) fn float(n: u64) -> f64 {
    n as f64
}

/// A number of batches, rounded up.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and makes 0 of what is not a number"
)]
pub(crate) fn batches(n: f64) -> u32 {
    n.ceil() as u32
}

// ---- rescue -------------------------------------------------------------------------------

impl<'a> View<'a> {
    /// The claims that the host may redo: held by a device, and by nobody else. None when
    /// recovery is off.
    pub fn back_claims(&self) -> impl Iterator<Item = BackClaim> + use<'a> {
        let ledger = self.ledger;
        let view = *self;
        let devices = if self.may_rescue() { self.back } else { &[] };
        let claims = devices.iter().flat_map(move |back| {
            let is_silent = back.health == Health::Silent;
            let mean_ns = back.times.mean_ns().filter(|_| back.is_proven());
            let pace = if view.is_quick(back) { Pace::Quick } else { Pace::Ordinary };
            back.hand.held().iter().map(move |held| BackClaim {
                batch: held.batch(),
                overdue: held.overdue || is_silent,
                ready_at: mean_ns.map(|ns| held.end_at(ns)),
                pace,
            })
        });
        claims.filter(|claim| ledger.only_back_makes(claim.batch))
    }

    /// The oldest claim that is overdue.
    #[must_use]
    pub fn overdue(&self) -> Option<BatchIdx> {
        self.back_claims().find(|claim| claim.overdue).map(|claim| claim.batch)
    }

    /// Whether the host may stand in for devices.
    #[must_use]
    pub fn may_rescue(&self) -> bool {
        self.recovery == Recovery::On
    }

    /// The lowest free batch that no working device can make, if the host may make the
    /// devices' part: all devices are gone, or all that have its data.
    #[must_use]
    pub fn lowest_orphan(&self) -> Option<BatchIdx> {
        if !self.may_rescue() {
            return None;
        }
        if self.sum.n_well == 0 {
            return self.lowest_free();
        }
        let well = || self.back.iter().filter(|back| back.health == Health::Well);
        if well().any(|back| back.config.shard.is_none()) {
            return None;
        }
        let has_maker = |shard| well().any(|back| back.config.shard == Some(shard));
        let orphaned = (0..self.ledger.n_shards()).filter(|shard| !has_maker(*shard));
        let lowest = |shard| self.ledger.free_on(Some(shard)).first_from(BatchIdx(0));
        orphaned.filter_map(lowest).min()
    }

    /// Whether an idle host does well to redo a device's batch: it is overdue, or nobody
    /// knows when it comes, or it comes later than the host's own would, or it should have
    /// come already. Redoing costs work but, on an idle host, no time.
    #[must_use]
    pub fn is_worth_redoing(&self, claim: &BackClaim) -> bool {
        let Some(ready_at) = claim.ready_at else { return true };
        claim.overdue || ready_at <= self.now || ready_at > self.now.plus(self.redo_ns())
    }
}
