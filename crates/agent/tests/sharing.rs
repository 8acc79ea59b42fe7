//! Equal work of several sessions is done once, for whom it may be shared, and whatever becomes of who does
//! it. Who gets how much of the workers is tested in `work/shares.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bothends_agent::conformance::{self, Exercise};
use bothends_agent::{
    FileStore, Guest, Identity, Memory, NoCosts, ResultMemory, Server, ServerConfig,
    Sharing, Store, StoreError, Wanted,
};
use bothends_csd::admission::Credential;
use bothends_csd::{Finished, Job, JobTerms, Serve, Session};
use bothends_dataset::Table;
use bothends_slots::HostSlot;

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Samples that an exercise can make, every one once.
const SAMPLES: [u64; 4] = [0, 1, 2, 4];

fn exercise() -> (tempfile::TempDir, Exercise) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let exercise = Exercise::prepare(&data).unwrap();
    (dir, exercise)
}

fn credential(of: &str) -> Option<Credential> {
    Some(Credential::of("user", of.as_bytes()))
}

fn slot(exercise: &Exercise) -> HostSlot {
    conformance::slot(exercise).host().unwrap()
}

/// A device with two workers that keeps results.
fn server(store: impl Store + 'static) -> Server<NoCosts> {
    let (name, emulated) = ("test".into(), false);
    let config = ServerConfig { name, emulated, n_workers: 2, n_slots: 4 };
    let server = Server::start(config, store, NoCosts).unwrap();
    server.with_results(ResultMemory::Bytes(64 << 20), Sharing::Credential)
}

/// A host of this user, with a session.
fn host(server: &Server<NoCosts>, of: &str, session: Session) -> Guest<NoCosts> {
    let mut guest = server.guest_with(credential(of)).unwrap();
    guest.open(session).unwrap();
    guest
}

/// The same, and it has had a job, if an empty one: others keep for it what it may want.
fn asking_host(
    server: &Server<NoCosts>,
    of: &str,
    exercise: &Exercise,
) -> Guest<NoCosts> {
    let mut guest = host(server, of, exercise.session());
    ask(&mut guest, exercise);
    guest
}

fn ask(guest: &mut Guest<NoCosts>, exercise: &Exercise) {
    guest.submit(exercise.job(30, &[]), slot(exercise)).unwrap();
    guest.poll(PATIENCE).unwrap().result.unwrap();
}

/// Checks a finished job against what it should be.
fn check(exercise: &Exercise, job: &Job, finished: &Finished) {
    let (expected, bad) = exercise.expected(job);
    let product = finished.result.as_ref().unwrap();
    assert_eq!(product.bad, bad);
    assert!(finished.slot[..product.len] == expected);
    assert_eq!(product.checksum, twox_hash::XxHash3_64::oneshot(&expected));
}

fn work(guest: &mut Guest<NoCosts>, exercise: &Exercise, number: u32) {
    let job = exercise.job(number, &SAMPLES);
    guest.submit(job.clone(), slot(exercise)).unwrap();
    check(exercise, &job, &guest.poll(PATIENCE).unwrap());
}

/// Waits for what another thread does.
fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn equal_sessions_have_their_samples_made_once() {
    let (_dir, exercise) = exercise();
    let server = server(FileStore::new(exercise.root()).unwrap());
    let mut both = ["a", "a"].map(|of| asking_host(&server, of, &exercise));
    for number in 0..6 {
        both.iter_mut().for_each(|guest| work(guest, &exercise, number));
    }
    let counts = server.counts();
    assert_eq!(counts.stats.samples, 2 * 6 * SAMPLES.len() as u64);
    // Half of them are the second one's; a sample of a recipe that draws nothing is made once for all epochs.
    assert!(counts.stats.shared_samples >= 6 * SAMPLES.len() as u64, "{counts:?}");
    let [first, second] = both;
    drop((first, second));
    assert_eq!(server.counts().results.held_bytes, 0, "nobody can want them any more");
}

/// Keeping results takes a copy of each: a host that only opens sessions must not cost others that.
#[test]
fn nothing_is_kept_for_a_session_that_has_asked_for_nothing() {
    let (_dir, exercise) = exercise();
    let server = server(FileStore::new(exercise.root()).unwrap());
    let [mut first, mut second] =
        ["a", "a"].map(|of| host(&server, of, exercise.session()));
    work(&mut first, &exercise, 0);
    assert_eq!(server.counts().results.held_bytes, 0);
    // From its first job on, it is somebody who may want what the other has had.
    work(&mut second, &exercise, 1);
    assert!(server.counts().results.held_bytes > 0);
    work(&mut first, &exercise, 1);
    assert!(server.counts().stats.shared_samples > 0);
    // A new session at the same seat has asked for nothing yet.
    second.open(exercise.session()).unwrap();
    let held_bytes = server.counts().results.held_bytes;
    work(&mut first, &exercise, 2);
    assert!(server.counts().results.held_bytes <= held_bytes);
}

#[test]
fn hosts_that_have_proved_other_things_share_nothing() {
    let (_dir, exercise) = exercise();
    let session = exercise.session();
    let n_of = |sharing, of: [Option<Credential>; 2]| {
        let server = server(FileStore::new(exercise.root()).unwrap());
        let server = server.with_results(ResultMemory::Bytes(64 << 20), sharing);
        let mut both = of.map(|of| server.guest_with(of).unwrap());
        for guest in &mut both {
            guest.open(session.clone()).unwrap();
            ask(guest, &exercise);
        }
        both.iter_mut().for_each(|guest| work(guest, &exercise, 0));
        server.counts().stats.shared_samples
    };
    let n_all = SAMPLES.len() as u64;
    let [a, b] = ["a", "b"].map(credential);
    assert_eq!(n_of(Sharing::Credential, [a, a]), n_all);
    assert_eq!(n_of(Sharing::Credential, [a, b]), 0);
    assert_eq!(n_of(Sharing::Credential, [None, None]), 0, "they have proved nothing");
    assert_eq!(n_of(Sharing::Everybody, [a, None]), n_all);
}

#[test]
fn without_memory_for_results_every_session_has_its_own() {
    let (_dir, exercise) = exercise();
    let server = server(FileStore::new(exercise.root()).unwrap());
    let server = server.with_results(ResultMemory::Off, Sharing::Credential);
    let mut both = ["a", "a"].map(|of| host(&server, of, exercise.session()));
    both.iter_mut().for_each(|guest| work(guest, &exercise, 0));
    let counts = server.counts();
    assert_eq!((counts.stats.shared_samples, counts.results.limit_bytes), (0, 0));
}

/// Files whose first reads wait until they are let go, and then fail if that is asked for.
#[derive(Debug)]
struct Gated {
    files: FileStore,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    n_read: u32,
    is_open: bool,
    /// Of the next reads so many fail.
    n_fail: u32,
}

impl Store for Gated {
    fn read(
        &self,
        wanted: Wanted<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<Identity, StoreError> {
        if wanted.len > 0 {
            let mut state = self.gate.state.lock().unwrap();
            state.n_read += 1;
            let waits = |state: &mut GateState| !state.is_open;
            let opened = self.gate.changed.wait_timeout_while(state, PATIENCE, waits);
            let (mut state, timed_out) = opened.unwrap();
            assert!(!timed_out.timed_out(), "nobody opened the gate");
            if state.n_fail > 0 {
                state.n_fail -= 1;
                let nowhere = Wanted { path: "no such file", ..wanted };
                return self.files.read(nowhere, dst);
            }
        }
        self.files.read(wanted, dst)
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.files.probe(path)
    }
}

impl Gate {
    fn open(&self, n_fail: u32) {
        let mut state = self.state.lock().unwrap();
        (state.is_open, state.n_fail) = (true, n_fail);
        drop(state);
        self.changed.notify_all();
    }

    fn n_read(&self) -> u32 {
        self.state.lock().unwrap().n_read
    }
}

fn gated(root: &Path) -> (Gated, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    (Gated { files: FileStore::new(root).unwrap(), gate: Arc::clone(&gate) }, gate)
}

#[test]
fn who_waits_for_a_sample_gets_it_when_the_one_it_is_made_for_has_left() {
    let (_dir, exercise) = exercise();
    let (store, gate) = gated(exercise.root());
    let server = server(store);
    let [mut maker, mut waits] = ["a", "a"].map(|of| asking_host(&server, of, &exercise));
    let job = exercise.job(0, &[0]);
    maker.submit(job.clone(), slot(&exercise)).unwrap();
    until(|| gate.n_read() == 1);
    waits.submit(job.clone(), slot(&exercise)).unwrap();
    // The second worker leaves it to the first, and is free for other samples.
    waits.submit(exercise.job(3, &[1]), slot(&exercise)).unwrap();
    until(|| gate.n_read() == 2);
    drop(maker);
    gate.open(0);
    for _ in 0..2 {
        let finished = waits.poll(PATIENCE).unwrap();
        let own =
            if finished.job == job.id { job.clone() } else { exercise.job(3, &[1]) };
        check(&exercise, &own, &finished);
    }
    assert_eq!(gate.n_read(), 2, "each of the two samples was made once");
}

#[test]
fn who_waits_for_a_sample_that_cannot_be_made_makes_its_own() {
    let (_dir, exercise) = exercise();
    let (store, gate) = gated(exercise.root());
    let server = server(store);
    let [mut first, mut second] =
        ["a", "a"].map(|of| asking_host(&server, of, &exercise));
    let job = exercise.job(0, &[0]);
    first.submit(job.clone(), slot(&exercise)).unwrap();
    until(|| gate.n_read() == 1);
    second.submit(job.clone(), slot(&exercise)).unwrap();
    gate.open(1);
    assert!(first.poll(PATIENCE).unwrap().result.is_err(), "nothing could be read");
    check(&exercise, &job, &second.poll(PATIENCE).unwrap());
}

#[test]
fn a_file_that_was_replaced_is_read_by_the_next_session() {
    let (_dir, exercise) = exercise();
    let (store, gate) = gated(exercise.root());
    gate.open(0);
    let server = server(store);
    let mut first = asking_host(&server, "a", &exercise);
    let mut second = asking_host(&server, "a", &exercise);
    work(&mut first, &exercise, 0);
    let n_made = gate.n_read();
    replace_all(exercise.root());
    work(&mut second, &exercise, 0);
    assert!(gate.n_read() > n_made, "it took what was made of the files before");
    assert_eq!(server.counts().stats.shared_samples, 0);
}

/// Puts a copy in place of every file.
fn replace_all(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            replace_all(&path);
            continue;
        }
        let copy = path.with_extension("new");
        std::fs::copy(&path, &copy).unwrap();
        std::fs::rename(copy, path).unwrap();
    }
}

#[test]
fn results_make_room_for_batches() {
    let (_dir, exercise) = exercise();
    let session = exercise.session();
    let batch = u64::from(session.max_batch) * u64::from(session.sample_bytes);
    let list = session.manifest.len() as u64;
    // What each session notes of its files.
    let noted = 8 * Table::decode(&session.manifest).unwrap().n_files() as u64;
    let most = 9 * batch + list + 3 * noted;
    let server = server(FileStore::new(exercise.root()).unwrap());
    let server = server.with_memory(Memory::Bytes(most));
    let server = server.with_results(ResultMemory::Bytes(most), Sharing::Credential);
    let mut first = host(&server, "a", session.clone());
    let limit = |server: &Server<NoCosts>| server.counts().results.limit_bytes;
    assert_eq!(limit(&server), 5 * batch + 2 * noted);
    work(&mut first, &exercise, 0);
    let mut others: Vec<_> =
        (0..2).map(|_| host(&server, "a", session.clone())).collect();
    let slots: Vec<_> = others.iter_mut().map(|guest| guest.hello().slots).collect();
    assert_eq!((slots, limit(&server)), (vec![4, 1], 0), "all of it is batches'");
    assert_eq!(server.counts().results.held_bytes, 0);
}

#[test]
fn jobs_are_counted_by_their_names() {
    let (_dir, exercise) = exercise();
    let server = server(FileStore::new(exercise.root()).unwrap());
    let session =
        |name| Session { job: Some(JobTerms::named(name)), ..exercise.session() };
    let mut vit = host(&server, "a", session("vit"));
    let mut resnet = host(&server, "a", session("resnet"));
    ask(&mut vit, &exercise);
    ask(&mut resnet, &exercise);
    work(&mut vit, &exercise, 0);
    work(&mut resnet, &exercise, 0);
    let jobs = server.counts().jobs;
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["resnet", "vit"]);
    let n = SAMPLES.len() as u64;
    assert!(jobs.iter().all(|job| job.samples == n && job.sessions == 1), "{jobs:?}");
    assert_eq!((jobs[0].shared_samples, jobs[1].shared_samples), (n, 0));
    drop(vit);
    assert_eq!(server.counts().jobs[1].sessions, 0, "it is remembered");
}
