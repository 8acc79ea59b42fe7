//! Whether the data that a device reads are the host's: asked when it has taken the session, about
//! records that nobody could foresee.
//!
//! The host reads its own copies of them and compares lengths and hashes. Of a small data set these
//! are all records. What another copy hides from this is found by audits (`devices/trust.rs`), and
//! what has a different length by the device itself when it reads it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bothends_core::ids::SampleId;
use bothends_csd::{CsdError, Inquiry, RecordDigest, Transport};
use crossbeam::channel::{Receiver, bounded};

use crate::devices::trust::Reads;
use crate::read::source::Source;
use crate::runtime::engine::spawn;
use crate::threads::shutdown::Stop;

/// Records of a data set that is asked about as a whole.
const FEW_RECORDS: u64 = 512;

/// Records asked about of a larger one: it shows a copy in which one in ten differs with a chance
/// of 99.9 %, and one in a hundred with 48 %.
const SOME_RECORDS: u32 = 64;

/// The same of records that have a checksum, which the device verifies as it reads them.
const CHECKED_RECORDS: u32 = 8;

/// Bytes that the host reads for it at most, and for how long; what it has read by then is asked
/// about.
const MOST_BYTES: u64 = 64 << 20;
const READ_TIME: Duration = Duration::from_secs(2);

/// Records of one question: a device has some seconds to read them.
const QUESTION_RECORDS: usize = 64;

/// A number that nobody could foresee.
pub(crate) fn random() -> u64 {
    // A keyed hash whose key the system drew.
    RandomState::new().hash_one(0)
}

/// Records of which a device had another copy: they are asked about at every further attempt,
/// so that it does not get in by being asked about others. Clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suspects(Arc<Mutex<Vec<SampleId>>>);

impl Suspects {
    fn all(&self) -> Vec<SampleId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, sample: SampleId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&sample) && all.len() < QUESTION_RECORDS {
            all.push(sample);
        }
    }
}

/// Asks a device that has taken the session; whose files it reads. Blocks for [`READ_TIME`] and
/// for the device's answers, each within the transport's deadline.
///
/// # Errors
/// [`CsdError::OtherData`] where its copy is another one; [`CsdError::Malformed`]; what the link says.
pub(crate) fn attest(
    transport: &mut dyn Transport,
    source: &Arc<Source>,
    suspects: &Suspects,
) -> Result<Reads, CsdError> {
    let nothing = Inquiry { seed: 0, samples: Vec::new() };
    if transport.attest(&nothing)?.is_none() {
        return Ok(Reads::HostFiles);
    }
    let seed = random();
    let mut samples = suspects.all();
    samples.extend(draw(source, random()));
    let own = own_records(source, samples, seed)?;
    for own in own.chunks(QUESTION_RECORDS) {
        let samples = own.iter().map(|(sample, _)| *sample).collect();
        let theirs = transport.attest(&Inquiry { seed, samples })?.unwrap_or_default();
        if theirs.len() != own.len() {
            let what = "digests of a different number of records than requested";
            return Err(CsdError::Malformed { what });
        }
        let mut pairs = own.iter().zip(theirs);
        if let Some(((sample, ours), theirs)) =
            pairs.find(|((_, ours), theirs)| Some(*ours) != *theirs)
        {
            suspects.add(*sample);
            let record = format!("sample {} ({})", sample.0, source.file_name(*sample));
            let what = difference(*ours, theirs);
            return Err(CsdError::OtherData { what: format!("{record} {what}") });
        }
    }
    Ok(Reads::ItsCopy)
}

/// What differs between the host's record and the device's.
fn difference(ours: RecordDigest, theirs: Option<RecordDigest>) -> String {
    match theirs {
        None => format!("has {} bytes here and cannot be read there", ours.len),
        Some(theirs) if theirs.len == ours.len => {
            format!("has {} bytes here and there, and they differ", ours.len)
        }
        Some(theirs) => format!("has {} bytes here and {} there", ours.len, theirs.len),
    }
}

/// The samples to ask about, in no order.
fn draw(source: &Source, seed: u64) -> Vec<SampleId> {
    let n_samples = source.n_samples();
    let has_checksums = source.table.checksum(SampleId(0)).is_some();
    let n = match has_checksums {
        true => CHECKED_RECORDS,
        false => SOME_RECORDS,
    };
    if n_samples <= u64::from(n) || !has_checksums && n_samples <= FEW_RECORDS {
        return (0..n_samples).map(SampleId).collect();
    }
    let key = RandomState::new();
    let draw = |nth: u32| {
        let word = u128::from(key.hash_one((seed, nth)));
        // The high half of the product is uniform below `n_samples`.
        SampleId(u64::try_from((word * u128::from(n_samples)) >> 64).unwrap_or(0))
    };
    (0..n).map(draw).collect()
}

/// The host's own records of these samples, as far as it can read them, by a thread of its own:
/// a file system that does not answer must not hold up the run.
fn own_records(
    source: &Arc<Source>,
    samples: Vec<SampleId>,
    seed: u64,
) -> Result<Vec<(SampleId, RecordDigest)>, CsdError> {
    let (tells, told) = bounded(samples.len().max(1));
    let source = Arc::clone(source);
    let read = move || {
        let mut left = MOST_BYTES;
        for sample in samples {
            // What the host cannot read says nothing about the device.
            let Ok(record) = source.whole_record(sample) else { continue };
            let own = (sample, RecordDigest::of(&record, seed));
            left = left.saturating_sub(record.len() as u64);
            // Nobody waits any longer.
            if tells.send(own).is_err() || left == 0 {
                return;
            }
        }
    };
    let begun = spawn(&Stop::default(), "attest", read);
    begun.map_err(|error| CsdError::Driver(Box::new(error)))?;
    Ok(received(&told))
}

/// What comes within [`READ_TIME`].
fn received<T>(told: &Receiver<T>) -> Vec<T> {
    let deadline = Instant::now() + READ_TIME;
    std::iter::from_fn(|| told.recv_deadline(deadline).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_both_lengths() {
        let digest = |len, hash| RecordDigest { len, hash };
        let ours = digest(10, 1);
        assert_eq!(
            difference(ours, Some(digest(12, 1))),
            "has 10 bytes here and 12 there"
        );
        let other = difference(ours, Some(digest(10, 2)));
        assert_eq!(other, "has 10 bytes here and there, and they differ");
        assert_eq!(difference(ours, None), "has 10 bytes here and cannot be read there");
    }

    #[test]
    fn no_two_numbers_are_one() {
        assert_ne!(random(), random());
    }

    #[test]
    fn a_suspect_is_kept_once() {
        let suspects = Suspects::default();
        suspects.clone().add(SampleId(3));
        suspects.add(SampleId(3));
        assert_eq!(suspects.all(), [SampleId(3)]);
    }

    #[test]
    fn a_storage_that_says_nothing_is_not_waited_for() {
        let (tells, told) = bounded(2);
        tells.send(1).unwrap();
        let began = Instant::now();
        assert_eq!(received(&told), [1]);
        assert!(began.elapsed() >= READ_TIME);
    }
}
