//! The GPU as a producer keeps the producers' contract on the CPU twin, and its samples are the
//! host's, whoever made them.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::recipe::{Interpolation, Numerics};
use bothends_core::sample::{Encoding, Extent, Record, SampleKey};
use bothends_dataset::{Table, TableBuilder};
use bothends_gpu::GpuError;
use bothends_gpu::twin::Twin;
use bothends_gpu_decode::{Counts, GpuProng, Memory, ProngConfig, Source, TableSource};
use bothends_io::{Direct, Files, ReaderConfig, ReaderKind, open_reader};
use bothends_ops::{Pipeline, Scratch};
use bothends_side_index::{Beside, Place, SideIndex};
use bothends_slots::conformance::produce;
use bothends_slots::{Job, JobId, Outcome, Polled, Producer, Ring, RingConfig};

use support::{Image, LIMITS, SMALL, fixtures, pipeline};

const SEED: u64 = 11;
const MAX_BATCH: u32 = 8;

/// Pictures for kernels, and some that have none.
const FILES: [&str; 7] = [
    "420-48x64.jpg",
    "444-31x18.jpg",
    "cmyk-17x33.jpg",
    "grey-48x64.jpg",
    "restart-rows.jpg",
    "420-progressive.jpg",
    "422-48x64.jpg",
];

/// How a data set lies on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Packed,
    Plain,
}

/// A data set on disk: the files, and one that is damaged, as they are or as records of blocks.
struct Data {
    root: tempfile::TempDir,
    table: Arc<Table>,
    /// The original files.
    files: Vec<Vec<u8>>,
}

impl Data {
    fn new(form: Form) -> Self {
        let is_packed = form == Form::Packed;
        let root = tempfile::tempdir().unwrap();
        let mut table = TableBuilder::new(Encoding::Image);
        let known = fixtures();
        let mut files: Vec<Vec<u8>> = FILES
            .iter()
            .map(|name| known.iter().find(|(n, _)| n == name).unwrap().1.clone())
            .collect();
        let mut broken = files[0].clone();
        let middle = broken.len() / 2;
        broken.truncate(middle);
        files.push(broken);
        for (nth, file) in files.iter().enumerate() {
            let name = format!("{nth}.jpg");
            let idx = table.file(&name).unwrap();
            let image = Image::of(file).filter(|_| is_packed);
            let bytes =
                image.as_ref().map_or(&file[..], |image| &image.packed.groups[..]);
            std::fs::write(root.path().join(&name), bytes).unwrap();
            let len = u32::try_from(bytes.len()).unwrap();
            table.sample(Extent { file: idx, offset: 0, len }, 0);
            if is_packed {
                let head = image.map(|image| {
                    let profile = table.profile(&image.packed.profile).unwrap();
                    let packed = &image.packed;
                    packed.lengths.head(packed.size, profile, packed.row_lengths).unwrap()
                });
                table.head(&head.unwrap_or_default()).unwrap();
            }
        }
        Self { root, table: Arc::new(table.build().unwrap()), files }
    }

    fn source(&self, numerics: Numerics) -> TableSource {
        let folder = self.root.path();
        let place =
            Place { data: folder, is_folder: true, beside: Beside::Written, cache: None };
        let config = ReaderConfig { kind: ReaderKind::Pread, ..ReaderConfig::default() };
        TableSource {
            table: Arc::clone(&self.table),
            files: Arc::new(Files::new(folder, 16, Direct::Off)),
            reader: open_reader(&config).unwrap(),
            side_index: Some(Arc::new(SideIndex::open(place))),
            pipeline: self.pipeline(numerics),
            seed: SEED,
            memory: Memory::default(),
        }
    }

    fn pipeline(&self, numerics: Numerics) -> Pipeline {
        pipeline(SMALL, numerics, Interpolation::Bilinear)
    }

    /// What `ops` makes of the original files.
    fn expected(
        &self,
        numerics: Numerics,
    ) -> impl Fn(EpochIdx, SampleId) -> Option<Vec<u8>> + use<> {
        let (pipeline, files) = (self.pipeline(numerics), self.files.clone());
        move |epoch, sample| {
            let key = SampleKey { seed: SEED, epoch, sample };
            let file = &files[usize::try_from(sample.0).unwrap() % files.len()];
            let mut out = vec![0; pipeline.sample_bytes()];
            let record = Record::new(file, Encoding::Image);
            pipeline
                .run(&mut Scratch::default(), key, record, &mut out)
                .ok()
                .map(|()| out)
        }
    }

    fn prong(&self, numerics: Numerics) -> Option<GpuProng<TableSource>> {
        let twin = match Twin::compiled() {
            Ok(twin) => twin,
            Err(GpuError::Unavailable { why }) => {
                eprintln!("skipped: {why}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let config =
            ProngConfig { size: SMALL, numerics, max_batch: MAX_BATCH, limits: LIMITS };
        Some(GpuProng::new(Arc::new(twin), self.source(numerics), config).unwrap())
    }

    fn path(&self, nth: usize) -> PathBuf {
        Path::new(self.root.path()).join(format!("{nth}.jpg"))
    }
}

/// Leaves notes of all files, as the first epoch does.
fn first_epoch(data: &Data, numerics: Numerics) {
    let mut source = data.source(numerics);
    let mut out = vec![0; source.pipeline.sample_bytes()];
    for sample in (0..data.files.len() as u64).map(SampleId) {
        let _ = source.make((EpochIdx(0), sample), &mut out);
    }
}

fn conformance(form: Form, numerics: Numerics) {
    let data = Data::new(form);
    first_epoch(&data, numerics);
    let sample_bytes = data.pipeline(numerics).sample_bytes();
    if data.prong(numerics).is_none() {
        return;
    }
    produce::all(&mut || produce::Subject {
        producer: Box::new(data.prong(numerics).unwrap()),
        capacity: 2,
        sample_bytes,
        expected: Box::new(data.expected(numerics)),
        samples: (0..data.files.len() as u64).map(SampleId).collect(),
    });
}

#[test]
fn over_a_store_it_keeps_the_contract() {
    conformance(Form::Packed, Numerics::Exact);
}

#[test]
fn over_plain_files_it_keeps_the_contract() {
    conformance(Form::Plain, Numerics::Exact);
}

#[test]
fn in_planar_numerics_it_keeps_the_contract() {
    conformance(Form::Packed, Numerics::Planar);
    conformance(Form::Plain, Numerics::Planar);
}

/// The samples of one job over all files, the bad rows, and who made them.
fn one_job(data: &Data) -> Option<(Vec<u8>, Vec<u32>, Counts)> {
    let mut prong = data.prong(Numerics::Exact)?;
    let slot_bytes = MAX_BATCH as usize * data.pipeline(Numerics::Exact).sample_bytes();
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).unwrap();
    let samples = (0..data.files.len() as u64).map(SampleId).collect();
    let job = Job { id: JobId(1), epoch: EpochIdx(2), batch: BatchIdx(0), samples };
    prong.submit(job, ring.take(Duration::ZERO).unwrap()).unwrap();
    let Polled::Completion(done) = prong.poll(Duration::from_secs(60)).unwrap() else {
        panic!("no answer")
    };
    let Outcome::Made { bad } = done.outcome else { panic!("{:?}", done.outcome) };
    Some((done.slot.host().unwrap().to_vec(), bad, prong.counts()))
}

fn check(data: &Data, samples: &[u8], bad: &[u32]) {
    let expected = data.expected(Numerics::Exact);
    let len = data.pipeline(Numerics::Exact).sample_bytes();
    for (row, got) in (0..).zip(samples.chunks(len).take(data.files.len())) {
        match expected(EpochIdx(2), SampleId(row.into())) {
            Some(need) => assert!(bad.contains(&row) || need == got, "row {row}"),
            None => assert!(bad.contains(&row), "row {row} is bad"),
        }
    }
}

/// What has kernels is made by them; the other rows, and the bad one, are the host's.
#[test]
fn the_gpu_makes_what_it_can() {
    for form in [Form::Packed, Form::Plain] {
        let data = Data::new(form);
        first_epoch(&data, Numerics::Exact);
        let Some((samples, bad, counts)) = one_job(&data) else { return };
        check(&data, &samples, &bad);
        assert_eq!(bad, [7], "the file that is cut short");
        // All but the one in four inks, the progressive one and the broken one.
        assert_eq!(counts, Counts { gpu: 5, host: 3, flagged: 0 }, "{form:?}");
    }
}

/// Without notes plain files are the host's, and leave notes for the next time.
#[test]
fn a_first_epoch_goes_through_the_host() {
    let data = Data::new(Form::Plain);
    let Some((samples, bad, counts)) = one_job(&data) else { return };
    check(&data, &samples, &bad);
    assert_eq!(counts.gpu, 0);
    let (samples, bad, counts) = one_job(&data).unwrap();
    check(&data, &samples, &bad);
    assert_eq!(counts.gpu, 5);
}

/// A byte of a store's row group is flipped: the GPU flags the sample, and the host says that it is
/// bad.
#[test]
fn what_is_damaged_on_the_way_is_flagged() {
    let data = Data::new(Form::Packed);
    let mut bytes = std::fs::read(data.path(0)).unwrap();
    let len = bytes.len();
    for at in (8..len).step_by(len / 4) {
        bytes[at] ^= 0x10;
    }
    std::fs::write(data.path(0), bytes).unwrap();
    let Some((samples, bad, counts)) = one_job(&data) else { return };
    check(&data, &samples, &bad);
    assert_eq!((bad, counts.flagged), (vec![0, 7], 1));
}
