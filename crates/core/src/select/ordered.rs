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
/// How far ahead a device's first batch is taken, when nothing is known of it: far enough
/// for a device 64 times slower than everything else. The host does not wait for it.
const FIRST_AHEAD: u32 = 64;

/// The plan's order.
#[derive(Debug)]
pub struct Ordered;

impl Strategy for Ordered {
    fn front(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        let next = view.next()?;
        let free = view.lowest_free();
        // Batches that delivery reaches while the host makes one.
        let soon = batches(float(view.redo_ns()) * view.rate()) + MARGIN_BATCHES;
        let is_due = |claim: &BackClaim| match claim.ready_at {
            // A device that never answered only tries: the host comes to its batch in turn.
            None => free.is_none_or(|free| claim.batch < free),
            Some(_) if claim.overdue => claim.batch.0.saturating_sub(next.0) <= soon,
            Some(_) => {
                (claim.batch == next || free.is_none()) && view.is_worth_redoing(claim)
            }
        };
        let due = view.back_claims().filter(is_due).map(|claim| claim.batch).min();
        due.or(free)
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        let back = view.back.get(usize::from(device.0))?;
        let lowest = view.lowest_free()?;
        let free = view.ledger.free();
        match latency_ns(back) {
            Some(latency_ns) => {
                let ahead =
                    batches(latency_ns * view.rate()).saturating_add(MARGIN_BATCHES);
                free.first_from(
                    BatchIdx(view.next()?.0.saturating_add(ahead)).max(lowest),
                )
            }
            None => free
                .first_from(BatchIdx(lowest.0.saturating_add(FIRST_AHEAD)))
                .or_else(|| free.last()),
        }
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
