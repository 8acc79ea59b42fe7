//! Every recipe in `configs/recipes/` runs, and is one stream whoever makes it: with its
//! mixtures, views, erasing after the cut, and repetitions.

#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use bothends_core::ids::EpochIdx;
use bothends_core::plan::LastPolicy;
use bothends_core::recipe::{Numerics, Recipe};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_runtime::{EpochResult, RankConfig, RunConfig, Runtime, look};
use bothends_tests::{N_GENERATED, Setup, assert_whole, generated};

/// The recipes that work on image files.
fn recipes() -> impl Iterator<Item = Recipe> {
    let names = Recipe::builtin_names().filter(|name| *name != "raw");
    names.map(|name| Recipe::builtin(name).unwrap())
}

fn run(setup: &Setup) -> Result<EpochResult> {
    let epoch = setup.run().with_context(|| format!("{setup:?}"))?;
    assert_whole(&epoch, u64::from(N_GENERATED)).with_context(|| format!("{setup:?}"))?;
    Ok(epoch)
}

#[test]
fn every_recipe_is_one_stream_whoever_makes_it() -> Result<()> {
    let data = generated()?;
    for recipe in recipes() {
        let recipe = recipe.name().to_owned();
        let alone = Setup { recipe, strategy: "cpu", ..Setup::new(&data) };
        let reference = run(&alone)?;
        let devices = vec!["loopback".to_owned()];
        let both = Setup { devices, workers: 2, strategy: "ordered", ..alone };
        let ordered = run(&both)?;
        ensure!(ordered.stream_digest == reference.stream_digest, "{both:?}");
        let relaxed = run(&Setup { strategy: "relaxed", ..both.clone() })?;
        ensure!(relaxed.content_digest == reference.content_digest, "{both:?}");
    }
    Ok(())
}

#[test]
fn every_recipe_runs_in_planar_numerics_too() -> Result<()> {
    let data = generated()?;
    for recipe in recipes() {
        let recipe = recipe.name().to_owned();
        let setup = Setup { recipe, numerics: Numerics::Planar, ..Setup::new(&data) };
        let reference = run(&setup)?;
        let devices = vec!["loopback".to_owned()];
        let both = run(&Setup { devices, ..setup.clone() })?;
        ensure!(both.stream_digest == reference.stream_digest, "{setup:?}");
    }
    Ok(())
}

/// Version 2 resizes as Pillow 13 does: other pixels than version 1's, and the same ones everywhere.
#[test]
fn version_2_is_another_stream_and_one_whoever_makes_it() -> Result<()> {
    let data = generated()?;
    for recipe in ["imagenet-train", "dino"] {
        let first = Setup { recipe: recipe.to_owned(), ..Setup::new(&data) };
        let second = Setup { numerics: Numerics::Exact13, ..first.clone() };
        let reference = run(&second)?;
        ensure!(reference.stream_digest != run(&first)?.stream_digest, "{second:?}");
        let devices = vec!["loopback".to_owned()];
        let both = Setup { devices, workers: 2, ..second };
        ensure!(run(&both)?.stream_digest == reference.stream_digest, "{both:?}");
    }
    Ok(())
}

/// Mixtures are keyed by a batch's place in the epoch, not by its number in a run.
#[test]
fn a_mixed_run_stopped_and_gone_on_with_is_the_same_stream() -> Result<()> {
    let data = generated()?;
    let folder = tempfile::tempdir()?;
    for recipe in ["timm-a2", "torchvision-resnet50-v2", "deit", "dino"] {
        let whole = Setup { recipe: recipe.to_owned(), ..Setup::new(&data) };
        let reference = run(&whole)?;
        let state = folder.path().join(format!("{recipe}.json"));
        let first = Setup {
            stop_after: Some(5),
            checkpoint: Some(state.clone()),
            ..whole.clone()
        };
        first.run()?;
        let second = Setup { resume: Some(state), workers: 2, ..whole };
        let epoch = second.run()?;
        ensure!(epoch.stream_digest == reference.stream_digest, "{recipe}");
    }
    Ok(())
}

/// What is repeated is the record, not its augmentation; and a batch is mixed with others.
#[test]
fn repetitions_are_augmented_anew_and_mixed_with_another_sample() -> Result<()> {
    let data = generated()?;
    let recipe = Recipe::builtin("timm-a2").unwrap();
    let config = RunConfig { batch_size: 12, repeat: 3, ..RunConfig::new(data, recipe) };
    let epochs = look(config, 4)?;
    for samples in &epochs {
        ensure!(samples.len() == 12);
        for three in samples.chunks(3) {
            ensure!(three.iter().all(|sample| sample.name == three[0].name));
            ensure!(three[0].views != three[1].views && three[1].views != three[2].views);
        }
        for sample in samples {
            let (other, share) = sample.mixed.clone().context("a2 mixes every batch")?;
            ensure!(other != sample.name && (0.0..=1.0).contains(&share));
        }
    }
    Ok(())
}

/// `last: pad` leaves masked rows, which are mixed with nobody.
#[test]
fn soft_labels_are_the_shares_of_both_samples() -> Result<()> {
    let data = generated()?;
    let recipe = Recipe::builtin("timm-a3").unwrap();
    let rank = RankConfig { rank: 0, world: 1, last: LastPolicy::Pad };
    let config = RunConfig { batch_size: 24, rank, ..RunConfig::new(data, recipe) };
    let mut runtime = Runtime::open(config)?;
    let options = runtime.options(EpochIdx(0));
    let mut epoch = runtime.start_epoch(&options)?;
    let mut n_masked = 0;
    while let Some(batch) = epoch.next_batch()? {
        let n_classes = 5;
        let mut soft = vec![9.0; batch.rows().len() * n_classes];
        batch.soft_labels(n_classes, &mut soft)?;
        for (row, classes) in batch.rows().iter().zip(soft.chunks(n_classes)) {
            let sum: f32 = classes.iter().sum();
            let Some(mixed) = row.mixed else {
                ensure!(row.sample.is_none() && sum == 0.0, "{row:?} {classes:?}");
                n_masked += 1;
                continue;
            };
            ensure!((sum - 1.0).abs() < 1e-6, "{row:?} {classes:?}");
            let own = classes[usize::try_from(row.label.0)?];
            if mixed.label != row.label {
                ensure!((f64::from(own) - mixed.own_share).abs() < 1e-6, "{classes:?}");
            }
        }
    }
    ensure!(n_masked == 20, "{n_masked} masked rows");
    Ok(())
}

/// Every view lies where it is said to, and all of them make up the sample.
#[test]
fn views_of_a_batch_are_parts_of_its_samples() -> Result<()> {
    let data = generated()?;
    let recipe = Recipe::builtin("dino").unwrap();
    let output = Output { dtype: Dtype::F32, layout: Layout::Nchw };
    let config = RunConfig { batch_size: 8, output, ..RunConfig::new(data, recipe) };
    let mut runtime = Runtime::open(config)?;
    let options = runtime.options(EpochIdx(0));
    let mut epoch = runtime.start_epoch(&options)?;
    let batch = epoch.next_batch()?.context("a batch")?;
    ensure!(batch.n_views() == 10);
    for row in 0..8 {
        let views: Vec<&[u8]> = (0..10).map(|view| batch.view(row, view)).collect();
        ensure!(views.concat() == batch.sample(row));
        ensure!(views[0].len() == 224 * 224 * 12 && views[9].len() == 96 * 96 * 12);
    }
    ensure!(batch.view(0, 10).is_empty() && batch.view(8, 0).is_empty());
    drop(batch);
    runtime.finish_epoch(epoch);
    Ok(())
}
