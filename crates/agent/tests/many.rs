//! One device and many hosts: how they share its workers and memory, and what one of them does to
//! the others. Those of the program are in `tests/tests/agent_many.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bothends_agent::conformance::{self, Exercise, done};
use bothends_agent::door::{Door, Visits};
use bothends_agent::{
    Cost, Costs, FileStore, Hold, Identity, Memory, NoCosts, Server, ServerConfig, Store,
    StoreError, ThreadClock, Wanted, Work,
};
use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::sample::{Encoding, Extent};
use bothends_csd::admission::{MAX_UNADMITTED, Peer};
use bothends_csd::key::Key;
use bothends_csd::registry::{self, announce};
use bothends_csd::{
    Address, ConnectOptions, CsdError, Declined, EnergyReading, Job, JobId, Security,
    Serve, Session, Transport, connect,
};
use bothends_dataset::{Table, TableBuilder};
use bothends_ops::PixelLimit;
use bothends_slots::{HostSlot, Polled, Ring, RingConfig};

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const IMAGE: &[u8] = include_bytes!("../fixtures/grey-48x64.jpg");

fn exercise() -> (tempfile::TempDir, Exercise) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let exercise = Exercise::prepare(&data).unwrap();
    (dir, exercise)
}

fn config(n_workers: u32, n_slots: u32) -> ServerConfig {
    ServerConfig { name: "test".into(), emulated: false, n_workers, n_slots }
}

fn slot(exercise: &Exercise) -> HostSlot {
    conformance::slot(exercise).host().unwrap()
}

/// Waits for what another thread does.
fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A session over one file, whose name tells it from others.
fn session_over(exercise: &Exercise, name: &str) -> Session {
    std::fs::write(exercise.root().join(name), IMAGE).unwrap();
    let mut table = TableBuilder::new(Encoding::Image);
    let file = table.file(name).unwrap();
    let len = u32::try_from(IMAGE.len()).unwrap();
    table.sample(Extent { file, offset: 0, len }, 0);
    Session { manifest: table.build().unwrap().encode(), ..exercise.session() }
}

fn job(number: u64, n_samples: usize) -> Job {
    Job {
        id: JobId(number),
        epoch: EpochIdx(0),
        batch: BatchIdx(0),
        samples: vec![SampleId(0); n_samples],
        need_ns: 0,
    }
}

/// Files whose readers wait until they are let go; who read what is noted in order.
#[derive(Debug)]
struct Gated {
    files: FileStore,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    read: Mutex<Vec<String>>,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn read(&self) -> Vec<String> {
        self.read.lock().unwrap().clone()
    }
}

impl Gated {
    fn new(root: &Path) -> Self {
        Self { files: FileStore::new(root).unwrap(), gate: Arc::default() }
    }
}

impl Store for Gated {
    fn read(
        &self,
        wanted: Wanted<'_>,
        dst: &mut Vec<u8>,
    ) -> Result<Identity, StoreError> {
        self.gate.read.lock().unwrap().push(wanted.path.to_owned());
        let is_open = self.gate.is_open.lock().unwrap();
        let opened =
            self.gate.opened.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open);
        assert!(!opened.unwrap().1.timed_out(), "nobody opened the gate");
        self.files.read(wanted, dst)
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.files.probe(path)
    }
}

/// A device on which every sample takes a worker equally long, whatever else this machine does.
#[derive(Debug)]
struct Even;

thread_local! {
    static EVEN_NS: Cell<u64> = const { Cell::new(0) };
}

fn even_ns() -> u64 {
    EVEN_NS.with(|ns| ns.replace(ns.get() + 1_000_000))
}

impl Costs for Even {
    fn thread_clock(&self) -> ThreadClock {
        || 0
    }

    fn share_clock(&self) -> ThreadClock {
        even_ns
    }

    fn job(&mut self, work: &Work<'_>) -> Cost {
        Cost { start_ns: work.start_ns, end_ns: work.end_ns, hold: Hold::No }
    }

    fn energy(&mut self, _now_ns: u64) -> Vec<EnergyReading> {
        Vec::new()
    }
}

#[test]
fn sixteen_sessions_that_are_always_busy_make_equally_many_samples() {
    const N_JOBS: u64 = 3;
    const N_SAMPLES: usize = 12;
    let (_dir, exercise) = exercise();
    // A second worker that this machine leaves waiting would keep its session waiting, too.
    let store = Gated::new(exercise.root());
    let gate = Arc::clone(&store.gate);
    let server = Server::start(config(1, 3), store, Even).unwrap();
    let mut guests = Vec::new();
    for number in 0..16 {
        let mut guest = server.guest().unwrap();
        guest.open(session_over(&exercise, &format!("own-{number}.jpg"))).unwrap();
        for number in 0..N_JOBS {
            guest.submit(job(number, N_SAMPLES), slot(&exercise)).unwrap();
        }
        guests.push(guest);
    }
    gate.open();
    for guest in &mut guests {
        for _ in 0..N_JOBS {
            assert!(guest.poll(PATIENCE).unwrap().result.unwrap().bad.is_empty());
        }
    }
    // What each had when the first one had all.
    let mut made: HashMap<String, usize> = HashMap::new();
    for path in gate.read() {
        let n = made.entry(path).or_default();
        *n += 1;
        if *n == N_SAMPLES * usize::try_from(N_JOBS).unwrap() {
            break;
        }
    }
    let least = made.values().min().unwrap();
    let most = made.values().max().unwrap();
    assert_eq!(made.len(), 16);
    assert!(most * 10 <= least * 12, "{made:?}");
}

#[test]
fn a_host_that_is_gone_has_its_work_dropped_within_a_sample_and_no_other_has() {
    let (_dir, exercise) = exercise();
    let store = Gated::new(exercise.root());
    let gate = Arc::clone(&store.gate);
    let server = Server::start(config(1, 4), store, Even).unwrap();
    let slot_bytes = slot(&exercise).len();
    let ring = Ring::new(RingConfig { n_slots: 4, slot_bytes }).unwrap();
    let mut gone = server.guest().unwrap();
    gone.open(session_over(&exercise, "gone.jpg")).unwrap();
    for number in 0..4 {
        let slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
        gone.submit(job(number, 12), slot).unwrap();
    }
    until(|| gate.read().len() == 1);
    let mut stays = server.guest().unwrap();
    stays.open(session_over(&exercise, "stays.jpg")).unwrap();
    stays.submit(job(0, 12), slot(&exercise)).unwrap();
    drop(gone);
    assert_eq!(ring.free(), 3, "what was not begun is free at once");
    gate.open();
    assert!(stays.poll(PATIENCE).unwrap().result.unwrap().bad.is_empty());
    until(|| ring.free() == 4);
    let read = gate.read();
    assert_eq!(read.iter().filter(|path| *path == "gone.jpg").count(), 1);
    assert_eq!(read.iter().filter(|path| *path == "stays.jpg").count(), 12);
    assert_eq!(server.counts().hosts, 1);
}

#[test]
fn memory_is_divided_among_the_sessions_and_who_finds_none_is_told_when_to_come() {
    let (_dir, exercise) = exercise();
    let session = exercise.session();
    let batch = u64::from(session.max_batch) * u64::from(session.sample_bytes);
    let list = session.manifest.len() as u64;
    // What each session notes of its files.
    let noted = 8 * Table::decode(&session.manifest).unwrap().n_files() as u64;
    let store = FileStore::new(exercise.root()).unwrap();
    let server = Server::start(config(1, 4), store, NoCosts).unwrap();
    let server = server.with_memory(Memory::Bytes(5 * batch + list + 2 * noted));
    let (mut first, mut second, mut third) =
        (server.guest().unwrap(), server.guest().unwrap(), server.guest().unwrap());
    first.open(session.clone()).unwrap();
    assert_eq!(first.hello().slots, 4);
    second.open(session.clone()).unwrap();
    assert_eq!(second.hello().slots, 1, "the list is there once, batches are not");
    assert_eq!(server.counts().tables, 1);
    assert_eq!(server.counts().held_bytes, 5 * batch + list + 2 * noted);
    let Err(Declined::Busy(busy)) = third.open(session.clone()) else {
        panic!("it is full")
    };
    assert!(!busy.retry.is_zero());
    assert!(busy.reason.contains("other hosts leave 0 of"), "{}", busy.reason);
    drop(first);
    third.open(session).unwrap();
    assert_eq!(third.hello().slots, 4);
    drop((second, third));
    assert_eq!((server.counts().tables, server.counts().held_bytes), (0, 0));
}

/// Each of these recipes was read, as many as came: a connection for each two, without end.
#[test]
fn who_is_refused_again_and_again_waits_longer_while_others_work() {
    let (_dir, exercise) = exercise();
    let store = Gated::new(exercise.root());
    let gate = Arc::clone(&store.gate);
    let server = Server::start(config(1, 2), store, Even).unwrap();
    let mut works = server.guest().unwrap();
    works.open(exercise.session()).unwrap();
    works.submit(job(0, 1), slot(&exercise)).unwrap();
    let peer = Peer::at(None, Some([192_u8, 0, 2, 1].into()));
    let refusal_takes = || {
        // It comes again each time.
        let mut guest = server.guest_with(peer).unwrap();
        let began = Instant::now();
        let session = Session { recipe_hash: 1, ..exercise.session() };
        let refused = guest.open(session);
        assert!(matches!(refused, Err(Declined::Refused(_))), "{refused:?}");
        began.elapsed()
    };
    let waits = |n_tries| (0..n_tries).any(|_| refusal_takes() >= PATIENCE / 200);
    assert!(waits(60), "it never had to wait");
    gate.open();
    assert!(works.poll(PATIENCE).unwrap().result.unwrap().bad.is_empty());
}

#[test]
fn equal_lists_are_shared_and_others_are_not() {
    let (_dir, exercise) = exercise();
    let store = FileStore::new(exercise.root()).unwrap();
    let server = Server::start(config(1, 1), store, NoCosts).unwrap();
    let mut guests: Vec<_> = (0..3).map(|_| server.guest().unwrap()).collect();
    guests[0].open(exercise.session()).unwrap();
    guests[1].open(Session { seed: 1, ..exercise.session() }).unwrap();
    assert_eq!(server.counts().tables, 1);
    guests[2].open(session_over(&exercise, "other.jpg")).unwrap();
    assert_eq!(server.counts().tables, 2);
    // A recipe that is not what its hash says is refused, whatever is known.
    let wrong = Session {
        recipe_hash: exercise.session().recipe_hash ^ (1 << 127),
        ..exercise.session()
    };
    assert!(matches!(guests[2].open(wrong), Err(Declined::Refused(_))));
}

/// A device behind a door, at work on a thread of its own until this is dropped.
struct Site<'a> {
    address: Address,
    stop: &'a AtomicBool,
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Site<'_> {
    fn host(&self) -> Result<Box<dyn Transport>, CsdError> {
        let mut host = connect(&self.address, &ConnectOptions::default())?;
        host.hello()?;
        Ok(host)
    }
}

/// Runs `visit` next to a device at a Unix socket that serves `n_sessions` hosts.
fn beside(
    (dir, exercise): &(tempfile::TempDir, Exercise),
    n_sessions: u32,
    visit: impl FnOnce(&Site<'_>, &Door),
) {
    let store = FileStore::new(exercise.root()).unwrap();
    let server = Server::start(config(2, 2), store, NoCosts).unwrap();
    let server = server.with_sessions(n_sessions);
    let address = format!("unix://{}", dir.path().join("door").display());
    let door = Door::open(&address.parse().unwrap(), Security::default()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| door.serve(&server, Visits::Always, &stop, &|_| ()));
        let site = Site { address: door.address().clone(), stop: &stop };
        visit(&site, &door);
        drop(site);
        serves.join().unwrap().unwrap();
    });
}

/// The exercise's samples, made by this host.
fn work(host: &mut dyn Transport, exercise: &Exercise) {
    host.open(&exercise.session()).unwrap();
    for number in 0..5 {
        let job = exercise.job(number, &[0, 1, 2, 4]);
        let (expected, bad) = exercise.expected(&job);
        assert!(done(host, exercise, job) == (expected, bad));
    }
}

#[test]
fn a_host_more_than_there_is_room_for_is_busy_and_served_when_one_has_left() {
    let place = exercise();
    beside(&place, 2, |site, door| {
        let mut first = site.host().unwrap();
        let second = site.host().unwrap();
        let Err(CsdError::Busy { reason, retry }) = site.host() else { panic!("full") };
        assert!(reason.contains("2 hosts already"), "{reason}");
        assert!(!retry.is_zero());
        work(&mut *first, &place.1);
        drop(second);
        // It is gone when its thread has seen that.
        let began = Instant::now();
        let mut third = loop {
            match site.host() {
                Ok(host) => break host,
                Err(CsdError::Busy { .. }) if began.elapsed() < PATIENCE => {}
                Err(error) => panic!("{error}"),
            }
        };
        work(&mut *third, &place.1);
        assert!(door.refusals().busy.load(Ordering::Relaxed) > 0);
    });
}

#[test]
fn silent_connections_are_bounded_and_leave_those_who_are_served_alone() {
    const N_SILENT: usize = 10_000;
    let place = exercise();
    beside(&place, 8, |site, door| {
        let Address::Unix(path) = &site.address else { panic!("a Unix socket") };
        let mut honest = site.host().unwrap();
        let mut silent = Vec::new();
        for number in 0..N_SILENT {
            let stream = UnixStream::connect(path).unwrap();
            // Of those that are closed again, this process keeps few. Twice as many as have a place are silent.
            if number >= N_SILENT - 2 * MAX_UNADMITTED {
                silent.push(stream);
            }
            if number % 2_000 == 0 {
                work(&mut *honest, &place.1);
            }
        }
        let refusals = door.refusals();
        let n_crowded = || refusals.crowded.load(Ordering::Relaxed);
        until(|| n_crowded() > 0);
        work(&mut *honest, &place.1);
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        assert!(threads < 2 * MAX_UNADMITTED + 100, "{threads} threads");
        // While all places are taken, one who says who it is gets in.
        let mut late = site.host().unwrap();
        work(&mut *late, &place.1);
        drop(silent);
    });
}

#[test]
fn results_that_nobody_reads_stop_their_own_session_alone() {
    let place = exercise();
    let exercise = &place.1;
    beside(&place, 2, |site, _| {
        // Each result is 1.8 MB; the socket holds some of them, and slots the rest.
        let mut hoards = site.host().unwrap();
        hoards.open(&exercise.session()).unwrap();
        for number in 0..2 {
            let whole = exercise.job(number, &[0; 12]);
            hoards.submit(whole, conformance::slot(exercise)).unwrap();
        }
        let mut honest = site.host().unwrap();
        work(&mut *honest, exercise);
        drop(honest);
        // It has lost nothing, and is served as soon as it reads.
        let polled = hoards.poll(PATIENCE).unwrap();
        assert!(matches!(polled, Polled::Completion(_)), "{polled:?}");
    });
}

#[test]
fn a_door_closes_with_hosts_and_strangers_in_it() {
    let place = exercise();
    let mut kept = Vec::new();
    let mut hosts = Vec::new();
    beside(&place, 8, |site, _| {
        let Address::Unix(path) = &site.address else { panic!("a Unix socket") };
        kept.extend((0..10).map(|_| UnixStream::connect(path).unwrap()));
        hosts.extend((0..3).map(|_| site.host().unwrap()));
        hosts[0].open(&place.1.session()).unwrap();
        let whole = place.1.job(0, &[0; 12]);
        hosts[0].submit(whole, conformance::slot(&place.1)).unwrap();
    });
    assert!(hosts[1].open(&place.1.session()).is_err(), "the device is gone");
}

#[test]
fn floods_of_hellos_do_not_delay_another_host() {
    use std::io::Write;
    let place = exercise();
    beside(&place, 4, |site, _| {
        let Address::Unix(path) = &site.address else { panic!("a Unix socket") };
        let mut stranger = UnixStream::connect(path).unwrap();
        let greet = bothends_csd::wire::Message::Greet { nonce: [7; 32] }.encode();
        let prove = bothends_csd::wire::Message::Prove { proof: None }.encode();
        let hello = bothends_csd::wire::Message::Hello.encode();
        stranger.write_all(&[greet, prove].concat()).unwrap();
        stranger.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
        let hellos = hello.repeat(10_000);
        let over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut flood = stranger.try_clone().unwrap();
            // It reads no answer, so that soon nothing is taken from it any more.
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    drop(flood.write(&hellos));
                }
            });
            let mut honest = site.host().unwrap();
            work(&mut *honest, &place.1);
            over.store(true, Ordering::Relaxed);
        });
    });
}

/// Each of them held a thread for three seconds, and nobody counted them.
#[test]
fn hosts_that_are_admitted_and_say_nothing_are_bounded_as_strangers_are() {
    use std::io::{Read, Write};
    let place = exercise();
    beside(&place, 8, |site, door| {
        let Address::Unix(path) = &site.address else { panic!("a Unix socket") };
        let mut honest = site.host().unwrap();
        let greet = bothends_csd::wire::Message::Greet { nonce: [7; 32] }.encode();
        let prove = bothends_csd::wire::Message::Prove { proof: None }.encode();
        let mut silent = Vec::new();
        let refusals = door.refusals();
        let began = Instant::now();
        while refusals.crowded.load(Ordering::Relaxed) == 0 {
            assert!(began.elapsed() < PATIENCE, "{} are silent", silent.len());
            let mut stream = UnixStream::connect(path).unwrap();
            // One that had to make room for others has gone.
            let admitted = stream.write_all(&greet);
            let admitted = admitted.and_then(|()| stream.read_exact(&mut [0; 80]));
            drop(admitted.and_then(|()| stream.write_all(&prove)));
            silent.push(stream);
        }
        work(&mut *honest, &place.1);
        drop(silent);
    });
}

/// Decoding them would keep a worker from everybody else for as long as that takes.
#[test]
fn images_of_more_pixels_than_the_device_decodes_are_left_to_the_host() {
    let (_dir, exercise) = exercise();
    let job = exercise.job(0, &[0, 1, 2]);
    let (expected, bad) = exercise.expected(&job);
    assert!(bad.is_empty());
    for (most, n_refused) in [(1 << 20, 0), (16, 3)] {
        let store = FileStore::new(exercise.root()).unwrap();
        let server = Server::start(config(1, 1), store, NoCosts).unwrap();
        let server = server.with_pixels(PixelLimit { most, per_byte: 512 });
        let mut guest = server.guest().unwrap();
        guest.open(exercise.session()).unwrap();
        guest.submit(job.clone(), slot(&exercise)).unwrap();
        let finished = guest.poll(PATIENCE).unwrap();
        let product = finished.result.unwrap();
        let rows: Vec<u32> = (0..n_refused).collect();
        assert_eq!(product.bad, rows);
        let made = &finished.slot[..product.len];
        assert!(if n_refused == 0 {
            made == expected
        } else {
            made.iter().all(|it| *it == 0)
        });
        until(|| server.counts().refused_samples == u64::from(n_refused));
    }
}

/// Only who is admitted announces itself or sees the list, and no host's place is taken.
#[test]
fn an_agent_without_room_for_hosts_still_lists_those_that_have_its_key() {
    let (dir, exercise) = exercise();
    let (ours, other) = (dir.path().join("ours.key"), dir.path().join("other.key"));
    Key::generate(&ours).unwrap();
    Key::generate(&other).unwrap();
    let store = FileStore::new(exercise.root()).unwrap();
    let server = Server::start(config(1, 1), store, NoCosts).unwrap().with_sessions(1);
    let with = |file: &Path| ConnectOptions {
        key_file: Some(file.to_owned()),
        timeout: PATIENCE,
        ..ConnectOptions::default()
    };
    let security =
        |file: &Path| Security::default().with_key(Some(Key::from_file(file).unwrap()));
    let address: Address = "tcp+noise://127.0.0.1:0".parse().unwrap();
    let door = Door::open(&address, security(&ours)).unwrap();
    let at = door.address().clone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = || door.serve(&server, Visits::Always, &stop, &|_| ());
        let serves = scope.spawn(served);
        let site = Site { address: at.clone(), stop: &stop };
        let mut host = connect(&at, &with(&ours)).unwrap();
        host.hello().unwrap();
        let member: Address = "tls://agent-7:7070".parse().unwrap();
        let tell = |file: &Path| announce(&at, security(file), &with(file), &member);
        tell(&other).unwrap_err();
        registry::members(&at, &with(&other)).unwrap_err();
        assert_eq!(registry::members(&at, &with(&ours)).unwrap().text, "");
        tell(&ours).unwrap();
        let list = registry::members(&at, &with(&ours)).unwrap();
        assert_eq!(list.text, "tls://agent-7:7070");
        let anywhere: Address = "tls://0.0.0.0:7070".parse().unwrap();
        announce(&at, security(&ours), &with(&ours), &anywhere).unwrap();
        let list = registry::members(&at, &with(&ours)).unwrap();
        assert_eq!(list.text, "tls://127.0.0.1:7070\ntls://agent-7:7070");
        assert_eq!(server.counts().members, 2);
        // The one host that it has room for is still the only one.
        host.stats().unwrap();
        let mut second = connect(&at, &with(&ours)).unwrap();
        assert!(matches!(second.hello().unwrap_err(), CsdError::Busy { .. }));
        drop(site);
        serves.join().unwrap().unwrap();
    });
}
