//! A measurement must be of the requested work. No test depends on how long it took.
#![allow(clippy::unwrap_used, reason = "helpers of tests; a panic is the report")]

use std::path::Path;

use bothends_bench::BenchError;
use bothends_bench::io::IoBench;
use bothends_bench::ops::boxes::boxes;
use bothends_bench::ops::{Draw, Form, Level, OpsBench, Part};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::random_resized_crop;
use bothends_core::recipe::{Numerics, Recipe, Size};
use bothends_core::rng::Draws;
use bothends_core::sample::SampleKey;
use bothends_io::ReaderKind;
use bothends_samples::GenerateConfig;

fn images() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = GenerateConfig { n_images: 4, n_classes: 2, seed: 1 };
    bothends_samples::generate(folder.path(), &config, &mut |_, _| {}).unwrap();
    folder
}

fn bench(data: &Path) -> OpsBench {
    OpsBench {
        data: data.to_owned(),
        limit: Some(3),
        recipe: Recipe::builtin("imagenet-train").unwrap(),
        seed: 42,
        draw: Draw::EveryPass,
        numerics: vec![Numerics::Exact, Numerics::Planar],
        forms: vec![Form::First, Form::Index, Form::Store],
        kernels: vec![Level::Scalar, Level::best()],
        threads: vec![1, 3],
        passes: 1,
        parts: vec![Part::Read, Part::Stages, Part::Rates],
    }
}

#[test]
fn every_contender_is_measured_in_every_way() {
    let folder = images();
    let result = bench(folder.path()).run(&mut |_| {}).unwrap();
    assert_eq!(result.images, 3);
    assert_eq!(result.variants.len(), 12);
    assert!(result.entry_point_bytes_per_image > 0.0, "nothing was learnt");
    assert!(result.read.unwrap().best_us > 0.0);
    let exact = &result.variants[..6];
    assert!(exact.iter().all(|variant| variant.mean_value == exact[0].mean_value));
    for variant in &result.variants {
        assert!((variant.mean_value - exact[0].mean_value).abs() < 0.5, "{variant:?}");
        let (sample, stages) = (variant.sample.unwrap(), variant.stages.unwrap());
        let sum = stages.tables_us + stages.entropy_us + stages.idct_us + stages.tail_us;
        assert!((sum - sample.best_us).abs() < 1e-6, "{variant:?}");
        let threads: Vec<u32> = variant.rates.iter().map(|rate| rate.threads).collect();
        assert_eq!(threads, [1, 3]);
        assert!(variant.rates.iter().all(|rate| rate.images_per_s > 0.0), "{variant:?}");
    }
    let table = result.table();
    assert_eq!(table.lines().filter(|line| line.contains(" scalar ")).count(), 6);
}

#[test]
fn the_boxes_are_those_that_the_recipe_draws() {
    let folder = images();
    let drawn = boxes(&bench(folder.path())).unwrap();
    assert_eq!(drawn.len(), 3);
    assert_eq!(drawn[0].path, "class-000/000.jpg");
    for (sample, drawn) in (0..).map(SampleId).zip(&drawn) {
        let key = SampleKey { seed: 42, epoch: EpochIdx(0), sample };
        let size = Size { height: drawn.height, width: drawn.width };
        let ratio = [0.75, 1.333_333_333_333_333_3];
        // The recipe's second op, and its third.
        let part = random_resized_crop(&mut Draws::new(key, 1), size, [0.08, 1.0], ratio);
        assert_eq!(drawn.part, [part.top, part.left, part.height, part.width]);
        assert_eq!(drawn.flip, Draws::new(key, 2).bernoulli(0.5));
    }
}

#[test]
fn a_recipe_that_draws_no_boxes_says_so() {
    let folder = images();
    let recipe = r#"{"version": 1, "name": "middle", "ops": [
        {"op": "decode"}, {"op": "center_crop", "size": 32}]}"#;
    let recipe = Recipe::from_json(recipe).unwrap();
    let bench = OpsBench { recipe, ..bench(folder.path()) };
    assert!(matches!(boxes(&bench), Err(BenchError::NoBoxes)));
    let result = bench.run(&mut |_| {}).unwrap();
    assert!(result.variants.iter().all(|v| v.sample.is_some() && v.stages.is_none()));
}

#[test]
fn a_record_that_makes_no_sample_is_named() {
    let folder = images();
    std::fs::write(folder.path().join("class-000/000.jpg"), b"not an image").unwrap();
    let error = bench(folder.path()).run(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("`class-000/000.jpg` cannot be measured"), "{error}");
}

#[test]
fn every_reader_reads_every_record_at_every_depth() {
    let folder = images();
    let bench = IoBench {
        data: folder.path().to_owned(),
        limit: None,
        seed: 0,
        readers: vec![ReaderKind::Pread, ReaderKind::Auto],
        depths: vec![1, 16],
        passes: 1,
    };
    let result = bench.run(&mut |_| {}).unwrap();
    assert_eq!(result.records, 4);
    let warm = result.variants.iter().filter(|variant| variant.cache == "warm");
    assert_eq!(warm.map(|variant| variant.depth).collect::<Vec<_>>(), [1, 16, 1, 16]);
    let direct = result.variants.iter().filter(|variant| variant.cache == "direct");
    let is_noted = result.notes.iter().any(|note| note.contains("direct"));
    assert!(direct.count() == 4 || is_noted, "{:?}", result.notes);
    assert!(result.table().lines().filter(|line| line.starts_with("pread")).count() >= 2);
}
