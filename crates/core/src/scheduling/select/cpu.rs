//! `cpu`: the host alone, from the front. The baseline of every other strategy.

use crate::ids::{BatchIdx, DeviceIdx};
use crate::select::{Strategy, View};

/// The host alone.
#[derive(Debug)]
pub struct Cpu;

impl Strategy for Cpu {
    fn rescue(&mut self, _: &View<'_>) -> Option<BatchIdx> {
        None
    }

    fn back(&mut self, _: &View<'_>, _: DeviceIdx) -> Option<BatchIdx> {
        None
    }

    fn awaited(&self, view: &View<'_>) -> Option<BatchIdx> {
        view.next()
    }
}
