//! The thread without its loop: what it asks of a store that a double stands for, and what it tells the link.

use std::num::NonZero;

use bothends_core::ids::BatchIdx;
use bothends_core::link::SampleBytes;
use bothends_core::recipe::Recipe;
use bothends_slots::{Job, JobId, Producer, Ring, RingConfig};
use bothends_storage::{Answer, Double};
use crossbeam::channel::unbounded;

use super::*;
use crate::collect::wakeup::bell;
use crate::config::run::{RunConfig, SideIndexUse};
use crate::make::front::{Front, RowLens};
use crate::read::fetching::room::BatchBytes;
use crate::threads::times::{Ends, ThreadTimes};

const N_FILES: u64 = 64;
const RECORD: u64 = 400_000;
/// More than half as small: devices would have a share of the link.
const BYTES: SampleBytes = SampleBytes { host: RECORD, device: 150_528 };

/// A stage that a test moves on itself, and a front that gives it jobs.
struct World {
    stage: FetchStage,
    way: Way,
    front: Front,
    ring: Ring,
    tasks: Receiver<Task>,
}

impl World {
    /// Records are answered as `record` says, and requests of a byte after 20 ms; so many of the files are of this
    /// machine.
    fn new(n_local: usize, record: Answer) -> Self {
        let objects = Double::answering(move |asked| match &asked.range {
            Some(range) if range.end - range.start == 1 => {
                Answer::After(Duration::from_millis(20))
            }
            Some(_) => record.clone(),
            None => Answer::After(Duration::ZERO),
        });
        let bytes = Bytes::from(vec![0; usize::try_from(RECORD).unwrap()]);
        for file in 0..N_FILES {
            objects.put(&format!("class/{file:02}.jpg"), bytes.clone());
        }
        let objects = Arc::new(objects);
        let recipe = Recipe::builtin("imagenet-train").unwrap();
        let mut config = RunConfig {
            objects: Some(objects.clone()),
            ..RunConfig::new("double".into(), recipe)
        };
        config.read.side_index = SideIndexUse::Off;
        let (jobs_in, jobs) = unbounded();
        let (tasks_in, tasks) = unbounded();
        let stage = FetchStage {
            source: Arc::new(Source::open(&config).unwrap()),
            remote: Arc::new(Remote::of_double(objects.clone(), n_local)),
            fetcher: Fetcher::start(objects, NonZero::<usize>::MIN).unwrap(),
            room: FetchRoom::within(512 << 20, BatchBytes::default(), 1),
            bounds: FetchBounds::default(),
            ahead: Ahead::default(),
            jobs,
            tasks: tasks_in,
            backlog: Arc::new(Backlog::new(1, 1000, 0)),
            read_bytes: Arc::default(),
            watch: FetchWatch::default(),
            link: LinkWatch::default(),
            notes: unbounded().0,
            meter: ThreadTimes::new(0).meter(Ends::Front),
            stop: Stop::default(),
        };
        stage.link.begin(BYTES);
        let way = stage.way();
        let ring = RingConfig { n_slots: 2, slot_bytes: 4 * 64 };
        let front = Front::new(jobs_in, bell().0, RowLens::Every(4), 2, 4);
        Self { stage, way, front, ring: Ring::new(ring).unwrap(), tasks }
    }

    /// The job of a batch with these samples.
    fn job(&mut self, batch: u32, samples: Range<u64>) {
        let (id, epoch) = (JobId(batch.into()), EpochIdx(0));
        let samples = samples.map(SampleId).collect();
        let job = Job { id, epoch, batch: BatchIdx(batch), samples, need_ns: 0 };
        let slot = self.ring.take(Duration::ZERO).unwrap();
        self.front.submit(job, slot).unwrap();
        assert!(self.stage.take_jobs(&mut self.way));
        self.stage.carry_out(&mut self.way);
    }

    /// A second passes in which so many bytes come and the workers wait for more.
    fn second(&mut self, bytes: u64) {
        self.way.glance.at -= Duration::from_secs(1);
        self.way.glance.seen.bytes += bytes;
        self.stage.look_at_link(&mut self.way);
        self.stage.carry_out(&mut self.way);
    }

    /// Waits for answers until it is so.
    fn until(&mut self, is: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is(self) {
            assert!(began.elapsed() < Duration::from_secs(60), "it never is");
            self.stage.wait(None, &mut self.way);
        }
    }

    fn in_flight_bytes(&self) -> u64 {
        self.way.orders.queue.figures().in_flight_bytes
    }
}

#[test]
fn the_host_leaves_a_device_its_share_of_a_slow_link_while_that_has_work() {
    let mut world = World::new(0, Answer::Never);
    world.stage.link.devices_have(Some(0));
    world.job(0, 0..2);
    world.second(0);
    assert!(world.way.round_trip.is_under_way());
    world.until(|world| !world.way.round_trip.is_under_way());
    world.stage.link.devices_have(Some(1));
    assert_eq!(world.stage.link.host_limit_bytes(), None, "the link is not known yet");
    (0..6).for_each(|_| world.second(1_000_000));
    let limit = world.stage.link.host_limit_bytes().unwrap();
    world.job(1, 2..62);
    let most = 2 * RECORD + limit.max(RECORD);
    assert!(world.in_flight_bytes() <= most, "{} of {limit}", world.in_flight_bytes());
    world.stage.link.devices_have(Some(0));
    (0..2).for_each(|_| world.second(1_000_000));
    assert_eq!(world.stage.link.host_limit_bytes(), None);
    assert_eq!(world.in_flight_bytes(), 62 * RECORD, "the host has all of the link");
}

#[test]
fn files_of_this_machine_say_nothing_of_the_link() {
    let n_local = usize::try_from(N_FILES).unwrap();
    for (n_local, bytes) in [(n_local, 0), (0, 2 * RECORD)] {
        let mut world = World::new(n_local, Answer::After(Duration::ZERO));
        world.stage.link.devices_have(Some(1));
        world.job(0, 0..2);
        world.until(|world| world.way.in_flight.is_empty());
        assert_eq!(world.way.glance.seen.bytes, bytes);
        assert_eq!(world.way.round_trip.place().is_some(), bytes > 0);
        let read = world.stage.read_bytes.load(Ordering::Relaxed);
        assert_eq!(read, 2 * RECORD, "they are read in any case");
    }
}

/// The store is quicker than workers: their queue has room for what memory has no room for.
#[test]
fn workers_are_handed_two_long_records_each_and_the_next_once_one_is_dropped() {
    let mut world = World::new(0, Answer::After(Duration::ZERO));
    world.job(0, 0..4);
    world.until(|world| world.way.ready.len() == 4);
    let hand_on = |world: &mut World| {
        world.stage.hand_on(&mut world.way);
        // Nor does the wait hand on more.
        world.stage.wait(None, &mut world.way);
        (world.tasks.len(), world.way.orders.queue.figures().reordered_bytes)
    };
    assert_eq!(hand_on(&mut world), (2, 2 * RECORD), "the others are still counted");
    world.tasks.recv().unwrap().leave_out();
    assert_eq!(hand_on(&mut world), (2, RECORD));
}

#[test]
fn what_was_fetched_before_a_new_engine_is_counted_on() {
    let watch = FetchWatch::default();
    let mut figures = FetchFigures::default();
    figures.counts.requested = 5;
    figures.waits.requests_ns = 1_000_000_000;
    figures.in_flight = 3;
    watch.begin();
    watch.set(figures);
    watch.begin();
    assert_eq!((watch.figures().requests, watch.figures().in_flight), (5, 0));
    watch.set(figures);
    let total = watch.figures();
    assert_eq!((total.requests, total.in_flight), (10, 3));
    assert!((total.waits.requests_s - 2.0).abs() < 1e-9);
}
