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
use bothends_gpu::driver::Driver;
use bothends_gpu::kinds::DeviceMemory;
use bothends_gpu::owners::Gpu;
use bothends_gpu::twin::Twin;
use bothends_gpu_decode::{
    Batch, Counts, GpuProng, Memory, ProngConfig, Source, TableSource,
};
use bothends_io::{Direct, Files, ReaderConfig, ReaderKind, open_reader};
use bothends_ops::{Pipeline, Scratch};
use bothends_side_index::{Beside, Place, SideIndex};
use bothends_slots::conformance::produce;
use bothends_slots::{
    Heap, Job, JobId, Kind, Outcome, Polled, Producer, Ring, RingConfig, Slot,
};

use support::{Image, LIMITS, SMALL, downloaded, fixtures, pipeline};

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
    /// How it is read.
    direct: Direct,
    reader: ReaderKind,
    table: Arc<Table>,
    /// The original files.
    files: Vec<Vec<u8>>,
}

impl Data {
    fn new(form: Form) -> Self {
        let is_packed = form == Form::Packed;
        // On a disk, where files can be read past the page cache.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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
        // What was written just now may change again without another time: its notes are not believed.
        std::thread::sleep(Duration::from_millis(100));
        let (direct, reader) = (Direct::Off, ReaderKind::Pread);
        Self { root, direct, reader, table: Arc::new(table.build().unwrap()), files }
    }

    /// The same, read in other ways.
    fn read_by(self, direct: Direct, reader: ReaderKind) -> Self {
        Self { direct, reader, ..self }
    }

    fn source(&self, numerics: Numerics) -> TableSource {
        let folder = self.root.path();
        let place =
            Place { data: folder, is_folder: true, beside: Beside::Written, cache: None };
        let config = ReaderConfig { kind: self.reader, ..ReaderConfig::default() };
        TableSource {
            table: Arc::clone(&self.table),
            files: Arc::new(Files::new(folder, 16, self.direct)),
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
        Some(self.prong_on(twin()?, numerics))
    }

    fn prong_on(
        &self,
        driver: Arc<dyn Driver>,
        numerics: Numerics,
    ) -> GpuProng<TableSource> {
        let config =
            ProngConfig { size: SMALL, numerics, max_batch: MAX_BATCH, limits: LIMITS };
        GpuProng::new(driver, self.source(numerics), config).unwrap()
    }

    fn path(&self, nth: usize) -> PathBuf {
        Path::new(self.root.path()).join(format!("{nth}.jpg"))
    }
}

/// The kernels on the CPU; `None` without a C++ compiler.
fn twin() -> Option<Arc<dyn Driver>> {
    match Twin::compiled() {
        Ok(twin) => Some(Arc::new(twin)),
        Err(GpuError::Unavailable { why }) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
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

fn conformance(data: &Data, numerics: Numerics) {
    first_epoch(data, numerics);
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
        damaged: Vec::new(),
    });
}

#[test]
fn over_a_store_it_keeps_the_contract() {
    conformance(&Data::new(Form::Packed), Numerics::Exact);
}

#[test]
fn over_a_store_past_the_page_cache_it_keeps_the_contract() {
    let data = Data::new(Form::Packed).read_by(Direct::Auto, ReaderKind::Auto);
    conformance(&data, Numerics::Exact);
}

#[test]
fn over_plain_files_it_keeps_the_contract() {
    conformance(&Data::new(Form::Plain), Numerics::Exact);
}

#[test]
fn in_planar_numerics_it_keeps_the_contract() {
    conformance(&Data::new(Form::Packed), Numerics::Planar);
    conformance(&Data::new(Form::Plain), Numerics::Planar);
}

/// The samples of one job over all files, the bad rows, and who made them.
fn one_job(data: &Data) -> Option<(Vec<u8>, Vec<u32>, Counts)> {
    let mut prong = data.prong(Numerics::Exact)?;
    let (slot, bad) = one_job_in(data, &mut prong, &Heap);
    Some((slot.host().unwrap().to_vec(), bad, prong.counts()))
}

/// Its slot, of memory of that kind, and the bad rows.
fn one_job_in(
    data: &Data,
    prong: &mut GpuProng<TableSource>,
    memory: &dyn Kind,
) -> (Slot, Vec<u32>) {
    let slot_bytes = MAX_BATCH as usize * data.pipeline(Numerics::Exact).sample_bytes();
    let ring = Ring::of(memory, RingConfig { n_slots: 1, slot_bytes }).unwrap();
    let samples = (0..data.files.len() as u64).map(SampleId).collect();
    let job =
        Job { id: JobId(1), epoch: EpochIdx(2), batch: BatchIdx(0), samples, need_ns: 0 };
    prong.submit(job, ring.take(Duration::ZERO).unwrap()).unwrap();
    let Polled::Completion(done) = prong.poll(Duration::from_secs(60)).unwrap() else {
        panic!("no answer")
    };
    let Outcome::Made { bad, .. } = done.outcome else { panic!("{:?}", done.outcome) };
    (done.slot, bad)
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

/// Every way to read there is on this machine.
fn readers() -> impl Iterator<Item = (Direct, ReaderKind)> {
    let opens = |kind: &ReaderKind| {
        let config = ReaderConfig { kind: *kind, ..ReaderConfig::default() };
        let opened = open_reader(&config);
        opened.inspect_err(|error| eprintln!("skipped: {error}")).is_ok()
    };
    let kinds = [ReaderKind::Uring, ReaderKind::Pread].into_iter().filter(opens);
    kinds.flat_map(|kind| [(Direct::Auto, kind), (Direct::Off, kind)])
}

/// Past the page cache what is read has room for the blocks that it lies in, and the samples are the same.
#[test]
fn however_it_reads_there_are_the_same_samples() {
    for form in [Form::Packed, Form::Plain] {
        let mut data = Data::new(form);
        first_epoch(&data, Numerics::Exact);
        for (direct, reader) in readers() {
            data = data.read_by(direct, reader);
            let mut source = data.source(Numerics::Exact);
            let mut batch = Batch::new(SMALL, Numerics::Exact, LIMITS);
            let reading =
                source.describe((EpochIdx(2), SampleId(0)), 0, &mut batch).unwrap();
            let file = source.files.opened(reading.file).unwrap();
            if direct == Direct::Auto && !file.is_direct() {
                eprintln!("skipped: the build folder has no O_DIRECT");
            }
            let block = file.block() as u64;
            assert_eq!(u64::from(reading.at) % block, reading.offset % block);
            let Some((samples, bad, counts)) = one_job(&data) else { return };
            check(&data, &samples, &bad);
            assert_eq!(bad, [7], "the file that is cut short");
            assert_eq!(counts, Counts { gpu: 5, host: 3, flagged: 0 }, "{form:?}");
        }
    }
}

/// The shard of one record was cut after the table was made.
#[test]
fn a_record_that_ends_early_is_the_hosts_and_the_others_are_made() {
    let mut data = Data::new(Form::Packed);
    let file = std::fs::OpenOptions::new().write(true).open(data.path(0)).unwrap();
    file.set_len(1).unwrap();
    for (direct, reader) in readers() {
        data = data.read_by(direct, reader);
        let Some((samples, bad, counts)) = one_job(&data) else { return };
        check(&data, &samples, &bad);
        assert_eq!(bad, [0, 7], "the one that cannot be read, and the broken one");
        assert_eq!((counts.gpu, counts.host), (4, 4), "{direct:?}, {reader:?}");
    }
}

/// In a slot of the GPU's own memory there are the same samples, those of the host included.
#[test]
fn a_device_slot_is_filled_where_it_is() {
    for form in [Form::Packed, Form::Plain] {
        let data = Data::new(form);
        let Some(driver) = twin() else { return };
        let memory = DeviceMemory::of(&Gpu::new(Arc::clone(&driver)).unwrap());
        let mut prong = data.prong_on(Arc::clone(&driver), Numerics::Exact);
        // The host makes all of plain files at first, and more than once round the lane.
        for _ in 0..2 {
            let (slot, bad) = one_job_in(&data, &mut prong, &memory);
            let samples = downloaded(&*driver, &slot);
            check(&data, &samples, &bad);
            assert_eq!(bad, [7], "the file that is cut short");
            prong.source().side_index.as_ref().unwrap().publish();
        }
        assert!(prong.counts().gpu >= 5, "{:?}", prong.counts());
        assert!(prong.kernel_time() > Duration::ZERO);
    }
}

/// A poll ends at its timeout whatever there is to do, and goes on where it was.
#[test]
fn a_poll_without_patience_does_a_little() {
    let data = Data::new(Form::Plain);
    let Some(mut prong) = data.prong(Numerics::Exact) else { return };
    let slot_bytes = MAX_BATCH as usize * data.pipeline(Numerics::Exact).sample_bytes();
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).unwrap();
    let samples: Vec<_> = (0..data.files.len() as u64).map(SampleId).collect();
    let n_samples = samples.len();
    let job =
        Job { id: JobId(1), epoch: EpochIdx(2), batch: BatchIdx(0), samples, need_ns: 0 };
    prong.submit(job, ring.take(Duration::ZERO).unwrap()).unwrap();
    let mut n_polls = 1;
    while let Polled::Nothing = prong.poll(Duration::ZERO).unwrap() {
        n_polls += 1;
        assert!(n_polls < 1000, "it makes no progress");
    }
    assert!(n_polls > 2 * n_samples, "{n_polls} polls: each is described, then made");
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
