//! A data set in a store is the data set: its stream is the same, its files come back, and
//! after a failure of the packer or the disk it continues, or says in one line why not.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_core::recipe::Numerics;
use bothends_pack::{Files, OpenStore, PackConfig, pack};
use bothends_runtime::BadPolicy;
use bothends_tests::programs::{eventually, program, run};
use bothends_tests::{Setup, cifar_batches, generated};

const PATIENCE: Duration = Duration::from_secs(60);

fn bothends(args: &[&str], paths: &[&Path]) -> Result<Output> {
    run(Command::new(program("bothends")?).args(args).args(paths), PATIENCE)
}

/// What a command that must succeed has printed.
fn said(args: &[&str], paths: &[&Path]) -> Result<String> {
    let output = bothends(args, paths)?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{args:?}: {words}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The one line of a command that must fail.
fn refused(args: &[&str], paths: &[&Path]) -> Result<String> {
    let output = bothends(args, paths)?;
    ensure!(output.status.code() == Some(1), "{args:?}: {}", output.status);
    Ok(String::from_utf8(output.stderr)?.trim_end().to_owned())
}

fn same_trees(one: &Path, other: &Path) -> Result<()> {
    let mut diff = Command::new("diff");
    let output =
        run(diff.args(["-r", "-x", ".bothends-index-*"]).args([one, other]), PATIENCE)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// A store of the generated images in several shards.
fn stored(folder: &Path) -> Result<PathBuf> {
    let store = folder.join("store");
    let config = PackConfig { shard_bytes: 256 << 10, ..PackConfig::default() };
    pack(&Files::open(&generated()?)?, &store, &config, &mut |_| ())?;
    ensure!(OpenStore::new(&store)?.manifest().shards.len() > 2, "several shards");
    Ok(store)
}

#[test]
fn the_stream_from_a_store_is_that_from_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let images = generated()?;
    let stored_images = stored(folder.path())?;
    let [cifar, stored_cifar] =
        ["cifar", "stored-cifar"].map(|name| folder.path().join(name));
    cifar_batches(&cifar)?;
    pack(&Files::open(&cifar)?, &stored_cifar, &PackConfig::default(), &mut |_| ())?;
    for (recipe, data, store) in [
        ("imagenet-train", &images, &stored_images),
        ("imagenet-eval", &images, &stored_images),
        ("cifar10-train", &cifar, &stored_cifar),
        ("cifar10-eval", &cifar, &stored_cifar),
        ("raw", &cifar, &stored_cifar),
    ] {
        for numerics in [Numerics::Exact, Numerics::Planar] {
            let recipe = recipe.to_owned();
            let from_files = Setup { recipe, numerics, ..Setup::new(data) };
            let from_store = Setup { data: store.clone(), ..from_files.clone() };
            let with_device =
                Setup { devices: vec!["loopback".to_owned()], ..from_store.clone() };
            let files = from_files.run()?;
            ensure!(files.samples > 0 && files.stream_digest.is_some());
            for other in [from_store, with_device] {
                let epoch = other.run()?;
                ensure!(epoch.samples == files.samples, "{other:?}");
                ensure!(epoch.stream_digest == files.stream_digest, "{other:?}");
            }
        }
    }
    Ok(())
}

/// Shards of other programs give the stream of the folder with the same images, from the host, a device and
/// a store, and come back from the store as they were.
#[test]
fn the_stream_from_shards_is_that_from_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let shards =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/shards").canonicalize()?;
    let from_files = Setup { batch_size: 2, ..Setup::new(&shards.join("folder")) };
    let expected = from_files.run()?;
    ensure!(expected.samples > 0 && expected.stream_digest.is_some());
    let names = [
        "tar",
        "mds",
        "tfrecord",
        "parquet",
        "arrow",
        "litdata",
        "litdata-items",
        "datadings",
        "hdf5",
        "beton",
    ];
    for name in names {
        let (data, store) = (shards.join(name), folder.path().join(name));
        let inspected = said(&["inspect"], &[&data])?;
        ensure!(inspected.contains(": 7 samples in "), "{inspected}");
        pack(&Files::open(&data)?, &store, &PackConfig::default(), &mut |_| ())?;
        let back = folder.path().join(format!("{name}-again"));
        said(&["unpack"], &[&store, &back])?;
        same_trees(&data, &back)?;
        let from_shards = Setup { data, ..from_files.clone() };
        let devices = vec!["loopback".to_owned()];
        let with_device = Setup { devices, ..from_shards.clone() };
        let from_store = Setup { data: store, ..from_files.clone() };
        for other in [from_shards, with_device, from_store] {
            let epoch = other.run()?;
            ensure!(epoch.stream_digest == expected.stream_digest, "{other:?}");
        }
    }
    Ok(())
}

#[test]
fn what_is_packed_is_unpacked_inspected_and_verified() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (store, again) = (folder.path().join("store"), folder.path().join("again"));
    let data = &*generated()?;
    let packed = said(&["pack", "--shard-bytes", "300000"], &[data, &store])?;
    ensure!(packed.contains(" shards with "), "{packed}");
    said(&["unpack"], &[&store, &again])?;
    same_trees(data, &again)?;
    let inspected = said(&["inspect"], &[&store])?;
    ensure!(
        inspected.starts_with("a store: ") && inspected.contains(&packed),
        "{inspected}"
    );
    let verified = said(&["inspect", "--verify"], &[&store])?;
    ensure!(
        verified.starts_with("all ") && verified.ends_with("records are intact\n"),
        "{verified}"
    );
    // Resharded, from two parts of it.
    let [first, second, joined] =
        ["first", "second", "joined"].map(|to| folder.path().join(to));
    let n = OpenStore::new(&store)?.manifest().n_samples().context("a number")?;
    said(&["pack", "--samples", "0..3"], &[&store, &first])?;
    said(&["pack", "--samples", &format!("3..{n}")], &[&store, &second])?;
    said(&["pack"], &[&first, &second, &joined])?;
    ensure!(OpenStore::new(&joined)?.manifest().n_samples() == Some(n));
    Ok(())
}

#[test]
fn a_killed_packer_is_gone_on_with() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    let data = &*generated()?;
    let args = ["pack", "--shard-bytes", "65536", "--threads", "1"];
    said(&args, &[data, &whole])?;
    let n_shards = OpenStore::new(&whole)?.manifest().shards.len();
    let has = |number: usize| killed.join(format!("{number:05}.shard")).exists();
    for number in [0, n_shards / 2, n_shards - 1] {
        let mut packer = Command::new(program("bothends")?)
            .args(args)
            .args([data, &killed])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let came_so_far =
            || has(number) || !matches!(packer_state(&killed), State::UnderWay);
        ensure!(eventually(PATIENCE, came_so_far), "it never came to shard {number}");
        packer.kill()?;
        packer.wait()?;
    }
    if !killed.join("store.json").exists() {
        let went_on = said(&args, &[data, &killed])?;
        ensure!(went_on.starts_with("continued after "), "{went_on}");
    }
    same_trees(&whole, &killed)
}

enum State {
    UnderWay,
    Done,
}

fn packer_state(store: &Path) -> State {
    match store.join("store.json").exists() {
        true => State::Done,
        false => State::UnderWay,
    }
}

#[test]
fn damage_is_one_bad_sample_and_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = stored(folder.path())?;
    let shard = store.join("00001.shard");
    let mut bytes = fs::read(&shard)?;
    let open = OpenStore::new(&store)?;
    let len = open.indices()[1].lines()[0].len as usize;
    // In every row group: a sample is made of some of them.
    bytes[4096..4096 + len].iter_mut().step_by(16).for_each(|byte| *byte ^= 0x10);
    fs::write(&shard, &bytes)?;
    let run = |on_bad| Setup { on_bad, ..Setup::new(&store) }.run();
    ensure!(run(BadPolicy::Raise).is_err(), "a damaged record is no sample");
    let epoch = run(BadPolicy::Zero)?;
    ensure!(epoch.skipped.len() == 1, "{:?}", epoch.skipped);
    let file = &epoch.skipped[0].file;
    let is_named = file.starts_with("class-") && file.ends_with(".jpg in 00001.shard");
    ensure!(is_named, "{file}");
    let output = bothends(&["inspect", "--verify"], &[&store])?;
    let named = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(1) && named.lines().count() == 1, "{named}");
    ensure!(named.starts_with("00001.shard record 0 (`class-"), "{named}");
    ensure!(named.ends_with(".jpg`): it has a different checksum\n"), "{named}");
    let said = String::from_utf8(output.stderr)?;
    let expected = format!(
        "error: `{}` is damaged in 1 place; restore the named files from a copy, or pack the data \
         again\n",
        store.display()
    );
    ensure!(said == expected, "{said}");
    Ok(())
}

/// Records without bytes take no page, so that each is at the place of the record behind it.
#[test]
fn an_empty_record_is_named_and_not_its_neighbour() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, store) = (folder.path().join("data"), folder.path().join("store"));
    fs::create_dir_all(data.join("class"))?;
    let good = fs::read(generated()?.join("class-000/000.jpg"))?;
    let files = [("1", &good[..]), ("2-empty", b""), ("3-empty", b""), ("4", &good[..])];
    for (name, bytes) in files {
        fs::write(data.join(format!("class/{name}.jpg")), bytes)?;
    }
    said(&["pack"], &[&data, &store])?;
    let args =
        ["run", "-q", "--recipe", "imagenet-eval", "--on-bad", "skip", "--batch-size"];
    let output = bothends(&[&args[..], &["1", "--data"]].concat(), &[&store])?;
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    for sample in ["sample 1 (class/2-empty.jpg in", "sample 2 (class/3-empty.jpg in"] {
        ensure!(words.contains(sample), "{words}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_packed_is_said_in_one_line() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = stored(folder.path())?;
    let data = &*generated()?;
    let cases = [
        (
            refused(&["pack"], &[data, &store])?,
            format!(
                "error: `{}` is already a store; name a new folder, or add to it with `--append`",
                store.display()
            ),
        ),
        (
            refused(&["pack"], &[data, folder.path()])?,
            format!(
                "error: `{}` is not empty (it contains `store`); name a new folder",
                folder.path().display()
            ),
        ),
        (
            refused(&["unpack"], &[data, folder.path()])?,
            format!("error: `{}` is not a store: it has no store.json", data.display()),
        ),
        (
            refused(&["inspect", "--verify"], &[data])?,
            format!("error: `{}` is not a store: it has no store.json", data.display()),
        ),
    ];
    for (said, expected) in cases {
        ensure!(said == expected, "{said}\ninstead of\n{expected}");
    }
    Ok(())
}
