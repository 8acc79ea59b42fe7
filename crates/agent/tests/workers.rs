//! How the server's workers share the jobs of a session: who waits for whom, what is read ahead,
//! and when slots come back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bothends_agent::conformance::{self, Exercise};
use bothends_agent::{
    FileStore, Identity, NoCosts, Server, ServerConfig, Store, StoreError, Wanted,
};
use bothends_core::ids::{BatchIdx, SampleId};
use bothends_csd::loopback::Loopback;
use bothends_csd::{Job, JobId, Serve, Transport as _};
use bothends_slots::conformance::produce;
use bothends_slots::{HostSlot, Ring, RingConfig};

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn exercise() -> (tempfile::TempDir, Exercise) {
    let dir = tempfile::tempdir().unwrap();
    let exercise = Exercise::prepare(dir.path()).unwrap();
    (dir, exercise)
}

fn slot(exercise: &Exercise) -> HostSlot {
    conformance::slot(exercise).host().unwrap()
}

fn server(store: impl Store + 'static, n_workers: u32, n_slots: u32) -> Server<NoCosts> {
    let config =
        ServerConfig { name: "test".into(), emulated: false, n_workers, n_slots };
    Server::start(config, store, NoCosts).unwrap()
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
fn a_server_in_this_process_is_a_producer_that_fills_the_hosts_slots() {
    const CAPACITY: u32 = 3;
    let (_dir, exercise) = exercise();
    let exercise = Rc::new(exercise);
    for n_workers in [1, 4] {
        produce::all(&mut || {
            let store = FileStore::new(exercise.root()).unwrap();
            let server = server(store, n_workers, CAPACITY);
            let mut device = Loopback::new(Box::new(server));
            device.hello().unwrap();
            device.open(&exercise.session()).unwrap();
            let known = Rc::clone(&exercise);
            let expected = move |epoch, sample| {
                let (id, batch) = (JobId(0), BatchIdx(0));
                let job = Job { id, epoch, batch, samples: vec![sample], need_ns: 0 };
                let (bytes, bad) = known.expected(&job);
                bad.is_empty().then_some(bytes)
            };
            produce::Subject {
                producer: Box::new(device),
                capacity: CAPACITY,
                sample_bytes: exercise.session().sample_bytes as usize,
                expected: Box::new(expected),
                samples: (0..5).map(SampleId).collect(),
                damaged: Vec::new(),
            }
        });
    }
}

/// A store that notes who reads what, and holds up whoever reads one file until another one has
/// been read, or until it is let go.
#[derive(Debug)]
struct Watched {
    files: FileStore,
    log: Arc<Log>,
}

#[derive(Debug, Default)]
struct Log {
    held: &'static str,
    until: &'static str,
    read: Mutex<HashSet<String>>,
    changed: Condvar,
    n_read: AtomicUsize,
    n_ahead: AtomicUsize,
}

impl Log {
    fn note(&self, path: &str) {
        self.read.lock().unwrap().insert(path.to_owned());
        self.changed.notify_all();
    }
}

impl Watched {
    fn new(exercise: &Exercise, held: &'static str, until: &'static str) -> Self {
        let log = Arc::new(Log { held, until, ..Log::default() });
        Self { files: FileStore::new(exercise.root()).unwrap(), log }
    }
}

impl Store for Watched {
    fn read(
        &self,
        wanted: Wanted<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<Identity, StoreError> {
        self.log.n_read.fetch_add(1, Ordering::SeqCst);
        self.log.note(wanted.path);
        if wanted.path == self.log.held {
            let is_unread = |read: &mut HashSet<String>| !read.contains(self.log.until);
            let read = self.log.read.lock().unwrap();
            let waited = self.log.changed.wait_timeout_while(read, PATIENCE, is_unread);
            assert!(!waited.unwrap().1.timed_out(), "nobody went on meanwhile");
        }
        self.files.read(wanted, dst)
    }

    fn read_ahead(&self, _wanted: Wanted<'_>) {
        self.log.n_ahead.fetch_add(1, Ordering::SeqCst);
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.files.probe(path)
    }
}

#[test]
fn a_job_is_begun_while_the_last_sample_of_the_one_before_is_made() {
    let (_dir, exercise) = exercise();
    let paths: Vec<_> = exercise.paths().collect();
    // Sample 1 is made only once sample 2, of the next job, is.
    let store = Watched::new(&exercise, paths[1], paths[2]);
    let mut server = server(store, 2, 2);
    server.open(exercise.session()).unwrap();
    let jobs = [exercise.job(0, &[0, 1]), exercise.job(0, &[2])];
    let jobs = [jobs[0].clone(), Job { id: JobId(1), ..jobs[1].clone() }];
    for job in &jobs {
        server.submit(job.clone(), slot(&exercise)).unwrap();
    }
    for job in &jobs {
        let finished = server.poll(PATIENCE).unwrap();
        assert_eq!(finished.job, job.id, "they are told in order all the same");
        let (expected, bad) = exercise.expected(job);
        let product = finished.result.unwrap();
        assert_eq!((product.len, product.bad), (expected.len(), bad));
        assert!(finished.slot[..expected.len()] == expected);
    }
}

#[test]
fn work_that_was_dropped_ends_with_the_sample_that_is_being_made() {
    let (_dir, exercise) = exercise();
    let first = exercise.paths().next().unwrap();
    for is_forgotten in [false, true] {
        let store = Watched::new(&exercise, first, "let go");
        let log = Arc::clone(&store.log);
        let slot_bytes = slot(&exercise).len();
        let ring = Ring::new(RingConfig { n_slots: 2, slot_bytes }).unwrap();
        let mut server = server(store, 1, 2);
        server.open(exercise.session()).unwrap();
        for number in 0..2 {
            let slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
            server.submit(exercise.job(number, &[0, 1, 2]), slot).unwrap();
        }
        until(|| log.n_read.load(Ordering::SeqCst) == 1);
        if is_forgotten {
            server.forget(exercise.job(0, &[]).id);
            server.forget(exercise.job(1, &[]).id);
        } else {
            server.close();
        }
        assert_eq!(ring.free(), 1, "what is not begun is free at once");
        assert_eq!(server.stats().queued, 0);
        log.note("let go");
        until(|| ring.free() == 2);
        drop(server);
        assert_eq!(log.n_read.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn records_are_read_ahead_of_the_workers_by_a_bounded_number() {
    const N_JOBS: u32 = 12;
    let (_dir, exercise) = exercise();
    let first = exercise.paths().next().unwrap();
    let store = Watched::new(&exercise, first, "let go");
    let log = Arc::clone(&store.log);
    let n_ahead = || log.n_ahead.load(Ordering::SeqCst);
    let mut server = server(store, 1, N_JOBS);
    server.open(exercise.session()).unwrap();
    for number in 0..N_JOBS {
        server.submit(exercise.job(number, &[0; 12]), slot(&exercise)).unwrap();
    }
    // The worker is at the first row, which may have been read ahead, too. Scouts that have caught up
    // while jobs were submitted rest as long as more than half of their lead is left.
    until(|| n_ahead() > 32);
    assert!(server.poll(Duration::from_millis(20)).is_none());
    assert!(n_ahead() <= 65, "{} of {} rows", n_ahead(), 12 * N_JOBS);
    log.note("let go");
    for _ in 0..N_JOBS {
        assert!(server.poll(PATIENCE).unwrap().result.is_ok());
    }
    assert!(n_ahead() <= 12 * N_JOBS as usize, "no record is read ahead twice");
}
