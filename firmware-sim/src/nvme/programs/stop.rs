//! How an execution that runs is told to end. Nothing ends a thread from outside: programs look whether they are to
//! go on.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bothends_nvme::Status;

/// A request to end, which whoever holds a clone may make.
#[derive(Debug, Clone, Default)]
pub(in crate::nvme) struct Stop {
    asked: Arc<OnceLock<Status>>,
    by: Option<Instant>,
}

impl Stop {
    /// The same request, which time makes too: after `time` from now, with Insufficient Program Resources.
    pub(super) fn within(&self, time: Duration) -> Self {
        Self { by: Instant::now().checked_add(time), ..self.clone() }
    }

    /// Has the execution end with `status`, unless another was said before.
    pub(in crate::nvme) fn ask(&self, status: Status) {
        let _ = self.asked.set(status);
    }

    /// Whether the execution may go on.
    ///
    /// # Errors
    /// The status with which it is to end.
    pub(super) fn check(&self) -> Result<(), Status> {
        if let Some(status) = self.asked.get() {
            return Err(*status);
        }
        if self.by.is_some_and(|by| Instant::now() > by) {
            return Err(Status::PROGRAM_RESOURCES);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_goes_on_until_it_is_asked_to_end_or_its_time_is_over() {
        let stop = Stop::default();
        let long = stop.within(Duration::from_secs(3600));
        let over = stop.within(Duration::ZERO);
        assert_eq!((stop.check(), long.check()), (Ok(()), Ok(())));
        while over.check().is_ok() {}
        assert_eq!(over.check(), Err(Status::PROGRAM_RESOURCES));
        stop.ask(Status::ABORT_REQUESTED);
        stop.ask(Status::ABORTED_BY_DELETION);
        assert_eq!(long.check(), Err(Status::ABORT_REQUESTED), "the first to ask");
    }
}
