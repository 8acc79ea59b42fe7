//! Bad samples: three broken files among 64 images, under each policy, made by the host, by a
//! device, and by both. Whoever makes the batch, the stream is the same.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bothends_runtime::{
    BadPolicy, EpochResult, Loader, ReaderKind, Runtime, RuntimeError, drive,
};
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::{Setup, Silent, generated, one_epoch, programs};

const N_IMAGES: usize = 64;

/// 64 images in class folders; three of them are broken.
struct Images {
    folder: tempfile::TempDir,
    /// By their paths below the folder.
    broken: BTreeSet<String>,
}

impl Images {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = generated()?;
        let mut broken = BTreeSet::new();
        for (n, path) in images_below(&root)?.into_iter().take(N_IMAGES).enumerate() {
            let mut bytes = std::fs::read(&path)?;
            match n {
                5 => bytes.truncate(bytes.len() / 2),
                20 => bytes.clear(),
                41 => bytes = b"This is no image, whatever its name says.\n".to_vec(),
                _ => {}
            }
            let name = path.strip_prefix(&root)?;
            let copy = folder.path().join(name);
            std::fs::create_dir_all(copy.parent().context("a class folder")?)?;
            std::fs::write(copy, bytes)?;
            if matches!(n, 5 | 20 | 41) {
                broken.insert(name.to_string_lossy().into_owned());
            }
        }
        ensure!(broken.len() == 3, "{} broken files", broken.len());
        Ok(Self { folder, broken })
    }

    fn setup(&self, strategy: &'static str, devices: &[&str]) -> Setup {
        let devices = devices.iter().map(|&spec| spec.to_owned()).collect();
        Setup { strategy, devices, ..Setup::new(self.folder.path()) }
    }
}

/// As the data set's reader sees it: what is hidden is no class.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Every image, in the order of the paths.
fn images_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for class in std::fs::read_dir(root)? {
        let class = class?.path();
        if class.is_dir() && !is_hidden(&class) {
            for image in std::fs::read_dir(class)? {
                images.push(image?.path());
            }
        }
    }
    images.sort();
    Ok(images)
}

/// Who makes the batches: the host, both, or a device alone.
const CASES: [(&str, &[&str]); 7] = [
    ("ordered", &[]),
    ("ordered", &["loopback"]),
    ("ordered", &["sim:ideal,rate=400"]),
    ("ordered", &["sim:ideal,rate=400,via=spool"]),
    ("csd", &["loopback"]),
    ("csd", &["sim:ideal,rate=400"]),
    ("csd", &["sim:ideal,rate=400,via=spool"]),
];

/// Runs every case under a policy; each must deliver what the first does.
fn everywhere(on_bad: BadPolicy, n_samples: u64) -> Result<()> {
    programs::program("firmware-sim")?;
    let images = Images::new()?;
    let reference = Setup { on_bad, ..images.setup("ordered", &[]) }.run()?;
    for (strategy, devices) in CASES {
        let setup = Setup { on_bad, ..images.setup(strategy, devices) };
        let run = || -> Result<EpochResult> {
            let epoch = setup.run()?;
            ensure!(epoch.samples == n_samples, "{} samples", epoch.samples);
            ensure!(epoch.content_digest == reference.content_digest, "other samples");
            ensure!(epoch.back.iter().all(|b| b.failure.is_none()), "{:?}", epoch.back);
            check_list(&epoch, &images, on_bad)?;
            Ok(epoch)
        };
        let epoch = match strategy {
            "csd" => until_a_device_takes_part(run),
            _ => run(),
        };
        let epoch = epoch.with_context(|| format!("{setup:?}"))?;
        if strategy == "ordered" {
            ensure!(epoch.stream_digest == reference.stream_digest, "{setup:?}");
        }
    }
    Ok(())
}

/// The summary lists just the broken files, with the reason and the policy.
fn check_list(epoch: &EpochResult, images: &Images, on_bad: BadPolicy) -> Result<()> {
    let listed: BTreeSet<_> = epoch.skipped.iter().map(|bad| bad.file.clone()).collect();
    ensure!(listed == images.broken, "{:?}", epoch.skipped);
    ensure!(epoch.skipped.len() == images.broken.len(), "{:?}", epoch.skipped);
    for bad in &epoch.skipped {
        ensure!(bad.policy == on_bad.name() && !bad.why.is_empty(), "{bad:?}");
    }
    Ok(())
}

#[test]
fn skip_leaves_them_out() -> Result<()> {
    everywhere(BadPolicy::Skip, 61)
}

#[test]
fn zero_keeps_their_slots() -> Result<()> {
    everywhere(BadPolicy::Zero, 64)
}

#[test]
fn replace_fills_their_slots_with_the_same_others() -> Result<()> {
    everywhere(BadPolicy::Replace, 64)
}

#[test]
fn the_policies_differ() -> Result<()> {
    let images = Images::new()?;
    let digest = |on_bad| -> Result<_> {
        Ok(Setup { on_bad, ..images.setup("cpu", &[]) }.run()?.stream_digest)
    };
    let digests = [BadPolicy::Skip, BadPolicy::Zero, BadPolicy::Replace].map(digest);
    let digests = digests.into_iter().collect::<Result<BTreeSet<_>>>()?;
    ensure!(digests.len() == 3 && !digests.contains(&None), "{digests:?}");
    Ok(())
}

#[test]
fn raise_names_the_file_and_the_sample() -> Result<()> {
    programs::program("firmware-sim")?;
    let images = Images::new()?;
    let mut first = None;
    for (strategy, devices) in CASES {
        let setup = images.setup(strategy, devices);
        let error = setup.run().err().with_context(|| format!("no error: {setup:?}"))?;
        let line = format!("{error:#}");
        let Some(RuntimeError::BadSample { sample, file, .. }) = error.downcast_ref()
        else {
            anyhow::bail!("{setup:?}: {line}");
        };
        ensure!(images.broken.contains(file), "{line}");
        ensure!(line.contains(file) && line.contains(&sample.0.to_string()), "{line}");
        ensure!(line.contains("on_bad") && line.lines().count() == 1, "{line}");
        if strategy == "ordered" {
            // The first in the plan's order, whoever found it.
            let first = first.get_or_insert_with(|| line.clone());
            ensure!(*first == line, "{first}, but now {line}");
        }
    }
    Ok(())
}

/// The crop of a longer file lay before the end of what was listed, and was delivered under the old label.
#[test]
fn an_image_that_a_longer_one_replaced_is_a_bad_sample() -> Result<()> {
    let source = generated()?;
    let class = source.join("class-000");
    for reader in [ReaderKind::Auto, ReaderKind::Pread] {
        let folder = tempfile::tempdir()?;
        let copy = folder.path().join("class");
        std::fs::create_dir(&copy)?;
        for name in ["000.jpg", "001.jpg"] {
            std::fs::copy(class.join(name), copy.join(name))?;
        }
        let setup = Setup { batch_size: 2, reader, ..Setup::new(folder.path()) };
        let runtime = Runtime::open(setup.config()?)?;
        let mut bytes = std::fs::read(copy.join("000.jpg"))?;
        bytes.extend(std::fs::read(copy.join("001.jpg"))?);
        std::fs::write(copy.join("000.jpg"), bytes)?;
        let ended = drive(&mut Loader::over(runtime), &one_epoch(), &mut Silent);
        let line =
            format!("{:#}", anyhow::Error::from(ended.err().context("it was read")?));
        ensure!(
            line.contains("class/000.jpg") && line.contains("when it was listed"),
            "{line}"
        );
    }
    Ok(())
}
