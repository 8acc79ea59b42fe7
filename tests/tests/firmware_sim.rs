//! The emulated device as a process of its own: same bytes, honest, faulty when asked, on
//! time, and gone when its host is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bothends_agent::conformance::{self, Exercise, answer, done, slot};
use bothends_core::ids::EpochIdx;
use bothends_csd::{ConnectOptions, CsdError, Transport, connect};
use bothends_slots::{Job, Outcome, Polled};
use bothends_tests::programs::program;

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// After this nothing of a device whose host is gone may be left.
const FAREWELL: Duration = Duration::from_secs(60);

/// A data set and a place for the device's address.
struct Site {
    dir: tempfile::TempDir,
    exercise: Exercise,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let exercise = Exercise::prepare(&data).unwrap();
        Self { dir, exercise }
    }

    fn door(&self) -> PathBuf {
        self.dir.path().join("door")
    }

    fn url(&self, scheme: &str) -> String {
        match scheme {
            "tcp" => "tcp://127.0.0.1:0".to_owned(),
            _ => format!("{scheme}://{}", self.door().display()),
        }
    }

    /// Starts the program; standard error goes to the test's.
    fn start(&self, scheme: &str, more: &[&str]) -> Sim {
        let mut command = command(&self.url(scheme), self.exercise.root());
        let mut child = command.args(more).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ");
        let url = url.unwrap_or_else(|| panic!("it said `{line}`")).to_owned();
        Sim { child, url }
    }
}

/// The program, killed if a test ends without it.
struct Sim {
    child: Child,
    url: String,
}

impl Sim {
    fn connect(&self) -> Box<dyn Transport> {
        connect(&self.url.parse().unwrap(), &ConnectOptions::default()).unwrap()
    }

    fn open(&self, exercise: &Exercise) -> Box<dyn Transport> {
        let begun = Instant::now();
        loop {
            let mut device = self.connect();
            match device.hello() {
                // It has not noticed yet that the one before has gone.
                Err(CsdError::Busy { .. }) if begun.elapsed() < PATIENCE => continue,
                greeted => drop(greeted.unwrap()),
            }
            device.open(&exercise.session()).unwrap();
            return device;
        }
    }

    fn end(&mut self, patience: Duration) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < patience, "it did not end within {patience:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(listen: &str, media: &Path) -> Command {
    let mut command = Command::new(program("firmware-sim").unwrap());
    command.args(["--listen", listen, "--media", media.to_str().unwrap()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit status and standard error of a program that shall not start.
fn refusal(media: &Path, more: &[&str]) -> (Option<i32>, String) {
    let output = command("tcp://127.0.0.1:0", media).args(more).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Its models need the order of all jobs.
#[test]
fn an_emulated_device_serves_one_host_and_is_busy_for_another() {
    let site = Site::new();
    let sim = site.start("unix", &["--preset", "ideal", "--time", "functional"]);
    let first = sim.open(&site.exercise);
    let busy = sim.connect().hello().unwrap_err();
    assert!(matches!(busy, CsdError::Busy { .. }), "{busy}");
    assert!(busy.to_string().contains("one at a time"), "{busy}");
    drop(first);
    drop(sim.open(&site.exercise));
}

#[test]
fn it_conforms_over_every_wire_in_both_time_modes_and_leaves_nothing() {
    for (scheme, time, preset) in [
        ("unix", "functional", "newport"),
        ("unix", "paced", "ideal"),
        ("spool", "paced", "dpu-bf2"),
        ("spool", "functional", "ideal"),
        ("tcp", "paced", "smartssd"),
    ] {
        let site = Site::new();
        let mut sim = site.start(scheme, &["--preset", preset, "--time", time, "--once"]);
        let mut device = sim.connect();
        conformance::all(&mut *device, &site.exercise);
        drop(device);
        assert!(sim.end(PATIENCE).success(), "{scheme} {time} {preset}");
        assert!(!site.door().exists(), "{scheme} left its door");
    }
}

#[test]
fn it_says_that_it_is_emulated_and_what_is_modelled() {
    let site = Site::new();
    let sim = site.start("unix", &["--preset", "newport", "--once"]);
    let mut device = sim.connect();
    let capabilities = device.hello().unwrap();
    assert!(capabilities.emulated);
    assert_eq!(capabilities.name, "newport");
    device.open(&site.exercise.session()).unwrap();
    done(&mut *device, &site.exercise, site.exercise.job(0, &[0, 1, 2]));
    let stats = device.stats().unwrap();
    assert!(stats.energy.iter().all(|reading| reading.source.starts_with("modelled(")));
    let domain = |name| stats.energy.iter().find(|e| e.domain == name).unwrap().energy_uj;
    assert!(domain("compute") > 0 && domain("media") > 0 && domain("idle") > 0);
    let parts = ["idle", "media", "compute", "link"].map(domain).iter().sum::<u64>();
    assert!(domain("device").abs_diff(parts) <= 4, "parts are rounded down on their own");
}

#[test]
fn a_given_rate_is_the_devices_rate_on_its_own_clock() {
    let site = Site::new();
    let sim = site.start("unix", &["--preset", "newport", "--rate", "100", "--once"]);
    let mut device = sim.open(&site.exercise);
    let begun = Instant::now();
    for number in 0..4 {
        device
            .submit(site.exercise.job(number, &[0, 1, 2, 4, 0]), slot(&site.exercise))
            .unwrap();
    }
    for _ in 0..4 {
        answer(&mut *device);
    }
    // Four times 5 samples at 100 per second. They were submitted together, so they follow
    // one another, and none is answered early.
    assert!(begun.elapsed() >= Duration::from_millis(200));
    let stats = device.stats().unwrap();
    assert!((stats.busy_seconds - 0.2).abs() < 1e-6, "{stats:?}");
}

#[test]
fn an_emulator_that_cannot_keep_up_says_so() {
    let site = Site::new();
    // No machine makes a sample in a microsecond.
    let sim = site.start("unix", &["--preset", "newport", "--rate", "1e6", "--once"]);
    let mut device = sim.open(&site.exercise);
    device.submit(site.exercise.job(0, &[0; 12]), slot(&site.exercise)).unwrap();
    answer(&mut *device);
    let stats = device.stats().unwrap();
    assert_eq!(stats.late_completions, 1);
    assert!(stats.max_lateness_seconds > 0.0);
}

#[test]
fn it_ends_with_its_host_within_two_seconds_and_leaves_nothing() {
    for scheme in ["unix", "tcp", "spool"] {
        let site = Site::new();
        let args = ["--preset", "newport", "--rate", "0.1", "--once"];
        let mut sim = site.start(scheme, &args);
        let mut device = sim.open(&site.exercise);
        // It has work for minutes when its host goes.
        device.submit(site.exercise.job(0, &[0; 12]), slot(&site.exercise)).unwrap();
        drop(device);
        assert!(sim.end(FAREWELL).success(), "{scheme}");
        assert!(!site.door().exists(), "{scheme} left its door");
    }
}

#[test]
fn it_ends_when_its_standard_input_ends() {
    for scheme in ["unix", "spool"] {
        let site = Site::new();
        let mut sim = site.start(scheme, &["--preset", "newport", "--die-with-stdin"]);
        let device = sim.open(&site.exercise);
        drop(sim.child.stdin.take());
        assert!(sim.end(FAREWELL).success(), "{scheme}");
        assert!(!site.door().exists(), "{scheme} left its door");
        drop(device);
    }
}

#[test]
fn it_ends_on_a_signal() {
    let site = Site::new();
    let mut sim = site.start("unix", &["--preset", "newport"]);
    let _device = sim.open(&site.exercise);
    let id = sim.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(sim.end(FAREWELL).success());
    assert!(!site.door().exists());
}

#[test]
fn a_device_that_dies_is_a_lost_link() {
    let site = Site::new();
    let args = ["--preset", "ideal", "--fault", "die@50%", "--fault-batches", "4"];
    let mut sim = site.start("unix", &args);
    let mut device = sim.open(&site.exercise);
    // A fault counts the jobs of one epoch.
    let of_one_epoch =
        |number| Job { epoch: EpochIdx(0), ..site.exercise.job(number, &[0]) };
    done(&mut *device, &site.exercise, of_one_epoch(0));
    done(&mut *device, &site.exercise, of_one_epoch(1));
    device.submit(of_one_epoch(2), slot(&site.exercise)).unwrap();
    let lost = loop {
        match device.poll(PATIENCE) {
            Ok(Polled::Nothing) => {}
            Ok(polled) => panic!("a dead device answered {polled:?}"),
            Err(error) => break error,
        }
    };
    let error = lost.0.downcast_ref::<CsdError>();
    assert!(matches!(error, Some(CsdError::LinkLost { .. })), "{lost:?}");
    assert_eq!(sim.end(PATIENCE).code(), Some(137));
}

#[test]
fn without_a_count_a_part_is_one_of_half_the_data_set() {
    let site = Site::new();
    // 5 samples in batches of up to 12 are one batch; any part of half of it begins with the first.
    let mut sim = site.start("unix", &["--preset", "ideal", "--fault", "die@50%"]);
    let mut device = sim.open(&site.exercise);
    device.submit(site.exercise.job(0, &[0]), slot(&site.exercise)).unwrap();
    assert_eq!(sim.end(PATIENCE).code(), Some(137));
}

#[test]
fn a_refusing_device_says_so() {
    let site = Site::new();
    let sim = site.start("unix", &["--preset", "ideal", "--fault", "refuse", "--once"]);
    let mut device = sim.open(&site.exercise);
    device.submit(site.exercise.job(0, &[0]), slot(&site.exercise)).unwrap();
    let completion = answer(&mut *device);
    let reason = "this device has the fault `refuse`".to_owned();
    assert_eq!(completion.outcome, Outcome::Failed { reason });
}

#[test]
fn a_corrupt_answer_differs_from_its_checksum_in_one_byte() {
    let site = Site::new();
    let sim = site.start("unix", &["--preset", "ideal", "--fault", "corrupt@100%"]);
    let mut device = sim.open(&site.exercise);
    let job = site.exercise.job(0, &[0, 1]);
    let (expected, _) = site.exercise.expected(&job);
    device.submit(job.clone(), slot(&site.exercise)).unwrap();
    let completion = answer(&mut *device);
    let Outcome::Failed { reason } = completion.outcome else { panic!("it passed") };
    assert!(reason.contains("do not match their checksum"), "{reason}");
    let bytes = completion.slot.host().unwrap()[..expected.len()].to_vec();
    let n_wrong = bytes.iter().zip(&expected).filter(|(got, want)| got != want).count();
    assert_eq!(n_wrong, 1);
}

#[test]
fn wrong_arguments_are_named_and_end_with_2() {
    let site = Site::new();
    let media = site.exercise.root();
    for (more, expected) in [
        (vec!["--preset", "newprot"], "the presets are newport, smartssd, dpu-bf2"),
        (vec!["--preset", "newport", "--fault", "explode@5%"], "the faults are die@P%"),
        (vec!["--preset", "newport", "--rate", "0"], "at least 0.001"),
        (vec!["--preset", "newport", "--time", "virtual"], "functional"),
        (vec!["--preset", "newport", "--slots", "0"], "1..=1024"),
        (vec![], "--preset"),
    ] {
        let (status, words) = refusal(media, &more);
        assert_eq!(status, Some(2), "{words}");
        assert!(words.starts_with("error: ") && words.contains(expected), "{words}");
    }
}

#[test]
fn what_is_not_there_is_one_line_and_ends_with_1() {
    let site = Site::new();
    let missing = site.dir.path().join("missing");
    let (status, words) = refusal(&missing, &["--preset", "newport"]);
    assert_eq!(status, Some(1));
    assert!(words.contains("missing on the device: No such file"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
    let args = ["--preset", "newport", "--pin", "900"];
    let (status, words) = refusal(site.exercise.root(), &args);
    assert_eq!(status, Some(1));
    assert!(words.contains("cannot compute on CPU 900"), "{words}");
}

#[test]
fn a_preset_file_is_read_and_its_mistakes_are_named() {
    let site = Site::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/devices");
    let json = std::fs::read_to_string(format!("{folder}/ideal.json")).unwrap();
    let path = site.dir.path().join("mine.json");
    let preset = ["--preset", path.to_str().unwrap()];
    std::fs::write(&path, json.replace("\"ideal\"", "\"mine\"")).unwrap();
    let sim = site.start("unix", &preset);
    assert_eq!(sim.connect().hello().unwrap().name, "mine");
    std::fs::write(&path, json.replace("\"instant\"", "\"slow\"")).unwrap();
    let (status, words) = refusal(site.exercise.root(), &preset);
    assert_eq!(status, Some(1));
    assert!(words.contains("mine.json: unknown variant `slow`"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}

#[test]
fn it_prints_one_line_and_no_more() {
    let site = Site::new();
    let mut child = command(&site.url("unix"), site.exercise.root())
        .args(["--preset", "ideal", "--die-with-stdin"])
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(line, format!("listening on {}\n", site.url("unix")));
    assert_eq!(rest, "");
}
