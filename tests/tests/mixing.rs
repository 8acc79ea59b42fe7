//! Data sets in folders that have nothing in common, mixed by weight: exact in every batch, and the
//! same stream whoever makes it, in however many ranks, and resumed after any batch.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_agent::{DataRoot, FileStore, Links, NoCosts, Server, ServerConfig};
use bothends_core::recipe::Recipe;
use bothends_csd::loopback::Loopback;
use bothends_runtime::{
    DriveConfig, EpochResult, JoinLabels, Loader, MemoryBudget, MixStop, MixedData,
    MixedSource, RankConfig, ReadConfig, Replacement, RunConfig, Runtime, SideIndexUse,
    SourceSamples, drive,
};
use bothends_tests::{Silent, assert_whole, generated, one_epoch, programs};
use tempfile::TempDir;

/// The generated images, and forty of them in another folder, two of whose three classes are the
/// same: in different trees, so that no folder holds the paths of both.
struct Data {
    all: PathBuf,
    few: TempDir,
    recipe: Recipe,
}

impl Data {
    fn new() -> Result<Self> {
        let (all, few) = (generated()?, TempDir::new()?);
        let recipe = Recipe::builtin("imagenet-train").context("a built-in recipe")?;
        let mut classes: Vec<_> =
            fs::read_dir(&all)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        classes.retain(|path| path.is_dir());
        classes.sort();
        for (class, name) in classes.iter().zip([None, Some("other"), None]) {
            let name = name.map_or_else(|| class.file_name(), |name| Some(name.as_ref()));
            let folder = few.path().join(name.context("a class folder has a name")?);
            fs::create_dir(&folder)?;
            let mut files: Vec<_> = fs::read_dir(class)?
                .map(|entry| Ok(entry?.path()))
                .collect::<Result<Vec<_>>>()?;
            files.sort();
            for (file, n) in files.iter().zip(0..14) {
                fs::copy(file, folder.join(format!("{n}.jpg")))?;
            }
        }
        Ok(Self { all, few, recipe })
    }

    /// Three of the first to one of the second, in batches of eight.
    fn config(&self) -> RunConfig {
        let source = |name: &str, data: &Path, weight| MixedSource {
            name: name.to_owned(),
            data: data.to_owned(),
            weight,
        };
        let mix = MixedData::new(vec![
            source("all", &self.all, 1.5),
            source("few", self.few.path(), 0.5),
        ]);
        let mix = MixedData { stop: MixStop::All, ..mix };
        RunConfig {
            batch_size: 8,
            seed: 5,
            memory: MemoryBudget::Slots(64 << 20),
            read: ReadConfig { side_index: SideIndexUse::Off, ..ReadConfig::default() },
            ..RunConfig::mixed(mix, self.recipe.clone())
        }
    }

    /// An agent that has each data set below a root of its own.
    fn agent(&self) -> Result<Loopback> {
        let root = |name: &str, path: &Path| DataRoot {
            name: Some(name.to_owned()),
            path: path.to_owned(),
        };
        let roots = [root("all", &self.all), root("few", self.few.path())];
        let config = ServerConfig {
            name: "loopback".to_owned(),
            emulated: false,
            n_workers: 1,
            n_slots: 2,
        };
        let store = FileStore::of(&roots, Links::Refused)?;
        Ok(Loopback::new(Box::new(Server::start(config, store, NoCosts)?)))
    }
}

fn run(
    config: RunConfig,
    how: &DriveConfig,
    device: Option<Loopback>,
) -> Result<EpochResult> {
    let mut runtime = Runtime::open(config)?;
    if let Some(device) = device {
        runtime.attach("loopback", Box::new(device))?;
    }
    let mut result = drive(&mut Loader::over(runtime), how, &mut Silent)?;
    result.epochs.pop().context("an epoch")
}

fn of(sources: &[SourceSamples]) -> Vec<(&str, u64)> {
    sources.iter().map(|it| (it.name.as_str(), it.samples)).collect()
}

#[test]
fn one_stream_whoever_makes_it_and_its_samples_are_counted() -> Result<()> {
    let data = Data::new()?;
    let host = run(data.config(), &one_epoch(), None)?;
    // 17 batches of 6 and 2 have all hundred; 21 have all 42.
    assert_whole(&host, 21 * 8)?;
    assert_eq!(of(&host.sources), [("all", 126), ("few", 42)]);
    let workers = RunConfig { workers: 3, ..data.config() };
    assert_eq!(run(workers, &one_epoch(), None)?.stream_digest, host.stream_digest);
    for strategy in ["csd", "ordered"] {
        let config = RunConfig { strategy: strategy.parse()?, ..data.config() };
        let both = run(config, &one_epoch(), Some(data.agent()?))?;
        assert_whole(&both, 21 * 8)?;
        assert_eq!(both.content_digest, host.content_digest, "{strategy}");
        if strategy == "ordered" {
            assert_eq!(both.stream_digest, host.stream_digest);
        } else {
            ensure!(both.back[0].batches > 0, "the device made nothing");
        }
    }
    Ok(())
}

/// An epoch so long that ids and batches do not suffice for several of it is measured as it is.
#[test]
fn a_run_that_is_valid_is_measured() -> Result<()> {
    let data = Data::new()?;
    for (stop, repeat) in [(MixStop::Samples(1 << 27), 1), (MixStop::First, 3)] {
        let config = data.config();
        let mix = config.mix.map(|mix| MixedData { stop, ..mix });
        let config = RunConfig { mix, repeat, ..config };
        Runtime::open(config)?.measure_front(Duration::ZERO)?;
    }
    Ok(())
}

#[test]
fn an_emulated_device_gets_every_data_set() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = Data::new()?;
    let host = run(data.config(), &one_epoch(), None)?;
    let config = RunConfig {
        devices: vec!["sim:ideal,time=functional".parse()?],
        require_devices: true,
        strategy: "csd".parse()?,
        ..data.config()
    };
    let device = run(config, &one_epoch(), None)?;
    assert_eq!(device.content_digest, host.content_digest);
    ensure!(device.back[0].batches > 0, "the device made nothing");
    Ok(())
}

#[test]
fn ranks_have_it_all_and_it_is_resumed_to_the_sample() -> Result<()> {
    let data = Data::new()?;
    let whole = run(data.config(), &one_epoch(), None)?;
    let folder = TempDir::new()?;
    let state = folder.path().join("state.json");
    for stop_after in [1, 10, 20] {
        let (stop_after, checkpoint) = (Some(stop_after), Some(state.clone()));
        run(data.config(), &DriveConfig { stop_after, checkpoint, ..one_epoch() }, None)?;
        let resume = DriveConfig { resume: Some(state.clone()), ..one_epoch() };
        let rest = run(data.config(), &resume, None)?;
        assert_eq!(rest.stream_digest, whole.stream_digest);
        // Another mix is another run.
        let mut other = data.config();
        if let Some(mix) = &mut other.mix {
            mix.sources[0].weight = 2.0;
        }
        let refused = run(other, &resume, None).unwrap_err().to_string();
        ensure!(refused.contains("resume state"), "{refused}");
    }
    let mut sum = 0_u128;
    for rank in 0..3 {
        let ranks = RankConfig { rank, world: 3, ..data.config().rank };
        let part = run(RunConfig { rank: ranks, ..data.config() }, &one_epoch(), None)?;
        let digest = part.content_digest.context("a digest")?;
        sum = sum.wrapping_add(u128::from_str_radix(&digest, 16)?);
    }
    assert_eq!(Some(format!("{sum:032x}")), whole.content_digest);
    Ok(())
}

#[test]
fn labels_and_what_cannot_be_mixed_are_told() -> Result<()> {
    let data = Data::new()?;
    let classes = |labels| -> Result<usize> {
        let mut config = data.config();
        if let Some(mix) = &mut config.mix {
            mix.labels = labels;
        }
        let loader = Loader::open(config)?;
        let names = loader.class_names();
        ensure!(names.len() != 6 || names[5] == "other", "{names:?}");
        Ok(names.len())
    };
    assert_eq!(classes(JoinLabels::Merge)?, 6, "five, and one that only the second has");
    assert_eq!(classes(JoinLabels::Offset)?, 8);
    assert_eq!(classes(JoinLabels::Keep)?, 0);
    let line = |change: &dyn Fn(&mut MixedData)| {
        let mut config = data.config();
        config.mix.as_mut().map(change);
        Loader::open(config).map(drop).unwrap_err().to_string()
    };
    let missing = line(&|mix| mix.sources[1].data = PathBuf::from("/nowhere"));
    ensure!(missing.contains("data set `few` (/nowhere): no such file"), "{missing}");
    let twice = line(&|mix| mix.sources[1].name = "all".to_owned());
    ensure!(twice.contains("`all` is there twice"), "{twice}");
    let weight = line(&|mix| mix.sources[1].weight = -1.0);
    ensure!(weight.contains("the weight of `few` must be"), "{weight}");
    Ok(())
}

#[test]
fn with_replacement_an_epoch_is_as_long_as_is_said() -> Result<()> {
    let data = Data::new()?;
    let mut config = data.config();
    if let Some(mix) = &mut config.mix {
        mix.stop = MixStop::Samples(64);
        mix.replacement = Replacement::With;
    }
    let epoch = run(config, &one_epoch(), None)?;
    assert_whole(&epoch, 64)?;
    assert_eq!(of(&epoch.sources), [("all", 48), ("few", 16)]);
    Ok(())
}
