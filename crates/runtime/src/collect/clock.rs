//! The epoch's clock: nanoseconds since it began, as `core` wants them.

use std::time::Instant;

use bothends_core::ids::Ns;

/// A clock that started with an epoch. Copies agree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts at zero now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    pub(crate) fn now(self) -> Ns {
        Ns(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
