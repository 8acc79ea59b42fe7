//! Samples are the host's, from a store and from plain JPEGs, whatever the picture, the crop, the
//! recipe and the order of threads.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod support;

use std::time::{Duration, Instant};

use bothends_core::recipe::{Decision, Interpolation, Numerics, Size};
use bothends_core::sample::{Encoding, Record};
use bothends_gpu_decode::{Batch, Limits, NotHere, Placed};
use bothends_ops::jpeg::{Opened, ScanNote};
use bothends_ops::resample::FirstPass;
use bothends_ops::resize::Crop;
use bothends_ops::{Pipeline, Scratch};

use serde_json::json;

use support::made::{Made, made};
use support::{
    Gpu, Image, LIMITS, SMALL, changed, fixtures, key, note_of, photographs, pipeline,
};

/// Crops of pictures in one batch, and what the host makes of them.
struct Case {
    batch: Batch,
    pipeline: Pipeline,
    /// Blocks in which the files are read.
    block: usize,
    upload: Vec<u8>,
    need: Vec<u8>,
    names: Vec<String>,
}

impl Case {
    fn new(size: Size, numerics: Numerics, interpolation: Interpolation) -> Self {
        Self {
            batch: Batch::new(size, numerics, LIMITS),
            pipeline: pipeline(size, numerics, interpolation),
            block: 1,
            upload: Vec::new(),
            need: Vec::new(),
            names: Vec::new(),
        }
    }

    fn place(&mut self, placed: &Placed, record: &[u8]) {
        let bytes = usize::try_from(placed.bytes.start).unwrap()
            ..usize::try_from(placed.bytes.end).unwrap();
        self.upload.resize(placed.at as usize, 0xEE);
        self.upload.extend_from_slice(&record[bytes]);
    }

    /// Adds a crop of `file`, from a store or as it is; false where the kernels have no such form.
    fn add(&mut self, name: &str, file: &[u8], n: u64) -> bool {
        let Ok(opened) = Opened::new(file) else { return false };
        let crop =
            self.pipeline.only_crop_of(key(n), opened.size(), &mut Decision::default());
        let crop = crop.unwrap().unwrap();
        // Records that begin anywhere.
        self.batch.read_by(777 * self.names.len() as u64, self.block);
        let added = [self.add_stored(file, &crop), self.add_jpeg(file, &crop)];
        for (what, is_added) in ["store", "file"].into_iter().zip(added) {
            if is_added {
                let mut sample = vec![0; self.pipeline.sample_bytes()];
                let record = Record::new(file, Encoding::Image);
                self.pipeline
                    .run(&mut Scratch::default(), key(n), record, &mut sample)
                    .unwrap();
                self.need.extend(sample);
                self.names.push(format!("{what} {name}, key {n}"));
            }
        }
        added[1]
    }

    fn add_stored(&mut self, file: &[u8], crop: &Crop) -> bool {
        let Some(image) = Image::of(file) else { return false };
        let row = u32::try_from(self.batch.len()).unwrap();
        match self.batch.add_stored(row, image.blocks(), crop) {
            Ok(placed) => self.place(&placed, &image.packed.groups),
            Err(NotHere::FourInks | NotHere::OtherResize) => return false,
            Err(why) => panic!("{why}"),
        }
        true
    }

    fn add_jpeg(&mut self, file: &[u8], crop: &Crop) -> bool {
        let note = note_of(file);
        let Some(note) = ScanNote::read(&note) else { return false };
        let row = u32::try_from(self.batch.len()).unwrap();
        let len = u32::try_from(file.len()).unwrap();
        match self.batch.add_jpeg(row, (&note, len), crop) {
            Ok(placed) => self.place(&placed, file),
            Err(NotHere::OtherResize) => return false,
            Err(why) => panic!("{why}"),
        }
        true
    }

    /// All samples are right; how many there were.
    fn check(self, gpu: &mut Gpu) -> usize {
        let Self { batch, pipeline, upload, need, names, .. } = self;
        let (got, status) = gpu.run(&batch, upload, names.len());
        let len = pipeline.sample_bytes();
        let samples = got.chunks(len).zip(need.chunks(len));
        for ((status, name), (got, need)) in status.iter().zip(&names).zip(samples) {
            assert!(status.is_made(), "{name}: {status:?}");
            let wrong = got.iter().zip(need).position(|(a, b)| a != b);
            assert_eq!(
                wrong,
                None,
                "{name}, {:?}: the first wrong byte",
                batch.numerics()
            );
        }
        names.len()
    }
}

fn every_kind() -> impl Iterator<Item = (Numerics, Interpolation)> {
    [Numerics::Exact, Numerics::Planar].into_iter().flat_map(|numerics| {
        [Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Nearest]
            .map(|interpolation| (numerics, interpolation))
    })
}

#[test]
fn fixtures_and_odd_files() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    let files: Vec<_> = fixtures().into_iter().chain(made()).collect();
    for (nth, (numerics, interpolation)) in every_kind().enumerate() {
        for size in [SMALL, Size { height: 7, width: 9 }] {
            let mut case = Case::new(size, numerics, interpolation);
            // Bytes then begin anywhere in an upload, too.
            case.block = if nth % 2 == 0 { 1 } else { 512 };
            let n_described = files
                .iter()
                .filter(|(name, file)| case.add(name, file, u64::try_from(nth).unwrap()))
                .count();
            assert!(n_described >= 80, "only {n_described} files have notes");
            let n = case.check(&mut gpu);
            assert!(n >= 160, "only {n} samples");
        }
    }
}

/// In Pillow 13's numerics the kernels make the boxes whose rows come first; the host makes the rest,
/// and whatever has a filter that the kernels lack.
#[test]
fn boxes_whose_columns_come_first_are_left_to_the_host() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    let pictures = fixtures();
    let mut case = Case::new(SMALL, Numerics::Exact13, Interpolation::Bilinear);
    let mut n_left = 0;
    for (name, file) in &pictures {
        let Ok(opened) = Opened::new(file) else { continue };
        for n in 0..4 {
            let decided = &mut Decision::default();
            let crop = case.pipeline.only_crop_of(key(n), opened.size(), decided);
            let is_left = crop.unwrap().unwrap().ordered().first == FirstPass::Columns;
            let before = case.names.len();
            case.add(name, file, n);
            assert!(!is_left || case.names.len() == before, "{name}, key {n}");
            n_left += u32::from(is_left);
        }
    }
    assert!(n_left > 3, "{n_left}");
    assert!(case.check(&mut gpu) > 50);
    let mut case = Case::new(SMALL, Numerics::Exact13, Interpolation::Lanczos);
    assert!(pictures.iter().all(|(name, file)| !case.add(name, file, 0)));
    assert!(case.batch.is_empty());
}

/// A kernel that lacks a barrier makes other samples when threads come in another order.
#[test]
fn the_order_of_threads_does_not_matter() {
    for seed in [1, 2] {
        let Some(mut gpu) = Gpu::new(seed) else { return };
        for numerics in [Numerics::Exact, Numerics::Planar] {
            let mut case = Case::new(SMALL, numerics, Interpolation::Bilinear);
            for (name, file) in fixtures() {
                case.add(&name, &file, seed);
            }
            assert!(case.check(&mut gpu) >= 60);
        }
    }
}

/// A block's memory ends between whole boxes of 3,064 and 3,072 columns: one more of either form of tile.
#[test]
fn wide_boxes_stay_within_the_memory_of_a_block() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    for width in [1784_u16, 1792, 1800, 3056, 3064, 3065, 3072, 3080] {
        for numerics in [Numerics::Exact, Numerics::Planar] {
            let mut case = Case::new(SMALL, numerics, Interpolation::Bilinear);
            let whole = f64::from(width) / 16.0;
            let parameters = [
                ("size", json!([SMALL.height, SMALL.width])),
                ("scale", json!([1.0, 1.0])),
                ("ratio", json!([whole, whole])),
            ];
            case.pipeline = changed(numerics, &parameters);
            let factors = &[[1, 1]];
            let made = Made { size: [16, width], factors, restart_interval: 0, step: 9 };
            assert!(case.add(&format!("{width} columns"), &made.file(), 0));
            let size = Size { height: 16, width: width.into() };
            let crop = case.pipeline.only_crop_of(key(0), size, &mut Decision::default());
            let part = crop.unwrap().unwrap().part;
            assert_eq!((part.left, part.width), (0, size.width));
            assert_eq!(case.check(&mut gpu), 2);
        }
    }
}

/// As many crops of photographs as a minute allows.
#[test]
fn photographs_at_their_real_size() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    let Some(files) = photographs() else { return };
    let began = Instant::now();
    let size = Size { height: 224, width: 224 };
    let mut n = 0;
    for (nth, files) in (0..).zip(files.chunks(5)) {
        if began.elapsed() > Duration::from_secs(60) {
            break;
        }
        let numerics = if nth % 3 == 2 { Numerics::Planar } else { Numerics::Exact };
        let mut case = Case::new(size, numerics, Interpolation::Bilinear);
        for (name, file) in files {
            case.add(name, file, nth);
        }
        n += case.check(&mut gpu);
    }
    println!("{n} crops of photographs are the host's");
    assert!(n >= 10, "only {n} crops");
}

/// What does not fit leaves no trace.
#[test]
fn a_full_batch_takes_no_more_and_is_as_before() {
    let Some(mut gpu) = Gpu::new(0) else { return };
    let (_, file) =
        fixtures().into_iter().find(|(name, _)| name == "420-48x64.jpg").unwrap();
    for limits in [
        Limits { input_bytes: 20_000, ..LIMITS },
        Limits { scratch_bytes: 200_000, ..LIMITS },
    ] {
        let mut case = Case::new(SMALL, Numerics::Exact, Interpolation::Bilinear);
        case.batch = Batch::new(SMALL, Numerics::Exact, limits);
        let image = Image::of(&file).unwrap();
        let crop = case.pipeline.only_crop_of(
            key(0),
            image.packed.size,
            &mut Decision::default(),
        );
        let crop = crop.unwrap().unwrap();
        let mut n = 0;
        let why = loop {
            match case.batch.add_stored(n, image.blocks(), &crop) {
                Ok(placed) => case.place(&placed, &image.packed.groups),
                Err(why) => break why,
            }
            n += 1;
        };
        assert_eq!(why, NotHere::NoRoom);
        assert!(n > 0 && case.batch.len() == n as usize);
        assert!(case.batch.input_bytes() <= limits.input_bytes as usize);
        assert!(case.batch.scratch_bytes() <= limits.scratch_bytes);
        let mut sample = vec![0; case.pipeline.sample_bytes()];
        let record = Record::new(&file, Encoding::Image);
        case.pipeline.run(&mut Scratch::default(), key(0), record, &mut sample).unwrap();
        case.need = sample.repeat(n as usize);
        case.names = (0..n).map(|row| format!("row {row}")).collect();
        case.check(&mut gpu);
    }
}
