//! Putting the engine together: its queues, its threads, and what each of them is given.
//!
//! The only place where front, back and collector are joined, and they are joined by queues
//! alone. What an epoch adds to them is in `runtime/epochs.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bothends_core::ids::Prong;
use bothends_io::{Reader, ReaderConfig};
use bothends_slots::Producer;
use bothends_storage::{Fetcher, n_fetch_threads};
use crossbeam::channel::{Receiver, Sender, bounded, unbounded};

use crate::collect::collector::{Collector, Command};
use crate::collect::producer::{Line, device_idx, place};
use crate::collect::wakeup::bell;
use crate::collect::work::Work;
use crate::config::fetch::FetchBounds;
use crate::config::run::{ReadConfig, RunConfig};
use crate::devices::reach::{Awaiting, Entrance};
use crate::devices::seat::Seated;
use crate::devices::sources::SourceLoop;
use crate::devices::thread::threaded;
use crate::error::{RuntimeError, no_thread};
use crate::make::backlog::Backlog;
use crate::make::front::{Front, FrontJob, RowLens, front_depth};
use crate::make::transcode::{Transcoding, n_threads};
use crate::make::worker::{Kept, Task, Worker};
use crate::read::fetching::{FetchStage, batches_ahead};
use crate::read::reader::ReadStage;
use crate::read::reader::residency::{Guess, Residency};
use crate::runtime::engine::{
    DeviceBody, Engine, Lent, Shared, Threads, Wake, spawn, spawn_idle, spawn_urgent,
};
use crate::runtime::host::Runtime;
use crate::threads::fork::Home;
use crate::threads::pin::Pins;
use crate::threads::times::Ends;

/// Records that may wait for the workers, for each of them.
const TASK_ROOM: u32 = 16;

/// Long records on their way to workers take one in so many of the bytes that may be fetched ahead, or would be of remote data.
const BACKLOG_PART: usize = 4;

/// What the reader thread takes from, and gives to.
#[derive(Debug)]
struct Lane {
    jobs: Receiver<FrontJob>,
    tasks: Sender<Task>,
    backlog: Arc<Backlog>,
    residency: Arc<Residency>,
    missed: Receiver<Task>,
}

/// Requests for rows that are received in place, which take the jobs of these: as many as are in flight before a link shows
/// that it takes more, and a link that does is slower than a copy.
const REQUESTED_WITH_JOBS: u32 = 64;

/// The most workers whose records, and `depth` that are being read, have buffers.
fn most_workers(depth: u32) -> u32 {
    ReaderConfig::MOST_BUFFERS.saturating_sub(depth + 1) / (TASK_ROOM + 1)
}

/// The reader of a run with so many workers, of which there may be [`most_workers`].
pub(crate) fn reader_of(read: &ReadConfig, workers: u32) -> ReaderConfig {
    let ReadConfig { kind, depth, buffer_bytes, .. } = *read;
    // Every record that is being read, waits, or is being decoded has a buffer.
    let n_buffers = depth + (TASK_ROOM + 1) * workers.min(most_workers(depth)) + 1;
    ReaderConfig { kind, depth, buffer_bytes, n_buffers, ..ReaderConfig::default() }
}

impl Runtime {
    /// The engine, started where it is not.
    ///
    /// # Errors
    /// A thread that cannot be started; a reader that cannot be opened.
    pub(crate) fn engine(&mut self) -> Result<&mut Engine, RuntimeError> {
        if self.engine.as_ref().is_some_and(Engine::has_died) {
            self.stop_engine();
        }
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => self.start_engine()?,
        };
        Ok(self.engine.insert(engine))
    }

    /// Ends the engine, and takes back what its threads had. Epochs that run on it end.
    pub(crate) fn stop_engine(&mut self) {
        let Some(mut engine) = self.engine.take() else { return };
        self.read_before += engine.read_bytes();
        let transports = engine.end().into_iter();
        for (device, transport) in self.devices.iter_mut().zip(transports) {
            device.transport = transport;
        }
    }

    fn start_engine(&mut self) -> Result<Engine, RuntimeError> {
        self.n_engines += 1;
        let (bell, ear) = bell();
        let shared = Shared::new(bell, self.devices.len(), self.notes.0.clone());
        let (commands, commanded) = unbounded();
        let mut engine = Engine {
            home: Home::here(),
            shared: shared.clone(),
            commands,
            read_bytes: Arc::default(),
            devices: self.devices.iter().map(|d| d.presence.clone()).collect(),
            threads: Some(Threads::default()),
        };
        let threads = engine.threads.get_or_insert_default();
        let RunConfig { workers, batch_size, .. } = self.config;
        let requested = match self.source.is_received_in_place() {
            true => REQUESTED_WITH_JOBS.div_ceil(batch_size.max(1)) + 1,
            false => 0,
        };
        let depth = front_depth(workers, batch_size).saturating_add(requested);
        let depth = depth.min(self.room.front);
        let (jobs_in, jobs) = bounded(depth as usize);
        self.spawn_front(jobs, &shared, (&engine.read_bytes, threads))?;
        let lens = match self.source.is_undecoded() {
            true => RowLens::OfFiles(Arc::clone(&self.source)),
            false => RowLens::Every(self.finish.sample_bytes()),
        };
        let bell = shared.bell.clone();
        let front = Front::new(jobs_in, bell, lens, workers, depth);
        let mut lines = vec![Line::new(Prong::Front, Some(Box::new(front)), depth)];
        for device in 0..self.devices.len() {
            let ways = (&shared, &engine.commands);
            lines.push(self.spawn_device(device, ways, threads)?);
            self.spawn_source(device, ways, threads)?;
        }
        let collector = Collector {
            commands: commanded,
            rings: self.rings.clone(),
            lines,
            ear,
            waits: Arc::clone(&shared.waits),
            ahead: shared.ahead.clone(),
            link: shared.link.clone(),
            meter: shared.times.meter(Ends::Both),
            stop: shared.stop.clone(),
            work: Work::after(self.n_engines << 40),
        };
        let collector = spawn(&shared.stop, "collector", move || collector.run())?;
        threads.collector = Some(collector);
        Ok(engine)
    }

    /// The threads of the front.
    fn spawn_front(
        &self,
        jobs: Receiver<FrontJob>,
        shared: &Shared,
        (read_bytes, threads): (&Arc<AtomicU64>, &mut Threads),
    ) -> Result<(), RuntimeError> {
        let n_workers = self.config.workers;
        let (tasks_in, tasks) = bounded((TASK_ROOM * n_workers) as usize);
        let transcoding = Transcoding::new(&self.source, &shared.waits, n_workers);
        for _ in 0..transcoding.as_ref().map_or(0, |_| n_threads(n_workers)) {
            let (transcoding, stop) = (transcoding.clone(), shared.stop.clone());
            let body = move || transcoding.into_iter().for_each(|it| it.run(&stop));
            threads.transcoding.push(spawn_idle(&shared.stop, "transcode", body)?);
        }
        threads.desk.clone_from(&transcoding);
        if let Some(cache) = self.source.remote().and_then(|remote| remote.cache()) {
            let (cache, stop) = (Arc::clone(cache), shared.stop.clone());
            let body = move || cache.run(&stop);
            threads.front.push(spawn(&shared.stop, "cache", body)?);
        }
        let residency = Arc::new(Residency::counting(Arc::clone(read_bytes)));
        let (missed_in, missed) = unbounded();
        let lane = Lane {
            jobs,
            tasks: tasks_in,
            backlog: Arc::new(self.backlog()),
            residency: Arc::clone(&residency),
            missed,
        };
        threads.front.push(self.spawn_reader(lane, shared)?);
        // Emulators choose their own, and other ranks would choose the same.
        let is_alone = self.devices.is_empty()
            && self.config.devices.is_empty()
            && self.config.share.ranks.n() == 1;
        let pins = if is_alone { Pins::new(n_workers) } else { Pins::default() };
        let is_identity = self.finish.is_identity();
        for number in 0..n_workers as usize {
            let pins = pins.clone();
            let worker = Worker {
                source: Arc::clone(&self.source),
                finish: (!is_identity).then(|| Arc::clone(&self.finish)),
                tasks: tasks.clone(),
                residency: Arc::clone(&residency),
                missed: missed_in.clone(),
                chores: shared.chores.clone(),
                transcoding: transcoding.clone(),
                kept: Kept::default(),
                waits: Arc::clone(&shared.waits),
                meter: shared.times.meter(Ends::Front),
                stop: shared.stop.clone(),
            };
            let worker = spawn(&shared.stop, "worker", move || {
                pins.pin(number);
                worker.run()
            });
            threads.workers.push(worker?);
        }
        Ok(())
    }

    /// The thread that brings records, from where they are.
    fn spawn_reader(
        &self,
        lane: Lane,
        shared: &Shared,
    ) -> Result<Lent<()>, RuntimeError> {
        let Lane { jobs, tasks, backlog, residency, missed } = lane;
        let source = Arc::clone(&self.source);
        let meter = shared.times.meter(Ends::Front);
        let stop = shared.stop.clone();
        if let Some(remote) = self.source.remote() {
            let fetcher = Fetcher::start(
                Arc::clone(remote.objects()),
                n_fetch_threads(self.config.workers),
            );
            let fetcher = fetcher.map_err(|source| no_thread("fetch", source))?;
            let n_batches = batches_ahead(&self.fetched, self.config.batch_size);
            shared.ahead.ask_for(n_batches);
            let stage = FetchStage {
                source,
                remote: Arc::clone(remote),
                fetcher,
                room: self.fetched,
                bounds: FetchBounds {
                    requests: remote.most_requests(),
                    ..self.config.read.fetch
                },
                ahead: shared.ahead.clone(),
                jobs,
                tasks,
                backlog,
                read_bytes: Arc::clone(&residency.read_bytes),
                watch: self.fetches.clone(),
                link: shared.link.clone(),
                meter,
                notes: shared.notes.clone(),
                stop,
            };
            return spawn(&shared.stop, "reader", move || stage.run());
        }
        let (reader, notes) = (self.open_reader()?, shared.notes.clone());
        let guess = if source.do_workers_read() { Guess::new() } else { Guess::never() };
        let stage = ReadStage {
            source,
            reader,
            jobs,
            tasks,
            backlog,
            guess,
            n_ahead: self.n_ahead(),
            residency,
            missed,
            meter,
            notes,
            stop,
        };
        spawn(&shared.stop, "reader", move || stage.run())
    }

    /// So many records wait for workers before the reader reads more of what the page cache has. With a processor
    /// of its own it keeps one ready for each, and what it does beyond that it does for them. Without one it
    /// would do nothing that they cannot do themselves, and they would have to bring it from another processor's cache.
    fn n_ahead(&self) -> usize {
        let RunConfig { workers, share, devices, .. } = &self.config;
        let has_own_processor = share.workers() > *workers && devices.is_empty();
        if has_own_processor { *workers as usize } else { usize::MAX }
    }

    /// Bounds what is on its way to the workers of records that have no buffer of the pool's size.
    fn backlog(&self) -> Backlog {
        let RunConfig { workers, memory, read, .. } = &self.config;
        let fetched = self.sizes.fetched_within(*memory, self.available, self.n_devices);
        let most_bytes = (fetched / BACKLOG_PART) as u64;
        Backlog::new(*workers, read.buffer_bytes, most_bytes)
    }

    fn open_reader(&self) -> Result<Box<dyn Reader>, RuntimeError> {
        let workers = self.config.workers;
        let most = most_workers(self.config.read.depth);
        if workers > most {
            return Err(RuntimeError::Workers { given: workers, most });
        }
        Ok(bothends_io::open_reader(&reader_of(&self.config.read, workers))?)
    }

    /// The thread of a device, and the collector's line to it. One that is missing and may come
    /// has a thread, too.
    fn spawn_device(
        &mut self,
        number: usize,
        (shared, commands): (&Shared, &Sender<Command>),
        threads: &mut Threads,
    ) -> Result<Line, RuntimeError> {
        let device = &mut self.devices[number];
        let (prong, depth) = (Prong::Back(device_idx(number)), device.presence.depth());
        let meter = Arc::new(shared.times.meter(Ends::Back(number)));
        let (mut producer, mut its) = (None, None);
        let is_expelled = device.presence.is_expelled();
        if let Some(transport) = device.transport.take().filter(|_| !is_expelled) {
            let ends = (shared.bell.clone(), Arc::clone(&meter), shared.stop.clone());
            let (ours, serving) = threaded(transport, depth, ends);
            device.presence.counted_by(ours.counter());
            producer = Some(Box::new(ours) as Box<dyn Producer>);
            its = Some(serving);
        }
        let entrance = Entrance {
            presence: device.presence.clone(),
            line: place(prong),
            commands: commands.clone(),
            bell: shared.bell.clone(),
            meter,
            stop: shared.stop.clone(),
        };
        let spawned = |body| spawn_urgent(&shared.stop, "device", body);
        let ways = (device.reach.clone(), device.seat.clone());
        let body: Option<DeviceBody> = match (ways, its) {
            _ if is_expelled => None,
            ((_, Some(seat)), its) => {
                let hold = match its {
                    Some(_) => seat.roster.hold(seat.place),
                    None => seat.roster.is_cut_off(seat.place),
                };
                let seated = Seated { seat, hold, entrance };
                Some(Box::new(move || seated.run(its)))
            }
            ((Some(reach), None), its) => {
                let awaiting = Awaiting { reach, begun: device.begun.take(), entrance };
                Some(Box::new(move || awaiting.run(its)))
            }
            ((None, None), Some(its)) => {
                let (presence, stop) = (device.presence.clone(), shared.stop.clone());
                Some(Box::new(move || {
                    let served = its.run();
                    if let Some(why) = served.as_ref().err().filter(|_| !stop.is_set()) {
                        presence.is_missing(why.clone());
                    }
                    served
                }))
            }
            ((None, None), None) => None,
        };
        threads.devices.push(body.map(spawned).transpose()?);
        Ok(Line::new(prong, producer, depth).of(device.presence.clone()))
    }

    /// The thread that keeps a pool's list up to date, where this device is the first of its places.
    fn spawn_source(
        &self,
        number: usize,
        (shared, commands): (&Shared, &Sender<Command>),
        threads: &mut Threads,
    ) -> Result<(), RuntimeError> {
        let seat = self.devices[number].seat.as_ref().filter(|seat| seat.place == 0);
        let Some(seat) = seat else { return Ok(()) };
        let source = SourceLoop {
            roster: seat.roster.clone(),
            options: seat.options.clone(),
            names: self.config.names,
            first_line: place(Prong::Back(device_idx(number))),
            commands: commands.clone(),
            bell: shared.bell.clone(),
            notes: shared.notes.clone(),
            stop: shared.stop.clone(),
        };
        let roster = seat.roster.clone();
        threads.wakes.push(Wake(Box::new(move || roster.wake_all())));
        threads.sources.push(spawn(&shared.stop, "source", move || source.run())?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_workers_have_buffers_and_one_more_has_none() {
        for depth in [1, 16, 4096] {
            let buffers = |workers: u32| depth + (TASK_ROOM + 1) * workers + 1;
            let most = most_workers(depth);
            assert!(buffers(most) <= ReaderConfig::MOST_BUFFERS);
            assert!(buffers(most + 1) > ReaderConfig::MOST_BUFFERS);
        }
    }
}
