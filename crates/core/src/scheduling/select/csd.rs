//! `csd`: the devices alone, from the back. The host makes only what they fail to make.

use crate::ids::{BatchIdx, DeviceIdx};
use crate::select::{Strategy, View};

/// The devices alone.
#[derive(Debug)]
pub struct Csd;

impl Strategy for Csd {
    fn front(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        view.ledger.host_only().first().or_else(|| view.lowest_orphan())
    }

    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        view.overdue()
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        view.free_for(device).last()
    }
}
