//! `ordered`: the plan's order, at the speed of both prongs.
//!
//! Each side claims what it can have ready when it is needed: the host the lowest free
//! batch, a device one as far ahead of delivery as its own time is long (its horizon). So
//! few finished batches wait, and the order costs nothing. The price is that one late batch
//! holds everything up; hence the rescue rules below.

use crate::ids::{BatchIdx, DeviceIdx};
use crate::select::view::{Back, BackClaim, batches, float};
use crate::select::{Strategy, View};

/// A device's horizon is its mean time with this margin …
const MARGIN: f64 = 1.3;
/// … or the time that few of its batches exceed, with this one …
const HIGH_MARGIN: f64 = 1.05;
/// … and so many batches more.
const MARGIN_BATCHES: u32 = 2;
/// How far ahead the first batch is taken of a device that nothing is known of: far enough
/// for one 64 times slower than everything else.
const FIRST_AHEAD: u32 = 64;

/// The plan's order.
#[derive(Debug)]
pub struct Ordered;

impl Strategy for Ordered {
    fn front(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        view.lowest_free()
    }

    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        let next = view.next()?;
        let free = view.lowest_free();
        // Batches that delivery reaches while the host makes one.
        let soon = batches(float(view.redo_ns()) * view.rate()) + MARGIN_BATCHES;
        let would_be_first = |ready_at| ready_at > view.now.plus(view.redo_ns());
        let is_due = |claim: &BackClaim| match claim.ready_at {
            // An unproven device only tries: the host comes to its batch in turn.
            None => free.is_none_or(|free| claim.batch < free),
            Some(ready_at) => {
                let is_soon = claim.batch.0.saturating_sub(next.0) <= soon;
                let is_idle = claim.batch == next || free.is_none();
                is_soon && (claim.overdue || would_be_first(ready_at))
                    || is_idle && view.is_worth_redoing(claim)
            }
        };
        view.back_claims().filter(is_due).map(|claim| claim.batch).min()
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        let back = view.back.get(usize::from(device.0))?;
        let lowest = view.lowest_free()?;
        let free = view.ledger.free();
        // The host's own walk does not wait for an unproven device, which must be ahead of it.
        let from = if back.proven { view.next()? } else { lowest };
        let after = |ns: f64| {
            let ahead = batches(ns * view.rate()).saturating_add(MARGIN_BATCHES);
            BatchIdx(from.0.saturating_add(ahead)).max(lowest)
        };
        let known = latency_ns(back).filter(|_| view.front.times.mean_ns().is_some());
        let Some(own_ns) = known else {
            let far = BatchIdx(lowest.0.saturating_add(FIRST_AHEAD));
            return free.first_from(far).or_else(|| free.last());
        };
        // Far enough that the host can still redo it in time; near the end, where nothing is
        // that far, as far as there is.
        let with_redo = after(own_ns + float(view.redo_ns()));
        free.first_from(with_redo)
            .or_else(|| free.last().filter(|last| *last >= after(own_ns)))
    }

    fn deliver(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        self.awaited(view).filter(|batch| view.is_ready(*batch))
    }

    fn awaited(&self, view: &View<'_>) -> Option<BatchIdx> {
        view.next()
    }
}

/// How long after its claim a device's next batch is ready, nearly always; `None` for a
/// device that has never answered.
fn latency_ns(back: &Back) -> Option<f64> {
    let mean = float(back.times.mean_ns()?);
    let high = float(back.times.high_ns()?);
    let in_line = f64::from(back.hand.n_held()) + 1.0;
    Some(in_line * (MARGIN * mean).max(HIGH_MARGIN * high))
}
