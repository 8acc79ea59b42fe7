//! An execution on a thread of the pool.

use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use super::outlet::Connected;
use super::timer::{Due, Timer};
use crate::device::Demand;
use crate::nvme::controller::{Controller, Outlet, Waiting, lock};
use crate::nvme::pool::Task;
use crate::nvme::programs::effort;
use crate::nvme::subsystem::Subsystem;

/// An execution that waits for a thread. Of its host it holds nothing: that may go meanwhile.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) execution: Arc<Waiting>,
    /// Its queue and identifier.
    pub(super) key: (u16, u16),
    pub(super) controller: Weak<Mutex<Controller>>,
    pub(super) outlet: Weak<Connected>,
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) timer: Option<Arc<Timer>>,
    pub(super) arrived: Instant,
}

impl Task for Run {
    fn is_wanted(&self) -> bool {
        self.execution.is_there()
    }

    fn run(self: Box<Self>) {
        // Who aborts it has completed it.
        let Some((execution, later)) = self.execution.begin() else { return };
        let timing = self.subsystem.timing();
        let awake = timing.map(|timing| timing.begin(self.arrived));
        let stop = self.execution.stop();
        let (result, effort) = effort(|| execution.run(&self.subsystem.memory, stop));
        // Nothing holds the ranges when the host learns that they are free.
        drop(execution);
        let take = |awake| timing.map(|own| own.take(awake, &Demand::Execute(effort)));
        let at = awake.and_then(take);
        if let Some(controller) = self.controller.upgrade() {
            lock(&controller).forget(self.key, &self.execution);
        }
        let Some(outlet) = self.outlet.upgrade() else { return };
        match (&self.timer, at) {
            (Some(timer), Some(at)) => {
                let outlet = Arc::downgrade(&outlet);
                timer.send(Due { at, later, result, outlet });
            }
            _ => outlet.post(&later.completion(result)),
        }
    }
}
