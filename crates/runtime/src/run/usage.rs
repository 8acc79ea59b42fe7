//! What the process used while an epoch ran, twice a second: for pictures, and for what can be
//! counted only by looking (memory over time).
//!
//! A thread of its own looks, at the beginning, at the end and in between, so that a consumer that waits or computes is no gap. It costs a
//! read of two files of `/proc` each time; where the kernel does not say, it says nothing.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bothends_figures::UsageSample;

use crate::error::RuntimeError;
use crate::threads::process;

/// From one look to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks until it is ended.
#[derive(Debug)]
pub(crate) struct UsageLog {
    end: Sender<()>,
    thread: JoinHandle<Vec<UsageSample>>,
}

impl UsageLog {
    /// Begins to look, now.
    pub(crate) fn begin() -> Result<Self, RuntimeError> {
        let (end, ended) = channel::<()>();
        let look = move || {
            let began = Instant::now();
            let cpu_before = process::cpu_seconds();
            let look = || UsageSample {
                t_s: began.elapsed().as_secs_f64(),
                cpu_s: process::since(cpu_before, process::cpu_seconds()),
                pss_bytes: process::pss_bytes(),
            };
            let mut samples = vec![look()];
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                samples.push(look());
            }
            samples.push(look());
            samples
        };
        let thread = std::thread::Builder::new()
            .name("be-usage".to_owned())
            .spawn(look)
            .map_err(|source| RuntimeError::Spawning { thread: "usage", source })?;
        Ok(Self { end, thread })
    }

    /// What was seen. Waits for one look at most.
    pub(crate) fn end(self) -> Vec<UsageSample> {
        drop(self.end);
        self.thread.join().unwrap_or_default()
    }
}

/// Memory over time in byte-seconds: the looks joined by straight lines. `None` where the kernel
/// does not say, or there is less than two looks.
pub(crate) fn byte_seconds(samples: &[UsageSample]) -> Option<f64> {
    let mut sum = None;
    for pair in samples.windows(2) {
        #[expect(clippy::cast_precision_loss, reason = "2^53 bytes are beyond any host")]
        let mean = (pair[0].pss_bytes? as f64 + pair[1].pss_bytes? as f64) / 2.0;
        *sum.get_or_insert(0.0) += mean * (pair[1].t_s - pair[0].t_s);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(t_s: f64, pss_bytes: Option<u64>) -> UsageSample {
        UsageSample { t_s, cpu_s: None, pss_bytes }
    }

    #[test]
    fn memory_over_time_is_the_area_below_the_looks() {
        let looks = [look(0.0, Some(100)), look(1.0, Some(300)), look(3.0, Some(300))];
        assert_eq!(byte_seconds(&looks), Some(200.0 + 600.0));
        assert_eq!(byte_seconds(&looks[..1]), None);
        assert_eq!(byte_seconds(&[look(0.0, Some(1)), look(1.0, None)]), None);
    }

    #[test]
    fn a_log_ends_with_a_look_and_at_once() {
        let log = UsageLog::begin().unwrap();
        std::thread::sleep(Duration::from_millis(600));
        let began = Instant::now();
        let samples = log.end();
        assert!(samples.len() >= 3, "{samples:?}");
        assert!(samples.windows(2).all(|pair| pair[0].t_s < pair[1].t_s));
        assert!(began.elapsed() < Duration::from_millis(400));
    }
}
