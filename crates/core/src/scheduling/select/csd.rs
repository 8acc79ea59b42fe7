//! `csd`: the devices alone, from the back. The host makes only what they fail to make.

use crate::ids::{BatchIdx, DeviceIdx};
use crate::select::{Strategy, View, follower};

/// The devices alone.
#[derive(Debug)]
pub struct Csd;

impl Strategy for Csd {
    fn front(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        view.ledger.host_only().first().or_else(|| view.lowest_orphan())
    }

    fn front_after(&self, view: &View<'_>, after: Option<BatchIdx>) -> Option<BatchIdx> {
        let is_orphan = after.is_some_and(|after| view.ledger.free().contains(after));
        let failed = view.ledger.host_only().first_from(follower(after));
        let orphan = || {
            let lowest = view.lowest_orphan()?;
            let from = if is_orphan { follower(after) } else { lowest };
            view.ledger.free().first_from(from)
        };
        failed.filter(|_| !is_orphan).or_else(orphan)
    }

    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        view.overdue()
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        view.free_for(device).last()
    }
}
