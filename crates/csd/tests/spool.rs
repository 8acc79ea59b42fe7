//! What can go wrong in a shared directory: deaths, leftovers, second hosts, full disks.
//! A death is real: the other side is a child process that is killed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_csd::conformance::{self, EchoServe};
use bothends_csd::listen::Ended;
use bothends_csd::spool::{Spool, prepare_directory, remove_directory, serve_directory};
use bothends_csd::{CsdError, Job, JobId, Session, Transport};
use bothends_slots::{
    Completion, Lost, Outcome, Polled, Producer, Rejection, Ring, RingConfig, Slot,
};

/// Names the directory to a child; without it the child's test does nothing.
const CHILD: &str = "BOTHENDS_TEST_SPOOL";
/// The survivor looks for two seconds of its own; how long those take is the machine's affair.
const NOTICED: Duration = Duration::from_secs(60);

#[test]
fn child_device() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let never = AtomicBool::new(false);
    serve_directory(Path::new(&dir), &mut EchoServe::default(), &never).unwrap();
}

#[test]
fn child_host() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let mut transport = open(Path::new(&dir));
    while transport.poll(Duration::from_millis(20)).is_ok() {}
}

#[test]
fn a_killed_device_is_noticed_and_its_leftovers_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut device = child("child_device", dir.path());
    let mut transport = open(dir.path());
    transport.submit(job(1), slot()).unwrap();
    answer(&mut transport);
    kill(&mut device);
    let began = Instant::now();
    let error = loop {
        assert!(began.elapsed() < NOTICED, "a device's death was not noticed");
        if let Err(error) = transport.poll(Duration::from_millis(20)) {
            break error;
        }
    };
    assert!(is_lost(&error), "{error}");
    drop(transport);
    assert_eq!(names(dir.path()), [""; 0]);
}

/// As a service manager would do it. The new device knows nothing of the run.
#[test]
fn a_device_started_in_place_of_a_dead_one_does_not_pass_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut device = child("child_device", dir.path());
    let mut transport = open(dir.path());
    kill(&mut device);
    serving(dir.path(), |dir| {
        let error = transport.poll(NOTICED).unwrap_err();
        assert!(is_lost(&error), "{error}");
        drop(transport);
        drop(open(dir));
    });
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_killed_host_is_noticed_and_its_leftovers_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = child("child_host", dir.path());
    let mut serve = EchoServe::default();
    let control = serve.control();
    thread::scope(|scope| {
        let device = scope.spawn(|| {
            serve_directory(dir.path(), &mut serve, &AtomicBool::new(false)).unwrap()
        });
        wait_for(|| names(dir.path()).iter().any(|name| name.starts_with("run-")));
        kill(&mut host);
        let began = Instant::now();
        assert_eq!(device.join().unwrap(), Ended::HostGone);
        assert!(began.elapsed() < NOTICED, "a host's death was not noticed");
    });
    assert!(control.is_closed());
    assert_eq!(names(dir.path()), [""; 0]);
}

/// The host dies between its notice and its pulse.
#[test]
fn a_host_that_died_before_it_was_met_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    serving_until(dir.path(), Ended::HostGone, |dir| {
        let hello = std::fs::read_to_string(dir.join("hello.json")).unwrap();
        let id = hello.split('"').find(|part| part.len() == 32).unwrap();
        let run = "0123456789abcdef0123456789abcdef";
        let notice =
            format!(r#"{{"protocol_version": 2, "id": "{run}", "device": "{id}"}}"#);
        std::fs::create_dir(dir.join(format!("run-{run}"))).unwrap();
        std::fs::write(dir.join("host.json"), notice).unwrap();
        wait_for(|| names(dir).is_empty());
    });
}

#[test]
fn what_an_earlier_run_left_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let id = "0123456789abcdef0123456789abcdef";
    let notice = format!(r#"{{"protocol_version": 2, "id": "{id}", "device": "{id}"}}"#);
    for (name, text) in [("hello.json", notice.as_str()), ("host.json", &notice)] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    std::fs::write(dir.path().join(format!("device-{id}.pulse")), [0; 8]).unwrap();
    let left = dir.path().join(format!("run-{id}"));
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("host.pulse"), [0; 8]).unwrap();
    // The first host that goes is ours, not the one that left these.
    serving_until(dir.path(), Ended::HostGone, |dir| {
        let transport = open(dir);
        let runs = names(dir).into_iter().filter(|name| name.starts_with("run-"));
        assert_eq!(runs.count(), 1, "runs of others are left");
        drop(transport);
    });
    assert_eq!(names(dir.path()), [""; 0]);
}

/// Its host was killed while it wrote its first sign of life, or while it removed its files.
#[test]
fn a_run_without_a_pulse_is_removed() {
    for file in ["host.new", "h.new", "h-0000000003", "d-0000000000"] {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run-0123456789abcdef0123456789abcdef");
        std::fs::create_dir(&run).unwrap();
        std::fs::write(run.join(file), "half of").unwrap();
        serving_until(dir.path(), Ended::HostGone, |dir| drop(open(dir)));
        assert_eq!(names(dir.path()), [""; 0], "{file}");
    }
}

#[test]
fn what_is_no_run_of_ours_stays() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    prepare_directory(dir.path()).unwrap();
    let (experiment, id) = ("run-2026-best", "run-0123456789abcdef0123456789abcdef");
    for folder in [dir.path().join(experiment), dir.path().join(id)] {
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("weights.pt"), "weights").unwrap();
    }
    std::fs::write(dir.path().join(experiment).join("host.pulse"), [0; 8]).unwrap();
    std::fs::write(elsewhere.path().join("host.pulse"), [0; 8]).unwrap();
    let link = id.replace('0', "f");
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join(&link)).unwrap();
    serving_until(dir.path(), Ended::HostGone, |dir| drop(open(dir)));
    let mut left = names(dir.path());
    left.sort();
    assert_eq!(left, [id, experiment, link.as_str()]);
    assert!(dir.path().join(id).join("weights.pt").exists());
    assert!(elsewhere.path().join("host.pulse").exists());
}

#[test]
fn a_second_host_and_a_second_device_are_told() {
    let dir = tempfile::tempdir().unwrap();
    serving(dir.path(), |dir| {
        let _first = open(dir);
        let error = Spool::connect(dir, NOTICED).unwrap().hello().unwrap_err();
        let what = std::error::Error::source(&error).unwrap().to_string();
        assert!(what.contains("another run uses this directory"), "{error}: {what}");
        let never = AtomicBool::new(false);
        let error = serve_directory(dir, &mut EchoServe::default(), &never).unwrap_err();
        assert!(error.to_string().contains("cannot serve"), "{error}");
    });
}

#[test]
fn what_is_no_hosts_notice_stays_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let notice = dir.path().join("host.json");
    let refused = |dir: &Path| {
        let error = Spool::connect(dir, NOTICED).unwrap().hello().unwrap_err();
        assert!(matches!(error, CsdError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("host.json"), "{error}");
    };
    for theirs in ["", "notes", r#"{"id": "mine"}"#] {
        std::fs::write(&notice, theirs).unwrap();
        serving_until(dir.path(), Ended::Stopped, refused);
        assert_eq!(std::fs::read_to_string(&notice).unwrap(), theirs);
    }
    std::fs::remove_file(&notice).unwrap();
    std::fs::create_dir(&notice).unwrap();
    serving_until(dir.path(), Ended::Stopped, refused);
    assert!(notice.is_dir());
}

#[test]
fn what_is_no_devices_notice_stays_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    prepare_directory(dir.path()).unwrap();
    for name in ["hello.json", "hello.new"] {
        std::fs::write(dir.path().join(name), "notes").unwrap();
    }
    let stop = AtomicBool::new(true);
    let error = serve_directory(dir.path(), &mut EchoServe::default(), &stop);
    let error = error.unwrap_err();
    assert!(matches!(error, CsdError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("hello.json"), "{error}");
    let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!((read("hello.json"), read("hello.new")), ("notes".into(), "notes".into()));
    std::fs::remove_file(dir.path().join("hello.json")).unwrap();
    serving_until(dir.path(), Ended::HostGone, |dir| drop(open(dir)));
    assert_eq!(names(dir.path()), ["hello.new"]);
    assert_eq!(read("hello.new"), "notes");
}

#[test]
fn a_directory_with_something_else_in_it_is_no_spool() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = dir.path().join("run-2026-best");
    std::fs::create_dir(&experiment).unwrap();
    let stop = AtomicBool::new(true);
    let serve = || serve_directory(dir.path(), &mut EchoServe::default(), &stop);
    let error = serve().unwrap_err();
    assert!(matches!(error, CsdError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("run-2026-best"), "{error}");
    assert_eq!(names(dir.path()), ["run-2026-best"]);
    // Nor is one in which something else has the name of the mark.
    std::fs::remove_dir(&experiment).unwrap();
    let mark = dir.path().join(".bothends-spool");
    std::os::unix::fs::symlink("/dev/null", &mark).unwrap();
    let error = serve().unwrap_err();
    assert!(error.to_string().contains(".bothends-spool"), "{error}");
    std::fs::remove_file(&mark).unwrap();
    assert_eq!(serve().unwrap(), Ended::Stopped);
    assert!(mark.is_file());
    // A host touches none that no device has marked.
    std::fs::remove_file(&mark).unwrap();
    serving_until(dir.path(), Ended::Stopped, |dir| {
        std::fs::remove_file(dir.join(".bothends-spool")).unwrap();
        let error = Spool::connect(dir, NOTICED).unwrap().hello().unwrap_err();
        assert!(matches!(error, CsdError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("name one that a device serves"), "{error}");
    });
}

/// Two that start at once do not take each other's place.
#[test]
fn of_devices_that_start_together_one_serves() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serve = || serve_directory(dir.path(), &mut EchoServe::default(), &stop);
        let devices: Vec<_> = (0..8).map(|_| scope.spawn(serve)).collect();
        let is_at_end =
            |n: usize| devices.iter().filter(|d| d.is_finished()).count() >= n;
        wait_for(|| is_at_end(7));
        assert!(!is_at_end(8), "nobody serves");
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_directory_goes_with_what_runs_left_and_stays_with_what_others_did() {
    let dir = tempfile::tempdir().unwrap();
    let id = "0123456789abcdef0123456789abcdef";
    let left_by_a_run = |spool: &Path| {
        let run = spool.join(format!("run-{id}"));
        std::fs::create_dir_all(&run).unwrap();
        for name in ["host.pulse", "d-0000000000"] {
            std::fs::write(run.join(name), [0; 8]).unwrap();
        }
        let notice = format!(r#"{{"protocol_version": 2, "id": "{id}"}}"#);
        std::fs::write(spool.join("host.json"), notice).unwrap();
        std::fs::write(spool.join(format!("host.{id}.new")), "half of").unwrap();
    };
    let spool = dir.path().join("spool");
    left_by_a_run(&spool);
    remove_directory(&spool).unwrap();
    assert!(!spool.exists());
    left_by_a_run(&spool);
    std::fs::write(spool.join("results.csv"), "results").unwrap();
    let error = remove_directory(&spool).unwrap_err();
    assert!(matches!(error, CsdError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("results.csv"), "{error}");
    assert_eq!(names(&spool), ["results.csv"]);
}

#[test]
fn a_directory_without_a_device_says_so_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut transport = Spool::connect(dir.path(), Duration::from_millis(100)).unwrap();
    let error = transport.hello().unwrap_err();
    assert!(matches!(error, CsdError::Unreachable { .. }), "{error}");
    assert_eq!(names(dir.path()), [""; 0]);
    let missing = dir.path().join("missing");
    let never = AtomicBool::new(false);
    let error = serve_directory(&missing, &mut EchoServe::default(), &never).unwrap_err();
    assert!(matches!(error, CsdError::Place { doing: "serve", .. }), "{error}");
}

#[test]
fn a_device_of_another_version_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let notice = r#"{"protocol_version": 7, "id": "0123456789abcdef0123456789abcdef"}"#;
    std::fs::write(dir.path().join("hello.json"), notice).unwrap();
    let error = Spool::connect(dir.path(), NOTICED).unwrap().hello().unwrap_err();
    assert!(matches!(error, CsdError::Version { theirs: 7, .. }), "{error}");
    assert_eq!(names(dir.path()), ["hello.json"]);
}

/// The name that the device writes to is taken by a folder, as a full disk would refuse it.
#[test]
fn a_result_that_cannot_be_written_is_a_failed_job() {
    let dir = tempfile::tempdir().unwrap();
    serving(dir.path(), |dir| {
        let mut transport = open(dir);
        let run = names(dir).into_iter().find(|name| name.starts_with("run-")).unwrap();
        let obstacle = dir.join(run).join("d.new");
        let mut attempts = 1..=10;
        let reason = loop {
            let number = attempts.next().expect("it meets the obstacle some time");
            std::fs::create_dir(&obstacle).unwrap();
            transport.submit(job(number), slot()).unwrap();
            let polled = transport.poll(Duration::from_millis(200)).unwrap();
            assert!(matches!(polled, Polled::Nothing), "{polled:?}");
            std::fs::remove_dir(&obstacle).unwrap();
            // A device that has not had its turn by then makes the result as any other.
            if let Outcome::Failed { reason } = answer(&mut transport).outcome {
                break reason;
            }
        };
        assert!(reason.contains("cannot write the result"), "{reason}");
        transport.submit(job(11), slot()).unwrap();
        let outcome = answer(&mut transport).outcome;
        assert!(matches!(outcome, Outcome::Made { .. }), "{outcome:?}");
    });
}

#[test]
fn a_message_that_cannot_be_written_hands_the_job_back() {
    let dir = tempfile::tempdir().unwrap();
    serving(dir.path(), |dir| {
        let mut transport = open(dir);
        let run = names(dir).into_iter().find(|name| name.starts_with("run-")).unwrap();
        let obstacle = dir.join(run).join("h.new");
        std::fs::create_dir(&obstacle).unwrap();
        let rejected = transport.submit(job(1), slot()).unwrap_err();
        assert_eq!(rejected.job, job(1));
        assert!(matches!(rejected.why, Rejection::Impossible(_)), "{}", rejected.why);
        std::fs::remove_dir(&obstacle).unwrap();
        transport.submit(job(1), slot()).unwrap();
        answer(&mut transport);
    });
}

/// A host that says nothing for a while, as between two epochs, is not dead.
#[test]
fn a_host_that_does_not_poll_is_alive() {
    let dir = tempfile::tempdir().unwrap();
    serving(dir.path(), |dir| {
        let mut transport = open(dir);
        thread::sleep(Duration::from_millis(2200));
        transport.submit(job(1), slot()).unwrap();
        answer(&mut transport);
    });
}

/// Runs `host` while devices serve `dir`, one after the other.
fn serving(dir: &Path, host: impl FnOnce(&Path)) {
    serving_until(dir, Ended::Stopped, host);
}

/// Runs `host` while devices serve `dir`, one after the other, until one ends like this.
fn serving_until(dir: &Path, last: Ended, host: impl FnOnce(&Path)) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let device = scope.spawn(|| {
            let serve =
                || serve_directory(dir, &mut EchoServe::default(), &stop).unwrap();
            let mut ended = serve();
            while ended != last && !stop.load(Ordering::Relaxed) {
                ended = serve();
            }
        });
        wait_for(|| dir.join("hello.json").exists());
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host(dir)));
        stop.store(true, Ordering::Relaxed);
        device.join().unwrap();
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

/// This test program again, running one of its tests.
fn child(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact"])
        .env(CHILD, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn open(dir: &Path) -> Spool {
    let mut transport = Spool::connect(dir, Duration::from_secs(60)).unwrap();
    transport.hello().unwrap();
    let session = Session { max_batch: 4, ..conformance::session(1000) };
    transport.open(&session).unwrap();
    transport
}

fn job(id: u64) -> Job {
    let samples = vec![SampleId(id), SampleId(7)];
    Job { id: JobId(id), epoch: EpochIdx(0), batch: BatchIdx(0), samples, need_ns: 0 }
}

fn slot() -> Slot {
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 4000 }).unwrap();
    ring.take(Duration::ZERO).unwrap()
}

fn answer(transport: &mut Spool) -> Completion {
    match transport.poll(NOTICED).unwrap() {
        Polled::Completion(completion) => completion,
        polled @ (Polled::Extra | Polled::Nothing) => panic!("{polled:?}"),
    }
}

fn is_lost(lost: &Lost) -> bool {
    matches!(lost.0.downcast_ref(), Some(CsdError::LinkLost { .. }))
}

/// The mark of a spool left out.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".bothends-spool").collect()
}

fn wait_for(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited too long");
        thread::sleep(Duration::from_millis(2));
    }
}
