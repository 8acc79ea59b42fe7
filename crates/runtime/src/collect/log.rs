//! What happened when, for pictures and for the curious: one line a batch and moment.
//!
//! Bounded: an epoch of more than 50,000 batches keeps its first 200,000 moments and says
//! that it was cut. Whoever watches is told every moment while the epoch runs.

use bothends_core::ids::{BatchIdx, Ns, Prong};
use crossbeam::channel::Sender;
use serde::Serialize;

/// Moments of an epoch that are kept.
pub const MOST_MOMENTS: usize = 200_000;

/// Moments that may wait to be looked at while an epoch runs: a consumer looks at every batch,
/// and between two batches no more happens than there are slots. Nobody waits when it is full.
pub(crate) const MOMENT_ROOM: usize = 4096;

/// What happened to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Moment {
    /// A prong took it on.
    Claimed,
    /// The host took on a batch that a device holds.
    Rescued,
    /// A prong finished it.
    Made,
    /// A device's claim came to nothing.
    Lost,
    /// It went to the feed.
    Delivered,
}

/// One moment of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LogEntry {
    /// Seconds since the epoch began.
    pub t_s: f64,
    /// The batch.
    pub batch: u32,
    /// `None` for the host, else the device's number.
    pub device: Option<u16>,
    /// What happened.
    pub moment: Moment,
}

/// The moments of an epoch, in order.
#[derive(Debug, Default)]
pub struct EventLog {
    entries: Vec<LogEntry>,
    cut: u64,
    watcher: Option<Sender<LogEntry>>,
}

impl EventLog {
    /// A log whose moments `watcher` is told, too, as long as it has room.
    pub(crate) fn watched(watcher: Sender<LogEntry>) -> Self {
        Self { watcher: Some(watcher), ..Self::default() }
    }

    pub(crate) fn add(&mut self, now: Ns, batch: BatchIdx, prong: Prong, moment: Moment) {
        let device = match prong {
            Prong::Front => None,
            Prong::Back(device) => Some(device.0),
        };
        #[expect(clippy::cast_precision_loss, reason = "seconds for a picture")]
        let t_s = now.0 as f64 / 1e9;
        let entry = LogEntry { t_s, batch: batch.0, device, moment };
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
    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }

    /// How many moments were not kept.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }
}
