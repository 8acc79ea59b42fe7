//! Promises 1 and 7 under signals: a device that is killed or stopped costs its claims and
//! nothing else; a host that is killed leaves no process, no file and no shared memory.
//!
//! Every host here is a `bothends run` with a folder for temporary files of its own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod leftovers;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bothends_runtime::EpochResult;
use bothends_tests::programs::{eventually, program};
use bothends_tests::{N_GENERATED, Setup, generated};
use serde_json::Value;

use leftovers::{assert_nothing_left, assert_nothing_left_after, devices_of, runs};

const BATCH_SIZE: u32 = 4;
/// Long enough that a signal sent when the device has begun comes in the middle.
const REPEAT: u32 = 24;
/// For whatever must happen some time.
const PATIENCE: Duration = Duration::from_secs(60);

/// `bothends run` under way. Killed when a test ends without it.
struct Host {
    child: Child,
    folder: tempfile::TempDir,
}

impl Host {
    fn start(strategy: &str, devices: &[&str]) -> Result<Self> {
        program("firmware-sim")?;
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("tmp"))?;
        // A shell's background job ignores SIGINT, and so would all its children.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(program("bothends")?);
        command.arg("run").arg("--data").arg(generated()?);
        let (batch_size, repeat) = (BATCH_SIZE.to_string(), REPEAT.to_string());
        command.args(["--recipe", "imagenet-train", "--batch-size", &batch_size]);
        command.args(["--repeat", &repeat, "--seed", "11", "--workers", "1", "--digest"]);
        command.args(["--strategy", strategy, "--side-index", "off"]);
        for device in devices {
            command.args(["--csd", device]);
        }
        command.arg("--json").arg(folder.path().join("result.json"));
        command.env("TMPDIR", folder.path().join("tmp"));
        let words = std::fs::File::create(folder.path().join("words"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        Ok(Self { child: command.spawn()?, folder })
    }

    fn tmp(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// Its device processes, once there are so many.
    fn devices(&self, n: usize) -> Result<Vec<u32>> {
        let found = || devices_of(self.child.id()).unwrap_or_default();
        ensure!(eventually(PATIENCE, || found().len() == n), "{n} devices never started");
        Ok(found())
    }

    /// Its only device, once it has worked for some batches.
    fn busy_device(&self) -> Result<u32> {
        let device = *self.devices(1)?.first().context("one device")?;
        let is_busy = || cpu_ticks(device).is_some_and(|ticks| ticks >= 15);
        ensure!(eventually(PATIENCE, is_busy), "the device never worked");
        Ok(device)
    }

    fn end(&mut self) -> Result<ExitStatus> {
        let child = &mut self.child;
        let ended = eventually(PATIENCE, || !matches!(child.try_wait(), Ok(None)));
        ensure!(ended, "the run did not end");
        Ok(child.wait()?)
    }

    /// The summary of its only epoch, which must be the one that the host alone delivers.
    fn same_epoch(&mut self) -> Result<Value> {
        let status = self.end()?;
        let words = std::fs::read_to_string(self.folder.path().join("words"))?;
        ensure!(status.success(), "{status}: {words}");
        let text = std::fs::read_to_string(self.folder.path().join("result.json"))?;
        let mut result: Value = serde_json::from_str(&text)?;
        let epoch = result["epochs"][0].take();
        let reference = reference()?;
        let is =
            |key: &str, value: &Option<String>| epoch[key].as_str() == value.as_deref();
        ensure!(epoch["samples"] == u64::from(REPEAT * N_GENERATED), "{epoch}");
        ensure!(epoch["returned_claims"] == 0, "{epoch}");
        ensure!(is("content_digest", &reference.content_digest), "{epoch}");
        if epoch["strategy"] == "ordered" {
            ensure!(is("stream_digest", &reference.stream_digest), "{epoch}");
        }
        Ok(epoch)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The host alone.
fn reference() -> Result<&'static EpochResult> {
    static REFERENCE: OnceLock<Result<EpochResult, String>> = OnceLock::new();
    let made = REFERENCE.get_or_init(|| {
        let run = || {
            let (batch_size, repeat) = (BATCH_SIZE, REPEAT);
            Setup { batch_size, repeat, ..Setup::new(&generated()?) }.run()
        };
        run().map_err(|e| format!("{e:#}"))
    });
    made.as_ref().map_err(|why| anyhow::anyhow!("{why}"))
}

/// CPU time of a process in ticks of 10 ms, `proc_pid_stat(5)`.
fn cpu_ticks(id: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn send(signal: &str, id: u32) -> Result<()> {
    let status = Command::new("kill").arg(signal).arg(id.to_string()).status()?;
    ensure!(status.success(), "kill {signal} {id}: {status}");
    Ok(())
}

/// Neither process has mapped shared memory that has a name.
fn assert_no_shared_memory(ids: &[u32]) -> Result<()> {
    for id in ids {
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps"))?;
        ensure!(!maps.contains("/dev/shm"), "{id} uses /dev/shm: {maps}");
    }
    Ok(())
}

// ---- the device dies ------------------------------------------------------------------

/// At times, and more often on a busy machine, it has nothing in hand when it dies: then another one does.
fn kill_the_device(strategy: &str, via: &str) -> Result<()> {
    for _ in 0..5 {
        if kill_one(strategy, via)? {
            return Ok(());
        }
    }
    anyhow::bail!("five devices had nothing in hand when they were killed")
}

/// Whether what it had in hand was lost.
fn kill_one(strategy: &str, via: &str) -> Result<bool> {
    let mut host = Host::start(strategy, &[&format!("sim:ideal,rate=1000,via={via}")])?;
    let device = host.busy_device()?;
    send("-KILL", device)?;
    let epoch = host.same_epoch()?;
    let back = &epoch["back"][0];
    let failure = back["failure"].as_str().unwrap_or_default();
    ensure!(
        failure.contains("lost the device") || failure.contains("its process ended"),
        "{back}"
    );
    ensure!(back["batches"].as_u64() > Some(0), "it was killed too early: {back}");
    let n_lost = back["lost"].as_u64().unwrap_or(0);
    assert_nothing_left(&[device], &host.tmp(), "")?;
    Ok(n_lost + epoch["rescued"].as_u64().unwrap_or(0) > 0)
}

#[test]
fn a_killed_device_costs_its_claims_and_nothing_else() -> Result<()> {
    for strategy in ["ordered", "relaxed", "wrr", "mte", "csd"] {
        kill_the_device(strategy, "unix").with_context(|| strategy.to_owned())?;
    }
    Ok(())
}

#[test]
fn a_device_killed_over_tcp_or_a_spool_costs_no_more() -> Result<()> {
    for via in ["tcp", "spool"] {
        kill_the_device("ordered", via).with_context(|| via.to_owned())?;
    }
    Ok(())
}

#[test]
fn of_two_devices_the_other_goes_on() -> Result<()> {
    let spec = "sim:ideal,rate=150";
    let mut host = Host::start("ordered", &[spec, spec])?;
    let devices = host.devices(2)?;
    let are_busy = || devices.iter().all(|id| cpu_ticks(*id).is_some_and(|n| n >= 10));
    ensure!(eventually(PATIENCE, are_busy), "a device never worked");
    let before = cpu_ticks(devices[1]);
    send("-KILL", devices[0])?;
    let went_on = eventually(PATIENCE, || {
        host.child.try_wait().unwrap().is_some() || cpu_ticks(devices[1]) > before
    });
    ensure!(went_on, "the other device stopped too");
    let epoch = host.same_epoch()?;
    let back = epoch["back"].as_array().context("two devices")?;
    let n_lost = back.iter().filter(|device| !device["failure"].is_null()).count();
    ensure!(n_lost == 1, "{epoch}");
    let other = back.iter().find(|device| device["failure"].is_null());
    ensure!(other.is_some_and(|it| it["batches"].as_u64() > Some(0)), "{epoch}");
    assert_nothing_left(&devices, &host.tmp(), "")
}

/// A stopped process keeps its socket open and says nothing: the host must not wait for it,
/// neither in the epoch nor at the end. Whether it was over in time.
fn stop_the_device(via: &str) -> Result<bool> {
    let mut host = Host::start("ordered", &[&format!("sim:ideal,rate=1000,via={via}")])?;
    let device = host.busy_device()?;
    send("-STOP", device)?;
    let began = Instant::now();
    host.end()?;
    let took_s = began.elapsed().as_secs_f64();
    ensure!(!runs(device), "the stopped device outlives the run");
    let epoch = host.same_epoch()?;
    ensure!(epoch["back"][0]["batches"].as_u64() > Some(0), "stopped too early: {epoch}");
    ensure!(epoch["rescued"].as_u64() > Some(0), "{epoch}");
    // Two seconds until it is killed; any other question to it would take ten.
    let epoch_s = epoch["seconds"].as_f64().context("seconds")?;
    assert_nothing_left(&[device], &host.tmp(), "")?;
    Ok(took_s < epoch_s + 9.0)
}

#[test]
fn a_stopped_device_is_rescued_and_then_ended() -> Result<()> {
    for via in ["unix", "tcp", "spool"] {
        // Who asks it waits each time; a busy machine takes as long now and then.
        let mut is_in_time = false;
        for _ in 0..4 {
            is_in_time |= stop_the_device(via).with_context(|| via.to_owned())?;
            if is_in_time {
                break;
            }
        }
        ensure!(
            is_in_time,
            "{via}: ten seconds for a device that is stopped, four times"
        );
    }
    Ok(())
}

// ---- the host dies --------------------------------------------------------------------

fn end_the_host(signal: &str, via: &str) -> Result<()> {
    let mut host = Host::start("ordered", &[&format!("sim:ideal,rate=1000,via={via}")])?;
    let device = host.busy_device()?;
    let ids = [host.child.id(), device];
    assert_no_shared_memory(&ids)?;
    send(signal, ids[0])?;
    let status = host.end()?;
    ensure!(!status.success(), "{status}");
    assert_nothing_left(&ids, &host.tmp(), "")
}

#[test]
fn a_killed_host_leaves_nothing_within_two_seconds() -> Result<()> {
    for via in ["unix", "tcp", "spool"] {
        end_the_host("-KILL", via).with_context(|| via.to_owned())?;
    }
    Ok(())
}

#[test]
fn a_host_that_is_asked_to_end_leaves_nothing_either() -> Result<()> {
    for (signal, via) in [("-TERM", "unix"), ("-INT", "unix"), ("-TERM", "spool")] {
        end_the_host(signal, via).with_context(|| format!("{signal} {via}"))?;
    }
    Ok(())
}

/// At no moment between the start of the device and its first job is there a gap.
#[test]
fn a_host_killed_while_its_device_starts_leaves_nothing() -> Result<()> {
    for (via, delay_ms) in [("unix", 0), ("unix", 5), ("spool", 0), ("spool", 5)] {
        let mut host = Host::start("ordered", &[&format!("sim:ideal,via={via}")])?;
        let devices = host.devices(1)?;
        std::thread::sleep(Duration::from_millis(delay_ms));
        send("-KILL", host.child.id())?;
        host.end()?;
        assert_nothing_left(&devices, &host.tmp(), "")
            .with_context(|| format!("{via} after {delay_ms} ms"))?;
    }
    Ok(())
}

/// The checks above can fail.
#[test]
fn what_is_left_would_be_seen() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("bothends-1-0.sock"), "")?;
    let (began, patience) = (Instant::now(), Duration::from_secs(1));
    let seen = assert_nothing_left_after(patience, &[], (folder.path(), ""));
    ensure!(seen.is_err());
    ensure!(began.elapsed() >= patience);
    let (own, nowhere) = (std::process::id(), (Path::new("/proc"), "no"));
    ensure!(assert_nothing_left_after(patience, &[own], nowhere).is_err());
    Ok(())
}
