//! The engine: the threads that outlive an epoch, each with a name, one loop and this owner, which
//! joins it.
//!
//! What a loop does is in its own file (`read/reader.rs`, `make/worker.rs`, `devices/thread.rs`,
//! `collect/collector.rs`); how they end in `threads/shutdown.rs`; how they are put together in
//! `runtime/assembly.rs`.

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bothends_csd::{DeviceStats, Transport};
use crossbeam::channel::Sender;

use crate::collect::collector::Command;
use crate::collect::link::LinkWatch;
use crate::collect::stall::WaitClock;
use crate::collect::wakeup::Bell;
use crate::devices::presence::Presence;
use crate::devices::thread::Counter;
use crate::error::{RuntimeError, no_thread};
use crate::handover::batch::release::Returning;
use crate::make::chores::Chores;
use crate::make::transcode::Transcoding;
use crate::make::worker::Kept;
use crate::read::lookahead::Ahead;
use crate::threads::fork::Home;
use crate::threads::join::{LEAVE_AFTER, join_by, note_left};
use crate::threads::priority::{make_way, stand_back};
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::ThreadTimes;

/// How long devices' threads may take to hand their transports back: each looks at the stop flag
/// once in [`PATIENCE`], unless an answer keeps it.
const RETURN_TIMEOUT: Duration = PATIENCE.saturating_mul(5);

/// How long threads that run only where no other wants to may take to end.
const IDLE_LEAVE_AFTER: Duration = Duration::from_secs(1);

/// How long all devices together may take to say what they have counted.
const STATS_TIMEOUT: Duration = Duration::from_secs(1);

/// A thread that hands something back; `None` when it panicked.
pub(crate) type Lent<T> = JoinHandle<Option<T>>;

/// What it runs.
pub(crate) type DeviceBody =
    Box<dyn FnOnce() -> Result<Box<dyn Transport>, String> + Send>;

/// A device's thread; the inner error says why the device is lost.
pub(crate) type DeviceThread = Lent<Result<Box<dyn Transport>, String>>;

/// What every thread of an engine is given.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) bell: Bell,
    pub(crate) stop: Stop,
    pub(crate) times: ThreadTimes,
    pub(crate) waits: Arc<WaitClock>,
    /// Batches that the device keeps.
    pub(crate) returning: Returning,
    pub(crate) chores: Chores,
    /// What the front makes next, for a reader that fetches far ahead.
    pub(crate) ahead: Ahead,
    /// The link that they are fetched over.
    pub(crate) link: LinkWatch,
    /// What the user should know.
    pub(crate) notes: Sender<String>,
}

impl Shared {
    pub(crate) fn new(bell: Bell, n_devices: usize, notes: Sender<String>) -> Self {
        Self {
            returning: Returning::new(bell.clone()),
            bell,
            stop: Stop::default(),
            times: ThreadTimes::new(n_devices),
            waits: Arc::default(),
            chores: Chores::default(),
            ahead: Ahead::default(),
            link: LinkWatch::default(),
            notes,
        }
    }
}

/// Starts a thread that makes way for the one that trains.
pub(crate) fn spawn<T: Send + 'static>(
    stop: &Stop,
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<Lent<T>, RuntimeError> {
    spawn_urgent(stop, name, move || {
        make_way();
        body()
    })
}

/// Starts a thread that runs only where no other wants to.
pub(crate) fn spawn_idle<T: Send + 'static>(
    stop: &Stop,
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<Lent<T>, RuntimeError> {
    spawn_urgent(stop, name, move || {
        stand_back();
        body()
    })
}

/// Starts a thread: it has a name, and its panic becomes an error of what `stop` ends instead of
/// a hang. It keeps the policy of the process, so that it runs as soon as it is woken: for
/// threads that drain a socket, whose sender stands still once a buffer is full.
pub(crate) fn spawn_urgent<T: Send + 'static>(
    stop: &Stop,
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<Lent<T>, RuntimeError> {
    let stop = stop.clone();
    std::thread::Builder::new()
        .name(format!("be-{name}"))
        .spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(body));
            if ended.is_err() {
                stop.died(name);
            }
            ended.ok()
        })
        .map_err(|source| no_thread(name, source))
}

/// Has threads that wait for something of their own look whether they are to end.
pub(crate) struct Wake(pub(crate) Box<dyn Fn() + Send>);

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

/// The running threads.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) home: Home,
    pub(crate) shared: Shared,
    pub(crate) commands: Sender<Command>,
    pub(crate) read_bytes: Arc<AtomicU64>,
    pub(crate) devices: Vec<Presence>,
    /// Some until they are joined.
    pub(crate) threads: Option<Threads>,
}

#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub(crate) front: Vec<Lent<()>>,
    pub(crate) workers: Vec<Lent<Kept>>,
    pub(crate) transcoding: Vec<Lent<()>>,
    /// The lists of pools' members, and who waits for one of these.
    pub(crate) sources: Vec<Lent<()>>,
    pub(crate) wakes: Vec<Wake>,
    /// What those and the workers share.
    pub(crate) desk: Option<Transcoding>,
    pub(crate) devices: Vec<Option<DeviceThread>>,
    pub(crate) collector: Option<Lent<()>>,
}

impl Engine {
    /// Bytes that its reader has read from storage.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Whether a thread of it has panicked.
    pub(crate) fn has_died(&self) -> bool {
        self.shared.stop.is_set()
    }

    /// What each device has counted since it started, as it says; `None` of one that does not in
    /// a second.
    pub(crate) fn device_stats(&mut self) -> Vec<Option<DeviceStats>> {
        for device in &self.devices {
            device.counter(Counter::ask);
        }
        let by = Instant::now() + STATS_TIMEOUT;
        let devices = self.devices.iter();
        devices.map(|device| device.counter(|c| c.answer(by)).flatten()).collect()
    }

    /// Ends all threads. The ways to the devices that are well, in their order.
    pub(crate) fn end(&mut self) -> Vec<Option<Box<dyn Transport>>> {
        let Some(threads) = self.threads.take() else { return Vec::new() };
        if !self.home.is_here() {
            // A child process has the memory of these threads and not the threads.
            let _ = ManuallyDrop::new(threads);
            return Vec::new();
        }
        self.shared.stop.set();
        self.shared.bell.ring();
        let by = Instant::now() + LEAVE_AFTER;
        if let Some(desk) = &threads.desk {
            desk.wake_all();
        }
        threads.wakes.iter().for_each(|wake| (wake.0)());
        self.join("collector", threads.collector, by);
        self.join("reader", threads.front, by);
        self.join("worker", threads.workers, by);
        self.join("source", threads.sources, by);
        // On a busy machine one may not get to its end for long; it holds nothing of an epoch.
        let by = Instant::now() + IDLE_LEAVE_AFTER;
        threads.transcoding.into_iter().for_each(|thread| drop(join_by(thread, by)));
        // Each at once: a pool may have many members that say nothing.
        let by = Instant::now() + RETURN_TIMEOUT;
        let devices = threads.devices.into_iter();
        devices.map(|thread| returned(thread?, by)).collect()
    }
}

impl Engine {
    /// Joins threads that go by one name, and says so where some did not end.
    fn join<T>(
        &self,
        name: &str,
        threads: impl IntoIterator<Item = Lent<T>>,
        by: Instant,
    ) {
        // A panicked thread has been reported through `Stop`; what it held is gone.
        let left = threads.into_iter().filter_map(|thread| match join_by(thread, by) {
            Some(_) => None,
            None => Some(()),
        });
        let n_left = left.count();
        if n_left > 0 {
            note_left(&self.shared.notes, name, n_left);
        }
    }
}

/// What a device's thread has to give by then; one that has not ended is in the middle of an answer
/// that does not come, and ends by itself at the transport's own deadline.
fn returned(thread: DeviceThread, by: Instant) -> Option<Box<dyn Transport>> {
    let joined = join_by(thread, by)?;
    joined.ok().flatten().and_then(Result::ok)
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end();
    }
}
