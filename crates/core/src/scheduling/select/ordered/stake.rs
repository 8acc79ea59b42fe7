//! What a lead puts at stake, and whether the epoch can bear to lose it.
//!
//! The promise is that no device makes an epoch longer than the host alone would have. Without a lead
//! that costs nothing: the host makes the lowest free batch, as it would alone. With a lead there is
//! something to lose. Should every device that is relied on fall silent now, then
//!
//! * this is noticed only when their claims are overdue;
//! * until the host has made the lowest missing batch, the consumer waits, and time that a busy
//!   consumer loses does not come back;
//! * what the host has made further on fills its slots, and what is missing is made in the others.
//!
//! So a lead is taken only while the epoch would end in time even then: before the host alone would
//! have ended it, had it begun this epoch when it was begun here. What pays for it is what the
//! devices have made of this epoch by now, and nothing else. These are pure sums over a [`View`];
//! `lead.rs` asks.

use crate::ids::BatchIdx;
use crate::ledger::BatchState;
use crate::rates::overdue_ns;
use crate::select::view::{Back, View, float};

/// While batches of the host's own fill its slots, few are left for what is missing before them. One
/// that is late holds the others up: so much longer it takes.
const HELD_UP: f64 = 0.15;

/// Whether the host may leave batches to a device: it works, is many times quicker, and has all the
/// data.
pub(super) fn is_relied_on(view: &View<'_>, back: &Back) -> bool {
    back.config.shard.is_none() && view.is_quick(back)
}

/// Whether the epoch ends no later than the host alone would end it, should the devices that are
/// relied on fall silent after the host has left `n_ahead` batches to them.
pub(super) fn can_bear(view: &View<'_>, n_ahead: u32) -> bool {
    let end_ns = alone_ns(view) - float(view.now.0);
    let redo_ns = float(view.front_high_ns());
    let notice_ns = notice_ns(view);
    // The consumer goes on when the first missing batch is made.
    let hand_ns = hands_ns(view).fold(f64::INFINITY, f64::min);
    let stalled_ns = notice_ns.max(hand_ns) + redo_ns;
    let taken_ns =
        stalled_ns + float(u64::from(view.ledger.unpicked().len())) * step_ns(view);
    // The host makes what is missing: a worker that comes free begins another until none is left. It
    // may come to none before its slots are emptied.
    let drained_ns = f64::from(view.sum.waiting()) * step_ns(view);
    let begun_ns = notice_ns.max(drained_ns) + begun_ns(view, notice_ns.max(drained_ns));
    let behind = view.front.furthest.map_or(0, |at| view.ledger.free().count_below(at));
    let held_up_ns = f64::from(behind.max(n_ahead)) * longer(view) * host_ns(view);
    taken_ns.max(begun_ns + held_up_ns + redo_ns) <= end_ns
}

/// How long after `idle_ns` the host has begun the last of what is missing: each worker begins one as
/// it comes free, and another when that is made.
fn begun_ns(view: &View<'_>, idle_ns: f64) -> f64 {
    let parallel = f64::from(view.front.parallel);
    let missing = missing(view);
    let longest_ns = hands_ns(view).fold(0.0, f64::max);
    let rounds = ((missing - 1.0) / parallel).floor().max(0.0);
    let in_rounds_ns =
        (longest_ns - idle_ns).max(0.0) + rounds * float(view.front_batch_ns());
    let mean_ns = hands_ns(view).sum::<f64>() / parallel;
    in_rounds_ns.min((mean_ns - idle_ns).max(0.0) + missing * host_ns(view))
}

/// When the host alone would have ended this epoch: its workers make their batches in rounds, and the
/// consumer takes none before the first round is made, and before it turns to this epoch.
fn alone_ns(view: &View<'_>) -> f64 {
    let (n, redo_ns) = (view.course.n_batches, view.front_batch_ns());
    let rounds = u64::from(n.div_ceil(view.front.parallel));
    let (made_ns, n) = (float(rounds.saturating_mul(redo_ns)), f64::from(n));
    let taken_ns = float(redo_ns) + n * step_ns(view);
    let after_ns = turned_at_ns(view) + n * host_ns(view).max(step_ns(view));
    made_ns.max(taken_ns).max(after_ns) + float(view.course.paused_ns)
}

/// When the consumer turns to this epoch, at the earliest. Not before the host has made what devices
/// are still at, or are to make, of the epochs before, should they fall silent.
fn turned_at_ns(view: &View<'_>) -> f64 {
    let is_at_another = |back: &Back| back.hand.in_line() > back.hand.n_held();
    match view.course.turned_at {
        Some(at) => float(at.0),
        None if view.n_before > 0 || view.back.iter().any(is_at_another) => {
            float(view.now.0) + notice_ns(view) + float(view.front_batch_ns())
        }
        None => float(view.now.0),
    }
}

/// Nanoseconds of a host batch, all workers together, in the part of the time that they have.
fn host_ns(view: &View<'_>) -> f64 {
    1.0 / view.front_rate()
}

fn step_ns(view: &View<'_>) -> f64 {
    view.accelerator_ns.map_or(0.0, float)
}

/// Until silence is noticed of all that are relied on, with as many claims in line as they may have.
fn notice_ns(view: &View<'_>) -> f64 {
    let host_ns = view.front.times.mean_ns().unwrap_or(0);
    let after = |back: &Back| {
        let each_ns = overdue_ns(&back.times, host_ns, view.front_batch_ns());
        let in_line = back.hand.in_line().max(back.config.slots);
        each_ns.saturating_mul(u64::from(in_line))
    };
    let relied_on = view.back.iter().filter(|back| is_relied_on(view, back));
    float(relied_on.map(after).max().unwrap_or(0))
}

/// For each worker of the host, until it has a hand for another batch; one with a batch of another
/// epoch is taken to be half through.
fn hands_ns<'a>(view: &View<'a>) -> impl Iterator<Item = f64> + use<'a> {
    let (now, each_ns) = (view.now, view.front_high_ns());
    let hand = &view.front.hand;
    let n_elsewhere = hand.in_line() - hand.n_held();
    let ends = hand.ends(view.front.parallel, each_ns, now);
    let here = ends.map(move |(_, end)| end.since(now));
    let elsewhere = (0..n_elsewhere).map(move |_| each_ns / 2);
    let idle = std::iter::repeat(0);
    let n_workers = view.front.parallel.try_into().unwrap_or(usize::MAX);
    here.chain(elsewhere).chain(idle).take(n_workers).map(float)
}

/// By which part the host takes longer for a batch that is missing before some of its own, where
/// those leave fewer slots than it has workers.
fn longer(view: &View<'_>) -> f64 {
    let parallel = f64::from(view.front.parallel);
    let most = view.front.quota.saturating_add(view.front.parallel);
    // One is kept for the batch that delivery waits for, and one is taken now.
    let left = f64::from(most.saturating_sub(view.front.hand.used() + 2)).max(1.0);
    if parallel <= left { 0.0 } else { parallel / left - 1.0 + HELD_UP }
}

/// Batches that the host would have to make: not made yet, nor in its hands.
fn missing(view: &View<'_>) -> f64 {
    let is_needed =
        |batch: BatchIdx| view.ledger.state(batch) == Some(BatchState::Claimed);
    let held =
        view.front.hand.held().iter().filter(|held| is_needed(held.batch())).count();
    let made = view.sum.waiting().saturating_add(view.front.hand.waiting());
    let others = made.saturating_add(held.try_into().unwrap_or(u32::MAX));
    f64::from(view.ledger.unpicked().len().saturating_sub(others))
}
