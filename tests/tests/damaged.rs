//! Damaged samples: files that Pillow reads although something is wrong with them. They are delivered
//! with its pixels, counted and named, whoever decodes them, and no policy is applied to them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bothends_runtime::{Damaged, Observer, Progress};
use bothends_tests::{Setup, generated, programs};

const N_IMAGES: usize = 64;
const DAMAGED: [usize; 3] = [7, 20, 41];

/// The same images twice, in class folders: as they are, and with stray bytes in three of them.
struct Images {
    intact: tempfile::TempDir,
    damaged: tempfile::TempDir,
    /// Those files, by their paths below the folder.
    names: BTreeSet<String>,
}

impl Images {
    fn new() -> Result<Self> {
        let (intact, damaged) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let root = generated()?;
        let mut names = BTreeSet::new();
        let mut files: Vec<_> = glob(&root)?;
        files.sort();
        for (n, path) in files.into_iter().take(N_IMAGES).enumerate() {
            let name = path.strip_prefix(&root)?;
            let bytes = std::fs::read(&path)?;
            let mut odd = bytes.clone();
            if DAMAGED.contains(&n) {
                // Two stray bytes after the first segment, which libjpeg skips with a warning.
                let len = u16::from_be_bytes([bytes[4], bytes[5]]);
                let behind = 4 + usize::from(len);
                ensure!(bytes[behind] == 0xff, "no marker in {}", path.display());
                odd.splice(behind..behind, [0, 0]);
                names.insert(name.to_string_lossy().into_owned());
            }
            for (folder, bytes) in [(&intact, bytes), (&damaged, odd)] {
                let copy = folder.path().join(name);
                std::fs::create_dir_all(copy.parent().context("a class folder")?)?;
                std::fs::write(copy, bytes)?;
            }
        }
        ensure!(names.len() == DAMAGED.len(), "{names:?}");
        Ok(Self { intact, damaged, names })
    }

    fn check(&self, damaged: &Damaged) -> Result<()> {
        let named: BTreeSet<_> = damaged.named.iter().map(|it| it.file.clone()).collect();
        ensure!(damaged.samples == 3 && named == self.names, "{damaged:?}");
        ensure!(damaged.named.len() == 3, "{damaged:?}");
        Ok(())
    }
}

/// Every image in the class folders.
fn glob(root: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut images = Vec::new();
    for class in std::fs::read_dir(root)? {
        let class = class?.path();
        let is_hidden =
            class.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b"."));
        if class.is_dir() && !is_hidden {
            for image in std::fs::read_dir(class)? {
                images.push(image?.path());
            }
        }
    }
    Ok(images)
}

/// Hears what a run has to say.
#[derive(Debug, Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn phase(&mut self, _: &str) {}
    fn batch(&mut self, _: Progress) {}
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

/// Who makes the batches: the host, both, or a device alone.
const CASES: [(&str, &[&str]); 5] = [
    ("ordered", &[]),
    ("ordered", &["loopback"]),
    ("csd", &["loopback"]),
    ("csd", &["sim:ideal,rate=400"]),
    ("csd", &["sim:ideal,rate=400,via=spool"]),
];

/// Over two epochs, each is counted once and told of once, and the samples are those of the files
/// without the stray bytes.
#[test]
fn damaged_files_are_counted_and_named_whoever_decodes_them() -> Result<()> {
    programs::program("firmware-sim")?;
    let images = Images::new()?;
    let epochs = 2;
    let intact = Setup { epochs, ..Setup::new(images.intact.path()) }.run()?;
    ensure!(intact.damaged == Damaged::default(), "{:?}", intact.damaged);
    for (strategy, devices) in CASES {
        let devices = devices.iter().map(|&spec| spec.to_owned()).collect();
        let setup =
            Setup { strategy, devices, epochs, ..Setup::new(images.damaged.path()) };
        let mut notes = Notes::default();
        let result = setup.watched(&mut notes).with_context(|| format!("{setup:?}"))?;
        for epoch in &result.epochs {
            ensure!(epoch.samples == 64 && epoch.skipped.is_empty(), "{epoch:?}");
            images.check(&epoch.damaged).with_context(|| format!("{setup:?}"))?;
        }
        images.check(&result.damaged)?;
        let last = result.epochs.last().context("an epoch")?;
        ensure!(last.content_digest == intact.content_digest, "{setup:?}");
        ensure!(last.back.iter().all(|it| it.failure.is_none()), "{:?}", last.back);
        let told: Vec<_> =
            notes.0.iter().filter(|note| note.contains("damaged")).collect();
        ensure!(told.len() == 1, "{notes:?}");
        let line =
            "3 of 64 samples are damaged and were decoded as Pillow decodes them: ";
        ensure!(told[0].starts_with(line), "{told:?}");
    }
    Ok(())
}

/// What the command line says of them after the table.
#[test]
fn the_command_line_names_damaged_files() -> Result<()> {
    let images = Images::new()?;
    let output = Command::new(programs::program("bothends")?)
        .arg("run")
        .arg("--data")
        .arg(images.damaged.path())
        .args(["--recipe", "imagenet-train", "--epochs", "2", "--batch-size", "8"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = "3 samples are damaged and were decoded as Pillow decodes them \
                (128 samples delivered)";
    ensure!(said.contains(line), "{said}");
    for name in &images.names {
        ensure!(said.contains(name.as_str()), "{name} is not in {said}");
    }
    Ok(())
}
