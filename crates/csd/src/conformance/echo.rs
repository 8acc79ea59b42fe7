//! A device for tests: its samples are a pure function of their ids, and it can be told to stall, fail,
//! answer twice or refuse.
//!
//! It decodes nothing and spawns nothing. `conformance.rs` uses it to test transports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bothends_core::ids::SampleId;
use bothends_core::recipe::Recipe;
use bothends_slots::{HostSlot, Ring, RingConfig};
use twox_hash::XxHash3_64;

use crate::words::job::{
    Busy, Capabilities, DeviceStats, Inquiry, PROTOCOL_VERSION, RecordDigest, Session,
};
use crate::{CsdError, Declined, Finished, Job, JobId, Product, Refused, Serve};

/// A sample that cannot be made.
pub const BAD_SAMPLE: SampleId = SampleId(1 << 63);
/// A sample that is made of a damaged record.
pub const DAMAGED_SAMPLE: SampleId = SampleId(1 << 61);
/// A sample whose whole job fails.
pub const FATAL_SAMPLE: SampleId = SampleId(u64::MAX);
/// A sample whose job is answered twice.
pub const TWICE_SAMPLE: SampleId = SampleId(1 << 62);
/// A recipe that the device refuses.
pub const REFUSED_RECIPE: &str = "a recipe with an op that does not exist";
/// A recipe for which the device has no room now.
pub const BUSY_RECIPE: &str = "a recipe for another day";
/// How long a busy device asks to be left alone.
pub const BUSY_RETRY: Duration = Duration::from_millis(1500);
/// Jobs that the device takes at a time.
pub const SLOTS: u32 = 4;
/// The largest batch that the device makes, in bytes.
const MOST_BYTES: u64 = 1 << 28;

/// A device that works inside `poll`, youngest job first.
#[derive(Debug)]
pub struct EchoServe {
    control: Control,
    protocol_version: u32,
    session: Option<Session>,
    queue: Vec<(Job, HostSlot)>,
    again: VecDeque<(Job, HostSlot)>,
    stats: DeviceStats,
}

/// The strings of an [`EchoServe`], which pull from another thread.
#[derive(Debug, Clone, Default)]
pub struct Control {
    holds: Arc<AtomicBool>,
    n_closed: Arc<AtomicU32>,
}

impl Control {
    /// Nothing finishes from now on.
    pub fn hold(&self) {
        self.holds.store(true, Ordering::SeqCst);
    }

    /// Things finish again.
    pub fn release(&self) {
        self.holds.store(false, Ordering::SeqCst);
    }

    /// Whether the device has been told that its host is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.n_closed.load(Ordering::SeqCst) > 0
    }
}

impl Default for EchoServe {
    fn default() -> Self {
        Self::of_version(PROTOCOL_VERSION)
    }
}

impl EchoServe {
    /// A device that speaks this version.
    #[must_use]
    pub fn of_version(protocol_version: u32) -> Self {
        Self {
            control: Control::default(),
            protocol_version,
            session: None,
            queue: Vec::new(),
            again: VecDeque::new(),
            stats: DeviceStats::default(),
        }
    }

    /// Its strings.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    fn work(&self, job: &Job, slot: &mut [u8]) -> Result<Product, String> {
        let session = self.session.as_ref().ok_or("no session")?;
        if job.samples.contains(&FATAL_SAMPLE) {
            return Err("the sample was fatal".to_owned());
        }
        let bytes = echo(session, job);
        let rows_of = |sample| {
            let rows = (0..).zip(&job.samples).filter(move |(_, id)| **id == sample);
            rows.map(|(row, _)| row).collect()
        };
        let (bad, damaged) = (rows_of(BAD_SAMPLE), rows_of(DAMAGED_SAMPLE));
        let place = slot.get_mut(..bytes.len()).ok_or("the slot is too small")?;
        place.copy_from_slice(&bytes);
        Ok(Product {
            len: bytes.len(),
            checksum: XxHash3_64::oneshot(&bytes),
            bad,
            damaged,
        })
    }
}

impl Serve for EchoServe {
    fn hello(&mut self) -> Capabilities {
        Capabilities {
            protocol_version: self.protocol_version,
            name: "echo".to_owned(),
            emulated: true,
            ops: Recipe::known_before_cut().into_iter().map(str::to_owned).collect(),
            slots: SLOTS,
            max_batch_bytes: MOST_BYTES,
            features: Vec::new(),
        }
    }

    fn open(&mut self, session: Session) -> Result<(), Declined> {
        if session.recipe == REFUSED_RECIPE {
            return Err("that op does not exist".to_owned().into());
        }
        if session.recipe == BUSY_RECIPE {
            let reason = "its sessions are taken".to_owned();
            return Err(Declined::Busy(Busy { retry: BUSY_RETRY, reason }));
        }
        if u64::from(session.max_batch) * u64::from(session.sample_bytes) > MOST_BYTES {
            return Err("no batch is that large".to_owned().into());
        }
        self.session = Some(session);
        Ok(())
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        if self.queue.len() >= SLOTS as usize {
            return Err(Box::new(Refused { job, slot, source: CsdError::Full }));
        }
        self.queue.push((job, slot));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        let holds = self.control.holds.load(Ordering::SeqCst);
        let job = if holds {
            None
        } else {
            self.again.pop_front().or_else(|| self.queue.pop())
        };
        let Some((mut job, mut slot)) = job else {
            std::thread::sleep(timeout);
            return None;
        };
        let result = self.work(&job, &mut slot);
        self.stats.jobs += 1;
        self.stats.samples += job.samples.len() as u64;
        let id = job.id;
        if let Some(twice) = job.samples.iter().position(|id| *id == TWICE_SAMPLE) {
            job.samples[twice] = SampleId(0);
            self.again.push_back((job, spare_slot(slot.len())));
        }
        Some(Finished { job: id, slot, result, device_ns: 7, lateness_ns: 3 })
    }

    /// As on a device whose job has started: revoking changes nothing.
    fn revoke(&mut self, _job: JobId) {}

    fn forget(&mut self, job: JobId) {
        self.queue.retain(|(queued, _)| queued.id != job);
        self.again.retain(|(queued, _)| queued.id != job);
    }

    fn attest(&mut self, inquiry: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        let record = |id: &SampleId| {
            (*id != BAD_SAMPLE)
                .then(|| RecordDigest::of(&id.0.to_le_bytes(), inquiry.seed))
        };
        Ok(inquiry.samples.iter().map(record).collect())
    }

    fn stats(&mut self) -> DeviceStats {
        self.stats.clone()
    }

    fn close(&mut self) {
        self.queue.clear();
        self.control.n_closed.fetch_add(1, Ordering::SeqCst);
    }
}

/// A slot for an answer that nobody gave one for.
fn spare_slot(slot_bytes: usize) -> HostSlot {
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).expect("memory");
    ring.take(Duration::ZERO).and_then(|slot| slot.host().ok()).expect("its only slot")
}

/// The samples that [`EchoServe`] makes of a job.
#[must_use]
pub fn echo(session: &Session, job: &Job) -> Vec<u8> {
    let sample_bytes = session.sample_bytes as usize;
    let mut bytes = Vec::with_capacity(job.samples.len() * sample_bytes);
    for id in &job.samples {
        let [step, ..] = XxHash3_64::oneshot(&id.0.to_le_bytes()).to_le_bytes();
        let is_bad = *id == BAD_SAMPLE;
        let sample = (0_u8..=255).cycle().take(sample_bytes);
        bytes.extend(sample.map(|at| if is_bad { 0 } else { at.wrapping_add(step) }));
    }
    bytes
}
