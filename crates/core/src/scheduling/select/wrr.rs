//! `wrr`: Weighted Round Robin, as far as its authors have published it.
//!
//! After a host batch (or several: the weight) the consumer checks whether a device batch is ready. If
//! so it takes that one, otherwise it continues with the host. Both sides claim until they meet. The
//! order depends on timing.
//!
//! One rule is ours: when nothing else is left, the host redoes an overdue device batch.

use crate::ids::{BatchIdx, DeviceIdx};
use crate::select::view::batches;
use crate::select::{Strategy, View};

/// What `wrr` can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrrConfig {
    /// Host batches taken for each turn of the devices.
    pub weight: WrrWeight,
}

/// How many host batches `wrr` takes before it looks at the devices again. The published
/// text does not say, so both readings exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrrWeight {
    /// So many; 0 counts as 1.
    Fixed(u32),
    /// As many as the host makes while the devices make one, by the measured rates.
    ByRates,
}

impl Default for WrrConfig {
    fn default() -> Self {
        Self { weight: WrrWeight::Fixed(1) }
    }
}

/// Weighted round robin.
#[derive(Debug)]
pub struct Wrr {
    config: WrrConfig,
    /// Host batches taken since the devices last had their turn.
    since_turn: u32,
}

impl Wrr {
    /// At the start of an epoch.
    #[must_use]
    pub fn new(config: WrrConfig) -> Self {
        Self { config, since_turn: 0 }
    }

    fn weight(&self, view: &View<'_>) -> u32 {
        match self.config.weight {
            WrrWeight::Fixed(weight) => weight.max(1),
            WrrWeight::ByRates => {
                let front = view.front_rate() / view.back_rate();
                if front.is_finite() { batches(front.round()).max(1) } else { 1 }
            }
        }
    }
}

impl Strategy for Wrr {
    fn rescue(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        if view.n_free() == 0 { view.overdue() } else { None }
    }

    fn back(&mut self, view: &View<'_>, device: DeviceIdx) -> Option<BatchIdx> {
        view.free_for(device).last()
    }

    fn deliver(&mut self, view: &View<'_>) -> Option<BatchIdx> {
        if view.front_is_through() {
            return view.ledger.ready_back();
        }
        if self.since_turn >= self.weight(view) {
            self.since_turn = 0;
            if let Some(batch) = view.ledger.ready_back() {
                return Some(batch);
            }
        }
        let batch = view.ledger.ready_front()?;
        self.since_turn += 1;
        Some(batch)
    }

    /// The devices' batches wait for their turn, however many are ready.
    fn before(&self, view: &View<'_>, _: BatchIdx) -> u32 {
        view.front.hand.used()
    }
}
