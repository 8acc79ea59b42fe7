//! Every recipe in `configs/recipes/` runs, and is one stream whoever makes it: with its
//! mixtures, its views, its erasing behind the cut and its repetitions.

#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use bothends_core::recipe::{Numerics, Recipe};
use bothends_runtime::{EpochResult, RunConfig, look};
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
            ensure!(three.iter().all(|sample| sample.file == three[0].file));
            ensure!(three[0].views != three[1].views && three[1].views != three[2].views);
        }
        for sample in samples {
            let (other, share) = sample.mixed.clone().context("a2 mixes every batch")?;
            ensure!(other != sample.file && (0.0..=1.0).contains(&share));
        }
    }
    Ok(())
}
