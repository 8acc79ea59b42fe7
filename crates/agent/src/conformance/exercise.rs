//! A small data set of each encoding, what a host asks for in it, and what must come out.
//!
//! What must come out is made by `ops` directly. Nothing here talks to a device.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::recipe::{Recipe, RecordShape};
use bothends_core::sample::{Encoding, Extent, Record, SampleKey};
use bothends_csd::{RecordDigest, Session, write_beside};
use bothends_dataset::TableBuilder;
use bothends_ops::{Pipeline, Scratch};
use bothends_slots::{Job, JobId};
use twox_hash::XxHash3_64;

/// Twice what file systems with fractions of seconds need (`bothends_side_index::is_at_rest`).
const AT_REST_AFTER: Duration = Duration::from_millis(100);

/// The images: two kinds of JPEG, one PNG, and one file that is no image.
const IMAGES: [(&str, &[u8]); 5] = [
    ("a/progressive.jpg", include_bytes!("../../fixtures/420-progressive.jpg")),
    ("a/grey.jpg", include_bytes!("../../fixtures/grey-48x64.jpg")),
    ("b/small.jpg", include_bytes!("../../fixtures/444-31x18.jpg")),
    ("b/broken.jpg", b"this is no image"),
    ("b/noise.jpg", include_bytes!("../../fixtures/rgb-noise.jpg")),
];

/// The record of which no sample can be made.
pub(super) const BROKEN: u64 = 3;

/// In a container: the record that cannot be read, for it lies past the end of the file.
pub(super) const BEYOND: u64 = 5;

/// Bytes of a record of CIFAR-10 without its label, and of an opaque one.
const PLANAR_BYTES: usize = 3 * 32 * 32;
const OPAQUE_BYTES: u16 = 300;

const SEED: u64 = 0x5eed;
pub(super) const MAX_BATCH: u32 = 12;

/// What a data set's records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes that come out as they are, with the recipe `raw`.
    Opaque,
    /// 32 × 32 pixels in three planes, with the recipe `cifar10-train`.
    Planar,
    /// Files of images, with the recipe `imagenet-train`.
    Images,
}

impl Kind {
    /// All of them, those that are easiest to serve first.
    pub const ALL: [Self; 3] = [Self::Opaque, Self::Planar, Self::Images];

    fn recipe(self) -> &'static str {
        match self {
            Self::Opaque => "raw",
            Self::Planar => "cifar10-train",
            Self::Images => "imagenet-train",
        }
    }

    fn encoding(self) -> Encoding {
        match self {
            Self::Opaque => Encoding::Opaque,
            Self::Planar => Encoding::Planar { channels: 3, height: 32, width: 32 },
            Self::Images => Encoding::Image,
        }
    }

    fn shape(self) -> RecordShape {
        match self {
            Self::Opaque => RecordShape::Opaque { len_bytes: OPAQUE_BYTES.into() },
            Self::Planar => RecordShape::Planar { channels: 3, height: 32, width: 32 },
            Self::Images => RecordShape::Image,
        }
    }
}

/// A record: where it lies, and what is there.
#[derive(Debug, Clone)]
struct Item {
    path: String,
    offset: u64,
    bytes: Vec<u8>,
    /// What the table says of it is not so.
    is_broken: bool,
}

/// A data set on disk and the session that a host would open for it.
#[derive(Debug)]
pub struct Exercise {
    root: PathBuf,
    kind: Kind,
    recipe: Recipe,
    pipeline: Pipeline,
    items: Vec<Item>,
    manifest: Vec<u8>,
}

impl Exercise {
    /// Writes images below `root`, an empty folder, and waits until a device may believe that they stay as they
    /// are: a file that was written just now may change again without another time.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn prepare(root: &Path) -> io::Result<Self> {
        let exercise = Self::of(Kind::Images, root, "");
        exercise.write()?;
        std::thread::sleep(AT_REST_AFTER);
        Ok(exercise)
    }

    /// The data set of that kind in the folder `folder` below `root`; nothing is written.
    pub(super) fn of(kind: Kind, root: &Path, folder: &str) -> Self {
        let recipe = Recipe::builtin(kind.recipe()).expect("it is built in");
        let views = recipe.views(kind.shape()).expect("its size is fixed");
        let pipeline = Pipeline::new(&recipe, views);
        let items = match kind {
            Kind::Images => images(folder),
            Kind::Opaque => {
                container(&below(folder, "opaque.bin"), OPAQUE_BYTES.into(), 0)
            }
            Kind::Planar => container(&below(folder, "planar.bin"), PLANAR_BYTES, 0),
        };
        let root = root.to_owned();
        let mut exercise =
            Self { root, kind, recipe, pipeline, items, manifest: Vec::new() };
        exercise.manifest = exercise.table();
        exercise
    }

    /// The same with records of other bytes in a file of the same name and size.
    pub(super) fn replaced(&self) -> Self {
        let mut other = Self::of(self.kind, &self.root, "");
        let path = &self.items[0].path;
        other.items = container(path, self.items[0].bytes.len(), 101);
        other.manifest = other.table();
        other
    }

    /// The same in a file that is not there.
    pub(super) fn absent(&self) -> Self {
        let mut other = self.replaced();
        other.items.iter_mut().for_each(|item| item.path += ".absent");
        other.manifest = other.table();
        other
    }

    fn table(&self) -> Vec<u8> {
        let mut table = TableBuilder::new(self.kind.encoding());
        let mut file = None;
        let mut last = "";
        for item in &self.items {
            if item.path != last {
                file = table.file(&item.path).ok();
                last = &item.path;
            }
            let file = file.expect("there are few");
            let len = u32::try_from(item.bytes.len()).expect("they are small");
            table.sample(Extent { file, offset: item.offset, len }, 0);
        }
        if self.kind != Kind::Images {
            let sum = |item: &Item| {
                XxHash3_64::oneshot(&item.bytes) ^ u64::from(item.is_broken)
            };
            table.checksums(self.items.iter().map(sum).collect());
        }
        table.build().expect("it is well formed").encode()
    }

    /// Writes its files; one that is there is replaced.
    ///
    /// # Errors
    /// They cannot be written.
    pub(super) fn write(&self) -> io::Result<()> {
        for path in self.files() {
            let full = self.root.join(path);
            fs::create_dir_all(full.parent().unwrap_or(&self.root))?;
            write_beside(&full.with_extension("new"), &full, |mut file| {
                file.write_all(&self.content(path))
            })?;
        }
        Ok(())
    }

    fn content(&self, path: &str) -> Vec<u8> {
        let mut content = Vec::new();
        let readable = (0..).zip(&self.items).filter(|(idx, _)| *idx != BEYOND);
        for (_, item) in readable.filter(|(_, item)| item.path == path) {
            // What lies between the records is of no use to anybody.
            content.resize(usize::try_from(item.offset).unwrap_or(0), 0xee);
            content.extend_from_slice(&item.bytes);
        }
        content
    }

    /// The folder that the device is to serve.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its records' encoding.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Its recipe.
    pub(super) fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The files of a data set of images below its root, in the order of their samples.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> {
        IMAGES.iter().map(|(path, _)| *path)
    }

    /// Its files below the root, in the order of their samples.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let mut last = "";
        let files = self.items.iter().map(|item| item.path.as_str());
        files.filter(move |path| std::mem::replace(&mut last, path) != *path)
    }

    /// How many records it has.
    pub(super) fn n_records(&self) -> u64 {
        self.items.len() as u64
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
            job: None,
            run: None,
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
            need_ns: 0,
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
            let record =
                self.record(sample).map(|it| Record::new(it, self.kind.encoding()));
            let made = record.map(|it| self.pipeline.run(&mut scratch, key, it, place));
            if !matches!(made, Some(Ok(_))) {
                place.fill(0);
                bad.push(row);
            }
        }
        (bytes, bad)
    }

    /// The rows of a job that `ops` makes in spite of a damaged record.
    pub(super) fn damaged(&self, job: &Job) -> Vec<u32> {
        let mut scratch = Scratch::default();
        let mut place = vec![0; self.sample_bytes()];
        let mut is_damaged = |sample: SampleId| {
            let key = SampleKey { seed: SEED, epoch: job.epoch, sample };
            let Some(record) = self.record(sample) else { return false };
            let record = Record::new(record, self.kind.encoding());
            let made = self.pipeline.run(&mut scratch, key, record, &mut place);
            made.is_ok() && scratch.damage().is_some()
        };
        let rows = (0..).zip(&job.samples);
        rows.filter(|(_, sample)| is_damaged(**sample)).map(|(row, _)| row).collect()
    }

    /// What the device is to say of its records.
    pub(super) fn digests(
        &self,
        samples: &[u64],
        seed: u64,
    ) -> Vec<Option<RecordDigest>> {
        let digest = |sample: &u64| {
            let idx = sample % self.n_records();
            let item = &self.items[usize::try_from(idx).unwrap_or(0)];
            (idx != BEYOND).then(|| RecordDigest::of(&item.bytes, seed))
        };
        samples.iter().map(digest).collect()
    }

    /// The record of a sample, if it can be made of it.
    fn record(&self, sample: SampleId) -> Option<&[u8]> {
        let idx = sample.0 % self.n_records();
        let item = self.items.get(usize::try_from(idx).ok()?)?;
        let is_whole = self.kind == Kind::Images || !item.is_broken;
        (is_whole && idx != BEYOND).then_some(item.bytes.as_slice())
    }

    /// Removes its files: the device's data are gone.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn starve(&self) -> io::Result<()> {
        let mut paths = self.files();
        paths.try_for_each(|path| fs::remove_file(self.root.join(path)))
    }

    /// Removes what is there of its files and of their folders.
    pub(super) fn clear(&self) {
        for path in self.files() {
            let full = self.root.join(path);
            // One that is not there is removed already.
            drop(fs::remove_file(&full));
            let folder = full.parent().filter(|folder| *folder != self.root);
            drop(folder.map(fs::remove_dir));
        }
    }

    pub(super) fn sample_bytes(&self) -> usize {
        self.pipeline.sample_bytes()
    }
}

fn below(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn images(folder: &str) -> Vec<Item> {
    let item = |(path, bytes): (&str, &[u8])| Item {
        path: below(folder, path),
        offset: 0,
        bytes: bytes.to_vec(),
        is_broken: bytes.starts_with(b"this"),
    };
    IMAGES.into_iter().map(item).collect()
}

/// Records one after another in one file, one byte before each; the sum of one is wrong, and the
/// last one is not there.
fn container(path: &str, record_bytes: usize, salt: u64) -> Vec<Item> {
    let item = |idx: u64| {
        let word = |at: usize| {
            let [byte, ..] =
                XxHash3_64::oneshot(&(at as u64 + salt + (idx << 32)).to_le_bytes())
                    .to_le_bytes();
            byte
        };
        Item {
            path: path.to_owned(),
            offset: idx * (record_bytes as u64 + 1) + 1,
            bytes: (0..record_bytes).map(word).collect(),
            is_broken: idx == BROKEN,
        }
    };
    (0..=BEYOND).map(item).collect()
}
