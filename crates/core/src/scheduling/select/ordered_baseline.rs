//! `ordered-baseline`: the first rules that gave the plan's order at the speed of both prongs, frozen so
//! that `ordered` can be compared with them.
//!
//! A device claims the first free batch that is far enough ahead of delivery, counted in batches whoever
//! makes them. The host redoes the batch that delivery waits for if it would be faster, or when 1.5
//! times the device's mean time have passed.

use crate::ids::{BatchIdx, DeviceIdx, Ns};
use crate::ledger::hand::Held;
use crate::select::view::{Back, batches, float};
use crate::select::{Strategy, View};

/// A device is expected within its mean time with this margin.
const MARGIN: f64 = 1.3;
/// So many batches more.
const MARGIN_BATCHES: u32 = 2;
/// A claim is overdue after so many percent of the device's mean time.
const OVERDUE_PERCENT: u64 = 150;

/// The first rules.
#[derive(Debug)]
pub struct OrderedBaseline;

impl OrderedBaseline {
    /// The claim that delivery waits for, if a device alone holds it.
    fn awaited_claim<'a>(view: &View<'a>) -> Option<(&'a Back, &'a Held)> {
        let next = view.next().filter(|next| view.ledger.only_back_makes(*next))?;
        view.back.iter().find_map(|back| {
            let held = back.hand.held().iter().find(|held| held.batch() == next)?;
            Some((back, held))
        })
    }

    /// When that claim is overdue.
    fn overdue_at(back: &Back, held: &Held) -> Option<Ns> {
        let mean_ns = back.times.mean_ns()?;
        Some(held.end_at(mean_ns.saturating_mul(OVERDUE_PERCENT) / 100))
    }
}

impl Strategy for OrderedBaseline {
    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        if !view.may_rescue() {
            return None;
        }
        let (back, held) = Self::awaited_claim(view)?;
        let Some(mean_ns) = back.times.mean_ns() else {
            // These rules have no word for a device that nothing is known of.
            return held.overdue.then(|| held.batch());
        };
        let is_late = held.end_at(mean_ns) > view.now.plus(view.redo_ns());
        let is_overdue = Self::overdue_at(back, held).is_some_and(|at| at <= view.now);
        (is_late || is_overdue).then(|| held.batch())
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        let back = view.back.get(usize::from(device.0))?;
        let open = view.free_for(device);
        let Some(mean_ns) = back.times.mean_ns() else { return open.last() };
        let makers = view.front_rate() + view.back_rate();
        let taken = view.accelerator_ns.map_or(f64::INFINITY, |ns| 1.0 / float(ns));
        let ahead = batches(MARGIN * float(mean_ns) * makers.min(taken));
        let from = view.next()?.0.saturating_add(ahead).saturating_add(MARGIN_BATCHES);
        open.first_from(BatchIdx(from).max(view.lowest_free()?))
    }

    fn awaited(&self, view: &View<'_>) -> Option<BatchIdx> {
        view.next()
    }

    fn before(&self, view: &View<'_>, batch: BatchIdx) -> u32 {
        view.ledger.unpicked().count_below(batch)
    }

    fn changes_at(&self, view: &View<'_>) -> Option<Ns> {
        let (back, held) = Self::awaited_claim(view)?;
        Self::overdue_at(back, held)
    }
}
