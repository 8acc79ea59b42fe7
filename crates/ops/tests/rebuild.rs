//! JPEG files taken apart and put together again: byte for byte, or refused in words.
//!
//! The files are other encoders': libjpeg-turbo's by way of Pillow (tests/fixtures/ops), this
//! project's generator's, and photographs where `BOTHENDS_TEST_DATA` names a folder with
//! imagenet-500.tar. That any coefficients come back is shown next to the code.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod archive;

use std::path::{Path, PathBuf};

use bothends_ops::SampleFault;
use bothends_ops::jpeg::rebuild::{Parts, put_together, take_apart};
use bothends_ops::jpeg::{Chroma, Decoder, Opened, Region};
use bothends_ops::kernels::Level;
use bothends_samples::{GenerateConfig, generate};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use twox_hash::XxHash3_64;

fn fixtures() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ops");
    let mut files = jpegs(&folder);
    files.sort();
    files
}

fn fixture(name: &str) -> Vec<u8> {
    fixtures().into_iter().find(|(file, _)| file == name).unwrap().1
}

/// Names and contents of the `.jpg` files below a folder.
fn jpegs(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_path = |path: PathBuf| {
        if path.is_dir() {
            return jpegs(&path);
        }
        let is_jpeg = path.extension().is_some_and(|kind| kind == "jpg");
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if is_jpeg { vec![(name, std::fs::read(&path).unwrap())] } else { vec![] }
    };
    paths.flat_map(of_path).collect()
}

fn apart(file: &[u8]) -> Option<Parts> {
    let mut parts = Parts::default();
    take_apart(&mut Decoder::default(), file, &mut parts)?;
    Some(parts)
}

fn together(parts: &Parts) -> Result<Vec<u8>, SampleFault> {
    let together = |level| {
        let mut out = Vec::new();
        put_together(level, &parts.coefficients, &parts.remainder, &mut out).map(|()| out)
    };
    let file = together(Level::Scalar);
    for level in Level::available() {
        let twin = together(level);
        assert!(twin.as_ref().ok() == file.as_ref().ok(), "{level:?} makes another file");
    }
    file
}

/// Whether the file comes back; it must be refused if other bytes would.
fn is_rebuilt(file: &[u8]) -> bool {
    match apart(file).map(|parts| together(&parts)) {
        Some(Ok(bytes)) => {
            assert!(bytes == file, "other bytes than the file's");
            true
        }
        Some(Err(_)) | None => false,
    }
}

#[test]
fn every_sequential_fixture_comes_back() {
    let files = fixtures();
    let kept: Vec<&str> = files
        .iter()
        .filter(|(_, bytes)| !is_rebuilt(bytes))
        .map(|(name, _)| name.as_str())
        .collect();
    let progressive: Vec<&str> = (files.iter().map(|(name, _)| name.as_str()))
        .filter(|name| name.contains("progressive"))
        .collect();
    assert_eq!(kept, progressive);
    assert!(files.len() > 60, "{} files", files.len());
}

/// What is held is used again: the size of one file leaves nothing behind for the next.
#[test]
fn files_of_all_sizes_come_back_one_after_the_other() {
    let (mut decoder, mut parts, mut out) =
        (Decoder::default(), Parts::default(), Vec::new());
    let level = Level::of_process();
    let mut n_rebuilt = 0;
    for (name, file) in fixtures().iter().rev().chain(&fixtures()) {
        if take_apart(&mut decoder, file, &mut parts).is_some() {
            put_together(level, &parts.coefficients, &parts.remainder, &mut out).unwrap();
            assert!(out == *file, "{name}");
            n_rebuilt += 1;
        }
    }
    assert!(n_rebuilt > 100);
}

#[test]
#[cfg_attr(target_os = "wasi", ignore = "the generator wants a temporary folder")]
fn generated_images_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = GenerateConfig { n_images: 12, n_classes: 1, seed: 0 };
    let summary = generate(folder.path(), &config, &mut |_, _| {}).unwrap();
    let n_rebuilt =
        jpegs(folder.path()).iter().filter(|(_, file)| is_rebuilt(file)).count();
    assert_eq!(n_rebuilt, (summary.n_images - summary.n_progressive) as usize);
    assert!(n_rebuilt > 6, "{n_rebuilt}");
}

#[test]
fn photographs_come_back() {
    let Some(tar) = archive::real_images() else { return };
    let files = archive::files(&tar);
    let n_rebuilt = files.iter().filter(|(_, file)| is_rebuilt(file)).count();
    println!("{n_rebuilt} of {} photographs come back byte for byte", files.len());
    assert!(n_rebuilt * 100 >= files.len() * 99);
}

/// What follows the entropy-coded data belongs to the remainder.
#[test]
fn odd_ends_come_back() {
    let restarts = fixture("restart-blocks.jpg");
    let plain = fixture("420-48x64.jpg");
    let with = |file: &[u8], before_end: &[u8], behind: &[u8]| {
        let (data, end) = file.split_at(file.len() - 2);
        [data, before_end, end, behind].concat()
    };
    for (what, file) in [
        ("a restart marker after the last MCU", with(&restarts, &[0xff, 0xd4], &[])),
        ("fill bytes before the end of image", with(&plain, &[0xff; 3], &[])),
        ("a comment before the end", with(&plain, &[0xff, 0xfe, 0, 3, 7], &[])),
        ("a stray byte before the end", with(&plain, &[0x55], &[])),
        ("anything behind the end", with(&plain, &[], b"\xff\xd8trailer\xff\xd9")),
        ("a restart interval for no scan", with(&plain, &[0xff, 0xdd, 0, 4, 0, 1], &[])),
    ] {
        assert!(is_rebuilt(&file), "{what}");
    }
}

/// Zeros fill up the last byte where an encoder likes that better.
#[test]
fn other_fill_bits_come_back() {
    let mut n_rebuilt = 0;
    for (name, file) in fixtures() {
        let Some(parts) = apart(&file) else { continue };
        let end_len = parts.remainder.len() - 20 - u32_at(&parts.remainder, 4) as usize;
        let last = file.len() - end_len - 1;
        for n_spare in 1..8 {
            let mut other = file.clone();
            other[last] &= !((1 << n_spare) - 1);
            let is_same_image = file[last] & 1 == 1
                && apart(&other).is_some_and(|other| {
                    rows(&other) == rows(&parts) && other.remainder[8] == 0
                });
            let has_restarts = name.contains("restart");
            if is_same_image && !has_restarts && file[last] != 0xff {
                n_rebuilt += usize::from(is_rebuilt(&other));
            }
        }
    }
    assert!(n_rebuilt > 20, "{n_rebuilt}");
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn rows(parts: &Parts) -> Vec<&[[i16; 64]]> {
    let sizes = parts.coefficients.sizes().iter().enumerate();
    let rows = sizes.flat_map(|(component, [_, down])| {
        (0..*down).map(move |y| parts.coefficients.row(component, y))
    });
    rows.collect()
}

#[test]
fn what_no_encoder_does_is_refused_and_not_made_up() {
    let file = fixture("420-48x64.jpg");
    // The second FF of FF FF 00 means nothing, and is nowhere in the coefficients.
    let file_with_ff = fixture("444-q100.jpg");
    let stuffed = file_with_ff.windows(2).rposition(|pair| pair == [0xff, 0]).unwrap();
    let mut doubled = file_with_ff.clone();
    doubled.insert(stuffed, 0xff);
    assert!(apart(&doubled).is_none());
    // A second scan, a scan of too little, no JPEG at all.
    for file in [&file[..file.len() - 2], &file[..100], b"", b"\xff\xd8"] {
        assert!(apart(file).is_none());
    }
}

#[test]
fn a_wrong_remainder_is_refused_in_words() {
    let parts = apart(&fixture("420-48x64.jpg")).unwrap();
    let refused = |remainder: &[u8], words: &str| {
        let mut out = Vec::new();
        let outcome =
            put_together(Level::Scalar, &parts.coefficients, remainder, &mut out);
        let fault = outcome.unwrap_err().to_string();
        assert!(fault.contains(words), "{fault} instead of {words}");
    };
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut remainder = parts.remainder.clone();
        change(&mut remainder);
        seal(&mut remainder);
        remainder
    };
    refused(&parts.remainder[..19], "cut short");
    refused(&parts.remainder[..parts.remainder.len() - 1], "does not match its checksum");
    refused(&sealed(&|r| r[4..8].fill(0xff)), "cut short");
    refused(&sealed(&|r| r[8] = 2), "unknown fields");
    refused(&sealed(&|r| r[11] = 1), "unknown fields");
    refused(&sealed(&|r| r[8] ^= 1), "do not reproduce the original");
    refused(&sealed(&|r| r[12] ^= 1), "do not reproduce the original");
    refused(&sealed(&|r| r[4] -= 1), "ends before");
    refused(&sealed(&|r| r[4] += 1), "one scan's headers");
    let other = apart(&fixture("444-48x64.jpg")).unwrap();
    refused(&other.remainder, "blocks that its frame header");
    let progressive = fixture("420-progressive.jpg");
    let beginning = progressive.windows(2).position(|m| m == [0xff, 0xda]).unwrap();
    let len =
        u16::from_be_bytes([progressive[beginning + 2], progressive[beginning + 3]]);
    let beginning = &progressive[..beginning + 2 + usize::from(len)];
    let progressive = sealed(&|r| {
        r.truncate(20);
        r[4..8].copy_from_slice(&u32::try_from(beginning.len()).unwrap().to_le_bytes());
        r.extend(beginning);
    });
    refused(&progressive, "one scan's headers");
}

/// Writes the checksum that a remainder begins with.
fn seal(remainder: &mut [u8]) {
    let check = XxHash3_64::oneshot(&remainder[4..]).to_le_bytes();
    remainder[..4].copy_from_slice(&check[..4]);
}

const SEEDS: [&str; 6] = [
    "420-17x33.jpg",
    "grey-48x64.jpg",
    "cmyk-17x33.jpg",
    "optimised.jpg",
    "restart-blocks.jpg",
    "444-q100.jpg",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Files that are damaged or strange: refused, or back as they were; and what can be
    /// taken apart can be decoded, so that no bad sample hides behind its blocks.
    #[test]
    fn a_changed_file_comes_back_or_is_refused(
        name in prop::sample::select(&SEEDS[..]),
        changes in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut file = fixture(name);
        for (place, value) in changes {
            let place = place.index(file.len());
            file[place] = value;
        }
        is_rebuilt(&file);
        if apart(&file).is_some() {
            let opened = Opened::new(&file).unwrap();
            let region = Region::whole(opened.size());
            let mut decoder = Decoder::default();
            prop_assert!(decoder.decode(opened, &region, Chroma::Upsampled, None).is_ok());
        }
    }

    /// A remainder of any bytes makes the file or an error. Sealed, so that all its fields
    /// are looked at.
    #[test]
    fn a_changed_remainder_never_makes_another_file(
        name in prop::sample::select(&SEEDS[..]),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let file = fixture(name);
        let mut parts = apart(&file).unwrap();
        for (place, value) in changes {
            let place = place.index(parts.remainder.len());
            // The checksum of the file is not the hostile part.
            if !(12..20).contains(&place) {
                parts.remainder[place] = value;
            }
        }
        seal(&mut parts.remainder);
        if let Ok(made) = together(&parts) {
            prop_assert!(made == file);
        }
    }
}
