//! The reference accelerator: takes every batch at once and computes nothing.
//!
//! With it, a run measures what the loader can deliver. Read `sim.rs` next.

use std::time::Instant;

use crate::Accelerator;
use crate::timeline::{Step, Timeline, ns_since};

/// Consumes a batch in no time; the batch stays in host memory.
#[derive(Debug)]
pub struct Host {
    origin: Instant,
    timeline: Timeline,
}

/// One that has not received a batch yet.
impl Default for Host {
    fn default() -> Self {
        Self { origin: Instant::now(), timeline: Timeline::default() }
    }
}

impl Accelerator for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn step(&mut self, _n_samples: u32, ready: Instant) -> Step {
        let ready_ns = ns_since(self.origin, ready.min(Instant::now()));
        self.timeline.place(ready_ns, 0).0
    }

    fn samples_per_s(&self) -> Option<f64> {
        None
    }
}
