//! A whole run: measure, connect, epochs, checkpoint, result.
//!
//! What `bothends run` does, without a command line: a training loop like any other round a
//! [`Loader`], which owns epochs and states. The caller watches through an [`Observer`] and
//! receives a [`RunResult`].

mod epochs;

use std::time::{Duration, Instant};

use bothends_accel::Usage;
use bothends_core::digest::StreamDigest;
use bothends_core::ids::{EpochIdx, Prong};
use bothends_core::resume::Resume;
use bothends_figures::{
    AcceleratorResult, Alone, BackResult, Bytes, Counted, Cpu, EpochResult, FrontResult,
    Memory, RunResult, Stall, UsageSample,
};

use crate::config::drive::DriveConfig;
use crate::error::RuntimeError;
use crate::handover::batch::Batch;
use crate::handover::consumer::{Consumer, Timed};
use crate::handover::deal::Deal;
use crate::handover::deal::taken::Taken;
use crate::handover::epoch::Polled;
use crate::handover::loader::Loader;
use crate::handover::report::EpochReport;
use crate::read::blocks::BlockSource;
use crate::run::checkpoint::{self, Loaded, NextSave, Saves};
use crate::run::digests::{Digests, digest_of};
use crate::run::energy::{Amounts, Lap, Metering, Meters, Used, devices_say};
use crate::run::faults::injected;
use crate::run::observer::{Ended, Observer, Progress};
use crate::run::part::{Part, stopped_by};
use crate::run::prepare::{lone_note, prepare, tell_notes};
use crate::run::settings::settings;
use crate::run::shares::Shares;
use crate::run::usage::{UsageLog, byte_seconds};
use crate::runtime::host::EpochOptions;
use crate::threads::process;
use crate::threads::shutdown::PATIENCE;
use epochs::Epochs;

/// Runs everything. Blocks until the run is over, or [`DriveConfig::stop`] asked for its end
/// and the step at hand is done. What happened when is told to `observer` and
/// then forgotten, epoch by epoch: a run of any length needs no more memory than its figures.
///
/// # Errors
/// Whatever ends a run; what was delivered before is lost with it, except a checkpoint.
/// [`RuntimeError::Unsaved`] has the result of a run that is over and whose last state could not be
/// written.
pub fn drive(
    loader: &mut Loader,
    how: &DriveConfig,
    observer: &mut dyn Observer,
) -> Result<RunResult, RuntimeError> {
    // Strategies that are compared need no device, and may have no horizon.
    let of_strategy = lone_note(loader.runtime()).filter(|_| how.compare.is_empty());
    for note in loader.note().into_iter().chain(of_strategy) {
        observer.note(&note);
    }
    how.checkpoint.as_deref().map_or(Ok(()), checkpoint::probe)?;
    let meters = Meters::open(&how.energy)?;
    let alone = prepare(loader.runtime_mut(), how, observer)?;
    let note = loader.runtime().horizon_note();
    let note = note.filter(|_| how.compare.is_empty());
    if let Some(note) = note {
        observer.note(&note);
    }
    let metering = meters.begin(loader.runtime_mut(), &how.energy, observer)?;
    // What measuring has read is not of the run.
    let read_before = loader.runtime().storage_read_bytes();
    let digest_of = how.digest.then(|| digest_of(&loader.runtime().config));
    let names = loader.runtime().config.names;
    let mut run = Run {
        loader,
        how,
        alone,
        digest_of,
        digests: Digests::of(digest_of),
        memory: Memory::default(),
        bytes: Bytes::default(),
        epochs: Vec::new(),
        memory_byte_s: Some(0.0),
        read_before,
        last_step: None,
        saves: Saves::to(how.checkpoint.as_deref(), names),
    };
    let cpu_before = process::cpu_seconds();
    let epochs = run.plan_epochs(observer)?;
    let mut usage = Some(UsageLog::begin()?);
    for nth in 0.. {
        let Some(options) = epochs.nth(nth).filter(|_| !how.stop.is_asked()) else {
            break;
        };
        let options = &options;
        let follows = epochs.nth(nth + 1);
        // Strategies that are compared shall have nothing of each other.
        let next = follows.as_ref().filter(|_| how.compare.is_empty());
        let next = next.and_then(|next| options.next().filter(|o| o.are(next)));
        // Each of them has energy figures of its own.
        let lap = (!how.compare.is_empty())
            .then(|| metering.lap(run.loader.runtime_mut(), run.bytes));
        let (seen, report) = run.epoch(options, next, observer)?;
        let looks = match &usage {
            // Between epochs nobody waits for a look.
            Some(log) if follows.is_some() && seen.went == Went::ToTheEnd => log.cut(),
            _ => usage.take().map_or_else(Vec::new, UsageLog::end),
        };
        let lap = lap.as_ref().map(|lap| (&metering, lap));
        run.tell_end((options, &seen, &report), &looks, lap, observer);
        if seen.went == Went::Stopped {
            break;
        }
        if follows.is_some() {
            run.saves.tell(observer);
        }
    }
    let unsaved = run.saves.failed.take();
    let stopped = stopped_by(how, &run.epochs, epochs.len());
    let result = RunResult { stopped, ..run.finish(cpu_before, metering) };
    match unsaved.map(Box::new) {
        None => Ok(result),
        Some(source) => Err(RuntimeError::Unsaved { result: Box::new(result), source }),
    }
}

/// A run under way.
struct Run<'a> {
    loader: &'a mut Loader,
    how: &'a DriveConfig,
    alone: Alone,
    /// What the digests are over, where they are wanted.
    digest_of: Option<u32>,
    digests: Digests,
    memory: Memory,
    bytes: Bytes,
    epochs: Vec<EpochResult>,
    /// Memory over time; `None` where the kernel does not say.
    memory_byte_s: Option<f64>,
    /// Bytes that had been read before the run.
    read_before: u64,
    /// When the consumer last asked for more: the end of the last step, of whichever epoch.
    last_step: Option<Instant>,
    saves: Saves<'a>,
}

/// How an epoch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Went {
    ToTheEnd,
    Stopped,
}

/// What the consumer saw of one epoch.
struct Seen {
    began: Instant,
    /// From then to the end of the last step; 0 while it runs.
    seconds: f64,
    first_batch_s: f64,
    /// From the last step of the epoch before to the first batch.
    gap_s: Option<f64>,
    /// CPU seconds of the process when it began, and at its end.
    cpu_s: [Option<f64>; 2],
    went: Went,
    part: Part,
    /// What it has taken, as the deal counts.
    taken: Taken,
    usage: Usage,
    shares: Shares,
}

impl Run<'_> {
    /// Which epochs, each with its options.
    fn plan_epochs(
        &mut self,
        observer: &mut dyn Observer,
    ) -> Result<Epochs, RuntimeError> {
        let runtime = self.loader.runtime();
        let accelerator_ns = self.how.accelerator.busy_ns(runtime.config.batch_size);
        let digest_of = self.digest_of;
        let options = |epoch: u32| EpochOptions {
            accelerator_ns,
            digest: digest_of.map(|_| StreamDigest::new()),
            ..runtime.options(EpochIdx(epoch))
        };
        if !self.how.compare.is_empty() {
            let each = |strategy| EpochOptions { strategy, ..options(0) };
            let compared = self.how.compare.iter().copied().map(each).collect();
            return Ok(Epochs::only(compared, options(0)));
        }
        let Some(path) = &self.how.resume else {
            return Ok(Epochs::of(0..self.how.epochs, options(0)));
        };
        let Loaded { place, digests, note } = checkpoint::load(path, runtime)?;
        let epoch = place.epoch;
        let first = checkpoint::epoch_at(runtime, &place, options(epoch.0))?;
        if epoch.0 >= self.how.epochs {
            return Err(RuntimeError::CannotResume {
                why: format!(
                    "the state is from epoch {}, counted from 0, and this run has {}; give it \
                     more epochs",
                    epoch.0, self.how.epochs
                ),
            });
        }
        let (digests, why_none) = match place.is_in_mid_epoch() {
            true => digests.resumed(digest_of),
            false => (Digests::of(digest_of), None),
        };
        if let Some(why) = why_none {
            observer.note(&format!("epoch {}: it has no digests, {why}", epoch.0));
        }
        let digest = digests.of.map(|_| digests.stream.clone());
        let first = EpochOptions { digest, ..first };
        if let Some(note) = note {
            observer.note(note);
        }
        let epochs = Epochs::from(first, self.how.epochs, options(0));
        self.digests = digests;
        Ok(epochs)
    }

    /// Runs an epoch: what its consumer saw, and what it was.
    fn epoch(
        &mut self,
        options: &EpochOptions,
        next: Option<EpochOptions>,
        observer: &mut dyn Observer,
    ) -> Result<(Seen, EpochReport), RuntimeError> {
        process::reset_peak_rss();
        let cpu_before = process::cpu_seconds();
        let part = Part::of(self.loader.runtime(), options)?;
        let deal = self.loader.begin_epoch(options.clone(), next)?;
        let began = Instant::now();
        let mut seen = Seen {
            began,
            seconds: 0.0,
            first_batch_s: 0.0,
            gap_s: None,
            cpu_s: [cpu_before; 2],
            went: Went::Stopped,
            part,
            taken: deal.taken(),
            usage: Usage::default(),
            shares: Shares::begin(began),
        };
        observer.begin(self.progress(&seen, options, &deal));
        let went = self.consume_all(options, &deal, &mut seen, observer);
        seen.shares.own();
        seen.seconds = (seen.shares.since - seen.began).as_secs_f64();
        let path = self.how.checkpoint.as_ref();
        let state = path.map(|_| self.state(&seen));
        let mut report = self.loader.end_epoch().ok_or(RuntimeError::Closed)?;
        tell_moments(observer, &deal);
        tell_notes(self.loader.runtime(), observer);
        report.stall = seen.with_own_work(report.stall);
        seen.went = went?;
        if let Some(state) = state {
            self.saves.save(&state?);
        }
        seen.cpu_s[1] = process::cpu_seconds();
        Ok((seen, report))
    }

    /// Takes batches until there is none left, or the run shall end.
    fn consume_all(
        &mut self,
        options: &EpochOptions,
        deal: &Deal,
        seen: &mut Seen,
        observer: &mut dyn Observer,
    ) -> Result<Went, RuntimeError> {
        let mut consumer = Timed::new(&self.how.accelerator);
        let mut next_save = NextSave::new(self.how);
        while !self.how.stop.is_asked() {
            seen.shares.own();
            let polled = deal.poll(0, PATIENCE)?;
            seen.shares.waited();
            match polled {
                Polled::Batch(batch) => {
                    seen.taken = deal.taken();
                    self.consume(batch, seen, &mut consumer)?;
                }
                Polled::Pending => continue,
                Polled::End => return Ok(Went::ToTheEnd),
            }
            tell_moments(observer, deal);
            tell_notes(self.loader.runtime(), observer);
            observer.batch(self.progress(seen, options, deal));
            if self.how.stop_after.is_some_and(|most| seen.taken.n_batches() >= most) {
                break;
            }
            if next_save.is_due() {
                let state = self.state(seen)?;
                self.saves.save(&state);
                self.saves.tell(observer);
            }
        }
        Ok(Went::Stopped)
    }

    /// Where the consumer is, with the digests of what it got.
    fn state(&self, seen: &Seen) -> Result<Resume, RuntimeError> {
        let n_samples = self.digests.n_samples + seen.taken.n_samples();
        self.loader.place(&Digests { n_samples, ..self.digests.clone() })
    }

    /// Takes one batch, which has been counted, through its step.
    fn consume(
        &mut self,
        batch: Batch,
        seen: &mut Seen,
        consumer: &mut dyn Consumer,
    ) -> Result<(), RuntimeError> {
        if seen.taken.n_batches() == 1 {
            seen.first_batch_s = seen.began.elapsed().as_secs_f64();
            seen.gap_s = self.last_step.map(|last| last.elapsed().as_secs_f64());
        }
        if let Some(sums) = &batch.sums {
            self.digests.add(sums);
        }
        if batch.prong != Prong::Front {
            let sample_bytes = self.loader.runtime().sample_bytes() as u64;
            self.bytes.device_to_host += sample_bytes * u64::from(batch.n_valid());
        }
        self.bytes.host_to_accelerator += batch.bytes().len() as u64;
        seen.shares.own();
        seen.usage.add(consumer.take(batch)?);
        seen.shares.step();
        self.last_step = Some(seen.shares.since);
        Ok(())
    }
}

impl Run<'_> {
    fn progress(&self, seen: &Seen, options: &EpochOptions, deal: &Deal) -> Progress {
        let seconds = seen.began.elapsed().as_secs_f64().max(1e-9);
        let stall = seen.with_own_work(deal.stall());
        Progress {
            epoch: options.epoch.0,
            strategy: options.strategy.name(),
            n_batches: deal.n_batches,
            front: seen.taken.front.n_batches,
            back: seen.taken.n_back(),
            images_per_s: rate(seen.taken.n_samples(), seconds),
            stalled: (stall.waited() / seconds).min(1.0),
            counted: seen.counted(stall),
            bytes: self.bytes,
            fetches: self.loader.runtime().fetched(),
        }
    }

    /// Adds up an epoch that is over, and tells of it.
    fn tell_end(
        &mut self,
        (options, seen, report): (&EpochOptions, &Seen, &EpochReport),
        usage: &[UsageSample],
        lap: Option<(&Metering, &Lap)>,
        observer: &mut dyn Observer,
    ) {
        let looks = usage.iter().map(|look| look.pss_bytes);
        self.memory.peak_pss_bytes = looks.fold(self.memory.peak_pss_bytes, Option::max);
        self.memory_byte_s =
            self.memory_byte_s.zip(byte_seconds(usage)).map(|(sum, more)| sum + more);
        let mut result = self.epoch_result(options, seen, report);
        result.energy = lap.map(|(metering, lap)| {
            let counted = Amounts::of_epoch(&result, &self.bytes, usage);
            metering.since(lap, self.loader.runtime_mut(), self.how, &counted)
        });
        self.memory.peak_rss_bytes =
            self.memory.peak_rss_bytes.max(result.peak_rss_bytes);
        // The next epoch has digests of its own.
        self.digests = Digests::of(self.digest_of);
        let read = self.loader.runtime().storage_read_bytes();
        self.bytes.storage_read = read.saturating_sub(self.read_before);
        let energy = match observer.asks_for_energy() {
            true => devices_say(self.loader.runtime_mut()),
            false => Vec::new(),
        };
        let (counted, bytes, log) = (seen.counted(report.stall), self.bytes, &report.log);
        let (result, energy) = (&result, &energy[..]);
        let fetches = self.loader.runtime().fetched();
        observer.end(Ended { result, counted, log, usage, energy, bytes, fetches });
        self.epochs.push(result.clone());
    }
}

impl Seen {
    fn stopped_at(&self) -> Option<u32> {
        let stopped_at = self.part.stopped_at(self.taken.n_batches());
        stopped_at.filter(|_| self.went == Went::Stopped)
    }

    /// The loader's waits and the consumer's own work.
    fn with_own_work(&self, stall: Stall) -> Stall {
        Stall { consumer: stall.consumer + self.shares.own.as_secs_f64(), ..stall }
    }

    fn counted(&self, stall: Stall) -> Counted {
        let busy_s = Duration::from_nanos(self.usage.busy_ns).as_secs_f64();
        Counted { samples: self.taken.samples(), stall, busy_s }
    }
}

// ---- figures -------------------------------------------------------------------------

impl Run<'_> {
    fn epoch_result(
        &self,
        options: &EpochOptions,
        seen: &Seen,
        report: &EpochReport,
    ) -> EpochResult {
        let (seconds, taken) = (seen.seconds, &seen.taken);
        let images_per_s = rate(taken.n_samples(), seconds);
        let counts = &report.counts;
        let has_digests = options.digest.is_some();
        EpochResult {
            epoch: options.epoch.0,
            strategy: options.strategy.name().to_owned(),
            samples: taken.n_samples(),
            sources: taken.sources(),
            batches: taken.n_batches(),
            resumed_at: seen.part.resumed_at(),
            stopped_at: seen.stopped_at(),
            seconds,
            images_per_s,
            first_batch_s: seen.first_batch_s,
            gap_s: seen.gap_s,
            stream_digest: has_digests.then(|| self.digests.stream.to_string()),
            content_digest: has_digests.then(|| self.digests.content.to_string()),
            front: FrontResult {
                batches: taken.front.n_batches,
                rate_batches_per_s: f64::from(taken.front.n_batches) / seconds,
                wasted: counts.front.wasted,
                cpu_s: report.cpu.front,
            },
            back: self.back_results(seen, report),
            rescued: counts.rescued,
            skipped: report.skipped.clone(),
            damaged: report.damaged.clone(),
            backpressure_s: report.backpressure_s,
            audited: report.audits.batches,
            audit_s: report.audits.seconds,
            audit_samples: report.audits.samples,
            audit_differences: report.audits.differences,
            returned_claims: counts.returned,
            peak_waiting_back_batches: counts.peak_waiting,
            efficiency: self.efficiency(images_per_s),
            feed_cpu_s: report.cpu.both,
            cpu_ms_per_image: per_image_ms(
                process::since(seen.cpu_s[0], seen.cpu_s[1]),
                taken.n_samples(),
            ),
            peak_rss_bytes: process::peak_rss_bytes(),
            energy: None,
            accelerator: self.accelerator_result(seen, report.stall),
        }
    }

    fn accelerator_result(&self, seen: &Seen, stall_by: Stall) -> AcceleratorResult {
        let (usage, accelerator) = (&seen.usage, &self.how.accelerator);
        let has_rate = accelerator.samples_per_s().is_some();
        AcceleratorResult {
            name: accelerator.name().to_owned(),
            utilisation: usage.utilisation().filter(|_| has_rate),
            busy_s: Duration::from_nanos(usage.busy_ns).as_secs_f64(),
            stall_s: Duration::from_nanos(usage.stall_ns).as_secs_f64(),
            idle_s: seen.seconds - seen.shares.steps.as_secs_f64(),
            stall_by,
        }
    }

    fn back_results(&self, seen: &Seen, report: &EpochReport) -> Vec<BackResult> {
        let devices = self.loader.runtime().devices.iter().zip(&report.counts.back);
        let devices =
            devices.zip(&report.back).zip(&report.cpu.back).zip(seen.taken.back());
        devices
            .filter(|((((device, _), _), _), _)| !device.is_vacant())
            .map(|((((device, counts), back), host_cpu_s), taken)| BackResult {
                device: device.shown_name(),
                emulated: device.presence.is_emulated(),
                batches: taken.n_batches,
                rate_batches_per_s: f64::from(taken.n_batches) / seen.seconds,
                late: counts.late,
                lost: counts.lost,
                wasted: counts.wasted + back.extra,
                late_completions: back.behind.n(),
                max_lateness_seconds: back.behind.most_s(),
                lateness_seconds: back.behind.all_s(),
                host_cpu_s: *host_cpu_s,
                failure: back.lost.clone().or_else(|| back.last_failure.clone()),
            })
            .collect()
    }

    /// η: achieved rate ÷ min(accelerator's, `R_front` + `R_back`), each measured alone in this run.
    fn efficiency(&self, images_per_s: f64) -> Option<f64> {
        let front = self.alone.front_images_per_s?;
        let back = match self.loader.runtime().devices.is_empty() {
            true => 0.0,
            false => self.alone.back_images_per_s?,
        };
        let accelerator = self.how.accelerator.samples_per_s().unwrap_or(f64::INFINITY);
        Some(images_per_s / (front + back).min(accelerator))
    }

    fn finish(mut self, cpu_before: Option<f64>, metering: Metering) -> RunResult {
        let samples = self.epochs.iter().map(|e| e.samples).sum();
        let seconds = process::since(cpu_before, process::cpu_seconds());
        let runtime = self.loader.runtime_mut();
        let used = Used::now(runtime);
        let device_process_seconds = used.device_process_seconds(runtime);
        let read = runtime.storage_read_bytes();
        self.bytes.storage_read = read.saturating_sub(self.read_before);
        self.bytes.page_cache = runtime.source().goes_through_page_cache();
        let counted = Amounts {
            samples,
            bytes: &self.bytes,
            busy_s: self.epochs.iter().map(|epoch| epoch.accelerator.busy_s).sum(),
            memory_byte_s: self.memory_byte_s,
            epochs: &self.epochs,
        };
        let energy = metering.end(runtime, self.how, &used, &counted);
        let ms_per_image = per_image_ms(seconds, samples);
        RunResult {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: settings(&runtime.config, self.how),
            data: Some(runtime.source().data_set()),
            epochs: self.epochs,
            cpu: Cpu { seconds, ms_per_image, device_process_seconds },
            memory: self.memory,
            bytes: self.bytes,
            block_cache: runtime.source().blocks().map(BlockSource::used),
            record_cache: runtime.record_cache(),
            fetches: runtime.fetched(),
            faults: injected(runtime, &used.devices),
            energy,
            alone: self.alone,
            damaged: runtime.damages.figures(),
            // Who was asked to run it knows the rest.
            ..RunResult::default()
        }
    }
}

/// What has happened to batches since it was told last.
fn tell_moments(observer: &mut dyn Observer, deal: &Deal) {
    observer.moments(&deal.moments.try_iter().collect::<Vec<_>>());
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate; 2^53 samples are beyond any epoch"
)]
fn rate(samples: u64, seconds: f64) -> f64 {
    samples as f64 / seconds
}

#[expect(clippy::cast_precision_loss, reason = "a mean; 2^53 samples are beyond any run")]
fn per_image_ms(cpu_s: Option<f64>, samples: u64) -> Option<f64> {
    cpu_s.filter(|_| samples > 0).map(|s| 1e3 * s / samples as f64)
}
