//! What happened when, for pictures and for the curious: one line a batch and moment.
//!
//! Bounded: an epoch of more than 50,000 batches keeps its first 200,000 moments and says
//! that it was cut. Whoever watches is told every moment while the epoch runs.

use bothends_core::ids::{BatchIdx, Ns, Prong};
use bothends_figures::{Moment, What};
use crossbeam::channel::Sender;

/// Moments of an epoch that are kept.
pub const MOST_MOMENTS: usize = 200_000;

/// Moments that may wait to be looked at while an epoch runs: a consumer looks at every batch,
/// and between two batches no more happens than there are slots. Nobody waits when it is full.
pub(crate) const MOMENT_ROOM: usize = 4096;

/// The moments of an epoch, in order.
#[derive(Debug, Default)]
pub struct EventLog {
    entries: Vec<Moment>,
    cut: u64,
    watcher: Option<Sender<Moment>>,
}

impl EventLog {
    /// A log whose moments `watcher` is told, too, as long as it has room.
    pub(crate) fn watched(watcher: Sender<Moment>) -> Self {
        Self { watcher: Some(watcher), ..Self::default() }
    }

    pub(crate) fn add(&mut self, now: Ns, batch: BatchIdx, prong: Prong, what: What) {
        let device = match prong {
            Prong::Front => None,
            Prong::Back(device) => Some(device.0),
        };
        #[expect(clippy::cast_precision_loss, reason = "seconds for a picture")]
        let t_s = now.0 as f64 / 1e9;
        let entry = Moment { t_s, batch: batch.0, device, what };
        if let Some(watcher) = &self.watcher {
            // Who does not look (any more) misses nothing.
            let _ = watcher.try_send(entry);
        }
        if self.entries.len() < MOST_MOMENTS {
            self.entries.push(entry);
        } else {
            self.cut += 1;
        }
    }

    /// The moments kept.
    #[must_use]
    pub fn entries(&self) -> &[Moment] {
        &self.entries
    }

    /// How many moments were not kept.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }
}
