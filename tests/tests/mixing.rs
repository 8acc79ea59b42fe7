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
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::servers::{self, BUCKET};
use bothends_tests::{Silent, assert_whole, cql, generated, one_epoch, programs};
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

/// The names of a folder's files from the folder on, with their bytes and the numbers of their classes.
fn samples(folder: &Path) -> Result<Vec<(String, Vec<u8>, usize)>> {
    let mut classes: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    classes.retain(|path| path.is_dir());
    classes.sort();
    let mut samples = Vec::new();
    for (label, class) in classes.iter().enumerate() {
        let mut files: Vec<PathBuf> =
            fs::read_dir(class)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.sort();
        for file in files {
            let name = file.strip_prefix(folder)?.to_str().context("a name")?;
            samples.push((name.to_owned(), fs::read(&file)?, label));
        }
    }
    Ok(samples)
}

/// The mix with these places of its data sets has the same stream, and its records are fetched.
fn is_same(
    expected: &EpochResult,
    config: &RunConfig,
    [all, few]: [String; 2],
) -> Result<()> {
    let mut mix = config.mix.clone().context("a mix")?;
    (mix.sources[0].data, mix.sources[1].data) = (all.into(), few.into());
    let remote = RunConfig { workers: 2, mix: Some(mix), ..config.clone() };
    let mut loader = Loader::over(Runtime::open(remote.clone())?);
    let result = drive(&mut loader, &one_epoch(), &mut Silent)?;
    let epoch = result.epochs.last().context("an epoch")?;
    ensure!(epoch.stream_digest == expected.stream_digest, "{:?}", remote.mix);
    ensure!(of(&epoch.sources) == of(&expected.sources));
    ensure!(result.fetches.is_some_and(|fetches| fetches.requests > 0));
    Ok(())
}

#[test]
fn data_sets_here_and_in_several_stores_have_the_same_stream() -> Result<()> {
    let data = Data::new()?;
    let path = |path: &Path| path.display().to_string();
    let (all, few) = (path(&data.all), path(data.few.path()));
    let url = |path: &str| format!("file://{path}");
    let expected = run(data.config(), &one_epoch(), None)?;
    is_same(&expected, &data.config(), [url(&all), few.clone()])?;
    is_same(&expected, &data.config(), [all.clone(), url(&few)])?;
    // Neither a table nor a list knows the names of classes.
    let mut config = data.config();
    config.mix.as_mut().context("a mix")?.labels = JoinLabels::Keep;
    let expected = run(config.clone(), &one_epoch(), None)?;
    let table = cql::Server::start(cql::Settings::default())?;
    for (name, bytes, label) in samples(data.few.path())? {
        table.put(name.as_bytes(), &bytes, Some(i32::try_from(label)?));
    }
    is_same(&expected, &config, [url(&all), table.url()])?;
    if let Some(server) = servers::seaweedfs("a mix over SeaweedFS and a table")? {
        let mut list = String::new();
        for (name, bytes, label) in samples(&data.all)? {
            servers::put(server.at, &format!("/{BUCKET}/all/{name}"), &bytes)?;
            list.push_str(&format!("{{\"path\": \"{name}\", \"label\": {label}}}\n"));
        }
        servers::put(server.at, &format!("/{BUCKET}/all/list.jsonl"), list.as_bytes())?;
        let listed = format!("http://{}/{BUCKET}/all/list.jsonl", server.at);
        is_same(&expected, &config, [listed.clone(), table.url()])?;
        is_same(&expected, &config, [listed, few])?;
    }
    Ok(())
}

#[test]
fn a_store_of_a_mix_that_is_gone_is_named() -> Result<()> {
    let data = Data::new()?;
    let at = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut mix = data.config().mix.context("a mix")?;
    mix.sources[1].data = format!("redis://me:s3cret@{at}/0").into();
    let config = RunConfig { mix: Some(mix), ..data.config() };
    let error = Runtime::open(config).err().context("it opens")?.to_string();
    ensure!(error.contains("data set `few` (redis://"), "{error}");
    ensure!(error.contains(&format!("cannot reach {at}")), "{error}");
    ensure!(!error.contains("s3cret"), "{error}");
    Ok(())
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
        let both = || -> Result<EpochResult> {
            let both = run(config.clone(), &one_epoch(), Some(data.agent()?))?;
            assert_whole(&both, 21 * 8)?;
            assert_eq!(both.content_digest, host.content_digest, "{strategy}");
            Ok(both)
        };
        if strategy == "ordered" {
            assert_eq!(both()?.stream_digest, host.stream_digest);
        } else {
            until_a_device_takes_part(both)?;
        }
    }
    Ok(())
}

/// Batches that lay ready when it was left were delivered to nobody.
#[test]
fn samples_of_an_epoch_that_is_left_count_as_they_were_delivered() -> Result<()> {
    let data = Data::new()?;
    let mut loader = Loader::open(RunConfig { workers: 2, ..data.config() })?;
    for _ in 0..3 {
        let deal = loader.begin(1)?;
        drop(deal.batches(0).next().context("a batch")??);
        // Meanwhile the next ones become ready; where they do not, there was nothing to count wrongly.
        std::thread::sleep(Duration::from_millis(200));
    }
    loader.begin(1)?;
    assert_eq!(of(&loader.stats().sources), [("all", 18), ("few", 6)]);
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
    until_a_device_takes_part(|| {
        let device = run(config.clone(), &one_epoch(), None)?;
        assert_eq!(device.content_digest, host.content_digest);
        Ok(device)
    })?;
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
