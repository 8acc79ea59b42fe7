//! What each prong does alone, on this machine, in this run: the yardstick of η.
//!
//! A measurement is an epoch like any other, over the same data with the same threads and
//! transports, under `cpu` or `csd`, cut off after a stated time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_accel::AccelConfig;
use bothends_core::ids::{EpochIdx, Prong};
use bothends_core::select::StrategyConfig;
use bothends_csd::DeviceStats;

use crate::error::RuntimeError;
use crate::handover::batch::Batch;
use crate::handover::report::EpochReport;
use crate::runtime::host::{EpochOptions, Runtime};
use crate::threads::process;

/// Batches a measurement sees at least, however long they take.
const LEAST_BATCHES: u32 = 4;

/// Batches of a measurement's epoch: more than any measurement lasts.
const ENOUGH_BATCHES: u64 = 20_000;

/// How many times longer than asked a measurement may last until it has its least batches.
const MOST_PATIENCE: u32 = 10;

/// The longest wait for devices that still work when a measurement is over.
const FINISH_PATIENCE: Duration = Duration::from_secs(3);

/// How long the host is measured when a device's rate is given relative to it.
const FOR_DEVICES: Duration = Duration::from_secs(2);

/// When it is looked for the first time whether the host learns anything about the images.
const FIRST_LOOK: Duration = Duration::from_millis(300);

/// What a prong did alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Its rate.
    pub images_per_s: f64,
    /// Processor milliseconds of this process for an image; `None` where the kernel does not
    /// say.
    pub cpu_ms_per_image: Option<f64>,
    /// Of devices, their rate while they had a job, as they say themselves. An emulated device
    /// tells its model's, which may be more than its emulation on this machine can show.
    pub busy_images_per_s: Option<f64>,
}

/// What an accelerator takes with every batch ready beforehand, in samples per second: measured
/// for about `lasting`. `None` for one that takes everything at once.
#[must_use]
pub fn measure_accelerator(
    config: &AccelConfig,
    batch_size: u32,
    lasting: Duration,
) -> Option<f64> {
    let mut accelerator = config.build();
    accelerator.samples_per_s()?;
    let began = Instant::now();
    let mut n_samples = 0.0;
    // A batch that was ready at the beginning is ready at every step: nothing is waited for.
    while n_samples == 0.0 || began.elapsed() < lasting {
        accelerator.step(batch_size, began);
        n_samples += f64::from(batch_size);
    }
    Some(n_samples / began.elapsed().as_secs_f64())
}

impl Runtime {
    /// The host's own rate where a device's is given relative to it: as it was measured, else
    /// measured for two seconds, after a first visit.
    ///
    /// # Errors
    /// What ends an epoch.
    pub(crate) fn host_rate_for_devices(
        &mut self,
        measured: Option<f64>,
    ) -> Result<Option<f64>, RuntimeError> {
        let is_relative = self.config.devices.iter().any(|d| d.rate_of_host().is_some());
        if measured.is_some() || !is_relative {
            return Ok(measured);
        }
        self.visit(FOR_DEVICES)?;
        Ok(self.measure_front(FOR_DEVICES)?.map(|alone| alone.images_per_s))
    }

    /// Lets the host decode the images that a measurement of about `lasting` will, unless the side index knows them
    /// already: an epoch over images that it does not know is slower than all others, up to half as fast.
    ///
    /// # Errors
    /// What ends an epoch.
    pub(crate) fn visit(&mut self, lasting: Duration) -> Result<(), RuntimeError> {
        let source = Arc::clone(&self.source);
        let Some(index) = source.side_index() else { return Ok(()) };
        let options = EpochOptions {
            strategy: StrategyConfig::Cpu,
            ..self.options_of_measurement()
        };
        // They are the same ones, from the beginning, and the measurement will come further.
        let all = source.n_samples().min(source.n_in_epoch());
        let mut n_left = all / u64::from(self.config.rank.world.max(1));
        self.measured_epoch(&options, &mut |began, batch| {
            n_left = n_left.saturating_sub(batch.n_valid().into());
            let elapsed = began.elapsed();
            let is_known = elapsed > FIRST_LOOK && !index.has_news();
            Ok(match n_left == 0 || is_known || elapsed > lasting.saturating_mul(2) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        Ok(())
    }

    /// Measures the host alone, for about `lasting`; `None` when too little came.
    ///
    /// # Errors
    /// What ends an epoch.
    pub fn measure_front(
        &mut self,
        lasting: Duration,
    ) -> Result<Option<Measured>, RuntimeError> {
        let is_front = |prong| prong == Prong::Front;
        let measured = self.measure(StrategyConfig::Cpu, lasting, is_front)?;
        Ok(measured.map(|(measured, _)| measured))
    }

    /// Measures all connected devices together without the host, for about `lasting`; `None`
    /// when too little came. CPU time is that of the threads that receive their batches:
    /// what the host makes again because a device is late is not in it.
    ///
    /// # Errors
    /// What ends an epoch.
    pub fn measure_back(
        &mut self,
        lasting: Duration,
    ) -> Result<Option<Measured>, RuntimeError> {
        let is_back = |prong| prong != Prong::Front;
        let before = self.device_stats();
        let measured = self.measure(StrategyConfig::Csd, lasting, is_back)?;
        let busy_images_per_s = busy_rate(&before, &self.device_stats());
        let batch_size = f64::from(self.config.batch_size);
        Ok(measured.map(|(measured, report)| {
            let received = report.counts.back.iter().map(|back| back.delivered);
            let n_samples = f64::from(received.sum::<u32>()) * batch_size;
            let cpu_s: Option<f64> = report.cpu.back.iter().copied().sum();
            let cpu_s = cpu_s.filter(|_| n_samples > 0.0);
            Measured {
                cpu_ms_per_image: cpu_s.map(|s| s * 1e3 / n_samples),
                busy_images_per_s,
                ..measured
            }
        }))
    }

    /// The batches that count, from the first delivered batch to the last; `None` when too few
    /// came. A measurement lasts longer than asked until a few
    /// batches have come.
    fn measure(
        &mut self,
        strategy: StrategyConfig,
        lasting: Duration,
        counts: fn(Prong) -> bool,
    ) -> Result<Option<(Measured, EpochReport)>, RuntimeError> {
        let options = EpochOptions { strategy, ..self.options_of_measurement() };
        let mut first = None;
        let (mut cpu_before, mut cpu_after) = (None, None);
        let mut last = Instant::now();
        let (mut n_batches, mut n_samples) = (0, 0);
        let report = self.measured_epoch(&options, &mut |began, batch| {
            last = Instant::now();
            cpu_after = process::cpu_seconds();
            if first.is_none() {
                first = Some(last);
                cpu_before = cpu_after;
            } else if counts(batch.prong) {
                n_samples += batch.n_valid();
            }
            n_batches += 1;
            let enough = n_batches > LEAST_BATCHES
                || last - began > lasting.saturating_mul(MOST_PATIENCE);
            Ok(match enough && last - began > lasting {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        let seconds = first.map_or(0.0, |first| (last - first).as_secs_f64());
        let cpu_s = process::since(cpu_before, cpu_after);
        let n_samples = f64::from(n_samples);
        let measured = (seconds > 0.0 && n_samples > 0.0).then(|| Measured {
            images_per_s: n_samples / seconds,
            cpu_ms_per_image: cpu_s.map(|cpu_s| cpu_s * 1e3 / n_samples),
            busy_images_per_s: None,
        });
        Ok(measured.map(|measured| (measured, report)))
    }

    /// Runs an epoch into `take`, which is told when it began, until that has enough, and leaves
    /// the devices as it found them.
    pub(crate) fn measured_epoch(
        &mut self,
        options: &EpochOptions,
        take: &mut dyn FnMut(Instant, Batch) -> Result<ControlFlow<()>, RuntimeError>,
    ) -> Result<EpochReport, RuntimeError> {
        let mut epoch = self.start_epoch(options)?;
        let began = Instant::now();
        let taken = loop {
            let batch = epoch.next_batch().transpose();
            match batch.map(|batch| take(began, batch?)) {
                Some(Ok(ControlFlow::Continue(()))) => {}
                Some(Ok(ControlFlow::Break(()))) | None => break Ok(()),
                Some(Err(error)) => break Err(error),
            }
        };
        let report = self.finish_epoch(epoch);
        self.let_devices_finish();
        taken.map(|()| report)
    }

    /// An epoch that no measurement comes to the end of.
    pub(crate) fn options_of_measurement(&self) -> EpochOptions {
        let batch = u64::from(self.config.batch_size);
        let world = u64::from(self.config.rank.world);
        let enough = ENOUGH_BATCHES.saturating_mul(batch).saturating_mul(world);
        let own = self.config.repeat;
        if self.config.mix.is_none() {
            let repeat = repeats(enough, self.source.n_samples(), 1);
            return EpochOptions { repeat, ..self.options(EpochIdx::MEASURED) };
        }
        // An epoch of a mix is not as long as its data sets together, and has no more samples than ids tell
        // apart: what does not fit is measured for as long as an epoch of the run lasts.
        let repeat = repeats(enough, self.source.n_in_epoch(), own);
        let choices =
            [(repeat, EpochIdx::MEASURED), (own, EpochIdx::MEASURED), (own, EpochIdx(0))];
        let options =
            choices.map(|(repeat, epoch)| EpochOptions { repeat, ..self.options(epoch) });
        let [.., last] = &options;
        let fits = options.iter().find(|options| self.plan(options).is_ok());
        fits.unwrap_or(last).clone()
    }

    /// Waits until no device works for the measurement any more: what is measured next would
    /// pay for it. A device that does not come to an end is left alone after a while.
    fn let_devices_finish(&mut self) {
        let deadline = Instant::now() + FINISH_PATIENCE;
        let is_busy = |stats: &DeviceStats| stats.queued > 0;
        while Instant::now() < deadline
            && self.device_stats().iter().flatten().any(is_busy)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// How often the data is repeated for an epoch of `enough` samples, if it has `n_in_epoch` when repeated `own` times.
fn repeats(enough: u64, n_in_epoch: u64, own: u32) -> u32 {
    let times = enough.div_ceil(n_in_epoch.max(1)).max(1);
    u32::try_from(times.saturating_mul(own.into())).unwrap_or(u32::MAX)
}

/// Samples per second of all devices together while each had a job; `None` where one does not
/// say, or had none.
fn busy_rate(
    before: &[Option<DeviceStats>],
    after: &[Option<DeviceStats>],
) -> Option<f64> {
    let each = after.iter().enumerate().map(|(i, after)| {
        let after = after.as_ref()?;
        let before = before.get(i).and_then(Option::as_ref);
        let busy_s = after.busy_seconds - before.map_or(0.0, |stats| stats.busy_seconds);
        let n_samples =
            after.samples.saturating_sub(before.map_or(0, |stats| stats.samples));
        (busy_s > 0.0 && n_samples > 0).then(|| n_samples as f64 / busy_s)
    });
    let rates: Option<Vec<f64>> = each.collect();
    rates.filter(|rates| !rates.is_empty()).map(|rates| rates.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_repeats_an_epoch_and_not_less_than_the_run_does() {
        assert_eq!(repeats(1000, 300, 1), 4);
        assert_eq!(repeats(1000, 300, 5), 20);
        assert_eq!(repeats(1000, 2000, 7), 7);
        assert_eq!(repeats(1000, 0, 1), 1000);
        assert_eq!(repeats(u64::MAX, 1, 2), u32::MAX);
    }

    #[test]
    fn a_device_counts_while_it_is_busy() {
        let stats = |samples, busy_seconds| {
            Some(DeviceStats { samples, busy_seconds, ..DeviceStats::default() })
        };
        let before = [stats(100, 1.0), None];
        assert_eq!(busy_rate(&before, &[stats(300, 1.5), stats(50, 0.5)]), Some(500.0));
        assert_eq!(busy_rate(&before, &[stats(100, 1.0)]), None, "it had no job");
        assert_eq!(busy_rate(&[], &[None]), None);
        assert_eq!(busy_rate(&[], &[]), None);
    }
}
