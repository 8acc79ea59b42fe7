//! Data in a remote store, which a double in this process stands for: it answers late and in any
//! order, fails, breaks off, changes objects. Whatever it does, the stream is that of the same files on
//! a local disk, or the run ends with one line that says why not.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::rng::Draws;
use bothends_core::sample::SampleKey;
use bothends_core::setting::Setting;
use bothends_pack::{Files, LIST, Missing, PackConfig, pack, write_to};
use bothends_runtime::{
    BadPolicy, Loader, RunResult, Runtime, RuntimeError, one_line_with, options, survey,
};
use bothends_storage::conformance::each_listed;
use bothends_storage::{Answer, Asked, Double, Location, Options, StorageError};
use bothends_tests::programs::program;
use bothends_tests::servers::{self, BUCKET};
use bothends_tests::{N_GENERATED, Setup, assert_whole, cifar_batches, cql, generated};

const PROMPT: Answer = Answer::After(Duration::ZERO);

/// Every name and the bytes of a data set's files.
fn files(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(&at)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder)?.to_str().context("a name")?;
                found.push((name.to_owned(), std::fs::read(&path)?));
            }
        }
    }
    Ok(found)
}

/// All files below a folder, as objects.
fn double(
    folder: &Path,
    answers: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
) -> Result<Arc<Double>> {
    let double = Double::answering(answers);
    for (name, bytes) in files(folder)? {
        double.put(&name, bytes);
    }
    Ok(Arc::new(double))
}

/// A number below `n` for this request, the same in every run.
fn draw(seed: u64, asked: &Asked, n: u32) -> u32 {
    let key = SampleKey { seed, epoch: EpochIdx(0), sample: SampleId(asked.number) };
    Draws::new(key, 0).next_u32() % n
}

/// Answers in another order than they were asked for.
fn shuffled(asked: &Asked) -> Answer {
    Answer::After(Duration::from_micros(u64::from(draw(3, asked, 4000))))
}

/// One answer in five fails, in every way that may pass.
fn failing(asked: &Asked) -> Answer {
    let place = || format!("double:{}", asked.object);
    let after = Duration::from_micros(u64::from(draw(5, asked, 1000)));
    let error = match draw(4, asked, 15) {
        0 => StorageError::Broken { place: place(), why: "reset".to_owned() },
        1 => StorageError::Unreachable {
            place: place(),
            host: "double:1".to_owned(),
            why: "refused".to_owned(),
        },
        2 => StorageError::Throttled {
            place: place(),
            retry_after: Some(Duration::from_millis(1)),
        },
        _ => return Answer::After(after),
    };
    match asked.range {
        Some(_) => Answer::Fails(after, error),
        None => PROMPT,
    }
}

/// The same data set from files and from the double, in batches of `batch_size`.
fn local_and_remote(data: &Path, batch_size: u32) -> Result<[Setup; 2]> {
    let local = Setup { batch_size, workers: 2, ..Setup::new(data) };
    let objects = Some(double(data, shuffled)? as _);
    let remote = Setup { objects, ..local.clone() };
    Ok([local, remote])
}

fn shards() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/shards").canonicalize()?)
}

#[test]
fn every_format_has_the_same_stream_from_a_remote_store() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let shards = shards()?;
    let [cifar, store] = ["cifar", "store"].map(|name| folder.path().join(name));
    cifar_batches(&cifar)?;
    pack(
        &Files::open(&shards.join("folder"))?,
        &store,
        &PackConfig::default(),
        &mut |_| (),
    )?;
    let of_shards = ["folder", "tar", "mds", "tfrecord"].map(|name| shards.join(name));
    for data in of_shards.iter().chain([&cifar, &store]) {
        let recipes: &[&str] = match data {
            data if *data == cifar => &["cifar10-train"],
            data if *data == store => &["imagenet-train"],
            _ => &["imagenet-train", "raw"],
        };
        for recipe in recipes {
            let [local, remote] = local_and_remote(data, 2)?
                .map(|one| Setup { recipe: (*recipe).to_owned(), ..one });
            let [local, remote] = [local.run()?, remote.run()?];
            ensure!(local.samples > 0 && local.stream_digest.is_some());
            ensure!(local.stream_digest == remote.stream_digest, "{data:?}, {recipe}");
            assert_whole(&remote, local.samples)?;
        }
    }
    Ok(())
}

#[test]
fn failures_that_pass_change_nothing() -> Result<()> {
    let data = generated()?;
    // Files that are delivered as they are, are received in their rows, unless a second epoch wants them, too.
    for (recipe, epochs) in [("imagenet-train", 2), ("raw", 1)] {
        let recipe = recipe.to_owned();
        let local = Setup { recipe, workers: 2, epochs, ..Setup::new(&data) };
        let expected = local.drive()?;
        let objects = double(&data, failing)?;
        let remote = Setup { objects: Some(objects.clone()), ..local.clone() };
        let result = remote.drive()?;
        for (local, remote) in expected.epochs.iter().zip(&result.epochs) {
            ensure!(local.stream_digest == remote.stream_digest, "epoch {}", local.epoch);
            assert_whole(remote, u64::from(N_GENERATED))?;
        }
        let fetches = result.fetches.context("figures of the fetches")?;
        ensure!(fetches.retried > 0 && fetches.throttled > 0, "{fetches:?}");
        ensure!(fetches.requests <= objects.n_asked(), "{fetches:?}");
        ensure!((objects.n_filled() > 0) == (epochs == 1), "{}", objects.n_filled());
    }
    Ok(())
}

#[test]
fn a_server_that_is_gone_for_a_while_is_waited_for() -> Result<()> {
    let data = generated()?;
    let local = Setup { workers: 2, ..Setup::new(&data) };
    let gone = |asked: &Asked| match asked.number {
        20..60 => Answer::Fails(
            Duration::from_millis(5),
            StorageError::Unreachable {
                place: asked.object.clone(),
                host: "double:1".to_owned(),
                why: "connection refused".to_owned(),
            },
        ),
        _ => PROMPT,
    };
    let remote = Setup { objects: Some(double(&data, gone)?), ..local.clone() };
    let (local, remote) = (local.run()?, remote.run()?);
    ensure!(local.stream_digest == remote.stream_digest);
    assert_whole(&remote, u64::from(N_GENERATED))
}

#[test]
fn a_run_is_gone_on_with_where_it_stopped() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state");
    let data = generated()?;
    let [local, remote] = local_and_remote(&data, 8)?;
    let whole = local.run()?;
    let first =
        Setup { stop_after: Some(5), checkpoint: Some(state.clone()), ..remote.clone() };
    let before = first.run()?;
    ensure!(before.batches == 5, "{}", before.batches);
    let rest = Setup { resume: Some(state), ..remote }.run()?;
    ensure!(before.samples + rest.samples == u64::from(N_GENERATED));
    ensure!(rest.stream_digest == whole.stream_digest);
    Ok(())
}

#[test]
fn a_device_that_has_a_copy_takes_part() -> Result<()> {
    let data = generated()?;
    let [local, remote] = local_and_remote(&data, 8)?;
    let expected = local.run()?;
    for strategy in ["ordered", "mte"] {
        let devices = vec!["loopback".to_owned()];
        let epoch = Setup { strategy, devices, ..remote.clone() }.run()?;
        assert_whole(&epoch, u64::from(N_GENERATED))?;
        ensure!(epoch.content_digest == expected.content_digest, "{strategy}");
        let is_ordered = strategy == "ordered";
        ensure!(!is_ordered || epoch.stream_digest == expected.stream_digest);
    }
    Ok(())
}

/// The files in which a cache has records.
fn segments(cache: &Path) -> Result<Vec<PathBuf>> {
    let all = files(cache)?.into_iter().map(|(name, _)| cache.join(name));
    Ok(all.filter(|path| path.extension().is_some_and(|it| it == "segment")).collect())
}

#[test]
fn later_runs_read_the_cache_and_fetch_nothing() -> Result<()> {
    let data = generated()?;
    let folder = tempfile::tempdir()?;
    let cache = Some(folder.path().join("cache"));
    let expected = Setup { workers: 2, epochs: 2, ..Setup::new(&data) }.drive()?;
    let objects = double(&data, shuffled)?;
    let remote =
        Setup { objects: Some(objects.clone()), workers: 2, ..Setup::new(&data) };
    let n = u64::from(N_GENERATED);
    let first = Setup { cache: cache.clone(), ..remote.clone() }.drive()?;
    let used = first.record_cache.context("a cache")?;
    ensure!((used.kept, used.hits, used.left_out) == (n, 0, 0), "{used:?}");
    for epochs in [1, 2] {
        let later = Setup { cache: cache.clone(), epochs, ..remote.clone() }.drive()?;
        let fetches = later.fetches.context("figures")?;
        ensure!((fetches.requests, fetches.bytes) == (0, 0), "{fetches:?}");
        ensure!(fetches.cached == n * u64::from(epochs), "{fetches:?}");
        let used = later.record_cache.context("a cache")?;
        ensure!(used.saved_bytes > 0 && used.damaged == 0 && used.off.is_none());
        for (epoch, expected) in later.epochs.iter().zip(&expected.epochs) {
            ensure!(epoch.stream_digest == expected.stream_digest, "{}", epoch.epoch);
            assert_whole(epoch, n)?;
        }
    }
    // Nobody who did not ask for it has one.
    let without = remote.drive()?;
    ensure!(without.record_cache.is_none() && without.fetches.is_some());
    Ok(())
}

#[test]
fn what_is_damaged_in_the_cache_is_fetched_again_and_what_changed_is_not_used()
-> Result<()> {
    let data = generated()?;
    let folder = tempfile::tempdir()?;
    let cache = folder.path().join("cache");
    let objects = double(&data, |_| PROMPT)?;
    let remote = Setup {
        objects: Some(objects.clone()),
        cache: Some(cache.clone()),
        ..Setup::new(&data)
    };
    let expected = remote.run()?;
    let [segment] = &segments(&cache)?[..] else { anyhow::bail!("one segment") };
    let whole = std::fs::read(segment)?;
    // All records, and not the directory behind them.
    let mut damaged = whole.clone();
    let sizes = files(&data)?.into_iter().filter(|(name, _)| name.ends_with(".jpg"));
    let n_bytes: usize = sizes.map(|(_, bytes)| bytes.len()).sum();
    damaged[64..64 + n_bytes].iter_mut().for_each(|byte| *byte ^= 0x11);
    std::fs::write(segment, damaged)?;
    let again = remote.drive()?;
    let used = again.record_cache.context("a cache")?;
    ensure!(used.damaged > 0 && used.hits == 0, "{used:?}");
    ensure!(again.epochs[0].stream_digest == expected.stream_digest);
    ensure!(again.epochs[0].skipped.is_empty() && again.damaged.samples == 0);
    // What was fetched again is kept, and later found.
    let healed = remote.drive()?;
    ensure!(healed.record_cache.context("a cache")?.hits > 0);
    // Each of two objects has the other's bytes now.
    let mut images = files(&data)?.into_iter().filter(|(name, _)| name.ends_with(".jpg"));
    let (one, other) = images.next().zip(images.next()).context("two images")?;
    objects.put(&one.0, other.1);
    objects.put(&other.0, one.1);
    let changed = remote.drive()?;
    let uncached = Setup { cache: None, ..remote.clone() }.run()?;
    ensure!(changed.epochs[0].stream_digest == uncached.stream_digest);
    ensure!(uncached.stream_digest != expected.stream_digest);
    Ok(())
}

/// The line that a run ends with.
fn failed(setup: &Setup) -> String {
    let error = setup.run().unwrap_err();
    match error.downcast_ref::<RuntimeError>() {
        Some(error) => one_line_with(error, Setting::key),
        None => panic!("{error:?}"),
    }
}

#[test]
fn an_object_that_changes_in_mid_epoch_is_named() -> Result<()> {
    let data = generated()?;
    let held: Arc<OnceLock<Arc<Double>>> = Arc::default();
    let theirs = Arc::clone(&held);
    let changing = move |asked: &Asked| {
        if asked.range.is_some()
            && draw(8, asked, 20) == 0
            && let Some(double) = theirs.get()
        {
            double.put(&asked.object, "another image");
        }
        PROMPT
    };
    let objects = double(&data, changing)?;
    held.set(Arc::clone(&objects)).unwrap();
    for on_bad in [BadPolicy::Raise, BadPolicy::Skip] {
        let setup = Setup { on_bad, objects: Some(objects.clone()), ..Setup::new(&data) };
        let line = failed(&setup);
        ensure!(line.contains("changed while it was being read"), "{line}");
        ensure!(line.contains(".jpg") && !line.contains('\n'), "{line}");
    }
    Ok(())
}

#[test]
fn what_is_refused_at_the_start_is_one_line() -> Result<()> {
    let data = generated()?;
    let refused = |asked: &Asked| {
        let (place, why) =
            (format!("s3://imgs/{}", asked.object), "AccessDenied".to_owned());
        let remedy = "check the credentials";
        Answer::Fails(Duration::ZERO, StorageError::Denied { place, why, remedy })
    };
    let line =
        failed(&Setup { objects: Some(double(&data, refused)?), ..Setup::new(&data) });
    ensure!(line.contains("s3://imgs/") && line.contains("AccessDenied"), "{line}");
    ensure!(line.contains("check the credentials") && !line.contains('\n'), "{line}");
    Ok(())
}

/// An object that is gone is a bad sample like a file that is gone.
#[test]
fn a_missing_object_is_a_bad_sample() -> Result<()> {
    let data = generated()?;
    for recipe in ["imagenet-train", "raw"] {
        let held: Arc<OnceLock<Arc<Double>>> = Arc::default();
        let theirs = Arc::clone(&held);
        let vanishing = move |asked: &Asked| {
            if asked.range.is_some()
                && draw(9, asked, 30) == 0
                && let Some(double) = theirs.get()
            {
                double.remove(&asked.object);
            }
            PROMPT
        };
        let objects = double(&data, vanishing)?;
        held.set(Arc::clone(&objects)).unwrap();
        let (recipe, on_bad) = (recipe.to_owned(), BadPolicy::Skip);
        let objects = Some(objects as _);
        let epoch = Setup { recipe, on_bad, objects, ..Setup::new(&data) }.run()?;
        ensure!(!epoch.skipped.is_empty());
        let n_skipped = epoch.skipped.len() as u64;
        ensure!(epoch.samples + n_skipped == u64::from(N_GENERATED), "{}", epoch.samples);
        let is_told = |why: &str| why.contains("there is no `memory:");
        ensure!(epoch.skipped.iter().all(|bad| is_told(&bad.why)));
    }
    Ok(())
}

/// Requests that are never answered hold up neither the end of an epoch nor that of the loader.
#[test]
fn a_loader_is_closed_with_requests_on_their_way() -> Result<()> {
    let data = generated()?;
    for recipe in ["imagenet-train", "raw"] {
        let most = Arc::new(AtomicU64::new(40));
        let theirs = Arc::clone(&most);
        let silent = move |asked: &Asked| match asked.range {
            Some(_) if asked.number > theirs.load(Ordering::SeqCst) => Answer::Never,
            Some(_) | None => PROMPT,
        };
        let (recipe, objects) = (recipe.to_owned(), double(&data, silent)?);
        let setup = Setup { recipe, objects: Some(objects.clone()), ..Setup::new(&data) };
        let mut runtime = Runtime::open(setup.config()?)?;
        let options = runtime.options(EpochIdx(0));
        // On one engine: what requests without an answer have held is there for the next epoch.
        for _ in 0..3 {
            // What is still sent for the epoch before is not to be answered in place of this one's requests.
            let mut n_asked = u64::MAX;
            while n_asked != objects.n_asked() {
                n_asked = objects.n_asked();
                std::thread::sleep(Duration::from_secs(1));
            }
            most.store(n_asked + 40, Ordering::SeqCst);
            let mut epoch = runtime.start_epoch(&options)?;
            epoch.next_batch()?.context("a batch")?;
            runtime.finish_epoch(epoch);
        }
        // Another one, dropped in the middle of a wait.
        drop(runtime.start_epoch(&options)?);
        drop(Loader::over(runtime));
    }
    Ok(())
}

/// A limit of memory holds for what is fetched, too.
#[test]
fn little_memory_is_enough() -> Result<()> {
    let data = generated()?;
    let [local, remote] = local_and_remote(&data, 8)?;
    let memory = bothends_runtime::MemoryBudget::Total(24 << 20);
    let config = bothends_runtime::RunConfig { memory, ..remote.config()? };
    let mut runtime = Runtime::open(config)?;
    let options = runtime.options(EpochIdx(0));
    let mut epoch = runtime.start_epoch(&options)?;
    let mut n = 0;
    while let Some(batch) = epoch.next_batch()? {
        n += batch.rows().iter().filter(|row| row.sample.is_some()).count();
    }
    runtime.finish_epoch(epoch);
    ensure!(n as u64 == local.run()?.samples, "{n}");
    Ok(())
}

/// What the command line, Python and C pass on is a URL; `file://` is read as a remote store is.
#[test]
fn a_url_is_run_inspected_and_packed_like_a_path() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let shards = shards()?;
    let data = shards.join("folder");
    let url = |path: &Path| PathBuf::from(format!("file://{}", path.display()));
    for path in [data.clone(), shards.join("tar")] {
        let local = Setup { batch_size: 2, ..Setup::new(&path) };
        let remote = Setup { data: url(&path), ..local.clone() }.drive()?;
        ensure!(remote.fetches.is_some(), "{}", path.display());
        let expected = local.run()?.stream_digest;
        ensure!(remote.epochs[0].stream_digest == expected, "{}", path.display());
        let [local, remote] = [path.clone(), url(&path)].map(|it| survey(&it).unwrap());
        ensure!(local == remote, "{remote:?}");
    }
    let stores = ["local", "remote"].map(|name| folder.path().join(name));
    for (from, store) in [data.clone(), url(&data)].iter().zip(&stores) {
        pack(&Files::open(from)?, store, &PackConfig::default(), &mut |_| ())?;
    }
    let shard = |store: &PathBuf| std::fs::read(store.join("00000.shard"));
    ensure!(shard(&stores[0])? == shard(&stores[1])?);
    let given = serde_json::json!({
        "data": url(&data), "recipe": "imagenet-train", "batch_size": 2,
    });
    let json = given.to_string();
    let mut loader = Loader::over(Runtime::open(options(&json)?)?);
    ensure!(loader.stats().fetches.is_some());
    Ok(())
}

#[test]
fn what_is_uploaded_into_a_table_or_a_store_has_the_same_stream() -> Result<()> {
    let shards = shards()?;
    let data = shards.join("folder");
    let table =
        cql::Server::start(cql::Settings { columns: &[], ..cql::Settings::default() })?;
    let upload = |from: &Path, url: &str| -> Result<u64> {
        let to = write_to(url)?;
        let upload = |missing| -> Result<_> {
            Ok(bothends_pack::upload(&Files::open(from)?, &to, missing, &mut |_| ())?)
        };
        let counted = upload(Missing::Counted)?;
        let written = upload(Missing::Written)?;
        ensure!(counted == written);
        let again = upload(Missing::Written)?;
        ensure!((again.written, again.found) == (0, written.written));
        Ok(written.written)
    };
    let local = Setup { batch_size: 2, workers: 2, ..Setup::new(&data) };
    let expected = local.run()?;
    ensure!(upload(&data, &table.url())? == expected.samples);
    let remote = Setup { data: table.url().into(), ..local.clone() };
    ensure!(remote.run()?.stream_digest == expected.stream_digest);
    let told = survey(&remote.data)?.join("\n");
    ensure!(told.contains("rows of a table"), "{told}");
    if let Some(server) = servers::valkey("an upload to Valkey")? {
        // The samples of shards are objects of their own, and a list has their labels.
        let url = format!("redis://{}/0?prefix=set/", server.at);
        let tar = Setup { batch_size: 2, ..Setup::new(&shards.join("tar")) }.run()?;
        ensure!(upload(&shards.join("tar"), &url)? == tar.samples + 1);
        let listed = names(&url)?;
        ensure!(listed.contains(&LIST.to_owned()), "{listed:?}");
        ensure!(listed.len() as u64 == tar.samples + 1);
    }
    Ok(())
}

/// As `bothends upload --help` shows it.
#[test]
fn shards_that_were_uploaded_are_read_by_their_list() -> Result<()> {
    let server = servers::seaweedfs("an upload of shards to SeaweedFS")?;
    let Some(server) = server else { return Ok(()) };
    let (shards, home) = (shards()?, tempfile::tempdir()?);
    let bothends = |words: &[&str]| -> Result<Vec<u8>> {
        let mut command = Command::new(program("bothends")?);
        command.args(words);
        command
            .envs(["XDG_CACHE_HOME", "XDG_STATE_HOME"].map(|name| (name, home.path())));
        command.env("AWS_ENDPOINT_URL", format!("http://{}", server.at));
        command.env("AWS_SKIP_SIGNATURE", "true");
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    };
    for format in ["tar", "parquet", "mds", "tfrecord"] {
        let (from, url) = (shards.join(format), format!("s3://{BUCKET}/{format}"));
        let path = from.to_str().context("a path in UTF-8")?;
        bothends(&["upload", path, &url])?;
        let digest = |data: &str| -> Result<_> {
            let run = ["run", "--recipe", "imagenet-train", "--digest", "--json", "-"];
            let more = ["--batch-size", "2", "--workers", "1", "--data", data];
            let stdout = bothends(&[&run[..], &more].concat())?;
            let result: RunResult = serde_json::from_slice(&stdout)?;
            result.epochs[0].stream_digest.clone().context("a digest")
        };
        ensure!(digest(&format!("{url}/{LIST}"))? == digest(path)?, "{format}");
    }
    Ok(())
}

/// What lies in a store.
fn names(url: &str) -> Result<Vec<String>> {
    let objects = Location::parse(url, &Options::default())?.open()?;
    let mut names = Vec::new();
    each_listed(&*objects, "", &mut |one| names.extend(one.map(|one| one.name)));
    Ok(names)
}

#[test]
fn real_servers_give_the_same_stream() -> Result<()> {
    let data = shards()?.join("folder");
    let same = |url: &str, options: &Options| -> Result<()> {
        for recipe in ["imagenet-train", "raw"] {
            let (recipe, workers) = (recipe.to_owned(), 2);
            let local = Setup { recipe, batch_size: 2, workers, ..Setup::new(&data) };
            let objects = Some(Location::parse(url, options)?.open()?);
            let remote = Setup { objects, ..local.clone() }.run()?;
            ensure!(remote.stream_digest == local.run()?.stream_digest, "{url}");
        }
        Ok(())
    };
    if let Some(server) = servers::seaweedfs("an epoch over SeaweedFS")? {
        for (name, bytes) in files(&data)? {
            servers::put(server.at, &format!("/{BUCKET}/set/{name}"), &bytes)?;
        }
        let endpoint = Some(format!("http://{}", server.at));
        let options = Options { endpoint, anonymous: true, ..Options::default() };
        same(&format!("s3://{BUCKET}/set"), &options)?;
    }
    if let Some(server) = servers::valkey("an epoch over Valkey")? {
        for (name, bytes) in files(&data)? {
            servers::redis(
                server.at,
                &[b"SET", format!("set/{name}").as_bytes(), &bytes],
            )?;
        }
        same(&format!("redis://{}/0?prefix=set/", server.at), &Options::default())?;
    }
    Ok(())
}

/// Once the side index knows the images, only those bytes of them are fetched that the crops need.
#[test]
fn later_runs_fetch_the_rows_that_crops_need() -> Result<()> {
    let server = servers::seaweedfs("two runs over SeaweedFS with a side index")?;
    let Some(server) = server else { return Ok(()) };
    let (data, home) = (generated()?, tempfile::tempdir()?);
    for (name, bytes) in
        files(&data)?.into_iter().filter(|(name, _)| name.ends_with(".jpg"))
    {
        servers::put(server.at, &format!("/{BUCKET}/set/{name}"), &bytes)?;
    }
    let run = || -> Result<(u64, String)> {
        let mut command = Command::new(program("bothends")?);
        command.args(["run", "--data", &format!("s3://{BUCKET}/set"), "--workers", "2"]);
        command.args(["--recipe", "imagenet-train", "--digest", "--json", "-"]);
        command
            .envs(["XDG_CACHE_HOME", "XDG_STATE_HOME"].map(|name| (name, home.path())));
        command.env("AWS_ENDPOINT_URL", format!("http://{}", server.at));
        command.env("AWS_SKIP_SIGNATURE", "true").env("AWS_ALLOW_HTTP", "true");
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: RunResult = serde_json::from_slice(&output.stdout)?;
        let digest = result.epochs[0].stream_digest.clone();
        let fetches = result.fetches.context("figures of the fetches")?;
        Ok((fetches.bytes, digest.context("a digest")?))
    };
    let (whole, expected) = run()?;
    let (part, digest) = run()?;
    ensure!(digest == expected && part < whole * 9 / 10, "{part} of {whole} bytes");
    Ok(())
}
