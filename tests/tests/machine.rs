//! What the machine does to a run: files that become pipes, too few files that may be open,
//! a disk that fails, other ranks. Never another stream, never a wait without end.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bothends_core::recipe::Recipe;
use bothends_runtime::{
    BadPolicy, Loader, ReaderKind, Records, RunConfig, RuntimeError, Supplied,
    SuppliedFile, Unread,
};
use bothends_tests::{generated, programs};
use serde_json::Value;

/// No epoch here takes longer.
const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn too_few_addresses_are_told_of_before_memory_is_missing() -> Result<()> {
    // A debug build may take half of what a run needs for its code alone, hence so much on top of
    // what the program needs to start, and less than the slots and the workers of any run take.
    let limit = least_addresses_kib()? + (16 << 10);
    let data = generated()?;
    let data = data.to_str().context("a name in UTF-8")?;
    let workers = ["--recipe", "imagenet-eval", "--workers", "2", "--batch-size", "4"];
    let said = bounded(limit, &[&["run", "--data", data], &workers[..]].concat())?;
    ensure!(said.status.code() == Some(1), "{limit} KiB: {said:?}");
    let said = String::from_utf8(said.stderr)?;
    ensure!(said.starts_with("error: ") && said.lines().count() == 1, "{said}");
    ensure!(said.contains("ulimit -v"), "{said}");
    Ok(())
}

/// With about how many KiB of addresses the program starts at all.
fn least_addresses_kib() -> Result<u64> {
    (24 << 10..1 << 20)
        .step_by(4 << 10)
        .find_map(|limit| match bounded(limit, &["--version"]) {
            Ok(said) if !said.status.success() => None,
            Ok(_) => Some(Ok(limit)),
            Err(error) => Some(Err(error)),
        })
        .context("the program does not start with 1 GiB of addresses")?
}

/// The program, in a process that may address so many KiB.
fn bounded(limit: u64, args: &[&str]) -> Result<Output> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {limit} && exec \"$0\" \"$@\"")]);
    command.arg(programs::program("bothends")?).args(args);
    programs::run(&mut command, DEADLINE)
}

/// What ends the first epoch of a loader of these data.
fn failure(config: RunConfig) -> Result<RuntimeError> {
    failure_after(config, || Ok(()))
}

/// The same, with something that happens once the data are listed.
fn failure_after(
    config: RunConfig,
    happens: impl FnOnce() -> Result<()>,
) -> Result<RuntimeError> {
    let mut loader = Loader::open(RunConfig { batch_size: 2, workers: 2, ..config })?;
    happens()?;
    let began = Instant::now();
    let error = loader.begin(1)?.batches(0).find_map(Result::err);
    ensure!(began.elapsed() < DEADLINE, "it took {:?}", began.elapsed());
    error.context("the epoch ended without an error")
}

fn eval() -> Recipe {
    Recipe::builtin("imagenet-eval").unwrap()
}

#[test]
fn files_that_become_pipes_are_bad_samples_and_nobody_waits_for_a_writer() -> Result<()> {
    for kind in [ReaderKind::Pread, ReaderKind::Auto] {
        let folder = tempfile::tempdir()?;
        let class = folder.path().join("class");
        std::fs::create_dir(&class)?;
        let image = first_image(&generated()?)?;
        let names: Vec<_> = (0..6).map(|n| class.join(format!("{n}.jpg"))).collect();
        for name in &names {
            std::fs::copy(&image, name)?;
        }
        let mut config = RunConfig::new(folder.path().to_owned(), eval());
        config.read.kind = kind;
        let error = failure_after(config, || {
            for name in &names {
                std::fs::remove_file(name)?;
                ensure!(Command::new("mkfifo").arg(name).status()?.success());
            }
            Ok(())
        })?;
        let line = error.to_string();
        ensure!(line.contains("regular file"), "{line}");
    }
    Ok(())
}

fn first_image(folder: &Path) -> Result<std::path::PathBuf> {
    let class = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let class = class.filter(|path| path.is_dir()).min().context("a class")?;
    let image = std::fs::read_dir(class)?.flatten().map(|entry| entry.path()).min();
    image.context("an image")
}

#[test]
fn a_disk_that_fails_ends_the_run_whatever_the_policy() -> Result<()> {
    // Reading where this process has no memory is an error of input.
    let folder = tempfile::tempdir()?;
    symlink("/proc/self/mem", folder.path().join("broken.jpg"))?;
    std::fs::copy(first_image(&generated()?)?, folder.path().join("good.jpg"))?;
    for policy in [BadPolicy::Raise, BadPolicy::Skip, BadPolicy::Zero, BadPolicy::Replace]
    {
        let broken =
            SuppliedFile { path: "broken.jpg", extent: Some((0, 100)), label: 0 };
        let good = SuppliedFile { path: "good.jpg", extent: None, label: 0 };
        let files = [good, good, broken, good];
        let supplied = Supplied::files(folder.path(), files.into_iter())?;
        let config = RunConfig {
            supplied: Some(supplied),
            on_bad: policy,
            ..RunConfig::new(folder.path().to_owned(), eval())
        };
        let error = failure(config)?;
        let RuntimeError::Unreadable { path, source } = &error else {
            anyhow::bail!("{policy:?}: {error}");
        };
        ensure!(path.ends_with("broken.jpg"), "{error}");
        ensure!(source.raw_os_error() == Some(5), "{source}");
        let line = error.to_string();
        ensure!(line.contains("check the storage it is on"), "{line}");
    }
    Ok(())
}

/// A caller's reader that meets the machine's errors.
#[derive(Debug)]
struct Meets {
    image: Vec<u8>,
    errno: i32,
    /// The first attempts at each sample that fail.
    n_failing: u32,
    attempts: Mutex<BTreeMap<u64, u32>>,
}

impl Meets {
    fn errno(errno: i32, n_failing: u32) -> Result<Self> {
        let image = std::fs::read(first_image(&generated()?)?)?;
        Ok(Self { image, errno, n_failing, attempts: Mutex::default() })
    }
}

impl Records for Meets {
    fn read(&self, sample: u64) -> Result<Vec<u8>, Unread> {
        let mut attempts = self.attempts.lock().unwrap();
        let n = attempts.entry(sample).or_default();
        *n += 1;
        if *n <= self.n_failing {
            return Err(std::io::Error::from_raw_os_error(self.errno).into());
        }
        Ok(self.image.clone())
    }
}

fn given(
    records: Arc<dyn Records>,
    n_samples: usize,
    on_bad: BadPolicy,
) -> Result<RunConfig> {
    let supplied = Supplied::records("given", &vec![0; n_samples], records)?;
    let (supplied, batch_size, workers) = (Some(supplied), 2, 2);
    let config = RunConfig::new("given".into(), eval());
    Ok(RunConfig { supplied, on_bad, batch_size, workers, ..config })
}

/// `EINTR`, `EIO`, `ENOMEM`, `EACCES`, `ENFILE`, `EMFILE`, `ESTALE`.
const OF_THE_MACHINE: [i32; 7] = [4, 5, 12, 13, 23, 24, 116];

#[test]
fn the_machines_errors_are_no_bad_samples_where_the_caller_reads_either() -> Result<()> {
    let ends = |errno: i32| -> Result<()> {
        let records = Arc::new(Meets::errno(errno, u32::MAX)?);
        let error = failure(given(records, 4, BadPolicy::Skip)?)?;
        let RuntimeError::Unreadable { path, source } = &error else {
            anyhow::bail!("errno {errno}: {error}");
        };
        ensure!(source.raw_os_error() == Some(errno), "{error}");
        ensure!(path.to_string_lossy().ends_with(" of given"), "{error}");
        Ok(())
    };
    // Each is asked again for two seconds.
    std::thread::scope(|scope| {
        let runs = OF_THE_MACHINE.map(|errno| scope.spawn(move || ends(errno)));
        runs.into_iter().try_for_each(|run| run.join().expect("no panic"))
    })?;
    // ENOENT: what is gone is the sample's fault.
    let mut loader =
        Loader::open(given(Arc::new(Meets::errno(2, u32::MAX)?), 4, BadPolicy::Zero)?)?;
    let whole: Result<Vec<_>, _> = loader.begin(1)?.batches(0).collect();
    ensure!(whole?.len() == 2);
    ensure!(loader.stats().skipped.len() == 4);
    Ok(())
}

#[test]
fn what_the_machine_fails_at_for_a_moment_is_read_again() -> Result<()> {
    for errno in OF_THE_MACHINE {
        // A worker's attempt, and the first of the feed's.
        let records = Arc::new(Meets::errno(errno, 2)?);
        let config = given(Arc::clone(&records) as _, 4, BadPolicy::Skip)?;
        let mut loader = Loader::open(config)?;
        let mut n_samples = 0;
        for batch in loader.begin(1)?.batches(0) {
            n_samples += batch?.n_valid();
        }
        ensure!(n_samples == 4 && loader.stats().skipped.is_empty(), "errno {errno}");
        let attempts = records.attempts.lock().unwrap();
        ensure!(attempts.values().eq([3; 4].iter()), "{attempts:?}");
    }
    Ok(())
}

/// Fails for want of memory; the feed's first attempt lasts until it is let go.
#[derive(Debug, Default)]
struct Clings {
    n_attempts: Mutex<u32>,
    changed: Condvar,
    lets_go: Mutex<bool>,
}

impl Records for Clings {
    fn read(&self, _: u64) -> Result<Vec<u8>, Unread> {
        let mut n_attempts = self.n_attempts.lock().unwrap();
        *n_attempts += 1;
        let is_feeds = *n_attempts > 2;
        self.changed.notify_all();
        drop(n_attempts);
        if is_feeds {
            let lets_go = self.lets_go.lock().unwrap();
            drop(self.changed.wait_while(lets_go, |lets_go| !*lets_go));
        }
        Err(std::io::Error::from_raw_os_error(12).into())
    }
}

impl Clings {
    fn wait_for_attempts(&self, n: u32) -> Result<()> {
        let attempts = self.n_attempts.lock().unwrap();
        let fewer = |attempts: &mut u32| *attempts < n;
        let waited = self.changed.wait_timeout_while(attempts, DEADLINE, fewer);
        ensure!(!waited.unwrap().1.timed_out(), "nobody tries");
        Ok(())
    }

    fn let_go(&self) {
        *self.lets_go.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

#[test]
fn nobody_tries_again_for_an_epoch_that_is_cancelled() -> Result<()> {
    let records = Arc::new(Clings::default());
    let config = given(Arc::clone(&records) as _, 2, BadPolicy::Skip)?;
    let mut loader = Loader::open(config)?;
    let deal = loader.begin(1)?;
    // Two rows by the workers, and the first of them by the feed.
    records.wait_for_attempts(3)?;
    deal.cancel();
    records.let_go();
    drop(loader);
    ensure!(*records.n_attempts.lock().unwrap() == 3, "{records:?}");
    Ok(())
}

#[test]
fn a_callers_function_that_does_not_return_is_left_alone() -> Result<()> {
    let records = Arc::new(Clings::default());
    let config = given(Arc::clone(&records) as _, 4, BadPolicy::Skip)?;
    let mut loader = Loader::open(config)?;
    let notes = loader.notes();
    loader.begin(1)?;
    // The workers' third is the first that does not return, or it is the feed's.
    records.wait_for_attempts(3)?;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(loader);
        tell.send(())
    });
    told.recv_timeout(DEADLINE).context("it waits without end")?;
    let note = notes.next().context("a note")?;
    ensure!(note.contains("a function of the caller's does not answer"), "{note}");
    records.let_go();
    Ok(())
}

/// Either nothing changes, and one note says what limits it where the data's files cannot stay open,
/// or the run ends with the limit's name.
#[test]
fn too_few_files_that_may_be_open_make_no_other_stream() -> Result<()> {
    let data = generated()?;
    let program = programs::program("bothends")?;
    let run = |limit: &str, policy: &str| -> Result<(Option<i32>, String, String)> {
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(&program).args(["run", "--data"]).arg(&data);
        command.args(["--recipe", "imagenet-eval", "--batch-size", "4", "--digest"]);
        command.args(["--workers", "8", "--side-index", "off", "--json", "-"]);
        command.args(["--on-bad", policy]);
        let output = programs::run(&mut command, DEADLINE)?;
        let said = String::from_utf8(output.stderr)?;
        let digest = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
        let digest = digest["epochs"][0]["stream_digest"].to_string();
        Ok((output.status.code(), digest, said))
    };
    let (_, whole, said) = run("1024", "raise")?;
    ensure!(whole.len() > 30, "{said}");
    ensure!(!said.contains("ulimit"), "nothing is limited: {said}");
    let mut n_noted = 0;
    for (limit, policy) in [
        ("16", "zero"),
        ("24", "skip"),
        ("40", "zero"),
        ("48", "replace"),
        ("64", "skip"),
        // Enough for the reader, and for hardly a file that stays open.
        ("90", "raise"),
    ] {
        let (status, digest, said) = run(limit, policy)?;
        match status {
            Some(0) => {
                ensure!(digest == whole, "{limit}, {policy}: another stream");
                let note = format!("at most {limit} files may be open, so ");
                let notes: Vec<_> = said.lines().filter(|l| l.contains(&note)).collect();
                ensure!(notes.len() == 1 && notes[0].contains("ulimit -n"), "{said}");
                n_noted += 1;
            }
            _ => {
                let errors = said.lines().filter(|line| line.starts_with("error: "));
                ensure!(status == Some(1), "{limit}, {policy}: {said}");
                ensure!(errors.count() == 1 && said.contains("ulimit -n"), "{said}");
            }
        }
    }
    ensure!(n_noted > 0, "no limit was enough to run with");
    Ok(())
}

/// Each worker may have a file open, but need not: the reader then reads for all.
#[test]
fn many_workers_need_no_more_files_than_few() -> Result<()> {
    let data = generated()?;
    for workers in ["2", "100"] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 60 && exec \"$0\" \"$@\""]);
        command.arg(programs::program("bothends")?).args(["run", "--data"]).arg(&data);
        command.args(["--recipe", "imagenet-eval", "--batch-size", "4"]);
        let output = programs::run(command.args(["--workers", workers]), DEADLINE)?;
        ensure!(output.status.success(), "{workers}: {output:?}");
    }
    Ok(())
}

/// A limit on what a file may hold stands for a full disk: the second half of a result does not
/// fit. Readers of the old one still have all of it, and nothing is left next to it.
#[test]
fn a_result_that_does_not_fit_leaves_the_old_one_whole() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("result.json");
    let run = |limit: &str| -> Result<(Option<i32>, String)> {
        // The signal of that limit would end the program before it is told.
        let script = format!("trap '' XFSZ; ulimit -f {limit} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(programs::program("bothends")?);
        command.args(["run", "--data"]).arg(generated()?).args([
            "--limit",
            "8",
            "--batch-size",
            "4",
        ]);
        command.args(["--recipe", "imagenet-eval", "--side-index", "off", "--json"]);
        let output = programs::run(command.arg(&place), DEADLINE)?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    let (status, said) = run("unlimited")?;
    ensure!(status == Some(0), "{said}");
    let old = std::fs::read(&place)?;
    // Two blocks are 1 or 2 KiB, as the shell counts.
    ensure!(old.len() > 2048, "a result of {} bytes would fit", old.len());
    let (status, said) = run("2")?;
    ensure!(status == Some(1), "{status:?}: {said}");
    ensure!(
        said.contains("error: cannot write ") && said.contains("result.json"),
        "{said}"
    );
    ensure!(std::fs::read(&place)? == old, "the old result is gone");
    ensure!(std::fs::read_dir(folder.path())?.count() == 1, "something lies beside it");
    Ok(())
}

// ---- other ranks ------------------------------------------------------------------------

/// Where ranks meet that no launcher counts.
const MEETS: [(&str, &str); 2] = [("MASTER_ADDR", "node1"), ("MASTER_PORT", "29500")];

/// A run under way; killed when dropped.
struct UnderWay(Child);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A run that leaves its workers to `auto`, where ranks are counted in this folder.
fn rank(counted_in: &Path) -> Result<Command> {
    let mut command = Command::new(programs::program("bothends")?);
    command.args(["run", "--recipe", "imagenet-eval", "--batch-size", "4"]);
    command.args(["--side-index", "off", "--data"]).arg(generated()?);
    // These tests may themselves be run by a launcher.
    let of_launcher = ["SLURM_", "OMPI_", "MPI_", "MV2_", "LOCAL_", "MASTER_", "CROSS_"];
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| of_launcher.iter().any(|of| name.starts_with(of))) {
        command.env_remove(name);
    }
    command.env("XDG_RUNTIME_DIR", "").env("TMPDIR", counted_in);
    Ok(command)
}

/// Workers of a short run, and the ranks that it knows of.
fn taken(mut rank: Command) -> Result<(u64, u64)> {
    let output =
        programs::run(rank.args(["--stop-after", "1", "--json", "-"]), DEADLINE)?;
    let said = String::from_utf8(output.stderr)?;
    let result: Value = serde_json::from_slice(&output.stdout).context(said)?;
    let number = |at: &str| {
        let number = result.pointer(at).and_then(Value::as_u64);
        number.with_context(|| format!("{at} in {result}"))
    };
    Ok((number("/config/workers")?, number("/energy/quantities/host/ranks")?))
}

/// Symptom: of two runs that are ranks of one job, each takes every processor.
#[test]
fn runs_that_meet_at_one_place_divide_the_machine() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let meets = || -> Result<Command> {
        let mut command = rank(folder.path())?;
        command.envs(MEETS);
        Ok(command)
    };
    let (all, alone) = taken(rank(folder.path())?)?;
    ensure!(alone == 1, "{alone} ranks");
    let events = folder.path().join("events.jsonl");
    let mut command = meets()?;
    // For hours.
    command.args(["--repeat", "1000", "--accelerator", "sim:10", "--events"]);
    command.arg(&events).stdout(Stdio::null()).stderr(Stdio::null());
    let first = UnderWay(command.spawn()?);
    ensure!(programs::eventually(DEADLINE, || events.exists()), "it does not begin");
    let second = taken(meets()?)?;
    ensure!(second == ((all / 2).max(1), 2), "{second:?}, and {all} alone");
    // However the first one ends, it is counted no more.
    drop(first);
    let third = taken(meets()?)?;
    ensure!(third == (all, 1), "{third:?}, and {all} alone");
    Ok(())
}
