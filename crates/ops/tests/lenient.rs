//! JPEG files that are damaged or odd: Pillow's pixels (`scripts/golden-lenient`), or its refusal,
//! whichever way they are decoded, and never in silence.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Recipe, Size, Truncated};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::SampleShape;
use bothends_ops::decode::ImageDecoder;
use bothends_ops::image::Image;
use bothends_ops::jpeg::{Chroma, Decoder, EntryPoints, Opened, Packer, Region};
use bothends_ops::kernels::Level;
use bothends_ops::{Pipeline, Scratch};
use serde::Deserialize;
use twox_hash::XxHash3_64;

/// Width, height and digest of the RGB bytes.
type Pixels = Option<(u32, u32, String)>;

#[derive(Deserialize)]
struct Said {
    refuse: Pixels,
    fill: Pixels,
}

fn fixtures(folder: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(folder)
}

fn file(folder: &str, name: &str) -> Vec<u8> {
    std::fs::read(fixtures(folder).join(format!("{name}.jpg"))).unwrap()
}

fn goldens() -> BTreeMap<String, Said> {
    let index = std::fs::read(fixtures("lenient").join("index.json")).unwrap();
    serde_json::from_slice(&index).unwrap()
}

fn decoded(bytes: &[u8], truncated: Truncated, level: Level) -> (Pixels, bool) {
    let mut decoder = ImageDecoder::new(level).with_truncated(truncated);
    let mut image = Image::default();
    let outcome = decoder.decode(Record::new(bytes, Encoding::Image), &mut image);
    let Size { height, width } = image.size();
    let digest = format!("{:016x}", XxHash3_64::oneshot(image.pixels()));
    (outcome.ok().map(|()| (width, height, digest)), decoder.damage().is_some())
}

#[test]
fn damaged_and_odd_files_have_the_pixels_of_pillow() {
    for (name, said) in goldens() {
        let bytes = file("lenient", &name);
        for level in [Level::of_process(), Level::Scalar] {
            let (refusing, is_damaged) = decoded(&bytes, Truncated::Refuse, level);
            assert_eq!(refusing, said.refuse, "{name}");
            let is_whole =
                ["arithmetic", "arithmetic-progressive", "arithmetic-restarts"];
            // Nobody can tell that some bits are not those that were written.
            let is_unnoticed = ["-flip", "-gap"].iter().any(|end| name.ends_with(end));
            let may_be_silent = is_unnoticed || is_whole.contains(&&*name);
            assert!(is_damaged || refusing.is_none() || may_be_silent, "{name}");
            let (filling, _) = decoded(&bytes, Truncated::Fill, level);
            assert_eq!(filling, said.fill, "{name}, filled up");
        }
    }
}

const CROPS: &str = r#"{
    "version": 1, "name": "crops", "numerics": "exact",
    "ops": [
        {"op": "decode"},
        {"op": "random_resized_crop", "size": 9, "scale": [0.01, 1.0], "ratio": [0.2, 5.0]}
    ]
}"#;

/// The verdict does not depend on what part is wanted; the pixels are those of a crop of the whole.
#[test]
fn a_crop_of_a_damaged_file_is_a_crop_of_the_whole() {
    let recipe = Recipe::from_json(CROPS).unwrap();
    let shape = SampleShape { height: 9, width: 9, channels: 3 };
    let pipeline = Pipeline::new(&recipe, shape.into());
    let mut scratch = Scratch::default();
    for (name, said) in goldens() {
        let bytes = file("lenient", &name);
        let record = Record::new(&bytes, Encoding::Image);
        let mut whole = Image::default();
        let mut decoder = ImageDecoder::default();
        let is_good = decoder.decode(record, &mut whole).is_ok();
        assert_eq!(is_good, said.refuse.is_some());
        // The same pixels, planar, so that nothing but the crop is left to be done.
        let planes: Vec<u8> = (0..3)
            .flat_map(|channel| whole.pixels().iter().skip(channel).step_by(3).copied())
            .collect();
        for seed in 0..4 {
            let key = SampleKey { seed, epoch: EpochIdx(0), sample: SampleId(1) };
            let mut sample = [0; 9 * 9 * 3];
            let outcome = pipeline.run(&mut scratch, key, record, &mut sample);
            assert_eq!(outcome.is_ok(), is_good, "{name}");
            let damage = outcome.is_ok().then(|| decoder.damage()).flatten();
            assert_eq!(scratch.damage(), damage, "{name}");
            if !is_good {
                continue;
            }
            let Size { height, width } = whole.size();
            let encoding = Encoding::Planar { height, width, channels: 3 };
            let mut expected = sample;
            let planar = Record::new(&planes, encoding);
            pipeline.run(&mut Scratch::default(), key, planar, &mut expected).unwrap();
            assert_eq!(sample, expected, "{name}");
            if damage.is_some() {
                assert!(scratch.new_entry_points().is_empty(), "{name}");
            }
        }
    }
}

/// Issue: 30 of 30 files with a restart marker where none belongs had other pixels than libjpeg's.
#[test]
fn a_stray_restart_marker_is_never_passed_over() {
    for name in ["420-48x64", "444-progressive", "grey-17x33", "restart-rows"] {
        let good = file("ops", name);
        let whole = Region::whole(Opened::new(&good).unwrap().size());
        let mut decoder = Decoder::default();
        let opened = Opened::new(&good).unwrap();
        decoder.decode(opened, &whole, Chroma::Upsampled, None).unwrap();
        let note = decoder.entry_points().to_vec();
        let scan = good.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap() + 14;
        for at in (scan..good.len() - 4).step_by(7) {
            if good[at - 1] == 0xff {
                continue;
            }
            let marker = [0xff, 0xd0 + u8::try_from(at & 7).unwrap()];
            let mut bytes = good.clone();
            bytes.splice(at..at, marker);
            // The side index knows the file by its length: the marker takes the place of two bytes.
            let mut replaced = good.clone();
            replaced[at..at + 2].copy_from_slice(&marker);
            for (bytes, points) in
                [(&bytes, None), (&replaced, None), (&replaced, EntryPoints::new(&note))]
            {
                let Ok(opened) = Opened::new(bytes) else { continue };
                let outcome = decoder.decode(opened, &whole, Chroma::Upsampled, points);
                assert!(outcome.is_err(), "{name}: {at}");
                let (_, is_damaged) =
                    decoded(bytes, Truncated::Fill, Level::of_process());
                assert!(is_damaged, "{name}: {at}");
            }
        }
    }
}

/// A store keeps the bytes of what only the slow path decodes.
#[test]
fn damaged_files_are_not_packed() {
    let (mut packer, mut decoder) = (Packer::default(), Decoder::default());
    for (name, _) in goldens() {
        let bytes = file("lenient", &name);
        let is_fast = Opened::new(&bytes).is_ok_and(|opened| {
            let whole = Region::whole(opened.size());
            decoder.decode(opened, &whole, Chroma::Upsampled, None).is_ok()
        });
        let packed = packer.pack(&mut decoder, &bytes, &mut Vec::new());
        assert!(packed.is_none() || is_fast, "{name}");
    }
}

/// libjpeg has no bound on scans; each of these takes ten bytes and a pass over the image.
#[test]
fn more_scans_than_an_image_can_have_are_refused() {
    let good = file("ops", "grey-progressive");
    let end = good.len() - 2;
    let scan = [0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0x10];
    for (n_scans, is_accepted) in [(100, true), (40_000, false)] {
        let mut bytes = good[..end].to_vec();
        for _ in 0..n_scans {
            bytes.extend(scan);
        }
        bytes.extend([0xff, 0xd9]);
        let (pixels, _) = decoded(&bytes, Truncated::Refuse, Level::of_process());
        assert_eq!(pixels.is_some(), is_accepted, "{n_scans} scans");
    }
}

/// A grey image of 64 x 5200 pixels, arithmetic-coded, with restarts and a digit of noise for each byte.
/// libjpeg cannot wait for the second piece of such a file.
fn arithmetic_in_pieces(factors: u8) -> Vec<u8> {
    let mut file = b"\xff\xd8\xff\xdb\0\x43\0".to_vec();
    file.extend([1; 64]);
    file.extend([0xff, 0xc9, 0, 11, 8, 0x14, 0x50, 0, 64, 1, 1, factors, 0]);
    file.extend([0xff, 0xdd, 0, 4, 0, 8]);
    file.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0]);
    for row in 0..650_u32 {
        let mut noise = row * 7 + 1;
        file.extend((0..201).map(|_| {
            noise = (noise * 75 + 74) % 65_537;
            u8::try_from(noise % 251).unwrap()
        }));
        file.extend([0xff, 0xd0 | u8::try_from(row & 7).unwrap()]);
    }
    let end = file.len() - 1;
    file[end] = 0xd9;
    file
}

/// The rows that Pillow 13.0 has of it, with `LOAD_TRUNCATED_IMAGES`.
#[test]
fn a_lone_component_has_the_rows_of_its_factors() {
    let mut decoder = ImageDecoder::default().with_truncated(Truncated::Fill);
    let mut image = Image::default();
    for (factors, n_rows) in [
        (0x11, 2584),
        (0x22, 2576),
        (0x12, 2576),
        (0x21, 2584),
        (0x14, 2560),
        (0x33, 2568),
    ] {
        let bytes = arithmetic_in_pieces(factors);
        decoder.decode(Record::new(&bytes, Encoding::Image), &mut image).unwrap();
        let mut rows = image.pixels().chunks_exact(64 * 3);
        let last = rows.rposition(|row| row.iter().any(|value| *value != 0));
        assert_eq!(last.map(|last| last + 1), Some(n_rows), "{factors:#x}");
    }
}
