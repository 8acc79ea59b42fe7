//! The lead that quick devices get: what the host leaves to them, and what they redo for it.
//!
//! A host whose workers make a batch each takes long for one. A device that makes many batches
//! meanwhile would fill its buffer after the batch that the host has just begun, and then stand
//! still. So the host claims as devices do: the batch that it can have ready when it is needed.
//! These are pure sums over a [`View`]; `ordered.rs` decides with them, and docs/strategies.md says
//! what each gives.

use crate::ids::{BatchIdx, Ns};
use crate::ledger::hand::Held;
use crate::select::view::{Back, QUICK, View, batches, float};

use super::latency::{MARGIN, latency_ns, mean_ns};
use super::stake::{self, is_relied_on};

/// The part of a device's buffer that may fill while delivery waits for the host: so late the host's
/// batches may be, and so early the device is before it stands still.
const SLACK: f64 = 0.5;
/// The part of its time by which a host's batch is early or late. What a device makes meanwhile must
/// have room, or each of the host's batches would hold it up.
const VARIES: f64 = 0.15;
/// The host makes no batch only if a device makes so many times as many as all its workers.
const ALONE: f64 = 10.0;
/// The last batches of an epoch are redone where a device has them ready so many times sooner.
const LAST: f64 = 1.5;
/// A device with so large a buffer keeps one slot of it for what it redoes for the host.
const SPARES_ONE: u32 = 8;

/// The prongs must exceed the consumer's rate so many times before they have no use for a lead.
const SURPLUS: f64 = 1.1;

/// What the host leaves to quick devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// So many of the lowest free batches.
    Next(u32),
    /// All that are free: they are made before the host's would be.
    Rest,
}

impl Lead {
    /// What brings most, where the epoch can bear that the devices fail; else none.
    pub(super) fn of(view: &View<'_>) -> Self {
        let wanted = Self::wanted(view);
        let n_ahead = match wanted {
            Self::Next(n) => n,
            Self::Rest => 0,
        };
        let is_taken = wanted.is_any() && stake::can_bear(view, n_ahead);
        if is_taken { wanted } else { Self::Next(0) }
    }

    fn wanted(view: &View<'_>) -> Self {
        let relied_on = || view.back.iter().filter(|back| is_relied_on(view, back));
        if is_stuck(view) || !brings_something(view) {
            return Self::Next(0);
        }
        let front_ns = float(view.front_batch_ns());
        let makes = |back: &Back| front_ns / mean_ns(back).max(1.0);
        let in_time = |back: &Back| {
            (makes(back) / MARGIN - f64::from(back.hand.in_line())).max(0.0)
        };
        let n_free = f64::from(view.ledger.free().len()) + f64::from(view.n_before);
        let slack = |back: &Back| f64::from(back.config.buffer) * SLACK;
        if n_free <= relied_on().map(in_time).sum()
            || relied_on().any(|back| {
                is_alone_enough(view, back) && makes(back) * VARIES > slack(back)
            })
        {
            return Self::Rest;
        }
        // The host's batch should be late by half a buffer at most, and few take longer than this.
        let part = float(view.front_high_ns()) / front_ns.max(1.0);
        let ahead = |back: &Back| (makes(back) * part - slack(back)).max(0.0);
        let n = batches(relied_on().map(ahead).sum());
        Self::Next(n.saturating_sub(view.n_before))
    }

    /// Whether there is one.
    pub(super) fn is_any(self) -> bool {
        self != Self::Next(0)
    }

    /// The batch that the host may take; none where it leaves all of them.
    pub(super) fn behind(self, view: &View<'_>) -> Option<BatchIdx> {
        match self {
            Self::Next(n) => view.ledger.free().nth(n),
            Self::Rest => None,
        }
    }
}

/// Whether the consumer would have to wait without a lead. A device then makes no more than a part of
/// its buffer while the host is at a batch.
fn brings_something(view: &View<'_>) -> bool {
    let Some(step_ns) = view.accelerator_ns.filter(|ns| *ns > 0) else { return true };
    let front_ns = float(view.front_batch_ns()).max(1.0);
    let lost = |back: &Back| {
        let without = SLACK * f64::from(back.config.buffer) / front_ns;
        (1.0 / mean_ns(back).max(1.0) - without).max(0.0)
    };
    let relied_on = view.back.iter().filter(|back| is_relied_on(view, back));
    let rate = view.front_rate() + view.back_rate() - relied_on.map(lost).sum::<f64>();
    rate * float(step_ns) < SURPLUS
}

/// Whether little is lost if the host makes nothing besides it.
fn is_alone_enough(view: &View<'_>, back: &Back) -> bool {
    1.0 >= ALONE * mean_ns(back) * view.front_rate()
}

/// Whether a device has room for a free batch.
pub(super) fn has_room(view: &View<'_>, back: &Back) -> bool {
    let is_kept = view.front.parallel > 1 && back.config.buffer >= SPARES_ONE;
    !view.sum.is_full()
        && back.hand.used() + u32::from(is_kept) < back.config.buffer.max(1)
}

/// What fills the buffers waits behind the lowest free batch: nobody would make it.
fn is_stuck(view: &View<'_>) -> bool {
    let relied_on = || view.back.iter().filter(|back| is_relied_on(view, back));
    // Of the batches before it, what is not the host's is a device's, which gets room with it.
    relied_on().all(|back| !has_room(view, back))
        && view.lowest_free().is_some_and(|lowest| {
            view.ledger.unpicked().count_below(lowest) <= view.front.hand.used()
        })
}

/// A batch of the host's that a device with nothing else to do has ready far sooner: the one that delivery waits for; or
/// one that no worker has begun, where the epoch waits for nothing but the host's.
pub(super) fn redone_for_host(view: &View<'_>, back: &Back) -> Option<BatchIdx> {
    if !back.is_proven() || back.config.shard.is_some() {
        return None;
    }
    awaited_of_host(view, back).or_else(|| waiting_of_host(view, back))
}

/// The batch that delivery waits for, where the host makes it, and will for so long. Until the host's first batch is made
/// nobody knows how long that is: then a device does it that could have done it several times by now.
fn awaited_of_host(view: &View<'_>, back: &Back) -> Option<BatchIdx> {
    let (lowest, end) = made_by_host(view, 0).min_by_key(|(held, _)| held.batch())?;
    let next = view.next()?;
    let is_own = || back.hand.held().iter().any(|own| own.batch() == next);
    if lowest.batch() != next && !is_own() {
        return None;
    }
    let latency_ns = latency_ns(back)?;
    let several_ns = QUICK * latency_ns;
    let is_worth_it = if view.front.times.mean_ns().is_none() {
        float(view.now.since(lowest.since)) > several_ns
    } else {
        let left_ns = float(end.since(view.now));
        left_ns > stall_ns(view, back).max(several_ns)
            || left_ns > LAST * latency_ns * held_alone(view)
    };
    is_worth_it.then_some(lowest.batch())
}

/// The lowest batch that waits for one of the host's workers, if nothing but the host's is left of the epoch: to make it
/// elsewhere costs nothing, as long as no worker comes to it.
fn waiting_of_host(view: &View<'_>, back: &Back) -> Option<BatchIdx> {
    let n_elsewhere = view.front.hand.in_line() - view.front.hand.n_held();
    let n_begun = view.front.parallel.saturating_sub(n_elsewhere);
    view.front.times.mean_ns()?;
    let limit_ns = LAST * latency_ns(back).filter(|_| held_alone(view).is_finite())?;
    made_by_host(view, n_begun)
        .filter(|(_, end)| float(end.since(view.now)) > limit_ns)
        .map(|(held, _)| held.batch())
        .min()
}

/// The batches that the host alone makes, without its `n_begun` oldest claims, and when each of them ends.
fn made_by_host<'a>(
    view: &View<'a>,
    n_begun: u32,
) -> impl Iterator<Item = (&'a Held, Ns)> + use<'a> {
    let ledger = view.ledger;
    let each_ns = view.front_batch_ns();
    let ends = view.front.hand.ends(view.front.parallel, each_ns, view.now);
    let n_begun = usize::try_from(n_begun).unwrap_or(usize::MAX);
    ends.skip(n_begun).filter(|(held, _)| ledger.only_front_makes(held.batch()))
}

/// So long may the host hold delivery up at no cost: half of a buffer fills meanwhile, if there is so
/// much to make.
fn stall_ns(view: &View<'_>, back: &Back) -> f64 {
    let relied_on = view.back.iter().filter(|back| is_relied_on(view, back)).count();
    let n_makers = u32::try_from(relied_on.max(1)).unwrap_or(u32::MAX);
    let most = back.config.buffer.min(view.course.n_batches / n_makers);
    f64::from(most) * SLACK * mean_ns(back)
}

/// How many batches the host makes where the epoch waits for them and for nothing else; infinitely
/// many where it waits for more.
fn held_alone(view: &View<'_>) -> f64 {
    let held = view.front.hand.held().iter();
    let held = held.filter(|held| view.ledger.only_front_makes(held.batch()));
    let n_held = u32::try_from(held.count()).unwrap_or(u32::MAX);
    let n_made = view.sum.waiting().saturating_add(view.front.hand.waiting());
    let is_all = view.ledger.unpicked().len() <= n_made.saturating_add(n_held);
    if is_all { f64::from(n_held) } else { f64::INFINITY }
}
