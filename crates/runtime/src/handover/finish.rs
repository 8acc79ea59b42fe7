//! The feed: the last thread before the consumer. It applies the bad-sample policy, has devices
//! audited (`finish/audit.rs`) and batches converted, mixed and digested by the workers, and hands over.
//!
//! What it delivers does not depend on who made a batch: a row that a prong could not make is
//! made again here, and the policy is applied to what that attempt says.

pub(crate) mod audit;
pub(crate) mod damages;
mod fields;
pub(crate) mod mix;

use std::sync::Arc;
use std::time::Instant;

use bothends_core::digest::StreamDigest;
use bothends_core::ids::{BatchIdx, Label, Prong, SampleId};
use bothends_core::plan::Plan;
use bothends_core::recipe::{BatchKey, Mixture, partner};
use bothends_figures::{DamagedSample, Skipped};
use bothends_ops::Damage;
use bothends_slots::{Damaged, HostSlot, Ring, Slot};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};

use crate::collect::collector::Command;
use crate::collect::in_flight::{Lacks, Made};
use crate::collect::stall::{FeedClock, Finisher};
use crate::config::run::BadPolicy;
use crate::devices::presence::Presence;
use crate::error::RuntimeError;
use crate::handover::batch::fields::Further;
use crate::handover::batch::release::{Release, Returning};
use crate::handover::batch::{Batch, BatchHeader, Left, Mixed, Row};
use crate::handover::convert::convert;
use crate::handover::digest::{digest, fields_digested};
use crate::handover::mend::{Bench, Form, Maker};
use crate::make::chores::Chores;
use crate::read::remote::fetched_fields::Entered;
use crate::read::source::damage_words;
use crate::read::supplied::Unmade;
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::Meter;

use self::audit::{Said, Vouched};
use self::mix::{MixedBy, Mixing, mix};

/// What the feed thread owns for one epoch.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) maker: Maker,
    pub(crate) plan: Arc<Plan>,
    pub(crate) mixing: Mixing,
    /// Slots that devices' batches are converted in; `None` where the cut is the output.
    pub(crate) converted: Option<Ring>,
    pub(crate) on_bad: BadPolicy,
    /// What the digest of the stream goes on from, where digests are wanted.
    pub(crate) digest: Option<StreamDigest>,
    /// The devices, in their order.
    pub(crate) devices: Vec<Presence>,
    pub(crate) links: FeedLinks,
    pub(crate) waits: FeedClock,
    pub(crate) chores: Chores,
    pub(crate) meter: Meter,
    /// Values of remote samples' fields wait for it until it ends, also where its epoch is cancelled.
    pub(crate) _entered: Option<Entered>,
    pub(crate) stop: Stop,
}

/// The feed's ways in and out.
#[derive(Debug)]
pub(crate) struct FeedLinks {
    pub(crate) made: Receiver<Result<Made, RuntimeError>>,
    pub(crate) ready: Sender<Result<Batch, RuntimeError>>,
    /// Slots that are on their way back, with the collector's bell.
    pub(crate) returning: Returning,
    /// The way to the collector.
    pub(crate) commands: Sender<Command>,
}

impl Feed {
    /// The loop of the feed thread.
    pub(crate) fn run(self) {
        let mut bench = Bench::default();
        let mut stream = self.digest.clone();
        while !self.stop.is_set() {
            let made = match self.links.made.recv_timeout(PATIENCE) {
                Ok(made) => made,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.links.returning.bell().ring();
            let batch = made.and_then(|made| {
                self.waits.finishing(|| {
                    let batch = self.complete(made, &mut bench)?;
                    Ok(batch.and_then(|batch| self.digest(batch, &mut stream)))
                })
            });
            self.meter.note();
            let batch = match batch {
                // Nobody has cancelled it: a thread has panicked over it.
                Ok(None) if !self.stop.is_set() => {
                    Err(RuntimeError::Thread { thread: "worker" })
                }
                batch => batch,
            };
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
        bench: &mut Bench,
    ) -> Result<Option<Batch>, RuntimeError> {
        let of = made.origin();
        let Made { batch: index, prong, rows, slot, bad, damaged, lacking, .. } = made;
        let slot = slot.host().map_err(|_| RuntimeError::Thread { thread: "feed" })?;
        let form = self.form(prong);
        let said = Said { bad, damaged };
        let Some(vouched) = self.vouch(of, (form, slot), &rows, said)? else {
            return Ok(None);
        };
        let Vouched { prong, mut slot, said: Said { bad, damaged } } = vouched;
        for Damaged { row, what } in damaged {
            let what = what.unwrap_or_else(|| format!("as {} says", self.name(prong)));
            self.note_damaged(rows[row as usize], what);
        }
        let mut rows: Vec<Row> = rows.iter().map(|sample| self.row(*sample)).collect();
        let starts = self.maker.starts(form, &rows);
        for (nth, _) in rows.iter().enumerate().filter(|(_, row)| row.sample.is_none()) {
            let out = &mut slot[starts[nth]..starts[nth + 1]];
            self.maker.zero(None, (form, out), bench);
        }
        let mut gone = Vec::new();
        for bad in bad {
            if self.stop.is_set() {
                return Ok(None);
            }
            let row = bad as usize;
            let out = &mut slot[starts[row]..starts[row + 1]];
            if self.mend(prong, &mut rows[row], (form, out), bench)? {
                gone.push(row);
            }
        }
        close_gaps(&mut rows, &gone, (&mut slot, &starts));
        let (columns, gone) = self.fields((prong, index), &rows)?;
        let starts = self.maker.starts(form, &rows);
        close_gaps(&mut rows, &gone, (&mut slot, &starts));
        let starts = match self.maker.source.is_undecoded() {
            true => Some(self.maker.starts(form, &rows)),
            false => None,
        };
        let n_samples = rows.iter().filter(|row| row.sample.is_some()).count();
        self.maker.account().n_samples += n_samples as u64;
        let Some(slot) = self.convert((form, slot), lacking, &rows) else {
            return Ok(None);
        };
        let mixture = self.decide_mixture(index, &mut rows);
        let Some((slot, left)) = self.mix(mixture, &rows, slot) else { return Ok(None) };
        let finish = &self.maker.finish;
        let header = BatchHeader {
            index,
            prong,
            ready: Instant::now(),
            rows,
            sample_bytes: finish.sample_bytes(),
            view_bytes: Arc::clone(finish.view_bytes()),
            further: Further::of(columns, starts),
        };
        let release = Release::new(&self.links.returning);
        Ok(Some(Batch { header, slot, left, sums: None, release }))
    }

    /// What the rows of a prong's batches hold.
    fn form(&self, prong: Prong) -> Form {
        match prong {
            Prong::Back(_) if self.converted.is_some() => Form::Cut,
            Prong::Front | Prong::Back(_) => Form::Output,
        }
    }

    fn row(&self, sample: Option<SampleId>) -> Row {
        let label = sample.map_or(Label(-1), |id| self.maker.source.label(id));
        Row { sample, label, mixed: None }
    }

    fn name(&self, prong: Prong) -> String {
        match prong {
            Prong::Front => "the host".to_owned(),
            Prong::Back(device) => {
                format!("device {}", self.devices[usize::from(device.0)].name())
            }
        }
    }
}

// ---- bad samples -----------------------------------------------------------------------

impl Feed {
    /// Tries a bad row once more and applies the policy; true when the row is to be left out.
    fn mend(
        &self,
        prong: Prong,
        row: &mut Row,
        (form, out): (Form, &mut [u8]),
        bench: &mut Bench,
    ) -> Result<bool, RuntimeError> {
        let Some(sample) = row.sample else { return Ok(false) };
        let why = match self.maker.make(sample, (form, out), bench) {
            Ok(damage) => {
                self.note_damage(sample, damage);
                return Ok(false);
            }
            Err(Unmade::Bad(why)) => why,
            Err(Unmade::Machine(failure)) => return Err(failure.into_error()),
        };
        let file = self.maker.source.file_name(sample);
        match self.on_bad {
            BadPolicy::Raise => {
                let found_by = self.name(prong);
                return Err(RuntimeError::BadSample { sample, file, why, found_by });
            }
            BadPolicy::Skip => {}
            BadPolicy::Zero => self.maker.zero(Some(sample), (form, out), bench),
            BadPolicy::Replace => match self.maker.replace(sample, (form, out), bench) {
                Ok(Some((other, damage))) => {
                    self.note_damage(other, damage);
                    *row = self.row(Some(other));
                }
                Ok(None) | Err(Unmade::Bad(_)) => {
                    self.maker.zero(Some(sample), (form, out), bench);
                }
                Err(Unmade::Machine(failure)) => return Err(failure.into_error()),
            },
        }
        let policy = self.on_bad.name().to_owned();
        let skipped = Skipped { sample: sample.0, file, why, policy };
        self.maker.account().skipped.push(skipped);
        Ok(self.on_bad == BadPolicy::Skip)
    }
}

// ---- damaged samples -------------------------------------------------------------------

impl Feed {
    fn note_damage(&self, sample: SampleId, damage: Option<Damage>) {
        if let Some(damage) = damage {
            self.note_damaged(Some(sample), damage_words(damage));
        }
    }

    /// Counts a sample that is delivered although its record is damaged, and names its file.
    fn note_damaged(&self, sample: Option<SampleId>, what: String) {
        let Some(sample) = sample else { return };
        let source = &self.maker.source;
        let record = source.record_of(sample);
        if self.maker.account().damages.has(record) {
            return;
        }
        let (sample, file) = (record, source.file_name(sample));
        let name = DamagedSample { sample, file, what };
        self.maker.account().damages.note(record, || name);
    }
}

/// Moves the rows behind a skipped one forward: rows stay contiguous.
fn close_gaps(
    rows: &mut Vec<Row>,
    gone: &[usize],
    (slot, starts): (&mut HostSlot, &[usize]),
) {
    if gone.is_empty() {
        return;
    }
    let kept = (0..rows.len()).filter(|row| !gone.contains(row));
    let mut to = 0;
    for from in kept {
        let bytes = starts[from]..starts[from + 1];
        let len = bytes.len();
        slot.copy_within(bytes, to);
        to += len;
    }
    let mut row = 0..;
    rows.retain(|_| row.next().is_some_and(|row| !gone.contains(&row)));
}

// ---- conversion, hand-over --------------------------------------------------------

impl Feed {
    /// The batch in the output's form; `None` when the epoch is cancelled meanwhile.
    fn convert(
        &self,
        (form, slot): (Form, HostSlot),
        lacking: Option<Lacks>,
        rows: &[Row],
    ) -> Option<HostSlot> {
        let (Form::Cut, Some(ring)) = (form, &self.converted) else { return Some(slot) };
        let out = loop {
            if self.stop.is_set() {
                return None;
            }
            if let Some(Ok(out)) = ring.take(PATIENCE).map(Slot::host) {
                break out;
            }
            self.waits.finisher(Finisher::LacksSlot);
        };
        self.waits.finisher(Finisher::Converts);
        // The collector may use the slots that are left.
        drop(lacking);
        self.links.returning.bell().ring();
        let keys = rows.iter().map(|row| row.sample.map(|id| self.maker.key(id)));
        let keys: Vec<_> = keys.collect();
        let cut_bytes = self.maker.row_bytes(Form::Cut);
        let finish = &self.maker.finish;
        let out = convert(finish, &self.chores, (slot, cut_bytes), out, &keys);
        self.waits.finisher(Finisher::Busy);
        out.filter(|_| !self.stop.is_set())
    }

    /// How the rows that hold a sample are mixed, and how many these are, where the batch's numbers say so; they
    /// are told of each other.
    fn decide_mixture(
        &self,
        batch: BatchIdx,
        rows: &mut [Row],
    ) -> Option<(Mixture, usize)> {
        let Mixing { recipe, size, delivered, .. } = &self.mixing;
        if !delivered.mixes() {
            return None;
        }
        let (seed, epoch) = (self.maker.source.seed, self.maker.epoch);
        let key = BatchKey { seed, epoch, position: self.plan.position(batch) };
        let mixture = recipe.decide_mixture(key, *size)?;
        let n_valid = rows.iter().filter(|row| row.sample.is_some()).count();
        let labels: Vec<Label> = rows.iter().map(|row| row.label).collect();
        for (nth, row) in rows[..n_valid].iter_mut().enumerate() {
            let other = labels[partner(nth, n_valid, delivered.distance())];
            row.mixed = Some(Mixed { label: other, own_share: mixture.share() });
        }
        Some((mixture, n_valid))
    }

    /// Has them mixed, or says what is left for the GPU; `None` when the epoch is cancelled meanwhile.
    fn mix(
        &self,
        mixture: Option<(Mixture, usize)>,
        rows: &[Row],
        slot: HostSlot,
    ) -> Option<(HostSlot, Option<Box<Left>>)> {
        match (self.mixing.by, mixture) {
            (MixedBy::Gpu, mixture) => {
                let keys = rows.iter().map(|row| row.sample.map(|id| self.maker.key(id)));
                let left = Left { keys: keys.collect(), mixture };
                Some((slot, Some(Box::new(left))))
            }
            (MixedBy::Workers, None) => Some((slot, None)),
            (MixedBy::Workers, Some((mixture, n_valid))) => {
                let finish = &self.maker.finish;
                let slot = mix(finish, &self.chores, slot, n_valid, mixture);
                Some((slot.filter(|_| !self.stop.is_set())?, None))
            }
        }
    }

    /// The batch with its digests, where they are wanted; `None` when the epoch is cancelled
    /// meanwhile.
    fn digest(&self, batch: Batch, stream: &mut Option<StreamDigest>) -> Option<Batch> {
        let Some(so_far) = stream.take() else { return Some(batch) };
        let ranges = (0..batch.rows.len()).map(|nth| batch.range(nth)).collect();
        let beside = fields_digested(batch.fields(), batch.rows.len());
        let Batch { mut header, slot, .. } = batch;
        let samples = (slot, ranges);
        let (slot, sums) = digest(&self.chores, so_far, samples, (&header.rows, beside))?;
        *stream = Some(sums.stream.clone());
        header.ready = Instant::now();
        let batch = Batch { header, slot, sums: Some(Box::new(sums)), ..batch };
        Some(batch).filter(|_| !self.stop.is_set())
    }

    /// Waits until the consumer has room; the wait is the consumer's.
    fn hand_over(&self, mut batch: Result<Batch, RuntimeError>) {
        let started = Instant::now();
        while !self.stop.is_set() {
            match self.links.ready.send_timeout(batch, PATIENCE) {
                Ok(()) => break,
                Err(back) => batch = back.into_inner(),
            }
        }
        self.maker.account().backpressure_s += started.elapsed().as_secs_f64();
    }
}
