//! A GPU as a device (`--csd cuda:N`) changes no byte: alone, with the host, stopped and resumed, or lost in
//! the middle. The kernels run on their CPU twin; without a C++ compiler a skip is printed.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests; skips are seen")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bothends_core::recipe::{Numerics, Recipe};
use bothends_gpu::GpuError;
use bothends_gpu::driver::Driver;
use bothends_gpu::driver::fake::Fake;
use bothends_gpu::twin::Twin;
use bothends_pack::{Files, PackConfig, pack};
use bothends_runtime::{
    BadPolicy, DriveConfig, EpochResult, Gpus, Loader, ReadConfig, RunConfig, RunResult,
    Runtime, SideIndexUse, drive,
};
use bothends_tests::{Silent, cifar_batches, one_epoch};
use serde_json::json;

/// Pictures for kernels, some that have none, and one that is cut off.
const FILES: [&str; 16] = [
    "411.jpg",
    "420-48x64.jpg",
    "420-17x33.jpg",
    "420-progressive.jpg",
    "422-48x64.jpg",
    "440.jpg",
    "444-31x18.jpg",
    "cmyk-17x33.jpg",
    "exif-orientation-6.jpg",
    "grey-48x64.jpg",
    "no-huffman-tables.jpg",
    "restart-blocks.jpg",
    "restart-rows.jpg",
    "rgb.jpg",
    "rgb-with-trns.png",
    "420-1x1.jpg",
];

/// Three times over, in batches of 4.
const N_BATCHES: u32 = 13;

/// A data set: the pictures in class folders, or packed.
struct Data {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Data {
    fn files() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pictures");
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ops");
        for (nth, name) in FILES.iter().enumerate() {
            let class = path.join(if nth % 2 == 0 { "a" } else { "b" });
            std::fs::create_dir_all(&class).unwrap();
            std::fs::copy(fixtures.join(name), class.join(name)).unwrap();
        }
        let whole = std::fs::read(fixtures.join("420-48x64.jpg")).unwrap();
        std::fs::write(path.join("a/broken.jpg"), &whole[..whole.len() / 2]).unwrap();
        // What was written just now may change again without another time: its notes are not believed.
        std::thread::sleep(std::time::Duration::from_millis(100));
        Self { _folder: folder, path }
    }

    fn store() -> Self {
        let files = Self::files();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let opened = Files::open(&files.path).unwrap();
        pack(&opened, &path, &PackConfig::default(), &mut |_| ()).unwrap();
        Self { _folder: folder, path }
    }

    /// A run over it: small samples, since the twin takes its time.
    fn config(&self, strategy: &str) -> RunConfig {
        let recipe = Recipe::builtin("imagenet-train").unwrap();
        let mut recipe = serde_json::to_value(recipe).unwrap();
        recipe["ops"][1]["size"] = json!([24, 28]);
        let recipe = Recipe::from_json(&recipe.to_string()).unwrap();
        RunConfig {
            batch_size: 4,
            repeat: 3,
            seed: 3,
            strategy: strategy.parse().unwrap(),
            on_bad: BadPolicy::Zero,
            read: ReadConfig {
                side_index: SideIndexUse::Beside,
                ..ReadConfig::default()
            },
            ..RunConfig::new(self.path.clone(), recipe)
        }
    }

    /// The same with a GPU.
    fn beside(&self, strategy: &str, gpu: &Arc<dyn Driver>) -> RunConfig {
        RunConfig {
            devices: vec!["cuda:0".parse().unwrap()],
            require_devices: true,
            gpus: Gpus::Given(Arc::clone(gpu)),
            ..self.config(strategy)
        }
    }
}

/// The kernels as a CPU program.
fn twin(test: &str) -> Option<Twin> {
    match Twin::compiled() {
        Ok(twin) => Some(twin),
        Err(GpuError::Unavailable { why }) => {
            eprintln!("skipped: {test} ({why})");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn run_as(config: RunConfig, how: &DriveConfig) -> Result<RunResult> {
    let runtime = Runtime::open(config)?;
    Ok(drive(&mut Loader::over(runtime), how, &mut Silent)?)
}

fn run(config: RunConfig) -> Result<RunResult> {
    run_as(config, &one_epoch())
}

fn epoch(result: &RunResult) -> Result<&EpochResult> {
    result.epochs.last().context("an epoch")
}

/// Seconds in which kernels ran.
fn gpu_seconds(result: &RunResult) -> Option<f64> {
    result.energy.quantities.devices.first()?.gpu_seconds
}

#[test]
fn with_a_gpu_the_stream_is_the_hosts() -> Result<()> {
    let Some(twin) = twin("the GPU as a prong in an epoch") else { return Ok(()) };
    let gpu: Arc<dyn Driver> = Arc::new(twin);
    for (data, numerics) in [
        (Data::store(), Numerics::Exact),
        (Data::files(), Numerics::Exact),
        (Data::store(), Numerics::Planar),
        (Data::files(), Numerics::Planar),
    ] {
        let with = |config: RunConfig| RunConfig {
            recipe: config.recipe.with_numerics(numerics),
            ..config
        };
        // Of files this is the first epoch, which leaves notes.
        let alone = run(with(data.config("cpu")))?;
        let alone = epoch(&alone)?;
        ensure!(alone.batches == N_BATCHES);
        for strategy in ["csd", "ordered", "relaxed", "mte", "wrr"] {
            let both = run(with(data.beside(strategy, &gpu)))?;
            let epoch = epoch(&both)?;
            let back = &epoch.back[0];
            let what = format!("{strategy} in {numerics:?}: {back:?}");
            ensure!(back.failure.is_none() && back.emulated, "{what}");
            ensure!(epoch.samples == alone.samples, "{what}");
            ensure!(epoch.content_digest == alone.content_digest, "{what}");
            if strategy == "csd" {
                // How many of its batches were in time is the machine's matter.
                ensure!(gpu_seconds(&both).is_some_and(|s| s > 0.0), "no kernel ran");
            }
            if strategy == "ordered" {
                ensure!(epoch.stream_digest == alone.stream_digest, "{what}");
            }
        }
    }
    Ok(())
}

/// The GPU alone in a first epoch: nobody has left notes, so that the host's code makes the samples
/// of plain files, and leaves them for the second.
#[test]
fn a_gpu_learns_in_the_first_epoch() -> Result<()> {
    let Some(twin) = twin("a GPU's first epoch") else { return Ok(()) };
    let gpu: Arc<dyn Driver> = Arc::new(twin);
    let data = Data::files();
    let alone = run(Data::files().config("cpu"))?;
    let first = run(data.beside("csd", &gpu))?;
    ensure!(gpu_seconds(&first) == Some(0.0), "{:?}", gpu_seconds(&first));
    let second = run(data.beside("csd", &gpu))?;
    ensure!(gpu_seconds(&second).is_some_and(|s| s > 0.0), "{:?}", gpu_seconds(&second));
    for result in [&first, &second] {
        ensure!(epoch(result)?.content_digest == epoch(&alone)?.content_digest);
    }
    Ok(())
}

#[test]
fn a_run_that_was_stopped_goes_on_with_or_without_a_gpu() -> Result<()> {
    let Some(twin) = twin("stopping and resuming with a GPU") else { return Ok(()) };
    let gpu: Arc<dyn Driver> = Arc::new(twin);
    let data = Data::store();
    let whole = run(data.config("ordered"))?;
    let whole = epoch(&whole)?.stream_digest.clone();
    let state = data.path.with_file_name("state.json");
    let configs = || [data.config("ordered"), data.beside("ordered", &gpu)];
    for (first, second) in [(0, 1), (1, 0), (1, 1)] {
        let [cut, rest] = [first, second].map(|nth| configs()[nth].clone());
        let stop = DriveConfig {
            stop_after: Some(5),
            checkpoint: Some(state.clone()),
            ..one_epoch()
        };
        run_as(cut, &stop)?;
        let go_on = DriveConfig { resume: Some(state.clone()), ..one_epoch() };
        let resumed = run_as(rest, &go_on)?;
        ensure!(epoch(&resumed)?.stream_digest == whole, "{first}, then {second}");
    }
    Ok(())
}

/// Its claims go back, every sample is delivered once, and the result says why it was lost.
#[test]
fn a_gpu_that_is_lost_costs_nothing_but_itself() -> Result<()> {
    let data = Data::store();
    let alone = run(data.config("cpu"))?;
    for n_launches in [0, 1, 30] {
        let Some(twin) = twin("a GPU that is lost in an epoch") else { return Ok(()) };
        let gpu: Arc<dyn Driver> = Arc::new(twin.lost_after(n_launches));
        for strategy in ["ordered", "csd"] {
            let both = run(data.beside(strategy, &gpu))?;
            let (epoch, alone) = (epoch(&both)?, epoch(&alone)?);
            let what = format!("{strategy}, lost after {n_launches}: {:?}", epoch.back);
            ensure!(epoch.content_digest == alone.content_digest, "{what}");
            ensure!(epoch.samples == alone.samples, "{what}");
            // One that lasts so long may not be lost before the host has made the rest.
            if strategy == "csd" && n_launches < 30 {
                let why = epoch.back[0].failure.as_ref();
                let is_said = why.is_some_and(|why| why.contains("the device is lost"));
                ensure!(is_said, "{what}");
            }
            if strategy == "ordered" {
                ensure!(epoch.stream_digest == alone.stream_digest, "{what}");
            }
        }
    }
    Ok(())
}

/// What is said of a device that is missing when devices are connected.
fn missing(config: RunConfig) -> Result<String> {
    let mut runtime = Runtime::open(config)?;
    runtime.connect_devices(None)?;
    let note = runtime.next_note().context("a note")?;
    ensure!(runtime.next_note().is_none(), "said once");
    Ok(note)
}

/// No machine has so many GPUs, and most have no driver.
#[test]
fn a_gpu_that_there_is_not_is_missing_like_any_device() -> Result<()> {
    let data = Data::files();
    let devices = vec!["cuda:4000".parse()?];
    let config = RunConfig { devices, ..data.config("ordered") };
    let note = missing(config.clone())?;
    ensure!(note.starts_with("device cuda:4000: no usable GPU: "), "{note}");
    ensure!(note.ends_with("; the run continues without it"), "{note}");
    let alone = run(data.config("ordered"))?;
    let without = run(config.clone())?;
    ensure!(epoch(&without)?.stream_digest == epoch(&alone)?.stream_digest);
    let required = RunConfig { require_devices: true, ..config };
    let error = run(required).unwrap_err().to_string();
    ensure!(error.starts_with("device cuda:4000: no usable GPU: "), "{error}");
    Ok(())
}

/// Where no sample at all has kernels the GPU would be one more thread of the host.
#[test]
fn a_gpu_without_a_use_is_told_so() -> Result<()> {
    let folder = tempfile::tempdir()?;
    cifar_batches(folder.path())?;
    let gpus = Gpus::Given(Arc::new(Fake::default()));
    let devices = vec!["cuda:0".parse()?];
    let recipe = Recipe::builtin("cifar10-train").context("a recipe")?;
    let config = RunConfig::new(folder.path().to_owned(), recipe);
    let note = missing(RunConfig { devices, gpus, ..config })?;
    ensure!(note.contains("its kernels decode JPEGs and stores"), "{note}");
    Ok(())
}
