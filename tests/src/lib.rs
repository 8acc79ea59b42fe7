//! What the whole-system tests in `tests/` share: images, programs, and runs.
//!
//! Images are generated once into the build folder. Real ones are used where
//! `BOTHENDS_TEST_DATA` names a folder with the archives; a skip is printed elsewhere.

#![allow(
    clippy::missing_errors_doc,
    clippy::print_stderr,
    reason = "test support: every error ends the test, and skips must be seen"
)]

pub mod attempts;
pub mod cql;
pub mod loading;
pub mod members;
pub mod programs;
pub mod proxy;
pub mod servers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail, ensure};
use bothends_agent::{FileStore, NoCosts, Server, ServerConfig};
use bothends_core::one_line;
use bothends_core::recipe::{Numerics, Recipe};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_csd::TlsFiles;
use bothends_csd::Transport;
use bothends_csd::loopback::Loopback;
use bothends_runtime::{
    AccelConfig, BadPolicy, DriveConfig, EnergyConfig, EpochResult, Loader, MemoryBudget,
    Observer, Progress, RankConfig, ReadConfig, ReaderKind, RunConfig, RunResult,
    Runtime, SideIndexUse, StopRequest, drive,
};
use bothends_samples::GenerateConfig;
use bothends_storage::Objects;

/// One epoch to the end, with its digests and nothing else.
pub fn one_epoch() -> DriveConfig {
    DriveConfig {
        epochs: 1,
        compare: Vec::new(),
        accelerator: AccelConfig::Host,
        digest: true,
        stop_after: None,
        checkpoint: None,
        resume: None,
        measure: None,
        energy: EnergyConfig { meters: Vec::new(), ..EnergyConfig::default() },
        checkpoint_every: None,
        stop: StopRequest::default(),
    }
}

/// Generated images: enough for a dozen batches of eight.
pub const N_GENERATED: u32 = 100;

/// The folder of generated images; made by the first test that asks.
pub fn generated() -> Result<PathBuf> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    if let Some(folder) = FOLDER.get() {
        return Ok(folder.clone());
    }
    let folder = programs::build_folder()?.join("test-images");
    let _lock = FileLock::take(&folder.with_extension("lock"))?;
    let config = GenerateConfig { n_images: N_GENERATED, n_classes: 5, seed: 7 };
    bothends_samples::generate(&folder, &config, &mut |_, _| {})?;
    Ok(FOLDER.get_or_init(|| folder).clone())
}

/// The 500 real images, where the environment names them; else a skip is printed.
pub fn real_images(test: &str) -> Result<Option<PathBuf>> {
    let Some(archives) = std::env::var_os("BOTHENDS_TEST_DATA") else {
        eprintln!("skipped: {test} on real images (BOTHENDS_TEST_DATA is not set)");
        return Ok(None);
    };
    let archive = Path::new(&archives).join("imagenet-500.tar");
    if !archive.is_file() {
        eprintln!("skipped: {test} on real images (no {})", archive.display());
        return Ok(None);
    }
    let parent = programs::build_folder()?.join("test-real");
    let folder = parent.join("imagenet-500");
    let whole = parent.join("whole");
    let _lock = FileLock::take(&parent.with_extension("lock"))?;
    if !whole.is_file() {
        std::fs::create_dir_all(&parent)?;
        let status = Command::new("tar")
            .arg("xf")
            .arg(&archive)
            .arg("-C")
            .arg(&parent)
            .status()?;
        ensure!(status.success(), "tar could not unpack {}", archive.display());
        std::fs::write(&whole, "")?;
    }
    Ok(Some(folder))
}

/// Several test programs may want the same images at once: one makes them.
#[derive(Debug)]
struct FileLock(
    #[expect(dead_code, reason = "the lock lives as long as the file")] std::fs::File,
);

impl FileLock {
    fn take(path: &Path) -> Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let file = std::fs::File::create(path)?;
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self(file))
    }
}

/// How one run of a test differs from another.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The data.
    pub data: PathBuf,
    /// The store that the host fetches them from; devices have a copy in `data`.
    pub objects: Option<Arc<dyn Objects>>,
    /// The further fields that are asked for.
    pub fields: Vec<String>,
    /// Where fetched records are kept.
    pub cache: Option<PathBuf>,
    /// A built-in recipe's name.
    pub recipe: String,
    /// How pixels are computed.
    pub numerics: Numerics,
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Epochs to run.
    pub epochs: u32,
    /// Samples of a batch.
    pub batch_size: u32,
    /// Host workers.
    pub workers: u32,
    /// How samples are read.
    pub reader: ReaderKind,
    /// Whether the side index is used: off unless a test is about it, so that the data's
    /// folder stays as it is and every run takes as long as the first.
    pub side_index: SideIndexUse,
    /// The strategy's name.
    pub strategy: &'static str,
    /// What the epoch is run for, as on the command line.
    pub objective: &'static str,
    /// `--csd` flags; `loopback` is a server of the agent's library in this process.
    pub devices: Vec<String>,
    /// The key that they share with this host.
    pub key_file: Option<PathBuf>,
    /// The certificates for those that are reached over TLS.
    pub tls: Option<TlsFiles>,
    /// Whether one that is missing ends the run.
    pub require_devices: bool,
    /// How often the data set is run in one epoch.
    pub repeat: u32,
    /// What happens to a bad sample.
    pub on_bad: BadPolicy,
    /// Batches after which the run stops.
    pub stop_after: Option<u32>,
    /// Where the state is written.
    pub checkpoint: Option<PathBuf>,
    /// A state to go on from.
    pub resume: Option<PathBuf>,
    /// Percentage of device batches that the host recomputes.
    pub audit_percent: u8,
    /// What samples are finished to.
    pub output: Output,
    /// Who takes the batches.
    pub accelerator: AccelConfig,
    /// The rank of the job that this run is, and how many there are.
    pub rank: [u32; 2],
}

/// Two of CIFAR-10's binary batches, of pixels that nobody needs to recognise.
pub fn cifar_batches(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, n_records) in [(1_usize, 40), (2, 90)] {
        let mut bytes: Vec<u8> =
            (0..=250).cycle().skip(number).take(n_records * 3073).collect();
        bytes.iter_mut().step_by(3073).for_each(|label| *label %= 10);
        std::fs::write(folder.join(format!("data_batch_{number}.bin")), bytes)?;
    }
    Ok(())
}

impl Setup {
    /// One epoch of the host alone with one worker, in order, on `data`.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            objects: None,
            fields: Vec::new(),
            cache: None,
            recipe: "imagenet-train".to_owned(),
            numerics: Numerics::Exact,
            seed: 11,
            epochs: 1,
            batch_size: 8,
            workers: 1,
            reader: ReaderKind::Auto,
            side_index: SideIndexUse::Off,
            strategy: "ordered",
            objective: "throughput",
            devices: Vec::new(),
            key_file: None,
            tls: None,
            require_devices: false,
            repeat: 1,
            on_bad: BadPolicy::Raise,
            stop_after: None,
            checkpoint: None,
            resume: None,
            audit_percent: 0,
            output: Output { dtype: Dtype::U8, layout: Layout::Nhwc },
            accelerator: AccelConfig::Host,
            rank: [0, 1],
        }
    }

    /// The configuration that it is.
    pub fn config(&self) -> Result<RunConfig> {
        let specs = self.devices.iter().filter(|spec| *spec != "loopback");
        let recipe = Recipe::builtin(&self.recipe).context("a built-in recipe")?;
        let recipe = recipe.with_numerics(self.numerics);
        let plain = RunConfig::new(self.data.clone(), recipe);
        let [rank, world] = self.rank;
        Ok(RunConfig {
            objects: self.objects.clone(),
            fields: self.fields.clone(),
            cache: self.cache.clone(),
            rank: RankConfig { rank, world, ..plain.rank },
            batch_size: self.batch_size,
            seed: self.seed,
            repeat: self.repeat,
            workers: self.workers,
            read: ReadConfig {
                kind: self.reader,
                side_index: self.side_index,
                ..ReadConfig::default()
            },
            devices: specs.map(|spec| Ok(spec.parse()?)).collect::<Result<_>>()?,
            key_file: self.key_file.clone(),
            tls: self.tls.clone(),
            require_devices: self.require_devices,
            strategy: self.strategy.parse()?,
            objective: self.objective.parse()?,
            on_bad: self.on_bad,
            audit_percent: self.audit_percent,
            output: self.output,
            memory: MemoryBudget::Slots(64 << 20),
            held_batches: 1,
            ..plain
        })
    }

    /// Runs in this process; the result of the last epoch.
    pub fn run(&self) -> Result<EpochResult> {
        let mut result = self.drive()?;
        result.epochs.pop().context("an epoch")
    }

    /// Runs in this process; everything that came out.
    pub fn drive(&self) -> Result<RunResult> {
        self.watched(&mut Silent)
    }

    /// One epoch with a device that the test has reached; where it is not taken, why.
    pub fn with_device(
        &self,
        device: Box<dyn Transport>,
    ) -> Result<(EpochResult, Option<String>)> {
        let mut runtime = Runtime::open(self.config()?)?;
        let attached = runtime.attach("proxied", device);
        let refused = attached.err().map(|error| one_line(&error));
        let run = drive(&mut Loader::over(runtime), &self.how(), &mut Silent);
        Ok((run?.epochs.pop().context("an epoch")?, refused))
    }

    fn how(&self) -> DriveConfig {
        DriveConfig {
            epochs: self.epochs,
            accelerator: self.accelerator.clone(),
            stop_after: self.stop_after,
            checkpoint: self.checkpoint.clone(),
            resume: self.resume.clone(),
            ..one_epoch()
        }
    }

    /// As [`Self::drive`], with somebody watching.
    pub fn watched(&self, observer: &mut dyn Observer) -> Result<RunResult> {
        let how = self.how();
        let mut runtime = Runtime::open(self.config()?)?;
        for _ in self.devices.iter().filter(|spec| *spec == "loopback") {
            runtime.attach("loopback", Box::new(loopback(&self.data)?))?;
        }
        Ok(drive(&mut Loader::over(runtime), &how, observer)?)
    }
}

/// The agent's own serving code in this process.
fn loopback(data: &Path) -> Result<Loopback> {
    let config = ServerConfig {
        name: "loopback".to_owned(),
        emulated: false,
        n_workers: 1,
        n_slots: 2,
    };
    let server = Server::start(config, FileStore::new(data)?, NoCosts)?;
    Ok(Loopback::new(Box::new(server)))
}

/// Watches nothing.
#[derive(Debug)]
pub struct Silent;

impl Observer for Silent {
    fn phase(&mut self, _: &str) {}
    fn batch(&mut self, _: Progress) {}
    fn note(&mut self, _: &str) {}
}

/// Fails unless the epoch delivered `n` samples and no claim was dropped.
pub fn assert_whole(epoch: &EpochResult, n: u64) -> Result<()> {
    ensure!(epoch.samples == n, "{} samples instead of {n}", epoch.samples);
    if epoch.returned_claims != 0 {
        bail!("{} claims were dropped unfinished", epoch.returned_claims);
    }
    Ok(())
}
