//! Compressed shards as real programs write them: decompressed once, the stream is that of the folder they were
//! made from, whoever makes the batches and wherever the shards are.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_core::recipe::Recipe;
use bothends_runtime::{
    CacheSize, EpochResult, Loader, MixedData, MixedSource, ReadConfig, RunConfig,
    Runtime, drive,
};
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::programs::{eventually, program, run};
use bothends_tests::{Setup, Silent, assert_whole, one_epoch, servers};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

const WRITTEN: [&str; 7] = [
    "compressed-tar",
    "compressed-tfrecord",
    "compressed-parquet",
    "compressed-litdata",
    "compressed-mds-zstd",
    "compressed-mds-gz",
    "compressed-mds-snappy",
];

fn shards(name: &str) -> Result<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/shards");
    Ok(fixtures.join(name).canonicalize()?)
}

fn setup(name: &str, cache: &Path) -> Result<Setup> {
    let cache = Some(cache.to_owned());
    Ok(Setup { cache, batch_size: 2, workers: 2, ..Setup::new(&shards(name)?) })
}

#[test]
fn every_format_has_the_stream_of_the_folder_from_everybody() -> Result<()> {
    let cache = TempDir::new()?;
    let folder = setup("folder", cache.path())?.run()?;
    for name in WRITTEN {
        let host = setup(name, cache.path())?;
        // An emulated device reads what the host has decompressed.
        let device = vec!["sim:ideal".to_owned()];
        let both = Setup { devices: device.clone(), ..host.clone() };
        let device = Setup { strategy: "csd", devices: device, ..host.clone() };
        let url = format!("file://{}", host.data.display());
        let remote = Setup { data: url.into(), ..host.clone() };
        for (who, setup) in
            [("host", host), ("both", both), ("device", device), ("remote", remote)]
        {
            let run = || -> Result<EpochResult> {
                let epoch = setup.run()?;
                ensure!(epoch.content_digest == folder.content_digest, "other samples");
                assert_whole(&epoch, 7)?;
                Ok(epoch)
            };
            let epoch = match who {
                "device" => until_a_device_takes_part(run),
                _ => run(),
            };
            let epoch = epoch.with_context(|| format!("{name}, {who}"))?;
            // A device alone delivers them in another order.
            ensure!(
                who == "device" || epoch.stream_digest == folder.stream_digest,
                "{name}, {who}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_mix_of_compressed_and_other_data_sets_is_that_of_the_uncompressed_ones() -> Result<()>
{
    let cache = TempDir::new()?;
    let run = |names: [&str; 2], prefix: &str| -> Result<_> {
        let sources = names.map(|name| {
            let data = format!("{prefix}{}", shards(name)?.display()).into();
            let name = name.trim_start_matches("compressed-").to_owned();
            Ok(MixedSource { name, data, weight: 1.0 })
        });
        let sources = sources.into_iter().collect::<Result<_>>()?;
        let recipe = Recipe::builtin("imagenet-train").context("a recipe")?;
        let config = RunConfig {
            cache: Some(cache.path().to_owned()),
            batch_size: 4,
            ..RunConfig::mixed(MixedData::new(sources), recipe)
        };
        let mut loader = Loader::over(Runtime::open(config)?);
        let mut result = drive(&mut loader, &one_epoch(), &mut Silent)?;
        result.epochs.pop().context("an epoch")?.stream_digest.context("a digest")
    };
    let expected = run(["tar", "tfrecord"], "")?;
    assert_eq!(run(["compressed-tar", "compressed-tfrecord"], "")?, expected);
    assert_eq!(run(["tar", "compressed-tfrecord"], "")?, expected);
    assert_eq!(run(["compressed-tar", "tfrecord"], "file://")?, expected);
    Ok(())
}

#[test]
fn a_run_is_resumed_on_what_was_decompressed() -> Result<()> {
    let (folder, cache) = (TempDir::new()?, TempDir::new()?);
    let whole = setup("folder", cache.path())?.run()?;
    let checkpoint = Some(folder.path().join("state.json"));
    let first = setup("compressed-parquet", cache.path())?;
    let begun = Setup { stop_after: Some(2), checkpoint: checkpoint.clone(), ..first };
    begun.run()?;
    // Gone, as after a change of machine: it is made again, and is the same data set.
    fs::remove_dir_all(cache.path().join("decompressed"))?;
    let rest = setup("compressed-parquet", cache.path())?;
    let rest = Setup { resume: checkpoint, ..rest }.run()?;
    assert_eq!(rest.stream_digest, whole.stream_digest);
    Ok(())
}

#[test]
fn without_a_cache_and_with_an_unknown_compression_one_line_says_what_helps() -> Result<()>
{
    let cache = TempDir::new()?;
    let off = ReadConfig { cache_size: CacheSize::Off, ..ReadConfig::default() };
    for (name, said) in [
        ("compressed-parquet", "write the file again"),
        ("compressed-tar", "decompress the shards"),
        ("compressed-litdata", "write them again without `compression`"),
    ] {
        let config = setup(name, cache.path())?.config()?;
        let error = Loader::open(RunConfig { read: off, ..config }).map(drop);
        let line = error.unwrap_err().to_string();
        ensure!(line.contains(said) && !line.contains('\n'), "{line}");
    }
    ensure!(!cache.path().join("decompressed").exists(), "nothing was made");
    let data = TempDir::new()?;
    fs::write(data.path().join("a.tar.xz"), "")?;
    let line = Setup::new(data.path()).run().unwrap_err().to_string();
    ensure!(line.contains("a.tar.xz` is compressed as a whole"), "{line}");
    Ok(())
}

/// A program that is killed when the test ends.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An agent has its own cache, and finds the files that a host names after decompressing for itself.
#[test]
fn an_agent_decompresses_its_own_copy() -> Result<()> {
    let (dir, cache) = (TempDir::new()?, TempDir::new()?);
    let folder = setup("folder", cache.path())?.run()?;
    for name in ["compressed-tar", "compressed-parquet"] {
        let copy = dir.path().join(name);
        fs::create_dir(&copy)?;
        for file in fs::read_dir(shards(name)?)? {
            let file = file?;
            fs::copy(file.path(), copy.join(file.file_name()))?;
        }
        let socket = dir.path().join(format!("{name}.sock"));
        let mut command = Command::new(program("bothends-agent")?);
        command.arg("--listen").arg(format!("unix://{}", socket.display()));
        command.arg("--data-root").arg(&copy);
        command.arg("--cache").arg(dir.path().join("cache"));
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut agent = Agent(command.spawn()?);
        let mut line = String::new();
        BufReader::new(agent.0.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").context("an address")?;
        let devices = vec![address.to_owned()];
        let setup = setup(name, cache.path())?;
        let setup = Setup { strategy: "csd", devices, require_devices: true, ..setup };
        let epoch = until_a_device_takes_part(|| {
            let epoch = setup.run()?;
            assert_eq!(epoch.content_digest, folder.content_digest, "{name}");
            Ok(epoch)
        });
        epoch.with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// An archive with a long member, so that decompressing it takes a moment.
fn long_archive(data: &Path) -> Result<()> {
    let tar = fs::read(shards("tar")?.join("shard-000001.tar"))?;
    // Two blocks of zeros end an archive.
    let end =
        tar.iter().rposition(|byte| *byte != 0).context("an archive")? / 512 * 512 + 512;
    let mut header = [0; 512];
    header[..4].copy_from_slice(b"long");
    let len: u64 = 96 << 20;
    header[124..136].copy_from_slice(format!("{len:011o}\0").as_bytes());
    header[148..156].fill(b' ');
    header[156] = b'0';
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut gzip = Command::new("gzip");
    gzip.arg("-1").stdin(Stdio::piped());
    gzip.stdout(fs::File::create(data.join("a.tar.gz"))?);
    let mut gzip = gzip.spawn()?;
    let mut to = gzip.stdin.take().context("a pipe")?;
    to.write_all(&tar[..end])?;
    to.write_all(&header)?;
    let noise: Vec<u8> = (0..1_u32 << 20)
        .map(|it| it.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    for _ in 0..96 {
        to.write_all(&noise)?;
    }
    to.write_all(&[0; 1024])?;
    drop(to);
    ensure!(gzip.wait()?.success());
    Ok(())
}

#[test]
fn a_run_that_was_killed_while_it_decompressed_leaves_nothing_wrong() -> Result<()> {
    let dir = TempDir::new()?;
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    fs::create_dir(&data)?;
    long_archive(&data)?;
    let command = || -> Result<Command> {
        let mut command = Command::new(program("bothends")?);
        command.args(["run", "--recipe", "imagenet-eval", "--workers", "1", "--digest"]);
        command.args(["--strategy", "cpu", "--batch-size", "2", "--data"]).arg(&data);
        command.env("XDG_CACHE_HOME", &cache).env("XDG_STATE_HOME", dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    };
    let entries =
        || fs::read_dir(cache.join("bothends/decompressed")).into_iter().flatten();
    let part = || {
        let data = entries().flatten().map(|entry| entry.path().join("data"));
        let files = data.flat_map(|data| fs::read_dir(data).into_iter().flatten());
        files
            .flatten()
            .find(|file| file.file_name().to_string_lossy().starts_with(".part-"))
    };
    let mut killed = Agent(command()?.spawn()?);
    let mut has_begun = || part().is_some() || !matches!(killed.0.try_wait(), Ok(None));
    ensure!(eventually(PATIENCE, &mut has_begun), "it never began");
    drop(killed);
    let output = run(&mut command()?, PATIENCE)?;
    ensure!(output.status.success(), "it was not continued");
    ensure!(part().is_none(), "a part is left");
    let [entry] = &entries().flatten().collect::<Vec<_>>()[..] else {
        anyhow::bail!("one data set")
    };
    let made = fs::metadata(entry.path().join("data/a.tar"))?.len();
    let whole = Command::new("gzip").arg("-dc").arg(data.join("a.tar.gz")).output()?;
    assert_eq!(made, whole.stdout.len() as u64);
    ensure!(fs::read(entry.path().join("data/a.tar"))? == whole.stdout, "other bytes");
    Ok(())
}

/// What others may write is not believed, so the files must not be writable for others, whatever the umask is.
#[test]
fn with_any_umask_it_is_decompressed_once() -> Result<()> {
    let cache = TempDir::new()?;
    let command = || -> Result<Command> {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 002; exec \"$0\" \"$@\""]).arg(program("bothends")?);
        command.args(["run", "--recipe", "imagenet-eval", "--batch-size", "2"]);
        command.args(["--strategy", "cpu", "--data"]).arg(shards("compressed-tar")?);
        command.env("XDG_CACHE_HOME", cache.path()).env("XDG_STATE_HOME", cache.path());
        Ok(command)
    };
    let made = || -> Result<_> {
        let output = run(&mut command()?, PATIENCE)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && said.contains("are compressed"), "{said}");
        let root = cache.path().join("bothends/decompressed");
        let entry = fs::read_dir(root)?.next().context("an entry")??;
        Ok(fs::metadata(entry.path().join("about"))?.modified()?)
    };
    assert_eq!(made()?, made()?);
    Ok(())
}

/// One shard of several, as a path and as a URL.
#[test]
fn a_single_compressed_shard_is_a_data_set() -> Result<()> {
    let cache = TempDir::new()?;
    let expected = setup("tar", cache.path())?;
    let path = expected.data.join("shard-000000.tar");
    let expected = Setup { data: path, ..expected }.run()?;
    let shard = shards("compressed-tar")?.join("shard-000000.tar.gz");
    for data in [shard.clone(), format!("file://{}", shard.display()).into()] {
        let epoch = Setup { data, ..setup("compressed-tar", cache.path())? }.run()?;
        assert_eq!(epoch.stream_digest, expected.stream_digest);
        assert_whole(&epoch, 4)?;
    }
    Ok(())
}

/// From a real server, shards are fetched as a whole, once; another object of the same name is another data set.
#[test]
fn shards_in_a_remote_store_are_decompressed_on_this_machine() -> Result<()> {
    let Some(server) = servers::seaweedfs("compressed shards in SeaweedFS")? else {
        return Ok(());
    };
    let cache = TempDir::new()?;
    let digest = |data: &str| -> Result<String> {
        let mut command = Command::new(program("bothends")?);
        command.args(["run", "--recipe", "imagenet-train", "--batch-size", "2"]);
        command.args(["--strategy", "cpu", "--digest", "--json", "-", "--quiet"]);
        command.args(["--data", data]).env("XDG_CACHE_HOME", cache.path());
        command.env("AWS_ENDPOINT_URL", format!("http://{}", server.at));
        command.env("AWS_ACCESS_KEY_ID", servers::KEYS.0);
        command.env("AWS_SECRET_ACCESS_KEY", servers::KEYS.1).env("AWS_REGION", "none");
        let output = run(&mut command, PATIENCE)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let digest = told["epochs"][0]["stream_digest"].as_str();
        Ok(digest.context("a digest")?.to_owned())
    };
    let expected = digest(shards("folder")?.to_str().context("a path")?)?;
    for name in ["compressed-tar", "compressed-parquet", "compressed-litdata"] {
        for file in fs::read_dir(shards(name)?)? {
            let file = file?;
            let (place, name_of) = (servers::BUCKET, file.file_name());
            let path = format!("/{place}/{name}/{}", name_of.to_string_lossy());
            servers::put(server.at, &path, &fs::read(file.path())?)?;
        }
        let url = format!("s3://{}/{name}", servers::BUCKET);
        assert_eq!(digest(&url)?, expected, "{name}");
        assert_eq!(digest(&url)?, expected, "{name}, again");
    }
    let entries = || fs::read_dir(cache.path().join("bothends/decompressed"));
    assert_eq!(entries()?.count(), 3);
    // An ETag tells it, whatever its length and time are.
    let path = format!("/{}/compressed-tar/shard-000000.tar.gz", servers::BUCKET);
    let other = fs::read(shards("compressed-tar")?.join("shard-000001.tar.gz"))?;
    servers::put(server.at, &path, &other)?;
    ensure!(digest(&format!("s3://{}/compressed-tar", servers::BUCKET))? != expected);
    assert_eq!(entries()?.count(), 4);
    Ok(())
}
