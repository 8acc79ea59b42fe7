//! A batch that is being made, a part of it on its lane, and what both have come to.

use std::ops::Range;
use std::time::{Duration, Instant};

use bothends_nvme::preprocess::{Made, Outcome, Results};
use bothends_slots::{HostSlot, Job, JobId};

use super::super::part::Part;
use super::super::placement::Way;
use super::super::sum::Sum;
use crate::words::job::Ending;
use crate::{Finished, Product};

/// A batch that is being made.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) job: Job,
    pub(super) slot: HostSlot,
    /// The first row that is on no lane yet.
    pub(super) next_row: usize,
    pub(super) n_on_lanes: usize,
    /// Rows that are left to the host, for the device cannot have their records.
    pub(super) n_beyond: usize,
    pub(super) bad: Vec<u32>,
    pub(super) damaged: Vec<u32>,
    pub(super) failed: Option<String>,
    pub(super) began: Instant,
}

/// A part of a batch on its lane.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) job: JobId,
    pub(super) part: Part,
    pub(super) step: Step,
    /// Commands of this step that are not answered.
    pub(super) n_open: usize,
    /// How long the step may take, and until when on the floor's clock.
    pub(super) given: Duration,
    pub(super) until: Duration,
    pub(super) failed: Option<String>,
    pub(super) way: Way,
    /// When the program had ended, on the floor's clock.
    pub(super) executed: Duration,
    pub(super) answers: Vec<u8>,
    pub(super) samples: Sum,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Filling,
    Executing,
    Placing,
    Reading,
}

impl Step {
    pub(super) fn doing(self) -> &'static str {
        match self {
            Self::Filling => "copy records to its memory",
            Self::Executing => "execute the program",
            Self::Placing => "copy results to its blocks",
            Self::Reading => "read its results",
        }
    }
}

impl Part {
    /// Where its samples are in the slot of its batch.
    pub(super) fn span(&self) -> Range<usize> {
        let begin = self.first_row * self.head.sample_bytes as usize;
        begin..begin + self.sample_bytes()
    }
}

impl Run {
    /// What the device answers about the part, once its samples are in the slot.
    pub(super) fn answered(self, work: &mut Work) -> Result<(), String> {
        let head = &self.part.head;
        let malformed = || "the program's answer is malformed".to_owned();
        let results = Results::read(&self.answers).ok_or_else(malformed)?;
        let samples = work.slot.get(self.part.span()).ok_or_else(malformed)?;
        if results.n_items != head.n_items {
            return Err(malformed());
        }
        if self.samples.of(samples) != results.checksum {
            return Err("its bytes do not match their checksum".to_owned());
        }
        for n in 0..head.n_items {
            let part = head.made(n).and_then(|part| part.of(&self.answers));
            let made = part.and_then(Made::read).ok_or_else(malformed)?;
            let row = self.part.first_row + n as usize;
            let row = u32::try_from(row).map_err(|_| malformed())?;
            match made.outcome {
                Outcome::Made => {}
                Outcome::Damaged => work.damaged.push(row),
                Outcome::Broke => {
                    return Err("the program failed on a sample".to_owned());
                }
                Outcome::Bad | Outcome::Wrong | Outcome::Beyond => work.bad.push(row),
            }
        }
        Ok(())
    }
}

impl Work {
    /// How many samples the device has made of it, or has found bad.
    pub(super) fn n_samples(&self) -> u64 {
        let all = self.next_row.saturating_sub(self.n_beyond) as u64;
        if self.failed.is_none() { all } else { 0 }
    }

    pub(super) fn finished(mut self) -> Finished {
        self.bad.sort_unstable();
        self.damaged.sort_unstable();
        let device_ns =
            u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let result = match self.failed {
            Some(reason) => Err(reason),
            // Each part was held against its checksum when it came.
            None => {
                Ok(Product { len: 0, checksum: 0, bad: self.bad, damaged: self.damaged })
            }
        };
        let (job, slot) = (self.job.id, self.slot);
        Finished { job, slot, result, device_ns, lateness_ns: 0 }
    }
}

/// The answer to a batch whose samples take so many bytes and are in their place.
pub(in super::super) fn ending(result: Result<Product, String>, bytes: u64) -> Ending {
    match result {
        Err(reason) => Ending::Failed { reason },
        Ok(Product { checksum, bad, damaged, .. }) => {
            Ending::Done { len: bytes, checksum, bad, damaged }
        }
    }
}
