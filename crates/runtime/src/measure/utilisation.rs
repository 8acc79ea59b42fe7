//! How well an accelerator is fed: an epoch over the whole data path into an accelerator that
//! takes its time, cut off after a while. The accelerator is a `Consumer` as any other; [`Runtime::feed`] is not
//! `Loader::feed`, which runs a training's next epoch to its end (`measure.rs` says why).
//!
//! The first step and the last do not count, as in MLPerf Storage: the first waits for a
//! loader that begins, and with the last one ends. What a rate means, and which one is
//! measured next, is decided elsewhere (`bench::au`).

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bothends_accel::{AccelConfig, Step, Usage};
use bothends_figures::Seen;
use serde::Serialize;

use crate::error::RuntimeError;
use crate::handover::consumer::{Consumer, Timed};
use crate::run::energy::Used;
use crate::run::usage::UsageLog;
use crate::runtime::host::{EpochOptions, Runtime};
use crate::threads::process;

/// Steps at least, however long they take.
const LEAST_STEPS: usize = 12;

/// A device of the back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connected {
    /// As given on the command line.
    pub device: String,
    /// Whether models stand in for hardware, as the device says.
    pub emulated: bool,
}

/// A step that was taken.
#[derive(Debug, Clone, Copy)]
struct Taken {
    step: Step,
    n_samples: u32,
    /// When it was over, and the CPU seconds of this process until then.
    end: Instant,
    cpu_s: Option<f64>,
}

impl Runtime {
    /// The devices that were connected, lost ones included.
    #[must_use]
    pub fn connected(&self) -> Vec<Connected> {
        let devices = self.devices.iter().map(|device| Connected {
            device: device.name.clone(),
            emulated: device.presence.is_emulated(),
        });
        devices.collect()
    }

    /// Feeds an accelerator for about `lasting` with what the run's strategy makes; longer
    /// until it has taken a dozen steps.
    ///
    /// # Errors
    /// What ends an epoch.
    pub fn feed(
        &mut self,
        accelerator: &AccelConfig,
        lasting: Duration,
    ) -> Result<Seen, RuntimeError> {
        let accelerator_ns = accelerator.busy_ns(self.config.batch_size);
        let options = EpochOptions { accelerator_ns, ..self.options_of_measurement() };
        let devices_cpu_before = Used::now(self).device_process_seconds(self);
        let mut consumer = Timed::new(accelerator);
        let usage = UsageLog::begin()?;
        let mut taken: Vec<Taken> = Vec::new();
        let fed = self.measured_epoch(&options, &mut |began, batch| {
            let n_samples = batch.n_valid();
            let step = consumer.take(batch)?;
            let (end, cpu_s) = (Instant::now(), process::cpu_seconds());
            taken.push(Taken { step, n_samples, end, cpu_s });
            Ok(match taken.len() >= LEAST_STEPS && began.elapsed() > lasting {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        });
        let usage = usage.end();
        fed?;
        let devices_cpu = Used::now(self).device_process_seconds(self);
        let devices_cpu_s = process::since(devices_cpu_before, devices_cpu);
        let n_samples: u32 = taken.iter().map(|taken| taken.n_samples).sum();
        let steady = Steady::of(&taken);
        Ok(Seen {
            n_steps: u32::try_from(taken.len()).unwrap_or(u32::MAX),
            utilisation: steady.usage.utilisation().filter(|_| accelerator_ns.is_some()),
            images_per_s: steady.images_per_s,
            p99_wait_ms: steady.p99_wait_s * 1e3,
            cpu_ms_per_image: steady.cpu_ms_per_image,
            device_cpu_ms_per_image: devices_cpu_s
                .filter(|seconds| *seconds > 0.0 && n_samples > 0)
                .map(|seconds| seconds * 1e3 / f64::from(n_samples)),
            peak_pss_bytes: usage.iter().filter_map(|look| look.pss_bytes).max(),
        })
    }
}

/// Figures of all steps but the first and the last; zeros where there are no others.
#[derive(Debug, Default)]
struct Steady {
    usage: Usage,
    images_per_s: f64,
    p99_wait_s: f64,
    cpu_ms_per_image: Option<f64>,
}

impl Steady {
    fn of(taken: &[Taken]) -> Self {
        let [first, counted @ .., _] = taken else { return Self::default() };
        let Some(last) = counted.last() else { return Self::default() };
        let mut usage = Usage::default();
        counted.iter().for_each(|taken| usage.add(taken.step));
        let n_samples: u32 = counted.iter().map(|taken| taken.n_samples).sum();
        let n_samples = f64::from(n_samples.max(1));
        let seconds = (last.end - first.end).as_secs_f64().max(1e-9);
        let cpu_s = process::since(first.cpu_s, last.cpu_s);
        let mut waits: Vec<u64> =
            counted.iter().map(|taken| taken.step.stall_ns).collect();
        waits.sort_unstable();
        let p99 = (waits.len() * 99).div_ceil(100) - 1;
        Self {
            usage,
            images_per_s: n_samples / seconds,
            p99_wait_s: Duration::from_nanos(waits[p99]).as_secs_f64(),
            cpu_ms_per_image: cpu_s.map(|cpu_s| cpu_s * 1e3 / n_samples),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of a second each, with such waits, one after the other.
    fn steps(stalls_s: &[u64]) -> Vec<Taken> {
        let mut end = Instant::now();
        let mut cpu_s = 0.0;
        let step = |stall_s: &u64| {
            end += Duration::from_secs(1 + stall_s);
            cpu_s += 0.5;
            Taken {
                step: Step { stall_ns: stall_s * 1_000_000_000, busy_ns: 1_000_000_000 },
                n_samples: 10,
                end,
                cpu_s: Some(cpu_s),
            }
        };
        stalls_s.iter().map(step).collect()
    }

    #[test]
    fn the_first_and_the_last_step_do_not_count() {
        let steady = Steady::of(&steps(&[100, 0, 3, 1, 0, 100]));
        assert_eq!(steady.usage.utilisation(), Some(0.5));
        assert!((steady.images_per_s - 40.0 / 8.0).abs() < 1e-9, "{steady:?}");
        assert_eq!(steady.p99_wait_s, 3.0);
        assert_eq!(steady.cpu_ms_per_image, Some(50.0));
    }

    #[test]
    fn one_wait_in_a_hundred_is_not_the_99th() {
        let mut stalls = vec![0; 202];
        (stalls[7], stalls[8]) = (5, 4);
        assert_eq!(Steady::of(&steps(&stalls)).p99_wait_s, 0.0);
        stalls[9] = 3;
        assert_eq!(Steady::of(&steps(&stalls)).p99_wait_s, 3.0);
    }

    #[test]
    fn two_steps_say_nothing() {
        let steady = Steady::of(&steps(&[0, 0]));
        assert_eq!(steady.usage.utilisation(), None);
        assert_eq!(steady.cpu_ms_per_image, None);
    }
}
