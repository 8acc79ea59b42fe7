//! `ordered`: the plan's order, at the speed of both prongs.
//!
//! Each side claims what it can have ready when it is needed. The host takes the lowest free batch. A
//! device takes one with enough free batches before it to keep the host, and quicker devices, busy until
//! it is ready (its horizon). So few finished batches wait, and the order costs nothing. The price is
//! that one late batch holds up everything; hence `rescue`.
//!
//! Counting free batches, rather than all batches until delivery, keeps a device from claiming runs of
//! neighbours, in front of which the host would then be alone. If a device makes more batches in the time
//! of one host batch than its buffer holds, the host claims ahead in the same way (`ordered/lead.rs`).
//! `docs/strategies.md` has what was tried and what each rule gives.

mod latency;
mod lead;
mod stake;

use crate::ids::{BatchIdx, DeviceIdx};
use crate::ledger::Open;
use crate::select::view::{Back, BackClaim, Pace, batches, float, redo_ns};
use crate::select::{Strategy, View, follower};
use latency::{MARGIN, in_line, latency_ns, mean_ns};
use lead::Lead;

/// So many batches more are left to the others.
const MARGIN_BATCHES: u32 = 2;
/// In an epoch shorter than so many host batches, one after the other, waiting for a device
/// that fails at the end would cost more than a percent: idle hosts redo without being asked.
const SHORT: u64 = 100;
/// The part of a device's buffer that its horizon may fill: noise needs the rest …
const ROOM: f64 = 0.6;
/// … and that it may fill with what the device makes while the host is at a batch.
const ROOM_WITH_HOST: f64 = 0.8;
/// So many batches are left to the others before the first one of a device that nothing is
/// known of: enough for a device 64 times slower than they are.
const FIRST_AHEAD: u32 = 64;

/// The plan's order.
#[derive(Debug)]
pub struct Ordered;

impl Strategy for Ordered {
    fn front(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        let free = Lead::of(view).behind(view);
        [view.ledger.host_only().first(), free].into_iter().flatten().min()
    }

    fn front_after(&self, view: &View<'_>, after: Option<BatchIdx>) -> Option<BatchIdx> {
        let from = follower(after);
        let behind = Lead::of(view).behind(view);
        let free = behind.and_then(|it| view.ledger.free().first_from(it.max(from)));
        let failed = view.ledger.host_only().first_from(from);
        [failed, free].into_iter().flatten().min()
    }

    /// The lowest of what nobody makes any more; of what is free only where it is left to nobody. In
    /// this order: were the free ones first, they would take the last room, and the overdue ones be
    /// redone one after the other, each when delivery waits for it.
    fn overtaken(&self, view: &View<'_>) -> Option<BatchIdx> {
        let free = view.ledger.free().first().filter(|_| !Lead::of(view).is_any());
        let overdue = view.back_claims().filter(|claim| claim.overdue);
        let overdue = overdue.map(|claim| claim.batch).min();
        let failed = view.ledger.host_only().first();
        let lowest = [free, overdue, failed].into_iter().flatten().min()?;
        (Some(lowest) < view.front.furthest).then_some(lowest)
    }

    fn leaves_rest(&self, view: &View<'_>) -> bool {
        view.ledger.host_only().is_empty() && Lead::of(view).behind(view).is_none()
    }

    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        let next = view.next()?;
        let free = view.lowest_free();
        let redo_at = view.now.plus(view.redo_ns());
        let beyond = view.beyond(view.redo_ns());
        let is_short = view.now.0 < SHORT.saturating_mul(view.redo_ns());
        let is_borne =
            view.back.iter().any(|back| view.is_quick(back)) && stake::can_bear(view, 0);
        let is_due = |claim: &BackClaim| match claim.ready_at {
            // An unproven device only tries: the host comes to its batch in turn.
            None => free.is_none_or(|free| claim.batch < free),
            // It has it ready long before an idle host would, unless it turns out to be silent.
            Some(ready_at) if claim.pace == Pace::Quick && is_borne => {
                ready_at > redo_at && beyond.is_none_or(|beyond| claim.batch < beyond)
            }
            Some(ready_at) => {
                let is_idle = claim.batch == next || free.is_none();
                let is_known = view.front.times.mean_ns().is_some();
                let is_late = claim.overdue || is_known && ready_at > redo_at;
                free.is_none() && is_short
                    || is_idle && view.is_worth_redoing(claim)
                    || is_late && beyond.is_none_or(|beyond| claim.batch < beyond)
            }
        };
        view.back_claims().filter(is_due).map(|claim| claim.batch).min()
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        let back = view.back.get(usize::from(device.0))?;
        let (free, open) = (view.ledger.free(), view.free_for(device));
        if free.is_empty() || !lead::has_room(view, back) {
            return lead::redone_for_host(view, back);
        }
        if back.hand.n_held() >= (back.config.buffer / 2).max(1) {
            // What is queued takes the room in which results could wait.
            return None;
        }
        // The host leaves it the lowest; and a device that has made a batch before the host has
        // made any is the quicker of them, so what it makes next is needed next.
        let is_first = back.is_proven() && view.front.times.mean_ns().is_none();
        if is_first || stake::is_relied_on(view, back) && Lead::of(view).is_any() {
            return open.first_from(BatchIdx(0));
        }
        let tries = || {
            let ahead = free.nth(FIRST_AHEAD).and_then(|from| open.first_from(from));
            ahead.or_else(|| open.last())
        };
        let known = latency_ns(back).filter(|_| view.front.times.mean_ns().is_some());
        let Some(latency_ns) = known else { return tries() };
        let safe_ns = latency_ns + float(view.redo_ns());
        let by_makers = behind_makers(view, back, open, safe_ns);
        // A slow accelerator gives time, too. The host does not wait for an unproven device.
        let by_taker =
            view.accelerator_ns.filter(|_| back.is_proven()).and_then(|step_ns| {
                let steps =
                    batches(safe_ns / float(step_ns)).saturating_add(MARGIN_BATCHES);
                open.first_from(BatchIdx(view.next()?.0.saturating_add(steps)))
            });
        let in_time = by_makers.into_iter().chain(by_taker).min();
        // A remembered rate may be wrong, and stays wrong as long as the device gets nothing.
        in_time.or_else(|| back.times.is_untried().then(tries).flatten())
    }

    fn awaited(&self, view: &View<'_>) -> Option<BatchIdx> {
        view.next()
    }

    fn before(&self, view: &View<'_>, batch: BatchIdx) -> u32 {
        view.ledger.unpicked().count_below(batch)
    }
}

/// The batch that the others come to when the device has it: far enough that the host can
/// still redo it in time, if what waits meanwhile has room. Near the end nothing is that far;
/// then one that the device should have in time: the host, idle by then, redoes what comes
/// too late.
fn behind_makers(
    view: &View<'_>,
    back: &Back,
    open: Open<'_>,
    safe_ns: f64,
) -> Option<BatchIdx> {
    let free = view.ledger.free();
    let own_ns = mean_ns(back) * in_line(back);
    let is_before_host =
        || latency_ns(back).is_some_and(|ns| ns <= float(view.front_busy_ns()));
    if f64::from(free.len()) < own_ns * view.front_rate() {
        // The host alone is through before it, if it has a hand.
        return open.last().filter(|_| is_before_host());
    }
    let rate = view.rate_of_quicker(back);
    let safe = batches(safe_ns * rate).saturating_add(MARGIN_BATCHES);
    if let Some(from) = free.nth(safe.min(batches(room_ns(view, back) * rate)))
        && let Some(batch) = open.first_from(from)
    {
        return Some(batch);
    }
    // Soon after the first that is possible: for the last of all, delivery would have to wait
    // when all else is done.
    let needed = batches(own_ns * rate);
    let from = free.nth(needed + free.len().saturating_sub(needed) / 4);
    let last = || open.last().filter(|last| free.count_below(*last) >= needed);
    let in_time = from.and_then(|from| open.first_from(from).or_else(last));
    // The last of all, too, where the host comes to it only after that: it would be ready later,
    // and a quick device idle, which begins no other epoch before all of this one is claimed.
    in_time.or_else(|| open.last().filter(|_| is_before_host()))
}

/// How many batches a device holds or has waiting when its horizon is as long as it wants: one that
/// makes a batch in `device_ns` and holds `slots` at once, next to a host that takes `host_ns`. With
/// a smaller buffer it claims less far ahead, and stands still while what it has made waits.
pub(super) fn whole_buffer(host_ns: u64, device_ns: u64, slots: u32) -> u32 {
    let in_line = f64::from(slots);
    let redo = float(redo_ns(host_ns, 1)) / float(device_ns.max(1));
    let safe = MARGIN * in_line + redo;
    let whole = (safe / ROOM).max((safe + redo) / ROOM_WITH_HOST);
    // Half of a buffer takes what is queued.
    batches(whole).max(slots.saturating_mul(2))
}

/// The longest horizon in which what the device makes has room; its own time at least. What
/// it makes while the host is at a batch waits too.
fn room_ns(view: &View<'_>, back: &Back) -> f64 {
    let buffer = f64::from(back.config.buffer);
    let with_host = float(view.redo_ns()) / mean_ns(back).max(1.0);
    let room = (ROOM * buffer).min(ROOM_WITH_HOST * buffer - with_host);
    room.max(in_line(back)) * mean_ns(back)
}
