//! `relaxed`: what is ready first is delivered first, and both ends advance until they meet.
//!
//! Two rules keep the end of an epoch short. A device takes no batch that the others would have made
//! before it. And an idle host redoes what a device is still making, the latest first; whoever finishes
//! first counts (the bytes are the same).

use crate::ids::{BatchIdx, DeviceIdx};
use crate::select::view::float;
use crate::select::{Strategy, View};

/// A device refuses a batch when the others need less than this part of its time for all
/// that is free.
const REFUSAL: f64 = 0.9;

/// Ready first.
#[derive(Debug)]
pub struct Relaxed;

impl Strategy for Relaxed {
    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        if view.n_free() > 0 {
            return None;
        }
        let late = view.back_claims().filter(|claim| view.is_worth_redoing(claim));
        late.max_by_key(|claim| (claim.ready_at.is_none(), claim.ready_at))
            .map(|c| c.batch)
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        let free = view.free_for(device).last()?;
        let back = view.back.get(usize::from(device.0))?;
        // A remembered rate may be wrong, and stays wrong as long as the device gets nothing.
        let known_ns = back.times.mean_ns().filter(|_| !back.times.is_untried());
        let Some(each_ns) = known_ns else { return Some(free) };
        let in_line = u64::from(back.hand.n_held()) + 1;
        let own_ns = float(each_ns.saturating_mul(in_line));
        let others_ns = f64::from(view.n_free()) / view.rate_of_quicker(back);
        (others_ns >= REFUSAL * own_ns).then_some(free)
    }
}
