//! When a device will have a batch ready, and how long the host takes for one. Sums over what was
//! measured (`rates.rs`); what follows from them is decided in `ordered.rs` and `lead.rs`.

use crate::select::view::{Back, float};

/// A device is expected within its mean time with this margin …
pub(super) const MARGIN: f64 = 1.3;
/// … or within the time that few of its batches exceed, with this one.
const HIGH_MARGIN: f64 = 1.05;

/// How long after its claim a device's next batch is ready, nearly always; `None` for a
/// device that nothing is known of.
pub(super) fn latency_ns(back: &Back) -> Option<f64> {
    let high = float(back.times.high_ns()?);
    Some(in_line(back) * (MARGIN * mean_ns(back)).max(HIGH_MARGIN * high))
}

pub(super) fn mean_ns(back: &Back) -> f64 {
    float(back.times.mean_ns().unwrap_or(0))
}

/// Batches in the device's queue with the next one.
pub(super) fn in_line(back: &Back) -> f64 {
    f64::from(back.hand.in_line()) + 1.0
}
