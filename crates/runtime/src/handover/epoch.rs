//! A running epoch: the consumer's end of it.
//!
//! What makes its batches outlives it (`runtime/engine.rs`); its own is a thread that hands over
//! (`handover/finish.rs`). How it ends is in `threads/shutdown.rs`.

pub(crate) mod starvation;

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bothends_figures::{Moment, Stall};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::collect::collector::Command;
use crate::collect::in_flight::{Collected, EpochNumber};
use crate::collect::stall::WaitClock;
use crate::collect::wakeup::{Bell, receive};
use crate::error::RuntimeError;
use crate::handover::account::FeedAccount;
use crate::handover::batch::Batch;
use crate::handover::batch::release::Returning;
use crate::handover::gpu::target::GpuTarget;
use crate::runtime::engine::Lent;
use crate::threads::fork::Home;
use crate::threads::join::{LEAVE_AFTER, join_by, note_left};
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::{ThreadSeconds, ThreadTimes};

use self::starvation::{Keeper, Lack};

/// The way to the collector.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) commands: Sender<Command>,
    pub(crate) bell: Bell,
    pub(crate) number: EpochNumber,
    /// What the user should know.
    pub(crate) notes: Sender<String>,
}

impl Ways {
    /// Tells the collector; one that is gone need not know.
    pub(crate) fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
        self.bell.ring();
    }
}

/// One epoch being delivered. Dropping it cancels it.
#[derive(Debug)]
pub struct Epoch {
    /// `None` once it has been closed.
    pub(crate) ready: Option<Receiver<Result<Batch, RuntimeError>>>,
    /// What happens to batches, for whoever watches.
    pub(crate) moments: Receiver<Moment>,
    pub(crate) waits: Arc<WaitClock>,
    pub(crate) returning: Returning,
    pub(crate) account: Arc<Mutex<FeedAccount>>,
    pub(crate) stop: Stop,
    pub(crate) times: ThreadTimes,
    /// What threads had used when its consumers began to want it.
    pub(crate) used_before: ThreadSeconds,
    pub(crate) ways: Ways,
    pub(crate) home: Home,
    /// The thread that hands over; `None` once it has been joined.
    pub(crate) feed: Option<Lent<()>>,
    pub(crate) n_batches: u32,
    /// Those that have not been handed over.
    pub(crate) n_left: u32,
    pub(crate) slots: u32,
    /// The GPU that its batches go to, or are pinned for.
    pub(crate) gpu: Option<GpuTarget>,
    pub(crate) stall: Stall,
    /// Since when the consumer waits without a break, over all its calls.
    pub(crate) waiting_since: Option<Instant>,
    /// Why nothing goes on meanwhile.
    pub(crate) lack: Lack,
    pub(crate) ended: bool,
}

/// What a consumer that waits for a stated time finds.
#[derive(Debug)]
pub enum Polled<B = Batch> {
    /// The next batch.
    Batch(B),
    /// Not yet: ask again.
    Pending,
    /// There is none any more.
    End,
}

impl<B> Polled<B> {
    /// The same with what `form` makes of the batch.
    #[must_use]
    pub fn map<C>(self, form: impl FnOnce(B) -> C) -> Polled<C> {
        match self {
            Self::Batch(batch) => Polled::Batch(form(batch)),
            Self::Pending => Polled::Pending,
            Self::End => Polled::End,
        }
    }

    /// The batches that `poll` finds, one after another, each waited for without end; an error is the last item.
    pub(crate) fn batches(
        mut poll: impl FnMut() -> Result<Self, RuntimeError>,
    ) -> impl Iterator<Item = Result<B, RuntimeError>> {
        let mut has_failed = false;
        std::iter::from_fn(move || {
            while !has_failed {
                match poll() {
                    Ok(Self::Batch(batch)) => return Some(Ok(batch)),
                    Ok(Self::Pending) => {}
                    Ok(Self::End) => return None,
                    Err(error) => {
                        has_failed = true;
                        return Some(Err(error));
                    }
                }
            }
            None
        })
    }
}

/// What remains of an epoch.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// `None` when a thread died.
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
    /// until a batch is there; a prong that fails is replaced, so it does not block forever.
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
        self.poll_while_kept(patience, Keeper::Consumers)
    }

    /// The same where the slots of batches that have left the epoch are kept by that one.
    pub(crate) fn poll_while_kept(
        &mut self,
        patience: Duration,
        keeper: Keeper,
    ) -> Result<Polled, RuntimeError> {
        if self.ended {
            return Ok(Polled::End);
        }
        let Some(ready) = &self.ready else { return Ok(Polled::End) };
        let began = Instant::now();
        let waiting_since = *self.waiting_since.get_or_insert(began);
        loop {
            let left = patience.saturating_sub(began.elapsed());
            let before = self.waits.read();
            let received = receive(ready, left.min(PATIENCE));
            self.stall += self.waits.read() - before;
            match received {
                Ok(batch) => {
                    self.waiting_since = None;
                    self.lack = Lack::default();
                    self.ended = batch.is_err();
                    self.n_left = self.n_left.saturating_sub(1);
                    return batch.map(Polled::Batch);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    // Looked at first: who dies is written before it.
                    let is_stopped = self.stop.is_set();
                    return match self.stop.dead_thread() {
                        Some(thread) => Err(RuntimeError::Thread { thread }),
                        // It has died, and has not yet come to say so.
                        None if self.n_left > 0 && !is_stopped => {
                            Err(RuntimeError::Thread { thread: "feed" })
                        }
                        None => Ok(Polled::End),
                    };
                }
                Err(RecvTimeoutError::Timeout) => {
                    let is_starved = self.waits.is_starved();
                    let keeper = is_starved.then(|| self.keeper(keeper));
                    let what = (self.gpu.as_ref(), self.slots);
                    let times = (waiting_since, Instant::now());
                    if let Some(error) = self.lack.look(keeper, times, what) {
                        self.ended = true;
                        return Err(error);
                    }
                    if left <= PATIENCE {
                        return Ok(Polled::Pending);
                    }
                }
            }
        }
    }

    /// Who keeps slots: what was given back for the device to be done with comes by itself. What other loaders
    /// gave back is no matter.
    fn keeper(&self, otherwise: Keeper) -> Keeper {
        if let Some(gpu) = &self.gpu {
            gpu.sweep();
        }
        match self.returning.n() {
            0 => otherwise,
            _ => Keeper::Device,
        }
    }

    /// The next batch where it lies ready, for callers that have something else to do otherwise: that
    /// nothing does is no wait of theirs.
    pub(crate) fn look_for_batch(&mut self) -> Result<Polled, RuntimeError> {
        let waiting_since = self.waiting_since;
        let polled = self.poll_batch(Duration::ZERO);
        if matches!(polled, Ok(Polled::Pending)) {
            self.waiting_since = waiting_since;
            self.lack = Lack::default();
        }
        polled
    }

    /// Its consumers want it from now on.
    pub(crate) fn want(&mut self) {
        self.used_before = self.times.seconds();
        self.ways.tell(Command::Want(self.ways.number));
    }

    /// Ends what is left of it.
    pub(crate) fn end(mut self) -> Remains {
        let stall = self.stall;
        self.close().unwrap_or_else(|| Remains { stall, ..Remains::default() })
    }

    fn close(&mut self) -> Option<Remains> {
        let feed = self.feed.take()?;
        if !self.home.is_here() {
            // A child process has the memory of this thread and not the thread.
            let _ = ManuallyDrop::new(feed);
            return None;
        }
        self.stop.set();
        // A feed that waits to hand over is told at once.
        self.ready = None;
        let collected = self.collected();
        // A panicked thread has been reported through `Stop`.
        if join_by(feed, Instant::now() + LEAVE_AFTER).is_none() {
            note_left(&self.ways.notes, "feed", 1);
        }
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let account = std::mem::take(&mut *account);
        let cpu = self.times.seconds().since(&self.used_before);
        Some(Remains { collected, account, stall: self.stall, cpu })
    }

    /// What the collector has of it; `None` when that has died.
    fn collected(&self) -> Option<Collected> {
        let (reply, answer) = bounded(1);
        self.ways.tell(Command::End(self.ways.number, reply));
        loop {
            match answer.recv_timeout(PATIENCE) {
                Ok(collected) => return Some(collected),
                Err(RecvTimeoutError::Disconnected) => return None,
                // The engine may have ended before it saw the command.
                Err(RecvTimeoutError::Timeout) if self.stop.has_no_engine() => {
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.close();
    }
}
