//! Why the consumer waits: seconds by cause.
//!
//! The collector says what the next batch waits for whenever that changes; the consumer,
//! while it waits, looks every few milliseconds and puts the time on that account. For the
//! front it looks further: workers without records wait for reads, else for decoding.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use bothends_figures::Stall;

/// Pause between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(4);

/// What the next batch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The host's reader and workers.
    Front,
    /// A device.
    Device,
    /// The feed: conversion and hand-over.
    Copy,
    /// The consumer, which keeps every slot.
    Consumer,
}

/// Shared between collector, workers and consumer.
#[derive(Debug, Default)]
pub(crate) struct StallGauge {
    cause: AtomicU8,
    /// The feed has a batch and no slot to convert it into: the consumer keeps them all.
    pub(crate) feed_lacks_slot: AtomicBool,
    /// Workers that are decoding.
    pub(crate) busy_workers: AtomicU32,
}

impl StallGauge {
    pub(crate) fn waits_for(&self, cause: Cause) {
        let code = match cause {
            Cause::Front => 0,
            Cause::Device => 1,
            Cause::Copy => 2,
            Cause::Consumer => 3,
        };
        // A gauge: whoever reads it a moment later errs by that moment.
        self.cause.store(code, Ordering::Relaxed);
    }

    /// Whether nothing can go on because the consumer keeps every slot.
    pub(crate) fn is_starved(&self) -> bool {
        self.cause.load(Ordering::Relaxed) == 3
            || self.feed_lacks_slot.load(Ordering::Relaxed)
    }

    /// Puts waited time on the account of what is waited for now.
    pub(crate) fn charge(&self, stall: &mut Stall, waited: Duration) {
        let account = match self.cause.load(Ordering::Relaxed) {
            1 => &mut stall.device,
            2 | 3 => &mut stall.copy,
            _ if self.busy_workers.load(Ordering::Relaxed) == 0 => &mut stall.read,
            _ => &mut stall.decode,
        };
        *account += waited.as_secs_f64();
    }
}
