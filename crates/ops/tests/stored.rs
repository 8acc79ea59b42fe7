//! What a store has of a JPEG makes the same samples as the file, from all of its row groups
//! or from those that a sample needs, with every kernel; damage is noticed.
#![allow(clippy::unwrap_used, reason = "helpers of tests; a panic is the report")]

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bothends_core::blocks::{Blocks, Head, Profile};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Interpolation, Numerics, Recipe, RecordShape};
use bothends_core::sample::{Encoding, Record, RecordPart, RowGroups, SampleKey};
use bothends_ops::jpeg::rebuild::put_together;
use bothends_ops::jpeg::{Coefficients, Decoder, Packed, Packer, Stored, unpack};
use bothends_ops::kernels::Level;
use bothends_ops::{OpsError, Pipeline, SampleFault, Scratch};

/// JPEG files to pack: the fixtures, and photographs where there are some.
fn files() -> Vec<(PathBuf, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ops");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jpg"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// A packed image, owned.
struct Image {
    packed: Packed,
    head: Vec<u8>,
    remainder: Vec<u8>,
}

impl Image {
    /// `None` for files that are not packed.
    fn of(file: &[u8]) -> Option<Self> {
        let mut remainder = Vec::new();
        let mut decoder = Decoder::default();
        let packed = Packer::default().pack(&mut decoder, file, &mut remainder)?;
        let head = packed.lengths.head(packed.size, 0, packed.row_lengths).unwrap();
        Some(Self { packed, head, remainder })
    }

    fn blocks(&self) -> Blocks<'_> {
        let profile = Profile::read(&self.packed.profile).unwrap();
        Blocks::new(profile, Head::read(&self.head).unwrap()).unwrap()
    }

    /// The record of the row groups that `key` needs, and no byte more.
    fn record(&self, pipeline: &Pipeline, key: SampleKey) -> Record<'_> {
        let blocks = self.blocks();
        let groups = pipeline.groups_for(key, blocks).unwrap();
        let first = groups.start;
        self.part(blocks.head().part_of(&self.packed.groups, 0, groups).unwrap(), first)
    }

    fn part<'a>(&'a self, bytes: &'a [u8], first: usize) -> Record<'a> {
        let part = RecordPart::RowGroups(RowGroups { blocks: self.blocks(), first });
        Record { part, ..Record::new(bytes, Encoding::Image) }
    }
}

/// The rows of a file's scan that a sample needs, as a record.
fn scan_rows<'a>(file: &'a [u8], rows: Range<u32>, note: &'a [u8]) -> Record<'a> {
    let of = u32::try_from(file.len()).unwrap();
    let bytes = &file[rows.start as usize..rows.end as usize];
    let part = RecordPart::Scan { from: rows.start, of };
    Record { part, entry_points: note, ..Record::new(bytes, Encoding::Image) }
}

fn pipeline(recipe: &str, numerics: Numerics, interpolation: Interpolation) -> Pipeline {
    let mut recipe = serde_json::to_value(Recipe::builtin(recipe).unwrap()).unwrap();
    recipe["ops"][1]["interpolation"] = serde_json::to_value(interpolation).unwrap();
    let recipe = Recipe::from_json(&recipe.to_string()).unwrap().with_numerics(numerics);
    Pipeline::new(&recipe, recipe.views(RecordShape::Image).unwrap())
}

fn key(n: u64) -> SampleKey {
    SampleKey { seed: 7, epoch: EpochIdx(3), sample: SampleId(n) }
}

#[test]
fn samples_are_those_of_the_file() {
    let (mut n_packed, mut n_without_note) = (0, 0);
    // Used for one image after the other: none may show through in the next.
    let new = |level| (level, Scratch::new(level));
    let mut scratches: Vec<_> = Level::available().into_iter().map(new).collect();
    for (path, bytes) in files() {
        let Some(image) = Image::of(&bytes) else { continue };
        n_packed += 1;
        for (recipe, numerics, interpolation) in [
            ("imagenet-train", Numerics::Exact, Interpolation::Bilinear),
            ("imagenet-train", Numerics::Planar, Interpolation::Bilinear),
            ("imagenet-eval", Numerics::Exact, Interpolation::Bilinear),
            ("imagenet-train", Numerics::Exact, Interpolation::Bicubic),
            ("imagenet-train", Numerics::Exact13, Interpolation::Bicubic),
            ("imagenet-train", Numerics::Exact13, Interpolation::Lanczos),
            ("imagenet-train", Numerics::Planar, Interpolation::Bicubic),
            ("imagenet-train", Numerics::Exact, Interpolation::Nearest),
            ("imagenet-train", Numerics::Planar, Interpolation::Nearest),
        ] {
            let pipeline = pipeline(recipe, numerics, interpolation);
            let mut need = vec![0; pipeline.sample_bytes()];
            let mut got = need.clone();
            for key in (0..8).map(key) {
                let file = Record::new(&bytes, Encoding::Image);
                let mut first = Scratch::default();
                pipeline.run(&mut first, key, file, &mut need).unwrap();
                for (level, scratch) in &mut scratches {
                    let note = first.new_entry_points();
                    let Some(rows) = pipeline.scan_for(key, note) else {
                        n_without_note += 1;
                        continue;
                    };
                    let rows = scan_rows(&bytes, rows, note);
                    pipeline.run(scratch, key, rows, &mut got).unwrap();
                    assert!(need == got, "{}: {recipe}, {level:?}, rows", path.display());
                }
                for (level, scratch) in &mut scratches {
                    let record = image.record(&pipeline, key);
                    pipeline.run(scratch, key, record, &mut got).unwrap();
                    assert!(need == got, "{}: {recipe}, {level:?}", path.display());
                }
            }
        }
    }
    assert!(n_packed >= 20, "only {n_packed} fixtures can be packed");
    // Progressive files and those in four inks.
    let most = n_packed / 2 * scratches.len() * 9 * 8;
    assert!(n_without_note < most, "{n_without_note} samples were made of no rows");
}

#[test]
fn a_file_comes_back_from_its_record() {
    let mut file = Vec::new();
    let mut coefficients = Coefficients::default();
    for (path, bytes) in files() {
        let Some(image) = Image::of(&bytes) else { continue };
        let stored = Stored::new(image.blocks(), 0, &image.packed.groups).unwrap();
        for level in Level::available() {
            unpack(level, &stored, &mut coefficients).unwrap();
            put_together(level, &coefficients, &image.remainder, &mut file).unwrap();
            assert!(file == bytes, "{}: {level:?}", path.display());
        }
    }
}

#[test]
fn a_missing_or_damaged_group_is_a_bad_sample() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/ops/420-48x64.jpg");
    let image = Image::of(&fs::read(path).unwrap()).unwrap();
    let pipeline = pipeline("imagenet-eval", Numerics::Exact, Interpolation::Bilinear);
    let mut out = vec![0; pipeline.sample_bytes()];
    let groups = &image.packed.groups;
    let mut check = |record: Record<'_>, what: &str| {
        let got = pipeline.run(&mut Scratch::default(), key(0), record, &mut out);
        let Err(OpsError::BadSample(SampleFault::Damaged { why, .. })) = got else {
            panic!("{what}: {got:?}")
        };
        assert!(why.starts_with("row group "), "{what}: {why}");
    };
    for len in 0..groups.len() {
        check(image.part(&groups[..len], 0), "cut");
    }
    check(image.part(groups, 1), "another first group");
    for at in 0..groups.len() {
        let mut damaged = groups.clone();
        damaged[at] ^= 0x10;
        check(image.part(&damaged, 0), "flipped");
    }
}
