//! A host and an NVMe device without an agent: the same stream, whatever becomes of the device, and one line
//! for a device that cannot be used.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bothends_core::one_line;
use bothends_firmware_sim::nvme::{
    Batches, BlockMedia, Call, Checksum, Done, Program, Subsystem, SubsystemConfig,
    Target, TargetConfig,
};
use bothends_nvme::Status;
use bothends_runtime::{EpochResult, Observer, Progress};
use bothends_tests::attempts::{self, until_a_device_takes_part};
use bothends_tests::programs::{eventually, program};
use bothends_tests::{Setup, assert_whole, generated};

const NAME: &str = "nqn.2026-11.dev.bothends:test";
/// For how long a batch is held that is delivered before the device has come as far as a test needs.
const WHILE_NONE_IS_MADE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// A target in this process; its address.
fn target(
    media: &Path,
    memory_bytes: usize,
    programs: Vec<Arc<dyn Program>>,
) -> (Target, String) {
    let subsystem = Subsystem::new(SubsystemConfig {
        name: NAME.to_owned(),
        serial: "TEST0".to_owned(),
        media: BlockMedia::open(media).unwrap(),
        memory_bytes,
        programs,
    });
    let config = TargetConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        cores: 2,
    };
    let target = Target::start(&config, subsystem).unwrap();
    let url = format!("nvme-tcp://{}/{NAME}", target.address());
    (target, url)
}

fn batches() -> Vec<Arc<dyn Program>> {
    vec![Arc::new(Checksum), Arc::new(Batches::new(2))]
}

fn alone() -> EpochResult {
    Setup::new(&generated().unwrap()).run().unwrap()
}

fn with(strategy: &'static str, url: &str) -> EpochResult {
    let data = generated().unwrap();
    let devices = vec![url.to_owned()];
    let setup = Setup { strategy, devices, require_devices: true, ..Setup::new(&data) };
    setup.run().unwrap()
}

fn made(epoch: &EpochResult) -> u32 {
    epoch.back.iter().map(|back| back.batches).sum()
}

#[test]
fn every_strategy_delivers_the_hosts_stream() {
    let (_target, url) = target(&generated().unwrap(), 64 << 20, batches());
    let alone = alone();
    for strategy in ["csd", "ordered", "wrr", "mte"] {
        let run = || {
            let epoch = with(strategy, &url);
            assert_whole(&epoch, alone.samples).unwrap();
            assert_eq!(epoch.content_digest, alone.content_digest, "{strategy}");
            epoch
        };
        let epoch = match strategy {
            "csd" => until_a_device_takes_part(|| Ok(run())).unwrap(),
            _ => run(),
        };
        // NVMe has no word for it: unknown is not "on time".
        let is_late = epoch.back[0].is_behind(epoch.seconds);
        assert!(made(&epoch) == 0 || is_late.is_none(), "{:?}", epoch.back);
        if strategy == "ordered" {
            assert_eq!(epoch.stream_digest, alone.stream_digest);
        }
    }
}

/// The program as a process, killed if a test ends without it.
struct Sim {
    child: Child,
    url: String,
}

impl Sim {
    fn start(media: &Path) -> Self {
        let mut command = Command::new(program("firmware-sim").unwrap());
        command.args(["--preset", "ideal", "--time", "functional"]);
        command.args(["--listen", "nvme-tcp://127.0.0.1:0", "--media"]).arg(media);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take();
        let mut sim = Self { child, url: String::new() };
        let mut line = String::new();
        BufReader::new(out.unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ");
        url.unwrap_or_else(|| panic!("it said `{line}`")).clone_into(&mut sim.url);
        sim
    }

    /// By SIGKILL; once this returns its connections are closed.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_program_as_a_process_delivers_the_hosts_stream() {
    let sim = Sim::start(&generated().unwrap());
    let alone = alone();
    let run = || {
        let epoch = with("ordered", &sim.url);
        assert_whole(&epoch, alone.samples).unwrap();
        assert_eq!(epoch.stream_digest, alone.stream_digest);
        Ok(epoch)
    };
    until_a_device_takes_part(run).unwrap();
}

/// Kills the program once one of its batches is delivered. Until then it takes batches slowly, so that a busy
/// machine's device is not left behind by a host that makes the epoch alone.
struct Killer {
    sim: Sim,
    /// Batches that were not delivered when it was killed.
    n_left: Option<u32>,
}

impl Observer for Killer {
    fn phase(&mut self, _: &str) {}

    fn batch(&mut self, so_far: Progress) {
        if self.n_left.is_some() {
            return;
        }
        if so_far.back == 0 {
            thread::sleep(WHILE_NONE_IS_MADE);
        } else {
            self.sim.kill();
            self.n_left = Some(so_far.n_batches - so_far.front - so_far.back);
        }
    }

    fn note(&mut self, _: &str) {}
}

#[test]
fn a_killed_program_costs_its_claims_and_nothing_else() {
    // More batches than a device has slots for: it cannot have made all of its own before the first is delivered.
    let repeat = 8;
    let data = generated().unwrap();
    let alone = Setup { repeat, ..Setup::new(&data) }.run().unwrap();
    for strategy in ["ordered", "csd"] {
        let run = || {
            let sim = Sim::start(&data);
            let devices = vec![sim.url.clone()];
            let setup = Setup { strategy, devices, repeat, ..Setup::new(&data) };
            let mut killer = Killer { sim, n_left: None };
            let epoch = setup.watched(&mut killer).unwrap().epochs.pop().unwrap();
            assert_eq!(epoch.samples, alone.samples, "{strategy}");
            assert_eq!(epoch.content_digest, alone.content_digest, "{strategy}");
            if strategy == "ordered" {
                assert_eq!(epoch.stream_digest, alone.stream_digest);
            }
            Ok((killer.n_left, epoch))
        };
        // It died with more left than a device has under way, and before the host had made that.
        let is_told = |(n_left, epoch): &(Option<u32>, EpochResult)| {
            let failure = epoch.back[0].failure.clone().unwrap_or_default();
            n_left.is_some_and(|n| n > 4) && failure.contains("lost the device")
        };
        let what = format!("{strategy}: the loss in mid-epoch was told");
        attempts::until(&what, is_told, run).unwrap();
    }
}

/// A batch of 1.2 MB is made in parts where the device's memory is small; digests are on.
#[test]
fn a_batch_larger_than_the_memory_is_made_in_parts() {
    let (_target, url) = target(&generated().unwrap(), 3 << 20, batches());
    let alone = alone();
    let run = || {
        let epoch = with("csd", &format!("{url}?digests=on"));
        assert_eq!(epoch.content_digest, alone.content_digest);
        Ok(epoch)
    };
    until_a_device_takes_part(run).unwrap();
}

/// Makes some batches and then none until it is told that it may end.
#[derive(Debug)]
struct Stuck {
    batches: Batches,
    n_begun: AtomicU32,
    may_end: AtomicBool,
}

/// One that tries the recipe, and a batch: a host that is quicker than the device may leave it few.
const BEFORE_STUCK: u32 = 2;

#[derive(Debug)]
struct Lent(Arc<Stuck>);

impl Program for Lent {
    fn id(&self) -> u64 {
        self.0.batches.id()
    }

    fn run(&self, call: &Call<'_>) -> Result<Done, Status> {
        let Stuck { batches, n_begun, may_end } = &*self.0;
        if n_begun.fetch_add(1, Ordering::AcqRel) >= BEFORE_STUCK {
            eventually(PATIENCE, || may_end.load(Ordering::Acquire));
        }
        batches.run(call)
    }
}

impl Stuck {
    /// Whether it has begun a program that does not end.
    fn is_stuck(&self) -> bool {
        self.n_begun.load(Ordering::Acquire) > BEFORE_STUCK
    }
}

/// Takes batches slowly until the device is stuck, so that a busy machine's device is not left behind by a host
/// that makes the epoch alone.
struct Waits(Arc<Stuck>);

impl Observer for Waits {
    fn batch(&mut self, _: Progress) {
        eventually(WHILE_NONE_IS_MADE, || self.0.is_stuck());
    }
}

/// An epoch whose target goes as soon as it is stuck; after the epoch, where it does not come to that.
fn with_a_target_that_goes(strategy: &'static str, repeat: u32) -> EpochResult {
    let stuck = Arc::new(Stuck {
        batches: Batches::new(2),
        n_begun: AtomicU32::new(0),
        may_end: AtomicBool::new(false),
    });
    let data = generated().unwrap();
    let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Lent(Arc::clone(&stuck)))];
    let (target, url) = target(&data, 64 << 20, programs);
    let is_over = Arc::new(AtomicBool::new(false));
    let (watched, over) = (Arc::clone(&stuck), Arc::clone(&is_over));
    let end = thread::spawn(move || {
        eventually(PATIENCE, || watched.is_stuck() || over.load(Ordering::Acquire));
        // The program ends with the device that runs it.
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            watched.may_end.store(true, Ordering::Release);
        });
        drop(target);
        later.join().unwrap();
    });
    let setup = Setup { strategy, devices: vec![url], repeat, ..Setup::new(&data) };
    let result = setup.watched(&mut Waits(stuck));
    is_over.store(true, Ordering::Release);
    end.join().unwrap();
    result.unwrap().epochs.pop().unwrap()
}

#[test]
fn a_target_that_is_gone_costs_its_claims_and_nothing_else() {
    let repeat = 3;
    let alone = Setup { repeat, ..Setup::new(&generated().unwrap()) }.run().unwrap();
    for strategy in ["csd", "ordered"] {
        let run = || {
            let epoch = with_a_target_that_goes(strategy, repeat);
            assert_eq!(epoch.content_digest, alone.content_digest, "{strategy}");
            assert_eq!(epoch.samples, alone.samples);
            Ok(epoch)
        };
        let is_told = |epoch: &EpochResult| {
            let failure = epoch.back[0].failure.as_deref();
            failure.is_some_and(|failure| failure.contains("lost the device"))
        };
        let what = format!("{strategy}: the loss in mid-epoch was told");
        attempts::until(&what, is_told, run).unwrap();
    }
}

/// What is said of a device that cannot be used.
fn refusal(url: &str) -> String {
    let data = generated().unwrap();
    let devices = vec![url.to_owned()];
    let setup = Setup { devices, require_devices: true, ..Setup::new(&data) };
    one_line(&*setup.run().map(|_| ()).unwrap_err())
}

#[test]
fn a_drive_of_this_machine_is_looked_at_before_it_is_used() {
    for (url, expected) in [
        (
            "nvme:///dev/null",
            "device nvme:///dev/null: `/dev/null` is not a device of Linux' NVMe driver; name one of the drive's \
             nodes, /dev/ngXnY (nvme list)",
        ),
        (
            "nvme:///dev/ng999n1?media=image",
            "there is no `/dev/ng999n1`; connect the drive (for a remote one: nvme connect), and see its nodes with \
             nvme list",
        ),
    ] {
        let said = refusal(url);
        assert!(said.ends_with(expected), "{said}");
    }
}

#[test]
fn a_device_that_cannot_be_used_is_named_with_the_remedy() {
    let data = generated().unwrap();
    let (_target, url) = target(&data, 64 << 20, batches());
    let other = url.replace(":test", ":other");
    let said = refusal(&other);
    assert!(
        said.contains("there is no subsystem nqn.2026-11.dev.bothends:other"),
        "{said}"
    );
    assert!(said.contains("nvme-tcp://HOST:PORT/NQN"), "{said}");

    let (_target, url) = target_without(&data);
    let said = refusal(&url);
    assert!(said.contains("does not have the program preprocess_batch_v1"), "{said}");
    assert!(said.contains("load it"), "{said}");

    let (_target, url) = target(&data, 0, batches());
    let said = refusal(&url);
    assert!(said.contains("memory has 0 bytes"), "{said}");
    assert!(said.contains("give it more memory"), "{said}");

    let class = data.join("class-000");
    let (_target, url) = target(&class, 64 << 20, batches());
    let said = refusal(&url);
    assert!(said.contains("the device has another copy of the data"), "{said}");
    let here = format!("{url}?media={}", class.display());
    let said = refusal(&here);
    assert!(said.contains("is not among the files of"), "{said}");
    let said = refusal(&format!("{url}?media=image"));
    assert!(said.contains("media=image is for one"), "{said}");
}

fn target_without(data: &Path) -> (Target, String) {
    target(data, 64 << 20, vec![Arc::new(Checksum)])
}
