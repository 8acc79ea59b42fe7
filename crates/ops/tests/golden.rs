//! Pixels are Pillow's, bit for bit: tests/fixtures/ops/index.json says what Pillow made
//! of every case, resize-12.json and resize-13.json what each version makes of resizes, and
//! `scripts/golden-resize` how they were asked.
//!
//! Real images are checked too where `BOTHENDS_TEST_DATA` names a folder with
//! imagenet-500.tar.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::cast_possible_truncation, reason = "the formulas are modulo 256")]

mod archive;

use std::path::{Path, PathBuf};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::{Interpolation, Numerics, Recipe, RecordShape, Size};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape};
use bothends_ops::decode::decode;
use bothends_ops::image::Image;
use bothends_ops::kernels::Level;
use bothends_ops::resample::Target;
use bothends_ops::resize::{Crop, Resizer};
use bothends_ops::{Finish, OpsError, Pipeline, Scratch};
use serde_json::Value;

/// What the index puts before its keys for each.
const INTERPOLATIONS: [(&str, Interpolation); 3] = [
    ("", Interpolation::Bilinear),
    ("bicubic_", Interpolation::Bicubic),
    ("nearest_", Interpolation::Nearest),
];

#[test]
fn resize_is_pillows() {
    let mut resizer = Resizer::default();
    for (prefix, interpolation) in INTERPOLATIONS {
        for case in cases(&format!("{prefix}resize")) {
            let source = picture(&case);
            let [height, width] = numbers(&case["to"]);
            let mut crop = whole(&case, Size { height, width });
            crop.target.interpolation = interpolation;
            let mut out = Image::default();
            resizer.crop(source.view(), &crop, &mut out);
            assert_pillows(&out, &case);
        }
    }
}

/// What is said of each Pillow, and the numerics that are its.
const VERSIONS: [(&str, Numerics); 2] =
    [("resize-12.json", Numerics::Exact), ("resize-13.json", Numerics::Exact13)];

#[test]
fn every_filter_is_that_of_each_pillow_at_every_level() {
    for (file, numerics) in VERSIONS {
        let index = index(file);
        let filters = filters(&index);
        for level in Level::available() {
            let mut resizer = Resizer::new(level);
            for case in index["resize"].as_array().unwrap().iter().step_by(every_nth()) {
                let source = picture(case);
                assert_filtered(&mut resizer, &source, (&filters, numerics), case);
            }
        }
    }
}

/// Of many cases one in so many is tried: all, but where an emulated processor takes minutes for them.
fn every_nth() -> usize {
    let given = std::env::var("BOTHENDS_EVERY_NTH").ok();
    given.and_then(|nth| nth.parse().ok()).unwrap_or(1)
}

/// The two differ, else nothing above would show that they are told apart.
#[test]
fn the_two_pillows_differ_where_columns_come_first() {
    let [twelve, thirteen] = VERSIONS.map(|(file, _)| index(file));
    let pairs = || {
        let [twelve, thirteen] =
            [&twelve, &thirteen].map(|index| index["resize"].as_array().unwrap().iter());
        twelve.zip(thirteen)
    };
    assert!(pairs().all(|(a, b)| (&a["box"], &a["to"]) == (&b["box"], &b["to"])));
    let differ = pairs().filter(|(a, b)| a["crc32"] != b["crc32"]).count();
    assert!(differ > 50, "{differ}");
}

#[test]
fn real_images_are_those_of_each_pillow() {
    let Some(tar) = archive::real_images() else { return };
    let files = archive::files(&tar);
    for (file, numerics) in VERSIONS {
        let index = index(file);
        let filters = filters(&index);
        let mut resizer = Resizer::default();
        let real = index["real"].as_array().unwrap();
        for case in real.iter().step_by(every_nth()) {
            let name = case["file"].as_str().unwrap();
            let (_, bytes) = files.iter().find(|(file, _)| file == name).unwrap();
            let image = decoded(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_filtered(&mut resizer, &image, (&filters, numerics), case);
        }
        println!("{file}: {} real images with {} filters", real.len(), filters.len());
        assert_eq!(real.len(), files.len());
    }
}

/// The filters in the order of a case's checksums.
fn filters(index: &Value) -> Vec<Interpolation> {
    serde_json::from_value(index["filters"].clone()).unwrap()
}

fn assert_filtered(
    resizer: &mut Resizer,
    source: &Image,
    (filters, numerics): (&[Interpolation], Numerics),
    case: &Value,
) {
    let to = &case["to"];
    let [height, width] = if to.is_null() { [224, 224] } else { numbers(to) };
    let mut out = Image::default();
    for (&interpolation, crc) in filters.iter().zip(case["crc32"].as_array().unwrap()) {
        let mut crop = whole(case, Size { height, width });
        (crop.numerics, crop.target.interpolation) = (numerics, interpolation);
        resizer.crop(source.view(), &crop, &mut out);
        let ours = u64::from(crc32(out.pixels()));
        assert_eq!(Some(ours), crc.as_u64(), "{numerics:?} {interpolation:?} {case}");
    }
}

#[test]
fn jpeg_pixels_are_pillows() {
    decodes_as_pillow("jpeg");
}

#[test]
fn png_pixels_are_pillows() {
    decodes_as_pillow("png");
}

fn decodes_as_pillow(kind: &str) {
    for case in cases(kind) {
        let bytes = fixture(case["file"].as_str().unwrap());
        let image = decoded(&bytes).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(image.size().height, number(&case["height"]), "{case}");
        assert_eq!(image.size().width, number(&case["width"]), "{case}");
        assert_eq!(image.channels(), 3, "{case}");
        assert_pillows(&image, &case);
        assert_evaluated(&bytes, &case);
    }
}

#[test]
fn a_file_cut_short_anywhere_is_refused_where_pillow_refuses_it() {
    for case in cases("damage") {
        let file = fixture(case["file"].as_str().unwrap());
        assert!(decoded(&file).is_ok(), "{}", case["file"]);
        let accepted = case["cuts_pillow_accepts"].as_array().unwrap();
        for end in 0..file.len() {
            let by_pillow = accepted.contains(&end.into());
            let by_us = match decoded(&file[..end]) {
                Ok(_) => true,
                Err(OpsError::BadSample(_)) => false,
                Err(other) => panic!("{}: {other}", case["file"]),
            };
            assert_eq!(by_us, by_pillow, "{}: its first {end} bytes", case["file"]);
        }
    }
}

#[test]
fn a_flipped_bit_means_what_it_means_to_pillow() {
    let (mut read, mut refused) = (0, 0);
    for case in cases("damage") {
        let file = fixture(case["file"].as_str().unwrap());
        for flip in case["flips"].as_array().unwrap() {
            let bit = flip[0].as_u64().unwrap() as usize;
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let ours = decoded(&damaged).map(|image| u64::from(crc32(image.pixels())));
            let (ours, pillow) = (ours.ok(), flip[1].as_u64());
            assert_eq!(ours, pillow, "{} with bit {bit} flipped", case["file"]);
            read += u32::from(ours.is_some());
            refused += u32::from(ours.is_none());
        }
    }
    assert!(read > 100 && refused > 50, "{read} read, {refused} refused");
}

#[test]
fn finished_elements_are_ieee_arithmetic() {
    let shape = SampleShape { height: 16, width: 16, channels: 1 };
    let recipe = |ops: &str| {
        let json = format!(r#"{{"version": 1, "name": "x", "ops": [{ops}]}}"#);
        Recipe::from_json(&json).unwrap()
    };
    let plain = recipe("");
    let normalised = recipe(r#"{"op": "normalize", "mean": [0.485], "std": [0.229]}"#);
    let bytes: Vec<u8> = (0..=255).collect();
    for case in cases("finish") {
        let dtype = match case["dtype"].as_str().unwrap() {
            "f16" => Dtype::F16,
            "bf16" => Dtype::Bf16,
            _ => Dtype::F32,
        };
        let is_normalised = case["normalised"].as_bool().unwrap();
        let recipe = if is_normalised { &normalised } else { &plain };
        let output = Output { dtype, layout: Layout::Nchw };
        let finish = Finish::new(recipe, &shape.into(), output).unwrap();
        let mut elements = vec![0; finish.sample_bytes()];
        finish.run(None, &bytes, &mut elements);
        assert_eq!(
            u64::from(crc32(&elements)),
            case["crc32"].as_u64().unwrap(),
            "{case}"
        );
    }
}

#[test]
fn real_images_are_pillows() {
    let Some(tar) = archive::real_images() else { return };
    let files = archive::files(&tar);
    let mut resizer = Resizer::default();
    let real = cases("real");
    for case in real.iter().step_by(every_nth()) {
        let name = case["file"].as_str().unwrap();
        let (_, bytes) = files.iter().find(|(file, _)| file == name).unwrap();
        let image = decoded(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_pillows(&image, case);
        let mut crop = whole(case, Size { height: 224, width: 224 });
        for (prefix, interpolation) in INTERPOLATIONS {
            crop.target.interpolation = interpolation;
            let mut out = Image::default();
            resizer.crop(image.view(), &crop, &mut out);
            let expected = case[format!("{prefix}crop_crc32")].as_u64().unwrap();
            assert_eq!(u64::from(crc32(out.pixels())), expected, "{case}");
        }
        assert_evaluated(bytes, case);
    }
    println!("{} real images and crops are Pillow's", real.len());
    assert_eq!(real.len(), files.len());
}

// --- what the script writes, read -------------------------------------------------------

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ops")
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(name)).unwrap()
}

fn index(file: &str) -> Value {
    serde_json::from_slice(&fixture(file)).unwrap()
}

fn cases(kind: &str) -> Vec<Value> {
    let index = index("index.json");
    let cases = index[kind].as_array().unwrap().clone();
    assert!(!cases.is_empty(), "no case of {kind}");
    cases
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

fn numbers<const N: usize>(list: &Value) -> [u32; N] {
    let list: Vec<u32> = list.as_array().unwrap().iter().map(number).collect();
    list.try_into().unwrap()
}

fn decoded(bytes: &[u8]) -> Result<Image, OpsError> {
    let mut image = Image::default();
    decode(Record::new(bytes, Encoding::Image), &mut image)?;
    Ok(image)
}

fn assert_pillows(image: &Image, case: &Value) {
    if let Some(pixels) = case["pixels"].as_str() {
        let ours: String =
            image.pixels().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(ours, pixels, "{case}");
    }
    assert_eq!(
        u64::from(crc32(image.pixels())),
        case["crc32"].as_u64().unwrap(),
        "{case}"
    );
}

/// A case's box, resized to `size`.
fn whole(case: &Value, size: Size) -> Crop {
    let [top, left, height, width] = numbers(&case["box"]);
    let part = CropBox { top, left, height, width };
    Crop { part, target: Target::whole(size), numerics: Numerics::Exact }
}

/// The recipe `imagenet-eval` as a whole, and what it would be with other interpolations, against
/// Pillow with torchvision's arithmetic.
fn assert_evaluated(bytes: &[u8], case: &Value) {
    for (prefix, interpolation) in INTERPOLATIONS {
        let expected = case[format!("{prefix}eval_crc32")].as_u64().unwrap();
        assert_eq!(evaluated(bytes, interpolation), expected, "{prefix}{case}");
    }
}

fn evaluated(bytes: &[u8], interpolation: Interpolation) -> u64 {
    let mut recipe =
        serde_json::to_value(Recipe::builtin("imagenet-eval").unwrap()).unwrap();
    recipe["ops"][1]["interpolation"] = serde_json::to_value(interpolation).unwrap();
    let recipe = Recipe::from_json(&recipe.to_string()).unwrap();
    let pipeline = Pipeline::new(&recipe, recipe.views(RecordShape::Image).unwrap());
    let key = SampleKey { seed: 0, epoch: EpochIdx(0), sample: SampleId(0) };
    let record = Record::new(bytes, Encoding::Image);
    let mut sample = vec![0; pipeline.sample_bytes()];
    pipeline.run(&mut Scratch::default(), key, record, &mut sample).unwrap();
    u64::from(crc32(&sample))
}

/// CRC-32 as zlib counts it, bit by bit through a table of bytes.
fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    });
    !bytes.iter().fold(!0, |crc, &byte| table[(crc as u8 ^ byte) as usize] ^ crc >> 8)
}

/// The script's pictures: the same integer formulas.
fn picture(case: &Value) -> Image {
    let [height, width, channels] =
        ["height", "width", "channels"].map(|key| number(&case[key]));
    let mut image = Image::default();
    let pixels = image.reshape(Size { height, width }, channels);
    let mut state: u32 = 1;
    for (i, byte) in (0..).zip(pixels) {
        let (y, x, c) = (i / channels / width, i / channels % width, i % channels);
        *byte = match case["pattern"].as_str().unwrap() {
            "noise" => {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            }
            "gradient" => ((3 * x + 2 * y + 85 * c + ((x * y) >> 4)) / 2 % 256) as u8,
            "edges" => 255 * u8::from(((x * 7 / 5) ^ (y * 5 / 7)) % (5 + c) < 2),
            other => panic!("no such pattern: {other}"),
        };
    }
    image
}
