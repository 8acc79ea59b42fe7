//! Lists that name files which do not exist: each of them is a bad sample, on this machine and in a store.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bothends_runtime::{
    BadPolicy, JoinLabels, MixedData, MixedSource, RunConfig, Runtime, RuntimeError,
};
use bothends_tests::{Setup, generated, servers};

const N_IMAGES: usize = 20;

/// A list of images, of which the eighth was removed; as a path and as a URL.
struct Listed {
    folder: tempfile::TempDir,
}

impl Listed {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let class = generated()?.join("class-000");
        let mut list = String::new();
        for n in 0..N_IMAGES {
            let name = format!("{n:03}.jpg");
            std::fs::copy(class.join(&name), folder.path().join(&name))?;
            writeln!(list, "{{\"path\": \"{name}\", \"label\": {n}}}")?;
        }
        std::fs::remove_file(folder.path().join("007.jpg"))?;
        std::fs::write(folder.path().join("list.jsonl"), list)?;
        Ok(Self { folder })
    }

    fn places(&self) -> [PathBuf; 2] {
        let path = self.folder.path().join("list.jsonl");
        let url = format!("file://{}", path.display());
        [path, url.into()]
    }
}

fn setup(data: &Path, on_bad: BadPolicy) -> Setup {
    Setup { on_bad, batch_size: 4, ..Setup::new(data) }
}

/// The opening ended with an error, whatever the policy said.
#[test]
fn the_policy_decides_on_a_file_that_a_list_names_and_that_does_not_exist() -> Result<()>
{
    let listed = Listed::new()?;
    for (on_bad, n_samples) in
        [(BadPolicy::Skip, 19), (BadPolicy::Zero, 20), (BadPolicy::Replace, 20)]
    {
        let mut streams = Vec::new();
        for data in listed.places() {
            let epoch = setup(&data, on_bad).run()?;
            let [bad] = &epoch.skipped[..] else {
                anyhow::bail!("{on_bad:?}: {:?}", epoch.skipped)
            };
            ensure!(bad.file == "007.jpg" && bad.policy == on_bad.name(), "{bad:?}");
            ensure!(!bad.why.contains("JPEG"), "it is not even there: {bad:?}");
            ensure!(epoch.samples == n_samples, "{on_bad:?}: {}", epoch.samples);
            streams.push(epoch.stream_digest);
        }
        ensure!(streams[0] == streams[1] && streams[0].is_some(), "{on_bad:?}");
    }
    for data in listed.places() {
        // Known at the opening, it ends the run before an epoch begins: not after hours.
        let error = Runtime::open(setup(&data, BadPolicy::Raise).config()?).err();
        let error = error.context("it was opened")?;
        let line = format!("{error:#}");
        let is_named = matches!(
            &error,
            RuntimeError::BadSample { file, .. } if file == "007.jpg"
        );
        ensure!(is_named && line.lines().count() == 1, "{line}");
    }
    Ok(())
}

/// As of one data set; the sample's number is that in the mix.
#[test]
fn a_missing_file_of_a_mix_is_named_at_the_opening() -> Result<()> {
    let (listed, images) = (Listed::new()?, generated()?);
    let source = |name: &str, data: PathBuf| MixedSource {
        name: name.to_owned(),
        data,
        weight: 1.0,
    };
    let [list, _] = listed.places();
    let sources = vec![source("all", images.clone()), source("few", list)];
    let mixed = |on_bad| -> Result<RunConfig> {
        let config = setup(&images, on_bad).config()?;
        // The list names no classes.
        let labels = JoinLabels::Keep;
        let mix = MixedData { labels, ..MixedData::new(sources.clone()) };
        Ok(RunConfig { on_bad, batch_size: 4, ..RunConfig::mixed(mix, config.recipe) })
    };
    let opened = Runtime::open(mixed(BadPolicy::Skip)?)?;
    let Some(RuntimeError::BadSample { sample, file, .. }) =
        Runtime::open(mixed(BadPolicy::Raise)?).err()
    else {
        anyhow::bail!("it was opened");
    };
    ensure!(file.ends_with("007.jpg"), "{file}");
    let n_images = opened.source().n_samples() - N_IMAGES as u64;
    ensure!(sample.0 == n_images + 7, "{sample:?} of {n_images} and {N_IMAGES}");
    Ok(())
}

/// A server that need not be asked for nothing.
#[test]
fn a_missing_file_of_a_server_is_a_bad_sample_of_any_recipe() -> Result<()> {
    let Some(server) = servers::valkey("a list that names a missing key")? else {
        return Ok(());
    };
    let listed = Listed::new()?;
    for entry in std::fs::read_dir(listed.folder.path())? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?.as_encoded_bytes();
        servers::redis(server.at, &[b"SET", name, &std::fs::read(&path)?])?;
    }
    let url = format!("redis://{}/0?prefix=list.jsonl", server.at);
    for recipe in ["imagenet-train", "raw"] {
        let data = setup(url.as_ref(), BadPolicy::Skip);
        let epoch = Setup { recipe: recipe.to_owned(), ..data }.run()?;
        let [bad] = &epoch.skipped[..] else {
            anyhow::bail!("{recipe}: {:?}", epoch.skipped)
        };
        ensure!(bad.why.contains("there is no `redis://"), "{bad:?}");
        ensure!(epoch.samples == 19, "{recipe}: {}", epoch.samples);
    }
    Ok(())
}
