//! Files of every format that we read, whole and damaged, have the pixels that Pillow gives them, or
//! are refused as by Pillow: tests/fixtures/pillow/expected.tsv says which, and
//! `scripts/golden-pillow` how it was asked. `scripts/compare-pillow` compares many more.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::Recipe;
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::SampleShape;
use bothends_ops::decode::ImageDecoder;
use bothends_ops::image::Image;
use bothends_ops::kernels::Level;
use bothends_ops::{Pipeline, Scratch};
use twox_hash::XxHash3_128;

const RECIPE: &str = r#"{
    "version": 1, "name": "whole", "numerics": "exact",
    "ops": [{"op": "decode"}, {"op": "resize", "size": [8, 8]}]
}"#;

const SHAPE: SampleShape = SampleShape { height: 8, width: 8, channels: 3 };

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pillow")
}

/// Kinds of files that are refused by name, where Pillow reads them, and how it is said: docs/numerics.md
/// gives the reasons.
const REFUSED: [(&str, &str); 1] =
    [("tiff-whole2-0.tif", "Zstandard-compressed TIFF images are not supported")];

/// Name, bytes and what Pillow says of each file.
fn cases() -> Vec<(String, Vec<u8>, String)> {
    let index = fs::read_to_string(folder().join("expected.tsv")).unwrap();
    let lines = index.lines().filter(|line| !line.starts_with('#'));
    let cases = lines.map(|line| line.split_once('\t').unwrap());
    cases
        .map(|(name, says)| {
            let bytes = fs::read(folder().join(name)).unwrap();
            (name.to_owned(), bytes, says.to_owned())
        })
        .collect()
}

/// What we say of a file, in the words of the index.
fn said(decoder: &mut ImageDecoder, image: &mut Image, bytes: &[u8]) -> String {
    match decoder.decode(Record::new(bytes, Encoding::Image), image) {
        Err(_) => "refused".to_owned(),
        Ok(_) => {
            let (size, digest) = (image.size(), XxHash3_128::oneshot(image.pixels()));
            format!("{}\t{}\t{digest:032x}", size.width, size.height)
        }
    }
}

#[test]
fn every_file_is_as_in_pillow_at_every_level() {
    let cases = cases();
    let mut wrong = Vec::new();
    for level in Level::available() {
        let (mut decoder, mut image) = (ImageDecoder::new(level), Image::default());
        for (name, bytes, says) in &cases {
            if REFUSED.iter().any(|(refused, _)| refused == name) {
                continue;
            }
            let ours = said(&mut decoder, &mut image, bytes);
            if ours != *says {
                wrong.push(format!(
                    "{name} at {}: {ours}, in Pillow {says}",
                    level.name()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_only_pillow_reads_is_refused_by_name() {
    let (mut decoder, mut image) = (ImageDecoder::default(), Image::default());
    for (name, words) in REFUSED {
        let bytes = fs::read(folder().join(name)).unwrap();
        let record = Record::new(&bytes, Encoding::Image);
        let fault = decoder.decode(record, &mut image).unwrap_err().to_string();
        assert!(fault.contains(words), "{name}: {fault}");
    }
}

/// A restart marker where none belongs moves all that follows it: whoever reads the statistics has to
/// learn of it.
#[test]
fn a_stray_restart_marker_is_refused_or_noted() {
    let recipe = Recipe::from_json(RECIPE).unwrap();
    let (pipeline, mut scratch) =
        (Pipeline::new(&recipe, SHAPE.into()), Scratch::default());
    let (key, mut out) = (
        SampleKey { seed: 0, epoch: EpochIdx(0), sample: SampleId(0) },
        vec![0; SHAPE.len()],
    );
    for (name, bytes, _) in
        cases().iter().filter(|(name, ..)| name.contains("stray-restart"))
    {
        let record = Record::new(bytes, Encoding::Image);
        let is_read = pipeline.run(&mut scratch, key, record, &mut out).is_ok();
        assert!(!is_read || scratch.damage().is_some(), "{name} is read in silence");
    }
}
