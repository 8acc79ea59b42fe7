//! The block cache changes no byte: without it, while it grows, with all of it, damaged, outdated, shared,
//! killed or on a full disk, the stream is the same.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bothends_dataset::block_cache::{HEADER_BYTES, is_segment};
use bothends_tests::generated;
use bothends_tests::programs::{eventually, program, run};
use serde_json::Value;

/// Images of a test: few, since threads that fill the cache run where nobody else wants to.
const N: usize = 24;

/// Of these, at least so many are sequential JPEGs, which can be kept.
const KEPT: u64 = 18;

/// Images per second: the host has time to spare, on a busy machine, too.
const SLOWLY: &[&str] = &["--accelerator", "sim:40"];

/// Far longer than anything here takes, on a busy machine, too.
const DEADLINE: Duration = Duration::from_secs(120);

/// Images of its own, and a cache directory of its own.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let place = Self { folder };
        let mut images = Vec::new();
        for class in std::fs::read_dir(generated()?)? {
            let class = class?.path();
            if class.is_dir() {
                for image in std::fs::read_dir(&class)? {
                    images.push(image?.path());
                }
            }
        }
        images.sort();
        for image in images.iter().step_by(images.len() / N).take(N) {
            let class = image.parent().and_then(Path::file_name).context("a class")?;
            let to = place.data().join(class);
            std::fs::create_dir_all(&to)?;
            std::fs::copy(image, to.join(image.file_name().context("a name")?))?;
        }
        Ok(place)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Three epochs in batches of four.
    fn command(&self, more: &[&str]) -> Result<Command> {
        let mut command = at_its_own_priority(&program("bothends")?);
        command.arg("run").arg("--data").arg(self.data());
        let how = "--recipe imagenet-train --batch-size 4 --epochs 3 --digest \
                   --json -";
        command.args(how.split_whitespace()).args(more);
        command.env("XDG_STATE_HOME", self.folder.path());
        command.env("XDG_CACHE_HOME", self.folder.path());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    fn run(&self, more: &[&str]) -> Result<Value> {
        let output = self.command(more)?.output()?;
        ensure!(output.status.success(), "{more:?}: {}", output.status);
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Runs until there is nothing more to transcode; each run must have this stream.
    fn fill(&self, digests: &[String]) -> Result<Value> {
        let began = Instant::now();
        loop {
            let result = self.run(&[&["--cache-size", "1G"], SLOWLY].concat())?;
            ensure!(streams(&result) == digests, "while it grew");
            if count(&result, "records") >= KEPT && count(&result, "transcoded") == 0 {
                return Ok(result);
            }
            ensure!(began.elapsed() < DEADLINE, "{}", result["block_cache"]);
        }
    }

    fn segments(&self) -> Vec<PathBuf> {
        let root = self.folder.path().join("bothends/blocks");
        let folders = std::fs::read_dir(root).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap());
        let paths = files.map(|file| file.unwrap().path());
        let name =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut paths: Vec<_> = paths.filter(|path| is_segment(&name(path))).collect();
        paths.sort();
        paths
    }
}

/// The program, whose threads keep the policy of the process: those that fill the cache would otherwise run
/// only where nobody else wants to, which may take forever on a machine that is busy with tests.
fn at_its_own_priority(program: &Path) -> Command {
    let has_chrt = Command::new("chrt").arg("--version").output().is_ok();
    let mut command = Command::new(if has_chrt { Path::new("chrt") } else { program });
    if has_chrt {
        command.args(["--batch", "0"]).arg(program);
    }
    command
}

fn streams(result: &Value) -> Vec<String> {
    let epochs = result["epochs"].as_array().into_iter().flatten();
    epochs.map(|epoch| epoch["stream_digest"].to_string()).collect()
}

fn count(result: &Value, key: &str) -> u64 {
    result["block_cache"][key].as_u64().unwrap_or(0)
}

#[test]
fn the_stream_is_the_same_without_it_while_it_grows_and_with_it() -> Result<()> {
    let place = Place::new()?;
    let without = place.run(&["--cache-size", "off"])?;
    ensure!(without["block_cache"].is_null() && place.segments().is_empty());
    let digests = streams(&without);
    ensure!(digests.len() == 3 && digests[0] != digests[1], "{digests:?}");
    let unasked = place.run(&[])?;
    ensure!(streams(&unasked) == digests && place.segments().is_empty());
    ensure!(unasked["block_cache"]["off"].is_string(), "{}", unasked["block_cache"]);
    place.fill(&digests)?;
    // Larger than all: what is there is read, and nothing is done twice.
    let full = place.run(&["--cache-size", "1G"])?;
    ensure!(streams(&full) == digests, "with all of it");
    // Behind an epoch, a thread looks for new segments, and who looks a record up does not wait for it: it decodes
    // the file.
    let (records, read) = (count(&full, "records"), count(&full, "read"));
    ensure!((records..=3 * records).contains(&read), "{}", full["block_cache"]);
    ensure!(count(&full, "transcoded") <= 3 * records - read);
    ensure!(count(&full, "damaged") == 0);
    for more in [
        &["--workers", "1", "--reader", "pread"][..],
        &["--page-cache", "past"],
        &["--csd", "sim:ideal"],
        &["--csd", "sim:ideal,fault=die@50%", "--side-index", "off"],
    ] {
        let result = place.run(more)?;
        ensure!(streams(&result) == digests, "{more:?}");
        ensure!(count(&result, "read") > 0, "{more:?}: {}", result["block_cache"]);
    }
    let relaxed = ["--strategy", "relaxed", "--csd", "sim:ideal"];
    let contents = |result: &Value| -> Vec<Value> {
        let epochs = result["epochs"].as_array().into_iter().flatten();
        epochs.map(|epoch| epoch["content_digest"].clone()).collect()
    };
    ensure!(contents(&place.run(&relaxed)?) == contents(&without), "relaxed");
    Ok(())
}

#[test]
fn damaged_blocks_are_decoded_from_their_files_and_removed() -> Result<()> {
    let place = Place::new()?;
    let digests = streams(&place.run(&["--cache-size", "off"])?);
    place.fill(&digests)?;
    let whole: Vec<_> = place.segments();
    for path in &whole {
        let mut bytes = std::fs::read(path)?;
        // Every record, and not the directory: the seal is right.
        let directory = bytes.len().saturating_sub(16 << 10).max(HEADER_BYTES);
        bytes[HEADER_BYTES..directory].iter_mut().step_by(90).for_each(|byte| *byte ^= 4);
        std::fs::write(path, bytes)?;
    }
    let result = place.run(&[])?;
    ensure!(streams(&result) == digests, "with damaged blocks");
    ensure!(count(&result, "damaged") > 0, "{}", result["block_cache"]);
    ensure!(place.segments().is_empty(), "{:?}", place.segments());
    place.fill(&digests)?;
    // Ends in the middle: no segment at all.
    for path in place.segments() {
        std::fs::File::options().write(true).open(path)?.set_len(5000)?;
    }
    ensure!(streams(&place.run(&[])?) == digests, "with segments cut short");
    Ok(())
}

/// An image is replaced by another one of the same length and time.
#[test]
fn a_changed_image_is_decoded_anew() -> Result<()> {
    let place = Place::new()?;
    let digests = streams(&place.run(&["--cache-size", "off"])?);
    place.fill(&digests)?;
    let class = std::fs::read_dir(place.data())?.next().context("a class")??.path();
    let path = std::fs::read_dir(class)?.next().context("an image")??.path();
    let age = std::fs::metadata(&path)?.modified()?;
    let mut bytes = std::fs::read(&path)?;
    // Another quantisation table: the same scan, another picture.
    let table = bytes.windows(2).position(|w| w == [0xff, 0xdb]).context("a table")?;
    for step in &mut bytes[table + 5..table + 20] {
        *step = step.wrapping_add(3).max(1);
    }
    std::fs::write(&path, bytes)?;
    std::fs::File::options().write(true).open(&path)?.set_modified(age)?;
    let with = place.run(&["--cache-size", "1G"])?;
    let without = place.run(&["--cache-size", "off"])?;
    ensure!(streams(&with) == streams(&without), "old blocks were believed");
    ensure!(streams(&with) != digests, "it is another picture");
    Ok(())
}

/// The next listing took its folders for classes.
#[test]
fn a_cache_directory_in_the_data_is_refused() -> Result<()> {
    let place = Place::new()?;
    let cache = place.data().join("new/cache");
    let mut command = place.command(&["--cache-size", "1G", "--cache"])?;
    let output = run(command.arg(&cache), DEADLINE)?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && words.contains("lies in it; choose"), "{words}");
    ensure!(!place.data().join("new").exists(), "it was made");
    Ok(())
}

#[test]
fn a_cache_directory_in_a_data_set_of_a_mix_is_refused() -> Result<()> {
    let place = Place::new()?;
    let (data, other) = (place.data(), generated()?);
    let mut command = Command::new(program("bothends")?);
    command.args(["run", "--recipe", "imagenet-train", "--batch-size", "4"]);
    command.arg("--data").arg(format!("a={}", other.display()));
    command.arg("--data").arg(format!("b={}", data.display()));
    command.arg("--cache").arg(data.join("new"));
    let output = run(&mut command, DEADLINE)?;
    let words = String::from_utf8_lossy(&output.stderr);
    let wanted = format!(
        "data set `b` ({0}): the cache directory {0}/new lies in it; choose one outside",
        data.display()
    );
    ensure!(!output.status.success() && words.contains(&wanted), "{words}");
    ensure!(!data.join("new").exists(), "it was made");
    Ok(())
}

#[test]
fn processes_at_once_share_it_within_its_bound() -> Result<()> {
    let place = Place::new()?;
    let digests = streams(&place.run(&["--cache-size", "off"])?);
    let began = Instant::now();
    while place.segments().is_empty() {
        ensure!(began.elapsed() < DEADLINE, "nobody wrote it");
        let run = || -> Result<_> {
            let mut command =
                place.command(&[&["--cache-size", "1M"], SLOWLY].concat())?;
            Ok(command.stdout(Stdio::piped()).spawn()?)
        };
        for child in [run()?, run()?, run()?] {
            let output = child.wait_with_output()?;
            ensure!(streams(&serde_json::from_slice(&output.stdout)?) == digests);
        }
    }
    let sum = || place.segments().iter().map(|path| path.metadata().unwrap().len()).sum();
    let bytes: u64 = sum();
    ensure!(bytes <= 1 << 20, "{bytes}");
    let after = place.run(&["--cache-size", "1M"])?;
    ensure!(streams(&after) == digests && count(&after, "damaged") == 0);
    ensure!(count(&after, "read") > 0, "{}", after["block_cache"]);
    let bytes: u64 = sum();
    ensure!(bytes <= 1 << 20, "{bytes}");
    Ok(())
}

#[test]
fn a_killed_run_leaves_nothing_half_done() -> Result<()> {
    let place = Place::new()?;
    let digests = streams(&place.run(&["--cache-size", "off"])?);
    let long = ["--cache-size", "1G", "--repeat", "100"];
    let mut command = place.command(&[&long, SLOWLY].concat())?;
    let mut child = command.stdout(Stdio::null()).spawn()?;
    // A file without a name, or with a hidden one, is open there.
    let descriptors = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let blocks = place.folder.path().join("bothends/blocks");
    let begun = || {
        let open = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
        let mut targets = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets.any(|target| target.starts_with(&blocks))
    };
    let has_begun = eventually(DEADLINE, begun);
    child.kill()?;
    child.wait()?;
    ensure!(has_begun, "it never began a segment");
    let after = place.run(&["--cache-size", "1G"])?;
    ensure!(streams(&after) == digests && count(&after, "damaged") == 0);
    Ok(())
}

/// The limit on the length of files stands for the end of a disk.
#[test]
fn on_a_full_disk_it_says_so_and_the_run_goes_on() -> Result<()> {
    let place = Place::new()?;
    let digests = streams(&place.run(&["--cache-size", "off"])?);
    let began = Instant::now();
    loop {
        let wanted = place.command(&[&["--cache-size", "1G"], SLOWLY].concat())?;
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""]);
        command.arg(wanted.get_program()).args(wanted.get_args());
        command.env("XDG_STATE_HOME", place.folder.path());
        command.env("XDG_CACHE_HOME", place.folder.path());
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
        let result: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(streams(&result) == digests, "on a full disk");
        ensure!(place.segments().is_empty(), "{:?}", place.segments());
        let off = result["block_cache"]["off"].as_str().unwrap_or_default();
        if off.contains("cannot be written") {
            break;
        }
        ensure!(began.elapsed() < DEADLINE, "{}", result["block_cache"]);
    }
    Ok(())
}

#[test]
fn a_size_that_is_none_is_refused() -> Result<()> {
    let place = Place::new()?;
    let output =
        place.command(&["--cache-size", "much"])?.stderr(Stdio::piped()).output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2) && said.contains("such as 50G"), "{said}");
    Ok(())
}
