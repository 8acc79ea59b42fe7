//! Starting an epoch: its queues, its threads, and what each of them is given.
//!
//! The only place where front, back, collector and feed are joined, and they are joined by
//! queues alone. What a loop does is in its own file.

use std::sync::{Arc, Mutex};

use bothends_core::epoch::{
    DeviceConfig, EpochConfig, EpochState, FrontConfig, Recovery,
};
use bothends_core::ids::Prong;
use bothends_core::plan::Plan;
use bothends_core::recipe::Size;
use bothends_figures::Stall;
use bothends_io::{Reader, ReaderConfig};
use bothends_ops::Scratch;
use bothends_slots::Producer;
use crossbeam::channel::{Receiver, bounded};

use crate::collect::bell::{Bell, bell};
use crate::collect::clock::Clock;
use crate::collect::collector::{Collector, FEED_ROOM, Under, device_idx};
use crate::collect::line::Line;
use crate::collect::log::{EventLog, MOMENT_ROOM};
use crate::collect::stall::StallGauge;
use crate::config::run::ReadConfig;
use crate::devices::spec::DeviceProcess;
use crate::devices::thread::threaded;
use crate::error::RuntimeError;
use crate::handover::epoch::{
    DeviceThread, Epoch, Lent, Remains, Returned, Threads, spawn,
};
use crate::handover::finish::{Feed, FeedAccount, FeedLinks, Mixing};
use crate::handover::report::EpochReport;
use crate::make::front::{FRONT_DEPTH, Front, FrontJob};
use crate::make::worker::Worker;
use crate::read::reader::ReadStage;
use crate::runtime::host::{EpochOptions, Runtime};
use crate::runtime::memory::DEVICE_DEPTH;
use crate::threads::home::Home;
use crate::threads::pin::Pins;
use crate::threads::shutdown::Stop;
use crate::threads::times::{Ends, ThreadTimes};

/// Batches behind the feed: one ready while the consumer has another.
const READY_ROOM: usize = 1;

/// Records that may wait for the workers, for each of them.
const TASK_ROOM: u32 = 16;

/// Reader and workers.
type FrontThreads = (Lent<Box<dyn Reader>>, Vec<Lent<Scratch>>);

/// What every thread of an epoch is given.
#[derive(Debug, Clone)]
struct Shared {
    bell: Bell,
    stop: Stop,
    times: ThreadTimes,
    gauge: Arc<StallGauge>,
}

impl Shared {
    /// Starts one of the epoch's threads.
    fn spawn<T: Send + 'static>(
        &self,
        name: &'static str,
        ends: Ends,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Lent<T>, RuntimeError> {
        spawn(name, &self.stop, self.times.timer(ends), body)
    }
}

impl Runtime {
    /// Starts an epoch. One at a time: end it with [`Self::finish_epoch`]. Dropping the
    /// epoch instead loses the devices' connections.
    ///
    /// # Errors
    /// A plan that makes no sense, or a thread that cannot be started.
    pub fn start_epoch(&mut self, options: &EpochOptions) -> Result<Epoch, RuntimeError> {
        let plan = Arc::new(self.plan(options)?);
        self.read_bytes = self.storage_read_bytes();
        self.n_started += 1;
        let (bell, ear) = bell();
        let times = ThreadTimes::new(self.devices.len());
        let shared = Shared { bell, stop: Stop::default(), times, gauge: Arc::default() };
        let (made_in, made) = bounded(FEED_ROOM + 1);
        let (ready_in, ready) = bounded(READY_ROOM);
        let (jobs_in, jobs) = bounded(FRONT_DEPTH as usize);
        let (moments_in, moments) = bounded(MOMENT_ROOM);
        let account = Arc::new(Mutex::new(FeedAccount::default()));

        let (reader, workers) = self.spawn_front(jobs, &shared)?;
        let sample_bytes = self.source.pipeline.sample_bytes();
        let front =
            Front::new(jobs_in, shared.bell.clone(), sample_bytes, self.config.workers);
        let mut lines = vec![Line::new(Prong::Front, Some(Box::new(front)), FRONT_DEPTH)];
        let devices = self.spawn_back(&shared, &mut lines)?;
        let feed = Feed {
            source: Arc::clone(&self.source),
            epoch: options.epoch,
            plan: Arc::clone(&plan),
            finish: Arc::clone(&self.finish),
            mixing: self.mixing(),
            converted: self.converted.clone(),
            redecoder: self.config.redecoder.clone(),
            on_bad: self.config.on_bad,
            audit_percent: self.config.audit_percent,
            devices: self.devices.iter().map(|d| d.name.clone()).collect(),
            links: FeedLinks { made, ready: ready_in, bell: shared.bell.clone() },
            account: Arc::clone(&account),
            gauge: Arc::clone(&shared.gauge),
            stop: shared.stop.clone(),
        };
        let feed = shared.spawn("feed", Ends::Both, move || feed.run())?;
        let collector = Collector {
            epoch: EpochState::new(self.epoch_config(&plan, options)),
            epoch_idx: options.epoch,
            ring: self.ring.clone(),
            lines,
            feed: made_in,
            ear,
            clock: Clock::start(),
            gauge: Arc::clone(&shared.gauge),
            log: EventLog::watched(moments_in),
            stop: shared.stop.clone(),
            under: Under::after(self.n_started << 32),
            plan: Arc::clone(&plan),
            keeps_order: options.strategy.keeps_order(),
        };
        let collector = shared.spawn("collector", Ends::Both, move || collector.run())?;
        Ok(Epoch {
            ready,
            moments,
            gauge: shared.gauge,
            account,
            stop: shared.stop,
            times: shared.times,
            threads: Some(Threads { reader, workers, devices, collector, feed }),
            n_batches: plan.n_batches(),
            slots: self.ring.n_slots(),
            stall: Stall::default(),
            home: Home::here(),
            waiting_since: None,
            ended: false,
        })
    }

    fn mixing(&self) -> Mixing {
        let views = self.source.pipeline.views().shapes();
        let size = views.first().map_or(Size { height: 0, width: 0 }, |shape| Size {
            height: shape.height,
            width: shape.width,
        });
        Mixing { recipe: self.config.recipe.clone(), size }
    }

    /// Ends an epoch (cancelling what is left of it), joins its threads and takes back what
    /// they were lent.
    pub fn finish_epoch(&mut self, epoch: Epoch) -> EpochReport {
        let mut remains = epoch.end();
        if let Some(index) = self.source.side_index() {
            index.publish();
        }
        self.reader = remains.reader.take();
        self.scratches.append(&mut remains.scratches);
        self.take_back(&mut remains);
        if let Some(collected) = &remains.collected {
            self.front_prior_ns = collected.front.mean_ns.or(self.front_prior_ns);
            for (device, line) in self.devices.iter_mut().zip(&collected.back) {
                device.prior_ns = line.mean_ns.or(device.prior_ns);
                device.is_silent = line.is_silent;
            }
        }
        EpochReport::new(remains)
    }

    /// Takes the devices back, and names those that were lost, also where the epoch was over
    /// before anybody noticed.
    fn take_back(&mut self, remains: &mut Remains) {
        let mut returned = std::mem::take(&mut remains.devices).into_iter();
        for (i, device) in self.devices.iter_mut().enumerate() {
            let mut lost = None;
            match returned.next().unwrap_or(Returned::Absent) {
                Returned::Well(transport) => device.transport = Some(transport),
                Returned::Lost(why) => lost = Some(why),
                Returned::Absent => {}
                Returned::Busy(thread) => device.busy = Some(thread),
            }
            if let Some(status) = device.process.as_mut().and_then(DeviceProcess::ended) {
                device.transport = None;
                lost.get_or_insert(format!("its process ended ({status})"));
            }
            let lines = remains.collected.as_mut().map(|collected| &mut collected.back);
            if let Some(line) = lines.and_then(|back| back.get_mut(i)) {
                line.lost = line.lost.take().or(lost);
            }
        }
    }

    /// The threads of the front.
    fn spawn_front(
        &mut self,
        jobs: Receiver<FrontJob>,
        shared: &Shared,
    ) -> Result<FrontThreads, RuntimeError> {
        let (tasks_in, tasks) = bounded((TASK_ROOM * self.config.workers) as usize);
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.open_reader()?,
        };
        let stage = ReadStage {
            source: Arc::clone(&self.source),
            reader,
            jobs,
            tasks: tasks_in,
            stop: shared.stop.clone(),
        };
        let reader = shared.spawn("reader", Ends::Front, move || stage.run())?;
        let pins = if self.config.devices.is_empty() {
            Pins::new(self.config.workers)
        } else {
            Pins::default()
        };
        let workers = (0..self.config.workers as usize)
            .map(|number| {
                let pins = pins.clone();
                let worker = Worker {
                    source: Arc::clone(&self.source),
                    tasks: tasks.clone(),
                    scratch: self.scratches.pop().unwrap_or_default(),
                    note: Vec::new(),
                    gauge: Arc::clone(&shared.gauge),
                    stop: shared.stop.clone(),
                };
                shared.spawn("worker", Ends::Front, move || {
                    pins.pin(number);
                    worker.run()
                })
            })
            .collect::<Result<_, _>>()?;
        Ok((reader, workers))
    }

    fn open_reader(&self) -> Result<Box<dyn Reader>, RuntimeError> {
        let ReadConfig { kind, depth, buffer_bytes, .. } = self.config.read;
        // Every record that is being read, waits, or is being decoded has a buffer.
        let n_buffers = depth + (TASK_ROOM + 1) * self.config.workers + 1;
        let defaults = ReaderConfig::default();
        let config = ReaderConfig { kind, depth, buffer_bytes, n_buffers, ..defaults };
        Ok(bothends_io::open_reader(&config)?)
    }

    /// The threads of the back; the collector's lines to them are added to `lines`.
    fn spawn_back(
        &mut self,
        shared: &Shared,
        lines: &mut Vec<Line>,
    ) -> Result<Vec<Option<DeviceThread>>, RuntimeError> {
        let mut threads = Vec::new();
        for (i, device) in self.devices.iter_mut().enumerate() {
            let depth = device.capabilities.slots.clamp(1, DEVICE_DEPTH);
            let (mut producer, mut thread) = (None, None);
            if let Some(transport) = device.take_transport() {
                let ends = (shared.bell.clone(), shared.stop.clone());
                let (ours, its) = threaded(transport, depth, ends);
                thread = Some(shared.spawn("device", Ends::Back(i), move || its.run())?);
                producer = Some(Box::new(ours) as Box<dyn Producer>);
            }
            lines.push(Line::new(Prong::Back(device_idx(i)), producer, depth));
            threads.push(thread);
        }
        Ok(threads)
    }

    fn epoch_config(&self, plan: &Plan, options: &EpochOptions) -> EpochConfig {
        let devices = self.devices.iter().map(|device| DeviceConfig {
            slots: device.capabilities.slots.clamp(1, DEVICE_DEPTH),
            buffer: self.room.per_device,
            prior_ns: device.prior_ns,
            shard: None,
        });
        EpochConfig {
            n_batches: plan.n_batches(),
            strategy: options.strategy,
            objective: self.config.objective,
            shards: 1,
            // All workers share a batch, so the front makes one at a time at its full rate.
            front: FrontConfig {
                parallel: 1,
                quota: self.room.front,
                prior_ns: self.front_prior_ns,
            },
            devices: devices.collect(),
            accelerator_ns: options.accelerator_ns,
            done: options.done.clone(),
            recovery: Recovery::On,
        }
    }
}
