//! Who keeps the slots without which nothing goes on, and for how long that is no reason to give up.
//!
//! A consumer that keeps every slot is told so soon, since it alone can change that. What has been given back,
//! or is being copied, comes by itself once the device gets there, which may be as late as a step of training
//! is long: that is waited for until the device must be taken to hang.

use std::time::{Duration, Instant};

use crate::error::RuntimeError;
use crate::handover::gpu::target::GpuTarget;

/// How long the consumer waits with nothing under way before it is told that it keeps every
/// slot itself.
const STARVED_AFTER: Duration = Duration::from_secs(2);

/// Who keeps slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The consumers.
    Consumers,
    /// The device: it copies from them, or may still read them.
    Device,
}

/// How long nobody needs to have asked the device for its time to begin again: it is only told to bring slots back
/// by whoever asks.
const BREAK: Duration = Duration::from_secs(1);

/// Since when slots are missing, and who keeps them.
#[derive(Debug, Default)]
pub(crate) struct Lack(Option<Seen>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    keeper: Keeper,
    since: Instant,
    /// When somebody looked last.
    last: Instant,
}

impl Lack {
    /// Nothing goes on because `keeper` keeps all of `slots`, or something does: the error if it has been the
    /// same one for too long. The consumers' time begins with `since`, the device's now; either begins again where
    /// it was the other before, and after an error.
    pub(crate) fn look(
        &mut self,
        keeper: Option<Keeper>,
        (since, now): (Instant, Instant),
        (gpu, slots): (Option<&GpuTarget>, u32),
    ) -> Option<RuntimeError> {
        let before = self.0.take();
        let keeper = keeper?;
        let since = match (before, keeper) {
            (Some(seen), _) if seen.goes_on(keeper, now) => seen.since,
            (None, Keeper::Consumers) => since,
            (Some(_), _) | (None, Keeper::Device) => now,
        };
        let lasts = now.saturating_duration_since(since);
        let error = match (keeper, gpu) {
            (Keeper::Device, Some(gpu)) => {
                (lasts > gpu.patience()).then(|| gpu.is_late())
            }
            (Keeper::Device, None) | (Keeper::Consumers, _) => {
                (lasts > STARVED_AFTER).then_some(RuntimeError::Starved { slots })
            }
        };
        let seen = Seen { keeper, since, last: now };
        self.0 = error.is_none().then_some(seen);
        error
    }
}

impl Seen {
    /// Whether it is still the same one that is waited for.
    fn goes_on(&self, keeper: Keeper, now: Instant) -> bool {
        let is_asked = now.saturating_duration_since(self.last) < BREAK;
        self.keeper == keeper && (is_asked || keeper == Keeper::Consumers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bothends_gpu::driver::fake::Fake;

    use super::*;

    /// What is said at each of these half seconds, if anything is.
    fn said(
        looks: impl IntoIterator<Item = (u64, Option<Keeper>)>,
    ) -> Vec<(u64, String)> {
        let gpu = GpuTarget::over(Arc::new(Fake::default())).unwrap();
        let began = Instant::now();
        let mut lack = Lack::default();
        let looks = looks.into_iter().filter_map(|(at, keeper)| {
            let now = began + Duration::from_millis(500 * at);
            let error = lack.look(keeper, (began, now), (Some(&gpu), 3))?;
            Some((at, error.to_string()))
        });
        looks.collect()
    }

    #[test]
    fn a_consumer_is_told_after_two_seconds_and_again() {
        let at = said((0..=10).map(|at| (at, Some(Keeper::Consumers))));
        // The second time begins with the wait.
        assert_eq!(at.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [5, 6, 7, 8, 9, 10]);
        assert!(at[0].1.starts_with("all 3 slots are held by the consumer"), "{at:?}");
        let at = said([(0, Some(Keeper::Consumers)), (9, Some(Keeper::Consumers))]);
        assert_eq!(at.len(), 1, "also one who asks seldom");
    }

    #[test]
    fn a_device_is_late_after_sixty() {
        let at = said((0..=122).map(|at| (at, Some(Keeper::Device))));
        assert_eq!(at.len(), 1);
        assert!(at[0].0 == 121 && at[0].1.contains("within 60 s"), "{at:?}");
        let at = said([(0, Some(Keeper::Device)), (200, Some(Keeper::Device))]);
        assert!(at.is_empty(), "nobody has asked it to bring them: {at:?}");
    }

    #[test]
    fn each_has_its_own_time() {
        let keeper = |at| match at {
            4..=7 => Keeper::Device,
            _ => Keeper::Consumers,
        };
        let at = said((0..=11).map(|at| (at, Some(keeper(at)))));
        assert!(at.is_empty(), "neither has kept them for two seconds: {at:?}");
    }
}
