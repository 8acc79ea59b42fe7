//! The side index changes no byte: with it, without it, broken, stale, shared or unwritable,
//! the stream is the same, and a killed run leaves nothing of it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_dataset::side_index::{self, HEADER_BYTES, Line, is_segment};
use bothends_runtime::{EpochResult, ReaderKind, SideIndexUse};
use bothends_side_index::{Beside, Name, Place, SideIndex, Wait};
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::programs::{eventually, program};
use bothends_tests::{Setup, generated};

/// A copy of the generated images, so that nothing is written next to those of other tests.
fn copied() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for class in std::fs::read_dir(generated()?)? {
        let class = class?.path();
        let name = class.file_name().context("a name")?;
        if !class.is_dir() || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let to = folder.path().join(name);
        std::fs::create_dir(&to)?;
        for file in std::fs::read_dir(class)? {
            let file = file?.path();
            std::fs::copy(&file, to.join(file.file_name().context("a name")?))?;
        }
    }
    // What was written just now may change again without another time, and notes of it are not believed.
    std::thread::sleep(Duration::from_millis(100));
    Ok(folder)
}

/// The stream of one epoch over `data`.
fn stream(data: &Path, side_index: SideIndexUse) -> Result<String> {
    let setup = Setup { side_index, workers: 2, ..Setup::new(data) };
    setup.run()?.stream_digest.context("a digest was asked for")
}

fn segments(data: &Path) -> Result<Vec<PathBuf>> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(data)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_segment) {
            segments.push(entry.path());
        }
    }
    segments.sort();
    Ok(segments)
}

/// What a walk through shards found is kept once, and found again when a shard has changed.
#[test]
fn shards_are_walked_through_again_only_when_they_change() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, cache) = (folder.path().join("shards"), folder.path().join("cache"));
    std::fs::create_dir(&data)?;
    let shard = data.join("0.msgpack");
    let sample = b"\x82\xa5image\xc4\x02ab\xa5label\x01";
    let run = || -> Result<(PathBuf, std::time::SystemTime)> {
        let mut command = Command::new(program("bothends")?);
        command.args(["run", "--recipe", "raw", "--workers", "1", "--data"]).arg(&data);
        command.env("XDG_CACHE_HOME", &cache).env("XDG_STATE_HOME", folder.path());
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let kept = cache.join("bothends/tables").read_dir()?.next().context("kept")??;
        let kept = kept.path().join("shards.table");
        let modified = kept.metadata()?.modified()?;
        Ok((kept, modified))
    };
    std::fs::write(&shard, sample.repeat(300))?;
    // Younger files are not believed to stay as they are.
    std::thread::sleep(Duration::from_millis(2_100));
    let mut kept = run()?;
    ensure!(run()? == kept, "it was written again");
    for n_samples in 301..311 {
        let written = std::time::Instant::now();
        std::fs::write(&shard, sample.repeat(n_samples))?;
        let after = run()?;
        if written.elapsed() < Duration::from_secs(2) {
            ensure!(after == kept, "a shard as young as this was kept");
            return Ok(());
        }
        kept = after;
    }
    anyhow::bail!("no run took less than two seconds")
}

#[test]
fn the_stream_is_the_same_with_it_and_without() -> Result<()> {
    let folder = copied()?;
    let data = folder.path();
    let without = stream(data, SideIndexUse::Off)?;
    ensure!(segments(data)?.is_empty(), "`off` writes nothing");
    ensure!(stream(data, SideIndexUse::Beside)? == without, "while it is made");
    let made = segments(data)?;
    ensure!(made.len() == 1, "one run, one segment: {made:?}");
    ensure!(stream(data, SideIndexUse::Beside)? == without, "once it is there");
    ensure!(segments(data)? == made, "nothing is learnt twice");
    made.iter().try_for_each(std::fs::remove_file)?;
    ensure!(stream(data, SideIndexUse::Beside)? == without, "after it was deleted");
    Ok(())
}

/// Once the side index knows the images, only those bytes of them are read that the crops need, whoever reads.
#[test]
fn later_epochs_read_the_rows_that_crops_need() -> Result<()> {
    let folder = copied()?;
    let data = folder.path();
    let bytes_read = |side_index, workers, reader| -> Result<(u64, Option<String>)> {
        let setup = Setup { side_index, workers, reader, ..Setup::new(data) };
        let mut result = setup.drive()?;
        let epoch = result.epochs.pop().context("an epoch")?;
        Ok((result.bytes.storage_read, epoch.stream_digest))
    };
    let (off, beside) = (SideIndexUse::Off, SideIndexUse::Beside);
    let (whole, expected) = bytes_read(off, 2, ReaderKind::Auto)?;
    ensure!(bytes_read(beside, 2, ReaderKind::Auto)? == (whole, expected.clone()));
    for (workers, reader) in
        [(1, ReaderKind::Auto), (2, ReaderKind::Auto), (2, ReaderKind::Pread)]
    {
        let (part, digest) = bytes_read(beside, workers, reader)?;
        ensure!(digest == expected, "{workers} workers, {reader:?}");
        ensure!(
            part < whole * 9 / 10,
            "{workers} workers, {reader:?}: {part} of {whole}"
        );
    }
    Ok(())
}

/// Where a note's checksums begin (`crates/ops/src/jpeg/entropy/note.rs` has the layout).
fn checksums(note: &[u8]) -> usize {
    let mut at = 28 + 6 * usize::from(note[13]);
    for _ in 0..note[14] {
        at += 1 + 64 * usize::from(note[at]);
    }
    for _ in 0..note[15] {
        let counts = note[at..at + 16].iter().map(|&n| usize::from(n));
        at += if note[at] == 255 { 2 } else { 16 + counts.sum::<usize>() };
    }
    at
}

/// Notes whose checksums are not those of the images, as if the images had changed on the disk: each of them is read
/// as a whole, and the stream stays the same.
#[test]
fn rows_that_are_not_what_they_were_cost_the_rest_of_the_record() -> Result<()> {
    let folder = copied()?;
    let data = folder.path();
    let expected = stream(data, SideIndexUse::Beside)?;
    let place = Place { data, is_folder: true, beside: Beside::Written, cache: None };
    let index = SideIndex::open(place);
    let mut n_changed = 0;
    for class in std::fs::read_dir(data)? {
        let class = class?;
        if !class.path().is_dir() {
            continue;
        }
        for file in std::fs::read_dir(class.path())? {
            let (file, class) = (file?, class.file_name());
            let names = [&class, &file.file_name()]
                .map(|name| name.to_string_lossy().into_owned());
            let bytes = std::fs::read(file.path())?;
            let age = file.metadata()?;
            let ns = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
            let key = side_index::key(
                names.each_ref().map(String::as_str),
                0,
                u32::try_from(bytes.len())?,
            );
            let modified_ns = ns(age.mtime(), age.mtime_nsec());
            let name = Name::of_file(
                key,
                (age.len(), modified_ns),
                ns(age.ctime(), age.ctime_nsec()),
            );
            let mut note = Vec::new();
            if !index.note_of(name, &mut note, Wait::ForDisk) {
                continue;
            }
            let at = checksums(&note);
            note[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0x55);
            index.keep(name, &bytes, &note);
            n_changed += 1;
        }
    }
    drop(index);
    ensure!(n_changed > 20, "only {n_changed} notes");
    let setup =
        Setup { side_index: SideIndexUse::Beside, workers: 2, ..Setup::new(data) };
    let result = setup.drive()?;
    ensure!(result.epochs[0].stream_digest.as_ref() == Some(&expected));
    // Bytes that are read once more on the way are not counted: the notes were believed at first.
    let whole =
        Setup { side_index: SideIndexUse::Off, ..setup }.drive()?.bytes.storage_read;
    ensure!(result.bytes.storage_read < whole, "no note was believed");
    Ok(())
}

#[test]
fn a_broken_index_is_no_index() -> Result<()> {
    let folder = copied()?;
    let data = folder.path();
    let without = stream(data, SideIndexUse::Beside)?;
    let segment = segments(data)?.pop().context("a segment")?;
    let whole = std::fs::read(&segment)?;
    for at in [0, 20, 45, whole.len() / 3, whole.len() / 2, whole.len() - 3] {
        let mut broken = whole.clone();
        for byte in &mut broken[at..(at + 500).min(whole.len())] {
            *byte ^= 0x55;
        }
        std::fs::write(&segment, broken)?;
        ensure!(
            stream(data, SideIndexUse::Beside)? == without,
            "broken from byte {at} on"
        );
    }
    std::fs::write(&segment, &whole[..whole.len() / 2])?;
    ensure!(stream(data, SideIndexUse::Beside)? == without, "cut in the middle");
    Ok(())
}

/// An image is replaced by another one of the same length and time: only its hash can tell.
#[test]
fn a_changed_image_is_decoded_anew() -> Result<()> {
    let folder = copied()?;
    let data = folder.path();
    stream(data, SideIndexUse::Beside)?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data.join("class-000"))? {
        files.push(entry?.path());
    }
    files.sort();
    let path = files.first().context("an image")?;
    let age = std::fs::metadata(path)?.modified()?;
    let mut bytes = std::fs::read(path)?;
    // Another quantisation table: the same scan, another picture.
    let table = bytes.windows(2).position(|w| w == [0xff, 0xdb]).context("a table")?;
    for step in &mut bytes[table + 5..table + 20] {
        *step = step.wrapping_add(3).max(1);
    }
    std::fs::write(path, bytes)?;
    std::fs::File::options().write(true).open(path)?.set_modified(age)?;
    let with = stream(data, SideIndexUse::Beside)?;
    ensure!(with == stream(data, SideIndexUse::Off)?, "a stale note was believed");
    Ok(())
}

/// `bothends run` over `data` with its index next to them and its cache directory in `cache`.
fn command(data: &Path, cache: &Path) -> Result<Command> {
    let mut command = by_default(data, cache)?;
    command.args(["--side-index", "beside"]);
    Ok(command)
}

/// The same, and the index is where it is kept unasked.
fn by_default(data: &Path, cache: &Path) -> Result<Command> {
    let mut command = Command::new(program("bothends")?);
    command.arg("run").arg("--data").arg(data);
    command.args([
        "--recipe",
        "imagenet-train",
        "--workers",
        "1",
        "--digest",
        "--json",
        "-",
    ]);
    // The key of what is kept there, too.
    command.env("XDG_STATE_HOME", cache);
    command.env("XDG_CACHE_HOME", cache).stdin(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

fn digest_of(output: &[u8]) -> Result<String> {
    let result: serde_json::Value = serde_json::from_slice(output)?;
    let digest = result["epochs"][0]["stream_digest"].as_str();
    Ok(digest.context("a digest")?.to_owned())
}

#[test]
fn several_processes_share_it() -> Result<()> {
    let folder = copied()?;
    let cache = tempfile::tempdir()?;
    let mut children = Vec::new();
    for _ in 0..3 {
        let mut command = command(folder.path(), cache.path())?;
        children.push(command.stdout(Stdio::piped()).spawn()?);
    }
    let mut digests = Vec::new();
    for child in children {
        digests.push(digest_of(&child.wait_with_output()?.stdout)?);
    }
    digests.dedup();
    ensure!(digests.len() == 1, "{digests:?}");
    ensure!(!segments(folder.path())?.is_empty(), "somebody wrote it");
    let again = command(folder.path(), cache.path())?.stdout(Stdio::piped()).output()?;
    ensure!(digest_of(&again.stdout)? == digests[0], "what they wrote is right");
    Ok(())
}

/// The data's folder may not be written. Root may write anywhere: then somebody else runs it.
#[test]
#[allow(clippy::print_stderr, reason = "a skip is printed")]
fn where_the_data_cannot_be_written_the_cache_is_used() -> Result<()> {
    const NOBODY: u32 = 65_534;
    let folder = copied()?;
    let cache = tempfile::tempdir()?;
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    allow(folder.path(), 0o555)?;
    allow(cache.path(), 0o777)?;
    let is_root = std::fs::metadata("/proc/self")?.uid() == 0;
    let run = || -> std::io::Result<std::process::Output> {
        let command = command(folder.path(), cache.path());
        let mut command = command.map_err(std::io::Error::other)?;
        if is_root {
            command.uid(NOBODY);
        }
        command.stdout(Stdio::piped()).output()
    };
    let first = match run() {
        Err(error) if is_root && error.kind() == ErrorKind::PermissionDenied => {
            eprintln!("skipped: nobody but root may run the programs under test");
            return Ok(());
        }
        output => digest_of(&output?.stdout)?,
    };
    ensure!(segments(folder.path())?.is_empty(), "it was written where it may not be");
    let index = cache.path().join("bothends/index");
    let data_set =
        std::fs::read_dir(&index)?.next().context("a folder for the data")??;
    ensure!(segments(&data_set.path())?.len() == 1, "one segment");
    ensure!(digest_of(&run()?.stdout)? == first, "the same stream");
    ensure!(segments(&data_set.path())?.len() == 1, "and nothing new");
    allow(folder.path(), 0o755)?;
    Ok(())
}

/// Nothing of ours appears in somebody's folder unasked.
#[test]
fn by_default_it_is_in_the_cache_directory() -> Result<()> {
    let folder = copied()?;
    let cache = tempfile::tempdir()?;
    let entries = || -> Result<usize> { Ok(std::fs::read_dir(folder.path())?.count()) };
    let before = entries()?;
    let run =
        || by_default(folder.path(), cache.path())?.output().map_err(anyhow::Error::from);
    let first = digest_of(&run()?.stdout)?;
    ensure!(entries()? == before, "something was written beside the data");
    let index = cache.path().join("bothends/index");
    let data_set =
        std::fs::read_dir(&index)?.next().context("a folder for the data")??;
    ensure!(segments(&data_set.path())?.len() == 1, "one segment");
    let owner = std::fs::read(data_set.path().join("data-set"))?;
    ensure!(owner == folder.path().canonicalize()?.as_os_str().as_encoded_bytes());
    ensure!(digest_of(&run()?.stdout)? == first && entries()? == before);
    ensure!(segments(&data_set.path())?.len() == 1, "nothing is learnt twice");
    Ok(())
}

/// Class folders stay class folders for every program that reads them.
#[test]
fn it_adds_no_folder_to_the_data() -> Result<()> {
    let folder = copied()?;
    let folders = || -> Result<usize> {
        let entries = std::fs::read_dir(folder.path())?.collect::<Result<Vec<_>, _>>()?;
        Ok(entries.iter().filter(|entry| entry.path().is_dir()).count())
    };
    let before = folders()?;
    stream(folder.path(), SideIndexUse::Beside)?;
    ensure!(segments(folder.path())?.len() == 1, "an index was made");
    ensure!(folders()? == before, "a folder more is a class more");
    Ok(())
}

#[test]
fn a_killed_run_leaves_nothing_of_it() -> Result<()> {
    let folder = copied()?;
    let cache = tempfile::tempdir()?;
    let mut command = command(folder.path(), cache.path())?;
    let mut child = command.args(["--repeat", "400"]).stdout(Stdio::null()).spawn()?;
    // A file without a name, or with a hidden one, is open there.
    let descriptors = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let begun = || {
        let open = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
        let mut targets = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets.any(|target| {
            let name = target.to_string_lossy();
            target.starts_with(folder.path())
                && (name.contains("/#") || name.contains("/.draft-"))
        })
    };
    let has_begun = eventually(Duration::from_secs(60), begun);
    child.kill()?;
    child.wait()?;
    ensure!(has_begun, "it never began an index");
    ensure!(segments(folder.path())?.is_empty(), "{:?}", segments(folder.path())?);
    Ok(())
}

/// The content of one epoch over `data` of which an agent made batches, with its cache in `cache`. The
/// agent is gone afterwards.
fn content_of_agent(data: &Path, cache: &Path) -> Result<String> {
    let kept = tempfile::tempdir()?;
    let before = kept.path().join("cache");
    copy_as_it_is(cache, &before)?;
    let epoch = until_a_device_takes_part(|| {
        // What an agent has learned whose batches came too late is of no later run.
        std::fs::remove_dir_all(cache)?;
        copy_as_it_is(&before, cache)?;
        epoch_of_agent(data, cache)
    })?;
    epoch.content_digest.context("a digest was asked for")
}

/// Copies a folder, with its owner, modes and times, to a name that is free.
fn copy_as_it_is(folder: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").arg(folder).arg(to).status()?;
    ensure!(status.success(), "cp -a {}: {status}", folder.display());
    Ok(())
}

fn epoch_of_agent(data: &Path, cache: &Path) -> Result<EpochResult> {
    let folder = tempfile::tempdir()?;
    let address = format!("unix://{}", folder.path().join("door").display());
    let mut agent = Command::new(program("bothends-agent")?);
    agent.args(["--once", "--cores", "2", "--listen", &address]);
    agent.arg("--data-root").arg(data).arg("--cache").arg(cache);
    let mut agent = agent.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(agent.stdout.take().context("its words")?).read_line(&mut line)?;
    let (strategy, devices) = ("csd", vec![address]);
    let setup = Setup { strategy, devices, require_devices: true, ..Setup::new(data) };
    let epoch = setup.run();
    if epoch.is_err() {
        agent.kill()?;
    }
    let status = agent.wait()?;
    ensure!(status.success(), "the agent ended badly: {status}");
    epoch
}

#[test]
fn an_agent_keeps_its_own_and_its_samples_are_the_hosts() -> Result<()> {
    let folder = copied()?;
    let data = folder.path();
    let cache = tempfile::tempdir()?;
    let by_host = Setup::new(data).run()?.content_digest.context("a digest")?;
    ensure!(content_of_agent(data, cache.path())? == by_host, "while it is made");
    ensure!(segments(data)?.is_empty(), "nothing is written beside the data");
    let own = std::fs::read_dir(cache.path())?.next().context("a folder")??.path();
    let made = segments(&own)?;
    ensure!(made.len() == 1, "one epoch, one segment: {made:?}");
    ensure!(content_of_agent(data, cache.path())? == by_host, "once it is there");
    let mut bytes = std::fs::read(&made[0])?;
    let middle = bytes.len() / 2;
    bytes[middle..middle + 500].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&made[0], bytes)?;
    ensure!(content_of_agent(data, cache.path())? == by_host, "once it is damaged");
    Ok(())
}

/// A segment as somebody else would plant it: one of ours with every brightness shifted, all hashes
/// right, and the seal of `key`.
fn planted(whole: &[u8], seal: impl FnOnce([&[u8]; 2]) -> [u8; 32]) -> Result<Vec<u8>> {
    let header = whole.first_chunk::<HEADER_BYTES>().context("a header")?;
    let range = side_index::directory_range(header, whole.len() as u64)?;
    let start = usize::try_from(range.start)?;
    let directory = &whole[start..];
    let mut lines = side_index::directory(header, directory, |_, _| true)?;
    let mut bytes = whole[..start].to_vec();
    for line in &mut lines {
        let from = usize::try_from(line.offset)?;
        let note = &mut bytes[from..][..line.len as usize];
        // Entry points are at the end, and most of it: bits 28 to 39 are the DC of brightness.
        let n_points = note.len() / 16;
        let points = note.len() - 8 * n_points;
        for point in note[points..].as_chunks_mut().0 {
            let number = u64::from_le_bytes(*point);
            let dc = (number >> 28).wrapping_add(60) & 0xfff;
            *point = (number & !(0xfff << 28) | dc << 28).to_le_bytes();
        }
        let named = [line.key, line.stamp, line.content];
        *line = Line::new(named, line.offset, note).context("a line")?;
    }
    let (directory, header) = side_index::seal(&mut lines, range.start, seal);
    bytes[..HEADER_BYTES].copy_from_slice(&header);
    bytes.extend(directory);
    Ok(bytes)
}

/// HMAC would be another one with another key; zeros are what somebody without any has.
fn sealed_by_nobody(_: [&[u8]; 2]) -> [u8; 32] {
    [0; 32]
}

/// Whoever may write next to the data, or into a cache directory, could say what images look like.
#[test]
fn a_planted_index_changes_no_pixel() -> Result<()> {
    const NEWEST: &str = ".bothends-index-ffffffffffffffff-1.segment";
    let folder = copied()?;
    let data = folder.path();
    let without = stream(data, SideIndexUse::Beside)?;
    let ours = segments(data)?.pop().context("a segment")?;
    let evil = planted(&std::fs::read(&ours)?, sealed_by_nobody)?;
    std::fs::remove_file(&ours)?;
    std::fs::write(data.join(NEWEST), &evil)?;
    ensure!(stream(data, SideIndexUse::Beside)? == without, "beside the data");

    let cache = tempfile::tempdir()?;
    let by_host = Setup::new(data).run()?.content_digest.context("a digest")?;
    ensure!(content_of_agent(data, cache.path())? == by_host, "while it is made");
    let own = std::fs::read_dir(cache.path())?.next().context("a folder")??.path();
    let ours = segments(&own)?.pop().context("a segment")?;
    let evil = planted(&std::fs::read(&ours)?, sealed_by_nobody)?;
    std::fs::remove_file(&ours)?;
    std::fs::write(own.join(NEWEST), &evil)?;
    ensure!(content_of_agent(data, cache.path())? == by_host, "in the agent's cache");
    Ok(())
}
