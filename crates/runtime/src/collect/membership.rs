//! Devices that come and go while epochs are under way, for the collector.
//!
//! What a strategy makes of that is `core`'s. Who comes and goes is decided by `devices/roster.rs`, or shows
//! when a connection is made or lost.

use bothends_core::ids::Prong;
use bothends_slots::Producer;

use crate::collect::collector::Collector;
use crate::collect::producer::{Joined, Joins, LineReport};

impl Collector {
    /// A device is there that was missing.
    pub(super) fn join(
        &mut self,
        line: usize,
        producer: Box<dyn Producer>,
        joined: Joined,
    ) {
        if self.lines[line].is_expelled() {
            return;
        }
        if self.lines[line].is_up() {
            self.lost(line, "it was reached again before it was known to be lost".into());
        }
        let joins = joined.joins;
        self.lines[line].join(producer, joined);
        if joins == Joins::Another
            && let Some(known) = self.work.known.get_mut(line)
        {
            *known = LineReport::default();
        }
        self.work.joined(self.lines[line].prong(), joins);
    }

    /// A member of a pool is to go: it gets nothing more.
    pub(super) fn leave(&mut self, line: usize, member: &str) {
        if self.lines[line].leave(member)
            && let Prong::Back(device) = self.lines[line].prong()
        {
            for epoch in &mut self.work.epochs {
                epoch.state.device_leaves(device, epoch.now());
            }
        }
    }

    /// Lets members go that have finished what they had.
    pub(super) fn see_off(&mut self) {
        for line in 0..self.lines.len() {
            match self.lines[line].has_left() {
                None => {}
                Some(Ok(())) => {
                    self.lines[line].see_off();
                    let prong = self.lines[line].prong();
                    for epoch in &mut self.work.epochs {
                        epoch.lost(prong, Vec::new());
                    }
                }
                Some(Err(why)) => self.lost(line, why),
            }
        }
    }
}
