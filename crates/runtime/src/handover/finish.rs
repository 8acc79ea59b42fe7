//! The feed: the last thread before the consumer. It applies the bad-sample policy, audits
//! devices, converts to the output format and hands over.
//!
//! What it delivers does not depend on who made a batch: a row that a prong could not make is
//! made again here, and the policy is applied to what that attempt says.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, Label, Prong, SampleId};
use bothends_core::plan::Plan;
use bothends_core::recipe::{BatchKey, Recipe, Size, partner};
use bothends_core::rng::Draws;
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_figures::Skipped;
use bothends_ops::{Finish, Scratch};
use bothends_slots::{HostSlot, Ring, Slot};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};

use crate::collect::bell::Bell;
use crate::collect::collector::Made;
use crate::collect::stall::StallGauge;
use crate::config::run::BadPolicy;
use crate::error::RuntimeError;
use crate::handover::batch::{Batch, Mixed, Release, Row};
use crate::read::redecode::Redecoder;
use crate::read::source::Source;
use crate::threads::shutdown::{PATIENCE, Stop};

/// Draw numbers of the feed: far from the recipe's ops, which count from 0.
const OP_REPLACE: u32 = 0xFFF1;
const OP_AUDIT: u32 = 0xFFF2;

/// Samples tried in place of a bad one before the slot is zeroed.
const MOST_REPLACEMENTS: u32 = 16;

/// What the feed counts for the summary.
#[derive(Debug, Default)]
pub(crate) struct FeedAccount {
    /// Seconds in which a finished batch waited for the consumer.
    pub(crate) backpressure_s: f64,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) redecoded: Vec<Skipped>,
    pub(crate) audited: u64,
}

/// What the feed thread owns for one epoch.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) source: Arc<Source>,
    pub(crate) epoch: EpochIdx,
    pub(crate) plan: Arc<Plan>,
    pub(crate) finish: Arc<Finish>,
    pub(crate) mixing: Mixing,
    /// Slots of converted batches; `None` where the cut is the output.
    pub(crate) converted: Option<Ring>,
    pub(crate) redecoder: Option<Redecoder>,
    pub(crate) on_bad: BadPolicy,
    pub(crate) audit_percent: u8,
    /// The devices' names, for errors.
    pub(crate) devices: Vec<String>,
    pub(crate) links: FeedLinks,
    pub(crate) account: Arc<Mutex<FeedAccount>>,
    pub(crate) gauge: Arc<StallGauge>,
    pub(crate) stop: Stop,
}

/// What the feed needs to mix the samples of a batch.
#[derive(Debug)]
pub(crate) struct Mixing {
    pub(crate) recipe: Recipe,
    /// Rows and columns of a sample's only view.
    pub(crate) size: Size,
}

/// What the feed keeps from batch to batch.
#[derive(Debug, Default)]
struct Memory {
    scratch: Scratch,
    /// Samples in their own bytes while others are mixed with them.
    originals: Vec<u8>,
}

/// The feed's ways in and out.
#[derive(Debug)]
pub(crate) struct FeedLinks {
    pub(crate) made: Receiver<Result<Made, RuntimeError>>,
    pub(crate) ready: Sender<Result<Batch, RuntimeError>>,
    pub(crate) bell: Bell,
}

impl Feed {
    /// The loop of the feed thread.
    pub(crate) fn run(self) {
        let mut memory = Memory::default();
        while !self.stop.is_set() {
            let made = match self.links.made.recv_timeout(PATIENCE) {
                Ok(made) => made,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.links.bell.ring();
            let batch = made.and_then(|made| self.complete(made, &mut memory));
            let failed = batch.is_err();
            if let Some(batch) = batch.transpose() {
                self.hand_over(batch);
            }
            if failed {
                self.stop.set();
            }
        }
    }

    /// Everything between a prong's slot and a batch; `None` when the epoch is cancelled.
    fn complete(
        &self,
        made: Made,
        memory: &mut Memory,
    ) -> Result<Option<Batch>, RuntimeError> {
        let scratch = &mut memory.scratch;
        let Made { batch: index, prong, rows, slot, bad } = made;
        let mut slot =
            slot.host().map_err(|_| RuntimeError::Thread { thread: "feed" })?;
        let n_valid = rows.iter().flatten().count();
        slot[n_valid * self.cut_bytes()..rows.len() * self.cut_bytes()].fill(0);
        if let Prong::Back(device) = prong
            && self.is_audited(index.0)
        {
            self.audit(&rows, &slot, scratch).map_err(|sample| {
                RuntimeError::Untrusted {
                    device: self.devices[usize::from(device.0)].clone(),
                    batch: index.0,
                    sample,
                }
            })?;
        }
        let mut rows: Vec<Row> = rows.iter().map(|sample| self.row(*sample)).collect();
        let mut gone = Vec::new();
        for bad in bad {
            let row = bad as usize;
            let bytes = row * self.cut_bytes()..(row + 1) * self.cut_bytes();
            if self.mend(prong, &mut rows[row], &mut slot[bytes], scratch)? {
                gone.push(row);
            }
        }
        self.close_gaps(&mut rows, &gone, &mut slot);
        let Some(mut slot) = self.convert(slot, &rows) else { return Ok(None) };
        if self.finish.mixes() {
            self.mix(index, &mut rows, &mut slot, &mut memory.originals);
        }
        Ok(Some(Batch {
            index,
            prong,
            ready: Instant::now(),
            rows,
            sample_bytes: self.finish.sample_bytes(),
            view_bytes: Arc::clone(self.finish.view_bytes()),
            slot,
            release: Release(self.links.bell.clone()),
        }))
    }

    fn row(&self, sample: Option<SampleId>) -> Row {
        let label = sample.map_or(Label(-1), |id| self.source.label(id));
        Row { sample, label, mixed: None }
    }

    fn name(&self, prong: Prong) -> String {
        match prong {
            Prong::Front => "the host".to_owned(),
            Prong::Back(device) => {
                format!("device {}", self.devices[usize::from(device.0)])
            }
        }
    }

    fn cut_bytes(&self) -> usize {
        self.source.pipeline.sample_bytes()
    }

    /// Makes one sample on this thread, with the same bytes as anybody else would.
    fn make(
        &self,
        sample: SampleId,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<(), String> {
        let key = self.source.key(self.epoch, sample);
        let piece = self.source.piece(key);
        let bytes = self.source.read(sample, piece)?;
        let record = self.source.record(sample, piece, &bytes)?;
        let is_file = record.row_groups.is_none() && record.encoding == Encoding::Image;
        let made = self.source.pipeline.run(scratch, key, record, out);
        let Err(why) = made.map_err(|e| e.to_string()) else { return Ok(()) };
        let Some(redecoder) = self.redecoder.as_ref().filter(|_| is_file) else {
            return Err(why);
        };
        let png = redecoder.redecode(&bytes).map_err(|also| format!("{why}; {also}"))?;
        let record = Record::new(&png, Encoding::Image);
        self.source.pipeline.run(scratch, key, record, out).map_err(|e| e.to_string())?;
        let file = self.source.file_name(sample);
        let policy = "redecoded".to_owned();
        let redecoded = Skipped { sample: sample.0, file, why, policy };
        self.account().redecoded.push(redecoded);
        Ok(())
    }

    fn account(&self) -> MutexGuard<'_, FeedAccount> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// ---- bad samples -----------------------------------------------------------------------

impl Feed {
    /// Tries a bad row once more and applies the policy; true when the row is to be left out.
    fn mend(
        &self,
        prong: Prong,
        row: &mut Row,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<bool, RuntimeError> {
        let Some(sample) = row.sample else { return Ok(false) };
        let Err(why) = self.make(sample, scratch, out) else { return Ok(false) };
        let file = self.source.file_name(sample);
        match self.on_bad {
            BadPolicy::Raise => {
                let found_by = self.name(prong);
                return Err(RuntimeError::BadSample { sample, file, why, found_by });
            }
            BadPolicy::Skip => {}
            BadPolicy::Zero => out.fill(0),
            BadPolicy::Replace => match self.replace(sample, scratch, out) {
                Some(other) => *row = self.row(Some(other)),
                None => out.fill(0),
            },
        }
        let policy = self.on_bad.name().to_owned();
        let skipped = Skipped { sample: sample.0, file, why, policy };
        self.account().skipped.push(skipped);
        Ok(self.on_bad == BadPolicy::Skip)
    }

    /// Fills a bad sample's row with another one, drawn with the bad sample's own numbers, so
    /// that every prong, rank and rerun takes the same.
    fn replace(
        &self,
        bad: SampleId,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Option<SampleId> {
        let key = SampleKey { seed: self.source.seed, epoch: self.epoch, sample: bad };
        let mut draws = Draws::new(key, OP_REPLACE);
        (0..MOST_REPLACEMENTS)
            .map(|_| {
                let draw =
                    u64::from(draws.next_u32()) << 32 | u64::from(draws.next_u32());
                let scaled = (u128::from(draw) * u128::from(self.source.n_ids())) >> 64;
                SampleId(u64::try_from(scaled).unwrap_or(0))
            })
            .find(|other| self.make(*other, scratch, out).is_ok())
    }

    /// Moves the rows behind a skipped one forward: rows stay contiguous.
    fn close_gaps(&self, rows: &mut Vec<Row>, gone: &[usize], slot: &mut HostSlot) {
        if gone.is_empty() {
            return;
        }
        let len = self.cut_bytes();
        let kept = (0..rows.len()).filter(|row| !gone.contains(row));
        for (to, from) in kept.enumerate() {
            slot.copy_within(from * len..(from + 1) * len, to * len);
        }
        let mut row = 0..;
        rows.retain(|_| row.next().is_some_and(|row| !gone.contains(&row)));
    }
}

// ---- audit, conversion, hand-over --------------------------------------------------------

impl Feed {
    /// Whether the host recomputes this batch: a keyed choice that no device can foresee
    /// without the seed, and the same in every rerun.
    fn is_audited(&self, batch: u32) -> bool {
        let sample = SampleId(u64::from(batch));
        let key = SampleKey { seed: self.source.seed, epoch: self.epoch, sample };
        self.audit_percent > 0
            && Draws::new(key, OP_AUDIT).below(100) < u32::from(self.audit_percent)
    }

    /// Recomputes a device's batch; the first sample that differs.
    fn audit(
        &self,
        rows: &[Option<SampleId>],
        slot: &HostSlot,
        scratch: &mut Scratch,
    ) -> Result<(), SampleId> {
        let mut own = vec![0; self.cut_bytes()];
        for (sample, theirs) in rows.iter().zip(slot.chunks_exact(self.cut_bytes())) {
            let Some(sample) = *sample else { continue };
            if self.make(sample, scratch, &mut own).is_ok() && own != theirs {
                return Err(sample);
            }
        }
        self.account().audited += 1;
        Ok(())
    }

    /// Normalises, casts and lays out; `None` when the epoch is cancelled while it waits for
    /// a slot.
    fn convert(&self, slot: HostSlot, rows: &[Row]) -> Option<HostSlot> {
        let Some(ring) = &self.converted else { return Some(slot) };
        let mut out = loop {
            if self.stop.is_set() {
                return None;
            }
            if let Some(Ok(out)) = ring.take(PATIENCE).map(Slot::host) {
                break out;
            }
            self.gauge.feed_lacks_slot.store(true, Ordering::Relaxed);
        };
        self.gauge.feed_lacks_slot.store(false, Ordering::Relaxed);
        let from = slot.chunks_exact(self.cut_bytes());
        let to = out.chunks_exact_mut(self.finish.sample_bytes());
        for ((src, dst), row) in from.zip(to).zip(rows) {
            let key = row.sample.map(|sample| self.source.key(self.epoch, sample));
            self.finish.run(key, src, dst);
        }
        Some(out)
    }

    /// Mixes the rows that hold a sample, where the batch's numbers say so.
    fn mix(
        &self,
        batch: BatchIdx,
        rows: &mut [Row],
        slot: &mut HostSlot,
        originals: &mut Vec<u8>,
    ) {
        let (seed, epoch) = (self.source.seed, self.epoch);
        let key = BatchKey { seed, epoch, position: self.plan.position(batch) };
        let Mixing { recipe, size } = &self.mixing;
        let Some(mixture) = recipe.decide_mixture(key, *size) else { return };
        let n_valid = rows.iter().filter(|row| row.sample.is_some()).count();
        let bytes = &mut slot[..n_valid * self.finish.sample_bytes()];
        self.finish.mix(mixture, bytes, originals);
        let labels: Vec<Label> = rows.iter().map(|row| row.label).collect();
        for (nth, row) in rows[..n_valid].iter_mut().enumerate() {
            let other = labels[partner(nth, n_valid, self.finish.distance())];
            row.mixed = Some(Mixed { label: other, own_share: mixture.share() });
        }
    }

    /// Waits until the consumer has room; the wait is the consumer's.
    fn hand_over(&self, batch: Result<Batch, RuntimeError>) {
        let started = Instant::now();
        let mut batch = batch;
        while !self.stop.is_set() {
            match self.links.ready.send_timeout(batch, PATIENCE) {
                Ok(()) => break,
                Err(back) => batch = back.into_inner(),
            }
        }
        self.note_backpressure(started.elapsed());
    }

    fn note_backpressure(&self, waited: Duration) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.backpressure_s += waited.as_secs_f64();
    }
}
