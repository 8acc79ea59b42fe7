//! What the tests share: pictures, packed and not, crops of them made by the host, and a decoder on
//! the CPU twin of the kernels with guard bytes round everything that it may write.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(unsafe_code, reason = "launches kernels and copies, as a driver's user does")]
#![allow(clippy::print_stderr, reason = "whoever runs tests is told what was skipped")]

pub mod made;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bothends_core::blocks::{Blocks, Head, Profile};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Interpolation, Numerics, Recipe, RecordShape, Size};
use bothends_core::sample::SampleKey;
use bothends_gpu::GpuError;
use bothends_gpu::driver::{Address, Driver};
use bothends_gpu::twin::Twin;
use bothends_gpu_decode::{Batch, GpuDecoder, Limits, Status};
use bothends_ops::Pipeline;
use bothends_ops::jpeg::{Chroma, Decoder, Opened, Packed, Packer, Region};
use bothends_slots::Slot;

/// Rows and columns of samples, small: the twin makes one in tens of milliseconds.
pub const SMALL: Size = Size { height: 40, width: 44 };

/// Memory enough for what the tests decode.
pub const LIMITS: Limits = Limits { input_bytes: 64 << 20, scratch_bytes: 64 << 20 };

/// Every file of a folder of `tests/fixtures` that is a JPEG.
pub fn fixtures() -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ops");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jpg"));
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.into_iter().map(|path| (name(&path), fs::read(path).unwrap())).collect()
}

/// Photographs, where `BOTHENDS_TEST_DATA` names a folder with imagenet-500.tar.
pub fn photographs() -> Option<Vec<(String, Vec<u8>)>> {
    let Some(folder) = std::env::var_os("BOTHENDS_TEST_DATA") else {
        eprintln!("skipped: BOTHENDS_TEST_DATA names no folder with imagenet-500.tar");
        return None;
    };
    let tar = fs::read(Path::new(&folder).join("imagenet-500.tar")).unwrap();
    let text = |field: &[u8]| {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        String::from_utf8(field[..end].to_vec()).unwrap()
    };
    let (mut files, mut at) = (Vec::new(), 0);
    while tar.len() - at >= 512 && tar[at] != 0 {
        let header = &tar[at..at + 512];
        let len = usize::from_str_radix(text(&header[124..136]).trim(), 8).unwrap();
        if matches!(header[156], b'0' | 0) {
            files.push((text(&header[..100]), tar[at + 512..][..len].to_vec()));
        }
        at += 512 + len.next_multiple_of(512);
    }
    Some(files)
}

/// The note that decoding a file leaves; empty of those that have none, or that are no pictures.
pub fn note_of(file: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::default();
    let Ok(opened) = Opened::new(file) else { return Vec::new() };
    let region = Region::whole(opened.size());
    let _ = decoder.decode(opened, &region, Chroma::Upsampled, None);
    decoder.entry_points().to_vec()
}

/// A packed picture.
pub struct Image {
    pub packed: Packed,
    head: Vec<u8>,
}

impl Image {
    /// `None` for files that are not packed.
    pub fn of(file: &[u8]) -> Option<Self> {
        let mut remainder = Vec::new();
        let mut decoder = Decoder::default();
        let packed = Packer::default().pack(&mut decoder, file, &mut remainder)?;
        let head = packed.lengths.head(packed.size, 0, packed.row_lengths).unwrap();
        Some(Self { packed, head })
    }

    pub fn blocks(&self) -> Blocks<'_> {
        let profile = Profile::read(&self.packed.profile).unwrap();
        Blocks::new(profile, Head::read(&self.head).unwrap()).unwrap()
    }
}

/// A part of bytes.
pub fn part<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    let place = |at: u64| usize::try_from(at).unwrap();
    &bytes[place(range.start)..place(range.end)]
}

/// A recipe that begins with a random crop and a flip, to samples of `size`.
pub fn pipeline(
    size: Size,
    numerics: Numerics,
    interpolation: Interpolation,
) -> Pipeline {
    let interpolation = serde_json::to_value(interpolation).unwrap();
    let size = serde_json::json!([size.height, size.width]);
    changed(numerics, &[("interpolation", interpolation), ("size", size)])
}

/// The same with other parameters of the crop.
pub fn changed(numerics: Numerics, parameters: &[(&str, serde_json::Value)]) -> Pipeline {
    let recipe = Recipe::builtin("imagenet-train").unwrap();
    let mut recipe = serde_json::to_value(recipe).unwrap();
    for (name, value) in parameters {
        recipe["ops"][1][name] = value.clone();
    }
    let recipe = Recipe::from_json(&recipe.to_string()).unwrap().with_numerics(numerics);
    Pipeline::new(&recipe, recipe.views(RecordShape::Image).unwrap())
}

pub fn key(n: u64) -> SampleKey {
    SampleKey { seed: 7, epoch: EpochIdx(3), sample: SampleId(n) }
}

/// What is in a slot of the device's memory.
pub fn downloaded(driver: &dyn Driver, slot: &Slot) -> Vec<u8> {
    let at = Address(slot.device_address().expect("a device slot"));
    let mut bytes = vec![0; slot.len()];
    let stream = driver.create_stream().unwrap();
    // SAFETY: the slot is as long, and the twin has done it when it returns.
    unsafe { driver.download(&mut bytes, at, stream) }.unwrap();
    bytes
}

const GUARD: usize = 4096;
const GUARD_BYTE: u8 = 0x5C;

/// The kernels on the CPU.
pub struct Gpu {
    driver: Arc<Twin>,
    decoder: GpuDecoder,
}

impl Gpu {
    /// With threads in the order that `seed` gives; `None` without a C++ compiler.
    pub fn new(seed: u64) -> Option<Self> {
        let twin = match Twin::compiled() {
            Ok(twin) => twin.with_order(seed),
            Err(GpuError::Unavailable { why }) => {
                eprintln!("skipped: {why}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let driver = Arc::new(twin);
        let decoder = GpuDecoder::new(driver.clone(), LIMITS.scratch_bytes).unwrap();
        Some(Self { driver, decoder })
    }

    /// Runs the kernels over a batch whose data lie in `upload`: the samples, row by row, and what
    /// became of each crop.
    pub fn run(
        &mut self,
        batch: &Batch,
        mut upload: Vec<u8>,
        n_rows: usize,
    ) -> (Vec<u8>, Vec<Status>) {
        let size = batch.size();
        let sample = 3 * (size.height * size.width) as usize;
        upload.resize(batch.input_bytes(), 0);
        batch.write_descriptions(&mut upload);
        let stream = self.driver.create_stream().unwrap();
        let input = self.driver.allocate(upload.len()).unwrap();
        let out_bytes = GUARD + n_rows * sample + GUARD;
        let output = self.driver.allocate(out_bytes).unwrap();
        let mut out = vec![GUARD_BYTE; out_bytes];
        let mut status = vec![0; 4 * batch.len()];
        // SAFETY: `input` is as long; the twin has done it when it returns, here and below.
        unsafe { self.driver.upload(input, &upload, stream) }.unwrap();
        // SAFETY: `output` is as long.
        unsafe { self.driver.upload(output, &out, stream) }.unwrap();
        let samples = output.after(GUARD);
        // SAFETY: the input was just uploaded, and there is room for every row.
        unsafe { self.decoder.decode(batch, input, samples, stream) }.unwrap();
        // SAFETY: `output` is as long.
        unsafe { self.driver.download(&mut out, output, stream) }.unwrap();
        let from = self.decoder.status_at(batch);
        // SAFETY: the decoder has a word for every crop.
        unsafe { self.driver.download(&mut status, from, stream) }.unwrap();
        for address in [input, output] {
            // SAFETY: allocated above, and all work on it is done.
            unsafe { self.driver.free(address) };
        }
        let (before, rest) = out.split_at(GUARD);
        let (samples, behind) = rest.split_at(n_rows * sample);
        assert!(
            [before, behind].iter().all(|g| g.iter().all(|b| *b == GUARD_BYTE)),
            "written outside"
        );
        let status =
            status.as_chunks::<4>().0.iter().map(|s| Status(u32::from_le_bytes(*s)));
        (samples.to_vec(), status.collect())
    }
}
