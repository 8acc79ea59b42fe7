//! A running epoch: its threads, and the consumer's end of it.
//!
//! Every thread has a name, one loop and this owner, which joins it. What each loop does is
//! in `collect/collector.rs`, `make/front.rs`, `devices/thread.rs` and `handover/finish.rs`; how they end in `threads/shutdown.rs`.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bothends_csd::Transport;
use bothends_figures::{Moment, Stall};
use bothends_io::Reader;
use bothends_ops::Scratch;
use crossbeam::channel::{Receiver, RecvTimeoutError};

use crate::collect::collector::Collected;
use crate::collect::stall::{LOOK, StallGauge};
use crate::error::RuntimeError;
use crate::handover::batch::Batch;
use crate::handover::finish::FeedAccount;
use crate::threads::home::Home;
use crate::threads::make_way::make_way;
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::{ThreadSeconds, ThreadTimer, ThreadTimes};

/// How long the consumer waits with nothing under way before it is told that it keeps every
/// slot itself.
const STARVED_AFTER: Duration = Duration::from_secs(2);

/// How long a device's thread may take to hand its transport back: it looks at the stop flag
/// once in [`PATIENCE`], unless an answer keeps it.
const RETURN_TIMEOUT: Duration = PATIENCE.saturating_mul(5);

/// A thread that hands its tool back; `None` when it panicked.
pub(crate) type Lent<T> = JoinHandle<Option<T>>;

/// A device's thread; the inner error says why the device is lost.
pub(crate) type DeviceThread = Lent<Result<Box<dyn Transport>, String>>;

/// The threads of an epoch and what they hand back.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) reader: Lent<Box<dyn Reader>>,
    pub(crate) workers: Vec<Lent<Scratch>>,
    pub(crate) devices: Vec<Option<DeviceThread>>,
    pub(crate) collector: Lent<Collected>,
    pub(crate) feed: Lent<()>,
}

/// Starts a named thread whose panic becomes an error of the epoch instead of a hang; `timer`
/// says what it used once it has ended.
pub(crate) fn spawn<T: Send + 'static>(
    name: &'static str,
    stop: &Stop,
    timer: ThreadTimer,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<Lent<T>, RuntimeError> {
    let stop = stop.clone();
    std::thread::Builder::new()
        .name(format!("be-{name}"))
        .spawn(move || {
            make_way();
            let ended = catch_unwind(AssertUnwindSafe(body));
            timer.end();
            if ended.is_err() {
                stop.died(name);
            }
            ended.ok()
        })
        .map_err(|source| RuntimeError::Spawning { thread: name, source })
}

/// One epoch being delivered. Dropping it cancels it.
#[derive(Debug)]
pub struct Epoch {
    pub(crate) ready: Receiver<Result<Batch, RuntimeError>>,
    /// What happens to batches, for whoever watches.
    pub(crate) moments: Receiver<Moment>,
    pub(crate) gauge: Arc<StallGauge>,
    pub(crate) account: Arc<Mutex<FeedAccount>>,
    pub(crate) stop: Stop,
    pub(crate) times: ThreadTimes,
    pub(crate) home: Home,
    pub(crate) threads: Option<Threads>,
    pub(crate) n_batches: u32,
    pub(crate) slots: u32,
    pub(crate) stall: Stall,
    /// Since when the consumer waits without a break, over all its calls.
    pub(crate) waiting_since: Option<Instant>,
    pub(crate) ended: bool,
}

/// What a consumer that waits for a stated time finds.
#[derive(Debug)]
pub enum Polled {
    /// The next batch.
    Batch(Batch),
    /// Not yet: ask again.
    Pending,
    /// There is none any more.
    End,
}

/// What a device's thread gave back.
#[derive(Debug)]
pub(crate) enum Returned {
    /// The way to the device.
    Well(Box<dyn Transport>),
    /// The device was lost, and why.
    Lost(String),
    /// It was lost before, and had no thread.
    Absent,
    /// The thread is in the middle of an answer that does not come. It ends by itself, at
    /// the transport's own deadline; nobody waits for it.
    Busy(DeviceThread),
}

impl Returned {
    /// What the thread has to give, after [`RETURN_TIMEOUT`] at most.
    fn from_thread(thread: DeviceThread) -> Self {
        let deadline = Instant::now() + RETURN_TIMEOUT;
        while !thread.is_finished() {
            if Instant::now() > deadline {
                return Self::Busy(thread);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match thread.join().ok().flatten() {
            Some(Ok(transport)) => Self::Well(transport),
            Some(Err(why)) => Self::Lost(why),
            None => Self::Lost("its thread ended unexpectedly".to_owned()),
        }
    }
}

/// What remains of an epoch.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) reader: Option<Box<dyn Reader>>,
    /// What the workers keep from sample to sample.
    pub(crate) scratches: Vec<Scratch>,
    /// In the order of the devices; empty when a thread died.
    pub(crate) devices: Vec<Returned>,
    pub(crate) collected: Option<Collected>,
    pub(crate) account: FeedAccount,
    pub(crate) stall: Stall,
    pub(crate) cpu: ThreadSeconds,
}

impl Epoch {
    /// Batches that this epoch delivers (fewer when resumed).
    #[must_use]
    pub fn n_batches(&self) -> u32 {
        self.n_batches
    }

    /// Waits for the next batch; `None` at the end, after an error, and ever after. Blocks
    /// until a batch is there; a prong that fails is replaced, so it does not block for ever.
    ///
    /// # Errors
    /// What no policy covers, once, after the batches that were ready before it.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, RuntimeError> {
        loop {
            match self.poll_batch(PATIENCE)? {
                Polled::Batch(batch) => return Ok(Some(batch)),
                Polled::Pending => {}
                Polled::End => return Ok(None),
            }
        }
    }

    /// As [`Self::next_batch`], but waits for `patience` at most: for callers that have
    /// something else to look at meanwhile.
    ///
    /// # Errors
    /// As [`Self::next_batch`].
    pub fn poll_batch(&mut self, patience: Duration) -> Result<Polled, RuntimeError> {
        if self.ended {
            return Ok(Polled::End);
        }
        let began = Instant::now();
        let waiting_since = *self.waiting_since.get_or_insert(began);
        let mut looked = began;
        loop {
            let left = patience.saturating_sub(looked - began);
            let received = self.ready.recv_timeout(LOOK.min(left));
            let now = Instant::now();
            self.gauge.charge(&mut self.stall, now - looked);
            looked = now;
            match received {
                Ok(batch) => {
                    self.waiting_since = None;
                    self.ended = batch.is_err();
                    return batch.map(Polled::Batch);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    return match self.stop.dead_thread() {
                        Some(thread) => Err(RuntimeError::Thread { thread }),
                        None => Ok(Polled::End),
                    };
                }
                Err(RecvTimeoutError::Timeout) => {
                    let waited = now - waiting_since;
                    if self.gauge.is_starved() && waited > STARVED_AFTER {
                        self.ended = true;
                        return Err(RuntimeError::Starved { slots: self.slots });
                    }
                    if now - began >= patience {
                        return Ok(Polled::Pending);
                    }
                }
            }
        }
    }

    /// Stops what still runs and joins every thread.
    pub(crate) fn end(mut self) -> Remains {
        self.close().unwrap_or_else(|| Remains {
            reader: None,
            scratches: Vec::new(),
            devices: Vec::new(),
            collected: None,
            account: FeedAccount::default(),
            stall: self.stall,
            cpu: self.times.seconds(),
        })
    }

    fn close(&mut self) -> Option<Remains> {
        let threads = self.threads.take()?;
        if !self.home.is_here() {
            // A child process has the memory of these threads and not the threads.
            let _ = ManuallyDrop::new(threads);
            return None;
        }
        self.stop.set();
        // A panicked thread has been reported through `Stop`; what it held is gone.
        let collected = threads.collector.join().ok().flatten();
        let reader = threads.reader.join().ok().flatten();
        let workers = threads.workers.into_iter();
        let scratches = workers.filter_map(|worker| worker.join().ok().flatten());
        let scratches = scratches.collect();
        let _ = threads.feed.join();
        let devices = threads.devices.into_iter();
        let devices = devices.map(|t| t.map_or(Returned::Absent, Returned::from_thread));
        let devices = devices.collect();
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let account = std::mem::take(&mut *account);
        let (stall, cpu) = (self.stall, self.times.seconds());
        Some(Remains { reader, scratches, devices, collected, account, stall, cpu })
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.close();
    }
}
