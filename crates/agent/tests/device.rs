//! The agent's server against the device's conformance checks. Those of the program are in
//! `tests/tests/agent.rs`, with the other programs'.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bothends_agent::conformance::{self, Exercise, done};
use bothends_agent::{
    Cost, Costs, FileStore, Hold, Identity, Memory, NoCosts, Server, ServerConfig, Store,
    StoreError, ThreadClock, Wanted, Work,
};
use bothends_csd::Transport as _;
use bothends_csd::loopback::Loopback;
use bothends_csd::{CsdError, Declined, EnergyReading, Serve, Session};
use bothends_dataset::Table;
use bothends_dataset::side_index::{HEADER_BYTES, is_segment};
use bothends_side_index::Cache;
use bothends_slots::HostSlot;

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn exercise() -> (tempfile::TempDir, Exercise) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let exercise = Exercise::prepare(&data).unwrap();
    (dir, exercise)
}

/// A slot for one job of it.
fn slot(exercise: &Exercise) -> HostSlot {
    conformance::slot(exercise).host().unwrap()
}

fn server(root: &Path, n_workers: u32, n_slots: u32) -> Server<NoCosts> {
    let config =
        ServerConfig { name: "test".into(), emulated: false, n_workers, n_slots };
    Server::start(config, FileStore::new(root).unwrap(), NoCosts).unwrap()
}

#[test]
fn the_server_conforms_in_process_with_any_number_of_workers() {
    for n_workers in [1, 2, 5] {
        let (_dir, exercise) = exercise();
        let server = server(exercise.root(), n_workers, 2);
        conformance::all(&mut Loopback::new(Box::new(server)), &exercise);
    }
}

/// Each looked how many there were before any had come in.
#[test]
fn hosts_that_come_at_the_same_moment_are_no_more_than_are_served() {
    let (_dir, exercise) = exercise();
    let server = server(exercise.root(), 1, 2).with_sessions(1);
    let n_hosts = 4;
    let come = Barrier::new(n_hosts);
    for _ in 0..200 {
        let guests: Vec<_> = std::thread::scope(|scope| {
            let host = || {
                come.wait();
                server.guest()
            };
            let hosts: Vec<_> = (0..n_hosts).map(|_| scope.spawn(host)).collect();
            hosts.into_iter().filter_map(|it| it.join().unwrap().ok()).collect()
        });
        assert_eq!(guests.len(), 1);
    }
}

/// What a session is refused for, in words that name both sides and the remedy.
#[test]
fn a_refusal_says_what_differs_and_what_to_do() {
    let (_dir, exercise) = exercise();
    let mut server = server(exercise.root(), 1, 2);
    let mut reason = |session: Session| match server.open(session) {
        Err(Declined::Refused(reason)) => reason,
        other => panic!("the session was not refused: {other:?}"),
    };
    let session = exercise.session();
    let theirs = session.recipe_hash ^ 1;
    let said = reason(Session { recipe_hash: theirs, ..session.clone() });
    for hash in [theirs, session.recipe_hash] {
        assert!(said.contains(&format!("{hash:032x}")), "{said}");
    }
    for (session, expected) in [
        (
            Session { sample_bytes: 7, ..session.clone() },
            "a sample has 7 bytes on the host and 150528",
        ),
        (
            Session { manifest: vec![1, 2, 3], ..session.clone() },
            "cannot read the manifest",
        ),
        (Session { recipe: "{}".into(), ..session.clone() }, "cannot read the recipe"),
    ] {
        let said = reason(session);
        assert!(said.contains(expected), "{said}");
    }
    exercise.starve().unwrap();
    let said = reason(session);
    assert!(said.contains("a/progressive.jpg") && said.contains("at its data root?"));
}

/// The device makes samples from its own files and from nothing else.
#[test]
fn a_job_whose_files_are_gone_fails_and_names_one() {
    let (_dir, exercise) = exercise();
    let mut server = server(exercise.root(), 1, 2);
    server.open(exercise.session()).unwrap();
    server.submit(exercise.job(40, &[0, 1]), slot(&exercise)).unwrap();
    assert!(server.poll(PATIENCE).unwrap().result.is_ok());
    exercise.starve().unwrap();
    server.submit(exercise.job(41, &[2, 4]), slot(&exercise)).unwrap();
    let reason = server.poll(PATIENCE).unwrap().result.unwrap_err();
    assert!(reason.contains("b/small.jpg"), "{reason}");
}

#[test]
fn jobs_finish_in_order_and_a_full_server_hands_the_job_back() {
    let (_dir, exercise) = exercise();
    let mut server = server(exercise.root(), 2, 3);
    let early = server.submit(exercise.job(0, &[0]), slot(&exercise)).unwrap_err();
    assert!(matches!(early.source, CsdError::SessionRefused { .. }));
    server.open(exercise.session()).unwrap();
    for number in 0..3 {
        server.submit(exercise.job(number, &[0, 1, 2]), slot(&exercise)).unwrap();
    }
    let refused = server.submit(exercise.job(3, &[0]), slot(&exercise)).unwrap_err();
    assert!(matches!(refused.source, CsdError::Full));
    assert_eq!(refused.job, exercise.job(3, &[0]));
    for number in 0..3 {
        let finished = server.poll(PATIENCE).unwrap();
        assert_eq!(finished.job, exercise.job(number, &[]).id);
        assert_eq!(finished.lateness_ns, 0, "nothing is modelled");
    }
    // A host that does not keep to its session hurts itself alone.
    server.submit(exercise.job(3, &[0; 13]), slot(&exercise)).unwrap();
    let reason = server.poll(PATIENCE).unwrap().result.unwrap_err();
    assert_eq!(reason, "job 3 has 13 samples, but the session was opened for at most 12");
    server.submit(exercise.job(4, &[0]), slot(&exercise)).unwrap();
    assert!(server.poll(PATIENCE).unwrap().result.is_ok());
}

#[test]
fn no_more_batches_are_here_than_the_memory_holds() {
    let (_dir, exercise) = exercise();
    let session = exercise.session();
    let batch = u64::from(session.max_batch) * u64::from(session.sample_bytes);
    let server = server(exercise.root(), 1, 4);
    // With what the session notes of each file.
    let n_files = Table::decode(&session.manifest).unwrap().n_files();
    let list = (session.manifest.len() + 8 * n_files) as u64;
    let mut server = server.with_memory(Memory::Bytes(2 * batch + list));
    assert_eq!(server.hello().slots, 4, "nobody knows yet how large batches are");
    server.open(session.clone()).unwrap();
    assert_eq!(server.hello().slots, 2);
    for number in 0..2 {
        server.submit(exercise.job(number, &[0]), slot(&exercise)).unwrap();
    }
    let refused = server.submit(exercise.job(2, &[0]), slot(&exercise)).unwrap_err();
    assert!(matches!(refused.source, CsdError::Full));
    assert!(server.poll(PATIENCE).unwrap().result.is_ok());
    server.submit(exercise.job(2, &[0]), slot(&exercise)).unwrap();
    let larger = Session { max_batch: 2 * session.max_batch + 1, ..session };
    let declined = server.open(larger).unwrap_err();
    let Declined::Refused(reason) = declined else { panic!("{declined:?}") };
    assert!(reason.ends_with("or give the device more with --memory"), "{reason}");
    assert_eq!(server.hello().slots, 4);
}

#[test]
fn a_closed_server_forgets_its_jobs_and_takes_another_session() {
    let (_dir, exercise) = exercise();
    let mut server = server(exercise.root(), 1, 8);
    server.open(exercise.session()).unwrap();
    for number in 0..8 {
        server.submit(exercise.job(number, &[0; 12]), slot(&exercise)).unwrap();
    }
    let revoked = exercise.job(7, &[]).id;
    server.revoke(revoked);
    let answer =
        std::iter::from_fn(|| server.poll(PATIENCE)).find(|it| it.job == revoked);
    assert_eq!(answer.unwrap().result.unwrap_err(), "revoked before it was begun");
    server.submit(exercise.job(9, &[0]), slot(&exercise)).unwrap();
    server.close();
    assert_eq!(server.stats().queued, 0);
    assert!(server.poll(Duration::from_millis(20)).is_none());
    let mut device = Loopback::new(Box::new(server));
    conformance::all(&mut device, &exercise);
}

/// Does all of the exercise's samples on a device that keeps what it learns in `cache`, holds
/// them against `ops` alone, and returns the segments that are there afterwards.
fn segments_after_an_epoch(exercise: &Exercise, cache: &Path) -> Vec<PathBuf> {
    let config =
        ServerConfig { name: "test".into(), emulated: false, n_workers: 2, n_slots: 2 };
    let cache = Cache { root: cache.to_owned(), limit_bytes: 1 << 20 };
    let store = FileStore::new(exercise.root()).unwrap().with_cache(cache.clone());
    let server = Server::start(config, store, NoCosts).unwrap();
    let mut device = Loopback::new(Box::new(server));
    device.hello().unwrap();
    device.open(&exercise.session()).unwrap();
    done(&mut device, exercise, exercise.job(0, &[0, 1, 2, 3, 4]));
    drop(device);
    let mut segments = Vec::new();
    for folder in std::fs::read_dir(&cache.root).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if is_segment(name) {
                segments.push(path);
            }
        }
    }
    segments.sort();
    segments
}

#[test]
fn what_decoding_taught_outlives_the_device_and_is_not_learnt_twice() {
    let (dir, exercise) = exercise();
    let cache = dir.path().join("cache");
    let made = segments_after_an_epoch(&exercise, &cache);
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(segments_after_an_epoch(&exercise, &cache), made);
    // A note is damaged, and its line says so: its image is decoded whole, and indexed again.
    let mut bytes = std::fs::read(&made[0]).unwrap();
    bytes[HEADER_BYTES + 8] ^= 1;
    std::fs::write(&made[0], bytes).unwrap();
    assert_eq!(segments_after_an_epoch(&exercise, &cache).len(), 2);
    // A file that was only touched is looked at again: nobody knows what was done to it.
    let seen = segments_after_an_epoch(&exercise, &cache).len();
    let grey = exercise.root().join("a/grey.jpg");
    let file = std::fs::File::options().write(true).open(grey).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(segments_after_an_epoch(&exercise, &cache).len(), seen + 1);
}

#[test]
fn an_epoch_that_begins_makes_known_what_the_last_one_taught() {
    let (dir, exercise) = exercise();
    let root = dir.path().join("cache");
    let cache = Cache { root: root.clone(), limit_bytes: 1 << 20 };
    let store = FileStore::new(exercise.root()).unwrap().with_cache(cache);
    let config =
        ServerConfig { name: "test".into(), emulated: false, n_workers: 1, n_slots: 2 };
    let server = Server::start(config, store, NoCosts).unwrap();
    let mut device = Loopback::new(Box::new(server));
    device.hello().unwrap();
    device.open(&exercise.session()).unwrap();
    let n_segments = || {
        let own = std::fs::read_dir(&root).unwrap().next().unwrap().unwrap().path();
        let names = std::fs::read_dir(own).unwrap().map(|entry| entry.unwrap());
        names.filter(|e| is_segment(e.file_name().to_str().unwrap())).count()
    };
    // The number of a job is its epoch, too.
    done(&mut device, &exercise, exercise.job(0, &[0, 1, 2]));
    assert_eq!(n_segments(), 0);
    done(&mut device, &exercise, exercise.job(1, &[0, 1, 2]));
    assert_eq!(n_segments(), 1);
    done(&mut device, &exercise, exercise.job(2, &[0, 1, 2]));
    drop(device);
    assert_eq!(n_segments(), 1, "the second epoch knew it all");
}

/// Once an image is known, those rows of it are read that its sample needs.
#[test]
fn what_is_read_counts_and_not_what_records_have() {
    let (dir, exercise) = exercise();
    let cache = Cache { root: dir.path().join("cache"), limit_bytes: 1 << 20 };
    let store = FileStore::new(exercise.root()).unwrap().with_cache(cache);
    let config =
        ServerConfig { name: "test".into(), emulated: false, n_workers: 1, n_slots: 2 };
    let mut server = Server::start(config, store, NoCosts).unwrap();
    server.open(exercise.session()).unwrap();
    let mut read = |epoch| {
        let before = server.stats().media_read_bytes;
        let job = exercise.job(epoch, &[0, 1, 2, 3, 4]);
        server.submit(job, slot(&exercise)).unwrap();
        assert!(server.poll(PATIENCE).unwrap().result.is_ok());
        server.stats().media_read_bytes - before
    };
    let whole = read(0);
    let rows: Vec<_> = (1..6).map(read).collect();
    assert!(rows.iter().all(|bytes| *bytes <= whole), "{rows:?} of {whole}");
    assert!(rows.iter().any(|bytes| *bytes < whole), "{rows:?} of {whole}");
}

/// A model of a device on which every job takes this long.
#[derive(Debug)]
struct Takes(Duration);

impl Costs for Takes {
    fn thread_clock(&self) -> ThreadClock {
        || 0
    }

    fn job(&mut self, work: &Work<'_>) -> Cost {
        let took_ns = u64::try_from(self.0.as_nanos()).unwrap();
        let (start_ns, end_ns) = (work.arrival_ns, work.arrival_ns + took_ns);
        Cost { start_ns, end_ns, hold: Hold::UntilEnd }
    }

    fn energy(&mut self, _now_ns: u64) -> Vec<EnergyReading> {
        Vec::new()
    }
}

/// Else a measurement that waits for an idle device would leave it its last jobs.
#[test]
fn a_job_is_at_work_until_its_modelled_end() {
    let (_dir, exercise) = exercise();
    let config =
        ServerConfig { name: "test".into(), emulated: true, n_workers: 1, n_slots: 2 };
    let store = FileStore::new(exercise.root()).unwrap();
    let took = Duration::from_secs(2);
    let mut server = Server::start(config, store, Takes(took)).unwrap();
    server.open(exercise.session()).unwrap();
    let began = Instant::now();
    server.submit(exercise.job(1, &[0]), slot(&exercise)).unwrap();
    assert!(server.poll(took / 4).is_none());
    let queued = server.stats().queued;
    assert!(queued == 1 || began.elapsed() >= took, "{queued}");
    assert!(server.poll(PATIENCE).unwrap().result.is_ok());
    assert_eq!(server.stats().queued, 0);
}

/// A store that breaks the first thread that reads from it.
#[derive(Debug)]
struct Breaking {
    files: FileStore,
    is_broken: AtomicBool,
}

impl Store for Breaking {
    fn read(
        &self,
        wanted: Wanted<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<Identity, StoreError> {
        assert!(self.is_broken.swap(true, Ordering::Relaxed), "broken on purpose");
        self.files.read(wanted, dst)
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.files.probe(path)
    }
}

#[test]
fn a_worker_that_breaks_costs_its_job_and_no_other() {
    let (_dir, exercise) = exercise();
    let files = FileStore::new(exercise.root()).unwrap();
    let store = Breaking { files, is_broken: AtomicBool::new(false) };
    let config =
        ServerConfig { name: "test".into(), emulated: false, n_workers: 2, n_slots: 2 };
    let mut server = Server::start(config, store, NoCosts).unwrap();
    server.open(exercise.session()).unwrap();
    server.submit(exercise.job(0, &[0, 1, 2]), slot(&exercise)).unwrap();
    server.submit(exercise.job(1, &[0, 1, 2]), slot(&exercise)).unwrap();
    let reason = server.poll(PATIENCE).unwrap().result.unwrap_err();
    assert!(reason.starts_with("a worker panicked"), "{reason}");
    assert!(server.poll(PATIENCE).unwrap().result.is_ok());
}

/// A store whose machine fails to read one file of the data set, once.
#[derive(Debug)]
struct Failing {
    files: FileStore,
    n_before: AtomicU32,
}

impl Store for Failing {
    fn read(
        &self,
        wanted: Wanted<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<Identity, StoreError> {
        if self.n_before.fetch_sub(1, Ordering::Relaxed) == 0 {
            // EMFILE: too many open files.
            let source = std::io::Error::from_raw_os_error(24);
            return Err(StoreError { path: wanted.path.into(), source });
        }
        self.files.read(wanted, dst)
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.files.probe(path)
    }
}

#[test]
fn a_machine_that_fails_makes_a_job_fail_and_no_sample_bad() {
    let (_dir, exercise) = exercise();
    let files = FileStore::new(exercise.root()).unwrap();
    let store = Failing { files, n_before: AtomicU32::new(1) };
    let config =
        ServerConfig { name: "test".into(), emulated: false, n_workers: 2, n_slots: 2 };
    let mut server = Server::start(config, store, NoCosts).unwrap();
    server.open(exercise.session()).unwrap();
    server.submit(exercise.job(0, &[0, 1, 2]), slot(&exercise)).unwrap();
    server.submit(exercise.job(1, &[0, 1, 2]), slot(&exercise)).unwrap();
    let reason = server.poll(PATIENCE).unwrap().result.err().unwrap_or_default();
    assert!(reason.contains("Too many open files"), "{reason}");
    assert!(server.poll(PATIENCE).unwrap().result.unwrap().bad.is_empty());
}

/// A running agent served the old file forever, or a mixture of both.
#[test]
fn a_replaced_file_fails_its_jobs_until_the_next_session_which_gets_the_new_one() {
    let (dir, exercise) = exercise();
    let mut device = Loopback::new(Box::new(server(exercise.root(), 2, 2)));
    device.hello().unwrap();
    device.open(&exercise.session()).unwrap();
    done(&mut device, &exercise, exercise.job(0, &[0, 1, 2]));
    // Another image in a file of the same name, length and time.
    let grey = exercise.root().join("a/grey.jpg");
    let (bytes, age) =
        (std::fs::read(&grey).unwrap(), std::fs::metadata(&grey).unwrap().modified());
    let mut other = bytes.clone();
    let table = other.windows(2).position(|w| w == [0xff, 0xdb]).unwrap();
    other[table + 5..table + 20].iter_mut().for_each(|step| *step = (*step).max(40) - 7);
    let replace = |bytes: &[u8]| {
        let beside = dir.path().join("beside");
        std::fs::write(&beside, bytes).unwrap();
        let file = std::fs::File::options().write(true).open(&beside).unwrap();
        file.set_modified(*age.as_ref().unwrap()).unwrap();
        std::fs::rename(&beside, &grey).unwrap();
    };
    replace(&other);
    let why = conformance::failure(&mut device, &exercise, exercise.job(1, &[0, 1, 2]));
    assert!(why.contains("a/grey.jpg was replaced or changed on the device"), "{why}");
    // Jobs that do without it are made.
    done(&mut device, &exercise, exercise.job(2, &[0, 2]));
    device.open(&exercise.session()).unwrap();
    let (made, _) = done(&mut device, &exercise, exercise.job(0, &[1]));
    assert_ne!(made, exercise.expected(&exercise.job(0, &[1])).0, "the old one");
    replace(&bytes);
    device.open(&exercise.session()).unwrap();
    done(&mut device, &exercise, exercise.job(0, &[0, 1, 2]));
}
