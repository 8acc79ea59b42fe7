//! What every device must do with real data, as callable checks over any way to reach one.
//!
//! An [`Exercise`] is a folder of a few images and what a host would ask for. [`all`] sends it to a device
//! that serves that folder and compares the answers with `ops` called directly. A check that fails panics
//! and says what was expected. Nothing here is part of a run. (`csd::conformance` has what every
//! *transport* must do.)

#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics: that is its use"
)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::recipe::{Recipe, RecordShape};
use bothends_core::sample::{Encoding, Extent, Record, SampleKey};
use bothends_csd::{
    CsdError, Inquiry, PROTOCOL_VERSION, RecordDigest, Session, Transport,
};
use bothends_dataset::TableBuilder;
use bothends_ops::{Pipeline, Scratch};
use bothends_slots::{Completion, Job, JobId, Outcome, Polled, Ring, RingConfig, Slot};

/// The images: two kinds of JPEG, one PNG, and one file that is no image.
const IMAGES: [(&str, &[u8]); 5] = [
    ("a/progressive.jpg", include_bytes!("../fixtures/420-progressive.jpg")),
    ("a/grey.jpg", include_bytes!("../fixtures/grey-48x64.jpg")),
    ("b/small.jpg", include_bytes!("../fixtures/444-31x18.jpg")),
    ("b/broken.jpg", b"this is no image"),
    ("b/noise.jpg", include_bytes!("../fixtures/rgb-noise.jpg")),
];

/// The sample that cannot be made.
const BROKEN: SampleId = SampleId(3);

const RECIPE: &str = "imagenet-train";
const SEED: u64 = 0x5eed;
const MAX_BATCH: u32 = 12;

/// Nothing in a check takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A data set on disk and the session that a host would open for it.
#[derive(Debug)]
pub struct Exercise {
    root: PathBuf,
    recipe: Recipe,
    pipeline: Pipeline,
    manifest: Vec<u8>,
}

impl Exercise {
    /// Writes the images below `root`, an empty folder.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn prepare(root: &Path) -> io::Result<Self> {
        let recipe = Recipe::builtin(RECIPE).expect("it is built in");
        let views = recipe.views(RecordShape::Image).expect("its size is fixed");
        let pipeline = Pipeline::new(&recipe, views);
        let mut table = TableBuilder::new(Encoding::Image);
        for (path, bytes) in IMAGES {
            let full = root.join(path);
            fs::create_dir_all(full.parent().unwrap_or(root))?;
            fs::write(full, bytes)?;
            let file = table.file(path).expect("there are few");
            let len = u32::try_from(bytes.len()).expect("they are small");
            table.sample(Extent { file, offset: 0, len }, 0);
        }
        let manifest = table.build().expect("it is well formed").encode();
        Ok(Self { root: root.to_owned(), recipe, pipeline, manifest })
    }

    /// The folder that the device is to serve.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The images' files below the root, in the order of their samples.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> {
        IMAGES.iter().map(|(path, _)| *path)
    }

    /// What a host says when it opens the data set.
    #[must_use]
    pub fn session(&self) -> Session {
        Session {
            recipe: self.recipe.to_json(),
            recipe_hash: self.recipe.hash(),
            seed: SEED,
            sample_bytes: u32::try_from(self.sample_bytes()).expect("it is small"),
            max_batch: MAX_BATCH,
            manifest: self.manifest.clone(),
        }
    }

    /// A job over `samples`; its number is its name and its batch.
    #[must_use]
    pub fn job(&self, number: u32, samples: &[u64]) -> Job {
        Job {
            id: JobId(u64::from(number)),
            epoch: EpochIdx(number % 3),
            batch: BatchIdx(number),
            samples: samples.iter().copied().map(SampleId).collect(),
        }
    }

    /// The result of a job by `ops` alone, and the samples that are bad.
    #[must_use]
    pub fn expected(&self, job: &Job) -> (Vec<u8>, Vec<u32>) {
        let mut scratch = Scratch::default();
        let mut bytes = vec![0; job.samples.len() * self.sample_bytes()];
        let mut bad = Vec::new();
        let places = bytes.chunks_exact_mut(self.sample_bytes());
        for (row, (&sample, place)) in (0..).zip(job.samples.iter().zip(places)) {
            let key = SampleKey { seed: SEED, epoch: job.epoch, sample };
            let (_, bytes) =
                IMAGES[usize::try_from(sample.0).unwrap_or(0) % IMAGES.len()];
            let record = Record::new(bytes, Encoding::Image);
            if self.pipeline.run(&mut scratch, key, record, place).is_err() {
                bad.push(row);
            }
        }
        (bytes, bad)
    }

    /// Removes the images: the device's data are gone.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn starve(&self) -> io::Result<()> {
        IMAGES.iter().try_for_each(|(path, _)| fs::remove_file(self.root.join(path)))
    }

    fn sample_bytes(&self) -> usize {
        self.pipeline.sample_bytes()
    }
}

/// Holds a device that serves `exercise` to every check; its files are gone afterwards.
pub fn all(device: &mut dyn Transport, exercise: &Exercise) {
    a_session_with_another_recipe_is_refused_with_both_hashes(device, exercise);
    samples_are_those_of_ops_alone(device, exercise);
    records_are_attested_as_they_are(device, exercise);
    without_its_files_a_device_makes_nothing(device, exercise);
}

/// What the device says of its records is so; a sample that does not exist is named.
pub fn records_are_attested_as_they_are(device: &mut dyn Transport, exercise: &Exercise) {
    device.open(&exercise.session()).expect("a session");
    let seed = 0xa0d1;
    let samples = vec![SampleId(4), BROKEN, SampleId(0)];
    let digests = [4_usize, 3, 0].map(|idx| RecordDigest::of(IMAGES[idx].1, seed));
    let digests: Vec<_> = digests.into_iter().map(Some).collect();
    let attested = device.attest(&Inquiry { seed, samples }).expect("an answer");
    assert_eq!(attested, Some(digests));
    let beyond = Inquiry { seed, samples: vec![SampleId(IMAGES.len() as u64)] };
    let error = device.attest(&beyond).expect_err("no such sample").to_string();
    assert!(error.contains("there is no sample 5"), "{error}");
}

/// A device that would make other samples does not make any.
pub fn a_session_with_another_recipe_is_refused_with_both_hashes(
    device: &mut dyn Transport,
    exercise: &Exercise,
) {
    let capabilities = device.hello().expect("it says hello");
    assert_eq!(capabilities.protocol_version, PROTOCOL_VERSION);
    let ops = exercise.recipe.names_before_cut();
    assert!(ops.iter().all(|op| capabilities.ops.iter().any(|has| has == op)), "{ops:?}");

    let theirs = exercise.recipe.hash() ^ 1;
    let reason = refusal(device, Session { recipe_hash: theirs, ..exercise.session() });
    for hash in [theirs, exercise.recipe.hash()] {
        assert!(reason.contains(&format!("{hash:032x}")), "{reason}");
    }
    let reason = refusal(device, Session { sample_bytes: 7, ..exercise.session() });
    assert!(reason.contains("a sample has 7 bytes on the host and 150528"), "{reason}");
    let reason =
        refusal(device, Session { manifest: vec![1, 2, 3], ..exercise.session() });
    assert!(reason.contains("cannot read the manifest"), "{reason}");
    let reason = refusal(device, Session { recipe: "{}".into(), ..exercise.session() });
    assert!(reason.contains("cannot read the recipe"), "{reason}");
    let reason = refusal(device, Session { max_batch: 65_536, ..exercise.session() });
    assert!(reason.contains("use a smaller batch size"), "{reason}");
}

/// The device's bytes are those that any other worker makes; what is no image is a bad row
/// of zeros; ids beyond the data set name its records again, under keys of their own.
pub fn samples_are_those_of_ops_alone(device: &mut dyn Transport, exercise: &Exercise) {
    device.open(&exercise.session()).expect("it has what the session needs");
    let numbers: [&[u64]; 5] =
        [&[0, 1, 2, 3, 4], &[], &[4, 4, 9, 0], &[3], &[8, 7, 6, 5, 4, 3, 2, 1, 0]];
    for (number, samples) in (0..).zip(numbers) {
        let job = exercise.job(number, samples);
        let (expected, expected_bad) = exercise.expected(&job);
        let is_broken =
            job.samples.iter().map(|id| id.0 % IMAGES.len() as u64 == BROKEN.0);
        assert_eq!(expected_bad.len(), is_broken.filter(|broken| *broken).count());
        let (bytes, bad) = done(device, exercise, job.clone());
        assert_eq!(bad, expected_bad, "job {number}");
        assert!(bytes == expected, "job {number} came out with other bytes");
    }
    let stats = device.stats().expect("it counts");
    assert!(stats.media_read_bytes > 0 && stats.samples >= 19, "{stats:?}");
    assert_eq!(stats.queued, 0, "{stats:?}");
}

/// The device makes samples from its own files and from nothing else. Removes them.
pub fn without_its_files_a_device_makes_nothing(
    device: &mut dyn Transport,
    exercise: &Exercise,
) {
    device.open(&exercise.session()).expect("it has what the session needs");
    done(device, exercise, exercise.job(40, &[0, 1]));
    exercise.starve().expect("the files can be removed");
    // A file that it still holds open is its own, so others are asked for.
    let reason = failure(device, exercise, exercise.job(41, &[2, 4]));
    assert!(reason.contains("b/small.jpg"), "{reason}");
    let reason = refusal(device, exercise.session());
    assert!(reason.contains("a/progressive.jpg"), "{reason}");
    assert!(reason.contains("at its data root?"), "{reason}");
}

/// A slot for one job of an exercise.
#[must_use]
pub fn slot(exercise: &Exercise) -> Slot {
    let slot_bytes = MAX_BATCH as usize * exercise.sample_bytes();
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).expect("memory");
    ring.take(Duration::ZERO).expect("a free slot")
}

/// The answer to what was submitted.
pub fn answer(device: &mut dyn Transport) -> Completion {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let polled = device.poll(Duration::from_millis(100)).expect("the link holds");
        if let Polled::Completion(completion) = polled {
            return completion;
        }
    }
    panic!("a job never came back")
}

/// Submits `job` and waits for its answer.
fn complete(device: &mut dyn Transport, exercise: &Exercise, job: Job) -> Completion {
    let id = job.id;
    device.submit(job, slot(exercise)).expect("it has a free slot");
    let completion = answer(device);
    assert_eq!(completion.job, id, "another job's answer");
    completion
}

/// The bytes of `job`, and its bad rows.
pub fn done(
    device: &mut dyn Transport,
    exercise: &Exercise,
    job: Job,
) -> (Vec<u8>, Vec<u32>) {
    let n_bytes = job.samples.len() * exercise.sample_bytes();
    let Completion { slot, outcome, .. } = complete(device, exercise, job);
    let Outcome::Made { bad } = outcome else { panic!("a job failed: {outcome:?}") };
    (slot.host().expect("host memory")[..n_bytes].to_vec(), bad)
}

/// Why `job`, which cannot be done, failed.
pub fn failure(device: &mut dyn Transport, exercise: &Exercise, job: Job) -> String {
    match complete(device, exercise, job).outcome {
        Outcome::Failed { reason } => reason,
        outcome @ (Outcome::Made { .. } | Outcome::NotBegun) => {
            panic!("the job cannot be done: {outcome:?}")
        }
    }
}

fn refusal(device: &mut dyn Transport, session: Session) -> String {
    match device.open(&session) {
        Err(CsdError::SessionRefused { reason }) => reason,
        other => panic!("the session was not refused: {other:?}"),
    }
}
