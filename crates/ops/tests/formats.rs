//! Images of every format but JPEG have Pillow's pixels, and are refused where Pillow refuses:
//! tests/fixtures/formats/index.json says what Pillow made of each file, of the same with a byte
//! changed and cut short, and `scripts/golden-formats` how it was asked. tests/fixtures/damaged has files
//! on which we disagreed once (`scripts/golden-damaged`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use bothends_core::sample::{Encoding, Record};
use bothends_ops::decode::ImageDecoder;
use bothends_ops::image::Image;
use bothends_ops::{OpsError, SampleFault};
use serde_json::Value;

/// Names a variant of a file, and what was done to it.
type Variant = (String, Vec<u8>, Option<u64>);

/// Its size and pixels are those that a case of an index names, or it is refused where that names none.
fn assert_pillows(decoder: &mut ImageDecoder, case: &Value, bytes: &[u8]) {
    let (found, image) = decoded(decoder, bytes);
    let expected: Option<Vec<u64>> =
        serde_json::from_value(case["pixels"].clone()).unwrap();
    let shape = image.shape();
    let found = found.ok().map(|crc| vec![shape.height.into(), shape.width.into(), crc]);
    assert_eq!(found, expected, "{}", case["file"]);
}

#[test]
fn files_of_every_format_have_pillows_pixels() {
    let mut decoder = ImageDecoder::default();
    for case in index() {
        let name = case["file"].as_str().unwrap();
        assert_pillows(&mut decoder, &case, &read(name));
    }
}

/// Symptom: of 20,000 damaged files, some had other pixels than Pillow gives, or only one of us read them.
#[test]
fn files_that_were_judged_differently_have_pillows_pixels() {
    let mut decoder = ImageDecoder::default();
    let folder = folder().join("../damaged");
    let index: Vec<Value> =
        serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap())
            .unwrap();
    for case in index {
        let name = case["file"].as_str().unwrap();
        let bytes = std::fs::read(folder.join(name)).unwrap();
        assert_pillows(&mut decoder, &case, &bytes);
    }
}

#[test]
fn damaged_files_have_pillows_verdict() {
    let mut decoder = ImageDecoder::default();
    let (mut n_opened, mut n_refused, mut wrong) = (0, 0, Vec::new());
    for case in index() {
        for (name, bytes, expected) in variants(&case) {
            match decoded(&mut decoder, &bytes).0 {
                Ok(crc) if Some(crc) == expected => n_opened += 1,
                Ok(_) => wrong.push(format!("{name}: opened, {expected:?}")),
                // A kind that is refused by name may come out of a changed tag.
                Err(SampleFault::Unsupported { .. }) if name.contains(".tif") => {}
                Err(_) if expected.is_none() => n_refused += 1,
                Err(fault) => wrong.push(format!("{name}: {fault}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_opened > 300 && n_refused > 300, "{n_opened} opened, {n_refused} refused");
}

fn variants(case: &Value) -> Vec<Variant> {
    let name = case["file"].as_str().unwrap();
    let file = read(name);
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let changes = case["changes"].as_array().unwrap().iter().map(|change| {
        let (at, value) = (number(&change[0]), number(&change[1]));
        let mut bytes = file.clone();
        bytes[at] = u8::try_from(value).unwrap();
        (format!("{name}, byte {at} = {value}"), bytes, change[2].as_u64())
    });
    let cuts = case["cuts"].as_array().unwrap().iter().map(|cut| {
        let end = number(&cut[0]);
        (
            format!("the first {end} bytes of {name}"),
            file[..end].to_vec(),
            cut[1].as_u64(),
        )
    });
    changes.chain(cuts).collect()
}

/// The CRC-32 of the pixels.
fn decoded(
    decoder: &mut ImageDecoder,
    bytes: &[u8],
) -> (Result<u64, SampleFault>, Image) {
    let mut image = Image::default();
    let record = Record::new(bytes, Encoding::Image);
    let crc = match decoder.decode(record, &mut image) {
        Ok(()) => Ok(crc32fast::hash(image.pixels()).into()),
        Err(OpsError::BadSample(fault)) => Err(fault),
        Err(error) => panic!("{error}"),
    };
    (crc, image)
}

fn index() -> Vec<Value> {
    serde_json::from_slice(&read("index.json")).unwrap()
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/formats")
}

/// Symptom: TIFF's default, all rows in one strip, is refused where a writer has put it down.
#[test]
fn a_default_that_is_written_out_is_no_size() {
    let tiff = |rows_per_strip: u32| {
        // YCbCr of 2 x 2 pixels that share their chroma, PackBits.
        let tags: [(u16, u16, u32, u32); 10] = [
            (256, 3, 1, 2),
            (257, 3, 1, 2),
            (258, 3, 3, 134),
            (259, 3, 1, 32773),
            (262, 3, 1, 6),
            (273, 4, 1, 140),
            (277, 3, 1, 3),
            (278, 4, 1, rows_per_strip),
            (279, 4, 1, 7),
            (530, 3, 2, 2 | 2 << 16),
        ];
        let mut bytes = b"II*\0\x08\0\0\0\x0a\0".to_vec();
        for (tag, kind, n, value) in tags {
            bytes.extend([tag, kind].map(u16::to_le_bytes).concat());
            bytes.extend([n, value].map(u32::to_le_bytes).concat());
        }
        bytes.extend([0, 0, 0, 0]);
        bytes.extend([8_u16, 8, 8].map(u16::to_le_bytes).concat());
        bytes.extend([5, 10, 60, 120, 240, 100, 180]);
        bytes
    };
    let mut decoder = ImageDecoder::default();
    let mut pixels = |rows| decoded(&mut decoder, &tiff(rows)).0;
    let plain = pixels(2).unwrap();
    assert_eq!(pixels(u32::MAX).unwrap(), plain);
    assert!(pixels(0x7fff_ffff).is_err());
}
