//! Samples with more than an image and a class: whoever makes a batch, in whatever order and from wherever, a
//! row has the fields of its sample. And files that are delivered as they are, each of its own length.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_core::one_line;
use bothends_core::plan::LastPolicy;
use bothends_core::recipe::Recipe;
use bothends_core::tensor::{Dtype, Output};
use bothends_runtime::{
    BadPolicy, Batch, DeviceSpec, FieldKind, Loader, MixedData, MixedSource, RankConfig,
    RunConfig, Runtime, RuntimeError, drive,
};
use bothends_storage::{Answer, Double};
use bothends_tests::{Setup, Silent, assert_whole, generated, one_epoch};

/// Each format with fields of every kind.
const FORMATS: [(&str, &[&str]); 5] = [
    ("fields-tar", &["txt", "index", "mask.bin"]),
    ("fields-mds", &["caption", "score", "thumb", "size"]),
    ("fields-tfrecord", &["caption:text", "tags", "mask"]),
    ("fields-parquet", &["caption", "low", "depth"]),
    ("fields-arrow", &["caption", "tags", "size", "mask"]),
];

fn shards(name: &str) -> Result<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/shards");
    Ok(fixtures.join(name).canonicalize()?)
}

fn setup(name: &str, fields: &[&str]) -> Result<Setup> {
    let fields = fields.iter().map(|name| (*name).to_owned()).collect();
    Ok(Setup { fields, batch_size: 2, ..Setup::new(&shards(name)?) })
}

/// As `scripts/golden-shards` writes them.
fn caption(nth: u64) -> String {
    format!("număr {nth}").repeat(usize::try_from(nth % 3).unwrap_or(0))
}

fn mask(nth: u64) -> Vec<u8> {
    let n = usize::try_from(10 * nth + 1).unwrap_or(0);
    vec![u8::try_from(nth).unwrap_or(0); n]
}

/// The objects of a folder.
fn double(folder: &Path) -> Result<Arc<Double>> {
    let double = Double::answering(|asked| {
        Answer::After(Duration::from_micros(asked.number * 7919 % 3000))
    });
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
        double.put(name, fs::read(&path)?);
    }
    Ok(Arc::new(double))
}

/// All batches of an epoch.
fn batches(config: RunConfig, epoch: u32) -> Result<Vec<Batch>> {
    let config = RunConfig { held_batches: 64, ..config };
    let mut loader = Loader::over(Runtime::open(config)?);
    loader.set_epoch(epoch);
    let deal = loader.begin(1)?;
    Ok(deal.batches(0).collect::<Result<_, _>>()?)
}

/// Fails unless every row has the fields of its sample.
fn ensure_own_fields(batch: &Batch) -> Result<usize> {
    let [text, bytes] = [FieldKind::Text, FieldKind::Bytes]
        .map(|kind| batch.fields().iter().find(|field| field.kind() == kind));
    let (text, bytes) = (text.context("a text")?, bytes.context("bytes")?);
    for (nth, row) in batch.rows().iter().enumerate() {
        let Some(sample) = row.sample else {
            ensure!(text.value(nth).is_empty() && bytes.value(nth).is_empty());
            continue;
        };
        let id = sample.0 % 7;
        ensure!(text.value(nth) == caption(id).as_bytes(), "{sample:?}");
        ensure!(bytes.value(nth) == mask(id), "{sample:?}");
    }
    Ok(batch.rows().iter().filter(|row| row.sample.is_some()).count())
}

#[test]
fn rows_have_the_fields_of_their_samples_in_any_order_epoch_and_rank() -> Result<()> {
    for (name, fields) in FORMATS {
        let setup = setup(name, fields)?;
        let objects = Some(double(&setup.data)? as _);
        let remote = Setup { objects, ..setup.clone() };
        for (seed, setup) in (0..6).zip([setup, remote].iter().cycle()) {
            let config = Setup { seed, workers: 2, ..setup.clone() }.config()?;
            let world = u32::try_from(seed % 3)? + 1;
            let mut n_samples = 0;
            for rank in 0..world {
                let rank = RankConfig { rank, world, last: LastPolicy::Pad };
                let config = RunConfig { rank, repeat: 2, ..config.clone() };
                for batch in batches(config, u32::try_from(seed)?)? {
                    n_samples += ensure_own_fields(&batch)?;
                }
            }
            ensure!(n_samples == 14, "{name} {seed}: {n_samples}");
        }
    }
    Ok(())
}

/// In a shard they lie next to each other.
#[test]
fn fields_come_with_the_requests_for_their_records() -> Result<()> {
    let local = setup("fields-tar", &["txt", "mask.bin"])?;
    let objects = double(&local.data)?;
    let remote = Setup { objects: Some(objects.clone()), ..local };
    let mut loader = Loader::over(Runtime::open(remote.config()?)?);
    let before = objects.n_asked();
    let mut n_samples = 0;
    for batch in loader.begin(1)?.batches(0) {
        n_samples += ensure_own_fields(&batch?)?;
    }
    let n_asked = objects.n_asked() - before;
    ensure!(n_samples == 7 && n_asked <= 7, "{n_asked} requests");
    Ok(())
}

/// A member of a tar archive.
fn member(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut head = vec![0; 512];
    let parts = [
        (0, name.to_owned()),
        (100, "0000644".to_owned()),
        (124, format!("{:011o}", bytes.len())),
        (148, "        ".to_owned()),
        (156, "0".to_owned()),
        (257, "ustar\x0000".to_owned()),
    ];
    for (at, text) in &parts {
        head[*at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let padding = bytes.len().next_multiple_of(512) - bytes.len();
    Ok([head, bytes.to_vec(), vec![0; padding]].concat())
}

/// Longer than all that may be in flight, before and behind the images.
#[test]
fn long_fields_come_with_little_memory() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let image = fs::read(generated()?.join("class-002/018.jpg"))?;
    let depth = |nth: u8, name: char| vec![nth ^ name as u8; 600_000];
    let mut archive = Vec::new();
    for nth in 0..7_u8 {
        archive.extend(member(&format!("{nth}.a.bin"), &depth(nth, 'a'))?);
        archive.extend(member(&format!("{nth}.jpg"), &image)?);
        archive.extend(member(&format!("{nth}.z.bin"), &depth(nth, 'z'))?);
    }
    archive.extend([0; 1024]);
    fs::write(folder.path().join("0.tar"), archive)?;
    let fields = ["a.bin", "z.bin"].map(str::to_owned).to_vec();
    let objects = double(folder.path())?;
    let store = Some(objects.clone() as _);
    let setup =
        Setup { fields, objects: store, batch_size: 3, ..Setup::new(folder.path()) };
    // With memory for less than a batch, for two, and for all.
    for (reorder_bytes, is_noted) in
        [(Some(1 << 20), true), (Some(16 << 20), false), (None, false)]
    {
        let mut config = setup.config()?;
        config.read.fetch.reorder_bytes = reorder_bytes;
        for batch in batches(config.clone(), 0)? {
            for (field, name) in batch.fields().iter().zip(['a', 'z']) {
                for (nth, row) in batch.rows().iter().enumerate() {
                    let Some(sample) = row.sample else { continue };
                    let expected = depth(u8::try_from(sample.0)?, name);
                    ensure!(field.value(nth) == expected, "{sample:?} {name}");
                }
            }
        }
        let runtime = Runtime::open(config)?;
        let note = runtime.next_note().unwrap_or_default();
        let says =
            note.contains("fields take 4 MB per batch, and there are 1 MB to fetch");
        ensure!(says == is_noted, "{note}");
        let before = objects.n_asked();
        drive(&mut Loader::over(runtime), &one_epoch(), &mut Silent)?;
        // Each of 7 records and 14 values once.
        let n_asked = objects.n_asked() - before;
        ensure!(n_asked <= 21, "{n_asked} requests with {reorder_bytes:?}");
    }
    Ok(())
}

#[test]
fn fields_are_kept_in_the_record_cache() -> Result<()> {
    let local = setup("fields-tar", &["txt", "mask.bin"])?;
    let folder = tempfile::tempdir()?;
    let objects = Some(double(&local.data)? as _);
    let cache = Some(folder.path().join("cache"));
    let expected = local.run()?;
    let remote = Setup { objects, cache, ..local };
    let devices = vec!["loopback".to_owned()];
    let by_device = Setup { devices, strategy: "csd", ..remote.clone() };
    // What a device makes takes from there, too, and leaves records to the others.
    for (setup, has_all) in [(&by_device, false), (&remote, false), (&remote, true)] {
        let result = setup.drive()?;
        let fetches = result.fetches.context("figures")?;
        ensure!(!has_all || fetches.requests == 0, "{fetches:?}");
        ensure!(result.epochs[0].content_digest == expected.content_digest);
    }
    Ok(())
}

#[test]
fn the_stream_with_fields_is_the_same_whoever_makes_it() -> Result<()> {
    for (name, fields) in FORMATS {
        let alone = setup(name, fields)?;
        let expected = alone.run()?;
        assert_whole(&expected, 7)?;
        let without = Setup { fields: Vec::new(), ..alone.clone() }.run()?;
        ensure!(without.stream_digest != expected.stream_digest, "{name}");
        let devices = vec!["loopback".to_owned()];
        let others = [
            Setup { workers: 3, ..alone.clone() },
            Setup { devices: devices.clone(), audit_percent: 100, ..alone.clone() },
            Setup { devices, strategy: "csd", ..alone.clone() },
            Setup { objects: Some(double(&alone.data)? as _), ..alone.clone() },
        ];
        for other in others {
            let epoch = other.run()?;
            let is_ordered = other.strategy == "ordered";
            let is_same = epoch.stream_digest == expected.stream_digest;
            ensure!(is_same || !is_ordered, "{other:?}");
            ensure!(epoch.content_digest == expected.content_digest, "{other:?}");
        }
        let folder = tempfile::tempdir()?;
        let state = folder.path().join("state.json");
        for stop in [1, 3] {
            let first = Setup {
                stop_after: Some(stop),
                checkpoint: Some(state.clone()),
                ..alone.clone()
            };
            first.drive()?;
            let resumed =
                Setup { resume: Some(state.clone()), workers: 2, ..alone.clone() };
            let resumed = resumed.run()?;
            ensure!(resumed.stream_digest == expected.stream_digest, "{name} {stop}");
        }
    }
    Ok(())
}

#[test]
fn a_mix_has_the_fields_of_each_data_set() -> Result<()> {
    let source = |name: &str| -> Result<_> {
        let (name, data) = (name.to_owned(), shards(name)?);
        Ok(MixedSource { name, data, weight: 1.0 })
    };
    let sources = vec![source("fields-mds")?, source("fields-arrow")?];
    let recipe = Recipe::builtin("imagenet-train");
    let mixed = RunConfig::mixed(MixedData::new(sources), recipe.context("a recipe")?);
    let fields = ["caption", "mask"].map(str::to_owned).to_vec();
    let config = RunConfig { batch_size: 4, fields, ..mixed };
    for batch in batches(config.clone(), 0)? {
        ensure!(ensure_own_fields(&batch)? == 4);
    }
    let config = RunConfig { fields: vec!["size".to_owned()], ..config };
    let line = one_line(&Runtime::open(config).err().context("a refusal")?);
    ensure!(line.contains("a field of a different type"), "{line}");
    Ok(())
}

/// A class folder of text next to images would be a different format: a tar with one caption in Latin-1.
fn latin_1(folder: &Path) -> Result<()> {
    for shard in ["000000.tar", "000001.tar"] {
        let mut bytes = fs::read(shards("fields-tar")?.join(shard))?;
        let text = "număr 4".as_bytes();
        if let Some(at) = bytes.windows(text.len()).position(|part| part == text) {
            bytes[at + 3] = 0xe3;
            bytes[at + 4] = b' ';
        }
        fs::write(folder.join(shard), bytes)?;
    }
    Ok(())
}

#[test]
fn a_bad_field_is_named_and_the_policy_applies_to_its_sample() -> Result<()> {
    let folder = tempfile::tempdir()?;
    latin_1(folder.path())?;
    let setup =
        Setup { data: folder.path().to_owned(), ..setup("fields-tar", &["txt"])? };
    let line = format!("{:#}", setup.run().err().context("a failure")?);
    for part in ["`txt`", "UTF-8", "000001.tar"] {
        ensure!(line.contains(part), "{line}");
    }
    let skip = Setup { on_bad: BadPolicy::Skip, ..setup.clone() }.run()?;
    ensure!(skip.samples == 6 && skip.skipped.len() == 1, "{:?}", skip.skipped);
    let zero = Setup { on_bad: BadPolicy::Zero, ..setup.clone() }.run()?;
    ensure!(zero.samples == 7 && zero.skipped.len() == 1, "{:?}", zero.skipped);
    let bytes = Setup { fields: vec!["txt:bytes".to_owned()], ..setup };
    assert_whole(&bytes.run()?, 7)?;
    let folder = self::setup("folder", &["caption"])?;
    let line = format!("{:#}", folder.run().err().context("a failure")?);
    ensure!(line.contains("fields of class folders are not read"), "{line}");
    Ok(())
}

// ---- files as they are ---------------------------------------------------------------------

fn raw(data: &Path) -> Setup {
    Setup { recipe: "raw".to_owned(), workers: 2, ..Setup::new(data) }
}

#[test]
fn files_of_different_lengths_are_delivered_as_they_are() -> Result<()> {
    let data = generated()?;
    let setup = raw(&data);
    let mut lens = BTreeSet::new();
    let config = setup.config()?;
    let loader = Loader::over(Runtime::open(config.clone())?);
    let mut n_samples = 0;
    for rank in 0..2 {
        let rank = RankConfig { rank, world: 2, last: LastPolicy::Pad };
        for batch in batches(RunConfig { rank, ..config.clone() }, 3)? {
            let starts = batch.row_starts().context("rows of their own length")?;
            ensure!(starts.len() == batch.rows().len() + 1);
            ensure!(starts.last() == Some(&batch.bytes().len()));
            for (nth, row) in batch.rows().iter().enumerate() {
                let Some(sample) = row.sample else {
                    ensure!(batch.sample(nth).is_empty());
                    continue;
                };
                let (file, _) = loader.sample(sample).context("a sample")?;
                ensure!(batch.sample(nth) == fs::read(data.join(&file))?, "{file}");
                ensure!(batch.view(nth, 0) == batch.sample(nth));
                lens.insert(batch.sample(nth).len());
                n_samples += 1;
            }
        }
    }
    ensure!(n_samples == 100 && lens.len() > 10, "{n_samples} {}", lens.len());
    Ok(())
}

#[test]
fn the_stream_of_files_as_they_are_is_the_same_from_anywhere() -> Result<()> {
    let tar = raw(&shards("fields-tar")?);
    let tar = Setup { batch_size: 3, ..tar };
    let expected = tar.run()?;
    assert_whole(&expected, 7)?;
    let folder = Setup { data: shards("folder")?, ..tar.clone() };
    let remote = Setup { objects: Some(double(&tar.data)? as _), ..tar.clone() };
    let one = Setup { workers: 1, ..tar.clone() };
    for other in [folder, remote, one] {
        let epoch = other.run()?;
        ensure!(epoch.stream_digest == expected.stream_digest, "{other:?}");
        ensure!(epoch.content_digest == expected.content_digest, "{other:?}");
    }
    let with_field =
        Setup { fields: vec!["jpg".to_owned(), "txt".to_owned()], ..tar.clone() }
            .config()?;
    for batch in batches(with_field, 0)? {
        for nth in 0..batch.rows().len() {
            ensure!(batch.fields()[0].value(nth) == batch.sample(nth), "the same bytes");
        }
    }
    Ok(())
}

/// Copies of a few files, in one class.
fn copies(folder: &Path) -> Result<()> {
    let images = shards("folder")?.join("class-0");
    fs::create_dir(folder.join("class"))?;
    for entry in fs::read_dir(images)? {
        let path = entry?.path();
        fs::copy(&path, folder.join("class").join(path.file_name().context("a name")?))?;
    }
    Ok(())
}

#[test]
fn a_file_that_is_gone_or_changed_is_a_bad_sample() -> Result<()> {
    for on_bad in [BadPolicy::Skip, BadPolicy::Zero, BadPolicy::Raise] {
        let folder = tempfile::tempdir()?;
        copies(folder.path())?;
        let setup = Setup { on_bad, batch_size: 3, ..raw(folder.path()) };
        let mut loader = Loader::over(Runtime::open(setup.config()?)?);
        let (first, second) = ("class/000.jpg", "class/002.jpg");
        let len = fs::read(folder.path().join(first))?.len();
        fs::remove_file(folder.path().join(first))?;
        let kept = fs::read(folder.path().join(second))?;
        let run = drive(&mut loader, &one_epoch(), &mut Silent);
        match on_bad {
            BadPolicy::Raise => {
                let line = one_line(&run.err().context("a failure")?);
                ensure!(line.contains("000.jpg"), "{line}");
            }
            BadPolicy::Skip | BadPolicy::Replace | BadPolicy::Zero => {
                let epoch = run?.epochs.pop().context("an epoch")?;
                ensure!(epoch.skipped.len() == 1, "{:?}", epoch.skipped);
            }
        }
        let deal = loader.begin(1);
        if on_bad == BadPolicy::Raise {
            continue;
        }
        let deal = deal?;
        let batch = deal.batches(0).next().context("a batch")??;
        let rows: Vec<_> = (0..batch.rows().len()).map(|nth| batch.sample(nth)).collect();
        ensure!(rows.contains(&&kept[..]), "the rows behind a gap are whole");
        let zeros = vec![0; len];
        let is_zero = rows.contains(&&zeros[..]);
        ensure!(
            is_zero == (on_bad == BadPolicy::Zero)
                && rows.len() == 2 + usize::from(is_zero)
        );
    }
    Ok(())
}

#[test]
fn what_files_as_they_are_do_not_go_with_is_named() -> Result<()> {
    let setup = Setup { batch_size: 3, ..raw(&shards("fields-tar")?) };
    let config = setup.config()?;
    let refusal = |config: RunConfig| -> Result<String> {
        Ok(one_line(&Runtime::open(config).err().context("a refusal")?))
    };
    let device: DeviceSpec = "tcp://127.0.0.1:1".parse().map_err(|e: RuntimeError| e)?;
    let with_device = RunConfig { devices: vec![device], ..config.clone() };
    let output = Output { dtype: Dtype::F32, ..config.output };
    let as_f32 = RunConfig { output, ..config.clone() };
    let replace = RunConfig { on_bad: BadPolicy::Replace, ..config.clone() };
    for (line, part) in [
        (refusal(with_device)?, "only the host makes batches of unmodified files"),
        (refusal(as_f32)?, "output `u8`"),
        (refusal(replace)?, "use raise, skip or zero"),
    ] {
        ensure!(line.contains("`raw`") && line.contains(part), "{line}");
    }
    let attached = Setup { devices: vec!["loopback".to_owned()], ..setup };
    let line = format!("{:#}", attached.run().err().context("a refusal")?);
    ensure!(line.contains("only the host makes"), "{line}");
    Ok(())
}
